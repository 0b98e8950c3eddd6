//! Values of the lab's options, and messages for text that is not a value.

use std::ops::RangeInclusive;

use umbrella_units::{Nanos, parse_duration};

/// How long a page may be dirty.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expire(pub(super) Option<Nanos>);

/// A whole number.
pub(in crate::commands) fn whole(allowed: RangeInclusive<u32>) -> impl Fn(&str) -> Result<u32, String> + Clone {
    number_of("number", allowed)
}

/// A share in percent, without the sign.
pub(super) fn percent(allowed: RangeInclusive<u32>) -> impl Fn(&str) -> Result<u32, String> + Clone {
    number_of("number of percent (without %)", allowed)
}

/// A number of pages.
pub(super) fn pages(allowed: RangeInclusive<u32>) -> impl Fn(&str) -> Result<u32, String> + Clone {
    number_of("number of pages of 4 KiB", allowed)
}

fn number_of(what: &'static str, allowed: RangeInclusive<u32>) -> impl Fn(&str) -> Result<u32, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| allowed.contains(number));
        number.ok_or_else(|| format!("give a whole {what} from {} to {}", allowed.start(), allowed.end()))
    }
}

/// How many runs are active at a time: one a processor, if nothing else was said.
pub(in crate::commands) fn threads(given: Option<u32>) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    given.map_or_else(processors, |threads| threads as usize)
}

pub(super) fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("give a whole number from 0 to {}", u64::MAX))
}

/// A name of which only one is given at a time.
pub(in crate::commands) fn one_name(text: &str) -> Result<String, String> {
    match text.split_once(',') {
        Some(_) => Err(format!("one at a time (for several: --sweep disk={text}, and so --sweep scheduler=…)")),
        None => Ok(text.to_owned()),
    }
}

pub(super) fn share(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| "give a number such as 0.1, which is a tenth".to_owned())
}

pub(super) fn expire(text: &str) -> Result<Expire, String> {
    if text == "never" {
        return Ok(Expire(None));
    }
    let after = parse_duration(text).map_err(|error| format!("{error}; or never"))?;
    Ok(Expire(Some(Nanos(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX)))))
}
