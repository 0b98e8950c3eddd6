//! Values that several tables of a disk have.

use toml::Spanned;
use umbrella_policy::flash_cache::Percent;

use crate::config::complaints::Complaints;
use crate::config::problem::Problem;
use crate::config::values::Scalar;

/// One of the words, or the default.
pub(super) fn word<T: std::str::FromStr + Default>(
    c: &mut Complaints,
    given: Option<&Spanned<String>>,
    words: &[&str],
) -> T {
    let Some(given) = given else { return T::default() };
    given.get_ref().parse().unwrap_or_else(|_| {
        let valid = words.iter().map(|&word| word.to_owned()).collect();
        c.fail(given.span(), Problem::UnknownValue { value: given.get_ref().clone(), valid });
        T::default()
    })
}

/// A share from 1 % to 100 %, or the default.
pub(super) fn percent(
    c: &mut Complaints,
    key: &'static str,
    given: Option<&Spanned<Scalar>>,
    default: Percent,
) -> Percent {
    let Some(given) = given else { return default };
    let text = given.get_ref().text();
    let number = text.trim().strip_suffix('%').and_then(|number| number.trim().parse().ok());
    if let Some(percent @ 1..=100) = number {
        return Percent(percent);
    }
    c.fail(given.span(), Problem::OutOfRange { key, given: text, valid: "a share from \"1%\" to \"100%\"" });
    default
}
