//! The same decision, with its reasons in words for `umbrella explain`.

use umbrella_units::{BranchId, format_duration};

use super::choose::{Because, choose};
use super::condition::Verdict;
use super::facts::{BranchView, FileFacts, Resident, view};
use super::rules::{Choice, Decision, EntryId, Found, Names, Rule, Rules, When};
use super::words;

/// A decision and how it came about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// What [`Rules::decide`] says.
    pub decision: Decision,
    /// The rules that were looked at, in order; the last one decides.
    pub steps: Vec<Step>,
    /// Why this branch of the deciding entry's list, or none.
    pub why: String,
}

/// One rule that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The entry's name; the table's name when none of its patterns matches.
    pub rule: String,
    /// Whether it decides.
    pub matched: bool,
    /// Why, or why not.
    pub reason: String,
}

impl Rules {
    /// Decides as [`Rules::decide`] does, and says why.
    pub fn explain(&self, facts: &FileFacts<'_>, branches: &[BranchView], resident: Option<&Resident>) -> Explained {
        let mut steps = Vec::new();
        let found = self.entry_by_steps(facts, branches, resident, &mut steps);
        let (choice, because) = choose(self.destination(found), facts.need(), facts.now, branches, resident);
        let why = self.why(found.entry, choice, because, facts, branches, resident);
        Explained { decision: Decision { entry: found.entry, choice }, steps, why }
    }

    fn entry_by_steps(
        &self,
        facts: &FileFacts<'_>,
        branches: &[BranchView],
        resident: Option<&Resident>,
        steps: &mut Vec<Step>,
    ) -> Found {
        for rule in &self.ordered {
            let decided = match rule {
                Rule::When(when) => self.step_of_rule(when, facts, branches, resident, steps),
                Rule::Names(names) => self.steps_of_table(names, facts, branches, steps).map(Found::outright),
            };
            if let Some(found) = decided {
                return found;
            }
        }
        let entry = self.default_entry();
        steps.push(self.step(entry, true, "no rule matches".to_owned()));
        Found::outright(entry)
    }

    fn step(&self, entry: EntryId, matched: bool, reason: String) -> Step {
        Step { rule: self.entries[entry.index()].name.clone(), matched, reason }
    }

    fn step_of_rule(
        &self,
        when: &When,
        facts: &FileFacts<'_>,
        branches: &[BranchView],
        resident: Option<&Resident>,
        steps: &mut Vec<Step>,
    ) -> Option<Found> {
        let home = self.is_home(when, branches, resident);
        let mut by_band = false;
        let mut held = Vec::new();
        let mut missed = Vec::new();
        for test in &when.tests {
            let subject = self.subject(test);
            match test.verdict(facts, branches, home) {
                Verdict::Holds if test.verdict(facts, branches, false) == Verdict::Holds => {
                    held.push(format!("{subject} is {}", words::actual(test, facts, branches)));
                }
                Verdict::Holds => {
                    by_band = true;
                    held.push(format!(
                        "{subject} is {}, within the hysteresis of {} around {}",
                        words::actual(test, facts, branches),
                        words::hysteresis(test).unwrap_or_default(),
                        words::wanted(test)
                    ));
                }
                Verdict::Fails => missed.push(format!(
                    "{subject} is {}, the rule wants {}",
                    words::actual(test, facts, branches),
                    words::wanted(test)
                )),
                Verdict::NotYetKnown => {
                    missed.push(format!("needs the {subject}, which a new file does not have yet"));
                }
                Verdict::Unreachable => missed.push(format!("{subject} is not known while it is offline")),
            }
        }
        if !missed.is_empty() {
            steps.push(self.step(when.entry, false, missed.join("; ")));
            return None;
        }
        if self.inactive(when.entry, branches) {
            steps.push(self.step(when.entry, false, self.passed_over(when.first)));
            return None;
        }
        let reason = if held.is_empty() { "it has no conditions".to_owned() } else { held.join("; ") };
        steps.push(self.step(when.entry, true, reason));
        Some(Found { entry: when.entry, by_band })
    }

