use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use umbrella_fs::spec::{DirectoryRule, OnBranchError, Transport};
use umbrella_policy::placement::spec::{
    Access, Comparison, Condition, DestinationSpec, EvictOrder, EvictSpec, FileKind, GroupSpec, Narrow, Offline,
    RuleKindSpec, SpaceField, Spread, SpreadOrder, TimeField, TogetherFull,
};
use umbrella_policy::schedule::Schedule;
use umbrella_units::{Amount, ByteSize};

use super::*;

mod conditions;
mod contradictions;
mod on_disk;

/// The paper's figure 8, as the documentation shows it.
const FIGURE_8: &str = r#"mount = "/srv/pool"
default = ["disk"]                       # where a file goes that no rule names
[[branch]]
name = "disk"
path = "/mnt/disk1"
[[branch]]
name = "flash"
path = "/mnt/ssd"
min_free = "5%"
[[branch]]
name = "crypt"
path = "/mnt/crypt"
[[rule]]
name = "read-only files on flash"
when = { access = "read-only" }
to = ["flash", "disk"]
offline = "pass"
[[rule]]
name = "by name"
match = [                                # the name table: the longest match wins
  { glob = "/home/dave/**",     to = ["crypt"] },
  { glob = "/home/dave/**.avi", to = ["disk", "crypt"] },
]
"#;

/// Two branches; what a test adds begins at line 8.
const TWO: &str = "mount = \"/pool\"\n[[branch]]\nname = \"disk\"\npath = \"/mnt/disk\"\n[[branch]]\nname = \"flash\"\n\
                   path = \"/mnt/flash\"\n";

/// One branch, to which keys can be added.
const ONE: &str = "mount = \"/pool\"\n[[branch]]\nname = \"disk\"\npath = \"/mnt/disk\"\n";

fn read_text(text: &str) -> Result<Config, ConfigErrors> {
    parse(Path::new("pool.toml"), text.as_bytes().to_vec())
}

#[test]
fn what_branch_add_prints_can_follow_the_configurations_of_the_pages() {
    let pages = [
        "README.md",
        "docs/configuration.md",
        "docs/from-mergerfs.md",
        "docs/start/first-pool.md",
        "docs/guides/media-server.md",
    ];
    for page in pages {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
        let text = std::fs::read_to_string(file).unwrap();
        let pools: Vec<&str> = text.split("```toml\n").skip(1).filter_map(|block| block.split("```").next()).collect();
        // A pattern of paths needs directories that match.
        let pool = pools.into_iter().find(|block| block.starts_with("mount = ")).expect(page);
        let pool = pool.replace("/mnt/disk*", "/mnt/disk1");
        let longer = format!("{pool}\n[[branch]]\nname = \"usb\"\npath = \"/mnt/usb\"\n");
        if let Err(errors) = read_text(&longer) {
            panic!("{page}: {errors}");
        }
    }
}

fn with_default(text: &str) -> String {
    format!("default = \"disk\"\n{TWO}{text}")
}

