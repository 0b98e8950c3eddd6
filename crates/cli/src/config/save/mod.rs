//! Writes into a configuration what `umbrella branch` changed; comments, order and layout of the rest stay.
//!
//! The text is changed and checked as any configuration is. A new file beside the old one gets it, with the old one's
//! mode, owner and extended attributes, and is made durable. Then it takes the old one's place in one step. If the
//! configuration is a link, the file that it leads to is replaced.

mod remove;

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, Value};
use umbrella_fs::spec::{BranchSpec, PoolSpec, WriteBackSpec};
use umbrella_policy::placement::spec::ANY;
use umbrella_policy::placement::{NamePattern, Rules};
use umbrella_units::ByteSize;

use crate::mounts;
use crate::text::{quoted, visible_path};

/// What becomes of a branch in the configuration.
#[derive(Debug)]
pub(crate) enum Change<'a> {
    /// It comes in.
    Add(Addition<'a>),
    /// It goes, also from lists that name others beside it.
    Remove { name: &'a str },
    /// It is elsewhere.
    Move { name: &'a str, path: &'a Path },
    /// Branches are written back so (none is the kernel's order), and a rule comes behind the others.
    Settings { write_back: &'a [(String, Option<WriteBackSpec>)], rule: Option<&'a str> },
}

impl Change<'_> {
    /// The option that asks for it.
    fn option(&self) -> &'static str {
        if matches!(self, Change::Settings { .. }) { "--apply" } else { "--save" }
    }
}

/// A branch that comes in.
#[derive(Debug)]
pub(crate) struct Addition<'a> {
    pub(crate) branch: &'a BranchSpec,
    /// The branch as TOML, from its heading on.
    pub(crate) lines: &'a str,
    /// Its name goes to the end of the default list.
    pub(crate) to_default: bool,
    /// Its name goes to the end of this group.
    pub(crate) to_group: Option<&'a str>,
}

/// A changed configuration that is not written yet.
#[derive(Debug)]
pub(crate) struct Prepared {
    file: PathBuf,
    /// The expected text of the file. Another text means that another program changed it.
    before: String,
    text: String,
    after: PoolSpec,
}

/// The configuration with the change, if it would be a right one.
pub(crate) fn prepare(config: &Path, change: &Change<'_>) -> anyhow::Result<Prepared> {
    mounts::refuse_unresponsive(config)?;
    let (shown, option) = (visible_path(config), change.option());
    let file = config.canonicalize().ok().filter(|file| file.is_file());
    let Some(file) = file else {
        bail!("cannot find the configuration file of the pool ({shown}): leave out {option}");
    };
    let before = super::read(&file)?;
    let before_text = before.source.text().to_owned();
    let changed = match change {
        Change::Add(addition) => added(&before_text, &before.spec, addition),
        Change::Remove { name } => remove::without(&before_text, name),
        Change::Move { name, path } => moved(&before_text, name, path),
        Change::Settings { write_back, rule } => written_back(&before_text, write_back)
            .map(|text| rule.iter().fold(text, |text, rule| format!("{}\n\n{rule}", text.trim_end()))),
    };
    let text = changed.with_context(|| format!("cannot change {shown}; leave out {option}"))?;
    let after = super::parse(&file, text.clone().into_bytes())
        .with_context(|| format!("{shown} would become invalid; change it by hand, and leave out {option}"))?
        .spec;
    Ok(Prepared { file, before: before_text, text, after })
}

/// The branches of a configuration.
fn branches(document: &mut DocumentMut) -> anyhow::Result<&mut ArrayOfTables> {
    let tables = document.get_mut("branch").and_then(Item::as_array_of_tables_mut);
    tables.context("its branches are not written as [[branch]]")
}

/// Whether a `[[branch]]` makes the branch of this name: by its name, else by the last part of its path.
fn is_of(table: &Table, name: &str) -> bool {
    let path = || Path::new(table.get("path").and_then(Item::as_str)?).file_name()?.to_str();
    table.get("name").and_then(Item::as_str).or_else(path) == Some(name)
}

