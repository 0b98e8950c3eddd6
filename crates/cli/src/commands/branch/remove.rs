//! `umbrella branch remove`: forgets a branch of a mounted pool, and takes it out of the configuration if that is asked
//! for.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use serde_json::json;
use umbrella_fs::control::protocol::Request;

use super::{is_configured, rules_naming, rules_of_this_alone, warn_of_lists};
use crate::commands::{self, PoolOption};
use crate::config::save::{self, Change};
use crate::output;
use crate::text::{quoted, quoted_list, visible_path};

/// Remove a branch from the pool. Its files vanish from the tree and stay on the branch.
///
/// A branch that still holds files is removed only with --force; `umbrella branch drain` empties it first.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella branch drain usb && umbrella branch remove usb --save
  umbrella branch remove usb --force")]
pub(super) struct RemoveArgs {
    /// Name of the branch.
    name: String,
    /// Remove the branch even if it still holds files.
    #[arg(short, long)]
    force: bool,
    /// Also remove it from the pool's configuration and its lists, except a list that names no other branch; comments
    /// and layout stay.
    #[arg(long)]
    save: bool,
    #[command(flatten)]
    pool: PoolOption,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl RemoveArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let (_, client) = commands::find_live_pool(self.pool.pool.as_deref())?;
        let rules = rules_naming(&client, &self.name)?;
        let emptied = rules_of_this_alone(&client, &self.name)?;
        // What cannot be written is said before anything is changed.
        let change = Change::Remove { name: &self.name };
        let saved = if self.save { Some(save::prepare(&commands::config_of(&client)?, &change)?) } else { None };
        client.call(&Request::BranchRemove { name: self.name.clone(), force: self.force })?;
        let name = quoted(&self.name);
        let file = saved.as_ref().map(|saved| visible_path(saved.file()));
        if let Some(saved) = saved {
            let written = saved.write();
            written
                .with_context(|| format!("branch {name} is removed from the pool, but still in the configuration"))?;
        }
        if self.json {
            output::json(&json!({ "branch": self.name, "removed": true, "rules": rules, "saved": file }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let configuration = match &file {
            Some(file) => format!(", and from {file}"),
            None if !is_configured(&client, &self.name)? => String::new(),
            None => "; remove it from the configuration too (or --save)".to_owned(),
        };
        output::line(&format!("branch {name} is removed from the pool{configuration}"))?;
        if !rules.is_empty() {
            let rules = quoted_list(rules.iter().map(String::as_str));
            let edit = if file.is_some() { "" } else { "edit the configuration, then " };
            output::line(&format!("still named by {rules} of the mounted pool: {edit}`umbrella rules reload`"))?;
        }
        warn_of_lists(&emptied)?;
        Ok(ExitCode::SUCCESS)
    }
}
