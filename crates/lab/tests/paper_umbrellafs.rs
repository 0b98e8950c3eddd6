//! What `umbrella lab paper umbrellafs --quick` says is kept in `golden/umbrellafs-quick.json`: the command's JSON, values rounded to
//! a tenth. A change of a policy, a model or a workload shows there.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use umbrella_lab::paper::{self, Effort};

/// Figure 33 only without optimisation, which would take minutes for all.
const UNOPTIMISED: &[&str] = &["33"];

fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/umbrellafs-quick.json")
}

fn rounded(value: &mut Value) {
    if let Some(number) = value.as_f64() {
        // Adding zero turns -0 into 0.
        *value = json!((number * 10.0).round() / 10.0 + 0.0);
    }
}

/// The claims of the figures as the command writes them.
fn measured(optimised: bool) -> Vec<Value> {
    let umbrellafs = paper::paper("umbrellafs").unwrap();
    let figures: Vec<_> =
        umbrellafs.figures.iter().filter(|figure| optimised || UNOPTIMISED.contains(&figure.id)).collect();
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let judged = paper::run(&figures, Effort::Quick, threads, |_| Box::new(())).unwrap();
    let mut rows = Vec::new();
    for (figure, judged) in figures.iter().zip(judged) {
        for claim in judged.claims {
            let mut row = serde_json::to_value(claim).unwrap();
            row["paper"] = json!(umbrellafs.name);
            row["assumed"] = json!(figure.assumed);
            rounded(&mut row["measured"]);
            rows.push(row);
        }
    }
    rows
}

#[test]
fn the_quick_figures_of_umbrellafs_are_those_that_were_reviewed() {
    let accept = std::env::var_os("UMBRELLA_ACCEPT").is_some_and(|value| value == "1");
    let optimised = accept || !cfg!(debug_assertions);
    let now = measured(optimised);
    if accept {
        fs::create_dir_all(golden().parent().unwrap()).unwrap();
        fs::write(golden(), serde_json::to_string_pretty(&now).unwrap() + "\n").unwrap();
        return;
    }
    let text = fs::read_to_string(golden()).unwrap();
    let then: Vec<Value> = serde_json::from_str(&text).unwrap();
    let kept = |row: &&Value| optimised || UNOPTIMISED.iter().any(|id| row["figure"] == *id);
    let then: Vec<&Value> = then.iter().filter(kept).collect();
    let differs = |at: usize| {
        let (then, now) = (then.get(at).copied(), now.get(at));
        (then != now).then(|| format!("  was: {}\n  now: {}", line(then), line(now)))
    };
    let differences: Vec<String> = (0..then.len().max(now.len())).filter_map(differs).collect();
    assert!(
        differences.is_empty(),
        "{} of {} claims differ from {}:\n{}\nIf that is what the change was for, accept it and commit the file:\n  \
         UMBRELLA_ACCEPT=1 cargo test --release -p umbrella-lab --test paper_umbrellafs",
        differences.len(),
        then.len(),
        golden().display(),
        differences.join("\n"),
    );
}

fn line(row: Option<&Value>) -> String {
    row.map_or_else(|| "nothing".to_owned(), Value::to_string)
}
