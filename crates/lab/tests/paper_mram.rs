//! A quick run of the MRAM figures comes out as committed, so that a change of any figure shows in review.

use std::path::Path;

use serde_json::json;
use umbrella_lab::experiment::Observe;
use umbrella_lab::paper::{self, Effort};

/// Set to accept what comes out.
const ACCEPT: &str = "UMBRELLA_ACCEPT";

#[test]
fn a_quick_run_comes_out_as_committed() {
    let figures = paper::paper("mram").expect("the paper").choose(None).expect("its figures");
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let judged = paper::run(&figures, Effort::Quick, threads, |_| Box::new(()) as Box<dyn Observe>).expect("it runs");
    let claims = judged.iter().flat_map(|figure| &figure.claims);
    let lines: Vec<String> = claims
        .map(|claim| {
            let measured = format!("{:.1} {}", claim.measured, claim.unit).replace("-0.0 ", "0.0 ");
            json!({ "figure": claim.figure, "claim": claim.claim, "measured": measured, "verdict": claim.verdict })
                .to_string()
        })
        .collect();
    let now = format!("[\n{}\n]\n", lines.join(",\n"));

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/mram-quick.json");
    if std::env::var_os(ACCEPT).is_some() {
        std::fs::write(&path, now).expect("the golden is written");
        return;
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    let changed: Vec<String> = (now.lines().filter(|line| !golden.contains(line)).map(|line| format!("now    {line}")))
        .chain(golden.lines().filter(|line| !now.contains(line)).map(|line| format!("before {line}")))
        .collect();
    assert!(
        now == golden,
        "the figures changed:\n{}\nIf that is meant, accept it with: {ACCEPT}=1 cargo test -p umbrella-lab --test paper_mram\n\
         and say in docs/papers-mram.md what changed.",
        changed.join("\n")
    );
}
