//! Outcomes side by side in a terminal: a row a policy, a column a figure. Pure: outcomes in, text out.
//!
//! The best of a column carries a star (and is bold on a terminal), the others their change against the first row.
//! Columns that are zero everywhere and were not asked for are left out. A table has 100 columns at most, fewer on a
//! narrow terminal: how many figures do not fit is said below.

use std::fmt::Write as _;
use std::io::{self, IsTerminal};

use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement, Table, presets};
use umbrella_lab::result::{ComparisonRow, Difference, Group, Metric, Outcome, Setting, groups};

use super::setup::Figures;
use crate::text::visible;

/// Not worth a word above the table.
pub(super) const DEFAULT_SCHEDULER: &str = "elevator";
/// What stands for no difference.
const SAME: &str = "=";
/// The widest table that is not asked for.
const PAGE_WIDTH: usize = 100;
/// Blanks between columns.
const GAP: usize = 2;

/// How a table may look.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableStyle {
    /// Columns of the terminal that it may take; none if it may be as wide as it is.
    pub(super) width: Option<usize>,
    /// Whether the best figures are bold.
    pub(super) is_bold: bool,
}

impl TableStyle {
    /// On standard output: as wide as the terminal and no wider than a page, unless all is asked for.
    pub(super) fn of_output(is_wide: bool) -> TableStyle {
        let is_bold = io::stdout().is_terminal();
        let terminal = Table::new().width().filter(|_| is_bold).map_or(PAGE_WIDTH, usize::from);
        TableStyle { width: (!is_wide).then_some(terminal.min(PAGE_WIDTH)), is_bold }
    }
}

/// A table for each input, under a line that says what all its runs share.
pub(super) fn comparison(outcomes: &[Outcome], figures: &Figures, look: TableStyle) -> String {
    let groups = groups(outcomes);
    let mut text = String::new();
    for (place, group) in groups.iter().enumerate() {
        if place > 0 {
            text.push('\n');
        }
        let _ = writeln!(text, "{}", visible(&common_settings(group)));
        text += &table(group, figures, look);
        text.extend(group.low_influence_note().map(|sentence| sentence + "\n"));
    }
    text
}

/// What all runs of the group were run with: the input, the disk, memory and seed, and whatever is not the default.
pub(super) fn common_settings(group: &Group<'_>) -> String {
    let shared = |of: &dyn Fn(&Setting) -> Option<String>| {
        let mut values = group.outcomes().map(|outcome| of(&outcome.setting));
        let first = values.next().flatten();
        first.filter(|first| values.all(|value| value.as_ref() == Some(first)))
    };
    let unless_default =
        |name: &str, value: &str, default: &str| (value != default).then(|| format!("--{name} {value}"));
    let mut parts = vec![
        shared(&|of| Some(format!("on {}", of.disk))),
        shared(&|of| Some(format!("{} of memory", of.memory))),
        shared(&|of| (of.scale < 1.0).then(|| format!("scale {}", of.scale))),
        group.means().or_else(|| shared(&|of| Some(format!("seed {}", of.seed)))),
        shared(&|of| unless_default("scheduler", &of.scheduler, DEFAULT_SCHEDULER)),
        shared(&|of| of.staging.then(|| "--staging".to_owned())),
    ];
    let options = group.rows.first().map(|row| &row.setting().options);
    for name in options.into_iter().flat_map(|options| options.keys()) {
        let option = |value: &String| format!("--{name} {value}").trim_end().to_owned();
        parts.push(shared(&|of| of.options.get(name).map(option)));
    }
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    // The disk belongs to the input; without it the input is alone.
    let gap = if parts.first().is_some_and(|part| part.starts_with("on ")) { " " } else { ", " };
    if parts.is_empty() { group.input.to_owned() } else { format!("{}{gap}{}", group.input, parts.join(", ")) }
}

