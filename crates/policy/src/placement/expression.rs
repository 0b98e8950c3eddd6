//! Conditions joined by `all`, `any` and `not`.
//!
//! `not` is pushed down to the single conditions when rules are compiled (De Morgan): `not (a and b)` becomes
//! `not a or not b`, and `not (size > 5)` becomes `size <= 5`. Three things follow:
//!
//! - An unknown fact makes a condition and its opposite not hold, as Kleene's logic wants it, with no third value while
//!   rules are evaluated.
//! - A hysteresis under `not` needs no care: the opposite condition has it outwards too, so it always makes the whole
//!   hold for more files.
//! - More conditions that hold never make the whole fail. `domain` and `depends_on_access_time` rely on that.

use umbrella_units::BranchId;

use super::condition::{BadCondition, Test};
use super::spec::Condition;

/// The most conjunctions that [`Expression::alternatives`] makes of one condition.
const MOST_ALTERNATIVES: usize = 32;

/// A condition of a rule, as a whole.
#[derive(Debug, Clone)]
pub(super) enum Expression {
    Test(Box<Test>),
    All(Box<[Expression]>),
    Any(Box<[Expression]>),
}

impl Expression {
    /// Compiles conditions that must all hold.
    pub(super) fn compile<'a>(
        conditions: &'a [Condition],
        resolve: &dyn Fn(&str) -> Option<BranchId>,
    ) -> Result<Expression, BadCondition<'a>> {
        ExpressionCompiler { resolve }.joined(conditions, Joint { all: true, negated: false }, 0)
    }

    /// Whether it holds, when single conditions do as `test` says.
    pub(super) fn holds(&self, test: &impl Fn(&Test) -> bool) -> bool {
        match self {
            Expression::Test(one) => test(one),
            Expression::All(parts) => parts.iter().all(|part| part.holds(test)),
            Expression::Any(parts) => parts.iter().any(|part| part.holds(test)),
        }
    }

    /// Whether any of its single conditions is as `test` says.
    pub(super) fn mentions(&self, test: fn(&Test) -> bool) -> bool {
        match self {
            Expression::Test(one) => test(one),
            Expression::All(parts) | Expression::Any(parts) => parts.iter().any(|part| part.mentions(test)),
        }
    }

    /// Its single conditions.
    pub(super) fn tests(&self) -> Vec<&Test> {
        match self {
            Expression::Test(test) => vec![test],
            Expression::All(parts) | Expression::Any(parts) => parts.iter().flat_map(Expression::tests).collect(),
        }
    }

    /// Parts that must all hold.
    pub(super) fn conjuncts(&self) -> &[Expression] {
        match self {
            Expression::All(parts) => parts,
            one => std::slice::from_ref(one),
        }
    }

    /// Conjunctions of single conditions of which one must hold; `None` when they would be too many.
    pub(super) fn alternatives(&self) -> Option<Vec<Vec<&Test>>> {
        let found = match self {
            Expression::Test(test) => vec![vec![&**test]],
            Expression::Any(parts) => {
                let each = parts.iter().map(Expression::alternatives).collect::<Option<Vec<_>>>()?;
                each.into_iter().flatten().collect()
            }
            Expression::All(parts) => {
                let mut product: Vec<Vec<&Test>> = vec![Vec::new()];
                for part in parts {
                    let own = part.alternatives()?;
                    if product.len() * own.len() > MOST_ALTERNATIVES {
                        return None;
                    }
                    let pairs = product.iter().flat_map(|head| own.iter().map(|tail| [head.as_slice(), tail].concat()));
                    product = pairs.collect();
                }
                product
            }
        };
        (found.len() <= MOST_ALTERNATIVES).then_some(found)
    }
}

/// How a list of conditions is joined, and whether the opposite of the whole is meant.
#[derive(Clone, Copy)]
struct Joint {
    all: bool,
    negated: bool,
}

struct ExpressionCompiler<'r> {
    resolve: &'r dyn Fn(&str) -> Option<BranchId>,
}

impl ExpressionCompiler<'_> {
    fn one<'a>(&self, condition: &'a Condition, negated: bool, depth: usize) -> Result<Expression, BadCondition<'a>> {
        if depth > Condition::MAX_DEPTH {
            return Err(BadCondition::TooDeep);
        }
        match condition {
            Condition::Not(inner) => self.one(inner, !negated, depth + 1),
            Condition::All(list) => self.joined(list, Joint { all: true, negated }, depth + 1),
            Condition::Any(list) => self.joined(list, Joint { all: false, negated }, depth + 1),
            leaf => {
                let test = Test::compile(leaf, self.resolve)?;
                Ok(Expression::Test(Box::new(if negated { test.negated() } else { test })))
            }
        }
    }

    fn joined<'a>(&self, list: &'a [Condition], joint: Joint, depth: usize) -> Result<Expression, BadCondition<'a>> {
        let all = joint.all != joint.negated;
        let mut parts = Vec::with_capacity(list.len());
        for condition in list {
            match self.one(condition, joint.negated, depth)? {
                Expression::All(inner) if all => parts.extend(inner),
                Expression::Any(inner) if !all => parts.extend(inner),
                other => parts.push(other),
            }
        }
        Ok(match (parts.len(), all) {
            (1, _) => parts.swap_remove(0),
            (_, true) => Expression::All(parts.into()),
            (_, false) => Expression::Any(parts.into()),
        })
    }
}
