//! What a decision costs with 1, 32 and 1,000 rules or patterns, and with 4, 24 and 100 branches, alone and in a group.
//! Aim: below 300 ns for one rule, a few microseconds for a thousand.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion};
use umbrella_policy::heat::Opens;
use umbrella_policy::placement::spec::{
    Comparison, Condition, DestinationSpec, FileKind, GroupSpec, NameEntrySpec, Offline, PathPart, RuleKindSpec,
    RuleSpec, RulesSpec, SpaceField, Spread, SpreadOrder, Treatment,
};
use umbrella_policy::placement::{BranchView, Empty, FileFacts, LastSizes, Resident, Rules, Stage};
use umbrella_units::{Amount, BranchId, ByteSize, Timestamp};

const COUNTS: [usize; 3] = [1, 32, 1_000];
const BRANCHES: [usize; 3] = [4, 24, 100];

/// A branch of 1 GiB.
const EMPTY: BranchView = BranchView {
    online: true,
    writable: true,
    creates: true,
    total: ByteSize(1 << 30),
    free: ByteSize(1 << 30),
    min_free: ByteSize(0),
    inodes: None,
};

fn to() -> DestinationSpec {
    DestinationSpec { branches: vec!["a".to_owned(), "b".to_owned()], offline: Offline::Next }
}

fn compile(rules: Vec<RuleSpec>) -> Rules {
    let spec = RulesSpec { rules, default: vec!["a".to_owned()], ..RulesSpec::default() };
    let names = [("a".to_owned(), BranchId(0)), ("b".to_owned(), BranchId(1))];
    Rules::compile(&spec, &names).expect("the rules of the benchmark are right")
}

fn rule(name: String, kind: RuleKindSpec) -> RuleSpec {
    RuleSpec { name, kind, treatment: Treatment::default() }
}

fn metadata(count: usize, condition: impl Fn(usize) -> Condition) -> Rules {
    let when = |n| RuleKindSpec::When { conditions: vec![condition(n)], to: to() };
    compile((0..count).map(|n| rule(format!("rule {n}"), when(n))).collect())
}

fn names(count: usize, glob: impl Fn(usize) -> String) -> Rules {
    let entries = (0..count).map(|n| NameEntrySpec { glob: glob(n), to: to() }).collect();
    compile(vec![rule("names".to_owned(), RuleKindSpec::Names(entries))])
}

fn file(path: &[u8]) -> FileFacts<'_> {
    let now = Timestamp { secs: 1_000_000, nanos: 0 };
    FileFacts {
        path,
        kind: FileKind::File,
        size: ByteSize(20_000),
        occupied: ByteSize(20_480),
        uid: 100_000,
        gid: 100,
        mode: 0o644,
        links: 1,
        atime: now,
        mtime: now,
        ctime: now,
        btime: Some(now),
        heat: Opens(0),
        now,
        stage: Stage::Settled,
        xattrs: Some(&[]),
    }
}

fn measure(criterion: &mut Criterion, group: &str, path: &str, rules: impl Fn(usize) -> Rules) {
    let mut group = criterion.benchmark_group(group);
    let home =
        Resident { branch: BranchId(0), since: None, min_stay: Duration::ZERO, is_evicted: false, is_opened: false };
    for count in COUNTS {
        let rules = rules(count);
        let facts = file(path.as_bytes());
        group.bench_with_input(BenchmarkId::from_parameter(count), &rules, |bench, rules| {
            bench.iter(|| rules.decide(black_box(&facts), black_box(&[EMPTY; 2]), black_box(Some(&home)), &Empty));
        });
    }
    group.finish();
}

/// No rule matches: every one has to be looked at.
fn decide(criterion: &mut Criterion) {
    measure(criterion, "uid", "/home/dave/x.avi", |count| {
        metadata(count, |n| Condition::Uid { is: Comparison::Equal, value: n as u32 })
    });
    measure(criterion, "size with hysteresis", "/home/dave/x.avi", |count| {
        metadata(count, |n| Condition::Size {
            is: Comparison::Greater,
            value: ByteSize((1 << 20) + n as u64),
            hysteresis: ByteSize(1000),
        })
    });
    measure(criterion, "extension", "/home/dave/x.avi", |count| {
        metadata(count, |n| Condition::Extension { any_of: vec![format!("x{n}"), format!("y{n}")], negated: false })
    });
    measure(criterion, "paths", "/srv/films/western/x.avi", |count| {
        metadata(count, |n| Condition::Path {
            of: PathPart::Path,
            any_of: vec![format!("/srv/films/d{n}/**")],
            negated: false,
        })
    });
    measure(criterion, "any and not", "/srv/films/western/x.avi", |count| metadata(count, joined));
    measure(criterion, "names: directories, none matches", "/srv/films/western/x.avi", |count| {
        names(count, |n| format!("/srv/films/d{n}/**"))
    });
    measure(criterion, "names: directories, one matches", "/srv/films/d0/x.avi", |count| {
        names(count, |n| format!("/srv/films/d{n}/**"))
    });
    measure(criterion, "names: suffixes", "/srv/films/western/x.avi", |count| names(count, |n| format!("*.x{n}")));
    measure(criterion, "names: a regex each", "/srv/films/western/x.avi", |count| {
        names(count, |n| format!("/srv/*/d{n}/[a-f]*.avi"))
    });
}

