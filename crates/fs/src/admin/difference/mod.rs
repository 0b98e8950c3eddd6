//! What a configuration says that is not in force. Every struct of the configuration is taken apart here, so that a key
//! that was forgotten here does not compile.

use std::path::PathBuf;
use std::time::Duration;

use umbrella_policy::placement::spec::{
    DestinationSpec, EvictOrder, EvictSpec, GroupSpec, NameEntrySpec, RuleKindSpec, RuleSpec, RulesSpec, StagingMode,
};
use umbrella_policy::schedule::Schedule;
use umbrella_units::{Amount, ByteSize, format_duration};

use crate::control::protocol::ConfigChange;
use crate::spec::{
    AreaPlace, BranchSpec, DirectoryRule, EnforceSpec, HeatSpec, OnBranchError, PoolSpec, StagingSpec, WriteBackSpec,
};

/// A configuration against what is in force.
#[derive(Debug, Default)]
pub(super) struct Difference {
    /// What a reload changes.
    pub(super) live: Vec<ConfigChange>,
    /// Keys that only the next mount takes up.
    pub(super) fixed: Vec<String>,
}

impl Difference {
    /// Of the keys of the pool, its tables `[enforce]` and `[staging]` included; rules and branches aside. `area`: the
    /// staging area that there is.
    pub(super) fn of_pool(old: &PoolSpec, new: &PoolSpec, area: Option<&AreaPlace>) -> Difference {
        let mut it = Difference::default();
        let PoolSpec {
            mount,
            branches: _,
            rules: _,
            on_branch_error,
            directories,
            cache_timeout,
            enforce: EnforceSpec { window, bandwidth },
            probe_interval,
            probe_timeout,
            threads,
            transport,
            staging,
            heat,
            // Not from the configuration.
            access_times: _,
        } = old;
        it.fixed("mount", mount, &new.mount);
        it.fixed("transport", transport, &new.transport);
        it.live("on_branch_error", on_branch_error, &new.on_branch_error);
        it.live("directories", directories, &new.directories);
        it.live("cache_timeout", cache_timeout, &new.cache_timeout);
        it.live("probe_interval", probe_interval, &new.probe_interval);
        it.live("probe_timeout", probe_timeout, &new.probe_timeout);
        it.live("threads", threads, &new.threads);
        it.live("enforce.window", window, &new.enforce.window);
        it.live("enforce.bandwidth", bandwidth, &new.enforce.bandwidth);
        match (heat, &new.heat) {
            (Some(old), Some(new)) => it.of_heat(old, new),
            (Some(_), None) => it.live.push(ConfigChange::gone("[heat]")),
            (None, Some(_)) => it.live.push(ConfigChange::new("[heat]")),
            (None, None) => {}
        }
        match (staging, &new.staging) {
            (Some(old), Some(new)) => it.of_staging(old, new, area),
            (Some(_), None) => it.live.push(ConfigChange::gone("[staging]")),
            (None, Some(new)) => {
                it.live.push(ConfigChange::new("[staging]"));
                it.of_area(area, new);
            }
            (None, None) => {}
        }
        it
    }

    fn of_heat(&mut self, old: &HeatSpec, new: &HeatSpec) {
        let HeatSpec { half_life, max_move, neighbours } = old;
        self.live("heat.half_life", half_life, &new.half_life);
        self.live("heat.max_move", max_move, &new.max_move);
        self.live("heat.neighbours", neighbours, &new.neighbours);
    }

    fn of_staging(&mut self, old: &StagingSpec, new: &StagingSpec, area: Option<&AreaPlace>) {
        let StagingSpec { mode, path, volatile, size, max_file, max_age } = old;
        self.live("staging.mode", mode, &new.mode);
        if area.is_some() {
            self.of_area(area, new);
        } else {
            self.live("staging.path", path, &new.path);
            self.live("staging.volatile", volatile, &new.volatile);
        }
        self.live("staging.size", size, &new.size);
        self.live("staging.max_file", max_file, &new.max_file);
        self.live("staging.max_age", max_age, &new.max_age);
    }

    /// An area stays where it is until the unmount. Whoever names no path takes the one that there is.
    fn of_area(&mut self, area: Option<&AreaPlace>, new: &StagingSpec) {
        let Some(AreaPlace { path, volatile }) = area.filter(|_| new.path.is_some()) else { return };
        self.fixed("staging.path", path, &new.path);
        self.fixed("staging.volatile", volatile, &new.volatile);
    }

