use umbrella_policy::placement::spec::{Condition, EvictOrder, Offline, Spread, StagingMode, TogetherFull, Treatment};

use super::*;
use crate::spec::{AccessTimes, Transport};

fn branch() -> BranchSpec {
    BranchSpec { min_free: "1GiB".parse().unwrap(), ..BranchSpec::new("a", "/mnt/a") }
}

fn pool() -> PoolSpec {
    PoolSpec {
        mount: PathBuf::from("/srv/pool"),
        branches: vec![branch()],
        rules: RulesSpec::default(),
        on_branch_error: OnBranchError::Skip,
        directories: DirectoryRule::Safe,
        cache_timeout: Duration::from_secs(3600),
        enforce: EnforceSpec { window: Schedule::default(), bandwidth: None },
        probe_interval: Duration::from_secs(5),
        probe_timeout: Duration::from_secs(5),
        threads: 0,
        transport: Transport::Auto,
        staging: None,
        heat: None,
        access_times: AccessTimes::default(),
    }
}

fn lines(difference: &Difference) -> Vec<String> {
    difference.live.iter().map(ToString::to_string).collect()
}

fn rule(name: &str, to: &str) -> RuleSpec {
    let to = DestinationSpec { branches: vec![to.to_owned()], offline: Offline::Next };
    let kind = RuleKindSpec::When { conditions: Vec::new(), to };
    RuleSpec { name: name.to_owned(), kind, treatment: Treatment::default() }
}

#[test]
fn every_key_of_the_pool_is_compared() {
    let new = PoolSpec {
        mount: PathBuf::from("/srv/other"),
        branches: Vec::new(),
        rules: RulesSpec::default(),
        on_branch_error: OnBranchError::Fail,
        directories: DirectoryRule::First,
        cache_timeout: Duration::ZERO,
        enforce: EnforceSpec {
            window: Schedule(vec!["Sat,Sun 02:00-05:00".parse().unwrap()]),
            bandwidth: Some(ByteSize(50 << 20)),
        },
        probe_interval: Duration::from_secs(60),
        probe_timeout: Duration::from_secs(90),
        threads: 4,
        transport: Transport::Dev,
        staging: Some(StagingSpec::default()),
        heat: None,
        access_times: AccessTimes::default(),
    };
    let difference = Difference::of_pool(&pool(), &new, None);
    assert_eq!(difference.fixed, ["mount", "transport"]);
    let expected = [
        "on_branch_error: skip -> fail",
        "directories: safe -> first",
        "cache_timeout: 1h -> 0s",
        "probe_interval: 5s -> 1m",
        "probe_timeout: 5s -> 1m30s",
        "threads: 0 -> 4",
        "enforce.window: not set -> Sat,Sun 02:00-05:00",
        "enforce.bandwidth: not set -> 50 MiB",
        "[staging]: new",
    ];
    assert_eq!(lines(&difference), expected);
}

#[test]
fn every_key_of_the_staging_area_is_compared() {
    let with = |staging| PoolSpec { staging, ..pool() };
    let new = StagingSpec {
        mode: StagingMode::Always,
        path: Some(PathBuf::from("/mnt/pmem")),
        volatile: false,
        size: Some("50%".parse().unwrap()),
        max_file: ByteSize(4096),
        max_age: None,
    };
    let area = AreaPlace { path: None, volatile: true };
    let (old, new) = (with(Some(StagingSpec::default())), with(Some(new)));
    let difference = Difference::of_pool(&old, &new, Some(&area));
    assert_eq!(difference.fixed, ["staging.path", "staging.volatile"]);
    let expected = [
        "staging.mode: auto -> always",
        "staging.size: not set -> 50%",
        "staging.max_file: 1 MiB -> 4 KiB",
        "staging.max_age: 30s -> not set",
    ];
    assert_eq!(lines(&difference), expected);
    let without_area = Difference::of_pool(&old, &new, None);
    assert_eq!(without_area.fixed, [""; 0]);
    let lines_of_place = ["staging.path: not set -> /mnt/pmem", "staging.volatile: true -> false"];
    assert_eq!(lines(&without_area)[1..3], lines_of_place);
    let elsewhere = Difference::of_pool(&with(None), &new, Some(&area));
    assert_eq!(elsewhere.fixed, ["staging.path", "staging.volatile"], "it went away and comes back");
    let place = new.staging.as_ref().map(|it| AreaPlace { path: it.path.clone(), volatile: it.volatile });
    assert_eq!(Difference::of_pool(&new, &old, place.as_ref()).fixed, [""; 0], "it names no place");
    assert_eq!(Difference::of_pool(&old, &new, place.as_ref()).fixed, [""; 0], "it is where it was");
    let removed = Difference::of_pool(&old, &with(None), Some(&area));
    assert_eq!((lines(&removed), removed.fixed), (vec!["[staging]: removed".to_owned()], Vec::new()));
}

