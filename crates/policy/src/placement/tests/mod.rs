//! Placement as a user meets it: rules as they are written, files, branches, and what is decided.

mod choice;
mod conditions;
mod errors;
mod evict;
mod explain;
mod figure8;
mod groups;
mod hysteresis;
mod joined;
mod model;
mod names;
mod outlook;
mod reach;
mod treatment;

use std::time::Duration;

use umbrella_units::{Amount, BranchId, ByteSize, Timestamp};

use super::spec::{
    Access, Comparison, Condition, DestinationSpec, FileKind, GroupSpec, NameEntrySpec, Offline, PathPart,
    RuleKindSpec, RuleSpec, RulesSpec, SpaceField, StagingMode, TimeField, Treatment,
};
use super::*;
use crate::heat::Opens;

/// Branches of the tests, in order of their ids.
const NAMES: [&str; 4] = ["disk", "flash", "crypt", "spare"];
const DISK: BranchId = BranchId(0);
const FLASH: BranchId = BranchId(1);
const CRYPT: BranchId = BranchId(2);
const SPARE: BranchId = BranchId(3);

fn names() -> Vec<(String, BranchId)> {
    NAMES.iter().zip(0..).map(|(name, id)| ((*name).to_owned(), BranchId(id))).collect()
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn group(name: &str, branches: &[&str]) -> GroupSpec {
    GroupSpec { name: name.to_owned(), branches: owned(branches), ..GroupSpec::default() }
}

fn compile(rules: Vec<RuleSpec>, default: &[&str]) -> Rules {
    try_compile(rules, default).unwrap()
}

fn try_compile(rules: Vec<RuleSpec>, default: &[&str]) -> Result<Rules, RuleError> {
    Rules::compile(&RulesSpec { rules, default: owned(default), groups: Vec::new(), evicts: Vec::new() }, &names())
}

fn to(branches: &[&str]) -> DestinationSpec {
    DestinationSpec { branches: owned(branches), offline: Offline::Next }
}

/// The paper's rule: passed over while the first branch is offline.
fn passing(branches: &[&str]) -> DestinationSpec {
    DestinationSpec { offline: Offline::Pass, ..to(branches) }
}

fn when(name: &str, conditions: Vec<Condition>, to: DestinationSpec) -> RuleSpec {
    RuleSpec { name: name.to_owned(), kind: RuleKindSpec::When { conditions, to }, treatment: Treatment::default() }
}

fn table(name: &str, patterns: Vec<(&str, DestinationSpec)>) -> RuleSpec {
    let entries = patterns.into_iter().map(|(glob, to)| NameEntrySpec { glob: glob.to_owned(), to });
    RuleSpec { name: name.to_owned(), kind: RuleKindSpec::Names(entries.collect()), treatment: Treatment::default() }
}

fn size(is: Comparison, value: u64) -> Condition {
    size_with_hysteresis(is, value, 0)
}

fn size_with_hysteresis(is: Comparison, value: u64, hysteresis: u64) -> Condition {
    Condition::Size { is, value: ByteSize(value), hysteresis: ByteSize(hysteresis) }
}

fn access(value: Access) -> Condition {
    Condition::Access { is: Comparison::Equal, value }
}

fn extension(any_of: &[&str]) -> Condition {
    Condition::Extension { any_of: any_of.iter().map(|&name| name.to_owned()).collect(), negated: false }
}

fn path(of: PathPart, any_of: &[&str]) -> Condition {
    Condition::Path { of, any_of: any_of.iter().map(|&glob| glob.to_owned()).collect(), negated: false }
}

fn xattr(any_of: Option<&[&str]>, negated: bool) -> Condition {
    let any_of = any_of.map(|values| values.iter().map(|&value| value.to_owned()).collect());
    Condition::Xattr { name: "user.keep".to_owned(), any_of, negated }
}

/// An age without hysteresis.
fn aged(of: TimeField, is: Comparison, secs: u64) -> Condition {
    Condition::Age { of, is, value: Duration::from_secs(secs), hysteresis: Duration::ZERO }
}

/// Space without hysteresis.
fn space(branch: &str, of: SpaceField, is: Comparison, value: Amount) -> Condition {
    Condition::Space { branch: branch.to_owned(), of, is, value, hysteresis: Amount::MilliPercent(0) }
}

fn not(conditions: Vec<Condition>) -> Condition {
    Condition::Not(Box::new(Condition::All(conditions)))
}

fn online(branch: &str, value: bool) -> Condition {
    Condition::Online { branch: branch.to_owned(), value }
}

const fn at(secs: i64) -> Timestamp {
    Timestamp { secs, nanos: 0 }
}

/// A closed, ordinary file of 1000 bytes, a day old.
fn file(path: &str) -> FileFacts<'_> {
    FileFacts {
        path: path.as_bytes(),
        kind: FileKind::File,
        size: ByteSize(1000),
        occupied: ByteSize(1000),
        uid: 1000,
        gid: 100,
        mode: 0o644,
        links: 1,
        atime: at(1_000_000),
        mtime: at(1_000_000),
        ctime: at(1_000_000),
        btime: Some(at(1_000_000)),
        heat: Opens(0),
        now: at(1_086_400),
        stage: Stage::Settled,
        xattrs: Some(&[]),
    }
}

fn new_file(path: &str) -> FileFacts<'_> {
    FileFacts { stage: Stage::New, size: ByteSize(0), occupied: ByteSize(0), ..file(path) }
}

fn sized(bytes: u64) -> FileFacts<'static> {
    FileFacts { size: ByteSize(bytes), occupied: ByteSize(bytes), ..file("/x") }
}

/// Half empty, with nothing kept free.
const ROOMY: BranchView = BranchView {
    online: true,
    writable: true,
    creates: true,
    total: ByteSize(1_000_000),
    free: ByteSize(500_000),
    min_free: ByteSize(0),
    inodes: None,
};
const OFFLINE: BranchView = BranchView { online: false, ..ROOMY };
const DRAINING: BranchView = BranchView { writable: false, ..ROOMY };
const FULL: BranchView = BranchView { free: ByteSize(0), ..ROOMY };

fn free(bytes: u64) -> BranchView {
    BranchView { free: ByteSize(bytes), ..ROOMY }
}

fn on(branch: BranchId) -> Resident {
    Resident { branch, since: None, min_stay: Duration::ZERO, is_evicted: false, is_opened: false }
}

fn choice(rules: &Rules, facts: &FileFacts<'_>, branches: &[BranchView], resident: Option<BranchId>) -> Choice {
    rules.decide(facts, branches, resident.map(on).as_ref(), &Empty).choice
}

fn entry<'a>(rules: &'a Rules, facts: &FileFacts<'_>, branches: &[BranchView]) -> &'a str {
    &rules.entries()[rules.decide(facts, branches, None, &Empty).entry.index()].name
}

/// Whether a rule with this condition decides.
fn holds(condition: Condition, facts: &FileFacts<'_>, branches: &[BranchView]) -> bool {
    let rules = compile(vec![when("rule", vec![condition], to(&["flash"]))], &["disk"]);
    entry(&rules, facts, branches) == "rule"
}
