//! What people read: tables of a pool's state, and why a file is where it is. Pure: answers in, text out.

mod evict;
pub(crate) mod survey;
pub(crate) mod write_back;

use std::fmt::Write as _;
use std::path::Path;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use umbrella_fs::control::protocol::{
    Abilities, BalanceSummary, BranchState, BranchStatus, CopyRights, DirectoryEvent, EnforceSummary, EqualiseOutcome,
    EqualiseSummary, Explanation, HeatStatus, MemberShare, MoveEvent, MoveOutcome, Progress, Purpose, RuleStatus,
    StagingStatus, Status, TransportKind, TransportStatus, WalkStatus,
};
use umbrella_policy::placement::spec::StagingMode;
use umbrella_units::{ByteSize, format_duration};

use crate::text::{count, quoted, visible, visible_path};

const BAR_WIDTH: u64 = 10;

/// The whole pool.
pub(crate) fn status(status: &Status) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{}  up {}, process {}, version {}",
        visible_path(&status.mount),
        uptime(status),
        status.pid,
        visible(&status.version)
    );
    let _ = writeln!(text, "{}", files_in_use(status));
    if let Some(transport) = &status.transport {
        let _ = writeln!(text, "{}", self::transport(transport));
    }
    if let Some(line) = status.staging.as_ref().and_then(staging) {
        let _ = writeln!(text, "{line}");
    }
    for walk in &status.walks {
        let _ = writeln!(text, "{}", self::walk(walk));
    }
    for evict in &status.evicts {
        let _ = writeln!(text, "{}", evict::line(evict));
    }
    if let Some(heat) = &status.heat {
        let _ = writeln!(text, "{}", self::heat(heat));
    }
    if status.ending {
        let _ = writeln!(text, "{}", ending(&status.mount, Some(status.pid)));
    } else if status.detached {
        let _ = writeln!(text, "{}", detached(status));
    }
    let _ = writeln!(text, "\n{}", branches(&status.branches));
    let ordered: Vec<_> =
        status.branches.iter().filter_map(|it| Some((it.name.as_str(), it.write_back.as_ref()?))).collect();
    if !ordered.is_empty() {
        let _ = writeln!(text, "{}", write_back::table(&ordered));
    }
    let _ = writeln!(text, "{}", rules(&status.rules));
    for warning in &status.warnings {
        let _ = writeln!(text, "warning: {}", visible(warning));
    }
    text
}

/// Open files, and those that are to move.
fn files_in_use(status: &Status) -> String {
    let mut text = format!("{} open", count(status.open_files, "file"));
    if status.open_files > 0 {
        let _ = write!(text, " ({} in passthrough)", status.open_passthrough);
    }
    let waiting = status.metrics.get("umbrella_relocations_pending_count").copied().unwrap_or(0);
    if waiting > 0 {
        let _ = write!(text, ", {} waiting to move", count(waiting, "file"));
    }
    if !status.passthrough {
        text.push_str("; the kernel does not offer passthrough");
    }
    text
}

fn transport(transport: &TransportStatus) -> String {
    match (transport.kind, &transport.reason) {
        (TransportKind::IoUring, _) => "requests over io_uring".to_owned(),
        (TransportKind::Dev, None) => "requests from /dev/fuse".to_owned(),
        (TransportKind::Dev, Some(reason)) => {
            format!("requests from /dev/fuse, not over io_uring: {}", visible(reason))
        }
    }
}

/// Several pools with their free space, a line each.
pub(crate) fn pools(pools: &[(Status, Option<ByteSize>)]) -> String {
    let mut table = new_table(&["POOL", "UP", "BRANCHES", "OFFLINE", "FREE", "WARNINGS"]);
    for (pool, free) in pools {
        let offline = pool.branches.iter().filter(|branch| branch.state != BranchState::Online).count();
        let mark = if pool.detached { " (detached)" } else { "" };
        table.add_row([
            format!("{}{mark}", visible_path(&pool.mount)),
            uptime(pool),
            pool.branches.len().to_string(),
            offline.to_string(),
            free.map_or_else(|| "?".to_owned(), |free| free.to_string()),
            pool.warnings.len().to_string(),
        ]);
    }
    for column in 2..6 {
        align_right(&mut table, column);
    }
    lines(&table) + "\n`umbrella status POOL` shows one.\n"
}

