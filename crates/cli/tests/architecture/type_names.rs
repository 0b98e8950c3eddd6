//! No two types of a crate have one name: a reader of a signature knows which type it means.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::modules::Modules;
use super::{folder, metadata};

/// Names that several modules define, with these modules.
fn defined_twice(modules: &Modules) -> BTreeMap<String, Vec<String>> {
    let several = modules.types().into_iter().filter(|(_, modules)| modules.len() > 1);
    several.map(|(name, modules)| (name, modules.into_iter().collect())).collect()
}

#[test]
fn no_two_types_of_a_crate_have_one_name() {
    let mut found = String::new();
    for package in &metadata().packages {
        let source = folder(package).join("src");
        let root = ["lib.rs", "main.rs"].map(|name| source.join(name)).into_iter().find(|root| root.exists());
        for (name, modules) in defined_twice(&Modules::read(&root.expect("a crate has a root"))) {
            writeln!(found, "    {}: {name} in {}", package.name, modules.join(", ")).unwrap();
        }
    }
    assert!(found.is_empty(), "name each type after what it is:\n{found}");
}

#[test]
fn the_scan_sees_each_kind_of_type() {
    let text = "mod a { struct S; enum E {} trait T {} type A = u8; union U { x: u8 } } \
         mod b { enum S {} struct E; type T = u8; trait A {} struct U; mod c { struct S; } }";
    let found = defined_twice(&Modules::parse(text));
    assert_eq!(found.keys().collect::<Vec<_>>(), ["A", "E", "S", "T", "U"]);
    assert_eq!(found["S"], ["a", "b", "b::c"]);
}

#[test]
fn tests_imports_and_types_within_functions_may_repeat_a_name() {
    let text = "mod a { pub struct S; fn f() { struct Visitor; } } \
         mod b { use crate::a::S; fn f() { struct Visitor; } #[cfg(test)] struct S; #[cfg(test)] mod tests { struct S; } }";
    assert!(defined_twice(&Modules::parse(text)).is_empty());
}