fn error(text: &str) -> String {
    let errors = read_text(text).expect_err("the configuration is wrong");
    errors.reports().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The conditions of one rule with this `when`.
fn when(inside: &str) -> Vec<Condition> {
    let text = with_default(&format!("[[rule]]\nwhen = {{ {inside} }}\nto = \"flash\"\n"));
    let config = read_text(&text).unwrap_or_else(|errors| panic!("{errors}"));
    match config.spec.rules.rules.into_iter().next().unwrap().kind {
        RuleKindSpec::When { conditions, .. } => conditions,
        other => panic!("a metadata rule, not {other:?}"),
    }
}

/// The message about one rule with this `when`, without its place.
fn when_error(inside: &str) -> String {
    let message = error(&with_default(&format!("[[rule]]\nwhen = {{ {inside} }}\nto = \"flash\"\n")));
    let place = "pool.toml:10:";
    assert!(message.starts_with(place), "{message}");
    message.splitn(4, ':').nth(3).unwrap().trim().to_owned()
}

fn list(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn figure_8_is_read_as_it_is() {
    let spec = read_text(FIGURE_8).unwrap().spec;
    assert_eq!(spec.mount, Path::new("/srv/pool"));
    assert_eq!(spec.rules.default, ["disk"]);
    let branches: Vec<_> = spec.branches.iter().map(|branch| (branch.name.as_str(), branch.min_free)).collect();
    let none = Amount::Bytes(ByteSize(0));
    assert_eq!(branches, [("disk", none), ("flash", Amount::MilliPercent(5000)), ("crypt", none)]);
    let to = |branches: &[&str], offline| DestinationSpec { branches: list(branches), offline };
    assert_eq!(
        spec.rules.rules[0].kind,
        RuleKindSpec::When {
            conditions: vec![Condition::Access { is: Comparison::Equal, value: Access::ReadOnly }],
            to: to(&["flash", "disk"], Offline::Pass),
        }
    );
    let RuleKindSpec::Names(table) = &spec.rules.rules[1].kind else { panic!("the second rule is the name table") };
    assert_eq!(table[0].glob, "/home/dave/**");
    assert_eq!(table[0].to, to(&["crypt"], Offline::Next));
    assert_eq!(table[1].to, to(&["disk", "crypt"], Offline::Next));
}

#[test]
fn a_pattern_of_paths_makes_a_branch_of_each_directory_named_by_it() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["disk1", "disk2", "disk10", "ssd"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
    }
    std::fs::write(dir.path().join("disk0"), "a file").unwrap();
    let at = dir.path().display();
    let text = format!(
        "mount = \"/pool\"\ndefault = \"hdds\"\n[[branch]]\npath = \"{at}/ssd\"\n[[branch]]\npath = \"{at}/disk*\"\nmin_free = \"5%\"\n\
         [[group]]\nname = \"hdds\"\nbranches = \"disk*\"\n"
    );
    let spec = read_text(&text).unwrap().spec;
    let names: Vec<_> = spec.branches.iter().map(|branch| branch.name.as_str()).collect();
    assert_eq!(names, ["ssd", "disk1", "disk2", "disk10"]);
    assert_eq!(spec.branches[3].path, dir.path().join("disk10"));
    assert_eq!(spec.branches[3].min_free, Amount::MilliPercent(5000));
    let twice = format!("{text}[[branch]]\npath = \"/mnt/disk2\"\n");
    assert!(error(&twice).contains("a second branch \"disk2\""), "{}", error(&twice));
}

#[test]
fn fill_levels_are_read_of_branches_and_groups() {
    let text = with_default(
        "[[branch]]\nname = \"ssd\"\npath = \"/ssd\"\nevict = { above = \"80%\", until = \"70%\" }\n\
         [[group]]\nname = \"all\"\nbranches = [\"*\", \"!ssd\"]\nevict = { above = \"2TiB\", until = \"1TiB\", order = \"largest\", \
         to = \"ssd\", only = { size = \"> 1GiB\" }, min_age = \"30d\", window = [\"Sat,Sun 02:00-09:00\", \"03:00-05:00\"] }\n",
    );
    let rules = read_text(&text).unwrap_or_else(|errors| panic!("{errors}")).spec.rules;
    let percent = |share: u32| Amount::MilliPercent(share * 1000);
    let of_group = EvictSpec {
        order: EvictOrder::Largest,
        to: vec!["ssd".to_owned()],
        only: when("size = \"> 1GiB\""),
        min_age: Duration::from_secs(30 * 86_400),
        window: Schedule(["Sat,Sun 02:00-09:00", "03:00-05:00"].map(|window| window.parse().unwrap()).to_vec()),
        ..EvictSpec::new("all", Amount::Bytes(ByteSize(2 << 40)), Amount::Bytes(ByteSize(1 << 40)))
    };
    assert_eq!(rules.evicts, [EvictSpec::new("ssd", percent(80), percent(70)), of_group]);
}

#[test]
fn groups_are_read_with_their_spread_and_what_they_keep_together() {
    let text = format!(
        "default = [\"hdds\", \"any\"]\n{TWO}[[group]]\nname = \"hdds\"\nbranches = [\"d*\", \"flash\", \"!flash\"]\n\
         spread = [\"same-path\", \"high-water\"]\ntogether = [\"/TV/*/*\", \"/Music/*\"]\ntogether_spill = false\n\
         [[group]]\nname = \"all\"\nbranches = \"*\"\ntogether = 2\n\
         [[rule]]\nname = \"r\"\nwhen = {{ free = {{ hdds = \"< 5%\" }}, online = \"all\" }}\nto = [\"all\", \"default\", \"any\"]\n\
         offline = \"fail\"\n"
    );
    let rules = read_text(&text).unwrap().spec.rules;
    assert_eq!(rules.default, ["hdds", "any"]);
    let spread = Spread { narrow: Some(Narrow::SamePath), order: SpreadOrder::HighWater };
    let hdds = GroupSpec {
        name: "hdds".to_owned(),
        branches: list(&["d*", "flash", "!flash"]),
        spread,
        together: list(&["/TV/*/*", "/Music/*"]),
        together_full: TogetherFull::NoRoom,
    };
    assert_eq!(rules.groups[0], hdds);
    assert_eq!(
        (rules.groups[1].together.as_slice(), rules.groups[1].spread),
        (&list(&["/*/*"])[..], Spread::default())
    );
    let RuleKindSpec::When { to, .. } = &rules.rules[0].kind else { panic!("a rule with conditions") };
    assert_eq!(*to, DestinationSpec { branches: list(&["all", "default", "any"]), offline: Offline::Fail });
}

#[test]
fn min_free_of_a_group_is_that_of_the_members_that_say_none() {
    let text = "mount = \"/pool\"\n[[branch]]\npath = \"/a\"\n[[branch]]\npath = \"/b\"\nmin_free = 0\n[[branch]]\npath = \"/c\"\n\
                [[group]]\nname = \"g\"\nbranches = [\"a\", \"b\"]\nmin_free = \"5%\"\n\
                [[group]]\nname = \"all\"\nbranches = \"*\"\nmin_free = \"1GiB\"\n";
    let spec = read_text(text).unwrap().spec;
    let amounts: Vec<Amount> = spec.branches.iter().map(|branch| branch.min_free).collect();
    let bytes = |bytes| Amount::Bytes(ByteSize(bytes));
    assert_eq!(amounts, [Amount::MilliPercent(5000), bytes(0), bytes(1 << 30)]);
}

#[test]
fn what_is_left_out_has_a_default_that_works() {
    let spec = read_text("mount = \"/pool\"\n[[branch]]\nname = \"disk\"\npath = \"/mnt/disk/\"\n").unwrap().spec;
    assert_eq!(spec.rules.default, [] as [String; 0], "any branch");
    assert_eq!(spec.on_branch_error, OnBranchError::Skip);
    assert_eq!(spec.directories, DirectoryRule::Safe);
    assert_eq!(spec.cache_timeout, Duration::from_secs(3600));
    assert_eq!((spec.probe_interval, spec.probe_timeout), (Duration::from_secs(5), Duration::from_secs(5)));
    assert_eq!((spec.threads, spec.transport), (0, Transport::Auto));
    assert!(spec.enforce.window.is_empty());
    assert_eq!(spec.enforce.bandwidth, None);
    let branch = &spec.branches[0];
    assert_eq!(branch.path.as_os_str(), "/mnt/disk");
    assert_eq!(branch.min_stay, Duration::ZERO);
    assert!(branch.passthrough && branch.create && !branch.read_only && !branch.optional);
    assert_eq!((branch.require_mount, branch.headroom), (None, None));
}

#[test]
fn every_setting_reaches_the_pool() {
    let text = r#"
mount = "/pool"
default = "disk"
on_branch_error = "fail"
directories = "first"
cache_timeout = "0"
probe_interval = "1m"
probe_timeout = "500ms"
threads = 4
transport = "io_uring"
enforce = { window = ["22:30-06:00", "Sat,Sun 6:00-9:00"], bandwidth = "50MiB" }
[[branch]]
name = "disk"
path = "/mnt/disk"
min_free = "10GiB"
headroom = "10%"
read_only = true
create = false
max_files = 1000
hide = true
optional = true
require_mount = false
min_stay = "1d"
passthrough = false
"#;
    let spec = read_text(text).unwrap().spec;
    assert_eq!(spec.on_branch_error, OnBranchError::Fail);
    assert_eq!(spec.directories, DirectoryRule::First);
    assert_eq!(spec.cache_timeout, Duration::ZERO);
    assert_eq!((spec.probe_interval, spec.probe_timeout), (Duration::from_secs(60), Duration::from_millis(500)));
    assert_eq!((spec.threads, spec.transport), (4, Transport::IoUring));
    let windows = ["22:30-06:00", "Sat,Sun 06:00-09:00"].map(|text| text.parse().unwrap());
    assert_eq!(spec.enforce.window, Schedule(windows.to_vec()));
    assert_eq!(spec.enforce.bandwidth, Some(ByteSize(50 << 20)));
    let branch = &spec.branches[0];
    assert_eq!(branch.min_free, Amount::Bytes(ByteSize(10 << 30)));
    assert_eq!(branch.headroom, Some(Amount::MilliPercent(10_000)));
    assert!(branch.read_only && branch.optional && !branch.passthrough);
    assert_eq!((branch.create, branch.max_files, branch.hide), (false, Some(1000), true));
    assert_eq!((branch.require_mount, branch.min_stay), (Some(false), Duration::from_secs(86_400)));
}

#[test]
fn each_operator_is_understood() {
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    for (text, is) in [
        ("\"< 10\"", Less),
        ("\"<=10\"", LessOrEqual),
        ("\"= 10\"", Equal),
        ("\"== 10\"", Equal),
        ("\"!= 10\"", NotEqual),
        ("\" >=  10 \"", GreaterOrEqual),
        ("\">10\"", Greater),
        ("\"10\"", Equal),
        ("10", Equal),
    ] {
        let value = ByteSize(10);
        assert_eq!(when(&format!("size = {text}")), [Condition::Size { is, value, hysteresis: ByteSize(0) }], "{text}");
    }
}

#[test]
fn a_list_of_comparisons_is_a_range() {
    let bound = |is, value| Condition::Size { is, value: ByteSize(value), hysteresis: ByteSize(0) };
    assert_eq!(
        when("size = [\">= 1MiB\", \"< 1GiB\"]"),
        [bound(Comparison::GreaterOrEqual, 1 << 20), bound(Comparison::Less, 1 << 30)]
    );
}

#[test]
fn owners_are_numbers_or_names() {
    let uid = |is, value| Condition::Uid { is, value };
    let gid = |is, value| Condition::Gid { is, value };
    assert_eq!(when("uid = 1000"), [uid(Comparison::Equal, 1000)]);
    assert_eq!(when("uid = \">= 1000\""), [uid(Comparison::GreaterOrEqual, 1000)]);
    assert_eq!(when("gid = [\"> 5\", \"!= 7\"]"), [gid(Comparison::Greater, 5), gid(Comparison::NotEqual, 7)]);
    assert_eq!(when("user = \"root\""), [uid(Comparison::Equal, 0)]);
    assert_eq!(when("user = \"!= root\", group = \"root\""), [uid(Comparison::NotEqual, 0), gid(Comparison::Equal, 0)]);
}

#[test]
fn modes_are_octal() {
    let mode = |is, value, mask| Condition::Mode { is, value, mask };
    assert_eq!(when("mode = \"0644\""), [mode(Comparison::Equal, 0o644, 0o7777)]);
    assert_eq!(when("mode = \">= 700\""), [mode(Comparison::GreaterOrEqual, 0o700, 0o7777)]);
    assert_eq!(when("mode = { bits = \"0111\", is = \"!= 0\" }"), [mode(Comparison::NotEqual, 0, 0o111)]);
}

#[test]
fn access_types_kinds_and_extensions_are_words() {
    let access = |is, value| Condition::Access { is, value };
    assert_eq!(when("access = \"!= writable\""), [access(Comparison::NotEqual, Access::Writable)]);
    let kind = |any_of, negated| Condition::Kind { any_of, negated };
    assert_eq!(when("type = \"symlink\""), [kind(vec![FileKind::Symlink], false)]);
    assert_eq!(
        when("type = [\"!= fifo\", \"!= char-device\"]"),
        [kind(vec![FileKind::Fifo, FileKind::CharDevice], true)]
    );
    let extension = |any_of: &[&str], negated| Condition::Extension { any_of: list(any_of), negated };
    assert_eq!(when("extension = [\".AVI\", \"mkv\"]"), [extension(&["avi", "mkv"], false)]);
    assert_eq!(when("extension = \"!= .tmp\""), [extension(&["tmp"], true)]);
}

#[test]
fn ages_links_space_and_states_are_conditions() {
    let day = Duration::from_secs(86_400);
    let age = |of, is, days| Condition::Age { of, is, value: day * days, hysteresis: Duration::ZERO };
    assert_eq!(
        when("atime = \"< 1d\", mtime = \"> 30d\", ctime = \">= 2w\", btime = \"> 1d\""),
        [
            age(TimeField::Atime, Comparison::Less, 1),
            age(TimeField::Mtime, Comparison::Greater, 30),
            age(TimeField::Ctime, Comparison::GreaterOrEqual, 14),
            age(TimeField::Btime, Comparison::Greater, 1),
        ]
    );
    assert_eq!(when("links = \"> 1\""), [Condition::Links { is: Comparison::Greater, value: 1 }]);
    let space = |branch: &str, of, is, value| {
        let branch = branch.to_owned();
        Condition::Space { branch, of, is, value, hysteresis: Amount::Bytes(ByteSize(0)) }
    };
    assert_eq!(
        when("free = { flash = \"< 10%\", disk = \"> 1GiB\" }, used = { disk = \"> 50%\" }"),
        [
            space("flash", SpaceField::Free, Comparison::Less, Amount::MilliPercent(10_000)),
            space("disk", SpaceField::Free, Comparison::Greater, Amount::Bytes(ByteSize(1 << 30))),
            space("disk", SpaceField::Used, Comparison::Greater, Amount::MilliPercent(50_000)),
        ]
    );
    let online = |branch: &str, value| Condition::Online { branch: branch.to_owned(), value };
    assert_eq!(when("online = \"flash\", offline = [\"disk\"]"), [online("flash", true), online("disk", false)]);
}

#[test]
fn conditions_may_be_a_table_of_their_own() {
    let text = with_default("[[rule]]\nto = \"flash\"\n[rule.when]\nlinks = 2\n[rule.when.free]\nflash = \"< 1%\"\n");
    let RuleKindSpec::When { conditions, .. } = &read_text(&text).unwrap().spec.rules.rules[0].kind else {
        panic!("a metadata rule")
    };
    assert_eq!(conditions.len(), 2);
}

#[test]
fn a_band_goes_to_the_threshold_of_its_kind() {
    let hystereses = |inside: &str| -> (ByteSize, Duration, Amount) {
        let mut hystereses = (ByteSize(0), Duration::ZERO, Amount::Bytes(ByteSize(0)));
        for condition in when(inside) {
            match condition {
                Condition::Size { hysteresis, .. } => hystereses.0 = hysteresis,
                Condition::Age { hysteresis, .. } => hystereses.1 = hysteresis,
                Condition::Space { hysteresis, .. } => hystereses.2 = hysteresis,
                _ => {}
            }
        }
        hystereses
    };
    let none = Amount::Bytes(ByteSize(0));
    assert_eq!(hystereses("size = \"> 1M\", hysteresis = \"5m\""), (ByteSize(5 << 20), Duration::ZERO, none));
    assert_eq!(hystereses("atime = \"> 1d\", hysteresis = \"5m\""), (ByteSize(0), Duration::from_secs(300), none));
    assert_eq!(
        hystereses("size = \"> 1M\", atime = \"> 1d\", hysteresis = \"1h\""),
        (ByteSize(0), Duration::from_secs(3600), none)
    );
    assert_eq!(
        hystereses("size = \"> 1M\", free = { disk = \"< 5%\" }, hysteresis = \"2%\""),
        (ByteSize(0), Duration::ZERO, Amount::MilliPercent(2000))
    );
}

#[test]
fn an_empty_when_matches_every_file() {
    assert_eq!(when(""), []);
}

#[test]
fn a_rule_without_a_name_is_called_by_its_number() {
    let text = with_default("[[rule]]\nwhen = {}\nto = \"disk\"\n");
    assert_eq!(read_text(&text).unwrap().spec.rules.rules[0].name, "rule 1");
}

#[test]
fn an_unknown_key_comes_with_its_place_a_hint_and_the_valid_keys() {
    assert_eq!(
        error("mount = \"/pool\"\n[[branch]]\nname = \"a\"\n path = \"/a\"\n  minfree = \"5%\"\n"),
        "pool.toml:5:3: unknown key \"minfree\" (did you mean \"min_free\"?); valid keys: name, path, min_free, \
         headroom, read_only, create, max_files, hide, optional, require_mount, min_stay, passthrough, write_back, write_back_limit, \
         write_back_background, evict"
    );
    let old = error("mount = \"/pool\"\n[[branch]]\nname = \"a\"\npath = \"/a\"\nkeep_free = \"5%\"\n");
    assert_eq!(old, "pool.toml:5:1: the key \"keep_free\" is now called \"min_free\"; its values are the same");
    assert!(when_error("size = 5, band = 1").contains("is now called \"hysteresis\""));
    for key in ["paths", "glob", "folder"] {
        let reported = when_error(&format!("{key} = \"/films/**\""));
        assert!(reported.contains("not a condition of \"when\"; write path = \"/films/**\""), "{reported}");
    }
    assert!(
        when_error("sise = 5")
            .starts_with("unknown key \"sise\" (did you mean \"size\"?); valid keys: path, name, size, uid")
    );
    let below = error(&format!("{TWO}default = [\"disk\"]\n"));
    assert!(below.contains("\"default\" is a key of the pool: write it above"), "{below}");
    let below = error(&with_default("staging = {}\n"));
    assert!(below.contains("\"staging\" is a key of the pool: write it above"), "{below}");
    let below = error(&format!("{ONE}write_back = \"sweep\"\nwrite_back_background = 0\n"));
    assert!(below.contains("must be more than 0 bytes (leave it out for half of the limit)"), "{below}");
    for given in ["\"*.avi\"", "[\"*.avi\"]", "{ glob = \"*.avi\" }"] {
        let reported = error(&with_default(&format!("[[rule]]\nmatch = {given}\nto = \"flash\"\n")));
        assert!(reported.contains("{ glob = \"/**.avi\", to = [\"disk\"] }"), "{given}: {reported}");
    }
    assert!(error(&with_default("[rules]\n")).contains("unknown key \"rules\" (did you mean \"rule\"?)"));
    assert!(
        error(&with_default("[enforce]\nwindows = \"1\"\n"))
            .contains("(did you mean \"window\"?); valid keys: window, bandwidth")
    );
}

#[test]
fn an_unknown_branch_comes_with_its_place_a_hint_and_the_branches() {
    assert_eq!(
        error(&format!("default = [\"disk\", \"flsah\"]\n{TWO}")),
        "pool.toml:1:20: no branch or group is called \"flsah\" (did you mean \"flash\"?); there are: \"disk\", \"flash\""
    );
    assert_eq!(
        when_error("free = { flahs = \"< 10%\" }"),
        "no branch or group is called \"flahs\" (did you mean \"flash\"?); there are: \"disk\", \"flash\""
    );
    assert!(when_error("online = \"remote\"").starts_with("no branch or group is called \"remote\"; there are: "));
}

#[test]
fn all_mistakes_are_told_at_once_in_order() {
    let text = "mount = \"pool\"\nthreads = -1\n[[branch]]\nname = \"\"\npath = \"x\"\n";
    let errors = read_text(text).unwrap_err();
    let lines: Vec<_> = errors.reports().iter().map(|report| report.line).collect();
    assert_eq!(lines, [Some(1), Some(2), Some(4), Some(5)]);
}

#[test]
fn an_error_shows_the_line_with_a_mark() {
    let errors =
        read_text("mount = \"/pool\"\nthreads\t= 1000\n[[branch]]\nname = \"a\"\npath = \"/a\"\n").unwrap_err();
    assert_eq!(
        errors.to_string(),
        "pool.toml:2:11: threads must be 0 (one a core) to 256, not \"1000\"\n  |\n2 | threads = 1000\n  |           ^^^^"
    );
}

#[test]
fn columns_count_characters() {
    let text = "mount = \"/pool\"\n[[branch]]\nname = \"a\"\npath = \"/a\"\n# ä\n[[rule]]\nname = \"ü\"\nwhen = { \"ö\" = 1 }\n";
    assert!(error(text).starts_with("pool.toml:8:10: unknown key \"ö\""), "{}", error(text));
}

#[test]
fn text_that_is_not_utf_8_is_refused_at_its_place() {
    let errors = parse(Path::new("pool.toml"), b"mount = \"/pool\"\nx = \"\xff\"\n".to_vec()).unwrap_err();
    assert_eq!(errors.problems(), [&Problem::NotUtf8 { byte: 0xff }]);
    assert!(errors.to_string().starts_with("pool.toml:2:6: not UTF-8: the byte 0xff"), "{errors}");
}

#[test]
fn a_huge_file_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool.toml");
    std::fs::write(&path, FIGURE_8.to_owned() + &"#".repeat(MAX_BYTES as usize)).unwrap();
    assert_eq!(read(&path).unwrap_err().problems(), [&Problem::TooLarge { limit: MAX_BYTES }]);
}

