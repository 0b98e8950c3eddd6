//! The registry, its errors, and the page about it.

use super::script::policy;
use crate::writeback::{ParamKind, Params, WriteBack, policies};

fn error(spec: &str) -> String {
    WriteBack::parse(spec).map(|policy| policy.name()).expect_err("the spec is wrong").to_string()
}

#[test]
fn every_policy_is_made_with_its_defaults_and_with_its_limits() {
    for info in policies() {
        assert_eq!(policy(info.name).name(), info.name);
        for param in info.params {
            for value in [param.default, param.min, param.max] {
                if !(value.is_empty() && param.kind == ParamKind::Flag) {
                    let made = WriteBack::new(info.name, &Params::new().with(param.name, value));
                    assert!(made.is_ok(), "{}:{}={value}", info.name, param.name);
                }
            }
        }
    }
}

#[test]
fn names_are_there_once() {
    let mut names: Vec<_> = policies().iter().map(|info| info.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), policies().len());
}

#[test]
fn only_those_that_need_the_future_are_offline() {
    for info in policies() {
        assert_eq!(info.offline, policy(info.name).needs().ranks, "{}", info.name);
    }
}

#[test]
fn the_error_of_an_unknown_name_lists_the_nearest_and_all_names() {
    let text = error("zone_segmnt");
    assert!(
        text.starts_with("there is no policy \"zone_segmnt\" (did you mean \"zone_segment\"?); known: file, "),
        "{text}"
    );
    assert!(policies().iter().all(|info| text.contains(info.name)));
    assert!(error("x").starts_with("there is no policy \"x\"; known: file, "));
}

#[test]
fn the_error_of_an_unknown_parameter_lists_the_known_ones() {
    assert_eq!(error("zone_segment:beta=1"), "\"zone_segment\" has no parameter \"beta\"; it has: alpha, zone");
    assert_eq!(error("lrw:x=1"), "\"lrw\" has no parameter \"x\"; it has no parameters");
}

#[test]
fn the_error_of_a_bad_value_lists_the_allowed_ones() {
    let zone = |value| {
        format!(
            "\"zone\": zone={value} is not possible (give a size in whole pages of 4 KiB from 4KiB to 64GiB, for example 8MiB)"
        )
    };
    assert_eq!(error("zone:zone=big"), zone("big"));
    assert_eq!(error("zone:zone=0"), zone("0"));
    assert_eq!(error("zone:zone=1TiB"), zone("1TiB"));
    assert!(error("write_minimal:window=soon").contains("give a time from 1ms to 1d, for example 30s"));
    assert!(error("zone_segment:alpha=-1").contains("give a whole number from 0 to 1000000000, for example 50"));
}

#[test]
fn a_parameter_needs_a_name_and_a_value_and_only_one() {
    assert_eq!(error("zone:8MiB"), "\"zone\": \"8MiB\" is not a parameter (write zone:name=value,name=value)");
    assert_eq!(error("zone:zone=1MiB,zone=2MiB"), "\"zone\": parameter \"zone\" is given twice (leave one)");
}

#[test]
fn spaces_around_names_and_values_do_not_matter() {
    assert!(WriteBack::parse(" zone_segment : alpha = 5 , zone = 2 MiB ").is_ok());
}

#[test]
fn every_policy_and_parameter_is_in_the_documentation() {
    let page = include_str!("../../../../../docs/policies.md");
    for info in policies() {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{}` |", info.name)));
        let row = row.unwrap_or_else(|| panic!("docs/policies.md has no row for {}", info.name));
        for param in info.params {
            assert!(row.contains(&format!("`{}={}`", param.name, param.default)), "{}: {}", info.name, param.name);
        }
        assert_eq!(row.contains("(offline)"), info.offline, "{}", info.name);
    }
}
