//! What a survey of branches found, for people.

use super::{acl_difference, align_right, lines, new_table};
use crate::advice::command;
use crate::survey::{BranchTotals, Content, Copied, Finding, Totals};
use crate::text::{count, visible};

/// One finding, in a line.
pub(crate) fn finding(finding: &Finding) -> String {
    match finding {
        Finding::File { place, content, copies } => {
            let what = match content {
                Content::Same => "same",
                Content::Different => "different",
                Content::SameSize => "same size",
                Content::Unknown => "unreadable",
            };
            let copies: Vec<String> = copies.iter().map(copy).collect();
            line(what, &visible(&place.path), &copies.join(", "))
        }
        Finding::Directory { place, copies } => {
            let rights: Vec<String> = copies
                .iter()
                .map(|copy| {
                    let acl = if copy.acl { " with an ACL" } else { "" };
                    format!("{} {:04o} of {}:{}{acl}", visible(&copy.branch), copy.mode, copy.uid, copy.gid)
                })
                .collect();
            line("directory", &visible(&place.path), &(rights.join(", ") + acl_difference(copies)))
        }
        Finding::Kinds { place, directory_on, other_on } => {
            let on = |branches: &[String]| visible(&branches.join(", "));
            let reported = format!("a directory on {}, a file on {}", on(directory_on), on(other_on));
            line("kinds", &visible(&place.path), &reported)
        }
        Finding::Case { names } => {
            let names: Vec<String> = names
                .iter()
                .map(|name| format!("{} ({})", visible(&name.place.path), visible(&name.branches.join(", "))))
                .collect();
            format!("{:<11} {}", "case", names.join(", "))
        }
        Finding::Unread(unread) => {
            let reported = format!("{}: {}", visible(&unread.branch), visible(&unread.error));
            line("unread", &visible(&unread.place.path), &reported)
        }
    }
}

fn line(what: &str, path: &str, reported: &str) -> String {
    format!("{what:<11} {path}  {reported}")
}

fn copy(copy: &Copied) -> String {
    format!("{} {}", visible(&copy.branch), copy.size)
}

/// A table of what each branch holds.
pub(crate) fn branches(totals: &Totals) -> String {
    let mut table = new_table(&["BRANCH", "FILES", "DIRECTORIES", "OTHERS", "FREE", "SIZE"]);
    for BranchTotals { branch, files, directories, others, total, free } in &totals.branches {
        let bytes =
            |bytes: &Option<umbrella_units::ByteSize>| bytes.map_or_else(|| "-".to_owned(), |it| it.to_string());
        let numbers = [files, directories, others].map(ToString::to_string);
        table.add_row([visible(branch)].into_iter().chain(numbers).chain([bytes(free), bytes(total)]));
    }
    (1..6).for_each(|column| align_right(&mut table, column));
    lines(&table).trim_end().to_owned()
}

/// What was found of each kind, what the pool makes of it, and what to do; `pool` is what the commands take.
pub(crate) fn advice(totals: &Totals, pool: &str) -> Vec<String> {
    let mut advice = Vec::new();
    let several = totals.files_on_several();
    if several > 0 {
        let kinds = [
            (totals.files_same, "with equal copies"),
            (totals.files_different, "with different copies"),
            (totals.files_same_size, "with copies of one size (--compare compares them)"),
            (totals.files_unknown, "with copies that cannot be read"),
        ];
        let kinds: Vec<String> =
            kinds.iter().filter(|(number, _)| *number > 0).map(|(number, kind)| format!("{number} {kind}")).collect();
        let (on, are) = if several == 1 { ("is", "its") } else { ("are", "their") };
        advice.push(format!(
            "{} {on} on several branches: {}. The pool shows {are} newest copy and leaves the others alone ({}). {} deletes equal copies",
            count(several, "file"),
            kinds.join(", "),
            totals.bytes_hidden,
            command(["repair", "--duplicates", pool])
        ));
    }
    if totals.directories_differing > 0 {
        advice.push(format!(
            "{} with different owners, modes or ACLs: the pool shows what all copies allow. Once it is mounted, `umbrella repair --equalise` gives each copy the rights that all of them allow; `--like {}` takes those of that branch. Look first with --dry-run",
            directories(totals.directories_differing),
            totals.branches.first().map_or_else(|| "BRANCH".to_owned(), |first| visible(&first.branch))
        ));
    }
    if totals.kinds_differing > 0 {
        advice.push(format!(
            "{}: the pool shows the directory. Rename one of the two on its branch",
            match totals.kinds_differing {
                1 => "1 name is a directory here and a file there".to_owned(),
                names => format!("{names} names are a directory here and a file there"),
            }
        ));
    }
    if totals.case_differing > 0 {
        let groups = match totals.case_differing {
            1 => "1 group of names differs".to_owned(),
            groups => format!("{groups} groups of names differ"),
        };
        advice.push(format!(
            "{groups} only in case: the pool shows each of the names. Programs on Windows and macOS see only one of \
            them; rename the others if they mean the same"
        ));
    }
    if totals.unread > 0 {
        advice
            .push(format!("{} could not be read: run this as root, and check the disk", count(totals.unread, "name")));
    }
    advice
}

fn directories(number: u64) -> String {
    if number == 1 { "1 directory".to_owned() } else { format!("{number} directories") }
}
