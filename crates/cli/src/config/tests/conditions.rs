//! Conditions that are joined, and those on paths, attributes and inodes.

use super::*;
use umbrella_fs::spec::HeatSpec;
use umbrella_policy::heat::Opens;
use umbrella_policy::placement::spec::{PathPart, StagingMode, Treatment};

fn path(of: PathPart, any_of: &[&str], negated: bool) -> Condition {
    Condition::Path { of, any_of: list(any_of), negated }
}

fn size(is: Comparison, value: u64) -> Condition {
    Condition::Size { is, value: ByteSize(value), hysteresis: ByteSize(0) }
}

#[test]
fn paths_and_names_are_conditions_like_any_other() {
    assert_eq!(
        when("path = \"/downloads/**\", mtime = \"< 7d\""),
        [
            path(PathPart::Path, &["/downloads/**"], false),
            Condition::Age {
                of: TimeField::Mtime,
                is: Comparison::Less,
                value: Duration::from_secs(7 * 86_400),
                hysteresis: Duration::ZERO,
            },
        ]
    );
    assert_eq!(when("name = [\"*.part\", \"*.tmp\"]"), [path(PathPart::Name, &["*.part", "*.tmp"], false)]);
    assert_eq!(when("path = \"!= /films/**\""), [path(PathPart::Path, &["/films/**"], true)]);
}

#[test]
fn not_any_and_all_hold_tables_of_conditions() {
    let greater = || size(Comparison::Greater, 5);
    let avi = || path(PathPart::Name, &["*.avi"], false);
    assert_eq!(
        when("not = { size = \"> 5\", name = \"*.avi\" }"),
        [Condition::Not(Box::new(Condition::All(vec![avi(), greater()])))]
    );
    let each = || vec![Condition::All(vec![greater()]), Condition::All(vec![avi()])];
    assert_eq!(when("any = [{ size = \"> 5\" }, { name = \"*.avi\" }]"), [Condition::Any(each())]);
    assert_eq!(when("all = [{ size = \"> 5\" }, { name = \"*.avi\" }]"), [Condition::All(each())]);
}

#[test]
fn attributes_have_values_or_are_there() {
    let xattr = |any_of: Option<&[&str]>, negated| {
        [Condition::Xattr { name: "user.keep".to_owned(), any_of: any_of.map(list), negated }]
    };
    assert_eq!(when("xattr = { \"user.keep\" = \"ssd\" }"), xattr(Some(&["ssd"]), false));
    assert_eq!(when("xattr = { \"user.keep\" = [\"!= ssd\", \"!= a\"] }"), xattr(Some(&["ssd", "a"]), true));
    assert_eq!(when("xattr = { \"user.keep\" = true }"), xattr(None, false));
    assert_eq!(when("xattr = { \"user.keep\" = false }"), xattr(None, true));
}

#[test]
fn inodes_stand_beside_free_and_used() {
    let condition = Condition::Space {
        branch: "flash".to_owned(),
        of: SpaceField::Inodes,
        is: Comparison::Greater,
        value: Amount::MilliPercent(90_000),
        hysteresis: Amount::MilliPercent(5_000),
    };
    assert_eq!(when("inodes = { flash = \"> 90%\" }, hysteresis = \"5%\""), [condition]);
}

#[test]
fn heat_is_a_number_of_opens_and_so_is_its_hysteresis() {
    let heat = |value, hysteresis| Condition::Heat { is: Comparison::Greater, value, hysteresis };
    assert_eq!(when("heat = \"> 5\""), [heat(Opens(5_000_000), Opens(0))]);
    assert_eq!(when("heat = \"> 0.5\", hysteresis = 2"), [heat(Opens(500_000), Opens(2_000_000))]);
    let mixed = when("heat = \"> 5\", size = \"> 1GiB\", hysteresis = \"1MiB\"");
    assert!(matches!(mixed[0], Condition::Size { hysteresis: ByteSize(0x10_0000), .. }));
    assert_eq!(mixed[1], heat(Opens(5_000_000), Opens(0)));
    for bad in ["many", "-1", "1e3", "5 opens", "0.1234567"] {
        assert!(when_error(&format!("heat = \"> {bad}\"")).contains("a number of opens"), "{bad}");
    }
}