/// What became of a tree that was detached while files in it were open.
pub(crate) fn detached(status: &Status) -> String {
    format!(
        "{} is detached: nothing new can be opened there; files still open: {}; process {} ends when they are closed and no program \
         works in the tree",
        visible_path(&status.mount),
        status.open_files,
        status.pid,
    )
}

/// What a pool is of which the mount is gone and the daemon not yet.
pub(crate) fn ending(mount: &Path, pid: Option<u32>) -> String {
    let process = pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
    format!("{} is unmounted; its daemon{process} finishes its work and then ends by itself", visible_path(mount))
}

fn uptime(status: &Status) -> String {
    format_duration(std::time::Duration::from_secs(status.uptime.as_secs()))
}

/// A walk through the tree: its kind, its reason and its progress.
fn walk(walk: &WalkStatus) -> String {
    let why = match (walk.purpose, &walk.branch) {
        (Purpose::Asked, _) if walk.dry_run => "a dry run of `umbrella enforce`".to_owned(),
        (Purpose::Asked, _) => "`umbrella enforce`".to_owned(),
        (Purpose::Schedule, _) => "the enforcer, in its hours".to_owned(),
        (Purpose::Recovery, _) => "the enforcer, because the last mount did not end cleanly".to_owned(),
        (Purpose::Renamed, _) => "the enforcer, because names changed".to_owned(),
        (Purpose::Drain, Some(branch)) => format!("the drain of branch {}", quoted(branch)),
        (Purpose::Drain, None) => "a drain".to_owned(),
        (Purpose::Balance, _) => "`umbrella balance`".to_owned(),
    };
    let Progress { files_seen, files_moved, bytes_moved, current, .. } = &walk.progress;
    let (seen, moved) = (count(*files_seen, "file"), count(*files_moved, "file"));
    format!("walking: {why}; {seen} looked at, {moved} ({bytes_moved}) moved, now at {}", visible(current))
}

/// How many files are warm, and what moved for that.
fn heat(heat: &HeatStatus) -> String {
    let mut text = format!("heat: opens of {} are counted", count(heat.files, "file"));
    if let Some(warm) = heat.warm {
        let _ = write!(text, ", {warm} of them warm");
    }
    if heat.files_promoted > 0 {
        let _ = write!(
            text,
            "; {} ({}) came because they were warm",
            count(heat.files_promoted, "file"),
            heat.bytes_promoted
        );
    }
    if heat.files_evicted > 0 {
        let _ = write!(text, "; {} ({}) left as the coldest", count(heat.files_evicted, "file"), heat.bytes_evicted);
    }
    text
}

/// What waits in memory. `None` where nothing does, and nothing was to since the mount.
fn staging(area: &StagingStatus) -> Option<String> {
    let is_full = area.limit < area.max_file;
    let is_unused = area.mode != StagingMode::Always && area.files_staged == 0 && !is_full;
    if area.files == 0 && (is_unused || !area.accepts) {
        return None;
    }
    let files = count(area.files, "file");
    if !area.accepts {
        let left =
            format!("staging: {files} ({}) of an earlier configuration, on the way to their branches", area.used);
        return Some(left);
    }
    let age = area.max_age.map_or_else(|| "of any age".to_owned(), |age| format!("for {}", format_duration(age)));
    let mut text =
        format!("staging: {files} ({} of at most {}), up to {} each, {age}", area.used, area.limit, area.max_file);
    let since_mount = [(area.files_staged, "came"), (area.files_left, "left"), (area.files_deleted, "deleted before")];
    let since_mount = since_mount.iter().filter(|(number, _)| *number > 0);
    for (place, (number, what)) in since_mount.enumerate() {
        let _ = write!(text, "{} {number} {what}", if place == 0 { ";" } else { "," });
    }
    if is_full {
        text.push_str("; no more files are staged until memory has room for a file of that size");
    }
    Some(text)
}

/// Branches with their space, and below the table why one is not in use.
pub(crate) fn branches(branches: &[BranchStatus]) -> String {
    let mut table =
        new_table(&["BRANCH", "STATE", "USED", "FREE", "SIZE", "MIN FREE", "IN", "OUT", "TYPE", "LACKS", "PATH"]);
    for branch in branches {
        table.add_row([
            visible(&branch.name),
            state(branch),
            usage_bar(branch.total, branch.free),
            branch.free.to_string(),
            branch.total.to_string(),
            branch.min_free.to_string(),
            branch.files_moved_in.to_string(),
            branch.files_moved_out.to_string(),
            visible(&branch.fs_type),
            missing_abilities(branch),
            visible_path(&branch.path),
        ]);
    }
    for column in [3, 4, 5, 6, 7] {
        align_right(&mut table, column);
    }
    let mut text = lines(&table);
    for branch in branches {
        if let BranchState::Offline { reason, .. } = &branch.state {
            let _ = writeln!(text, "branch {} is offline: {}", quoted(&branch.name), visible(reason));
        }
    }
    text
}

