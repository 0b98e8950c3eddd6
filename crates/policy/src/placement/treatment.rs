//! How a file is treated: what the rules say that match it, in their order, up to the one that decides where it
//! belongs.
//!
//! The first rule that says something of a matter has the last word on it; where no rule does, the branch has.

use super::facts::{BranchView, FileFacts, Resident};
use super::rules::{Rule, Rules, Views};
use super::spec::{StagingMode, Treatment};
use umbrella_units::format_duration;

impl Rules {
    /// What any rule says; a matter of which none does needs no [`Rules::treatment`].
    pub fn treats(&self) -> Treatment {
        self.treats
    }

    /// Whether any new file may wait in memory, where `mode` holds for those of which no rule says something.
    pub fn may_stage(&self, mode: StagingMode) -> bool {
        let said = |wanted| mode == wanted || self.staging_modes.contains(&wanted);
        said(StagingMode::Always) || self.need_late_facts && said(StagingMode::Auto)
    }

    /// How the rules want a file treated.
    pub fn treatment(&self, facts: &FileFacts<'_>, branches: &[BranchView], resident: Option<&Resident>) -> Treatment {
        let mut buffer = Views::new();
        let branches = self.for_conditions(branches, &mut buffer);
        let mut treatment = Treatment::default();
        for rule in &self.ordered {
            match rule {
                Rule::Treat(treat) if treat.matches(facts, branches) => treatment = treatment.or(treat.treatment),
                Rule::When(when) if self.matches(when, facts, branches, resident).is_some() => {
                    return treatment.or(when.treatment);
                }
                Rule::Names(_) if self.decided_by(rule, facts, branches, resident).is_some() => return treatment,
                Rule::Treat(_) | Rule::When(_) | Rule::Names(_) => {}
            }
        }
        treatment
    }

    /// Where a file is, with the stay that its rules want.
    pub(super) fn resident_with_min_stay(
        &self,
        facts: &FileFacts<'_>,
        branches: &[BranchView],
        resident: Option<&Resident>,
    ) -> Option<Resident> {
        let resident = *resident?;
        if self.treats.min_stay.is_none() {
            return Some(resident);
        }
        let min_stay = self.treatment(facts, branches, Some(&resident)).min_stay.unwrap_or(resident.min_stay);
        Some(Resident { min_stay, ..resident })
    }
}

/// A treatment as it is written: `passthrough = false, min_stay = 1d`.
pub(super) fn written(treatment: Treatment) -> String {
    let staging = treatment.staging.map(|mode| match mode {
        StagingMode::Auto => "staging = auto".to_owned(),
        StagingMode::Always => "staging = always".to_owned(),
        StagingMode::Never => "staging = never".to_owned(),
    });
    let passthrough = treatment.passthrough.map(|allowed| format!("passthrough = {allowed}"));
    let min_stay = treatment.min_stay.map(|stay| format!("min_stay = {}", format_duration(stay)));
    staging.into_iter().chain(passthrough).chain(min_stay).collect::<Vec<_>>().join(", ")
}
