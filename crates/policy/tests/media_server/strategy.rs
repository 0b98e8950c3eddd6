//! The strategies that are compared: rules as a configuration would have them.

use std::time::Duration;

use umbrella_policy::heat::Opens;
use umbrella_policy::placement::spec::{
    Comparison, Condition, DestinationSpec, EvictOrder, EvictSpec, GroupSpec, Offline, RuleKindSpec, RuleSpec,
    RulesSpec, Spread, SpreadOrder, TimeField, TogetherFull, Treatment,
};
use umbrella_units::Amount;

/// The branches: the SSD first.
pub(crate) const BRANCHES: [&str; 5] = ["ssd", "disk1", "disk2", "disk3", "disk4"];

/// One way to set up the pool.
pub(crate) struct Strategy {
    pub(crate) name: &'static str,
    pub(crate) rules: RulesSpec,
    /// The enforcer walks each night at three, and wakes every disk.
    pub(crate) walks: bool,
    /// Number of next files of a directory that come along with a warm one.
    pub(crate) neighbours: usize,
}

/// All that are compared.
pub(crate) fn all() -> Vec<Strategy> {
    let titles = ["/TV/*/*", "/films/*", "/music/*"];
    let (apart, kept): (&[&str], &[&str]) = (&[], &titles);
    vec![
        disks("disks, `in-order`: the first that has room", SpreadOrder::InOrder, apart),
        disks("disks, `most-free`", SpreadOrder::MostFree, apart),
        disks("disks, `most-free` and `together`", SpreadOrder::MostFree, kept),
        ssd("30 days on the SSD, then disks, `most-free`", apart),
        ssd("30 days on the SSD, then disks, `most-free` and `together`", kept),
        evict("SSD first, `evict` by `oldest`", EvictOrder::Oldest, &["ssd", "hdds"], None),
        evict("SSD first, `evict` by `coldest`", EvictOrder::Coldest, &["ssd", "hdds"], None),
        evict(
            "SSD first, `coldest`, and `heat = \"> 1\"` comes back",
            EvictOrder::Coldest,
            &["ssd", "hdds"],
            Some((Opens::ONE, 3)),
        ),
        evict(
            "disks first, `heat = \"> 0.9\"` to the SSD, `neighbours = 0`",
            EvictOrder::Coldest,
            &["hdds"],
            Some((Opens(900_000), 0)),
        ),
        evict(
            "disks first, `heat = \"> 0.9\"` to the SSD, `neighbours = 3`",
            EvictOrder::Coldest,
            &["hdds"],
            Some((Opens(900_000), 3)),
        ),
    ]
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn hdds(order: SpreadOrder, together: &[&str]) -> GroupSpec {
    GroupSpec {
        name: "hdds".to_owned(),
        branches: names(&["disk*"]),
        spread: Spread { narrow: None, order },
        together: names(together),
        together_full: TogetherFull::Spill,
    }
}

/// What holds for a file sends it to the SSD.
fn when(name: &str, condition: Condition) -> RuleSpec {
    let to = DestinationSpec { branches: names(&["ssd", "hdds"]), offline: Offline::Next };
    let kind = RuleKindSpec::When { conditions: vec![condition], to };
    RuleSpec { name: name.to_owned(), kind, treatment: Treatment::default() }
}

fn disks(name: &'static str, order: SpreadOrder, together: &[&str]) -> Strategy {
    let groups = vec![hdds(order, together)];
    let rules = RulesSpec { default: names(&["hdds"]), groups, ..RulesSpec::default() };
    Strategy { name, rules, walks: false, neighbours: 0 }
}

fn ssd(name: &'static str, together: &[&str]) -> Strategy {
    let young = Condition::Age {
        of: TimeField::Mtime,
        is: Comparison::Less,
        value: Duration::from_secs(30 * 24 * 3600),
        hysteresis: Duration::ZERO,
    };
    let of_disks = disks(name, SpreadOrder::MostFree, together);
    Strategy { rules: RulesSpec { rules: vec![when("new", young)], ..of_disks.rules }, walks: true, ..of_disks }
}

/// The SSD is kept below its mark at night. Files that heat up come to it, with a number of neighbours.
fn evict(name: &'static str, order: EvictOrder, default: &[&str], warm: Option<(Opens, usize)>) -> Strategy {
    let neighbours = warm.map_or(0, |(_, neighbours)| neighbours);
    let heat = |value| Condition::Heat { is: Comparison::Greater, value, hysteresis: value };
    let warm = warm.map(|(value, _)| when("warm", heat(value)));
    let level = EvictSpec::new("ssd", Amount::MilliPercent(80_000), Amount::MilliPercent(70_000));
    let rules = RulesSpec {
        rules: warm.into_iter().collect(),
        default: names(default),
        groups: vec![hdds(SpreadOrder::MostFree, &["/TV/*/*", "/films/*", "/music/*"])],
        evicts: vec![EvictSpec { order, ..level }],
    };
    Strategy { name, rules, walks: false, neighbours }
}
