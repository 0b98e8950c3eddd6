//! Which runs an experiment consists of: policies, and values of parameters, each with each.

use std::collections::BTreeSet;
use std::sync::Arc;

use umbrella_units::{ByteSize, Nanos, parse_duration};

use super::WriteBackCell;
use super::cell::{MachineSpec, WriteBackInput, policy_info};
use super::replay::BadReplaySpeed;
use crate::experiment::LabError;
use crate::workload;

/// A table for people has no more runs than this.
pub const MOST_SHOWN: usize = 10_000;

/// More runs than this are a mistake, also where a program gets the results.
pub const MOST_RUNS: usize = 1_000_000;

/// The parameters of machine and run that can be swept; a policy's and a workload's own come on top.
const MACHINE_PARAMETERS: &[&str] = &[
    "memory",
    "disk",
    "scheduler",
    "queue-length",
    "queue-depth",
    "background",
    "foreground",
    "expire",
    "read-ahead",
    "aged",
    "entry-cost",
    "zone-page-cost",
    "zone-cost",
    "partition",
    "seed",
    "scale",
];

/// The parameters of a trace's replay.
const REPLAY_PARAMETERS: &[&str] = &["speed", "depth"];

/// Values that a parameter takes, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    /// The parameter.
    pub name: String,
    /// Its values.
    pub values: Vec<String>,
}

impl std::str::FromStr for Sweep {
    type Err = LabError;

    fn from_str(spec: &str) -> Result<Self, Self::Err> {
        let bad = || LabError::BadSweep { spec: spec.to_owned() };
        let (name, values) = spec.split_once('=').ok_or_else(bad)?;
        let values: Vec<String> =
            values.split(',').map(str::trim).filter(|value| !value.is_empty()).map(str::to_owned).collect();
        if name.trim().is_empty() || values.is_empty() {
            return Err(bad());
        }
        Ok(Sweep { name: name.trim().to_owned(), values })
    }
}

/// Splits `file,zone_segment:alpha=5,zone=8MiB,cscan` into its policies: a part with `=` and without `:` belongs to the
/// policy before it.
pub fn split_policies(list: &str) -> Vec<String> {
    let mut policies: Vec<String> = Vec::new();
    for part in list.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match policies.last_mut() {
            Some(last) if part.contains('=') && !part.contains(':') => {
                last.push(if last.contains(':') { ',' } else { ':' });
                last.push_str(part);
            }
            _ => policies.push(part.to_owned()),
        }
    }
    policies
}

/// All runs: each policy with each combination of the sweeps' values, over what `base` says. A swept parameter is the
/// machine's, else that of every policy that has it, else the workload's. A policy without it runs once. More than
/// `most` runs are refused.
pub fn cells(
    base: &WriteBackCell,
    policies: &[String],
    sweeps: &[Sweep],
    most: usize,
) -> Result<Vec<WriteBackCell>, LabError> {
    let with_policy = |policy: &String| MachineSpec { policy: policy.clone(), ..base.machine.clone() };
    let with_policy = |policy| WriteBackCell { machine: with_policy(policy), ..base.clone() };
    let mut cells: Vec<WriteBackCell> = policies.iter().map(with_policy).collect();
    for (place, sweep) in sweeps.iter().enumerate() {
        if sweeps[..place].iter().any(|earlier| earlier.name == sweep.name) {
            return Err(LabError::SweptTwice { name: sweep.name.clone() });
        }
        let mut next = Vec::new();
        let mut any = false;
        for cell in &cells {
            let mut seen = BTreeSet::new();
            for value in &sweep.values {
                let mut swept = cell.clone();
                let applies = set(&mut swept, &sweep.name, value)?;
                any |= applies;
                if applies {
                    swept.machine.swept.insert(sweep.name.clone(), value.clone());
                }
                if seen.insert(swept.identity()) {
                    next.push(swept);
                }
            }
            if next.len() > most {
                return Err(LabError::TooManyRuns { most });
            }
        }
        if !any {
            return Err(unknown(base, policies, &sweep.name));
        }
        cells = next;
    }
    Ok(cells)
}

fn unknown(base: &WriteBackCell, policies: &[String], name: &str) -> LabError {
    let mut known: Vec<String> = MACHINE_PARAMETERS.iter().map(|name| (*name).to_owned()).collect();
    for policy in policies {
        if let Ok(info) = policy_info(policy) {
            known.extend(info.params.iter().map(|param| format!("{} (of {})", param.name, info.name)));
        }
    }
    if matches!(*base.input, WriteBackInput::Trace { .. }) {
        known.extend(REPLAY_PARAMETERS.iter().map(|name| (*name).to_owned()));
    }
    if let WriteBackInput::Workload { spec } = &*base.input
        && let Ok(entry) = workload::workload(spec.split(':').next().unwrap_or_default())
    {
        known.extend(entry.params.iter().map(|param| format!("{} (of {})", param.name, entry.name)));
    }
    LabError::UnknownSweep { name: name.to_owned(), known: known.join(", ") }
}