#[test]
fn the_heat_section_has_defaults_and_says_what_is_wrong() {
    let read = |keys: &str| read_text(&with_default(&format!("[heat]\n{keys}\n")));
    let heat = |keys: &str| read(keys).unwrap().spec.heat.unwrap();
    assert_eq!(read_text(&with_default("")).unwrap().spec.heat, None);
    assert_eq!(heat(""), HeatSpec::default());
    let all = heat("half_life = \"1d\"\nmax_move = \"2GiB/day\"\nneighbours = 0");
    let wanted = HeatSpec { half_life: Duration::from_secs(86_400), max_move: Some(ByteSize(2 << 30)), neighbours: 0 };
    assert_eq!(all, wanted);
    assert_eq!(heat("max_move = \"unlimited\"").max_move, None);
    for (bad, said) in [
        ("max_move = \"50GiB\"", "a size a day"),
        ("max_move = \"much/day\"", "max_move"),
        ("half_life = \"0s\"", "half_life"),
        ("neighbours = -1", "neighbours"),
        ("neighbors = 3", "did you mean \"neighbours\""),
    ] {
        let error = read(bad).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn a_rule_that_fetches_warm_files_and_lets_them_go_is_odd() {
    let found = |keys: &str, when: &str| {
        let text = format!(
            "mount = \"/pool\"\n[[branch]]\nname = \"flash\"\npath = \"/mnt/flash\"\n{keys}\n[[branch]]\nname = \"disk\"\npath = \"/mnt/disk\"\n\
             [[rule]]\nwhen = {{ {when} }}\nto = [\"flash\", \"disk\"]\n"
        );
        suspicious_rules::findings(&read_text(&text).unwrap()).len()
    };
    let evict = |order: &str| format!("evict = {{ above = \"80%\", until = \"70%\", order = \"{order}\" }}");
    assert_eq!(found("", "heat = \"> 5\""), 1, "without a hysteresis");
    assert_eq!(found("", "heat = \"> 5\", hysteresis = 2"), 0);
    assert_eq!(found("", "heat = \"> 1\", hysteresis = 1"), 1, "heat does not fall below 0");
    assert_eq!(found(&evict("oldest"), "heat = \"> 5\", hysteresis = 2"), 1);
    assert_eq!(found(&evict("coldest"), "heat = \"> 5\", hysteresis = 2"), 0);
    assert_eq!(found(&evict("oldest"), "heat = \"< 5\""), 0, "it fetches none");
}

#[test]
fn a_hysteresis_at_the_top_is_for_all_thresholds_inside() {
    let conditions = when("hysteresis = \"1MiB\", not = { any = [{ size = \"> 1GiB\" }, { uid = 5 }] }");
    let leaves = Condition::leaves(&conditions);
    assert!(matches!(leaves[0], Condition::Size { hysteresis, .. } if *hysteresis == ByteSize(1 << 20)));
}

fn nested(depth: usize) -> String {
    (0..depth).fold("size = \"> 5\"".to_owned(), |inner, _| format!("not = {{ {inner} }}"))
}

#[test]
fn conditions_stand_inside_each_other_eight_deep() {
    assert_eq!(when(&nested(8)).len(), 1);
    assert!(when_error(&nested(9)).starts_with("conditions are nested more than 8 deep"));
}

#[test]
fn a_condition_on_the_path_of_the_mount_or_of_a_directory_is_odd() {
    let found = |glob: &str| {
        let rule = format!("[[rule]]\nwhen = {{ not = {{ path = \"{glob}\" }} }}\nto = \"flash\"\n");
        suspicious_rules::findings(&read_text(&with_default(&rule)).unwrap()).len()
    };
    assert_eq!([found("/pool/films/**"), found("/films"), found("/films/**")], [1, 1, 0]);
}

#[test]
fn a_rule_may_say_only_how_its_files_are_treated() {
    let text = |keys: &str| with_default(&format!("[staging]\n[[rule]]\nwhen = {{ path = \"/secret/**\" }}\n{keys}\n"));
    let read = |keys: &str| read_text(&text(keys)).unwrap().spec.rules.rules.remove(0);
    let only = read("staging = \"never\"\npassthrough = false\nmin_stay = \"1d\"");
    assert_eq!(only.kind, RuleKindSpec::Treat { conditions: vec![path(PathPart::Path, &["/secret/**"], false)] });
    let min_stay = Some(Duration::from_secs(86_400));
    let treatment = Treatment { staging: Some(StagingMode::Never), passthrough: Some(false), min_stay };
    assert_eq!(only.treatment, treatment);
    let placed = read("to = \"flash\"\nstaging = \"always\"");
    assert!(matches!(placed.kind, RuleKindSpec::When { .. }));
    assert_eq!(placed.treatment, Treatment { staging: Some(StagingMode::Always), ..Treatment::default() });
}

/// As the texts of all errors, for conditions.
#[test]
fn the_texts_of_errors_in_conditions_are_as_agreed() {
    let cases = [
        "paths = \"/films/**\"",
        "not = { sise = 5 }",
        "any = [{ mtime = \"> 7d\" }, { flie = 1 }]",
        "not = {}",
        "any = []",
        "any = [{ uid = 5 }, {}]",
        "any = { uid = 5 }",
        "all = [5]",
        "not = [{ uid = 5 }]",
        "any = [{ size = \"> 5\", hysteresis = \"1\" }]",
        &nested(9),
        "path = \"/films[\"",
        "path = \"/films/\"",
        "path = [\"/a/**\", \"!= /b/**\"]",
        "path = []",
        "name = \"a/b\"",
        "name = \"**.avi\"",
        "xattr = { user.keep = \"ssd\" }",
        "xattr = { \"keep\" = \"ssd\" }",
        "xattr = { \"user.keep\" = 5 }",
        "xattr = { \"user.keep\" = [] }",
        "inodes = \"> 90%\"",
        "inodes = { flash = \"> 1000\" }",
        "inodes = { flahs = \"> 90%\" }",
        "inodes = { flash = \"> 90%\" }, hysteresis = \"1GiB\"",
    ];
    let mut said = String::new();
    let rules = [
        "when = {}\nstaging = \"sometimes\"",
        "when = {}\nmin_stay = \"soon\"",
        "when = { size = \"> 5\", hysteresis = \"1\" }\npassthrough = false",
        "match = [{ glob = \"/a\", to = \"disk\" }]\npassthrough = false",
    ];
    let whens = cases.iter().map(|text| format!("when = {{ {text} }}\nto = \"flash\""));
    for (number, text) in whens.chain(rules.map(str::to_owned)).enumerate() {
        let text = with_default(&format!("[[rule]]\n{text}\n"));
        let errors = read_text(&text).map(|config| config.spec).expect_err(&text);
        writeln!(said, "--- {}\n{errors}", number + 1).unwrap();
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config/conditions.golden");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&golden, &said).unwrap();
    }
    assert_eq!(said, std::fs::read_to_string(&golden).unwrap());
}
