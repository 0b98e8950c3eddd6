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
            writeln!(found, "{} ({} modules): {modules:?}", package.name, modules.len()).unwrap();
            for (from, to) in edges {
                writeln!(found, "    {from} -> {to}").unwrap();
            }
        }
    }
    assert!(found.is_empty(), "{found}");
}

#[test]
fn the_scan_sees_a_ring_through_imports_and_through_paths() {
    let direct = "mod a { use crate::b::B; pub struct A; } mod b { pub struct B; fn f() { crate::a::A; } }";
    assert_eq!(rings_of(direct), [["a", "b"]]);
    let aliased = "mod a { pub fn f() { super::b::g() } } mod b { use super::a as other; pub fn g() { other::f() } }";
    assert_eq!(rings_of(aliased), [["a", "b"]]);
}
