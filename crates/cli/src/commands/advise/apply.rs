//! `--apply`: writes what is advised to the pool's configuration, and puts it in force.
//!
//! Steps: the new text is made and checked, the daemon says what it would change, the user agrees, the file is written,
//! the daemon takes it up.

use std::path::PathBuf;

use serde::Serialize;
use umbrella_fs::control::protocol::{Answer, Request};
use umbrella_fs::spec::{PoolSpec, WriteBackSpec};

use crate::client::{Client, ClientError};
use crate::commands;
use crate::commands::ask::{Asker, Consent};
use crate::config::save::{self, Change};
use crate::text::{visible, visible_path};

/// What became of it.
#[derive(Debug, Serialize)]
pub(super) struct Saved {
    /// The configuration.
    file: String,
    /// What is other than before.
    changes: Vec<String>,
    /// Whether it was written.
    written: bool,
}

/// Checked before anything is recorded.
pub(super) struct Applying {
    config: PathBuf,
    asker: Asker,
}

impl Applying {
    pub(super) fn new(client: &Client, yes: bool) -> anyhow::Result<Applying> {
        let config = commands::config_of(client)?;
        // What cannot be changed is said before the recording, not after it.
        save::prepare(&config, &Change::Settings { write_back: &[], rule: None })?;
        Ok(Applying { config, asker: Asker::new(yes, "--apply")? })
    }

    pub(super) fn apply(
        mut self,
        client: &Client,
        write_back: &[(String, Option<WriteBackSpec>)],
        rule: Option<&str>,
    ) -> anyhow::Result<Saved> {
        let shown = visible_path(&self.config);
        let not = |changes| Saved { file: shown.clone(), changes, written: false };
        if write_back.is_empty() && rule.is_none() {
            report!("{shown}: nothing to change");
            return Ok(not(Vec::new()));
        }
        let prepared = save::prepare(&self.config, &Change::Settings { write_back, rule })?;
        let changes = reload(client, prepared.spec(), true)?;
        report!("\n{shown} would change:");
        for change in &changes {
            report!("  {change}");
        }
        if !matches!(self.asker.ask("write it, and put it in force?")?, Consent::Yes | Consent::All) {
            report!("{shown} stays as it is");
            return Ok(not(changes));
        }
        let spec = prepared.spec().clone();
        prepared.write()?;
        reload(client, &spec, false)?;
        report!("{shown} is written and in force");
        Ok(Saved { file: shown, changes, written: true })
    }
}

fn reload(client: &Client, spec: &PoolSpec, dry_run: bool) -> anyhow::Result<Vec<String>> {
    let request = Request::RulesReload { spec: Box::new(spec.clone()), dry_run };
    let Answer::Reloaded { changes, .. } = client.call(&request)? else { return Err(ClientError::Unexpected.into()) };
    Ok(changes.iter().map(|change| visible(&change.to_string())).collect())
}