/// Sets a parameter; false when the cell has none of that name.
fn set(cell: &mut WriteBackCell, name: &str, value: &str) -> Result<bool, LabError> {
    let bad = |expected: &str| LabError::BadValue {
        name: name.to_owned(),
        value: value.to_owned(),
        expected: expected.to_owned(),
    };
    let count = || value.parse::<u32>().map_err(|_| bad("give a whole number"));
    let machine = &mut cell.machine;
    match name {
        "memory" => {
            machine.memory = value.parse::<ByteSize>().map_err(|error| bad(&error.to_string()))?;
        }
        "disk" => machine.set_disk(value)?,
        "scheduler" => value.clone_into(&mut machine.scheduler),
        "queue-length" => machine.queue_length = count()? as usize,
        "queue-depth" => machine.queue_depth = Some(count()?),
        "background" => machine.background_percent = count()?,
        "foreground" => machine.foreground_percent = count()?,
        "read-ahead" => machine.read_ahead = count()?,
        "aged" => machine.aged_percent = count()?,
        "entry-cost" => machine.bookkeeping.entry = Nanos(count()?.into()),
        "zone-page-cost" => machine.bookkeeping.zone_page = Nanos(count()?.into()),
        "zone-cost" => machine.bookkeeping.zone = Nanos(count()?.into()),
        "partition" => machine.partition = Some(value.parse().map_err(|error: String| bad(&error))?),
        "expire" if value == "never" => machine.expire_after = None,
        "expire" => {
            let after = parse_duration(value).map_err(|error| bad(&error.to_string()))?;
            machine.expire_after = Some(Nanos(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX)));
        }
        "seed" => machine.seed = value.parse().map_err(|_| bad("give a whole number"))?,
        "scale" => machine.scale = value.parse().map_err(|_| bad("give a number from 0 to 1"))?,
        "speed" | "depth" => {
            let WriteBackInput::Trace { replay, .. } = Arc::make_mut(&mut cell.input) else {
                return set_own(cell, name, value);
            };
            match name {
                "speed" => replay.speed = value.parse().map_err(|error: BadReplaySpeed| bad(&error.to_string()))?,
                _ => replay.depth = count()?,
            }
        }
        _ => return set_own(cell, name, value),
    }
    Ok(true)
}

/// Sets a parameter of the policy or the workload.
fn set_own(cell: &mut WriteBackCell, name: &str, value: &str) -> Result<bool, LabError> {
    if policy_info(&cell.machine.policy)?.params.iter().any(|param| param.name == name) {
        cell.machine.policy = with_parameter(&cell.machine.policy, name, value);
        return Ok(true);
    }
    if let WriteBackInput::Workload { spec } = Arc::make_mut(&mut cell.input) {
        let entry = workload::workload(spec.split(':').next().unwrap_or_default())?;
        if entry.params.iter().any(|param| param.name == name) {
            *spec = with_parameter(spec, name, value);
            return Ok(true);
        }
    }
    Ok(false)
}

/// A spec with one parameter set, which replaces the spec's own value.
fn with_parameter(spec: &str, name: &str, value: &str) -> String {
    let (kind, rest) = spec.split_once(':').unwrap_or((spec, ""));
    let mut parts: Vec<String> = rest
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty() && part.split('=').next().map(str::trim) != Some(name))
        .map(str::to_owned)
        .collect();
    parts.push(format!("{name}={value}"));
    format!("{kind}:{}", parts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_policies_keeps_their_parameters_together() {
        assert_eq!(
            split_policies("file,zone_segment:alpha=5,zone=8MiB,cscan"),
            ["file", "zone_segment:alpha=5,zone=8MiB", "cscan"]
        );
        assert_eq!(split_policies(" file , , cscan"), ["file", "cscan"]);
    }

    #[test]
    fn a_parameter_replaces_what_the_spec_said_of_it() {
        assert_eq!(with_parameter("zone", "zone", "4MiB"), "zone:zone=4MiB");
        assert_eq!(with_parameter("zone_segment:zone=8MiB,alpha=5", "zone", "4MiB"), "zone_segment:alpha=5,zone=4MiB");
    }

    #[test]
    fn more_runs_than_are_allowed_are_refused() {
        let base = WriteBackCell::new(WriteBackInput::Workload { spec: "postmark".to_owned() }, MachineSpec::default());
        let values = |name: &str, many: u32| Sweep {
            name: name.to_owned(),
            values: (1..=many).map(|value| value.to_string()).collect(),
        };
        let sweeps = [values("seed", 101), values("read-ahead", 100)];
        let planned = |most| cells(&base, &["file".to_owned()], &sweeps, most);
        assert_eq!(planned(MOST_RUNS).expect("a file takes them").len(), 10_100);
        assert!(matches!(planned(MOST_SHOWN), Err(LabError::TooManyRuns { most: MOST_SHOWN })));
    }

    #[test]
    fn a_sweep_needs_a_name_and_values() {
        let sweep: Sweep = "zone = 2MiB, 4MiB".parse().expect("a sweep");
        assert_eq!((sweep.name.as_str(), sweep.values), ("zone", vec!["2MiB".to_owned(), "4MiB".to_owned()]));
        for bad in ["zone", "zone=", "=4", ""] {
            assert!(matches!(bad.parse::<Sweep>(), Err(LabError::BadSweep { .. })), "{bad:?}");
        }
    }
}
