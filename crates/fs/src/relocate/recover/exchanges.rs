//! Exchanges over several branches that were cut short.

use std::os::fd::AsFd;

use super::super::beneath;
use super::super::commit::ParentTimes;
use super::super::exchange::{Presence, change_names};
use super::super::intent::ExchangeSite;
use super::super::{Fingerprint, Intent, RelocateError, Verdict};
use super::moves::present;
use super::{IntentOutcome, RecoverBranch, Recovering, Unsettled, show};

/// How far an exchange is on one branch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExchangeStage {
    Before,
    After,
    /// The names were used for something else, or it cannot be told.
    Unclear,
}

/// What is under two names, or was.
type FingerprintPair = (Option<Fingerprint>, Option<Fingerprint>);

impl Recovering<'_> {
    /// Goes on with the exchange if it has begun anywhere, or may have begun on a branch that is not there; takes it
    /// back if an intent says so.
    pub(super) fn settle_exchange(
        &mut self,
        one: &[u8],
        other: &[u8],
        sites: &[ExchangeSite],
        verdict: Verdict,
    ) -> Result<IntentOutcome, Unsettled> {
        let back = |site: &ExchangeSite| ExchangeSite { branch: site.branch, one: site.other, other: site.one };
        let is_back = verdict == Verdict::Undone;
        let mut waiting = Vec::new();
        let mut known = Vec::new();
        let mut begun = verdict != Verdict::Open;
        // The first ones are exchanged first, and taken back last: behind one that is as it was none is exchanged.
        let mut may_be = true;
        for site in sites.iter().map(|site| if is_back { back(site) } else { *site }) {
            if let Some(branch) = self.present(site.branch) {
                let now = (at(branch, one)?, at(branch, other)?);
                // Neither is there any more: nothing is left to exchange.
                if now == (None, None) {
                    continue;
                }
                let stands = stands(&site, now);
                begun |= stands == ExchangeStage::After;
                may_be &= stands != ExchangeStage::Before;
                known.push((site, branch, stands));
            } else {
                begun |= may_be;
                waiting.push(site);
            }
        }
        if !begun {
            return Ok(IntentOutcome::Undone);
        }
        for (site, branch, stands) in known {
            match stands {
                ExchangeStage::Before if !branch.writable => waiting.push(site),
                ExchangeStage::Before => self.resume(branch, one, other, &site)?,
                ExchangeStage::After => {}
                ExchangeStage::Unclear => self.warn(format!(
                    "branch {}: cannot tell whether {} and {} were exchanged; check both",
                    branch.uuid,
                    show(one),
                    show(other)
                )),
            }
            if branch.writable {
                for path in [one, other] {
                    if let Some(found) = beneath::find(branch.root, path)? {
                        ParentTimes::of([found.dir.as_fd()]).sync()?;
                    }
                }
            }
        }
        if waiting.is_empty() {
            return Ok(IntentOutcome::Finished);
        }
        let (one, other) = (one.to_vec(), other.to_vec());
        let (verdict, sites) = match verdict {
            Verdict::Undone => (verdict, waiting.iter().map(back).collect()),
            _ => (Verdict::Done, waiting),
        };
        Ok(IntentOutcome::Narrowed(Box::new(Intent::Exchange { one, other, sites, verdict })))
    }

    fn resume(
        &mut self,
        branch: &RecoverBranch<'_>,
        one: &[u8],
        other: &[u8],
        site: &ExchangeSite,
    ) -> Result<(), Unsettled> {
        let holds = match (site.one, site.other) {
            (Some(_), Some(_)) => Presence::Both,
            (Some(_), None) => Presence::One,
            _ => Presence::Other,
        };
        let (first, second) = (self.find_or_make(branch.root, one)?, self.find_or_make(branch.root, other)?);
        self.act()?;
        match change_names(first.place(), second.place(), holds) {
            Err(RelocateError::Taken) => {
                self.warn(format!("branch {}: {} and {} stay as they are", branch.uuid, show(one), show(other)));
                Ok(())
            }
            done => Ok(done?),
        }
    }
}

fn at(branch: &RecoverBranch<'_>, path: &[u8]) -> Result<Option<Fingerprint>, Unsettled> {
    Ok(present(branch.root, path)?.map(|(_, seen)| seen.print))
}

fn stands(site: &ExchangeSite, now: FingerprintPair) -> ExchangeStage {
    let then = (site.one, site.other);
    match stage_by(is_entry, now, then) {
        ExchangeStage::Unclear => {}
        clear => return clear,
    }
    match stage_by(is_like, now, then) {
        ExchangeStage::Unclear => {}
        clear => return clear,
    }
    // Where one of the two was, it says itself which name it has.
    match (now, then) {
        ((Some(_), None), (Some(_), None)) | ((None, Some(_)), (None, Some(_))) => ExchangeStage::Before,
        ((None, Some(_)), (Some(_), None)) | ((Some(_), None), (None, Some(_))) => ExchangeStage::After,
        _ => ExchangeStage::Unclear,
    }
}

fn stage_by(
    same: impl Fn(&Fingerprint, &Fingerprint) -> bool,
    now: FingerprintPair,
    then: FingerprintPair,
) -> ExchangeStage {
    let same = |now: Option<Fingerprint>, then: Option<Fingerprint>| now.zip(then).is_some_and(|(a, b)| same(&a, &b));
    let kept = same(now.0, then.0) || same(now.1, then.1);
    let changed = same(now.0, then.1) || same(now.1, then.0);
    match (kept, changed) {
        (true, false) => ExchangeStage::Before,
        (false, true) => ExchangeStage::After,
        _ => ExchangeStage::Unclear,
    }
}

fn is_entry(now: &Fingerprint, then: &Fingerprint) -> bool {
    is_same_kind(now, then) && now.ino == then.ino
}

/// The same to all appearances but the inode number.
fn is_like(now: &Fingerprint, then: &Fingerprint) -> bool {
    is_same_kind(now, then) && now.btime.is_some() && now.mtime == then.mtime
}

fn is_same_kind(now: &Fingerprint, then: &Fingerprint) -> bool {
    now.file_type() == then.file_type() && now.btime == then.btime
}
