//! Rules of this project that the compiler does not check: which crate and module may use which, what `policy` may not
//! use, how long a file may be. Each rule is proven able to fail by a test of its scanner below.

mod cycles;
mod modules;
mod type_names;
mod words;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::{Metadata, MetadataCommand, Package};

/// Which crates of ours each crate may use. A new crate gets its row here.
const FLOORS: &[(&str, &[&str])] = &[
    ("umbrella-fuse", &[]),
    ("umbrella-units", &[]),
    ("umbrella-policy", &["umbrella-units"]),
    ("umbrella-model", &["umbrella-units"]),
    ("umbrella-lab", &["umbrella-units", "umbrella-policy", "umbrella-model"]),
    ("umbrella-reproductions", &["umbrella-units", "umbrella-policy", "umbrella-model", "umbrella-lab"]),
    ("umbrella-lab-python", &["umbrella-lab"]),
    ("umbrella-block", &["umbrella-fuse", "umbrella-units", "umbrella-policy", "umbrella-model"]),
    ("umbrella-writeback", &["umbrella-units", "umbrella-policy"]),
    ("umbrella-fs", &["umbrella-fuse", "umbrella-units", "umbrella-policy", "umbrella-writeback"]),
    (
        "umbrella",
        &[
            "umbrella-units",
            "umbrella-policy",
            "umbrella-model",
            "umbrella-lab",
            "umbrella-reproductions",
            "umbrella-block",
            "umbrella-writeback",
            "umbrella-fs",
        ],
    ),
];

/// What would let a decision see the world, or the same input decide twice.
const FORBIDDEN_TO_POLICY: &[(&str, &str)] = &[
    ("std::fs", "it reads files"),
    ("std::net", "it speaks to others"),
    ("std::process", "it starts processes"),
    ("std::thread", "it starts threads"),
    ("std::env", "it depends on where it runs"),
    ("Instant", "it asks a clock; time comes in as an argument"),
    ("SystemTime", "it asks a clock; time comes in as an argument"),
    ("HashMap", "its order is random; use FxHashMap or BTreeMap"),
    ("HashSet", "its order is random; use FxHashSet or BTreeSet"),
    ("RandomState", "it is random"),
];

/// Crates that only the floors above may use: they reach the system, or hide which error happened.
const FORBIDDEN_DEPENDENCIES: &[(&str, &[&str])] = &[
    ("umbrella-fuse", &["nix", "rand", "anyhow", "clap", "toml", "indicatif", "comfy-table"]),
    ("umbrella-units", &["libc", "nix", "rustix", "rand", "anyhow", "tracing"]),
    ("umbrella-policy", &["libc", "nix", "rustix", "rand", "anyhow", "tracing", "parking_lot"]),
    ("umbrella-model", &["libc", "nix", "rustix", "rand", "anyhow", "tracing", "parking_lot"]),
    ("umbrella-lab", &["libc", "nix", "rustix", "libbpf-rs", "anyhow", "clap", "indicatif", "comfy-table"]),
    // Its frozen list of claims is TOML, compiled in.
    ("umbrella-reproductions", &["libc", "nix", "rustix", "libbpf-rs", "anyhow", "clap", "indicatif", "comfy-table"]),
    ("umbrella-block", &["libbpf-rs", "anyhow", "clap", "toml", "indicatif", "comfy-table"]),
    ("umbrella-writeback", &["anyhow", "clap", "toml", "indicatif", "comfy-table"]),
    ("umbrella-fs", &["libbpf-rs", "anyhow", "clap", "toml", "indicatif", "comfy-table"]),
];

const LONGEST_FILE: usize = 700;

fn metadata() -> Metadata {
    MetadataCommand::new()
        .manifest_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo describes the workspace")
}

fn package<'a>(metadata: &'a Metadata, name: &str) -> &'a Package {
    metadata
        .packages
        .iter()
        .find(|package| package.name.as_str() == name)
        .unwrap_or_else(|| panic!("the workspace has no crate {name}"))
}

