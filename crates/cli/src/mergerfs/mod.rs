//! Translates a mount of mergerfs into a configuration: an fstab line, a command line, or its options.
//!
//! Pure: text in, text out. `input` takes the given text apart. `branches` reads the list of branches. `policies` has
//! the policies of creating and their spreads. `options` says for every other option how it is translated.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod branches;
mod input;
mod options;
mod policies;

#[cfg(test)]
mod tests;

use thiserror::Error;

use crate::config::outline::{BranchTable, Group, Key, Outline, branch_names, free_name};
use branches::{MergerfsBranch, Mode};
pub(crate) use input::unescape;
use input::{Input, Setting};
use options::OptionMapping;
use policies::Policy;

/// What a mount of mergerfs becomes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Translation {
    pub(crate) outline: Outline,
    /// Options that have no equal, or another effect here.
    pub(crate) missing: Vec<OptionNote>,
    /// What nothing was said of, and depends on the release.
    pub(crate) unsure: Vec<OptionNote>,
    /// Options that need nothing, since it is always so.
    pub(crate) needless: Vec<OptionNote>,
    /// Mount options that stay mount options.
    pub(crate) mount_options: Vec<String>,
}

/// An option and what is to be said of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OptionNote {
    pub(crate) option: String,
    pub(crate) text: String,
}

/// The text cannot be translated.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum MergerfsError {
    #[error("no branches given: give the fstab line, the command line, or the options with `branches=/mnt/a:/mnt/b`")]
    NoBranches,
    #[error("no mount point given: give the fstab line, or the mount point with --mount")]
    NoMount,
    #[error("{path} is not absolute: branches and mount points begin with \"/\"")]
    NotAbsolute { path: String },
    #[error("{kind} is not mergerfs: give the fstab line of a mergerfs mount")]
    OtherKind { kind: String },
    #[error("the options are in the file {file}: give its lines in place of `config={file}`")]
    InFile { file: String },
    #[error("{value:?} is not a size: mergerfs takes a number followed by K, M, G or T")]
    NoSize { value: String },
}

/// What mergerfs keeps free on each branch when nothing is said.
const MIN_FREE: &str = "4GiB";

/// Translates. `mount` goes before the mount point in the text.
pub(crate) fn translate(text: &str, mount: Option<&str>) -> Result<Translation, MergerfsError> {
    let input = Input::parse(text)?;
    let mount = mount.map(str::to_owned).or_else(|| input.mount.clone()).ok_or(MergerfsError::NoMount)?;
    let given = branches::parse(input.branches.as_deref().ok_or(MergerfsError::NoBranches)?)?;
    if given.is_empty() {
        return Err(MergerfsError::NoBranches);
    }
    if let Some(path) = given.iter().map(|branch| &branch.path).chain([&mount]).find(|path| !path.starts_with('/')) {
        return Err(MergerfsError::NotAbsolute { path: path.clone() });
    }
    let mut work = Converter {
        settings: Settings::default(),
        missing: Vec::new(),
        unsure: Vec::new(),
        needless: Vec::new(),
        kept: Vec::new(),
    };
    for setting in &input.settings {
        work.apply_setting(setting)?;
    }
    Ok(work.finish(mount, given))
}

/// What the options set.
#[derive(Debug, Default)]
struct Settings {
    policy: Option<&'static Policy>,
    min_free: Option<String>,
    /// The shorter of the times for which names and attributes are kept.
    cache_seconds: Option<u64>,
    require_mount: bool,
}

struct Converter {
    settings: Settings,
    missing: Vec<OptionNote>,
    unsure: Vec<OptionNote>,
    needless: Vec<OptionNote>,
    kept: Vec<String>,
}

impl Converter {
    fn apply_setting(&mut self, setting: &Setting) -> Result<(), MergerfsError> {
        let value = setting.value.as_deref().unwrap_or_default();
        match setting.key.as_str() {
            "category.create" | "func.create" => self.policy(setting, value),
            "minfreespace" => self.settings.min_free = Some(branches::size(value)?),
            "cache.attr" | "cache.entry" | "attr-timeout" | "entry-timeout" => self.cache(setting, value),
            "branches-mount-timeout" => {
                self.settings.require_mount = true;
                let text = "each branch must be a mount point (`require_mount`); let systemd wait for the disks with `RequiresMountsFor=`";
                self.needless.push(note(setting, text));
            }
            "config" => return Err(MergerfsError::InFile { file: value.to_owned() }),
            key => match options::map_option(key, value) {
                OptionMapping::Missing(text) => self.missing.push(note(setting, text)),
                OptionMapping::Needless(text) => self.needless.push(note(setting, text)),
                OptionMapping::Kept => self.kept.push(setting.written()),
                OptionMapping::Dropped => {}
            },
        }
        Ok(())
    }

