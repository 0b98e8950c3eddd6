//! Configurations that contradict themselves: each is an error, or a warning, at its place and with what to do.

use super::*;

const BRANCHES: &str = "mount = \"/pool\"\ndefault = [\"disk\"]\n\
    [[branch]]\nname = \"disk\"\npath = \"/mnt/disk\"\n\
    [[branch]]\nname = \"flash\"\npath = \"/mnt/flash\"\n\
    [[branch]]\nname = \"shut\"\npath = \"/mnt/shut\"\ncreate = false\n";

fn rule(text: &str) -> String {
    format!("{BRANCHES}[[rule]]\nname = \"r\"\n{text}\n")
}

fn evict(keys: &str) -> String {
    let level = format!("evict = {{ above = \"80%\", until = \"70%\"{keys} }}");
    let group = "[[group]]\nname = \"both\"\nbranches = [\"disk\", \"ssd\"]\n";
    format!("{BRANCHES}[[branch]]\nname = \"ssd\"\npath = \"/mnt/ssd\"\n{level}\n{group}")
}

#[test]
fn what_cannot_be_is_an_error_at_its_place() {
    let group = |text: &str| format!("{BRANCHES}[[group]]\nname = \"g\"\nbranches = [\"disk\", \"flash\"]\n{text}\n");
    for (text, at, said) in [
        (format!("{BRANCHES}[enforce]\nwindow = []\n"), "[]", "the list is empty; name at least one window"),
        (evict(", window = []"), "[]", "the list is empty; name at least one window"),
        (
            evict(", to = [\"disk\", \"ssd\"]"),
            "{ above",
            "evict of \"ssd\": \"ssd\" has only branches that files must leave (leave it out",
        ),
        (group("together = []"), "[]", "the list is empty; name at least one pattern"),
        (group("together_spill = false"), "false\n", "\"together_spill\" needs \"together\""),
        (rule("when = {}\noffline = \"pass\"\nstaging = \"never\""), "\"pass\"", "\"offline\" needs \"to\""),
        (
            rule("when = { path = \"/.umbrella/**\" }\nto = \"disk\""),
            "\"/.umb",
            "no file of the pool is below /.umbrella",
        ),
        (rule("match = [{ glob = \"/.umbrella\", to = \"disk\" }]"), "\"/.umb", "no file of the pool is below"),
        (
            rule("when = { xattr = { \"trusted.umbrella.changed\" = true } }\nto = \"disk\""),
            "\"trusted.",
            "\"trusted.umbrella.changed\" is an attribute of Umbrella's own",
        ),
    ] {
        let errors = read_text(&text).map(|config| config.spec).expect_err(&text);
        let [report] = &errors.reports()[..] else { panic!("{errors}") };
        let line = text.lines().nth(report.line.unwrap() - 1).unwrap();
        let there = format!("{}\n", &line[report.column.unwrap() - 1..]);
        assert!(there.starts_with(at) && report.message.starts_with(said), "{errors}");
    }
    let kept = rule("when = { path = \"/.umbrellas/**\", xattr = { \"user.umbrella\" = true } }\nto = \"disk\"");
    read_text(&kept).unwrap();
}

/// The oddities of a configuration, for people, each with the text that it is about.
fn odd(text: &str) -> Vec<(String, String)> {
    let config = read_text(text).unwrap_or_else(|errors| panic!("{errors}"));
    let findings = [crate::config::contradictions::findings(&config), suspicious_rules::findings(&config)].concat();
    findings.into_iter().map(|found| (text[found.span].to_owned(), found.notice.to_string())).collect()
}

#[test]
fn what_undoes_itself_is_a_warning_at_its_place() {
    let default = |list: &str| BRANCHES.replace("default = [\"disk\"]", &format!("default = {list}"));
    for (text, at, said) in [
        (default("[\"shut\"]"), "[\"shut\"]", "every branch of the default list is read-only or has create = false"),
        (default("[\"shut\", \"disk\"]"), "[\"shut\", \"disk\"]", "the default list begins with branch \"shut\""),
        (rule("when = {}\nto = [\"shut\"]"), "\"r\"", "rule \"r\": all of its branches are read-only or have create"),
        (rule("when = {}\nto = [\"any\"]\noffline = \"fail\""), "\"r\"", "rule \"r\": \"offline\" has no effect"),
        (
            rule("match = [{ glob = \"/a/**\", to = \"any\", offline = \"pass\" }]"),
            "\"/a/**\"",
            "rule \"/a/**\": \"offline\" has no effect on a list that begins with \"any\"",
        ),
        (rule("when = { offline = \"disk\" }\nto = \"disk\""), "\"r\"", "rule \"r\": it matches only while"),
        (
            rule("when = { size = \"> 5\", hysteresis = \"6\" }\nto = \"disk\""),
            "\"r\"",
            "rule \"r\": its hysteresis is",
        ),
        (
            rule("when = { not = { mtime = \"< 1d\" }, hysteresis = \"2d\" }\nto = \"disk\""),
            "\"r\"",
            "rule \"r\": its hysteresis is too large for the threshold",
        ),
        (
            rule("when = { free = { disk = \"< 10%\" }, hysteresis = \"95%\" }\nto = \"flash\""),
            "\"r\"",
            "rule \"r\": its hysteresis is too large",
        ),
        (
            rule("when = { free = { disk = \"< 10%\" } }\nto = \"flash\""),
            "\"r\"",
            "rule \"r\": moving files changes \"free\", so files would move to and fro; write for example hysteresis",
        ),
        (
            rule("when = { inodes = { disk = \"> 90%\" } }\nto = \"flash\""),
            "\"r\"",
            "rule \"r\": moving files changes \"inodes\"",
        ),
        (
            evict(", only = { size = [\"> 5\", \"< 3\"] }"),
            "{ above",
            "evict of \"ssd\": no file can ever leave, because no file has size > 5",
        ),
        (
            evict(", to = [\"both\"]"),
            "{ above",
            "evict of \"ssd\": \"to\" names group \"both\", which includes a branch",
        ),
    ] {
        let found = odd(&text);
        let [(there, reported)] = &found[..] else { panic!("{text}: {found:?}") };
        assert!(there.starts_with(at) && reported.starts_with(said), "{found:?}");
    }
}

#[test]
fn what_only_looks_like_a_contradiction_is_left_alone() {
    for text in [
        rule("when = {}\nto = [\"shut\", \"disk\"]"),
        rule("when = {}\nto = [\"disk\", \"any\"]\noffline = \"pass\""),
        rule("when = { offline = \"disk\" }\nto = [\"disk\", \"flash\"]"),
        rule("when = { size = \"< 5\", hysteresis = \"10\" }\nto = \"disk\""),
        rule("when = { size = \"> 5\", hysteresis = \"5\" }\nto = \"disk\""),
        rule("when = { not = { size = \"> 5\" }, hysteresis = \"10\" }\nto = \"disk\""),
        rule("when = { free = { disk = \"< 10%\" }, hysteresis = \"20%\" }\nto = \"flash\""),
        rule("when = { free = { disk = \"< 10%\" } }\nmin_stay = \"1h\""),
        evict(", only = { size = [\"> 3\", \"< 5\"] }, to = [\"disk\"]"),
    ] {
        assert_eq!(odd(&text), [], "{text}");
    }
}
