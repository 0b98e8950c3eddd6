//! What to do about an error or a warning, in commands. A library knows no commands, so the program registers a
//! function that does.

use std::error::Error;
use std::sync::OnceLock;

/// Says what to do about an error or a [`crate::warning::Warning`], if a command helps.
pub type Advice = fn(&(dyn Error + 'static)) -> Option<String>;

static ADVICE: OnceLock<Advice> = OnceLock::new();

/// Sets the source of advice for the log, the status and answers on the control socket. Only the first call counts.
pub fn set_advice(advice: Advice) {
    let _ = ADVICE.set(advice);
}

/// What is wrong, and what to do about it.
pub(crate) fn advised(error: &(dyn Error + 'static)) -> String {
    match ADVICE.get().and_then(|advice| advice(error)) {
        Some(advice) => format!("{error}; {advice}"),
        None => error.to_string(),
    }
}