    /// Of a branch.
    pub(super) fn of_branch(&mut self, old: &BranchSpec, new: &BranchSpec) {
        let BranchSpec {
            name,
            path,
            min_free,
            headroom,
            read_only,
            create,
            max_files,
            hide,
            optional,
            require_mount,
            min_stay,
            passthrough,
            write_back,
        } = old;
        let key = |key: &str| format!("{key} of branch {name:?}");
        self.fixed(&key("path"), path, &new.path);
        self.live(&key("min_free"), min_free, &new.min_free);
        self.live(&key("headroom"), headroom, &new.headroom);
        self.live(&key("read_only"), read_only, &new.read_only);
        self.live(&key("create"), create, &new.create);
        self.live(&key("max_files"), max_files, &new.max_files);
        self.live(&key("hide"), hide, &new.hide);
        self.live(&key("optional"), optional, &new.optional);
        self.live(&key("require_mount"), require_mount, &new.require_mount);
        self.live(&key("min_stay"), min_stay, &new.min_stay);
        self.live(&key("passthrough"), passthrough, &new.passthrough);
        self.live(&key("write_back"), write_back, &new.write_back);
    }

    /// Of the default list, the groups and the rules.
    pub(super) fn of_rules(&mut self, old: &RulesSpec, new: &RulesSpec) {
        let RulesSpec { rules, default, groups, evicts } = old;
        self.live("default", default, &new.default);
        self.of_list("group", groups, &new.groups, |it| &it.name, Difference::of_group);
        self.of_list("evict of", evicts, &new.evicts, |it| &it.of, Difference::of_evict);
        self.of_list("rule", rules, &new.rules, |it| &it.name, Difference::of_rule);
    }

    /// Of things that have names and an order.
    fn of_list<T>(
        &mut self,
        kind: &str,
        old: &[T],
        new: &[T],
        name: impl Fn(&T) -> &str,
        compare: impl Fn(&mut Difference, &T, &T),
    ) {
        let names = |list: &[T]| list.iter().map(|it| name(it).to_owned()).collect::<Vec<_>>();
        for was in old {
            match new.iter().find(|it| name(it) == name(was)) {
                Some(is) => compare(self, was, is),
                None => self.live.push(ConfigChange::gone(&format!("{kind} {:?}", name(was)))),
            }
        }
        let known = names(old);
        let added = new.iter().map(&name).filter(|it| !known.iter().any(|known| known == it));
        self.live.extend(added.map(|it| ConfigChange::new(&format!("{kind} {it:?}"))));
        let both = |list: &[T], other: &[String]| {
            names(list).into_iter().filter(|name| other.contains(name)).collect::<Vec<_>>()
        };
        self.live(&format!("order of the {kind}s"), &both(old, &names(new)), &both(new, &known));
    }

    fn of_group(&mut self, old: &GroupSpec, new: &GroupSpec) {
        let GroupSpec { name, branches, spread, together, together_full } = old;
        let key = |key: &str| format!("{key} of group {name:?}");
        self.live(&key("branches"), branches, &new.branches);
        self.changed(&key("spread"), spread != &new.spread);
        self.live(&key("together"), together, &new.together);
        self.changed(&key("together_spill"), together_full != &new.together_full);
    }

    fn of_evict(&mut self, old: &EvictSpec, new: &EvictSpec) {
        let EvictSpec { of, above, until, order, to, only, min_age, window } = old;
        let key = |key: &str| format!("evict.{key} of {of:?}");
        self.live(&key("above"), above, &new.above);
        self.live(&key("until"), until, &new.until);
        self.live(&key("order"), order, &new.order);
        self.live(&key("to"), to, &new.to);
        self.changed(&key("only"), only != &new.only);
        self.live(&key("min_age"), min_age, &new.min_age);
        self.live(&key("window"), window, &new.window);
    }