/// One column as text: a cell a row, all of one width.
struct Column<'a> {
    metric: &'a Metric,
    cells: Vec<String>,
    best: Vec<bool>,
}

fn table(group: &Group<'_>, figures: &Figures, look: TableStyle) -> String {
    let names: Vec<String> = group.rows.iter().map(name).collect();
    let says_something = |metric: &&&Metric| figures.chosen || !group.is_zero(metric);
    let columns: Vec<Column<'_>> =
        figures.metrics.iter().filter(says_something).map(|metric| column(group, metric)).collect();
    let first = names.iter().map(|name| length(name)).chain([length("POLICY")]).max().unwrap_or(0);
    let (shown, hidden) = columns.split_at(fitting(&columns, first, look.width));

    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if look.is_bold {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    let headings = shown.iter().map(|column| column.metric.heading.to_uppercase());
    table.set_header(["POLICY".to_owned()].into_iter().chain(headings));
    for (place, name) in names.iter().enumerate() {
        let figures = shown.iter().map(|column| {
            let cell = Cell::new(&column.cells[place]);
            if column.best[place] { cell.add_attribute(Attribute::Bold) } else { cell }
        });
        table.add_row([Cell::new(name)].into_iter().chain(figures));
    }
    for (place, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, GAP as u16));
        if place > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = table.lines().fold(String::new(), |text, line| text + line.trim_end() + "\n");
    if !hidden.is_empty() {
        let figures = if hidden.len() == 1 { "figure" } else { "figures" };
        let _ = writeln!(text, "{} more {figures} (--wide shows all, --metric chooses)", hidden.len());
    }
    if shown.iter().any(|column| column.cells.iter().any(|cell| cell.ends_with(SAME))) {
        text += "=: no difference\n";
    }
    text
}

/// How many columns fit beside the first. One figure is always shown.
fn fitting(columns: &[Column<'_>], first: usize, width: Option<usize>) -> usize {
    let Some(width) = width else { return columns.len() };
    let mut used = first + GAP;
    let fits = columns.iter().take_while(|column| {
        let cells = column.cells.iter().map(|cell| length(cell)).max().unwrap_or(0);
        used += cells.max(length(column.metric.heading)) + GAP;
        used <= width
    });
    fits.count().max(1).min(columns.len())
}

/// The cells of a figure: value, star and change, each in a column of its own within the cell.
fn column<'a>(group: &Group<'_>, metric: &'a Metric) -> Column<'a> {
    let of = |row: &ComparisonRow<'_>| {
        let change = match group.difference(metric, row) {
            Some(Difference::None) => SAME.to_owned(),
            Some(Difference::By(change)) => change,
            None => String::new(),
        };
        (row.show(metric), group.is_best(metric, row), change)
    };
    let parts: Vec<(String, bool, String)> = group.rows.iter().map(of).collect();
    let best: Vec<bool> = parts.iter().map(|(_, best, _)| *best).collect();
    let widest = parts.iter().map(|(.., change)| length(change)).max().unwrap_or(0);
    let cell = |(value, best, change): (String, bool, String)| {
        let star = if best { '*' } else { ' ' };
        if widest == 0 { format!("{value}{star}") } else { format!("{value}{star} {change:>widest$}") }
    };
    Column { metric, cells: parts.into_iter().map(cell).collect(), best }
}

fn name(row: &ComparisonRow<'_>) -> String {
    let cut = if row.is_cut() { " (cut short)" } else { "" };
    format!("{}{cut}", visible(&row.label))
}