/// A branch of a pattern has no lines of its own that could be changed.
fn refuse_pattern(tables: &ArrayOfTables, name: &str) -> anyhow::Result<()> {
    let matches = |table: &&Table| {
        let path = table.get("path").and_then(Item::as_str).filter(|_| table.get("name").is_none());
        let last = path.and_then(|path| path.rsplit('/').next()).filter(|last| NamePattern::is_one(last));
        last.is_some_and(|last| NamePattern::new(last).is_ok_and(|pattern| pattern.matches(name)))
    };
    match tables.iter().find(matches).and_then(|table| table.get("path")?.as_str()) {
        Some(path) if !tables.iter().any(|table| is_of(table, name)) => {
            bail!("branch {} comes from the pattern {}: change that by hand", quoted(name), quoted(path))
        }
        _ => Ok(()),
    }
}

fn moved(text: &str, name: &str, path: &Path) -> anyhow::Result<String> {
    let mut document: DocumentMut = text.parse()?;
    let tables = branches(&mut document)?;
    refuse_pattern(tables, name)?;
    let Some(table) = tables.iter_mut().find(|table| is_of(table, name)) else {
        bail!("it has no branch {}", quoted(name));
    };
    let path = path.to_str().with_context(|| format!("{} is not UTF-8", visible_path(path)))?;
    let Some(value) = table.get_mut("path").and_then(Item::as_value_mut) else { bail!("its branch has no path") };
    let decor = value.decor().clone();
    *value = Value::from(path);
    *value.decor_mut() = decor;
    Ok(document.to_string())
}

fn written_back(text: &str, branches_of: &[(String, Option<WriteBackSpec>)]) -> anyhow::Result<String> {
    let mut document: DocumentMut = text.parse()?;
    let tables = branches(&mut document)?;
    for (name, write_back) in branches_of {
        refuse_pattern(tables, name)?;
        let Some(table) = tables.iter_mut().find(|table| is_of(table, name)) else {
            bail!("it has no branch {}", quoted(name));
        };
        let size = |size: Option<ByteSize>| size.map(|size| format!("{}MiB", size.0 >> 20));
        let spec = write_back.as_ref();
        set(table, "write_back", Some(spec.map_or_else(|| "kernel".to_owned(), |spec| spec.policy.clone())));
        set(table, "write_back_limit", size(spec.and_then(|spec| spec.limit)));
        set(table, "write_back_background", size(spec.and_then(|spec| spec.background)));
    }
    Ok(document.to_string())
}

/// Sets a key, or takes it out; a comment behind it stays with it.
fn set(table: &mut Table, key: &str, value: Option<String>) {
    let Some(value) = value else {
        table.remove(key);
        return;
    };
    let mut value = Value::from(value);
    if let Some(old) = table.get(key).and_then(Item::as_value) {
        *value.decor_mut() = old.decor().clone();
    }
    table.insert(key, Item::Value(value));
}

fn added(text: &str, spec: &PoolSpec, addition: &Addition<'_>) -> anyhow::Result<String> {
    let (branch, name) = (addition.branch, &addition.branch.name);
    let mut document: DocumentMut = text.parse()?;
    match spec.branches.iter().find(|known| known.name == *name) {
        Some(known) if known.path == branch.path => {}
        Some(known) => bail!("it has another branch {} at {}", quoted(name), visible_path(&known.path)),
        None => {
            let tables = branches(&mut document)?;
            let mut new: DocumentMut = addition.lines.parse()?;
            let table = new.get_mut("branch").and_then(Item::as_array_of_tables_mut).and_then(|new| new.get_mut(0));
            let Some(mut table) = table.map(std::mem::take) else { bail!("the branch cannot be written") };
            // Where it was written says nothing of where it goes: behind the last branch.
            table.set_position(tables.iter().last().and_then(Table::position));
            table.decor_mut().set_prefix("\n");
            tables.push(table);
        }
    }
    let list = &spec.rules.default;
    // Without a list, and behind "any", every branch is on it.
    if addition.to_default && !list.is_empty() && !list.iter().any(|listed| listed == name || listed == ANY) {
        document.get_mut("default").into_iter().for_each(|item| add_name(item, name));
    }
    if let Some(group) = addition.to_group.filter(|group| !is_member(spec, group, name)) {
        let tables = document.get_mut("group").and_then(Item::as_array_of_tables_mut);
        let mut tables = tables.context("its groups are not written as [[group]]")?.iter_mut();
        let table = tables.find(|table| table.get("name").and_then(Item::as_str) == Some(group));
        let names = table.and_then(|table| table.get_mut("branches"));
        add_name(names.with_context(|| format!("it has no group {}", quoted(group)))?, name);
    }
    Ok(document.to_string())
}