    fn steps_of_table(
        &self,
        names: &Names,
        facts: &FileFacts<'_>,
        branches: &[BranchView],
        steps: &mut Vec<Step>,
    ) -> Option<EntryId> {
        let matching = names.table.find_all(facts.path);
        if matching.is_empty() {
            let reason = "no pattern matches".to_owned();
            steps.push(Step { rule: names.name.clone(), matched: false, reason });
            return None;
        }
        for (place, &pattern) in matching.iter().enumerate() {
            let entry = names.entry(pattern);
            if self.inactive(entry, branches) {
                let first = self.entries[entry.index()].to[0];
                steps.push(self.step(entry, false, self.passed_over(first)));
                continue;
            }
            let mut reason = format!("{} literal characters match", names.globs[pattern as usize].1.literals);
            if let Some(&shorter) = matching.get(place + 1) {
                let (text, glob) = &names.globs[shorter as usize];
                reason = format!("{reason}, \"{text}\" has {}", glob.literals);
            }
            steps.push(self.step(entry, true, reason));
            return Some(entry);
        }
        None
    }

    fn passed_over(&self, first: BranchId) -> String {
        format!("passed over: its first branch {} is offline", self.branch_name(first))
    }

    fn why(
        &self,
        entry: EntryId,
        choice: Choice,
        because: Because,
        facts: &FileFacts<'_>,
        branches: &[BranchView],
        resident: Option<&Resident>,
    ) -> String {
        let info = &self.entries[entry.index()];
        let home = resident.map_or_else(String::new, |resident| self.branch_name(resident.branch));
        let chosen = match choice {
            Choice::Place(branch) => self.branch_name(branch),
            Choice::Stay | Choice::NoRoom => home.clone(),
        };
        // What stood before the chosen branch in its list.
        let stop = match (choice, because) {
            (Choice::Place(branch), Because::Listed) => Some(branch),
            (Choice::Stay, Because::Home) => resident.map(|resident| resident.branch),
            _ => None,
        };
        let passed: Vec<String> = info
            .to
            .iter()
            .take_while(|branch| Some(**branch) != stop)
            .map(|branch| self.obstacle(*branch, facts, branches))
            .collect();
        let passed = passed.join("; ");
        let after = |text: String| if passed.is_empty() { text } else { format!("{passed}; {text}") };
        match because {
            Because::HomeOffline => format!("it is on {home}, which is offline: nothing can be moved from there"),
            Because::Held => {
                let stays = resident.map_or_else(String::new, |resident| format_duration(resident.min_stay));
                format!("it came to {home} less than {stays} ago and stays that long (min_stay)")
            }
            Because::Hysteresis => format!("it is on {home} and stays there while it is within the hysteresis"),
            Because::DefaultHome => format!("no rule names it, and the default list names {home}"),
            Because::Home => after(format!("it is on {home}")),
            Because::Listed => after(format!("{chosen} has room")),
            Because::Spilled => after(format!("it has spilled to {home} and stays there until its list has room")),
            Because::Default => after(format!("{chosen} of the default list has room")),
            Because::Roomiest => after(format!("{chosen} has most free space")),
            Because::Full if info.spill => after("no other branch has room".to_owned()),
            Because::Full => after("it may go nowhere else (spill = false)".to_owned()),
        }
    }

    /// Why a branch cannot take a file.
    fn obstacle(&self, branch: BranchId, facts: &FileFacts<'_>, branches: &[BranchView]) -> String {
        let name = self.branch_name(branch);
        match view(branches, branch) {
            None => format!("{name} is offline"),
            Some(view) if !view.online => format!("{name} is offline"),
            Some(view) if !view.writable => format!("{name} takes nothing new"),
            Some(view) => {
                format!("{name} has no room ({} free, {} kept free, {} needed)", view.free, view.min_free, facts.need())
            }
        }
    }
}
