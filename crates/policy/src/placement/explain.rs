//! The same decision, with its reasons in words for `umbrella explain`.

use umbrella_units::{BranchId, ByteSize, format_duration};

use super::choose::ChoiceReason;
use super::condition::{Test, Verdict};
use super::expression::Expression;
use super::facts::{BranchView, FileFacts, Resident, Stage, view};
use super::rules::{Choice, ConditionalEntry, Decision, EntryId, MatchedEntry, Names, Rule, Rules, Treat, Views};
use super::slot::Slot;
use super::spec::SpreadOrder;
use super::spread::PickReason;
use super::surroundings::Surroundings;
use super::treatment;
use super::words;

/// A decision and how it came about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// What [`Rules::decide`] says.
    pub decision: Decision,
    /// The rules that were looked at, in order; the last one decides.
    pub steps: Vec<ExplainedRule>,
    /// Why this branch of the deciding entry's list, or none.
    pub why: String,
    /// Whether the file is on the first entry of its list: there is no better place for it.
    pub is_first_choice: bool,
}

/// One rule that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedRule {
    /// The entry's name; the table's name when none of its patterns matches.
    pub rule: String,
    /// Whether it decides.
    pub matched: bool,
    /// Why, or why not.
    pub reason: String,
    /// Each condition of a rule that joins some by `any`; empty for other rules.
    pub parts: Vec<ExplainedCondition>,
}

/// One condition of a rule, or what joins the deeper ones that follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedCondition {
    /// How deep it is, from 0.
    pub depth: usize,
    /// Whether it holds; `None`: unknown.
    pub holds: Option<bool>,
    /// `size is 12 KiB, the rule wants >= 1 MiB`, or `any of`.
    pub text: String,
}

/// A file, and the branches as they are, before a rule.
#[derive(Clone, Copy)]
struct Case<'a> {
    facts: &'a FileFacts<'a>,
    branches: &'a [BranchView],
    /// Whether the hystereses of the rule count.
    with_hysteresis: bool,
}

impl Rules {
    /// Decides as [`Rules::decide`] does, and says why.
    pub fn explain(
        &self,
        facts: &FileFacts<'_>,
        branches: &[BranchView],
        resident: Option<&Resident>,
        around: &dyn Surroundings,
    ) -> Explained {
        let mut steps = Vec::new();
        let mut buffer = Views::new();
        let for_conditions = self.for_conditions(branches, &mut buffer);
        let found = self.entry_by_steps(facts, for_conditions, resident, &mut steps);
        let with_stay = self.resident_with_min_stay(facts, branches, resident);
        let (choice, because) = self.choose(found, facts, branches, with_stay.as_ref(), around);
        let why = self.why(found.entry, choice, because, facts, branches, with_stay.as_ref());
        let is_first_choice = because == ChoiceReason::Home(0);
        Explained { decision: Decision { entry: found.entry, choice }, steps, why, is_first_choice }
    }

    fn entry_by_steps(
        &self,
        facts: &FileFacts<'_>,
        branches: &[BranchView],
        resident: Option<&Resident>,
        steps: &mut Vec<ExplainedRule>,
    ) -> MatchedEntry {
        for rule in &self.ordered {
            let decided = match rule {
                Rule::When(when) => self.step_of_rule(when, facts, branches, resident, steps),
                Rule::Treat(treat) => {
                    steps.push(self.step_of_treatment(treat, Case { facts, branches, with_hysteresis: false }));
                    None
                }
                Rule::Names(names) => {
                    self.steps_of_table(names, facts, branches, steps).map(MatchedEntry::without_hysteresis)
                }
            };
            if let Some(found) = decided {
                return found;
            }
        }
        let entry = self.default_entry();
        steps.push(self.step(entry, true, "no rule matches".to_owned()));
        MatchedEntry::without_hysteresis(entry)
    }

    fn step(&self, entry: EntryId, matched: bool, reason: String) -> ExplainedRule {
        ExplainedRule { rule: self.entries[entry.index()].name.clone(), matched, reason, parts: Vec::new() }
    }

    fn step_of_rule(
        &self,
        when: &ConditionalEntry,
        facts: &FileFacts<'_>,
        branches: &[BranchView],
        resident: Option<&Resident>,
        steps: &mut Vec<ExplainedRule>,
    ) -> Option<MatchedEntry> {
        let case = Case { facts, branches, with_hysteresis: self.hysteresis_applies(when, branches, resident) };
        let (holds, mut reason, parts) = self.judged(&when.condition, case);
        let inactive = holds && self.inactive(when.entry, branches);
        if inactive {
            reason = self.passed_over(when.entry);
        }
        let matched = holds && !inactive;
        steps.push(ExplainedRule { parts, ..self.step(when.entry, matched, reason) });
        let without_hysteresis =
            || when.condition.holds(&|test| test.verdict(facts, branches, false) == Verdict::Holds);
        matched.then(|| MatchedEntry { entry: when.entry, by_band: !without_hysteresis() })
    }