fn length(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use umbrella_lab::result::{METRICS, WrittenBecause, metric};

    use super::*;

    const WIDE: TableStyle = TableStyle { width: None, is_bold: false };

    fn narrow(width: usize) -> TableStyle {
        TableStyle { width: Some(width), is_bold: true }
    }

    fn run(policy: &str, time_s: f64) -> Outcome {
        let setting = Setting {
            policy: policy.to_owned(),
            input: "postmark".to_owned(),
            disk: "modern".to_owned(),
            scheduler: DEFAULT_SCHEDULER.to_owned(),
            memory: umbrella_units::ByteSize(4 << 20),
            seed: 7,
            scale: 1.0,
            ..Setting::default()
        };
        Outcome {
            setting,
            time_s,
            bytes_written: (time_s * 1e8) as u64,
            bytes_requested_write: 1 << 30,
            written_because: WrittenBecause { threshold: 1000, ..Default::default() },
            ..Outcome::default()
        }
    }

    /// Figures that were not asked for by name.
    fn usual(names: &[&str]) -> Figures {
        Figures { metrics: names.iter().map(|name| metric(name).unwrap()).collect(), chosen: false }
    }

    #[test]
    fn a_row_a_policy_with_the_best_marked_and_changes_against_the_first() {
        let runs = [run("file", 20.0), run("zone", 21.0), run("sweep", 15.0)];
        let metrics = usual(&["time_s", "throughput", "erases", "bytes_written"]);
        assert_eq!(
            comparison(&runs, &metrics, WIDE),
            "postmark on modern, 4 MiB of memory, seed 7\n\
             POLICY          TIME          THROUGHPUT           WRITTEN\n\
             file    20 s          51.2 MiB/s          1.86 GiB\n\
             zone    21 s  +5.0 %  48.8 MiB/s  -4.8 %  1.96 GiB  +5.0 %\n\
             sweep   15 s*  -25 %  68.3 MiB/s*  +33 %   1.4 GiB*  -25 %\n"
        );
    }

    #[test]
    fn a_narrow_terminal_gets_the_first_figures_and_the_number_of_the_others() {
        let runs = [run("file", 20.0), run("sweep", 15.0)];
        let metrics = usual(&["time_s", "throughput", "bytes_written"]);
        let text = comparison(&runs, &metrics, narrow(30));
        assert!(text.contains("TIME") && !text.contains("THROUGHPUT") && !text.contains("WRITTEN"), "{text}");
        assert!(text.ends_with("2 more figures (--wide shows all, --metric chooses)\n"), "{text}");
        let least = comparison(&runs, &metrics, narrow(1));
        assert!(least.contains("TIME"), "one figure is always shown: {least}");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let runs = [run("file", 20.0), run("sweep", 15.0)];
        let metrics = Figures { metrics: METRICS.iter().collect(), chosen: false };
        for width in 30..200 {
            let text = comparison(&runs, &metrics, narrow(width)).replace("\u{1b}[1m", "").replace("\u{1b}[0m", "");
            for line in text.lines().skip(1).filter(|line| !line.contains(" more figure")) {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }

    #[test]
    fn only_a_terminal_gets_bold_type() {
        let runs = [run("file", 20.0), run("sweep", 15.0)];
        let metrics = usual(&["time_s"]);
        assert!(comparison(&runs, &metrics, narrow(80)).contains("\u{1b}[1m"));
        assert!(!comparison(&runs, &metrics, WIDE).contains('\u{1b}'));
    }

    #[test]
    fn each_input_gets_a_table_of_its_own() {
        let mut other = run("zone", 5.0);
        other.setting.input = "untar\u{1b}[2J".to_owned();
        let text = comparison(&[run("file", 20.0), other], &usual(&["time_s"]), WIDE);
        assert_eq!(
            text,
            "postmark on modern, 4 MiB of memory, seed 7\nPOLICY   TIME\nfile    20 s\n\n\
             untar\\u{1b}[2J on modern, 4 MiB of memory, seed 7\nPOLICY  TIME\nzone    5 s\n"
        );
    }

    #[test]
    fn the_line_above_leaves_out_what_differs_and_what_is_usual() {
        let other = |change: fn(&mut Setting)| {
            let mut other = run("zone", 5.0);
            change(&mut other.setting);
            let text = comparison(&[run("file", 20.0), other], &usual(&["time_s"]), WIDE);
            text.lines().next().unwrap().to_owned()
        };
        assert_eq!(other(|of| of.seed = 8), "postmark on modern, 4 MiB of memory");
        assert_eq!(other(|of| of.disk = "cheetah_10k7".to_owned()), "postmark, 4 MiB of memory, seed 7");
        let queue = |of: &mut Setting| drop(of.options.insert("queue-depth".to_owned(), "4".to_owned()));
        assert_eq!(other(queue), "postmark on modern, 4 MiB of memory, seed 7");
        let mut both = [run("file", 20.0), run("zone", 5.0)];
        for run in &mut both {
            queue(&mut run.setting);
            run.setting.scale = 0.1;
        }
        let text = comparison(&both, &usual(&["time_s"]), WIDE);
        assert!(
            text.starts_with("postmark on modern, 4 MiB of memory, scale 0.1, seed 7, --queue-depth 4\n"),
            "{text}"
        );
    }

    #[test]
    fn a_note_below_the_table_says_that_the_runs_depend_little_on_the_policies() {
        let drained = |share: u64, threshold: u64| {
            let because =
                WrittenBecause { drained: share, threshold, expired: 100 - share - threshold, ..Default::default() };
            Outcome { written_because: because, ..run("file", 20.0) }
        };
        let reported = |runs: &[Outcome]| comparison(runs, &usual(&["time_s"]), WIDE).contains("hardly any pages");
        assert!(reported(&[drained(90, 0), drained(96, 4), drained(0, 10)]), "age is as little asked for as the end");
        assert!(!reported(&[drained(90, 0), drained(89, 11)]));
        let cut = Outcome { interrupted: true, ..drained(0, 100) };
        assert!(reported(&[drained(90, 0), cut]), "a run cut short says nothing");
    }

    #[test]
    fn a_figure_that_was_asked_for_stays_though_it_is_zero() {
        let runs = [run("file", 20.0), run("zone", 18.0)];
        assert!(!comparison(&runs, &usual(&["time_s", "erases"]), WIDE).contains("ERASES"));
        let asked = Figures { chosen: true, ..usual(&["time_s", "erases"]) };
        assert!(comparison(&runs, &asked, WIDE).contains("ERASES"));
    }

    #[test]
    fn seeds_are_one_row_with_mean_and_spread_and_the_title_says_so_once() {
        let seeded = |policy: &str, seed: u64, time_s: f64| {
            let mut run = run(policy, time_s);
            run.setting.seed = seed;
            run.setting.swept.insert("seed".to_owned(), seed.to_string());
            run
        };
        let runs = [seeded("file", 1, 19.0), seeded("file", 2, 21.0), seeded("zone", 1, 15.0), seeded("zone", 2, 15.0)];
        let text = comparison(&runs, &usual(&["time_s"]), WIDE);
        let lines: Vec<&str> = text.lines().take(4).map(str::trim_end).collect();
        assert_eq!(
            lines,
            [
                "postmark on modern, 4 MiB of memory, mean of 2 seeds",
                "POLICY              TIME",
                "file    20 s \u{b1}5 %",
                "zone         15 s* -25 %"
            ]
        );
    }

    #[test]
    fn a_run_that_was_cut_short_says_so_and_wins_nothing() {
        let cut = Outcome { interrupted: true, ..run("sweep", 1.0) };
        let text = comparison(&[run("file", 20.0), run("zone", 18.0), cut], &usual(&["time_s"]), WIDE);
        let row = text.lines().find(|line| line.starts_with("sweep (cut short)")).unwrap();
        assert!(!row.contains('*') && !row.contains('%'), "{row}");
    }

    #[test]
    fn nothing_run_is_an_empty_text() {
        assert_eq!(comparison(&[], &usual(&["time_s"]), WIDE), "");
    }
}
