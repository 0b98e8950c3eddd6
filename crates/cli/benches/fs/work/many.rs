//! One directory of many files, listed and removed by the programs that people use. Samples are seconds for all of it.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use anyhow::Result;

use super::files::{cold, create, warm};
use super::tree::seconds;
use super::{Lab, Samples};
use crate::system::Stack;

pub(crate) fn run(lab: &Lab, stack: &Stack, samples: &mut Samples) -> Result<()> {
    let place = stack.root().join("many");
    fs::create_dir(&place)?;
    for number in 0..lab.scaled(30_000) {
        create(&CString::new(place.join(format!("file{number:06}")).as_os_str().as_bytes())?, b"")?;
    }
    let list = || seconds(Command::new("ls").arg("-l").arg(&place));
    samples.push(("ls-l-cold", cold(stack, list)?));
    samples.push(("ls-l-warm", warm(list)?));
    stack.sync()?;
    samples.push(("rm-r", seconds(Command::new("rm").arg("-r").arg(&place))?));
    Ok(())
}