    fn step_of_treatment(&self, treat: &Treat, case: Case<'_>) -> ExplainedRule {
        let (holds, why, parts) = self.judged(&treat.condition, case);
        let says = treatment::written(treat.treatment);
        let reason = if holds { format!("decides no place, only {says}: {why}") } else { why };
        ExplainedRule { rule: treat.name.clone(), matched: false, reason, parts }
    }

    /// Whether a rule's condition holds, why or why not, and its parts when it joins some.
    fn judged(&self, condition: &Expression, case: Case<'_>) -> (bool, String, Vec<ExplainedCondition>) {
        let (mut held, mut missed, mut parts) = (Vec::new(), Vec::new(), Vec::new());
        for conjunct in condition.conjuncts() {
            let first = parts.len();
            let holds = self.part(conjunct, case, 0, &mut parts);
            let reason = match conjunct {
                Expression::Test(_) => parts[first].text.clone(),
                _ => shortened(&parts[first..], holds == Some(true)),
            };
            if holds == Some(true) { &mut held } else { &mut missed }.push(reason);
        }
        if condition.conjuncts().iter().all(|conjunct| matches!(conjunct, Expression::Test(_))) {
            parts.clear();
        }
        let reason = match (missed.is_empty(), held.is_empty()) {
            (false, _) => missed.join("; "),
            (true, true) => "it has no conditions".to_owned(),
            (true, false) => held.join("; "),
        };
        (missed.is_empty(), reason, parts)
    }

    /// Notes a condition, and those that it joins; says whether it holds.
    fn part(
        &self,
        condition: &Expression,
        case: Case<'_>,
        depth: usize,
        parts: &mut Vec<ExplainedCondition>,
    ) -> Option<bool> {
        let (joined, decisive, text) = match condition {
            Expression::Test(test) => {
                let (holds, text) = self.single(test, case);
                parts.push(ExplainedCondition { depth, holds, text });
                return holds;
            }
            Expression::All(joined) => (joined, false, "all of"),
            Expression::Any(joined) => (joined, true, "any of"),
        };
        let place = parts.len();
        parts.push(ExplainedCondition { depth, holds: None, text: text.to_owned() });
        let each: Vec<Option<bool>> = joined.iter().map(|one| self.part(one, case, depth + 1, parts)).collect();
        let holds =
            if each.contains(&Some(decisive)) { Some(decisive) } else { (!each.contains(&None)).then_some(!decisive) };
        parts[place].holds = holds;
        holds
    }

    /// Whether a single condition holds, and why or why not.
    fn single(&self, test: &Test, case: Case<'_>) -> (Option<bool>, String) {
        let subject = self.subject(test);
        let actual = words::actual(test, case.facts, case.branches);
        let wanted = words::wanted(test);
        let wants = wanted.strip_prefix("= ").unwrap_or(&wanted);
        match test.verdict(case.facts, case.branches, case.with_hysteresis) {
            Verdict::Holds if test.verdict(case.facts, case.branches, false) == Verdict::Holds => {
                (Some(true), format!("{subject} is {actual}"))
            }
            Verdict::Holds => {
                let hysteresis = words::hysteresis(test).unwrap_or_default();
                (Some(true), format!("{subject} is {actual}, within the hysteresis of {hysteresis} around {wanted}"))
            }
            Verdict::Fails => (Some(false), format!("{subject} is {actual}, the rule wants {wants}")),
            Verdict::Unknown => (None, format!("{subject} is {actual}, the rule wants {wants}")),
            Verdict::NotYetKnown => (None, format!("needs the {subject}, which a new file does not have yet")),
            Verdict::Unreachable => (None, format!("{subject} is not known while it is offline")),
        }
    }

