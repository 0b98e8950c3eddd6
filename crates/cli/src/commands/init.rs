//! `umbrella init`: a first configuration for the disks that are there.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::json;
use umbrella_lab::result::shell_words;
use umbrella_units::ByteSize;

use super::ask::{Asker, Consent};
use super::written;
use crate::config::outline::{BranchTable, Group, Key, Outline, Rule, branch_names, free_name};
use crate::storage::{self, Medium, Storage};
use crate::text::visible_path;
use crate::{mounts, output};

/// Write a first configuration for these directories, or for all mounted disks.
///
/// Looks at each directory, tells flash from rotating disks, writes a configuration with comments, and checks it. It
/// changes no disk, mounts nothing, and never overwrites a file. Without PATH it asks for every mounted disk whether to
/// use it.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella init /mnt/disk1 /mnt/disk2 /mnt/ssd             print a configuration
  umbrella init /mnt/disk* --output /etc/umbrella/pool.toml
  umbrella init --mount /srv/media                         ask of every mounted disk
  umbrella init --yes --output pool.toml                   use all of them")]
pub(crate) struct InitArgs {
    /// Directories that become branches; usually mounted disks.
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The mount point of the pool.
    #[arg(long, value_name = "DIR", default_value = "/srv/pool")]
    mount: PathBuf,
    /// Write a new file, and check it [default: print the configuration].
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Use every mounted disk, without questions.
    #[arg(short, long)]
    yes: bool,
    /// Print JSON: the configuration, and what each branch lies on.
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

impl InitArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(file) = self.output.as_ref().filter(|file| mounts::is_file(file)) {
            bail!("{} already exists and was not changed: remove it, or name another file", visible_path(file));
        }
        let storages = if self.paths.is_empty() { self.choose_storage()? } else { self.given_storage()? };
        if storages.is_empty() {
            bail!(
                "no disk was chosen: mount the disks, or name their directories (`umbrella init /mnt/disk1 /mnt/disk2`)"
            );
        }
        refuse_nested(&storages)?;
        let mount = std::path::absolute(&self.mount)?;
        let outline = outline(&mount, &storages)?;
        let text = outline.text();
        if self.json {
            let branches: Vec<_> = outline.branches.iter().zip(&storages).map(|it| branch_json(it.0, it.1)).collect();
            output::json(&json!({ "configuration": text, "mount": mount, "branches": branches }))?;
            return Ok(ExitCode::SUCCESS);
        }
        written::write_or_print(&text, self.output.as_deref(), &|file| {
            vec![
                shell_words(["mkdir", "-p", &visible_path(&mount)]),
                format!(
                    "{}   # what do the files on the disks become?",
                    shell_words(["umbrella", "check", "--import", file])
                ),
                shell_words(["umbrella", "mount", file, "--daemon"]),
            ]
        })
    }

    fn given_storage(&self) -> anyhow::Result<Vec<Storage>> {
        let look = |path: &PathBuf| {
            mounts::refuse_unresponsive(path)?;
            let storage = storage::inspect(path).with_context(|| format!("looking at {}", visible_path(path)))?;
            if !storage.path.is_dir() {
                bail!("{} is not a directory: name the directory where the disk is mounted", visible_path(path));
            }
            Ok(storage)
        };
        self.paths.iter().map(look).collect()
    }

    fn choose_storage(&self) -> anyhow::Result<Vec<Storage>> {
        let mut asker = Asker::new(self.yes, "init without PATH")?;
        let mut chosen = Vec::new();
        for storage in storage::mounted_disks() {
            match asker.ask(&format!("use {} ({})?", visible_path(&storage.path), storage.describe()))? {
                Consent::Yes | Consent::All => chosen.push(storage),
                Consent::No => {}
                Consent::Quit => bail!("nothing was written"),
            }
        }
        if self.yes {
            for storage in &chosen {
                report!("{}: {}", visible_path(&storage.path), storage.describe());
            }
        }
        Ok(chosen)
    }
}

/// No branch lies in another.
fn refuse_nested(storages: &[Storage]) -> anyhow::Result<()> {
    for (index, storage) in storages.iter().enumerate() {
        for other in storages.iter().skip(index + 1) {
            let (one, two) = (&storage.path, &other.path);
            if one == two {
                bail!("{} is named twice: name each directory once", visible_path(one));
            }
            let (outer, inner) = if two.starts_with(one) { (one, two) } else { (two, one) };
            if inner.starts_with(outer) {
                bail!("{} lies in {}: use one of the two", visible_path(inner), visible_path(outer));
            }
        }
    }
    Ok(())
}

/// A branch for machines.
fn branch_json(branch: &BranchTable, storage: &Storage) -> serde_json::Value {
    json!({
        "name": branch.name,
        "path": branch.path,
        "medium": storage.medium,
        "disks": storage.disks,
        "fs_type": storage.kind,
        "total": storage.total,
        "is_mount": storage.is_mount,
    })
}

