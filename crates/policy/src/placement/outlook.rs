//! Facts on which the place of a new file still depends: its size, which is not known yet, or how it may be accessed.
//! Many programs set the latter at the end.
//!
//! Conditions that hold more often never make a rule hold less often (see `expression`). So a rule can come to hold for
//! a file exactly when it does with every unknown condition taken as true that some size makes true.

use umbrella_units::ByteSize;

use super::condition::{Test, Verdict};
use super::facts::{BranchView, FileFacts};
use super::rules::{Rule, Rules, Views};
use super::spec::Comparison;

/// What a new file waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outlook {
    /// Beyond this size no rule asks for more of it. `None`: one asks for its access too, which only the end of writing
    /// settles.
    pub last_threshold: Option<ByteSize>,
}

impl Rules {
    /// Whether any rule asks for a fact that a new file does not have yet.
    pub fn need_late_facts(&self) -> bool {
        self.need_late_facts
    }

    /// What the place of a new file waits for, if it waits no longer than until it grows beyond `most`. `None`: its
    /// place is certain, or waiting until then would not settle it.
    pub fn outlook(&self, facts: &FileFacts<'_>, branches: &[BranchView], most: ByteSize) -> Option<Outlook> {
        if !self.need_late_facts {
            return None;
        }
        let mut buffer = Views::new();
        let branches = self.for_conditions(branches, &mut buffer);
        let mut outlook: Option<Outlook> = None;
        for rule in &self.ordered {
            if self.decided_by(rule, facts, branches, None).is_some() {
                break;
            }
            let Rule::When(when) = rule else { continue };
            let may_hold = |test: &Test| match test.verdict(facts, branches, false) {
                Verdict::NotYetKnown => test.may_hold_within(most),
                verdict => verdict == Verdict::Holds,
            };
            if !when.condition.mentions(Test::is_late)
                || !when.condition.holds(&may_hold)
                || self.inactive(when.entry, branches)
            {
                continue;
            }
            let before = outlook.map_or(Some(ByteSize(0)), |outlook| outlook.last_threshold);
            let own = when.condition.tests().into_iter().filter(|test| test.is_late()).map(Test::last_threshold);
            let last_threshold = own.fold(before, |last, own| Some(last?.max(own?)));
            outlook = Some(Outlook { last_threshold });
        }
        outlook
    }
}

impl Test {
    /// Whether it looks at what a new file does not have yet.
    pub(super) fn is_late(&self) -> bool {
        matches!(self, Test::Size { .. } | Test::Access { .. })
    }

    /// Whether it can come to hold for a new file of at most `most` bytes.
    fn may_hold_within(&self, most: ByteSize) -> bool {
        let Test::Size { is, value, .. } = self else { return true };
        match is {
            Comparison::Less => *value > 0,
            Comparison::LessOrEqual | Comparison::NotEqual => true,
            Comparison::Equal | Comparison::GreaterOrEqual => *value <= most.0,
            Comparison::Greater => *value < most.0,
        }
    }

    /// The size beyond which its answer is always the same; `None` for what no size settles.
    fn last_threshold(&self) -> Option<ByteSize> {
        match self {
            Test::Size { value, .. } => Some(ByteSize(*value)),
            _ => None,
        }
    }
}
