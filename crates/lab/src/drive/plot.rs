//! One page with both curves.
use super::Validation;

/// The page.
pub fn page(_: &Validation) -> String {
    String::new()
}
