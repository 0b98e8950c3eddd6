//! The page of outcomes: what is in it, that it is well formed and needs nothing from outside, and that a browser
//! shows and sorts it.

mod browser;
mod sample;

use roxmltree::{Document, Node, ParsingOptions};
use umbrella_lab::result::{METRICS, Outcome, html};

/// The page, which must be well-formed XML: every tag closed, every attribute quoted, every character allowed.
fn parse(page: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(page, options).unwrap_or_else(|error| panic!("{error}\n{page}"))
}

fn all<'a>(document: &'a Document<'a>, tag: &str) -> Vec<Node<'a, 'a>> {
    document.descendants().filter(|node| node.has_tag_name(tag)).collect()
}

fn text_of(node: Node<'_, '_>) -> String {
    node.descendants().filter_map(|node| node.text().filter(|_| node.is_text())).collect()
}

fn figures<'a>(document: &'a Document<'a>) -> Vec<Node<'a, 'a>> {
    all(document, "table").into_iter().filter(|table| table.attribute("class") == Some("figures")).collect()
}

#[test]
fn a_page_has_a_section_an_input_with_a_row_a_policy() {
    let outcomes = [sample::comparison("postmark"), sample::comparison("prxy_0.csv.gz")].concat();
    let page = sample::page("Two inputs", &outcomes);
    let document = parse(&page);
    let headings: Vec<String> = all(&document, "h2").into_iter().map(text_of).collect();
    assert_eq!(headings, ["postmark", "prxy_0.csv.gz"]);
    for table in figures(&document) {
        let rows = table.descendants().filter(|node| node.attribute("data-place").is_some()).count();
        assert_eq!(rows, sample::POLICIES.len());
    }
    assert_eq!(figures(&document).len(), 2);
    assert_eq!(all(&document, "title")[0].text(), Some("Two inputs"));
}

#[test]
fn the_page_begins_with_who_was_best_and_by_how_much() {
    let page = sample::page("Postmark", &sample::comparison("postmark"));
    let document = parse(&page);
    let verdict = all(&document, "p").into_iter().find(|node| node.attribute("class") == Some("verdict")).unwrap();
    assert_eq!(
        text_of(verdict),
        "\u{201c}sweep\u{201d} was fastest with 2 min 3 s, 34 % less than \u{201c}file\u{201d} (3 min 7 s)."
    );
}

#[test]
fn a_page_says_where_it_comes_from_and_its_title_once() {
    let page = sample::page("postmark", &sample::comparison("postmark"));
    let document = parse(&page);
    let origin = all(&document, "p").into_iter().find(|node| node.attribute("class") == Some("origin")).unwrap();
    assert_eq!(text_of(origin), "Umbrella 1.2.3, 2026-01-02 03:04 UTC: umbrella lab compare --workload 'a & b'");
    assert_eq!(all(&document, "h2").len(), 0);
    assert_eq!(text_of(all(&document, "h1")[0]), "postmark");
}

#[test]
fn a_page_of_fewer_runs_than_were_asked_for_says_so() {
    let outcomes = sample::comparison("postmark");
    assert!(html::page("Some", &outcomes, 9, &sample::origin()).contains("6 of 9 runs are shown."));
    assert!(!sample::page("All", &outcomes).contains("runs are shown"));
}

#[test]
fn seeds_are_drawn_as_their_mean_and_every_run_can_be_repeated() {
    let seeded = |policy: &str, speeds: [f64; 2]| {
        let run = |(seed, speed): (u64, f64)| {
            let mut run = sample::outcome(policy, "untar", speed);
            run.setting.seed = seed;
            run.setting.swept.insert("seed".to_owned(), seed.to_string());
            run
        };
        [(1, speeds[0]), (2, speeds[1])].map(run)
    };
    let outcomes = [seeded("file", [1.0, 1.2]), seeded("sweep", [1.5, 2.0])].concat();
    let page = sample::page("Seeds", &outcomes);
    let document = parse(&page);
    assert_eq!(text_of(all(&document, "h2")[0]), "untar, mean of 2 seeds");
    let rows: Vec<Node<'_, '_>> =
        all(&document, "tr").into_iter().filter(|row| row.attribute("data-place").is_some()).collect();
    let cell = |row: usize| rows[row].children().find(|node| node.has_tag_name("td")).unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!(cell(1).text(), Some("109 s \u{b1}14 %"));
    let mean = f64::midpoint(outcomes[2].time_s, outcomes[3].time_s);
    assert_eq!(cell(1).attribute("data-value"), Some(mean.to_string().as_str()));
    let label = all(&document, "svg").into_iter().find_map(|svg| svg.attribute("aria-label")).unwrap();
    assert!(label.contains("sweep: 109 s \u{b1}14 % (-36 %)."), "{label}");
    let times = all(&document, "svg").into_iter().filter_map(|svg| svg.attribute("aria-label"));
    let times: Vec<&str> = times.filter(|label| label.starts_with("Response times of writes")).collect();
    assert!(times[0].contains("sweep: median 118 \u{b5}s"), "{times:?}");
    let commands = all(&document, "pre").into_iter().map(text_of).collect::<String>();
    assert_eq!(commands.lines().filter(|line| line.starts_with("umbrella lab run")).count(), 4);
}