/// Rules in order, with how often each decided.
fn rules(rules: &[RuleStatus]) -> String {
    let mut table = new_table(&["RULE", "TO", "HITS", ""]);
    for rule in rules {
        table.add_row([
            visible(&rule.name),
            visible(&rule.to.join(", ")),
            rule.hits.to_string(),
            rule.inactive.as_ref().map(|why| format!("inactive: {}", visible(why))).unwrap_or_default(),
        ]);
    }
    align_right(&mut table, 2);
    lines(&table)
}

/// Where a file is, where it belongs, and why.
pub(crate) fn explanation(explanation: &Explanation) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{}", visible(&explanation.path));
    let mut fact = |name: &str, value: &str| {
        let _ = writeln!(text, "  {name:<12}{}", visible(value));
    };
    match (explanation.exists, explanation.on.as_slice()) {
        // What is supposed has facts.
        (false, _) if !explanation.facts.is_empty() => {
            fact("is on", "no branch: the file is hypothetical (--what-if); a real file of this name is ignored");
        }
        (false, _) if explanation.belongs.is_none() => fact("is on", "no branch: the file does not exist"),
        (false, _) => {
            fact("is on", "no branch: the file does not exist (a new file of this name would go to the branch shown)");
        }
        (true, []) => fact("is on", "no branch that is online"),
        (true, on) => fact("is on", &on.join(", ")),
    }
    for branch in &explanation.may_be_on {
        fact("but", &format!("branch {branch} is offline and may hold it"));
    }
    // No rule refers to a directory: it is where something below it is.
    if !explanation.rule.is_empty() {
        fact(
            "belongs on",
            explanation
                .belongs
                .as_deref()
                .unwrap_or("no branch: all that its rule allows are full, or take no new files"),
        );
        fact(
            "decided by",
            &if explanation.rule == "default" { "the default list".to_owned() } else { quoted(&explanation.rule) },
        );
    }
    fact("next", &explanation.outcome);
    if !explanation.duplicates.is_empty() {
        fact("also on", &format!("{} (of the same name; the newest is used)", explanation.duplicates.join(", ")));
    }
    if !explanation.steps.is_empty() {
        let _ = writeln!(text, "\n  rules, in order");
        for (index, step) in explanation.steps.iter().enumerate() {
            let verdict = if step.matched { "yes" } else { "no" };
            let _ =
                writeln!(text, "  {:>3}. {verdict:<4}{}: {}", index + 1, visible(&step.rule), visible(&step.reason));
            for part in &step.parts {
                let holds = part.holds.map_or("unknown", |holds| if holds { "yes" } else { "no" });
                let _ =
                    writeln!(text, "       {:indent$}{holds:<8}{}", "", visible(&part.text), indent = part.depth * 2);
            }
        }
    }
    if !explanation.facts.is_empty() {
        let _ = writeln!(text, "\n  what is known about the file");
        let width = explanation.facts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).min(24);
        for (name, value) in &explanation.facts {
            let _ = writeln!(text, "  {:<width$}  {}", visible(name), visible(value));
        }
    }
    text
}

/// What moved a file: a rule, or the default list.
pub(crate) fn moved_by(rule: &str) -> String {
    if rule == "default" { "default list".to_owned() } else { format!("rule {}", quoted(rule)) }
}

/// A line for each file of a walk. They are shown as they come, so the columns are as wide as the names until then.
#[derive(Debug, Default)]
pub(crate) struct MoveLines {
    branches_width: usize,
}