#[test]
fn every_key_of_a_branch_is_compared() {
    let mut difference = Difference::default();
    let new = BranchSpec {
        name: "a".to_owned(),
        path: PathBuf::from("/mnt/elsewhere"),
        min_free: "5%".parse().unwrap(),
        headroom: Some("2GiB".parse().unwrap()),
        read_only: true,
        create: false,
        max_files: Some(1_000),
        hide: true,
        optional: true,
        require_mount: Some(true),
        min_stay: Duration::from_secs(86_400),
        passthrough: false,
        write_back: Some(WriteBackSpec { limit: Some(ByteSize(1 << 20)), ..WriteBackSpec::of("sweep") }),
    };
    difference.of_branch(&branch(), &new);
    assert_eq!(difference.fixed, ["path of branch \"a\""]);
    let expected = [
        "min_free of branch \"a\": 1 GiB -> 5%",
        "headroom of branch \"a\": not set -> 2 GiB",
        "read_only of branch \"a\": false -> true",
        "create of branch \"a\": true -> false",
        "max_files of branch \"a\": not set -> 1000",
        "hide of branch \"a\": false -> true",
        "optional of branch \"a\": false -> true",
        "require_mount of branch \"a\": not set -> true",
        "min_stay of branch \"a\": 0s -> 1d",
        "passthrough of branch \"a\": true -> false",
        "write_back of branch \"a\": not set -> sweep, limit 1 MiB",
    ];
    assert_eq!(lines(&difference), expected);
}

#[test]
fn rules_and_groups_that_come_go_change_or_swap_places_are_told() {
    let group = |together: &str| GroupSpec {
        name: "hdds".to_owned(),
        branches: vec!["a".to_owned()],
        spread: Spread::default(),
        together: vec![together.to_owned()],
        together_full: TogetherFull::Spill,
    };
    let rules = |rules: Vec<RuleSpec>, default: &str, groups| RulesSpec {
        rules,
        default: vec![default.to_owned()],
        groups,
        evicts: Vec::new(),
    };
    let old = rules(vec![rule("one", "a"), rule("two", "a"), rule("old", "a")], "a", vec![group("/TV/*")]);
    let new = rules(vec![rule("two", "b"), rule("one", "a"), rule("new", "a")], "b", vec![group("/TV/*/*")]);
    let mut difference = Difference::default();
    difference.of_rules(&old, &new);
    let expected = [
        "default: [\"a\"] -> [\"b\"]",
        "together of group \"hdds\": [\"/TV/*\"] -> [\"/TV/*/*\"]",
        "to of rule \"two\": [\"a\"] -> [\"b\"]",
        "rule \"old\": removed",
        "rule \"new\": new",
        "order of the rules: [\"one\", \"two\"] -> [\"two\", \"one\"]",
    ];
    assert_eq!(lines(&difference), expected);
    let mut nothing = Difference::default();
    nothing.of_rules(&old, &old);
    assert_eq!(lines(&nothing), [""; 0]);
}

#[test]
fn every_key_of_a_fill_level_is_compared() {
    let rules = |evict| RulesSpec { evicts: vec![evict], ..RulesSpec::default() };
    let old = EvictSpec::new("ssd", "80%".parse().unwrap(), "70%".parse().unwrap());
    let new = EvictSpec {
        of: "ssd".to_owned(),
        above: "20GiB".parse().unwrap(),
        until: "10GiB".parse().unwrap(),
        order: EvictOrder::LeastRecentlyUsed,
        to: vec!["hdds".to_owned()],
        only: vec![Condition::All(Vec::new())],
        min_age: Duration::from_secs(3600),
        window: Schedule(vec!["03:00-06:00".parse().unwrap()]),
    };
    let mut difference = Difference::default();
    difference.of_rules(&rules(old), &rules(new));
    let expected = [
        "evict.above of \"ssd\": 80% -> 20 GiB",
        "evict.until of \"ssd\": 70% -> 10 GiB",
        "evict.order of \"ssd\": oldest -> least-recently-used",
        "evict.to of \"ssd\": [] -> [\"hdds\"]",
        "evict.only of \"ssd\": changed",
        "evict.min_age of \"ssd\": 0s -> 1h",
        "evict.window of \"ssd\": not set -> 03:00-06:00",
    ];
    assert_eq!(lines(&difference), expected);
}
