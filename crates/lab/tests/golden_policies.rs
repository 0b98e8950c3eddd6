//! What every policy does with three small workloads, written down: a change of a policy, of the index or of a model
//! shows in review as a change of `golden/policies.txt`.

use std::fmt::Write;
use std::path::Path;

use umbrella_lab::experiment;
use umbrella_lab::write_back::{MachineSpec, WriteBackCell, WriteBackInput};
use umbrella_policy::writeback::policies;
use umbrella_units::ByteSize;

const WORKLOADS: [&str; 3] = ["rnd-write", "postmark", "hot-cold"];

/// `UMBRELLA_ACCEPT=1` writes what comes out as the new golden.
fn compare(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UMBRELLA_ACCEPT").is_some_and(|value| value == "1") {
        std::fs::write(&path, text).expect("the golden can be written");
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        golden == text,
        "{} says otherwise. If the change is meant, accept it with\n  UMBRELLA_ACCEPT=1 cargo test -p umbrella-lab --test \
         golden_policies\nand commit it.\nNow:\n{text}",
        path.display()
    );
}

#[test]
fn every_policy_does_what_it_did_before() {
    let cell = |workload: &str, policy: &str| {
        let machine = MachineSpec {
            policy: policy.to_owned(),
            scale: 0.02,
            disk: "deskstar_500gb".to_owned(),
            memory: ByteSize(1 << 30),
            ..MachineSpec::default()
        };
        WriteBackCell::new(WriteBackInput::Workload { spec: workload.to_owned() }, machine)
    };
    let cells: Vec<WriteBackCell> =
        WORKLOADS.iter().flat_map(|workload| policies().iter().map(|info| cell(workload, info.name))).collect();
    let results = experiment::run(&cells, 2, &()).expect("every run can be built");
    assert!(results.error.is_none(), "every policy runs: {:?}", results.error);
    let outcomes: Vec<_> = results.outcomes.into_iter().flatten().collect();
    assert_eq!(outcomes.len(), cells.len());
    let mut text =
        String::from("workload policy operations time_ms drained_ms bytes_written write_requests distance\n");
    for of in &outcomes {
        let _ = writeln!(
            text,
            "{} {} {} {:.0} {:.0} {} {} {:.0}",
            of.setting.input,
            of.setting.policy,
            of.operations,
            of.time_s * 1e3,
            of.drained_s * 1e3,
            of.bytes_written,
            of.write_requests,
            of.write_distance
        );
    }
    compare("policies.txt", &text);
}
