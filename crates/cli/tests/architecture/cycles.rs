//! No two modules of a crate may use each other, directly or through others.

use std::fmt::Write as _;

use super::modules::{Modules, Ring};
use super::{folder, metadata};

fn rings_of(text: &str) -> Vec<Vec<String>> {
    Modules::parse(text).rings().into_iter().map(|ring| ring.modules.into_iter().collect()).collect()
}

#[test]
fn no_modules_of_a_crate_use_each_other() {
    let mut found = String::new();
    for package in &metadata().packages {
        let source = folder(package).join("src");
        let root = ["lib.rs", "main.rs"].map(|name| source.join(name)).into_iter().find(|root| root.exists());
        for Ring { modules, edges } in Modules::read(&root.expect("a crate has a root")).rings() {
            let modules: Vec<_> = modules.into_iter().collect();
            writeln!(found, "{}: {} use each other", package.name, modules.join(", ")).unwrap();
            for (from, to) in edges {
                writeln!(found, "    {from} -> {to}").unwrap();
            }
        }
    }
    assert!(found.is_empty(), "move what two modules both need into a module below them:\n{found}");
}

/// The rooms of the file system, lowest first: each may use those before it.
const ROOMS: &[&str] = &[
    "context",
    "branch::branches",
    "area",
    "write_back",
    "placement",
    "tree",
    "migrate",
    "staging",
    "io",
    "names",
    "admin",
    "pool",
    "control::server",
    "fuse",
    "mount",
];

/// Where a module is among the rooms.
fn rank(module: &str) -> Option<usize> {
    let is_in = |room: &str| module.strip_prefix(room).is_some_and(|below| below.is_empty() || below.starts_with("::"));
    ROOMS.iter().position(|room| is_in(room))
}

#[test]
fn no_room_of_the_file_system_uses_one_above_it() {
    let source = folder(super::package(&metadata(), "umbrella-fs")).join("src");
    let mut found = String::new();
    for (from, used) in Modules::read(&source.join("lib.rs")).edges() {
        for to in used.iter().filter(|to| rank(to) > rank(&from) && rank(&from).is_some()) {
            writeln!(found, "    {from} -> {to}").unwrap();
        }
    }
    assert!(found.is_empty(), "a room uses what is above it; give it an interface below it instead:\n{found}");
    for room in ROOMS {
        let file = room.replace("::", "/");
        let exists = [format!("{file}.rs"), format!("{file}/mod.rs")].iter().any(|file| source.join(file).exists());
        assert!(exists, "{room} is a module");
    }
}

#[test]
fn the_scan_sees_a_ring_through_imports_and_through_paths() {
    let direct = "mod a { use crate::b::B; pub struct A; } mod b { pub struct B; fn f() { crate::a::A; } }";
    assert_eq!(rings_of(direct), [["a", "b"]]);
    let within_macros =
        "mod a { pub fn f() { println!(\"{}\", crate::b::g()) } } mod b { pub fn g() { super::a::f() } }";
    assert_eq!(rings_of(within_macros), [["a", "b"]]);
    let aliased = "mod a { pub fn f() { super::b::g() } } mod b { use super::a as other; pub fn g() { other::f() } }";
    assert_eq!(rings_of(aliased), [["a", "b"]]);
}

#[test]
fn a_path_through_a_re_export_leads_to_the_module_that_defines_the_item() {
    let re_exported = "mod low { pub use self::deep::D; mod deep { pub struct D; fn f() { crate::high::h() } } } \
         mod high { use crate::low::D; pub fn h() { let _ = D; } }";
    assert_eq!(rings_of(re_exported), [["high", "low::deep"]]);
}

#[test]
fn children_tests_and_visibilities_make_no_ring() {
    let own_children = "mod a { mod child { use super::A; pub fn f() {} } pub struct A; fn g() { child::f() } }";
    assert!(rings_of(own_children).is_empty());
    let tests =
        "mod a { #[cfg(test)] mod tests { use crate::b::B; } pub struct A; } mod b { pub struct B(crate::a::A); }";
    assert!(rings_of(tests).is_empty());
    let visible = "mod a { mod low { pub(in super::super) struct L; } mod high { use super::low::L; } }";
    assert!(rings_of(visible).is_empty());
}
