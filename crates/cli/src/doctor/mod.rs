//! What a machine and a pool lack, found by reading only, and what to do about each.
//!
//! `machine` looks at the kernel, limits and what dead daemons left, `branches` at how branches are mounted, `boot` at
//! units and fstab, `running` at a daemon's own account.

pub(crate) mod boot;
pub(crate) mod branches;
pub(crate) mod machine;
pub(crate) mod running;

use serde::Serialize;

/// How bad something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Severity {
    /// Files cannot be reached, or may be lost.
    Problem,
    /// It works, but slower than it could, or in a way that surprises.
    Remark,
}

/// Something to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Diagnostic {
    pub(crate) severity: Severity,
    /// What it is about: `kernel`, `branch "disk1"`.
    pub(crate) about: String,
    pub(crate) text: String,
    /// What to do.
    #[serde(rename = "do", skip_serializing_if = "Option::is_none")]
    pub(crate) todo: Option<String>,
}

impl Diagnostic {
    pub(crate) fn problem(about: impl Into<String>, text: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Problem, about: about.into(), text: text.into(), todo: None }
    }

    pub(crate) fn remark(about: impl Into<String>, text: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Remark, ..Diagnostic::problem(about, text) }
    }

    /// What to do is in the text, after its last semicolon.
    pub(crate) fn split(self) -> Diagnostic {
        match self.text.rsplit_once("; ") {
            Some((text, todo)) => Diagnostic { text: text.to_owned(), todo: Some(todo.to_owned()), ..self },
            None => self,
        }
    }

    pub(crate) fn todo(self, todo: impl Into<String>) -> Diagnostic {
        Diagnostic { todo: Some(todo.into()), ..self }
    }
}
