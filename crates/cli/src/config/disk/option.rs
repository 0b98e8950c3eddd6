//! A device on the command line: a path, or a kind with its keys, `emulated:profile=modern,speed=10`.
//!
//! The text becomes the shape that a table of the file has, so that the same conversion reads both; places are those in
//! the text.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;

use super::convert::{self, KINDS};
use super::file::DeviceFile;
use super::spec::DeviceSpec;
use crate::config::complaints::Complaints;
use crate::config::problem::{ConfigErrors, Problem};
use crate::config::source::Source;
use crate::config::values::{Number, Scalar};
use crate::pool;

const KEYS: [&str; 5] = ["path", "size", "direct", "profile", "speed"];

/// Reads the text that the option `name` has. Paths may be relative.
pub(crate) fn device_option(name: &str, text: &str) -> Result<DeviceSpec, ConfigErrors> {
    let mut c = Complaints::new(Source::new(Path::new(name), text.as_bytes().to_vec())?);
    let file = Spanned::new(0..text.len(), shape(&mut c, text));
    let device = convert::device(&mut c, &file);
    let source = c.end()?;
    device.ok_or_else(|| ConfigErrors::one(source, Problem::MissingKey { key: "path".to_owned() }, 0..0))
}

fn shape(c: &mut Complaints, text: &str) -> DeviceFile {
    let (kind, keys) = text.split_once(':').unwrap_or((text, ""));
    // A path with a colon in it is still a path.
    let names_a_kind =
        KINDS.contains(&kind) || (keys.contains('=') && kind.bytes().all(|byte| byte.is_ascii_alphabetic()));
    if !names_a_kind {
        return DeviceFile { path: Some(path(0..text.len(), text)), ..DeviceFile::default() };
    }
    let mut file = DeviceFile { kind: Some(Spanned::new(0..kind.len(), kind.to_owned())), ..DeviceFile::default() };
    let mut at = kind.len() + 1;
    for part in keys.split(',') {
        let place = at..at + part.len();
        at = place.end + 1;
        if !part.is_empty() {
            key(c, &mut file, place, part);
        }
    }
    file
}

fn path(place: Range<usize>, path: &str) -> Spanned<String> {
    let absolute = pool::absolute(Path::new(path)).ok().and_then(|path| path.into_os_string().into_string().ok());
    Spanned::new(place, absolute.unwrap_or_else(|| path.to_owned()))
}

/// Reads `key=value`, which is at `place`.
fn key(c: &mut Complaints, file: &mut DeviceFile, place: Range<usize>, text: &str) {
    let Some((key, value)) = text.split_once('=') else {
        return c.fail(place, Problem::KeyWithoutValue { text: text.to_owned() });
    };
    let value_place = place.start + key.len() + 1..place.end;
    let scalar = || Spanned::new(value_place.clone(), Scalar::Text(value.to_owned()));
    let twice = match key {
        "path" => file.path.replace(path(value_place, value)).is_some(),
        "size" => file.size.replace(scalar()).is_some(),
        "profile" => file.profile.replace(Spanned::new(value_place, value.to_owned())).is_some(),
        "direct" => {
            let Ok(direct) = value.parse() else {
                let valid = ["true", "false"].map(str::to_owned).to_vec();
                return c.fail(value_place, Problem::UnknownValue { value: value.to_owned(), valid });
            };
            file.direct.replace(Spanned::new(value_place, direct)).is_some()
        }
        "speed" => {
            let Ok(speed) = value.parse() else {
                let (given, what, examples) = (value.to_owned(), "a number", "10 or 0.5");
                return c.fail(value_place, Problem::BadValue { key: "speed", given, what, examples });
            };
            file.speed.replace(Spanned::new(value_place, Number(speed))).is_some()
        }
        _ => {
            let valid = KEYS.map(str::to_owned).to_vec();
            return c.fail(place.start..place.start + key.len(), Problem::UnknownKey { key: key.to_owned(), valid });
        }
    };
    if twice {
        c.fail(place, Problem::KeyTwice { key: key.to_owned() });
    }
}
