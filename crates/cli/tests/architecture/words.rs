//! What the texts of a library may say: it knows no commands. The program adds them (`crates/cli/src/advice`).

use std::fs;

use proc_macro2::{TokenStream, TokenTree};

use super::{code_lines, folder, is_test_file, metadata, package, rust_files};

/// Crates whose texts reach people through the program. `umbrella-lab` and `umbrella-reproductions` are none of them:
/// their results state the command that repeats them.
const WITHOUT_COMMANDS: &[&str] = &[
    "umbrella-fuse",
    "umbrella-units",
    "umbrella-policy",
    "umbrella-model",
    "umbrella-block",
    "umbrella-writeback",
    "umbrella-fs",
];

/// All literals, also in the arguments of macros and attributes; documentation is none.
fn literals(code: TokenStream, found: &mut Vec<String>) {
    for tree in code {
        match tree {
            TokenTree::Group(group) => {
                let is_doc = matches!(group.stream().into_iter().next(), Some(TokenTree::Ident(name)) if name == "doc");
                if !is_doc {
                    literals(group.stream(), found);
                }
            }
            TokenTree::Literal(literal) => found.push(literal.to_string()),
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}

/// Whether the text continues in small letters behind one of the places where `mark` stands as a word.
fn goes_on_after(text: &str, mark: &str) -> bool {
    text.match_indices(mark).any(|(at, _)| {
        let stands_alone =
            text[..at].chars().next_back().is_none_or(|before| !before.is_alphanumeric() && !"-.".contains(before));
        stands_alone && text[at + mark.len()..].starts_with(|next: char| next.is_ascii_lowercase())
    })
}

/// Literals that name a command of the program or a flag.
fn commands(text: &str) -> Vec<String> {
    let code: TokenStream = code_lines(text).join("\n").parse().expect("the source is Rust");
    let mut found = Vec::new();
    literals(code, &mut found);
    found.retain(|literal| goes_on_after(literal, "umbrella ") || goes_on_after(literal, "--"));
    found
}

#[test]
fn a_library_names_no_command_and_no_flag() {
    let metadata = metadata();
    let mut found = Vec::new();
    for name in WITHOUT_COMMANDS {
        let source = folder(package(&metadata, name)).join("src");
        for path in rust_files(&source).iter().filter(|path| !is_test_file(path, &source)) {
            let text = fs::read_to_string(path).expect("the source can be read");
            found.extend(commands(&text).into_iter().map(|literal| format!("{}: {literal}", path.display())));
        }
    }
    assert!(
        found.is_empty(),
        "say what is wrong, and let the program's advice name the command:\n{}",
        found.join("\n")
    );
}

#[test]
fn the_scan_sees_commands_in_macros_and_attributes() {
    assert_eq!(commands("fn f() { warn!(%error, \"see `umbrella status`\"); }").len(), 1);
    assert_eq!(commands("enum E { #[error(\"gone (add --force)\")] Gone }").len(), 1);
    assert_eq!(commands("const C: &str = r\"`umbrella enforce` moves it\";").len(), 1);
}

#[test]
fn the_scan_lets_documentation_tests_and_other_words_pass() {
    assert!(commands("/// `umbrella status` shows it, with --json too.\nfn f() {}").is_empty());
    assert!(commands("const C: [&str; 3] = [\"/etc/umbrella\", \"a -- b\", \"Umbrella's own\"];").is_empty());
    assert!(commands("fn f() {}\n#[cfg(test)]\nmod tests {\n    const C: &str = \"umbrella status\";\n}").is_empty());
}