fn folder(package: &Package) -> PathBuf {
    package.manifest_path.parent().expect("a manifest lies in a folder").as_std_path().to_owned()
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// `tests.rs` beside a module, or anything in a folder `tests`.
fn is_test_file(path: &Path, below: &Path) -> bool {
    let inside = path.strip_prefix(below).unwrap_or(path);
    path.file_stem().is_some_and(|stem| stem == "tests") || inside.iter().any(|part| part == "tests")
}

/// The file up to its `#[cfg(test)] mod ... {`.
fn code_lines(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    let test_module = lines.iter().enumerate().position(|(number, line)| {
        let module = lines[number + 1..].iter().find(|next| !next.starts_with("#["));
        line.trim() == "#[cfg(test)]" && module.is_some_and(|next| next.contains("mod ") && next.ends_with('{'))
    });
    lines[..test_module.unwrap_or(lines.len())].to_vec()
}

/// Words and the marks that make up paths, comments left out.
fn tokens(lines: &[&str]) -> Vec<String> {
    let mut tokens = Vec::new();
    for line in lines {
        let code = line.split("//").next().unwrap_or_default().replace("::", " :: ");
        let mut word = String::new();
        for letter in code.chars().chain([' ']) {
            if letter.is_alphanumeric() || letter == '_' {
                word.push(letter);
                continue;
            }
            if !word.is_empty() {
                tokens.push(std::mem::take(&mut word));
            }
            if matches!(letter, '{' | '}' | ',') || (letter == ':' && tokens.last().is_none_or(|last| last != ":")) {
                tokens.push(letter.to_string());
            }
        }
    }
    tokens
}

/// The modules of `std` that the code names, also inside `use std::{...}`.
fn std_modules(tokens: &[String]) -> Vec<&str> {
    let mut modules = Vec::new();
    for (place, token) in tokens.iter().enumerate() {
        if token != "std" || tokens.get(place + 1).is_none_or(|next| next != ":") {
            continue;
        }
        let rest = &tokens[place + 2..];
        if rest.first().is_none_or(|first| first != "{") {
            modules.extend(rest.first().map(String::as_str));
            continue;
        }
        let (mut depth, mut starts) = (0, false);
        for token in rest {
            match token.as_str() {
                "{" => (depth, starts) = (depth + 1, depth == 0),
                "}" if depth == 1 => break,
                "}" => depth -= 1,
                "," => starts = depth == 1,
                ":" => {}
                name if starts => {
                    modules.push(name);
                    starts = false;
                }
                _ => {}
            }
        }
    }
    modules
}

/// What of [`FORBIDDEN_TO_POLICY`] the code uses.
fn forbidden_uses(text: &str) -> Vec<&'static str> {
    let tokens = tokens(&code_lines(text));
    let modules = std_modules(&tokens);
    FORBIDDEN_TO_POLICY
        .iter()
        .filter(|(name, _)| match name.strip_prefix("std::") {
            Some(module) => modules.contains(&module),
            None => tokens.iter().any(|token| token == name),
        })
        .map(|(name, _)| *name)
        .collect()
}

fn reason(name: &str) -> &'static str {
    FORBIDDEN_TO_POLICY.iter().find(|(forbidden, _)| *forbidden == name).map_or("", |(_, reason)| reason)
}

#[test]
fn crates_stand_only_on_the_floors_below_them() {
    let metadata = metadata();
    let floors: BTreeMap<&str, &[&str]> = FLOORS.iter().copied().collect();
    for package in &metadata.packages {
        let name = package.name.as_str();
        let allowed = floors.get(name).unwrap_or_else(|| panic!("{name} has no row in FLOORS"));
        for dependency in &package.dependencies {
            let ours = floors.contains_key(dependency.name.as_str());
            assert!(
                !ours || allowed.contains(&dependency.name.as_str()),
                "{name} must not stand on {}",
                dependency.name
            );
        }
    }
}

#[test]
fn lower_floors_do_not_reach_the_system_or_hide_errors() {
    let metadata = metadata();
    for (name, forbidden) in FORBIDDEN_DEPENDENCIES {
        for dependency in &package(&metadata, name).dependencies {
            let normal = dependency.kind == cargo_metadata::DependencyKind::Normal;
            assert!(
                !normal || !forbidden.contains(&dependency.name.as_str()),
                "{name} must not depend on {}",
                dependency.name
            );
        }
    }
}

