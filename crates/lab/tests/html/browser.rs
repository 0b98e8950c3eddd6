//! The page in headless Chromium (Debian's `chromium`; `scripts/setup.sh test` installs it). Without it these tests
//! fail.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use umbrella_lab::result::{METRICS, Outcome};

use super::sample;

/// What Chromium made of the page: its document after the script ran, and what it logged.
struct Shown {
    dom: String,
    log: String,
}

impl Shown {
    /// The policies of the first table of figures, from top to bottom.
    fn policies(&self) -> Vec<String> {
        let table = self.dom.split("<table class=\"figures\">").nth(1).and_then(|rest| rest.split("</table>").next());
        let rows = table.unwrap_or_else(|| panic!("no table of figures in {}", self.dom));
        let heads = rows.split("<th scope=\"row\">").skip(1);
        heads.map(|head| head.split('<').next().unwrap().to_owned()).collect()
    }

    fn count(&self, what: &str) -> usize {
        // The style sheet names the same words, so it does not count.
        let (head, body) = self.dom.split_once("<body").unwrap_or_else(|| panic!("no page in {}", self.dom));
        let title = head.split("<style>").next().unwrap_or_default();
        title.matches(what).count() + body.matches(what).count()
    }
}

fn chromium(home: &Path, arguments: &[&str]) -> Shown {
    let profile = format!("--user-data-dir={}", home.join("profile").display());
    let common =
        ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--enable-logging=stderr"];
    let output = Command::new("timeout")
        .args(["--kill-after=5", "600", "chromium"])
        .args(common)
        .arg(profile)
        .args(arguments)
        .env("HOME", home)
        .output()
        .expect("timeout (coreutils) can be run");
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success(),
        "chromium is needed for this test and could not be run ({}; `scripts/setup.sh test` installs it):\n{log}",
        output.status
    );
    Shown { dom: String::from_utf8_lossy(&output.stdout).into_owned(), log }
}

fn show(outcomes: &[Outcome], address: &str, script: &str) -> Shown {
    let home = TempDir::new().unwrap();
    let file = home.path().join("page.html");
    // What a test does to the page comes after the page's own script.
    let page = sample::page("In a browser", outcomes).replace("</body>", &format!("<script>{script}</script></body>"));
    std::fs::write(&file, page).unwrap();
    let shown = chromium(home.path(), &["--dump-dom", &format!("file://{}{address}", file.display())]);
    for complaint in ["CONSOLE", "Uncaught", "Refused to"] {
        assert!(!shown.log.contains(complaint), "{}", shown.log);
    }
    shown
}

fn by_time(order: [usize; 6]) -> Vec<String> {
    order.map(|place| sample::POLICIES[place].to_owned()).into()
}

#[test]
fn a_browser_shows_a_row_a_policy_and_a_bar_a_figure_and_policy_without_a_complaint() {
    let outcomes = sample::comparison("postmark");
    let shown = show(&outcomes, "", "");
    assert_eq!(shown.policies(), sample::POLICIES);
    let figures = METRICS.iter().filter(|metric| outcomes.iter().any(|outcome| (metric.of)(outcome) != 0.0)).count();
    assert_eq!(shown.count("<rect class=\"bar"), figures * outcomes.len());
    assert_eq!(shown.count("<button type=\"button\">"), figures + 1);
}

#[test]
fn an_address_sorts_the_table_the_best_first() {
    let outcomes = sample::comparison("postmark");
    assert_eq!(show(&outcomes, "#sort=time_s", "").policies(), by_time([5, 4, 3, 2, 0, 1]));
    let shown = show(&outcomes, "#sort=throughput", "");
    assert_eq!(shown.policies(), by_time([5, 4, 3, 2, 0, 1]));
    assert_eq!(shown.count("aria-sort=\"descending\""), 1);
}

#[test]
fn an_address_that_names_no_figure_changes_nothing() {
    let outcomes = sample::comparison("postmark");
    for address in ["#sort=nonsense", "#sort=0", "#sort=\"]", "#figures"] {
        assert_eq!(show(&outcomes, address, "").policies(), sample::POLICIES, "{address}");
    }
}

#[test]
fn a_click_on_a_heading_sorts_and_a_second_one_turns_the_order() {
    let outcomes = sample::comparison("postmark");
    let click = "document.querySelector('th[data-metric=time_s] button').click();";
    assert_eq!(show(&outcomes, "", click).policies(), by_time([5, 4, 3, 2, 0, 1]));
    let twice = show(&outcomes, "", &click.repeat(2));
    assert_eq!(twice.policies(), by_time([1, 0, 2, 3, 4, 5]));
    assert_eq!(twice.count("aria-sort=\"descending\""), 1);
    let back = format!("{click}document.querySelector('table.figures thead th button').click();");
    assert_eq!(show(&outcomes, "", &back).policies(), sample::POLICIES);
}

#[test]
fn a_browser_runs_nothing_that_a_name_brings_along() {
    let attack = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">";
    let mut outcomes = sample::comparison(attack);
    for outcome in &mut outcomes {
        outcome.setting.policy.insert_str(0, attack);
    }
    let shown = show(&outcomes, "", "");
    assert_eq!(shown.count("<title>In a browser</title>"), 1);
    assert_eq!(shown.count("<img"), 0);
}

#[test]
fn the_page_is_no_wider_than_a_phone() {
    let outcomes =
        [sample::comparison("postmark"), sample::sweep(&"a_long_name_of_a_trace_without_any_blank_".repeat(4))]
            .concat();
    let home = TempDir::new().unwrap();
    // Chromium's windows have a least width; a frame has none. Only the framed page may write the answer.
    let measure = "<script>const page = document.documentElement; \
                   parent.postMessage(page.scrollWidth - page.clientWidth, '*')</script></body>";
    let page = sample::page("On a phone", &outcomes).replace("</body>", measure);
    std::fs::write(home.path().join("page.html"), page).unwrap();
    let frame = "<body><script>addEventListener('message', e => document.body.dataset.tooWide = e.data)</script>\
                 <iframe src='page.html' width='400' height='800' style='border:0'></iframe></body>";
    let file = home.path().join("frame.html");
    std::fs::write(&file, frame).unwrap();
    let shown = chromium(home.path(), &["--dump-dom", &format!("file://{}", file.display())]);
    assert_eq!(shown.count("data-too-wide=\"0\""), 1, "{}", shown.dom);
}

#[test]
fn light_and_dark_look_different() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("page.html");
    std::fs::write(&file, sample::page("Colours", &sample::comparison("postmark"))).unwrap();
    let pictures = [("light", "1"), ("dark", "0")].map(|(name, scheme)| {
        let picture = home.path().join(format!("{name}.png"));
        chromium(
            home.path(),
            &[
                &format!("--blink-settings=preferredColorScheme={scheme}"),
                "--window-size=1200,900",
                &format!("--screenshot={}", picture.display()),
                &format!("file://{}", file.display()),
            ],
        );
        std::fs::read(picture).unwrap()
    });
    assert!(pictures.iter().all(|picture| picture.len() > 10_000), "{:?}", pictures.each_ref().map(Vec::len));
    assert_ne!(pictures[0], pictures[1]);
}
