//! What a decision costs with 1, 32 and 1,000 rules or patterns. Aim: below 300 ns for one rule, a few microseconds for a thousand.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion};
use umbrella_policy::placement::spec::{
    Comparison, Condition, DestinationSpec, FileKind, NameEntrySpec, Offline, RuleKindSpec, RuleSpec, RulesSpec,
};
use umbrella_policy::placement::{BranchView, Empty, FileFacts, Resident, Rules, Stage};
use umbrella_units::{BranchId, ByteSize, Timestamp};

const COUNTS: [usize; 3] = [1, 32, 1_000];

fn to() -> DestinationSpec {
    DestinationSpec { branches: vec!["a".to_owned(), "b".to_owned()], offline: Offline::Next }
}

fn compile(rules: Vec<RuleSpec>) -> Rules {
    let spec = RulesSpec { rules, default: vec!["a".to_owned()], groups: Vec::new() };
    let names = [("a".to_owned(), BranchId(0)), ("b".to_owned(), BranchId(1))];
    Rules::compile(&spec, &names).expect("the rules of the benchmark are right")
}

fn metadata(count: usize, condition: impl Fn(usize) -> Condition) -> Rules {
    let rule = |n| RuleSpec {
        name: format!("rule {n}"),
        kind: RuleKindSpec::When { conditions: vec![condition(n)], to: to() },
    };
    compile((0..count).map(rule).collect())
}

fn names(count: usize, glob: impl Fn(usize) -> String) -> Rules {
    let entries = (0..count).map(|n| NameEntrySpec { glob: glob(n), to: to() }).collect();
    compile(vec![RuleSpec { name: "names".to_owned(), kind: RuleKindSpec::Names(entries) }])
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
        now,
        stage: Stage::Settled,
    }
}

fn measure(criterion: &mut Criterion, group: &str, path: &str, rules: impl Fn(usize) -> Rules) {
    let mut group = criterion.benchmark_group(group);
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1)).sample_size(30);
    let gib = ByteSize(1 << 30);
    let branch = BranchView { online: true, writable: true, total: gib, free: gib, min_free: ByteSize(0) };
    let home = Resident { branch: BranchId(0), since: None, min_stay: Duration::ZERO };
    for count in COUNTS {
        let rules = rules(count);
        let facts = file(path.as_bytes());
        group.bench_with_input(BenchmarkId::from_parameter(count), &rules, |bench, rules| {
            bench.iter(|| rules.decide(black_box(&facts), black_box(&[branch; 2]), black_box(Some(&home)), &Empty));
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

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    decide(&mut criterion);
    criterion.final_summary();
}
