//! What is odd about rules, and no error: branches that take nothing, comparisons that never hold, patterns that mean something else.

use umbrella_policy::placement::spec::{Comparison, Condition, DestinationSpec, RuleKindSpec};

use super::Config;
use super::disks::{Finding, Notice};

pub(super) fn findings(config: &Config) -> Vec<Finding> {
    let read_only = |name: &String| config.spec.branches.iter().any(|branch| branch.name == *name && branch.read_only);
    let only_read_only = |to: &DestinationSpec| !to.branches.is_empty() && to.branches.iter().all(read_only);
    let mut findings = Vec::new();
    let default = &config.spec.rules.default;
    let at_default = |notice| Finding { span: config.spans.default.clone(), notice };
    match default.first().filter(|name| read_only(name)) {
        Some(_) if default.iter().all(read_only) => findings.push(at_default(Notice::DefaultReadOnly)),
        Some(name) => findings.push(at_default(Notice::DefaultBeginsReadOnly { name: name.clone() })),
        None => {}
    }
    for (rule, span) in config.spec.rules.rules.iter().zip(&config.spans.rules) {
        let at_rule = |notice| Finding { span: span.clone(), notice };
        match &rule.kind {
            RuleKindSpec::When { conditions, to } => {
                if only_read_only(to) {
                    findings.push(at_rule(Notice::RuleReadOnly { rule: rule.name.clone() }));
                }
                let equality =
                    |condition: &Condition| matches!(condition, Condition::Age { is: Comparison::Equal, .. });
                if conditions.iter().any(equality) {
                    findings.push(at_rule(Notice::AgeEquality { rule: rule.name.clone() }));
                }
            }
            RuleKindSpec::Names(entries) => {
                for entry in entries {
                    let span = config.spans.globs.get(&entry.glob).unwrap_or(span);
                    let glob = || entry.glob.clone();
                    let inside = entry.glob.strip_prefix(&*config.spec.mount.to_string_lossy());
                    let with_mount = inside
                        .filter(|inside| inside.starts_with('/'))
                        .map(|inside| Notice::GlobWithMount { glob: glob(), meant: inside.to_owned() });
                    let read_only = only_read_only(&entry.to).then(|| Notice::RuleReadOnly { rule: glob() });
                    let directory = directory_meant(&entry.glob)
                        .filter(|meant| !entries.iter().any(|entry| entry.glob == *meant))
                        .map(|meant| Notice::GlobOfDirectory { glob: glob(), meant });
                    let notices = with_mount.or(directory).into_iter().chain(read_only);
                    findings.extend(notices.map(|notice| Finding { span: span.clone(), notice }));
                }
            }
        }
    }
    findings
}

/// For a pattern that looks like a directory's path, with no wildcard and no dot in its last part: what matches all that is below.
fn directory_meant(glob: &str) -> Option<String> {
    let name = glob.rsplit('/').next().unwrap_or(glob);
    let is_plain = glob.starts_with('/') && !glob.contains(['*', '?', '[', '{', '\\']) && !name.contains('.');
    is_plain.then(|| format!("{glob}/**"))
}