#[test]
fn a_missing_file_and_a_directory_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let missing = read(&dir.path().join("no.toml")).unwrap_err();
    assert_eq!(missing.problems(), [&Problem::Missing { page: "docs/configuration.md" }]);
    assert!(missing.to_string().contains("no.toml: does not exist"), "{missing}");
    assert!(read(dir.path()).unwrap_err().to_string().contains("is a directory; name the configuration file"));
}

#[test]
fn a_name_with_escapes_does_not_reach_the_terminal_raw() {
    let text = "mount = \"/pool\"\n[[branch]]\nname = \"\\u001b[31m\"\npath = \"/a\"\n\"\\u001b[2J\" = 1\n";
    let shown = read_text(text).unwrap_err().to_string();
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
}

/// Every kind of mistake and what is said about it, in one file that a reviewer can read. Written anew with
/// UPDATE_GOLDEN=1.
#[test]
fn the_texts_of_all_errors_are_as_agreed() {
    let rule = |text: &str| with_default(&format!("[[rule]]\n{text}\n"));
    let when = |text: &str| rule(&format!("when = {{ {text} }}\nto = \"flash\""));
    let branch = |text: &str| format!("mount = \"/pool\"\n[[branch]]\n{text}\n");
    let top = |text: &str| format!("{text}\n{TWO}");
    let table = |text: &str| rule(&format!("match = [{text}]"));
    let group = |text: &str| with_default(&format!("[[group]]\n{text}\n"));
    let evict = |text: &str| with_default(&format!("[[branch]]\nname = \"last\"\npath = \"/last\"\nevict = {text}\n"));
    let cases = [
        String::new(),
        "mount = ".to_owned(),
        "mount = \"/pool\"\nmount = \"/pool\"".to_owned(),
        "mount = \"/pool\"".to_owned(),
        "mount = 5".to_owned(),
        branch("path = \"/a\"\n[[branch]]\npath = \"/b/a\""),
        branch("name = \"a\"\npath = \"a\""),
        branch("name = \"a\"\npath = \"/a/../b\""),
        branch("name = \"a/b\"\npath = \"/a\""),
        branch("name = \"a\"\npath = \"/a\"\nmin_free = \"lots\""),
        branch("name = \"a\"\npath = \"/a\"\nmin_free = \"101%\""),
        branch("name = \"a\"\npath = \"/a\"\nmin_free = 1.5"),
        branch("name = \"a\"\npath = \"/a\"\nmin_stay = \"soon\""),
        branch("name = \"a\"\npath = \"/a\"\nmax_files = 0"),
        branch("name = \"a\"\npath = \"/a\"\nread_only = \"yes\""),
        branch("name = \"a\"\npath = \"/a\"\n[[branch]]\nname = \"a\"\npath = \"/b\""),
        top("default = [\"disk\", \"default\"]"),
        TWO.replacen("/pool", "/", 1),
        top("default = []"),
        top("default = [\"disk\", \"disk\"]"),
        top("default = \"dsik\""),
        top("default = 1"),
        top("default = \"disk\"\non_branch_error = \"skp\""),
        top("default = \"disk\"\ncache_timeout = \"long\""),
        top("default = \"disk\"\nprobe_interval = \"0s\""),
        top("default = \"disk\"\nthreads = 257"),
        top("default = \"disk\"\ntransport = \"uring\""),
        with_default("[enforce]\nwindow = \"2-5\"\nbandwidth = \"0\""),
        with_default("[enforce]\nwindow = \"02:00-02:00\"\nbandwidth = \"fast\""),
        rule("name = \"x\""),
        rule("name = \"x\"\nwhen = {}"),
        rule("name = \"default\"\nwhen = {}\nto = \"disk\""),
        rule("name = \" x\"\nwhen = {}\nto = \"disk\""),
        rule("name = \"x\"\nwhen = {}\nto = \"disk\"\n[[rule]]\nname = \"x\"\nwhen = {}\nto = \"disk\""),
        rule("name = \"x\"\nwhen = {}\nto = []"),
        rule("name = \"x\"\nwhen = {}\nmatch = []"),
        rule("name = \"x\"\nmatch = []\nto = \"disk\"\noffline = \"fail\""),
        table("{ glob = \"/a/**\", to = \"disk\" }, { glob = \"/a/**\", to = \"flash\" }"),
        table("{ glob = \"/[a\", to = \"disk\" }, { glob = \"\", to = \"flash\" }"),
        table("{ glob = \"/a\" }"),
        table("{ golb = \"/a\", to = \"disk\" }"),
        table("{ glob = \"/a\", to = \"disk\" }")
            + "[[rule]]\nname = \"y\"\nmatch = [{ glob = \"/b\", to = \"disk\" }]",
        when("size = \"about 10\""),
        when("size = \">= \""),
        when("size = []"),
        when("size = true"),
        when("uid = \"dave\""),
        when("uid = -1"),
        when("user = \"no-such-user-here\""),
        when("user = \"> root\""),
        when("group = \"no-such-group-here\""),
        when("mode = 644"),
        when("mode = \"0888\""),
        when("mode = \"10000\""),
        when("mode = { bits = \"0111\", is = \"= 0200\" }"),
        when("mode = { bits = \"0\", is = \"0\" }"),
        when("mode = { bit = \"0111\" }"),
        when("access = \"readonly\""),
        when("access = \"< writable\""),
        when("type = \"directory\""),
        when("type = [\"file\", \"!= fifo\"]"),
        when("type = []"),
        when("extension = \"tar.gz\""),
        when("extension = \"> a\""),
        when("mtime = \"> 30\""),
        when("links = \"many\""),
        when("free = \"< 10%\""),
        when("free = { flash = \"< 110%\" }"),
        when("online = []"),
        when("hysteresis = \"1MiB\""),
        when("size = \"> 1\", hysteresis = \"1d\""),
        when("size = \"> 1\", mtime = \"> 1d\", hysteresis = \"5m\""),
        with_default("[staging]\nvolatile = false"),
        with_default("[staging]\nmax_age = \"unlimited\"\nmax_file = 0"),
        with_default("[staging]\nmax_age = \"0s\"\nsize = \"512KiB\""),
        with_default("[staging]\nsize = \"0\"\npath = \"memory\"\nage = 1"),
        with_default("[staging]\nsize = \"0\"\npath = \"memory\""),
        format!("{ONE}write_back = \"cscn\"\n"),
        format!("{ONE}write_back = \"clairvoyant\"\n"),
        format!("{ONE}write_back = \"cscan\"\nwrite_back_limit = \"4KiB\"\n"),
        format!("{ONE}write_back = \"cscan\"\nwrite_back_limit = \"4MiB\"\nwrite_back_background = \"4MiB\"\n"),
        format!("{ONE}write_back = \"cscan\"\nwrite_back_background = \"50%\"\n"),
        "mount = \"/pool\"\n[branch]\nname = \"a\"\npath = \"/a\"\n".to_owned(),
        rule("when = {}\nto = \"disk\"\nspill = false"),
        table("{ glob = \"/a\", to = \"disk\", spill = true }"),
        rule("when = {}\nto = \"disk\"\noffline = \"wait\""),
        rule("when = {}\nto = [\"flash\", \"rest\"]"),
        branch("name = \"any\"\npath = \"/a\""),
        branch("path = \"/no such folder/disk*\""),
        branch("name = \"a\"\npath = \"/no such folder/disk*\""),
        branch("path = \"/no*/disk*\""),
        branch("path = \"/no such folder/di[\""),
        branch("path = \"/\""),
        group("branches = \"disk\""),
        group("name = \"default\"\nbranches = \"disk\""),
        group("name = \"disk\"\nbranches = \"disk\""),
        group("name = \"g\"\nbranches = \"disk\"\n[[group]]\nname = \"g\"\nbranches = \"flash\""),
        group("name = \"g\"\nbranches = []"),
        group("name = \"g\"\nbranches = [\"disk\", \"falsh\"]"),
        group("name = \"g\"\nbranches = [\"flash\", \"hdd*\"]"),
        group("name = \"g\"\nbranches = [\"disk\", \"!flash\"]"),
        group("name = \"g\"\nbranches = [\"d[\"]"),
        group("name = \"g\"\nbranches = \"h\"\n[[group]]\nname = \"h\"\nbranches = [\"disk\", \"g\"]"),
        group("name = \"g\"\nbranches = \"*\"\nspread = \"most-fre\""),
        group("name = \"g\"\nbranches = \"*\"\nspread = [\"most-free\", \"same-path\"]"),
        group("name = \"g\"\nbranches = \"*\"\ntogether = \"/TV/\""),
        group("name = \"g\"\nbranches = \"*\"\ntogether = 0"),
        group("name = \"g\"\nbranches = \"*\"\ntogether = true"),
        evict("{ above = \"70%\", until = \"80%\" }"),
        evict("{ above = \"80%\", until = \"1GiB\" }"),
        evict("{ above = \"80%\" }"),
        evict("\"80%\""),
        evict("{ above = \"80%\", until = \"70%\", order = \"no-such\" }"),
        evict("{ above = \"80%\", until = \"70%\", to = [\"last\"] }"),
        evict("{ above = \"80%\", until = \"70%\", to = [\"any\"] }"),
        evict("{ above = \"80%\", until = \"70%\", only = { siz = 3 } }"),
        evict("{ above = \"80%\", until = \"70%\", window = \"25:00-26:00\" }"),
        evict("{ above = \"80%\", until = \"70%\" }\nread_only = true"),
    ];
    let mut said = String::new();
    for (number, text) in cases.iter().enumerate() {
        let errors = read_text(text).map(|config| config.spec).expect_err(text);
        writeln!(said, "--- {}\n{errors}", number + 1).unwrap();
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config/errors.golden");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&golden, &said).unwrap();
    }
    let agreed = std::fs::read_to_string(&golden).unwrap();
    for (said, agreed) in said.split("--- ").zip(agreed.split("--- ")) {
        assert_eq!(said, agreed);
    }
    assert_eq!(said.len(), agreed.len());
}

