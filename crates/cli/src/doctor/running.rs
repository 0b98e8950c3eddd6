//! What the daemon of a mounted pool says of itself.

use umbrella_fs::control::protocol::{BranchState, Status};
use umbrella_fs::warning::NO_ROOM;

use super::Diagnostic;
use crate::advice::command;
use crate::text::{quoted, visible};

pub(crate) fn items(status: &Status) -> Vec<Diagnostic> {
    let mut items = Vec::new();
    for branch in &status.branches {
        let about = format!("branch {}", quoted(&branch.name));
        if let BranchState::Offline { reason, .. } = &branch.state {
            let text = format!("it is offline: {}", visible(reason));
            items.push(Diagnostic::problem(about.clone(), text).todo(
                "programs do not see its files until it is back; check its \
                    disk and mount",
            ));
        }
        if branch.failing {
            let drain = command(["branch", "drain", &branch.name]);
            let todo = format!("copy what you need, and replace the disk ({drain})");
            items.push(Diagnostic::problem(about, "its disk reports errors").todo(todo));
        }
    }
    let reason = status.transport.as_ref().and_then(|transport| transport.reason.as_ref());
    items.extend(
        reason.map(|reason| {
            Diagnostic::remark("requests", format!("they do not come over io_uring: {}", visible(reason)))
        }),
    );
    // The check of the configuration reports a branch that is not mounted.
    let warnings = status.warnings.iter().filter(|warning| !warning.contains(" is a plain directory, "));
    items.extend(warnings.map(|warning| {
        let text = visible(warning);
        if warning.starts_with(NO_ROOM) {
            Diagnostic::problem("pool", text).split()
        } else {
            Diagnostic::remark("pool", text)
        }
    }));
    items
}