#[test]
fn names_in_the_charts_stay_apart_when_they_are_shortened() {
    let policy = |alpha: u32| format!("zone_segment:alpha={alpha},zone=8MiB,order=address");
    let outcomes = [5, 20, 80].map(|alpha| sample::outcome(&policy(alpha), "untar", 1.0));
    let page = sample::page("Names", &outcomes);
    let document = parse(&page);
    let of = |name: &str| {
        let chart = all(&document, "svg")
            .into_iter()
            .find(|svg| svg.attribute("aria-label").is_some_and(|label| label.starts_with(name)));
        let texts = chart.unwrap().descendants().filter(|node| node.has_tag_name("text"));
        texts.filter(|node| node.attribute("x") == Some("0")).map(text_of).collect::<Vec<_>>()
    };
    let names = ["5", "20", "80"].map(|alpha| format!("\u{2026}{alpha}"));
    assert_eq!(of("Response times of writes"), names);
    assert_eq!(of("time: bars"), names);
}

#[test]
fn every_figure_is_named_and_explained() {
    let page = sample::page("All", &sample::comparison("postmark"));
    let document = parse(&page);
    let named: Vec<&str> = all(&document, "code").into_iter().filter_map(|node| node.text()).collect();
    for metric in METRICS {
        assert!(named.contains(&metric.name), "{} is in no glossary", metric.name);
        assert!(text_of(document.root_element()).contains(metric.help), "{} is not explained", metric.name);
    }
}

#[test]
fn a_figure_that_is_zero_everywhere_takes_no_column_and_the_others_take_one_with_help() {
    let outcomes = sample::comparison("postmark");
    let page = sample::page("Columns", &outcomes);
    let document = parse(&page);
    for metric in METRICS {
        let zero = outcomes.iter().all(|outcome| (metric.of)(outcome) == 0.0);
        let column = all(&document, "th").into_iter().find(|node| node.attribute("data-metric") == Some(metric.name));
        assert_eq!(column.is_none(), zero, "{}", metric.name);
        if let Some(column) = column {
            assert!(column.attribute("title").unwrap().starts_with(metric.help));
        }
    }
}

#[test]
fn cells_carry_the_number_and_show_it_for_people_and_the_best_is_marked() {
    let outcomes = sample::comparison("postmark");
    let page = sample::page("Cells", &outcomes);
    let document = parse(&page);
    let time = &METRICS[0];
    for (place, outcome) in outcomes.iter().enumerate() {
        let row = all(&document, "tr")
            .into_iter()
            .find(|row| row.attribute("data-place") == Some(place.to_string().as_str()))
            .unwrap();
        let cell = row.children().find(|node| node.has_tag_name("td")).unwrap();
        assert_eq!(cell.attribute("data-value"), Some(outcome.time_s.to_string().as_str()));
        assert_eq!(cell.text(), Some(time.show(outcome.time_s).as_str()));
        assert_eq!(cell.attribute("class"), (outcome.setting.policy == "sweep").then_some("best"));
    }
}

#[test]
fn every_chart_has_a_text_alternative() {
    let page = sample::page("Pictures", &[sample::comparison("postmark"), sample::sweep("untar")].concat());
    let document = parse(&page);
    let pictures: Vec<Node<'_, '_>> =
        all(&document, "svg").into_iter().filter(|svg| svg.attribute("aria-hidden").is_none()).collect();
    assert!(pictures.len() > 40, "{} pictures", pictures.len());
    for picture in pictures {
        assert_eq!(picture.attribute("role"), Some("img"));
        let label = picture.attribute("aria-label").unwrap();
        assert!(label.contains("file: ") && label.len() > 40, "{label}");
    }
}

#[test]
fn bars_are_as_long_as_their_values_and_say_the_change_against_the_first() {
    let page = sample::page("Bars", &sample::comparison("postmark"));
    let document = parse(&page);
    let chart = all(&document, "figure")[0];
    let widths: Vec<f64> = chart
        .descendants()
        .filter(|node| node.has_tag_name("rect"))
        .map(|bar| bar.attribute("width").unwrap().parse().unwrap())
        .collect();
    assert_eq!(widths.len(), sample::POLICIES.len());
    // recency is the slowest: 1 / 0.94 against the first.
    assert!((widths[0] / widths[1] - 0.94).abs() < 0.01, "{widths:?}");
    let label = chart.descendants().find_map(|node| node.attribute("aria-label")).unwrap();
    assert!(label.contains("recency: 3 min 19 s (+6.4 %).") && label.contains("sweep: 2 min 3 s (-34 %)."), "{label}");
}

