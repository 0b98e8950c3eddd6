//! `umbrella from-mergerfs`: the configuration that is equal to a mount of mergerfs.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::json;
use umbrella_lab::result::shell_words;

use super::written;
use crate::mergerfs::{self, OptionNote, Translation};
use crate::text::{quoted, visible, visible_path};
use crate::{config, output};

/// Convert a mergerfs mount to a configuration, and list the options that have no equivalent.
///
/// Reads only the text that you give it (or, for a mount point, its line in /etc/fstab). The branches need not be
/// mounted.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella from-mergerfs /srv/pool                    the line of this mount point in /etc/fstab
  umbrella from-mergerfs '/mnt/disk*:/mnt/ssd=NC /srv/pool fuse.mergerfs category.create=mfs,minfreespace=50G 0 0'
  umbrella from-mergerfs --output pool.toml mergerfs -o category.create=epmfs /mnt/a:/mnt/b /srv/pool
  umbrella from-mergerfs --mount /srv/pool 'branches=/mnt/a:/mnt/b,moveonenospc=true'
  umbrella from-mergerfs - < mergerfs.conf            a file of options")]
pub(crate) struct FromMergerfsArgs {
    /// The mount point [default: that of the line].
    #[arg(long, value_name = "DIR")]
    mount: Option<String>,
    /// Write a new file, and check it [default: print the configuration].
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print JSON: the configuration, and a remark on each option that needs one.
    #[arg(long, conflicts_with = "output")]
    json: bool,
    /// An fstab line, a command line, options, or a mount point in /etc/fstab; `-` reads standard input. It comes last.
    #[arg(required = true, value_name = "LINE", trailing_var_arg = true, allow_hyphen_values = true)]
    line: Vec<String>,
}

impl FromMergerfsArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let translation = mergerfs::translate(&self.text()?, self.mount.as_deref())?;
        let text = translation.outline.text();
        if self.json {
            let notes = |notes: &[OptionNote]| {
                notes.iter().map(|note| json!({ "option": note.option, "text": note.text })).collect::<Vec<_>>()
            };
            output::json(&json!({
                "configuration": text,
                "no_equal": notes(&translation.missing),
                "look_at": notes(&translation.unsure),
                "needs_nothing": notes(&translation.needless),
                "mount_options": translation.mount_options,
            }))?;
            return Ok(ExitCode::SUCCESS);
        }
        if self.output.is_some() {
            for (heading, notes) in [("no equal", &translation.missing), ("look at", &translation.unsure)] {
                for note in notes {
                    output::line(&format!("{heading}: {}: {}", visible(&note.option), visible(&note.text)))?;
                }
            }
        }
        written::write_or_print(&text, self.output.as_deref(), &|file| next_steps(&translation, file))
    }

    fn text(&self) -> anyhow::Result<String> {
        match self.line.as_slice() {
            [dash] if dash == "-" => {
                let mut text = String::new();
                std::io::stdin()
                    .lock()
                    .take(config::MAX_BYTES)
                    .read_to_string(&mut text)
                    .context("reading standard input")?;
                Ok(text)
            }
            [mount] if mount.starts_with('/') && !mount.contains(':') => match fstab_line(mount) {
                // It has a space, so it may be a line itself.
                Err(_) if mount.contains([' ', '\t']) => Ok(mount.clone()),
                line => line,
            },
            [line] => Ok(line.clone()),
            words if words.iter().any(|word| is_own_option(word)) => {
                bail!("the options of `from-mergerfs` go before the line: what follows the line belongs to mergerfs")
            }
            words => Ok(words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")),
        }
    }
}

/// mergerfs has none of these.
fn is_own_option(word: &str) -> bool {
    ["--mount", "--output", "--json"].iter().any(|own| word.split('=').next() == Some(own))
}

/// A word of a command line, quoted for a shell.
fn shell_word(word: &str) -> String {
    if word.contains(char::is_whitespace) { format!("'{word}'") } else { word.to_owned() }
}

/// The line for a mount point in fstab.
fn fstab_line(mount: &str) -> anyhow::Result<String> {
    let fstab = std::env::var_os("LIBMOUNT_FSTAB").unwrap_or_else(|| "/etc/fstab".into());
    let fstab = Path::new(&fstab);
    let text = std::fs::read_to_string(fstab).with_context(|| format!("reading {}", fstab.display()))?;
    let wanted = mergerfs::unescape(mount);
    let wanted = wanted.trim_end_matches('/');
    let is_it = |line: &&str| {
        let at = line.split_whitespace().nth(1).map(mergerfs::unescape);
        !line.trim_start().starts_with('#') && at.is_some_and(|at| at.trim_end_matches('/') == wanted)
    };
    match text.lines().find(is_it) {
        Some(line) => Ok(line.to_owned()),
        None => bail!("{} has no line for {}: give the mount's options instead", fstab.display(), quoted(mount)),
    }
}

/// What to do with the configuration.
fn next_steps(translation: &Translation, file: &str) -> Vec<String> {
    let mount = visible(&translation.outline.mount);
    let mut next = vec![
        shell_words(["umount", &mount]),
        format!("{}   # what is on several branches?", shell_words(["umbrella", "check", "--import", file])),
        shell_words(["umbrella", "mount", file, "--daemon"]),
    ];
    let options = translation.mount_options.iter().map(|option| visible(option)).collect::<Vec<_>>().join(",");
    let options = if options.is_empty() { "defaults".to_owned() } else { options };
    let absolute = std::path::absolute(file).map_or_else(|_| file.to_owned(), |path| visible_path(&path));
    let as_field = |text: &str| text.replace(' ', "\\040");
    next.push(format!(
        "# in fstab, in place of the mergerfs line: {}  {}  fuse.umbrella  {options}  0 0",
        as_field(&absolute),
        as_field(&mount)
    ));
    next
}