/// Pieces that mutated configurations are made of.
const PIECES: [&str; 30] = [
    "mount",
    "=",
    "\"",
    "/",
    "[[branch]]",
    "[[rule]]",
    "\n",
    "name",
    "path",
    "{",
    "}",
    "[",
    "]",
    ",",
    "size",
    "\">= 1MiB\"",
    "match",
    "glob",
    "\"/**{a,b}[c]*\"",
    "to",
    "when",
    "hysteresis",
    "\u{1b}",
    "\u{202e}ü",
    "99999999999999999999",
    "-1",
    "1.5",
    "true",
    "1979-05-27",
    ".",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_mutation_of_a_configuration_causes_a_panic(
        edits in proptest::collection::vec((0usize..2000, 0usize..40, 0usize..PIECES.len()), 1..6)
    ) {
        let mut text = with_default(FIGURE_8.split_once("[[rule]]").unwrap().1);
        text += "[[rule]]\nwhen = { size = [\"> 1\"], mode = { bits = \"0111\", is = \"0\" }, free = { disk = \"< 5%\" }, hysteresis = 1 }\nto = \"disk\"\n";
        for (at, length, piece) in edits {
            let mut start = at % (text.len() + 1);
            while !text.is_char_boundary(start) { start -= 1; }
            let mut end = (start + length).min(text.len());
            while !text.is_char_boundary(end) { end -= 1; }
            text.replace_range(start..end.max(start), PIECES[piece]);
        }
        if let Err(errors) = read_text(&text) {
            let shown = errors.to_string();
            prop_assert!(shown.starts_with("pool.toml:"), "{shown}");
            prop_assert!(!shown.contains('\u{1b}') && !shown.contains('\u{202e}'), "{shown:?}");
        }
    }

    #[test]
    fn no_bytes_cause_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Err(errors) = parse(Path::new("pool.toml"), bytes) {
            prop_assert!(!errors.reports().is_empty());
        }
    }
}

