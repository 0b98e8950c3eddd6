//! A claim of a paper beside what was measured here.

use serde::{Deserialize, Serialize};

/// A difference that a text tells without a number has to be as large as this to count, in percent, in percentage
/// points, or in whatever a claim is in. What is smaller has no sign.
pub const VISIBLE: f64 = 1.0;

/// What a claim has to meet to hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Expect {
    /// The same sign, at most `points` percentage points away from the published value, and at least half as much.
    Within {
        /// Percentage points.
        points: f64,
    },
    /// From `points` percentage points below the published value, the lower of two, to `points` above the upper one.
    /// The sign has to be the same, and the size at least half of the lower value. For texts such as "by 41 to 63 %".
    Between {
        /// The upper value.
        to: f64,
        /// Percentage points.
        points: f64,
    },
    /// The same sign; the size is only reported.
    #[default]
    Sign,
    /// At least the published value.
    AtLeast,
    /// At most the published value.
    AtMost,
    /// Less than `points` percentage points above the published value. "Not slower".
    NoMore {
        /// Percentage points.
        points: f64,
    },
    /// Less than `points` percentage points below the published value. "No worse".
    NoLess {
        /// Percentage points.
        points: f64,
    },
    /// At most `points` percentage points away from zero: "about equal".
    AboutZero {
        /// Percentage points.
        points: f64,
    },
}

/// Whether a claim holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// In sign and within the tolerance.
    Holds,
    /// In sign only, and not so small that it has none.
    SignOnly,
    /// Not even in sign.
    Fails,
    /// Not measured: an input was not run, or the model lacks what the claim is about.
    #[default]
    NotMeasured,
}

/// One thing that a text can mean.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// A word for it.
    pub key: String,
    /// What it is.
    pub says: String,
}

/// A claim of a paper beside what was measured here.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// What the frozen list calls it; empty of a live benchmark.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The figure or table.
    pub figure: String,
    /// The section whose text makes it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub section: String,
    /// What is claimed, in a line.
    pub claim: String,
    /// The published value.
    pub published: f64,
    /// Ours; nothing when it was not measured.
    pub measured: Option<f64>,
    /// The unit of both.
    pub unit: String,
    /// What is measured for it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub measures: String,
    /// What it has to meet.
    pub expect: Expect,
    /// Whether it does, in sign and within the tolerance.
    pub holds: bool,
    /// More exactly.
    pub verdict: Verdict,
    /// The reading of the text that is judged, where it allows several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading: Option<Reading>,
    /// What the others came to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_readings: Vec<OtherReading>,
    /// What inputs came to that the frozen list does not have. They do not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub new_inputs: Vec<OnInput>,
}

/// A claim in a reading of its text that is not the primary one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OtherReading {
    /// Which.
    pub reading: Reading,
    /// What was measured.
    pub measured: f64,
    /// Whether the claim holds.
    pub holds: bool,
    /// More exactly.
    pub verdict: Verdict,
}

/// A claim on an input that the frozen list does not have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OnInput {
    /// The input.
    pub input: String,
    /// What was measured.
    pub measured: f64,
    /// Whether the claim holds.
    pub holds: bool,
    /// More exactly.
    pub verdict: Verdict,
}

impl Claim {
    /// Judges a claim that is not in the frozen list.
    pub fn new(
        figure: &str,
        claim: impl Into<String>,
        unit: &str,
        published: f64,
        measured: f64,
        expect: Expect,
    ) -> Claim {
        let verdict = evaluate(published, measured, expect);
        Claim {
            figure: figure.to_owned(),
            claim: claim.into(),
            published,
            measured: Some(measured),
            unit: unit.to_owned(),
            expect,
            holds: verdict == Verdict::Holds,
            verdict,
            ..Claim::default()
        }
    }

    /// What was published and what the measured value has to meet, as the pages' tables have it: `4, within 5 %`.
    pub fn wanted(&self) -> String {
        let published = tenths(self.published);
        let wanted = match self.expect {
            Expect::AtLeast => format!("at least {published}"),
            Expect::AtMost => format!("at most {published}"),
            Expect::Within { points } => format!("{published}, within {}", tenths(points)),
            Expect::Between { to, points } => format!("{published} to {}, within {}", tenths(to), tenths(points)),
            Expect::AboutZero { points } => format!("0, within {}", tenths(points)),
            Expect::NoMore { points } => format!("not above {published} by {}", tenths(points)),
            Expect::NoLess { points } => format!("not below {published} by {}", tenths(points)),
            Expect::Sign => published,
        };
        with_unit(wanted, &self.unit)
    }

    /// A measured value of it.
    pub fn shown(&self, measured: f64) -> String {
        with_unit(tenths(measured), &self.unit)
    }
}

fn with_unit(number: String, unit: &str) -> String {
    if unit.is_empty() { number } else { format!("{number} {unit}") }
}

/// Rounded to a tenth, without a zero behind the point.
fn tenths(value: f64) -> String {
    let tenths = (value * 10.0).round() / 10.0;
    // Nothing is neither more nor less than nothing.
    if tenths == 0.0 { "0".to_owned() } else { tenths.to_string() }
}

