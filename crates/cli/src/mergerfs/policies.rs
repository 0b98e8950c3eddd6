//! The policies of creating, and the spread of a group that does the same.

/// A policy of mergerfs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) name: &'static str,
    pub(crate) spread: &'static [&'static str],
    /// What differs.
    pub(crate) note: Option<&'static str>,
    /// Only releases after Debian 12's have it.
    pub(crate) is_newer: bool,
}

const fn equal(name: &'static str, spread: &'static [&'static str]) -> Policy {
    Policy { name, spread, note: None, is_newer: false }
}

const fn unequal(name: &'static str, spread: &'static [&'static str], note: &'static str) -> Policy {
    Policy { name, spread, note: Some(note), is_newer: false }
}

/// All of them.
pub(crate) const POLICIES: &[Policy] = &[
    unequal(
        "all",
        &["in-order"],
        "files are created as with ff; a directory or link is made on one branch, not on all",
    ),
    unequal(
        "epall",
        &["only-same-path", "in-order"],
        "files are created as with epff; a directory or link is made on one branch, not on all that have its parent",
    ),
    equal("epff", &["only-same-path", "in-order"]),
    equal("eplfs", &["only-same-path", "least-free"]),
    equal("eplus", &["only-same-path", "least-used"]),
    equal("epmfs", &["only-same-path", "most-free"]),
    equal("eppfrd", &["only-same-path", "random-by-free"]),
    equal("eprand", &["only-same-path", "random"]),
    equal("ff", &["in-order"]),
    equal("lfs", &["least-free"]),
    Policy { name: "lup", spread: &["most-free-share"], note: None, is_newer: true },
    equal("lus", &["least-used"]),
    equal("mfs", &["most-free"]),
    equal("msplfs", &["nearest-path", "least-free"]),
    equal("msplus", &["nearest-path", "least-used"]),
    equal("mspmfs", &["nearest-path", "most-free"]),
    equal("msppfrd", &["nearest-path", "random-by-free"]),
    unequal(
        "newest",
        &["only-same-path", "most-free"],
        "the age of a directory's copies has no effect; of the branches that have the directory, the one with most \
        free space is used",
    ),
    equal("pfrd", &["random-by-free"]),
    equal("rand", &["random"]),
];

/// The policy of this name.
pub(super) fn find(name: &str) -> Option<&'static Policy> {
    POLICIES.iter().find(|policy| policy.name == name)
}

/// What mergerfs up to 2.40 does when nothing is said.
pub(super) fn of_older_releases() -> &'static Policy {
    const EPMFS: Policy = equal("epmfs", &["only-same-path", "most-free"]);
    find("epmfs").unwrap_or(&EPMFS)
}