#[test]
fn every_crate_uses_the_lints_of_the_workspace() {
    for package in &metadata().packages {
        let manifest = fs::read_to_string(&package.manifest_path).expect("the manifest can be read");
        let manifest: toml::Table = manifest.parse().expect("the manifest is TOML");
        let inherits = manifest.get("lints").and_then(|lints| lints.get("workspace")).and_then(toml::Value::as_bool);
        assert_eq!(inherits, Some(true), "{} needs `[lints] workspace = true`", package.manifest_path);
    }
}

#[test]
fn no_file_is_longer_than_a_reader_can_hold() {
    let mut too_long = Vec::new();
    for package in &metadata().packages {
        let root = folder(package);
        for path in rust_files(&root) {
            if is_test_file(&path, &root) {
                continue;
            }
            let text = fs::read_to_string(&path).expect("the source can be read");
            let lines = code_lines(&text).len();
            if lines > LONGEST_FILE {
                too_long.push(format!("{} ({lines} lines)", path.display()));
            }
        }
    }
    assert!(
        too_long.is_empty(),
        "split these, {LONGEST_FILE} lines without tests are the limit:\n{}",
        too_long.join("\n")
    );
}

#[test]
fn decisions_know_no_files_no_clock_no_threads_and_no_chance() {
    let metadata = metadata();
    let mut found = Vec::new();
    for name in ["umbrella-policy", "umbrella-model"] {
        let source = folder(package(&metadata, name)).join("src");
        let files = rust_files(&source);
        assert!(!files.is_empty(), "{} has no sources", source.display());
        for path in files.iter().filter(|path| !is_test_file(path, &source)) {
            let text = fs::read_to_string(path).expect("the source can be read");
            for name in forbidden_uses(&text) {
                found.push(format!("{}: {name}: {}", path.display(), reason(name)));
            }
        }
    }
    assert!(found.is_empty(), "policies decide and models behave, and do nothing else:\n{}", found.join("\n"));
}

#[test]
fn the_licences_of_all_that_is_linked_in_can_be_handed_on() {
    let root = metadata().workspace_root;
    let output = std::process::Command::new(root.join("scripts/notices.sh")).output().expect("the script runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    for carrier in ["\nlibbpf-sys ", "\nzerocopy ", "\nzstd-sys "] {
        assert!(text.contains(carrier), "{carrier:?} is missing");
    }
    assert!(text.contains("Redistributions in binary form must reproduce the above"), "the BSD licences are there");
}

#[test]
fn the_facade_of_the_file_system_stays_small() {
    let facade = folder(package(&metadata(), "umbrella-fs")).join("src/pool.rs");
    let text = fs::read_to_string(facade).expect("the source can be read");
    let is_visible = |line: &&str| line.starts_with("    pub fn ") || line.starts_with("    pub(crate) fn ");
    let methods = text.lines().filter(is_visible).count();
    assert!((30..=60).contains(&methods), "Pool has {methods} visible methods");
}

#[test]
fn comments_are_at_most_120_columns_wide() {
    let mut wide = Vec::new();
    for package in metadata().workspace_packages() {
        for path in rust_files(&folder(package)) {
            let text = fs::read_to_string(&path).expect("the source can be read");
            let mut is_block = false;
            let mut is_wide = |line: &str| {
                let comment = line.trim_start().strip_prefix("//").map(|text| text.trim_start_matches(['/', '!', ' ']));
                is_block ^= comment.is_some_and(|text| text.starts_with("```"));
                // The rows of a table and what is laid out in a block cannot be wrapped.
                line.chars().count() > 120 && !is_block && comment.is_some_and(|text| !text.starts_with('|'))
            };
            let lines = text.lines().enumerate().filter(|(_, line)| is_wide(line));
            wide.extend(lines.map(|(number, _)| format!("{}:{}", path.display(), number + 1)));
        }
    }
    assert!(wide.is_empty(), "wrap these comments:\n{}", wide.join("\n"));
}