/// How a measured value compares to a published one.
pub(crate) fn evaluate(published: f64, measured: f64, expect: Expect) -> Verdict {
    // Nothing has the sign of nothing only.
    let same_sign = published == 0.0 || published * measured > 0.0;
    let half = same_sign && 2.0 * measured.abs() >= published.abs();
    let met = match expect {
        Expect::Within { points } => half && (published - measured).abs() <= points,
        Expect::Between { to, points } => {
            half && measured >= published.min(to) - points && measured <= published.max(to) + points
        }
        Expect::Sign => same_sign,
        Expect::AtLeast => measured >= published,
        Expect::AtMost => measured <= published,
        Expect::AboutZero { points } => measured.abs() <= points,
        Expect::NoMore { points } => measured < published + points,
        Expect::NoLess { points } => measured > published - points,
    };
    // A missed bound has no sign to be right in. Neither has zero, or a value too close to it.
    let sized = matches!(expect, Expect::Within { .. } | Expect::Between { .. } | Expect::Sign);
    let has_sign = published != 0.0 && measured.abs() >= VISIBLE && sized;
    match (met, same_sign && has_sign) {
        (true, _) => Verdict::Holds,
        (false, true) => Verdict::SignOnly,
        (false, false) => Verdict::Fails,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_claim_has_to_meet_is_reported() {
        let wanted = |published, expect| Claim::new("1", "", "%", published, -0.04, expect).wanted();
        assert_eq!(wanted(4.0, Expect::Within { points: 5.0 }), "4, within 5 %");
        assert_eq!(wanted(0.0, Expect::AboutZero { points: 2.5 }), "0, within 2.5 %");
        assert_eq!(wanted(41.04, Expect::Between { to: 63.6, points: 10.0 }), "41 to 63.6, within 10 %");
        assert_eq!(wanted(9.96, Expect::AtLeast), "at least 10 %");
        assert_eq!(wanted(0.0, Expect::AtMost), "at most 0 %");
        assert_eq!(wanted(-6.5, Expect::Sign), "-6.5 %");
        assert_eq!(wanted(0.0, Expect::NoMore { points: 1.0 }), "not above 0 by 1 %");
        assert_eq!(Claim::new("1", "", "", 4.0, -0.04, Expect::Sign).shown(-0.04), "0");
    }

    #[test]
    fn a_claim_holds_in_sign_and_within_its_tolerance() {
        let within = Expect::Within { points: 5.0 };
        assert_eq!(evaluate(33.1, 30.0, within), Verdict::Holds);
        assert_eq!(evaluate(33.1, 20.0, within), Verdict::SignOnly);
        assert_eq!(evaluate(3.0, -1.0, within), Verdict::Fails);
        assert_eq!(evaluate(-7.0, -3.4, within), Verdict::SignOnly, "near, but less than half");
        assert_eq!(evaluate(-7.0, -3.5, within), Verdict::Holds);
        assert_eq!(evaluate(33.1, 0.0, within), Verdict::Fails, "nothing was measured, or no difference");
        assert_eq!(evaluate(33.1, 0.0, Expect::Sign), Verdict::Fails);
        assert_eq!(evaluate(33.1, 0.9, within), Verdict::Fails, "too little to have a sign");
        assert_eq!(evaluate(33.1, 1.0, within), Verdict::SignOnly);
        assert_eq!(evaluate(3.0, f64::NAN, within), Verdict::Fails);
        assert_eq!(evaluate(33.1, 1.0, Expect::Sign), Verdict::Holds);
        let between = Expect::Between { to: 7.3, points: 10.0 };
        assert_eq!(
            [2.8, 2.9, 17.3].map(|measured| evaluate(5.8, measured, between)),
            [Verdict::SignOnly, Verdict::Holds, Verdict::Holds]
        );
        assert_eq!(evaluate(5.8, 17.4, between), Verdict::SignOnly, "more than was published");
        assert_eq!(evaluate(5.8, -3.0, between), Verdict::Fails);
        assert_eq!(evaluate(446.8, 500.0, Expect::AtMost), Verdict::Fails);
        assert_eq!(evaluate(0.0, 3.0, Expect::AtMost), Verdict::Fails);
        assert_eq!(evaluate(0.0, 7.0, within), Verdict::Fails);
        assert_eq!(evaluate(0.0, -2.0, Expect::AboutZero { points: 3.0 }), Verdict::Holds);
        assert_eq!(evaluate(0.0, -4.0, Expect::AboutZero { points: 3.0 }), Verdict::Fails);
        assert_eq!(evaluate(10.0, 12.0, Expect::AtLeast), Verdict::Holds);
        assert_eq!(evaluate(0.0, 0.9, Expect::NoMore { points: 1.0 }), Verdict::Holds, "too little to be slower");
        assert_eq!(evaluate(0.0, 1.0, Expect::NoMore { points: 1.0 }), Verdict::Fails);
        assert_eq!(evaluate(0.0, -1.0, Expect::NoLess { points: 1.0 }), Verdict::Fails);
        assert_eq!(evaluate(0.0, -0.9, Expect::NoLess { points: 1.0 }), Verdict::Holds);
    }
}