    fn policy(&mut self, setting: &Setting, value: &str) {
        if let Some(policy) = policies::find(value) {
            self.settings.policy = Some(policy);
            self.missing.extend(policy.note.map(|text| note(setting, text)));
        } else {
            self.settings.policy = policies::find("mfs");
            let text = "unknown policy; the branch with most free space is used instead";
            self.missing.push(note(setting, text));
        }
    }

    fn cache(&mut self, setting: &Setting, value: &str) {
        match value.parse::<u64>() {
            Ok(seconds) => {
                let shortest = self.settings.cache_seconds.map_or(seconds, |known| known.min(seconds));
                self.settings.cache_seconds = Some(shortest);
            }
            Err(_) => self.missing.push(note(
                setting,
                "it is not a number of seconds; the kernel keeps names and attributes for an hour (`cache_timeout`)",
            )),
        }
    }

    fn finish(mut self, mount: String, given: Vec<MergerfsBranch>) -> Translation {
        let policy = self.settings.policy.unwrap_or_else(|| {
            let text = "mergerfs up to 2.40 uses epmfs by default, later versions pfrd; this writes epmfs. For pfrd: \
                spread = \"random-by-free\"";
            self.unsure.push(OptionNote { option: "category.create".to_owned(), text: text.to_owned() });
            policies::of_older_releases()
        });
        let paths: Vec<&str> = given.iter().map(|branch| branch.path.as_str()).collect();
        let names = branch_names(&paths);
        let named: Vec<(MergerfsBranch, String)> = given.into_iter().zip(names).collect();
        let groups = groups(&named, policy);
        let outline = Outline {
            about: self.about(),
            mount,
            default: groups.iter().map(|group| group.name.clone()).collect(),
            keys: self.pool_keys(),
            branches: named.into_iter().map(|(branch, name)| self.branch(branch, name)).collect(),
            groups,
            rules: Vec::new(),
        };
        Translation {
            outline,
            missing: self.missing,
            unsure: self.unsure,
            needless: self.needless,
            mount_options: self.kept,
        }
    }

    fn about(&self) -> Vec<String> {
        let mut about = vec!["Written by `umbrella from-mergerfs`.".to_owned()];
        for (heading, notes) in
            [("No equal:", &self.missing), ("Look at:", &self.unsure), ("Needs nothing:", &self.needless)]
        {
            if !notes.is_empty() {
                about.extend([String::new(), heading.to_owned()]);
                about.extend(notes.iter().map(|note| format!("  {}: {}", note.option, note.text)));
            }
        }
        about
    }

    fn pool_keys(&self) -> Vec<Key> {
        let Some(seconds) = self.settings.cache_seconds else { return Vec::new() };
        let why = "mergerfs: cache.attr, cache.entry. Without this key an hour, if nothing changes the branches behind the mount";
        vec![Key::text("cache_timeout", format!("{seconds}s")).with_comment(why)]
    }

    fn branch(&self, given: MergerfsBranch, name: String) -> BranchTable {
        let mut keys = Vec::new();
        let min_free = given.min_free.clone().or_else(|| self.settings.min_free.clone());
        if given.mode == Mode::ReadOnly {
            keys.push(Key::flag("read_only", true));
        } else {
            keys.push(Key::text("min_free", min_free.unwrap_or_else(|| MIN_FREE.to_owned())));
        }
        if given.mode == Mode::NoCreate {
            keys.push(Key::flag("create", false));
        }
        if self.settings.require_mount {
            keys.push(Key::flag("require_mount", true));
        }
        let name = (!given.is_pattern()).then_some(name);
        BranchTable { about: Vec::new(), name, path: given.path, keys }
    }
}

/// What the default list names: the branches that files may be changed on. Where all only read, these.
fn groups(named: &[(MergerfsBranch, String)], policy: &Policy) -> Vec<Group> {
    let written = named.iter().filter(|(branch, _)| branch.mode != Mode::ReadOnly);
    let written: Vec<String> = written.map(|(branch, name)| branch.member(name)).collect();
    let taken: Vec<String> = named.iter().map(|(branch, name)| branch.member(name)).collect();
    let group = |name: &str, about: String, branches: Vec<String>| Group {
        about: vec![about],
        name: free_name(name, &taken),
        branches,
        spread: policy.spread.to_vec(),
        more: Vec::new(),
    };
    if written.is_empty() {
        vec![group("pool", "mergerfs: RO".to_owned(), taken.clone())]
    } else {
        vec![group("pool", format!("mergerfs: category.create={}", policy.name), written)]
    }
}

fn note(setting: &Setting, text: &str) -> OptionNote {
    OptionNote { option: setting.written(), text: text.to_owned() }
}