#[test]
fn a_fill_level_that_nothing_can_lower_is_found() {
    let idle = |default: &str, to: &str, rest: &str| {
        let text = format!(
            "mount = \"/pool\"\n{default}\n[[branch]]\nname = \"ssd\"\npath = \"/ssd\"\nevict = {{ above = \"80%\", until = \"70%\"{to} }}\n\
             [[branch]]\nname = \"hdd\"\npath = \"/hdd\"\n[[branch]]\nname = \"tape\"\npath = \"/tape\"\n{rest}"
        );
        let config = read_text(&text).unwrap_or_else(|error| panic!("{text}{error}"));
        let found = suspicious_rules::idle_evicts(&config);
        for finding in &found {
            assert!(text[finding.span.clone()].starts_with("{ above"), "{finding:?}");
        }
        found.len()
    };
    let films = "[[rule]]\nname = \"films\"\nwhen = { name = \"*.avi\" }\nto = [\"ssd\", \"hdd\"]\n";
    assert_eq!(idle("default = [\"ssd\"]", "", ""), 1, "the only list names the branch alone");
    assert_eq!(idle("default = [\"ssd\"]", "", films), 0);
    assert_eq!(idle("default = [\"ssd\", \"hdd\"]", "", ""), 0);
    assert_eq!(idle("", "", ""), 1, "all branches are equals, and nothing moves between equals");
    assert_eq!(idle("", ", to = [\"hdd\"]", ""), 0);
    assert_eq!(idle("default = [\"hdd\", \"ssd\"]", "", ""), 1, "nothing comes after the branch");
    assert_eq!(idle("default = [\"ssd\"]", ", to = [\"tape\"]", films), 1, "no list allows it");
    assert_eq!(idle("default = [\"ssd\", \"tape\"]", ", to = [\"tape\"]", films), 0);
}
