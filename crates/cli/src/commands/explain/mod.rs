//! `umbrella explain`: where a file is, where it belongs, and which rule says so.

mod what_if;

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use umbrella_fs::control::protocol::{Answer, HypotheticalFile, Request};

use super::PoolOption;
use crate::client::{Client, ClientError};
use crate::pool::{self, Pool, PoolError};
use crate::text::{quoted, visible_path};
use crate::{output, render};

/// Show where a file is, where it belongs, and which rule decides.
///
/// The file need not exist: a missing path is explained as a new file. With --pool, a path outside the mount counts as
/// a path inside the pool, beginning at its root. With --what-if you describe the file, and the real one is ignored.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella explain /srv/pool/films/a.avi
  umbrella explain --pool /srv/pool /films/a.avi
  umbrella explain --what-if size=2GiB,mtime=30d /srv/pool/films/a.avi
  umbrella explain --json /srv/pool/* | jq -r 'select(.belongs != null and .on[0] != .belongs) | .path'")]
pub(crate) struct ExplainArgs {
    /// Paths in a mounted pool.
    #[arg(required_unless_present = "what_if", value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Explain a file with these properties instead: path=/x,size=2GiB,mtime=30d. Also uid, gid, user, group, mode,
    /// links, type, atime, ctime, btime and xattr.NAME. Without a size it is a new file.
    #[arg(long, value_name = "FACTS", value_parser = what_if::parse)]
    what_if: Option<HypotheticalFile>,
    #[command(flatten)]
    pool: PoolOption,
    /// Print JSON, one object a line for each path.
    #[arg(long)]
    json: bool,
}

impl ExplainArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let named = self.pool.pool.as_deref().map(|pool| pool::find(Some(pool))).transpose()?;
        if let (Some(file), []) = (&self.what_if, self.paths.as_slice()) {
            let pool = named.map_or_else(|| pool::find(None), Ok)?;
            output::print(&self.request_explanation(&pool, &Request::WhatIf { file: file.clone() })?)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut failed = false;
        for (index, path) in self.paths.iter().enumerate() {
            match self.explain(named.as_ref(), path) {
                Ok(text) if self.json || index == 0 => output::print(&text)?,
                Ok(text) => output::print(&format!("\n{text}"))?,
                Err(error) => {
                    report!("umbrella: {}: {error:#}", visible_path(path));
                    failed = true;
                }
            }
        }
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn explain(&self, named: Option<&Pool>, path: &Path) -> anyhow::Result<String> {
        let (pool, path) = locate(named, path)?;
        let path = path.into_os_string().into_vec();
        match &self.what_if {
            Some(file) => {
                self.request_explanation(&pool, &Request::WhatIf { file: HypotheticalFile { path, ..file.clone() } })
            }
            None => self.request_explanation(&pool, &Request::Explain { path }),
        }
    }

    fn request_explanation(&self, pool: &Pool, request: &Request) -> anyhow::Result<String> {
        pool::is_alive(pool)?;
        let Answer::Explain(explanation) = Client::new(&pool.socket).call(request)? else {
            return Err(ClientError::Unexpected.into());
        };
        if self.json {
            return Ok(format!("{}\n", serde_json::to_string(&explanation)?));
        }
        Ok(render::explanation(&explanation))
    }
}

/// The pool and the path inside it.
pub(super) fn locate(named: Option<&Pool>, path: &Path) -> anyhow::Result<(Pool, PathBuf)> {
    if let Some(pool) = named {
        let inside = pool::inside(pool, path)?;
        return match inside {
            Some(inside) => Ok((pool.clone(), inside)),
            None if path.as_os_str().as_bytes().starts_with(b"/") => Ok((pool.clone(), pool::absolute(path)?)),
            None => {
                bail!("not in the pool at {} (a path inside the pool begins with \"/\")", visible_path(&pool.mount))
            }
        };
    }
    // The directory decides which pool it is: the last part may be a link that leads elsewhere.
    let plain = pool::absolute(path)?;
    let found = match pool::holding(&plain)? {
        Some(pool) => pool::inside(&pool, &plain)?.map(|inside| (pool, inside)),
        None => None,
    };
    match found {
        Some(found) => Ok(found),
        None => match pool::find_on_branch(&plain) {
            Some((pool, branch, inside)) => bail!(
                "on branch {} of the pool at {}, where it is {}: name that path",
                quoted(&branch),
                visible_path(&pool.mount),
                visible_path(&inside)
            ),
            None => match pool::find(None) {
                Ok(_) | Err(PoolError::Several { .. }) => {
                    bail!("in no mounted pool{}; a path inside a pool can be named with --pool", pool::mounted())
                }
                Err(none) => Err(none.into()),
            },
        },
    }
}