    fn of_rule(&mut self, old: &RuleSpec, new: &RuleSpec) {
        let RuleSpec { name, kind, treatment } = old;
        let key = |key: &str| format!("{key} of rule {name:?}");
        self.changed(&key("treatment"), treatment != &new.treatment);
        match (kind, &new.kind) {
            (RuleKindSpec::Treat { conditions }, RuleKindSpec::Treat { conditions: new }) => {
                self.changed(&key("when"), conditions != new);
            }
            (RuleKindSpec::When { conditions, to }, RuleKindSpec::When { conditions: new, to: new_to }) => {
                self.changed(&key("when"), conditions != new);
                self.of_destination(&key, to, new_to);
            }
            (RuleKindSpec::Names(entries), RuleKindSpec::Names(new)) => self.of_name_table(entries, new),
            _ => self.changed(&format!("rule {name:?}"), true),
        }
    }

    fn of_name_table(&mut self, old: &[NameEntrySpec], new: &[NameEntrySpec]) {
        self.of_list(
            "pattern",
            old,
            new,
            |it| &it.glob,
            |difference, old, new| {
                let NameEntrySpec { glob, to } = old;
                difference.of_destination(&|key: &str| format!("{key} of pattern {glob:?}"), to, &new.to);
            },
        );
    }

    fn of_destination(&mut self, key: &dyn Fn(&str) -> String, old: &DestinationSpec, new: &DestinationSpec) {
        let DestinationSpec { branches, offline } = old;
        self.live(&key("to"), branches, &new.branches);
        self.changed(&key("offline"), offline != &new.offline);
    }

    fn live<T: Value>(&mut self, key: &str, old: &T, new: &T) {
        if old != new {
            self.live.push(ConfigChange { key: key.to_owned(), old: Some(old.text()), new: Some(new.text()) });
        }
    }

    fn fixed<T: PartialEq>(&mut self, key: &str, old: &T, new: &T) {
        if old != new {
            self.fixed.push(key.to_owned());
        }
    }

    /// What is too long to be shown.
    fn changed(&mut self, key: &str, differs: bool) {
        if differs {
            self.live.push(ConfigChange { key: key.to_owned(), old: None, new: None });
        }
    }
}

/// A value of the configuration, for people.
trait Value: PartialEq {
    fn text(&self) -> String;
}

/// Values that are shown as they display themselves.
macro_rules! displayed {
    ($($name:ty),*) => { $(impl Value for $name {
        fn text(&self) -> String {
            self.to_string()
        }
    })* };
}

displayed!(bool, u16, u32, u64, ByteSize, Amount);

impl<T: Value> Value for Option<T> {
    fn text(&self) -> String {
        self.as_ref().map_or_else(|| "not set".to_owned(), Value::text)
    }
}

impl Value for PathBuf {
    fn text(&self) -> String {
        self.display().to_string()
    }
}

impl Value for Duration {
    fn text(&self) -> String {
        format_duration(*self)
    }
}

impl Value for Vec<String> {
    fn text(&self) -> String {
        format!("{self:?}")
    }
}

impl Value for Schedule {
    fn text(&self) -> String {
        let windows: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        if windows.is_empty() { "not set".to_owned() } else { windows.join(", ") }
    }
}

impl Value for OnBranchError {
    fn text(&self) -> String {
        match self {
            OnBranchError::Fail => "fail".to_owned(),
            OnBranchError::Skip => "skip".to_owned(),
        }
    }
}

impl Value for DirectoryRule {
    fn text(&self) -> String {
        match self {
            DirectoryRule::Safe => "safe".to_owned(),
            DirectoryRule::First => "first".to_owned(),
        }
    }
}

impl Value for EvictOrder {
    fn text(&self) -> String {
        match self {
            EvictOrder::Oldest => "oldest".to_owned(),
            EvictOrder::LeastRecentlyUsed => "least-recently-used".to_owned(),
            EvictOrder::Largest => "largest".to_owned(),
            EvictOrder::Coldest => "coldest".to_owned(),
        }
    }
}

impl Value for StagingMode {
    fn text(&self) -> String {
        match self {
            StagingMode::Auto => "auto".to_owned(),
            StagingMode::Always => "always".to_owned(),
            StagingMode::Never => "never".to_owned(),
        }
    }
}

impl Value for WriteBackSpec {
    fn text(&self) -> String {
        let WriteBackSpec { policy, limit, background } = self;
        let part =
            |name: &str, size: &Option<ByteSize>| size.map_or_else(String::new, |size| format!(", {name} {size}"));
        format!("{policy}{}{}", part("limit", limit), part("background", background))
    }
}

#[cfg(test)]
mod tests;