/// A rule that joins conditions. Only its last alternative would hold, if the path did.
fn joined(n: usize) -> Condition {
    let path = Condition::Path { of: PathPart::Path, any_of: vec![format!("/srv/d{n}/**")], negated: false };
    let size = |is| Condition::Size { is, value: ByteSize(30_000 + n as u64), hysteresis: ByteSize(0) };
    let kept = Condition::Not(Box::new(Condition::Any(vec![size(Comparison::Greater), path.clone()])));
    Condition::All(vec![Condition::Any(vec![size(Comparison::GreaterOrEqual), kept]), path])
}

/// A rule that asks for the space of one of many branches, each of which is listed.
fn spacious(rules: usize, branches: usize) -> Rules {
    let names: Vec<String> = (0..branches).map(|n| format!("b{n}")).collect();
    let when = |n: usize| {
        let condition = Condition::Space {
            branch: names[n % branches].clone(),
            of: SpaceField::Free,
            is: Comparison::Less,
            value: Amount::MilliPercent(10_000),
            hysteresis: Amount::MilliPercent(0),
        };
        let to = DestinationSpec { branches: names.clone(), ..to() };
        rule(format!("rule {n}"), RuleKindSpec::When { conditions: vec![condition], to })
    };
    let spec = RulesSpec { rules: (0..rules).map(when).collect(), default: names.clone(), ..RulesSpec::default() };
    let ids: Vec<(String, BranchId)> = names.iter().cloned().zip((0..).map(BranchId)).collect();
    Rules::compile(&spec, &ids).expect("the rules of the benchmark are right")
}

/// Rules on the space of branches, for a new file: the last branch of the default list is the only one with room.
fn many_branches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rules x branches");
    let full = BranchView { free: ByteSize(1 << 29), min_free: EMPTY.total, ..EMPTY };
    let facts = file(b"/srv/films/western/x.avi");
    for count in COUNTS {
        for branches in BRANCHES {
            let rules = spacious(count, branches);
            let mut views = vec![full; branches];
            views[branches - 1].min_free = ByteSize(0);
            group.bench_with_input(BenchmarkId::new(count.to_string(), branches), &rules, |bench, rules| {
                bench.iter(|| rules.decide(black_box(&facts), black_box(&views), None, &Empty));
            });
        }
    }
    group.finish();
}

/// Where a new file goes in a group of many members.
fn groups(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("groups");
    let (total, min_free) = (ByteSize(1 << 40), ByteSize(1 << 30));
    let view = |free: u64| BranchView { total, free: ByteSize(free), min_free, ..EMPTY };
    let facts = file(b"/srv/films/western/x.avi");
    for (name, order) in [
        ("most-free", SpreadOrder::MostFree),
        ("in-order", SpreadOrder::InOrder),
        ("random", SpreadOrder::RandomByFree),
    ] {
        for branches in BRANCHES {
            let names: Vec<(String, BranchId)> = (0..branches).map(|n| (format!("b{n}"), BranchId(n as u16))).collect();
            let members = GroupSpec {
                name: "all".to_owned(),
                branches: vec!["b*".to_owned()],
                spread: Spread { narrow: None, order },
                ..GroupSpec::default()
            };
            let spec = RulesSpec { default: vec!["all".to_owned()], groups: vec![members], ..RulesSpec::default() };
            let rules = Rules::compile(&spec, &names).expect("the group of the benchmark is right");
            let views: Vec<BranchView> = (0..branches as u64).map(|n| view((1 << 35) + ((n * 7919) << 20))).collect();
            group.bench_with_input(BenchmarkId::new(name, branches), &rules, |bench, rules| {
                bench.iter(|| rules.decide(black_box(&facts), black_box(&views), None, &Empty));
            });
        }
    }
    group.finish();
}

/// What a rule on sizes adds to a create (a guess) and to a close, with as many directories and extensions as are
/// remembered.
fn last_sizes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("last sizes");
    let paths: Vec<String> = (0..2_000).map(|n| format!("/srv/films/d{n}/x.e{n}")).collect();
    let mut sizes = LastSizes::default();
    for path in &paths {
        sizes.closed(path.as_bytes(), ByteSize(1 << 20));
    }
    let mut turns = paths.iter().cycle();
    group.bench_function("guess", |bench| {
        bench.iter(|| sizes.guess(black_box(turns.next().map_or(b"/x", |path| path.as_bytes()))));
    });
    let mut turns = paths.iter().cycle();
    group.bench_function("close", |bench| {
        bench.iter(|| sizes.closed(black_box(turns.next().map_or(b"/x", |path| path.as_bytes())), ByteSize(5)));
    });
    group.finish();
}

fn main() {
    let quick = Criterion::default().warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    let mut criterion = quick.sample_size(30).configure_from_args();
    decide(&mut criterion);
    many_branches(&mut criterion);
    groups(&mut criterion);
    last_sizes(&mut criterion);
    criterion.final_summary();
}
