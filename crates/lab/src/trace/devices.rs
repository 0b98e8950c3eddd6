//! The devices of a trace: numbered in the order in which they first appear, so that every format gives the same
//! numbers.

use rustc_hash::FxHashMap;

use super::problem::{Excerpt, MAX_DEVICES, Problem};

const LONGEST_NAME: usize = 255;

/// Names and numbers of a trace's devices.
#[derive(Debug, Clone, Default)]
pub struct Devices {
    names: Vec<Box<[u8]>>,
    numbers: FxHashMap<Box<[u8]>, u32>,
    last: u32,
}

impl Devices {
    /// The device's number: a new one for a new name.
    pub(super) fn number(&mut self, name: &[u8]) -> Result<u32, Problem> {
        if self.names.get(self.last as usize).is_some_and(|last| **last == *name) {
            return Ok(self.last);
        }
        if let Some(number) = self.numbers.get(name) {
            self.last = *number;
            return Ok(*number);
        }
        if name.is_empty() || name.len() > LONGEST_NAME {
            return Err(Problem::DeviceName { found: Excerpt::new(name) });
        }
        if self.names.len() >= MAX_DEVICES {
            return Err(Problem::TooManyDevices);
        }
        let number = self.names.len() as u32;
        self.names.push(name.into());
        self.numbers.insert(name.into(), number);
        self.last = number;
        Ok(number)
    }

    /// How many there are so far.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether none was seen yet.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The name of a device.
    pub fn name(&self, device: u32) -> Option<String> {
        self.names.get(device as usize).map(|name| String::from_utf8_lossy(name).into_owned())
    }
}
