//! The strategies that are compared: rules as a configuration would have them.

use std::time::Duration;

use umbrella_policy::placement::spec::{
    Comparison, Condition, DestinationSpec, GroupSpec, Offline, RuleKindSpec, RuleSpec, RulesSpec, Spread, SpreadOrder,
    TimeField, TogetherFull, Treatment,
};

/// The branches: the SSD first.
pub(crate) const BRANCHES: [&str; 5] = ["ssd", "disk1", "disk2", "disk3", "disk4"];

/// One way to set up the pool.
pub(crate) struct Strategy {
    pub(crate) name: &'static str,
    pub(crate) rules: RulesSpec,
    /// The enforcer walks each night at three, and wakes every disk.
    pub(crate) walks: bool,
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

fn disks(name: &'static str, order: SpreadOrder, together: &[&str]) -> Strategy {
    let rules = RulesSpec {
        rules: Vec::new(),
        default: names(&["hdds"]),
        groups: vec![hdds(order, together)],
        evicts: Vec::new(),
    };
    Strategy { name, rules, walks: false }
}

fn ssd(name: &'static str, together: &[&str]) -> Strategy {
    let young = Condition::Age {
        of: TimeField::Mtime,
        is: Comparison::Less,
        value: Duration::from_secs(30 * 24 * 3600),
        hysteresis: Duration::ZERO,
    };
    let to = DestinationSpec { branches: names(&["ssd", "hdds"]), offline: Offline::Next };
    let rule = RuleSpec {
        name: "new".to_owned(),
        kind: RuleKindSpec::When { conditions: vec![young], to },
        treatment: Treatment::default(),
    };
    let groups = vec![hdds(SpreadOrder::MostFree, together)];
    Strategy {
        name,
        rules: RulesSpec { rules: vec![rule], default: names(&["hdds"]), groups, evicts: Vec::new() },
        walks: true,
    }
}