/// The configuration for these directories. Pure.
fn outline(mount: &Path, storages: &[Storage]) -> anyhow::Result<Outline> {
    let text = |path: &Path| match path.to_str() {
        Some(text) => Ok(text.to_owned()),
        None => bail!("{} is not UTF-8, as a configuration must be: rename it", visible_path(path)),
    };
    let paths = storages.iter().map(|storage| text(&storage.path)).collect::<anyhow::Result<Vec<_>>>()?;
    let names = branch_names(&paths.iter().map(String::as_str).collect::<Vec<_>>());
    let named: Vec<(&Storage, &String)> = storages.iter().zip(&names).collect();
    let of = |wanted: &[Medium]| {
        let such = named.iter().filter(|(storage, _)| wanted.contains(&storage.medium));
        such.map(|(_, name)| (*name).clone()).collect::<Vec<String>>()
    };
    let (disks, flash) = (of(&[Medium::Disk, Medium::Unknown]), of(&[Medium::Flash]));
    let remote = of(&[Medium::Remote]);
    let (hdds, ssds) = (free_name("hdds", &names), free_name("ssds", &names));
    let mut groups = Vec::new();
    if !disks.is_empty() {
        groups.push(group(&hdds, disks, "Disks. A new file goes to the one with most free space, and stays there."));
    }
    if !flash.is_empty() {
        groups.push(group(&ssds, flash, "Flash."));
    }
    let mut rules = Vec::new();
    let default = match groups.as_slice() {
        [] => remote,
        [one, ..] => vec![one.name.clone()],
    };
    if groups.len() == 2 {
        rules.push(small_files(&ssds, &hdds));
    }
    let about = [
        "Written by `umbrella init`. Change what you like; `umbrella check` names mistakes.",
        "All keys: docs/configuration.md.",
        "",
        "default: where files go that no rule matches.",
    ];
    Ok(Outline {
        about: about.map(str::to_owned).into(),
        mount: text(mount)?,
        default,
        keys: Vec::new(),
        branches: named.iter().zip(paths).map(|((storage, name), path)| branch(storage, name, path)).collect(),
        groups,
        rules,
    })
}

fn branch(storage: &Storage, name: &str, path: String) -> BranchTable {
    /// From this size on a share would keep too much free.
    const LARGE: ByteSize = ByteSize(200 << 30);
    let mut about = vec![storage.describe()];
    let is_large = storage.total.is_some_and(|total| total >= LARGE);
    let min_free = Key::text("min_free", if is_large { "10GiB" } else { "5%" })
        .with_comment("with less free space it gets no new files");
    let why = "its own path shows an empty directory while the pool is mounted; false where SnapRAID or a backup reads the disk itself";
    let mut keys = vec![min_free, Key::flag("hide", true).with_comment(why)];
    if !storage.is_mount {
        let why = "a plain directory; write true to require a mounted disk";
        keys.push(Key::flag("require_mount", false).with_comment(why));
    }
    if storage.medium == Medium::Remote {
        about.push("In no group: files come here when a rule or the default list names it.".to_owned());
        keys.push(Key::flag("optional", true).with_comment("the pool starts without it"));
    }
    BranchTable { about, name: Some(name.to_owned()), path, keys }
}

fn group(name: &str, branches: Vec<String>, about: &str) -> Group {
    let more = "together = \"/TV/*/*\"   # keep what is below each such directory on one disk";
    Group {
        about: vec![about.to_owned()],
        name: name.to_owned(),
        branches,
        spread: vec!["most-free"],
        more: vec![more.to_owned()],
    }
}

fn small_files(ssds: &str, hdds: &str) -> Rule {
    Rule {
        about: vec!["Small files open fast on flash. When the flash is full they go to the disks.".to_owned()],
        name: "small files on flash".to_owned(),
        when: "{ size = \"< 64KiB\", hysteresis = \"16KiB\" }",
        to: vec![ssds.to_owned(), hdds.to_owned(), "any".to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storage(path: &str, medium: Medium, gib: u64) -> Storage {
        Storage {
            path: path.into(),
            medium,
            disks: vec!["sda".to_owned()],
            kind: "ext4".to_owned(),
            total: Some(ByteSize(gib << 30)),
            is_mount: !path.starts_with("/plain"),
            is_on_root: false,
            device: 1,
        }
    }

    /// What is there, and the golden of what is written for it.
    fn cases() -> Vec<(&'static str, Vec<Storage>)> {
        let disk = |path| storage(path, Medium::Disk, 4000);
        let flash = |path| storage(path, Medium::Flash, 100);
        vec![
            ("disks", vec![disk("/mnt/disk1"), disk("/mnt/disk2")]),
            (
                "both",
                vec![
                    disk("/mnt/disk1"),
                    flash("/mnt/ssd"),
                    disk("/plain/hdds"),
                    storage("/mnt/far", Medium::Remote, 10),
                ],
            ),
            ("flash", vec![flash("/mnt/ssd")]),
            ("remote", vec![storage("/mnt/far", Medium::Remote, 10)]),
        ]
    }

    fn golden(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("src/commands/init_goldens").join(format!("{name}.toml"))
    }

    #[test]
    fn each_set_of_disks_gets_the_configuration_of_its_golden() {
        for (name, storages) in cases() {
            let text = outline(Path::new("/srv/pool"), &storages).unwrap().text();
            if std::env::var_os("UPDATE_GOLDEN").is_some() {
                std::fs::write(golden(name), &text).unwrap();
            }
            assert_eq!(text, std::fs::read_to_string(golden(name)).unwrap(), "{name}");
        }
    }

    #[test]
    fn each_golden_is_a_right_configuration() {
        for (name, _) in cases() {
            let bytes = std::fs::read(golden(name)).unwrap();
            if let Err(errors) = crate::config::parse(Path::new(name), bytes) {
                panic!("{errors}");
            }
        }
    }

    #[test]
    fn a_path_that_is_no_text_is_refused() {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(b"/mnt/\xff"));
        let error = outline(Path::new("/srv"), &[Storage { path: path.to_owned(), ..storage("/x", Medium::Disk, 1) }]);
        assert!(error.unwrap_err().to_string().contains("UTF-8"));
    }
}