    fn steps_of_table(
        &self,
        names: &Names,
        facts: &FileFacts<'_>,
        branches: &[BranchView],
        steps: &mut Vec<ExplainedRule>,
    ) -> Option<EntryId> {
        let matching = names.table.find_all(facts.path);
        if matching.is_empty() {
            let reason = "no pattern matches".to_owned();
            steps.push(ExplainedRule { rule: names.name.clone(), matched: false, reason, parts: Vec::new() });
            return None;
        }
        for (place, &pattern) in matching.iter().enumerate() {
            let entry = names.entry(pattern);
            if self.inactive(entry, branches) {
                steps.push(self.step(entry, false, self.passed_over(entry)));
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

    fn passed_over(&self, entry: EntryId) -> String {
        format!("passed over: {}, the first of its list, is offline", self.first_name(entry))
    }

    /// The first of an entry's list, quoted.
    pub(super) fn first_name(&self, entry: EntryId) -> String {
        let first = self.entries[entry.index()].to.first();
        first.map_or_else(String::new, |slot| format!("\"{}\"", slot.name))
    }

    fn why(
        &self,
        entry: EntryId,
        choice: Choice,
        because: ChoiceReason,
        facts: &FileFacts<'_>,
        branches: &[BranchView],
        resident: Option<&Resident>,
    ) -> String {
        let info = &self.entries[entry.index()];
        let current = resident.map_or_else(String::new, |resident| self.branch_name(resident.branch));
        let chosen = match choice {
            Choice::Place(branch) => self.branch_name(branch),
            Choice::Stay | Choice::NoRoom => current.clone(),
        };
        // How many entries of the list were passed by.
        let passed = match because {
            ChoiceReason::Home(place)
            | ChoiceReason::Picked(place, _)
            | ChoiceReason::TogetherFull(place, _)
            | ChoiceReason::PathFull(place) => place,
            ChoiceReason::Full => info.to.len(),
            _ => 0,
        };
        let home_id = resident
            .map(|resident| resident.branch)
            .filter(|current| view(branches, *current).is_some_and(BranchView::open));
        let limited = self.is_limited(info, home_id);
        let obstacle = |branch| {
            let level = limited.then(|| self.blocking_low_mark(branch, facts, branches)).flatten();
            level.unwrap_or_else(|| self.obstacle(branch, facts, branches))
        };
        let mut said: Vec<String> = info.to.iter().take(passed).map(|slot| obstacle_of(slot, &obstacle)).collect();
        let slot = info.to.get(passed).map_or("", |slot| slot.name.as_str());
        said.push(match because {
            ChoiceReason::HomeOffline => format!("it is on {current}, which is offline: nothing can be moved from there"),
            ChoiceReason::Held => {
                let stays = resident.map_or_else(String::new, |resident| format_duration(resident.min_stay));
                format!("it came to {current} less than {stays} ago and stays that long (min_stay)")
            }
            ChoiceReason::Hysteresis => format!("it is on {current} and stays there while it is within the hysteresis"),
            ChoiceReason::DefaultHome => format!("no rule names it, and the default list names {current}"),
            ChoiceReason::Evicted => {
                let or_opened = if info.warm_from.is_some() { " or is opened" } else { "" };
                format!(
                    "it left for {current} because an earlier branch was too full (evict), and stays until it changes{or_opened}"
                )
            }
            ChoiceReason::Home(_) => format!("it is on {current}{}", of_group(info.to.get(passed))),
            ChoiceReason::Picked(_, how) => {
                let of = of_group(info.to.get(passed));
                let free = match choice {
                    Choice::Place(branch) => view(branches, branch).map(|view| view.free),
                    Choice::Stay | Choice::NoRoom => None,
                };
                let words = self.picked(how, info.to.get(passed), facts.path, free.unwrap_or_default());
                format!("{chosen}{of} {words}")
            }
            ChoiceReason::TogetherFull(_, holder) => format!(
                "{} of \"{slot}\" holds most of its directory and is full, and the file may be nowhere else (together_spill = false)",
                self.branch_name(holder)
            ),
            ChoiceReason::PathFull(_) => {
                format!("the branches of \"{slot}\" that have its directory are full, or take no new files (spread = \
                    \"only-same-path\")")
            }
            ChoiceReason::FirstOffline => {
                format!("{} is offline, and no file is created meanwhile (offline = \"fail\")", self.first_name(entry))
            }
            ChoiceReason::Full => format!("the list of {} is full, and names no other branch", self.list_name(entry)),
        });
        said.join("; ")
    }

    /// What a list is called in messages.
    fn list_name(&self, entry: EntryId) -> String {
        let name = &self.entries[entry.index()].name;
        if entry == self.default_entry() { "`default`".to_owned() } else { format!("rule \"{name}\"") }
    }

    fn picked(&self, how: PickReason, slot: Option<&Slot>, path: &[u8], free: ByteSize) -> String {
        let group = slot.and_then(|slot| slot.sets.iter().find_map(|set| self.groups.get(set.group?)));
        match how {
            PickReason::Together => {
                let dir = group.and_then(|group| group.kept_together(path)).unwrap_or_default();
                format!("holds most of {}, which is kept together", String::from_utf8_lossy(dir))
            }
            PickReason::Only => format!("has room ({free} free)"),
            PickReason::SamePath => "has its directory".to_owned(),
            PickReason::Order(SpreadOrder::MostFree) => "has most free space".to_owned(),
            PickReason::Order(SpreadOrder::MostFreeShare) => "has the largest share of free space".to_owned(),
            PickReason::Order(SpreadOrder::LeastFree) => "has least free space that is enough".to_owned(),
            PickReason::Order(SpreadOrder::LeastUsed) => "has least used space".to_owned(),
            PickReason::Order(SpreadOrder::InOrder) => "is the first with room".to_owned(),
            PickReason::Order(SpreadOrder::RoundRobin) => "is next in turn".to_owned(),
            PickReason::Order(SpreadOrder::Random) => "was chosen at random".to_owned(),
            PickReason::Order(SpreadOrder::RandomByFree) => "was chosen at random, weighted by free space".to_owned(),
            PickReason::Order(SpreadOrder::HighWater) => "is the first above the high-water mark".to_owned(),
        }
    }

    /// For a file that could stay where it is: the fill level whose low mark it would pass, where nothing else is in
    /// its way.
    fn blocking_low_mark(&self, branch: BranchId, facts: &FileFacts<'_>, branches: &[BranchView]) -> Option<String> {
        view(branches, branch).filter(|view| view.takes_new() && view.has_room_to_move(facts.need()))?;
        let levels = self.evicts.iter().filter(|evict| evict.members.contains(&branch));
        let (evict, room) =
            levels.filter_map(|evict| Some((evict, evict.room(branches)?))).min_by_key(|(_, room)| *room)?;
        let (name, of, until, need) = (self.branch_name(branch), &evict.of, evict.until, facts.need());
        Some(format!(
            "{name} takes files from elsewhere only until {until} of \"{of}\" are used (evict): {room} left, {need} needed"
        ))
    }

    /// Why a branch cannot take a file.
    fn obstacle(&self, branch: BranchId, facts: &FileFacts<'_>, branches: &[BranchView]) -> String {
        let name = self.branch_name(branch);
        match view(branches, branch) {
            None => format!("{name} is offline"),
            Some(view) if !view.online => format!("{name} is offline"),
            Some(view) if !view.writable => format!("{name} takes nothing new"),
            Some(view) if !view.creates => format!("{name} takes no new files (create = false)"),
            Some(view) if view.has_inode() && facts.stage == Stage::Settled && !view.has_inodes_to_move() => {
                format!("{name} has only one free inode, and a move needs two")
            }
            Some(view) if !view.has_inode() => {
                let most = view.inodes.map_or(0, |inodes| inodes.total);
                format!("{name} has no free inode (of {most})")
            }
            Some(view) => {
                format!("{name} has no room ({} free, {} kept free, {} needed)", view.free, view.min_free, facts.need())
            }
        }
    }
}

/// Why no branch of an entry can take a file.
fn obstacle_of(slot: &Slot, obstacle: &dyn Fn(BranchId) -> String) -> String {
    let each: Vec<String> = slot.members().map(obstacle).collect();
    match each.as_slice() {
        [] => format!("\"{}\" has no branch left", slot.name),
        [one] => one.clone(),
        several => format!("no branch of \"{}\" can take it: {}", slot.name, several.join(", ")),
    }
}

/// What holds of joined conditions, or that too little does.
fn shortened(parts: &[ExplainedCondition], holds: bool) -> String {
    if holds {
        let joins = |index: usize| parts.get(index + 1).is_some_and(|next| next.depth > parts[index].depth);
        let single = parts.iter().enumerate().filter(|(index, part)| part.holds == Some(true) && !joins(*index));
        return single.map(|(_, part)| part.text.as_str()).collect::<Vec<_>>().join(" and ");
    }
    let alternatives = parts.iter().filter(|part| part.depth == parts[0].depth + 1).count();
    format!("none of its {alternatives} alternatives holds")
}

/// Says which group a branch was chosen from.
fn of_group(slot: Option<&Slot>) -> String {
    let several = slot.filter(|slot| slot.branch().is_none());
    several.map_or_else(String::new, |slot| format!(" of \"{}\"", slot.name))
}