/// Whether a branch would be a member of a group without being named there: a pattern may match it.
fn is_member(spec: &PoolSpec, group: &str, name: &str) -> bool {
    let known = spec.branches.iter().map(|branch| &branch.name).filter(|known| *known != name);
    let branches: Vec<String> = known.chain([&name.to_owned()]).cloned().collect();
    let ids = super::ids(branches.iter());
    let groups = Rules::compile_groups(&spec.rules.groups, &ids).unwrap_or_default();
    let new = ids.last().map(|(_, id)| id);
    groups.iter().any(|known| known.name == group && new.is_some_and(|new| known.members.contains(new)))
}

/// Adds a name to a list, which may be a single name.
fn add_name(item: &mut Item, name: &str) {
    if let Some(names) = item.as_array_mut() {
        return append(names, name);
    }
    let (decor, first) = match item.as_value() {
        Some(value) => (value.decor().clone(), value.as_str().map(str::to_owned)),
        None => Default::default(),
    };
    let mut names = Value::Array(first.iter().map(String::as_str).chain([name]).collect::<Array>());
    *names.decor_mut() = decor;
    *item = Item::Value(names);
}

/// Adds a name to a list. In one of several lines it gets its own, and comments stay behind what they stood behind.
fn append(names: &mut Array, name: &str) {
    let mut behind = names.trailing().as_str().unwrap_or_default().to_owned();
    let indent = names.iter_mut().last().and_then(|last| {
        let indent = last.decor().prefix()?.as_str()?.rsplit_once('\n')?.1.to_owned();
        // Without a comma behind it, a comment is the name's.
        let suffix = last.decor().suffix().and_then(|suffix| suffix.as_str()).unwrap_or_default().to_owned();
        last.decor_mut().set_suffix("");
        behind.insert_str(0, &suffix);
        Some(indent)
    });
    let Some(indent) = indent else { return names.push(name) };
    let (comment, end) = behind.rsplit_once('\n').unwrap_or(("", &behind));
    let mut value = Value::from(name);
    value.decor_mut().set_prefix(format!("{comment}\n{indent}"));
    names.push_formatted(value);
    names.set_trailing_comma(true);
    names.set_trailing(format!("\n{end}"));
}

impl Prepared {
    /// The file itself, also where a link leads to it.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// What a branch of it is.
    pub(crate) fn branch(&self, name: &str) -> Option<&BranchSpec> {
        self.after.branches.iter().find(|branch| branch.name == name)
    }

    /// The pool that it describes.
    pub(crate) fn spec(&self) -> &PoolSpec {
        &self.after
    }

    /// Takes the old one's place.
    pub(crate) fn write(self) -> anyhow::Result<()> {
        let new = beside(&self.file);
        let written = self.replace(&new).inspect_err(|_| drop(std::fs::remove_file(&new)));
        written.with_context(|| format!("writing {}", visible_path(&self.file)))
    }

    fn replace(&self, new: &Path) -> io::Result<()> {
        if std::fs::read(&self.file)? != self.before.as_bytes() {
            return Err(io::Error::other(
                "it was changed by someone else meanwhile; that change was kept, so run the \
                command again",
            ));
        }
        let old = File::open(&self.file)?;
        let data = old.metadata()?;
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(new)?;
        file.write_all(self.text.as_bytes())?;
        std::os::unix::fs::fchown(&file, Some(data.uid()), Some(data.gid()))?;
        copy_attributes(&old, &file)?;
        file.set_permissions(Permissions::from_mode(data.mode() & 0o7777))?;
        file.sync_all()?;
        std::fs::rename(new, &self.file)?;
        self.file.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    }
}

/// Labels and lists of access rights. What this file system does not keep, the old file had not.
fn copy_attributes(from: &File, to: &File) -> io::Result<()> {
    let mut names = vec![0; 64 << 10];
    let Ok(length) = rustix::fs::flistxattr(from.as_fd(), &mut names[..]) else { return Ok(()) };
    names.truncate(length);
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 64 << 10];
        let length = rustix::fs::fgetxattr(from.as_fd(), name, &mut value[..])?;
        value.truncate(length);
        rustix::fs::fsetxattr(to.as_fd(), name, &value, rustix::fs::XattrFlags::empty())?;
    }
    Ok(())
}

/// A hidden name in the same folder, of this process.
fn beside(file: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(file.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    file.with_file_name(name)
}

#[cfg(test)]
mod tests;