impl MoveLines {
    /// One file, and what moves it.
    pub(crate) fn line(&mut self, event: &MoveEvent, by: &str) -> String {
        let outcome = match event.outcome {
            MoveOutcome::Moved => "moved",
            MoveOutcome::WouldMove => "would move",
            MoveOutcome::Busy => "busy",
            MoveOutcome::Failed => "failed",
            MoveOutcome::NoRoom => "no room",
        };
        let detail = event.detail.as_ref().map(|detail| format!(": {}", visible(detail))).unwrap_or_default();
        let to = if event.to.is_empty() { String::new() } else { format!(" -> {}", visible(&event.to)) };
        let branches = format!("{}{to}", visible(&event.from));
        self.branches_width = self.branches_width.max(branches.chars().count());
        format!(
            "{outcome:<10}  {branches:<width$}  {:>9}  {}  ({by}){detail}",
            event.size.to_string(),
            visible(&event.path),
            width = self.branches_width,
        )
    }
}

/// The totals of a walk, in one line.
pub(crate) fn summary(summary: &EnforceSummary, dry_run: bool) -> String {
    let mut text = format!(
        "{} looked at, {} ({}) {}",
        count(summary.files_seen, "file"),
        count(summary.files_moved, "file"),
        summary.bytes_moved,
        if dry_run { "would move" } else { "moved" },
    );
    for (number, what) in [
        (summary.files_busy, "busy"),
        (summary.files_failed, "failed"),
        (summary.files_no_room, "without room on their branches"),
    ] {
        if number > 0 {
            let _ = write!(text, ", {number} {what}");
        }
    }
    if summary.stopped {
        text.push_str("; stopped before the end");
        if summary.files_left > 0 {
            let _ = write!(text, ", {} found but not yet moved", count(summary.files_left, "file"));
        }
        text.push_str("; run the same command again to continue");
    }
    text
}

/// Which members a balance evened out, and its totals.
///
/// `within`: how far apart used shares may be, in thousandths of a percent.
pub(crate) fn balance(summary: &BalanceSummary, dry_run: bool, within: u32) -> String {
    let used_after = if dry_run { "USED THEN" } else { "USED NOW" };
    let mut table = new_table(&["BRANCH", "SIZE", "USED BEFORE", "", used_after, ""]);
    let percent = |used: ByteSize, member: &MemberShare| used.0 as f64 * 100.0 / member.size.0.max(1) as f64;
    for member in &summary.members {
        table.add_row([
            visible(&member.branch),
            member.size.to_string(),
            member.used.to_string(),
            format!("{:.1}%", percent(member.used, member)),
            member.used_after.to_string(),
            format!("{:.1}%", percent(member.used_after, member)),
        ]);
    }
    (1..=5).for_each(|column| align_right(&mut table, column));
    let shares: Vec<f64> = summary.members.iter().map(|member| percent(member.used_after, member)).collect();
    let apart = shares.iter().copied().fold(0.0, f64::max) - shares.iter().copied().fold(100.0, f64::min);
    let wanted = f64::from(within) / 1000.0;
    let is_whole = !summary.stopped && summary.files_busy + summary.files_failed + summary.files_no_room == 0;
    let uneven = if is_whole && apart > wanted + 0.05 {
        format!(
            "still {apart:.1}% apart, not {wanted}%: no move that is left would bring them closer (what is kept together moves as a whole)\n"
        )
    } else {
        String::new()
    };
    let walk = EnforceSummary {
        files_seen: summary.files_seen,
        files_moved: summary.files_moved,
        bytes_moved: summary.bytes_moved,
        files_busy: summary.files_busy,
        files_failed: summary.files_failed,
        files_no_room: summary.files_no_room,
        stopped: summary.stopped,
        files_left: summary.files_left,
    };
    let left = summary.bytes_planned.0.saturating_sub(summary.bytes_moved.0);
    let left = if summary.stopped && left > 0 {
        format!("{} of {} are left to move\n", ByteSize(left), summary.bytes_planned)
    } else {
        String::new()
    };
    format!("{}{}\n{left}{uneven}", lines(&table), self::summary(&walk, dry_run))
}

/// A directory whose copies differ, in one line.
pub(crate) fn directory_event(event: &DirectoryEvent) -> String {
    let rights = |rights: &CopyRights| {
        let acl = if rights.acl { " with an ACL" } else { "" };
        format!("{:04o} {}:{}{acl}", rights.mode, rights.uid, rights.gid)
    };
    let copies: Vec<String> =
        event.copies.iter().map(|copy| format!("{} {}", visible(&copy.branch), rights(copy))).collect();
    let outcome = match event.outcome {
        EqualiseOutcome::Differs => "differs",
        EqualiseOutcome::Equalised => "made equal",
        EqualiseOutcome::Failed => "failed",
    };
    let detail = event.detail.as_ref().map(|detail| format!(": {}", visible(detail))).unwrap_or_default();
    let (copies, what) = (copies.join(", "), acl_difference(&event.copies));
    format!("{outcome:<10} {}  {copies}{what} -> {}{detail}", visible(&event.path), rights(&event.to))
}

