//! Requests to a pool over its control socket: which part of the pool answers each.

use crate::admin::{Admin, Equalise, Reloaded};
use crate::branch::Branch;
use crate::control::protocol::{Answer, Progress, Request};
use crate::error::Error;
use crate::migrate::{Balance, WalkOptions};
use crate::spec::BranchSpec;

impl Admin {
    /// Carries out a request; of an unmount all but that itself.
    pub(crate) fn answer(
        &self,
        request: Request,
        mut tell: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Answer, Error> {
        let bandwidth_or_usual = |bandwidth: Option<_>| bandwidth.or_else(|| self.context.settings().enforce.bandwidth);
        let done = match request {
            Request::Status => return Ok(Answer::Status(Box::new(self.status()))),
            Request::Explain { path } => return Ok(Answer::Explain(Box::new(self.explain(&path)?))),
            Request::WhatIf { file } => return Ok(Answer::Explain(Box::new(self.what_if(&file)))),
            Request::Enforce { dry_run, bandwidth } => {
                let walk = WalkOptions { dry_run, bandwidth: bandwidth_or_usual(bandwidth), ..WalkOptions::default() };
                return Ok(Answer::Enforce(self.migrate.enforce(walk, &mut tell)));
            }
            Request::Balance { group, within, dry_run, bandwidth } => {
                let balance = Balance { group, within, dry_run, bandwidth: bandwidth_or_usual(bandwidth) };
                return Ok(Answer::Balanced(self.migrate.balance(&balance, &mut tell)?));
            }
            Request::Equalise { path, like, dry_run } => {
                return Ok(Answer::Equalised(self.make_equal(&Equalise { path, like, dry_run }, &mut tell)?));
            }
            Request::BranchList => return Ok(Answer::Branches { branches: self.branch_statuses() }),
            Request::BranchDrain { name } => return Ok(Answer::Enforce(self.migrate.drain(&name, &mut tell)?)),
            Request::WriteBackShow { branch } => {
                return Ok(Answer::WriteBack { branches: self.write_back.write_back(branch.as_deref())? });
            }
            Request::RulesReload { spec, dry_run } => {
                let Reloaded { changes, not_in_force } = self.reload(*spec, dry_run)?;
                return Ok(Answer::Reloaded { changes, not_in_force });
            }
            Request::BranchAdd { branch, to_default, to_group } => self.add_to(branch, to_default, to_group.as_deref()),
            Request::BranchRemove { name, force } => self.remove_branch(&name, force),
            Request::BranchReplace { name, path, force } => {
                self.replace_branch(&name, path, force).inspect(|()| self.migrate.clear_pauses())
            }
            Request::BranchDrainStop { name } => self.migrate.stop_drain(&name),
            Request::BranchClearErrors { name } => self.clear_errors(&name),
            Request::WriteBackSet { branch, write_back } => self.write_back.set_write_back(&branch, write_back),
            Request::WriteBackRecord { branch, file, most } => {
                self.write_back.record_write_back(&branch, file.as_deref(), most)
            }
            Request::Sync => return self.sync(),
            Request::Unmount { keep_staged } => self.empty_staging(keep_staged),
        };
        done.map(|()| Answer::Ok)
    }

    /// Makes everything durable, and says which branches are not there.
    fn sync(&self) -> Result<Answer, Error> {
        self.io.sync_all().map_err(Error::Sync)?;
        let lost = self.branches.names_of(Branch::may_have_lost);
        if lost.is_empty() {
            Ok(Answer::Synced { offline: self.branches.names_of(|branch| !branch.is_online()) })
        } else {
            Err(Error::Unsynced { branches: lost })
        }
    }

    /// Takes a branch in, and appends it to lists.
    fn add_to(&self, branch: BranchSpec, to_default: bool, to_group: Option<&str>) -> Result<(), Error> {
        let name = branch.name.clone();
        if let Some(group) = to_group {
            self.placement.may_join(&name, group)?;
        }
        self.add_branch(branch)?;
        if let Some(group) = to_group {
            self.placement.append_to_group(&name, group)?;
        }
        if to_default {
            self.placement.append_to_default(&name)?;
        }
        self.migrate.clear_pauses();
        Ok(())
    }
}
