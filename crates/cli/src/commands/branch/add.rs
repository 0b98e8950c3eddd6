//! `umbrella branch add`: takes a directory into a mounted pool, and writes it to the configuration if that is asked
//! for.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use serde_json::json;
use umbrella_fs::control::protocol::Request;
use umbrella_fs::spec::BranchSpec;
use umbrella_units::{Amount, ByteSize, ParseDurationError, format_duration, parse_duration};

use super::rules_reaching;
use crate::client::Client;
use crate::commands::{PoolOption, balance};
use crate::config::save::{self, Addition, Change};
use crate::text::{quoted, quoted_list, visible_path};
use crate::{commands, ending, mounts, output, pool};

/// Add a directory to the pool as a branch. Its files appear in the tree at once.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella branch add usb /mnt/usb --min-free 5%
  umbrella branch add archive /mnt/tape --read-only --optional
  umbrella branch add disk3 /mnt/disk3 --default --save
  umbrella branch add disk3 /mnt/disk3 --group hdds --balance --save

Without --save the configuration stays unchanged, and the lines to add are printed.")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(super) struct AddArgs {
    /// Name of the branch, as used in rules.
    name: String,
    /// Its directory.
    path: PathBuf,
    /// Place no new files here while less than this is free ("10GiB" or "5%").
    #[arg(long, value_name = "AMOUNT")]
    min_free: Option<Amount>,
    /// Below this much free space, writes go through the daemon.
    #[arg(long, value_name = "AMOUNT")]
    headroom: Option<Amount>,
    /// Write, move and delete nothing here.
    #[arg(long)]
    read_only: bool,
    /// Place no new files here; existing files can be read and changed.
    #[arg(long)]
    no_create: bool,
    /// Number of inodes in use at which the branch is full.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    max_files: Option<u64>,
    /// While the pool is mounted, show an empty directory at the branch's own path.
    #[arg(long)]
    hide: bool,
    /// Let the pool start without this branch when it is missing.
    #[arg(long)]
    optional: bool,
    /// Whether the path must be a mount point [default: if it is one now]. "false" also accepts a directory of the root
    /// file system.
    #[arg(long, value_name = "BOOL")]
    require_mount: Option<bool>,
    /// How long a file that moved here stays before a rule may move it again ("1d").
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    min_stay: Option<Duration>,
    /// All reads and writes go through the daemon.
    #[arg(long)]
    no_passthrough: bool,
    /// Also append it to the default list, so that new files go there when the branches before it are full.
    #[arg(long)]
    default: bool,
    /// Also make it a member of this group, so that it takes its share of the group's new files.
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Then even out the members of that group, as `umbrella balance` does.
    #[arg(long, requires = "group")]
    balance: bool,
    /// Also write it to the configuration of the pool; comments and layout stay.
    #[arg(long)]
    save: bool,
    #[command(flatten)]
    pool: PoolOption,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn duration(text: &str) -> Result<Duration, ParseDurationError> {
    parse_duration(text)
}