/// What differs, where modes and owners are the same and all copies have ACLs.
fn acl_difference(copies: &[CopyRights]) -> &'static str {
    let mut seen = copies.iter().map(|copy| (copy.mode, copy.uid, copy.gid, copy.acl));
    let first = seen.next().filter(|(.., acl)| *acl);
    if first.is_some() && seen.all(|copy| Some(copy) == first) { "; the ACLs differ" } else { "" }
}

/// The totals of `umbrella repair --equalise`, in one line.
pub(crate) fn equalised(summary: &EqualiseSummary, dry_run: bool) -> String {
    let mut text = format!(
        "{} looked at, {} with copies that differ",
        directories(summary.directories_seen),
        summary.directories_differing
    );
    if !dry_run {
        let _ = write!(text, ", {} made equal", summary.directories_equalised);
    }
    if summary.directories_without_model > 0 {
        let count = summary.directories_without_model;
        let _ = write!(text, ", {count} that differ and are not on the branch of --like (left unchanged)");
    }
    if summary.directories_failed > 0 {
        let _ = write!(text, ", {} failed", summary.directories_failed);
    }
    if summary.stopped {
        text.push_str("; stopped before the end");
    }
    text
}

fn directories(count: u64) -> String {
    if count == 1 { "1 directory".to_owned() } else { format!("{count} directories") }
}

fn state(branch: &BranchStatus) -> String {
    let mut words = vec![match branch.state {
        BranchState::Online => "online",
        BranchState::Offline { .. } => "OFFLINE",
    }];
    if branch.failing {
        words.push("FAILING");
    }
    if branch.state == BranchState::Online && branch.total.0 > 0 && branch.free.0 == 0 {
        words.push("full");
    }
    if branch.draining {
        words.push("draining");
    }
    if branch.read_only {
        words.push("read-only");
    }
    if branch.hide && branch.state == BranchState::Online {
        words.push(if branch.covered { "hidden" } else { "NOT HIDDEN" });
    }
    if !branch.create {
        words.push("no new files");
    }
    if branch.max_files.zip(branch.files_used).is_some_and(|(most, used)| used >= most) {
        words.push("max_files reached");
    }
    words.join(", ")
}

/// `[####......]  42%`
fn usage_bar(total: ByteSize, free: ByteSize) -> String {
    let used = total.0.saturating_sub(free.0);
    let percent = u64::try_from(u128::from(used) * 100 / u128::from(total.0.max(1))).unwrap_or(100).min(100);
    let filled = (percent * BAR_WIDTH).div_ceil(100);
    let bar: String = (0..BAR_WIDTH).map(|cell| if cell < filled { '#' } else { '.' }).collect();
    format!("[{bar}] {percent:>3}%")
}

/// Abilities that the branch's file system lacks. Empty for an offline branch, whose abilities are unknown.
fn missing_abilities(branch: &BranchStatus) -> String {
    if branch.state != BranchState::Online {
        return "?".to_owned();
    }
    let Abilities {
        xattr,
        acl,
        holes,
        hard_links,
        symlinks,
        ownership,
        special_files,
        nanoseconds,
        tmpfile,
        passthrough,
        rename_flags,
    } = branch.abilities;
    let abilities = [
        (xattr, "xattr"),
        (acl, "acl"),
        (holes, "holes"),
        (hard_links, "hard links"),
        (symlinks, "symlinks"),
        (ownership, "ownership"),
        (special_files, "special files"),
        (nanoseconds, "nanoseconds"),
        (tmpfile, "tmpfile"),
        (passthrough, "passthrough"),
        (rename_flags, "rename flags"),
    ];
    let missing: Vec<&str> = abilities.iter().filter(|(has, _)| !has).map(|(_, name)| *name).collect();
    if missing.is_empty() { "-".to_owned() } else { missing.join(", ") }
}

fn new_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(header);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

fn align_right(table: &mut Table, column: usize) {
    if let Some(column) = table.column_mut(column) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

/// The table without blanks at the ends of lines.
fn lines(table: &Table) -> String {
    table.lines().fold(String::new(), |text, line| text + line.trim_end() + "\n")
}

#[cfg(test)]
mod tests;
