//! Where a file that does not exist would belong: `umbrella explain --what-if`, and `explain` for a path with nothing
//! there.

use std::fmt::Write as _;
use std::time::Duration;

use umbrella_policy::placement::{Choice, Decision, Explained, FileFacts, Stage, Xattr};
use umbrella_units::{ByteSize, Timestamp};

use super::report::steps_shown;
use crate::admin::Admin;
use crate::control::protocol::{Explanation, HypotheticalFile, bytes_unless_text};
use crate::ground::meta::now;

/// The permission bits of a file that says nothing of them.
const MODE: u32 = 0o644;

impl Admin {
    /// Where a file like this would belong: a new one when its size is not given, else one that was closed.
    pub(crate) fn what_if(&self, file: &HypotheticalFile) -> Explanation {
        let xattrs: Vec<Xattr> = file.xattrs.iter().map(xattr).collect();
        let settled = FileFacts { xattrs: Some(&xattrs), ..facts(file, now()) };
        let new =
            FileFacts { stage: Stage::New, size: ByteSize(0), occupied: ByteSize(0), xattrs: Some(&[]), ..settled };
        let active = self.placement.rules.load();
        let (views, around) = (self.placement.views(), self.placement.around(&active));
        // What waits in memory leaves it with its size.
        let area = self.staged.area().filter(|_| self.staged.takes_new_files());
        let waits = area.is_some_and(|area| self.placement.wait_by(&new, area).is_some());
        let new = if waits { new } else { self.placement.with_guess(new) };
        let asked =
            if file.size.is_some() { settled } else { FileFacts { stage: new.stage, size: new.size, ..settled } };
        let explained = active.rules.explain(&asked, &views, None, &around);
        let belongs = self.place_of(explained.decision);
        let begins = self.place_of(active.rules.decide(&new, &views, None, &around));
        let entry = active.rules.entries().get(explained.decision.entry.index());
        let mut outcome = outcome(file, &explained, begins.as_deref(), belongs.as_deref());
        if let Some(guess) = asked.guess_shown().filter(|_| active.rules.asks_for_size(explained.decision.entry)) {
            let _ = write!(outcome, ", if its size is {guess}");
        }
        Explanation {
            path: String::from_utf8_lossy(&file.path).into_owned(),
            path_bytes: bytes_unless_text(&file.path),
            exists: false,
            on: Vec::new(),
            belongs,
            rule: entry.map(|entry| entry.name.clone()).unwrap_or_default(),
            steps: steps_shown(explained.steps),
            facts: self.facts_shown(&asked),
            outcome: self.with_removed(outcome),
            duplicates: Vec::new(),
            may_be_on: Vec::new(),
        }
    }

    fn place_of(&self, decision: Decision) -> Option<String> {
        match decision.choice {
            Choice::Place(id) => Some(self.placement.branch_name(id)),
            Choice::Stay | Choice::NoRoom => None,
        }
    }
}

fn outcome(file: &HypotheticalFile, explained: &Explained, begins: Option<&str>, belongs: Option<&str>) -> String {
    let why = &explained.why;
    let (begins, belongs) = match (begins, belongs) {
        (_, None) if file.size.is_none() => {
            return format!("it does not exist, and no branch can take a new file of this name ({why})");
        }
        (Some(begins), None) => {
            return format!(
                "a file like this begins on {begins}; when it is closed, no branch of its list can take it ({why})"
            );
        }
        (None, None) => return format!("it finds no room: {why}"),
        (begins, Some(belongs)) => (begins.unwrap_or("no branch"), belongs),
    };
    match file.size {
        None => format!("it does not exist; a new file of this name begins on {belongs} ({why})"),
        Some(_) if begins == belongs => format!("a file like this begins and stays on {belongs} ({why})"),
        Some(size) => format!(
            "a file like this begins on {begins} and goes to {belongs} when it is closed, if its size is still {size} ({why})"
        ),
    }
}

fn xattr((name, value): (&String, &String)) -> Xattr {
    Xattr { name: name.as_str().into(), value: value.as_bytes().into() }
}

fn facts(file: &HypotheticalFile, now: Timestamp) -> FileFacts<'_> {
    let ago = |age: Option<Duration>| {
        let secs = age.map_or(0, |age| i64::try_from(age.as_secs()).unwrap_or(i64::MAX));
        Timestamp { secs: now.secs.saturating_sub(secs), ..now }
    };
    let size = file.size.unwrap_or_default();
    FileFacts {
        path: &file.path,
        kind: file.kind,
        size,
        occupied: size,
        uid: file.uid,
        gid: file.gid,
        mode: file.mode.unwrap_or(MODE) & 0o7777,
        links: file.links.unwrap_or(1),
        atime: ago(file.atime.or(file.mtime)),
        mtime: ago(file.mtime),
        ctime: ago(file.ctime.or(file.mtime)),
        btime: Some(ago(file.btime.or(file.mtime))),
        heat: file.heat.unwrap_or_default(),
        now,
        stage: Stage::Settled,
        xattrs: None,
    }
}

#[cfg(test)]
mod tests {
    use umbrella_policy::placement::EntryId;

    use super::*;

    #[test]
    fn a_file_that_no_branch_can_take_goes_nowhere() {
        let decision = Decision { choice: Choice::NoRoom, entry: EntryId(0) };
        let explained = Explained { decision, steps: Vec::new(), why: "full".to_owned(), is_first_choice: false };
        let new = HypotheticalFile::default();
        let closed = HypotheticalFile { size: Some(ByteSize(1 << 20)), ..HypotheticalFile::default() };
        assert_eq!(
            outcome(&new, &explained, None, None),
            "it does not exist, and no branch can take a new file of this name (full)"
        );
        assert_eq!(
            outcome(&closed, &explained, Some("hdd"), None),
            "a file like this begins on hdd; when it is closed, no branch of its list can take it (full)"
        );
        assert_eq!(outcome(&closed, &explained, None, None), "it finds no room: full");
    }
}