impl AddArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let (pool, client) = commands::find_live_pool(self.pool.pool.as_deref())?;
        let mut branch = BranchSpec {
            path: pool::absolute(&self.path)?,
            name: self.name.clone(),
            min_free: self.min_free.unwrap_or(Amount::Bytes(ByteSize(0))),
            headroom: self.headroom,
            read_only: self.read_only,
            create: !self.no_create,
            max_files: self.max_files,
            hide: self.hide,
            optional: self.optional,
            require_mount: self.require_mount,
            min_stay: self.min_stay.unwrap_or_default(),
            passthrough: !self.no_passthrough,
            write_back: None,
        };
        mounts::refuse_unresponsive(&branch.path)?;
        let lines = configuration(&branch)?;
        let name = branch.name.clone();
        // What cannot be written is said before anything is changed.
        let (to_default, to_group) = (self.default, self.group.as_deref());
        let change = Change::Add(Addition { branch: &branch, lines: &lines, to_default, to_group });
        let saved = if self.save { Some(save::prepare(&commands::config_of(&client)?, &change)?) } else { None };
        // The group may have a `min_free` for it.
        if let Some(kept) = saved.as_ref().and_then(|saved| saved.branch(&name)) {
            branch.min_free = kept.min_free;
        }
        ending::wait_for_branches(std::slice::from_ref(&branch.path))?;
        ending::refuse_branches_of_others(std::slice::from_ref(&branch.path), &pool.mount)?;
        client.call(&Request::BranchAdd { branch: branch.clone(), to_default, to_group: self.group.clone() })?;
        let file = saved.as_ref().map(|saved| visible_path(saved.file()));
        if let Some(saved) = saved {
            let written = saved.write();
            written.with_context(|| {
                format!("branch {} is in the pool, but not in its configuration (add it there yourself)", quoted(&name))
            })?;
        }
        let lists = rules_reaching(&client, &name)?;
        if self.json {
            let added = json!({ "branch": name, "added": true, "configuration": lines, "lists": lists, "saved": file });
            output::json(&added)?;
            return self.balance_after(&client);
        }
        let shown = quoted(&name);
        let on = if lists.is_empty() {
            "it is on no list, so it gets no new files. Name it in a rule or in the default list of the \
            configuration, then run `umbrella rules reload`"
                .to_owned()
        } else {
            let to_default = "it is last on the default list, and new files go there when the branches before it \
                are full";
            let others = lists.iter().filter(|list| !(self.default && *list == "default"));
            let others = quoted_list(others.map(String::as_str));
            let mut on: Vec<_> = self.default.then(|| to_default.to_owned()).into_iter().collect();
            if !others.is_empty() {
                on.push(format!("new files go there by {others}"));
            }
            format!("{}; `umbrella enforce` moves the files that already belong there", on.join("; "))
        };
        output::line(&format!("branch {shown} is in the pool; {on}"))?;
        if let Some(file) = file {
            output::line(&format!("saved to {file}"))?;
        } else {
            let default = if self.default { ", and its name to the default list" } else { "" };
            let group = self.group.as_ref().map(|group| format!(", and its name to group {}", quoted(group)));
            let also = format!("{default}{}", group.unwrap_or_default());
            output::line(&format!("to keep it, add to the configuration (or --save it){also}:\n\n{lines}"))?;
        }
        self.balance_after(&client)
    }

    fn balance_after(&self, client: &Client) -> anyhow::Result<ExitCode> {
        let Some(group) = self.group.clone().filter(|_| self.balance) else { return Ok(ExitCode::SUCCESS) };
        let request = Request::Balance { group, within: balance::DEFAULT_WITHIN, dry_run: false, bandwidth: None };
        balance::balance(client, &request, false, self.json)
    }
}

/// The branch as the configuration says it.
fn configuration(branch: &BranchSpec) -> anyhow::Result<String> {
    #[derive(Serialize)]
    struct BranchTables<'a> {
        branch: [BranchTable<'a>; 1],
    }
    #[derive(Serialize)]
    struct BranchTable<'a> {
        name: &'a str,
        path: &'a Path,
        #[serde(skip_serializing_if = "Option::is_none")]
        min_free: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        headroom: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        read_only: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        create: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        max_files: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        hide: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        optional: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        require_mount: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        min_stay: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        passthrough: Option<bool>,
    }
    let line = BranchTable {
        name: &branch.name,
        path: &branch.path,
        min_free: (branch.min_free != Amount::Bytes(ByteSize(0))).then(|| amount(branch.min_free)),
        headroom: branch.headroom.map(amount),
        read_only: branch.read_only.then_some(true),
        create: (!branch.create).then_some(false),
        max_files: branch.max_files,
        hide: branch.hide.then_some(true),
        optional: branch.optional.then_some(true),
        require_mount: branch.require_mount,
        min_stay: (!branch.min_stay.is_zero()).then(|| format_duration(branch.min_stay)),
        passthrough: (!branch.passthrough).then_some(false),
    };
    Ok(toml::to_string(&BranchTables { branch: [line] })?)
}

/// Exactly: what is shown to people is rounded.
fn amount(amount: Amount) -> String {
    match amount {
        Amount::Bytes(bytes) => {
            let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
            let whole = units.iter().find(|(shift, _)| bytes.0 > 0 && bytes.0.trailing_zeros() >= *shift);
            whole.map_or_else(|| bytes.0.to_string(), |(shift, unit)| format!("{}{unit}", bytes.0 >> shift))
        }
        Amount::MilliPercent(_) => amount.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_exactly_and_in_units() {
        let written =
            [0, 1000, 1024, 1536, 20 << 20, 3 << 40, u64::MAX].map(|bytes| amount(Amount::Bytes(ByteSize(bytes))));
        assert_eq!(written, ["0", "1000", "1KiB", "1536", "20MiB", "3TiB", "18446744073709551615"]);
    }
}
