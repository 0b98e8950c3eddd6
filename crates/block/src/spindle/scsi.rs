//! SCSI disks: START STOP UNIT of SBC-3 and REQUEST SENSE of SPC-4.
//!
//! - Asking is REQUEST SENSE, which wakes nothing and tells the power condition.
//! - Going to sleep is SYNCHRONIZE CACHE and START STOP UNIT with the power condition "standby": unlike a stopped disk,
//!   one in standby wakes up by itself when it is accessed.
//! - Waking up is START STOP UNIT with "start", which is answered when the disk is ready.

use std::sync::Arc;
use std::time::Duration;

use super::sense::Sense;
use super::sg::{CommandError, Transport, run};
use super::{Power, Spindle, refused};
use crate::error::BlockError;

/// Sense data come back as descriptors, at most 252 bytes of them.
const REQUEST_SENSE: [u8; 6] = [0x03, 0x01, 0, 0, 252, 0];
/// For the whole disk; it returns when it is done.
const SYNCHRONIZE_CACHE: [u8; 10] = [0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// Power condition 3, in the upper half of byte 4: standby.
const STANDBY: [u8; 6] = [0x1b, 0, 0, 0, 0x30, 0];
/// Start, bit 0 of byte 4.
const START: [u8; 6] = [0x1b, 0, 0, 0, 0x01, 0];

const ASKING: Duration = Duration::from_secs(30);
const TURNING: Duration = Duration::from_secs(90);

/// What sense data say of the motor, if anything.
fn power_of(sense: Sense) -> Option<Power> {
    match (sense.key, sense.code) {
        // Nothing to say; idle in any of its levels, by a timer or by a command.
        (0, (0x00, 0x00) | (0x5e, 0x01 | 0x03 | 0x05..=0x08)) => Some(Power::Spinning),
        // Standby or its first level, likewise. Or stopped: to be started by a command, or when the enclosure allows
        // it.
        (0, (0x5e, 0x02 | 0x04 | 0x09 | 0x0a)) | (Sense::NOT_READY, (0x04, 0x02 | 0x11)) => Some(Power::Standby),
        // Becoming ready; a start or stop is under way.
        (Sense::NOT_READY, (0x04, 0x01 | 0x1a)) => Some(Power::Changing),
        _ => None,
    }
}

/// A SCSI disk.
pub(super) struct ScsiDisk {
    name: Arc<str>,
    transport: Box<dyn Transport>,
}

impl ScsiDisk {
    pub(super) fn new(name: Arc<str>, transport: Box<dyn Transport>) -> ScsiDisk {
        ScsiDisk { name, transport }
    }

    fn send(&self, command: &[u8], timeout: Duration) -> Result<(), CommandError> {
        run(&*self.transport, command, &mut [], timeout).map(|_| ())
    }

    fn query_power(&self) -> Result<Power, CommandError> {
        let mut data = [0; 252];
        run(&*self.transport, &REQUEST_SENSE, &mut data, ASKING)?;
        let sense = Sense::parse(&data).ok_or(CommandError::NoAnswer { command: REQUEST_SENSE[0] })?;
        power_of(sense).ok_or(CommandError::Sense { command: REQUEST_SENSE[0], sense })
    }

    fn sleep(&self) -> Result<(), CommandError> {
        if self.query_power()? == Power::Standby {
            return Ok(());
        }
        self.send(&SYNCHRONIZE_CACHE, TURNING)?;
        self.send(&STANDBY, TURNING)
    }
}

impl Spindle for ScsiDisk {
    fn standby(&self) -> Result<(), BlockError> {
        self.sleep().map_err(refused(&self.name))
    }

    fn wake(&self) -> Result<(), BlockError> {
        self.send(&START, TURNING).map_err(refused(&self.name))
    }

    fn power(&self) -> Result<Power, BlockError> {
        self.query_power().map_err(refused(&self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::super::sg::Reply;
    use super::super::testing::{Script, sense};
    use super::*;

    fn disk(said: impl IntoIterator<Item = Vec<u8>>) -> (ScsiDisk, Script) {
        let script = Script::with_data(said.into_iter().map(|data| (Reply::default(), data)));
        (ScsiDisk::new("/dev/sdb".into(), Box::new(script.clone())), script)
    }

    #[test]
    fn sense_data_say_what_the_motor_does() {
        for (key, code, qualifier, power) in [
            (0, 0, 0, Some(Power::Spinning)),
            (0, 0x5e, 0x01, Some(Power::Spinning)),
            (0, 0x5e, 0x02, Some(Power::Standby)),
            (0, 0x5e, 0x03, Some(Power::Spinning)),
            (0, 0x5e, 0x04, Some(Power::Standby)),
            (0, 0x5e, 0x06, Some(Power::Spinning)),
            (0, 0x5e, 0x09, Some(Power::Standby)),
            (0, 0x5e, 0x0a, Some(Power::Standby)),
            (2, 0x04, 0x01, Some(Power::Changing)),
            (2, 0x04, 0x02, Some(Power::Standby)),
            (2, 0x04, 0x11, Some(Power::Standby)),
            (2, 0x04, 0x1a, Some(Power::Changing)),
            (0, 0x5e, 0x00, None),
            (2, 0x3a, 0x00, None),
            (4, 0x44, 0x00, None),
        ] {
            let descriptor = vec![0x72, key, code, qualifier, 0, 0, 0, 0];
            for data in [descriptor, sense(key, code, qualifier)] {
                let (disk, script) = disk([data]);
                assert_eq!(disk.power().ok(), power, "{key:#x} {code:#x}/{qualifier:#x}");
                assert_eq!(script.commands(), [[0x03, 0x01, 0, 0, 252, 0]], "nothing else is sent");
            }
        }
    }

    #[test]
    fn a_disk_that_says_nothing_is_an_error() {
        let (disk, _) = disk([vec![0; 252]]);
        let error = disk.power().expect_err("it says nothing").to_string();
        assert_eq!(error, "/dev/sdb: power management failed: command 0x03 got an unexpected answer");
    }

    #[test]
    fn a_disk_that_turns_is_flushed_and_put_into_standby_from_which_it_wakes_by_itself() {
        let (disk, script) = disk([sense(0, 0, 0), vec![], vec![]]);
        disk.standby().expect("it sleeps");
        let commands: [&[u8]; 3] = [&REQUEST_SENSE, &[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[0x1b, 0, 0, 0, 0x30, 0]];
        assert_eq!(script.commands(), commands);
    }

    #[test]
    fn a_disk_that_sleeps_is_left_alone() {
        let (disk, script) = disk([sense(0, 0x5e, 0x04)]);
        disk.standby().expect("it sleeps");
        assert_eq!(script.commands(), [REQUEST_SENSE]);
    }

    #[test]
    fn a_disk_is_woken_by_being_started() {
        let (disk, script) = disk([vec![]]);
        disk.wake().expect("it wakes up");
        assert_eq!(script.commands(), [[0x1b, 0, 0, 0, 0x01, 0]]);
    }
}
