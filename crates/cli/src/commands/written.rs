//! What becomes of a configuration that a command wrote: it goes to a file or to standard output, and is checked.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use umbrella_fs::spec::AccessTimes;

use crate::text::visible_path;
use crate::{config, mounts, output};

/// Writes the text to a new file and checks it, or prints it. Prints the lines of `next` after a valid configuration,
/// also while mergerfs is mounted at its mount point.
pub(super) fn write_or_print(
    text: &str,
    file: Option<&Path>,
    next: &dyn Fn(&str) -> Vec<String>,
) -> anyhow::Result<ExitCode> {
    let Some(file) = file else {
        output::print(text)?;
        return Ok(match config::parse(Path::new("the configuration"), text.to_owned().into_bytes()) {
            Ok(_) => ExitCode::SUCCESS,
            Err(errors) => print_mistakes(&errors),
        });
    };
    mounts::refuse_unresponsive(file)?;
    create(file, text)?;
    let shown = visible_path(file);
    output::line(&format!("wrote {shown}"))?;
    match config::load(file, None, AccessTimes::default()) {
        Ok((config, findings)) => {
            for finding in &findings {
                output::line(&config.report(&finding.span, finding.notice.to_string()).as_warning())?;
            }
        }
        // The file is right; the mount point becomes free later.
        Err(errors) if errors.is_mergerfs_mounted() => {}
        Err(errors) => return Ok(print_mistakes(&errors)),
    }
    output::line("next:")?;
    for line in next(&shown) {
        output::line(&format!("  {line}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_mistakes(errors: &config::ConfigErrors) -> ExitCode {
    report!("the configuration needs a change before it can be mounted:\n{errors}");
    ExitCode::FAILURE
}

/// A new file with this text; one that exists stays as it is.
fn create(file: &Path, text: &str) -> anyhow::Result<()> {
    let shown = visible_path(file);
    let mut made = match File::create_new(file) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!("{shown} already exists and was not changed: remove it, or name another file with --output")
        }
        made => made.with_context(|| format!("creating {shown}"))?,
    };
    made.write_all(text.as_bytes()).and_then(|()| made.sync_all()).with_context(|| {
        // Half of a configuration is none.
        let _ = fs::remove_file(file);
        format!("writing {shown}")
    })
}