#[test]
fn a_sweep_is_drawn_as_a_line_a_policy_with_a_mark_a_value() {
    let page = sample::page("Sweep", &sample::sweep("untar"));
    let document = parse(&page);
    let chart = all(&document, "figure")[0];
    let with = |class| chart.descendants().filter(|node| node.attribute("class") == Some(class)).count();
    assert_eq!((with("line"), with("mark")), (4, 16));
    let titles: Vec<String> = chart.descendants().filter(|node| node.has_tag_name("title")).map(text_of).collect();
    assert!(titles.contains(&"zone, 2MiB: 2 min 49 s".to_owned()), "{titles:?}");
    let axis: Vec<String> = chart.descendants().filter(|node| node.has_tag_name("text")).map(text_of).collect();
    let sizes: Vec<&String> = axis.iter().filter(|text| text.ends_with("MiB")).collect();
    assert_eq!(sizes, ["2MiB", "4MiB", "8MiB", "16MiB"]);
}

#[test]
fn response_times_are_drawn_for_the_operations_that_there_were() {
    let page = sample::page("Times", &sample::comparison("postmark"));
    let document = parse(&page);
    let drawn: Vec<&str> = all(&document, "svg")
        .into_iter()
        .filter_map(|svg| svg.attribute("aria-label")?.strip_prefix("Response times of "))
        .filter_map(|label| label.split('.').next())
        .collect();
    assert_eq!(drawn, ["writes", "reads"]);
}

#[test]
fn every_run_can_be_repeated_from_the_page() {
    let outcomes = sample::comparison("postmark:files=100");
    let page = sample::page("Again", &outcomes);
    let document = parse(&page);
    let commands = all(&document, "pre").into_iter().map(text_of).collect::<String>();
    for outcome in &outcomes {
        assert!(commands.contains(&outcome.setting.command()), "{commands}");
    }
}

#[test]
fn names_from_outside_stay_text() {
    const ATTACKS: [&str; 6] = [
        "<script>document.title='owned'</script>",
        "\"><img src=x onerror=alert(1)>",
        "' onmouseover='alert(1)",
        "</style></script></title><svg onload=alert(1)>",
        "a\u{0}\u{8}\u{1b}[31m\u{202e}\u{ffff}]]>&lt;",
        "--><!--",
    ];
    for attack in ATTACKS {
        let mut outcomes = sample::sweep(attack);
        for outcome in &mut outcomes {
            outcome.setting.policy = format!("{attack}{}", outcome.setting.policy);
            outcome.setting.disk = attack.to_owned();
            outcome.setting.scheduler = attack.to_owned();
            outcome.phases[0].name = attack.to_owned();
        }
        let value = outcomes[1].setting.swept.values().next().cloned().unwrap();
        outcomes[1].setting.swept.insert(attack.to_owned(), attack.to_owned() + &value);
        let page = sample::page(attack, &outcomes);
        let document = parse(&page);
        let harmless = sample::page("plain", &sample::sweep("plain"));
        let harmless = parse(&harmless);
        for tag in ["script", "style", "title", "img", "iframe", "object"] {
            // Points of charts have titles too; only those of the head count here.
            let count = |document: &Document<'_>| {
                all(document, tag).iter().filter(|node| !node.ancestors().any(|up| up.has_tag_name("svg"))).count()
            };
            assert_eq!(count(&document), count(&harmless), "{tag} of {attack:?}");
        }
        for node in document.descendants() {
            for attribute in node.attributes() {
                assert!(!attribute.name().starts_with("on"), "{} of {attack:?}", attribute.name());
            }
        }
        assert!(!page.contains('\u{202e}') && !page.contains('\u{1b}'));
    }
}

#[test]
fn the_page_needs_nothing_from_outside() {
    let page = sample::page("Alone", &[sample::comparison("postmark"), sample::sweep("untar")].concat());
    for foreign in ["http:", "https:", "//fonts", "url(", "@import", "<link", "<img", "src=", "fetch("] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn a_page_of_nothing_and_a_page_of_broken_numbers_are_still_pages() {
    assert!(sample::page("Nothing", &[]).contains("No run was completed."));
    let mut outcomes = vec![Outcome::default(), sample::outcome("file", "", f64::NAN), sample::outcome("a", "", 0.0)];
    outcomes.push(Outcome { interrupted: true, time_s: f64::INFINITY, ..sample::outcome("b", "", 1.0) });
    let page = sample::page("Broken", &outcomes);
    let document = parse(&page);
    for node in document.descendants().filter(roxmltree::Node::is_element) {
        for name in ["x", "y", "cx", "cy", "d", "width", "height", "viewBox"] {
            let value = node.attribute(name).unwrap_or_default();
            assert!(!value.contains("NaN") && !value.contains("inf"), "{name}={value:?}");
        }
    }
    assert!(page.contains("cut short"));
}

#[test]
fn outcomes_read_back_from_json_make_the_same_page() {
    let mut outcomes = vec![sample::outcome("file", "untar", 1.0), sample::outcome("zone", "untar", 2.0)];
    outcomes[1].setting.swept.insert("zone".to_owned(), "2MiB".to_owned());
    let json = serde_json::to_string(&outcomes).unwrap();
    let back: Vec<Outcome> = serde_json::from_str(&json).unwrap();
    assert_eq!(back, outcomes);
    assert_eq!(sample::page("JSON", &back), sample::page("JSON", &outcomes));
}
