//! What `umbrella lab paper NAME --quick --json` says of each paper is kept in `golden/NAME-quick.json`, values rounded
//! to a tenth. A change of a policy, a model or a workload shows there.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use umbrella_lab::experiment::{LabError, Machine};
use umbrella_lab::trace::OpenOptions;
use umbrella_reproductions::{self as reproductions, Claim, Effort, Judged, nvcache, on_inputs, r_lfs};

/// Set to accept what comes out.
const ACCEPT: &str = "UMBRELLA_ACCEPT";

fn rounded(value: &mut Value) {
    if let Some(number) = value.as_f64() {
        // Adding zero turns -0 into 0.
        *value = json!((number * 10.0).round() / 10.0 + 0.0);
    }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// A claim as the command writes it.
fn row(paper: &str, assumed: &str, claim: Claim) -> Value {
    let mut row = serde_json::to_value(claim).unwrap();
    row["paper"] = json!(paper);
    row["assumed"] = json!(assumed);
    round(&mut row);
    row
}

/// Rounds what was measured, in other readings and on new inputs too.
fn round(row: &mut Value) {
    rounded(&mut row["measured"]);
    for list in ["other_readings", "new_inputs"] {
        row.get_mut(list)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
            .for_each(|of| rounded(&mut of["measured"]));
    }
}

/// The claims of the figures as the command writes them; of the hybrid disk and the log, with the synthetic inputs
/// alone.
fn measured(name: &str) -> Vec<Value> {
    let (open, quick) = (OpenOptions::default(), Effort::Quick);
    if name == nvcache::NAME {
        let inputs = nvcache::inputs(&[], &open).unwrap();
        let figures = nvcache::choose(None).unwrap();
        return rows(name, on_inputs::run(nvcache::NAME, &figures, &inputs, quick, threads(), |_| Box::new(())));
    }
    if name == r_lfs::NAME {
        let inputs = r_lfs::inputs(&[], &open, quick).unwrap();
        let figures = r_lfs::choose(None).unwrap();
        return rows(name, on_inputs::run(r_lfs::NAME, &figures, &inputs, quick, threads(), |_| Box::new(())));
    }
    let paper = reproductions::paper(name).unwrap();
    let figures = paper.choose(None).unwrap();
    rows(name, reproductions::run(paper.name, &figures, quick, threads(), |_| Box::new(())))
}

fn rows<M: Machine>(paper: &str, judged: Result<Vec<Judged<M>>, LabError>) -> Vec<Value> {
    let of = |figure: Judged<M>| figure.claims.into_iter().map(move |claim| row(paper, figure.assumed, claim));
    judged.unwrap().into_iter().flat_map(of).collect()
}

fn is_as_reviewed(name: &str) {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}-quick.json"));
    let now = measured(name);
    if std::env::var_os(ACCEPT).is_some_and(|value| value == "1") {
        fs::write(&golden, serde_json::to_string_pretty(&now).unwrap() + "\n").unwrap();
        return;
    }
    let then: Vec<Value> = serde_json::from_str(&fs::read_to_string(&golden).unwrap()).unwrap();
    let differs = |at: usize| {
        let (then, now) = (then.get(at), now.get(at));
        (then != now).then(|| format!("  was: {}\n  now: {}", line(then), line(now)))
    };
    let differences: Vec<String> = (0..then.len().max(now.len())).filter_map(differs).collect();
    assert!(
        differences.is_empty(),
        "{} of {} claims differ from {}:\n{}\nIf that is what the change was for, accept it, commit the file, and say in \
         docs/reproductions/{name}.md what changed:\n  {ACCEPT}=1 cargo test -p umbrella-reproductions --test quick {name}",
        differences.len(),
        then.len(),
        golden.display(),
        differences.join("\n"),
    );
}

fn line(row: Option<&Value>) -> String {
    row.map_or_else(|| "nothing".to_owned(), Value::to_string)
}

#[test]
fn tesa_quick_is_as_reviewed() {
    is_as_reviewed("tesa");
}

#[test]
fn umbrellafs_quick_is_as_reviewed() {
    is_as_reviewed("umbrellafs");
}

#[test]
fn mram_quick_is_as_reviewed() {
    is_as_reviewed("mram");
}

#[test]
fn nvcache_quick_is_as_reviewed() {
    is_as_reviewed("nvcache");
}

#[test]
fn r_lfs_quick_is_as_reviewed() {
    is_as_reviewed("r-lfs");
}

#[test]
fn each_claim_of_the_list_has_one_entry_and_no_other() {
    for name in ["tesa", "umbrellafs", "mram", "nvcache", "r-lfs"] {
        let text =
            fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}-quick.json")));
        let golden: Vec<Value> = serde_json::from_str(&text.unwrap()).unwrap();
        let mut given: Vec<&str> = golden.iter().map(|row| row["id"].as_str().unwrap()).collect();
        let mut listed: Vec<&str> = reproductions::frozen(name).map(|claim| claim.id.as_str()).collect();
        given.sort_unstable();
        listed.sort_unstable();
        assert_eq!(given, listed);
    }
}

/// A number of the pages' tables: rounded to a tenth, without a zero behind the point.
fn shown(value: &Value) -> String {
    let tenths = (value.as_f64().expect("a number") * 10.0).round() as i64;
    if tenths % 10 == 0 { (tenths / 10).to_string() } else { format!("{:.1}", tenths as f64 / 10.0) }
}

#[test]
fn the_pages_say_of_quick_runs_what_is_reviewed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for name in ["tesa", "umbrellafs", "mram", "r-lfs"] {
        let golden = fs::read_to_string(root.join(format!("tests/golden/{name}-quick.json"))).unwrap();
        let golden: Vec<Value> = serde_json::from_str(&golden).unwrap();
        let page = fs::read_to_string(root.join(format!("../../docs/reproductions/{name}.md"))).unwrap();
        for row in &golden {
            let text = |key: &str| row[key].as_str().unwrap_or_else(|| panic!("{key} of {row}")).to_owned();
            let verdict = match text("verdict").as_str() {
                "holds" => "holds",
                "sign_only" => "sign only",
                "not_measured" => "",
                _ => "**fails**",
            };
            let measured = if verdict.is_empty() { "not measured".to_owned() } else { shown(&row["measured"]) };
            let begin = format!("| {} | {} |", text("figure"), text("claim"));
            let end = format!("| {measured} | {verdict} |").replace("|  |", "| |");
            let lines: Vec<&str> = page.lines().filter(|line| line.starts_with(&begin)).collect();
            assert!(
                matches!(lines.as_slice(), [line] if line.ends_with(&end)),
                "docs/reproductions/{name}.md: {begin} should end with {end} (scripts/paper-table.sh makes the table): {lines:?}"
            );
        }
        let count = |verdict: &str| golden.iter().filter(|row| row["verdict"] == verdict).count();
        let counts = format!(
            "Quick: {} of {} hold, {} more in sign only, {} fail, {} not measured.",
            count("holds"),
            golden.len(),
            count("sign_only"),
            count("fails"),
            count("not_measured")
        );
        assert!(page.contains(&counts), "docs/reproductions/{name}.md does not say {counts:?}");
    }
}