#[test]
fn a_module_with_files_of_its_own_is_the_mod_file_of_their_folder() {
    let mut beside = Vec::new();
    for package in metadata().workspace_packages() {
        let files = rust_files(&folder(package));
        assert!(files.len() > 2, "{} has sources", package.name);
        let folders: Vec<_> = files.iter().filter_map(|path| path.parent()).collect();
        beside.extend(files.iter().filter(|path| folders.contains(&path.with_extension("").as_path())).cloned());
    }
    assert!(beside.is_empty(), "move each foo.rs beside a folder foo/ to foo/mod.rs (a test: main.rs): {beside:?}");
}

#[test]
fn one_place_knows_fuse() {
    let source = folder(package(&metadata(), "umbrella-fs")).join("src");
    let knows: Vec<_> = rust_files(&source)
        .into_iter()
        .filter(|path| {
            let text = fs::read_to_string(path).expect("the source can be read");
            tokens(&text.lines().collect::<Vec<_>>()).iter().any(|token| token == "umbrella_fuse")
        })
        .filter(|path| !path.strip_prefix(&source).unwrap_or(path).starts_with("fuse"))
        .collect();
    assert!(knows.is_empty(), "only the folder fuse/ may name the crate umbrella_fuse: {knows:?}");
}

/// Whether the code names a lock without a rank.
fn has_plain_lock(text: &str) -> bool {
    let plain = |token: &String| matches!(token.as_str(), "Mutex" | "RwLock" | "parking_lot");
    tokens(&code_lines(text)).iter().any(plain)
}

#[test]
fn every_lock_of_the_file_system_has_a_rank() {
    let source = folder(package(&metadata(), "umbrella-fs")).join("src");
    let locks = source.join("ground/locks");
    assert!(locks.is_dir(), "{} has the ranks", locks.display());
    let plain: Vec<_> = rust_files(&source)
        .into_iter()
        .filter(|path| !path.starts_with(&locks) && !is_test_file(path, &source))
        .filter(|path| has_plain_lock(&fs::read_to_string(path).expect("the source can be read")))
        .collect();
    assert!(plain.is_empty(), "use RankedMutex, RankedRwLock or LeafMutex of ground/locks: {plain:?}");
}

#[test]
fn the_scan_sees_a_plain_lock() {
    assert!(has_plain_lock("struct S { queue: Mutex<u8> }"));
    assert!(has_plain_lock("use std::sync::{Arc, RwLock};"));
    assert!(has_plain_lock("fn f() { parking_lot::Condvar::new(); }"));
    assert!(!has_plain_lock("// a Mutex\nstruct S { queue: RankedMutex<rank::MoverQueue, u8> }"));
}

#[test]
fn the_scan_sees_a_file_behind_a_path_and_behind_a_grouped_import() {
    assert_eq!(forbidden_uses("let text = std::fs::read(path);"), ["std::fs"]);
    assert_eq!(forbidden_uses("use std::{cmp::Ordering, fs::File, io};"), ["std::fs"]);
    assert_eq!(forbidden_uses("use std::{\n    collections::{BTreeMap, btree_map},\n    thread,\n};"), ["std::thread"]);
}

#[test]
fn the_scan_sees_clocks_and_random_maps() {
    assert_eq!(forbidden_uses("fn late(now: std::time::Instant) {}"), ["Instant"]);
    assert_eq!(forbidden_uses("use std::time::{Duration, SystemTime};"), ["SystemTime"]);
    assert_eq!(forbidden_uses("use std::collections::HashMap;"), ["HashMap"]);
}

#[test]
fn the_scan_lets_comments_tests_and_other_words_pass() {
    assert!(forbidden_uses("// std::fs and Instant are not for us\nuse rustc_hash::FxHashMap;").is_empty());
    assert!(forbidden_uses("use std::{fmt, ops::Range};\nfn fs(thread: u32) {}").is_empty());
    assert!(forbidden_uses("fn f() {}\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}").is_empty());
}

#[test]
fn only_a_test_module_ends_the_count_of_lines() {
    assert_eq!(code_lines("#[cfg(test)]\nmod tests;\nfn f() {}").len(), 3);
    assert_eq!(code_lines("fn f() {}\n#[cfg(test)]\nfn helper() {}\nfn g() {}").len(), 4);
    assert_eq!(code_lines("fn f() {}\n#[cfg(test)]\n#[allow(dead_code)]\nmod tests {\n    fn g() {}\n}").len(), 1);
}
