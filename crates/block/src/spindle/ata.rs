//! ATA disks, by ATA PASS-THROUGH(16) of SAT-3; the commands are those of ACS-3.
//!
//! - Asking is CHECK POWER MODE, which wakes nothing.
//! - Going to sleep is FLUSH CACHE EXT and STANDBY IMMEDIATE. A disk that sleeps already is left alone.
//! - Waking up is the verification of a sector: IDLE IMMEDIATE may be answered before the platters turn, this cannot
//!   be.

use std::sync::Arc;
use std::time::Duration;

use super::sense::{AtaRegisters, Sense};
use super::sg::{CommandError, Transport, run};
use super::{Power, Spindle, refused};
use crate::error::BlockError;

const ATA_PASS_THROUGH: u8 = 0x85;
/// No data is transferred; in bits 4 to 1 of byte 1.
const NON_DATA: u8 = 3 << 1;
/// The command's registers are 48-bit; bit 0 of byte 1.
const EXTEND: u8 = 1;
/// The registers are to come back; bit 5 of byte 2.
const CHECK_CONDITION: u8 = 1 << 5;
/// Addresses are sectors; bit 6 of the device register.
const LBA: u8 = 1 << 6;

const READ_VERIFY_SECTORS: u8 = 0x40;
const STANDBY_IMMEDIATE: u8 = 0xe0;
const CHECK_POWER_MODE: u8 = 0xe5;
const FLUSH_CACHE: u8 = 0xe7;
const FLUSH_CACHE_EXT: u8 = 0xea;

/// Asking takes no time, but a disk that is spinning up may let one wait.
const ASKING: Duration = Duration::from_secs(30);
/// Flushing, stopping and starting take their time.
const TURNING: Duration = Duration::from_secs(90);

/// The ATA error bits of a refused command: aborted.
const ABORTED: u8 = 1 << 2;
/// The ATA status bits of a failed command: error, device fault.
const FAILED: u8 = 1 | 1 << 5;

/// A command without data, in a SCSI command block.
fn pass_through(command: u8) -> [u8; 16] {
    let mut block = [0; 16];
    block[0] = ATA_PASS_THROUGH;
    block[1] = NON_DATA | if command == FLUSH_CACHE_EXT { EXTEND } else { 0 };
    block[14] = command;
    match command {
        CHECK_POWER_MODE => block[2] = CHECK_CONDITION,
        // The first sector of the disk.
        READ_VERIFY_SECTORS => (block[6], block[13]) = (1, LBA),
        _ => {}
    }
    block
}

/// What the count after CHECK POWER MODE means, if anything.
fn power_of(count: u8) -> Option<Power> {
    match count {
        // Standby; with its own levels; with its flash cache in front and the platters at rest.
        0x00 | 0x01 | 0x40 => Some(Power::Standby),
        // The flash cache in front, the platters turning; idle, with its own levels; active or idle.
        0x41 | 0x80..=0x83 | 0xff => Some(Power::Spinning),
        _ => None,
    }
}

/// An ATA disk.
pub(super) struct AtaDisk {
    name: Arc<str>,
    transport: Box<dyn Transport>,
}

impl AtaDisk {
    pub(super) fn new(name: Arc<str>, transport: Box<dyn Transport>) -> AtaDisk {
        AtaDisk { name, transport }
    }

    fn send(&self, command: u8, timeout: Duration) -> Result<Option<AtaRegisters>, CommandError> {
        let sense = run(&*self.transport, &pass_through(command), &mut [], timeout)?;
        match sense {
            Some(sense) if sense.ata.is_some_and(|ata| ata.status & FAILED != 0) => {
                Err(CommandError::Sense { command, sense })
            }
            sense => Ok(sense.and_then(|sense| sense.ata)),
        }
    }

    fn query_power(&self) -> Result<Power, CommandError> {
        let registers = self.send(CHECK_POWER_MODE, ASKING)?;
        registers.and_then(|ata| power_of(ata.count)).ok_or(CommandError::NoAnswer { command: CHECK_POWER_MODE })
    }

    fn flush(&self) -> Result<(), CommandError> {
        match self.send(FLUSH_CACHE_EXT, TURNING) {
            // Disks without 48-bit addresses know the older command only.
            Err(CommandError::Sense { sense, .. }) if is_unknown(sense) => self.send(FLUSH_CACHE, TURNING).map(|_| ()),
            flushed => flushed.map(|_| ()),
        }
    }

    fn sleep(&self) -> Result<(), CommandError> {
        // Bridges that do not pass the answer on let a disk sleep nonetheless.
        if let Ok(Power::Standby) = self.query_power() {
            return Ok(());
        }
        self.flush()?;
        self.send(STANDBY_IMMEDIATE, TURNING).map(|_| ())
    }
}

/// Whether the disk does not know the command.
fn is_unknown(sense: Sense) -> bool {
    matches!(sense.key, Sense::ABORTED | Sense::ILLEGAL_REQUEST)
        || sense.ata.is_some_and(|ata| ata.error & ABORTED != 0)
}

impl Spindle for AtaDisk {
    fn standby(&self) -> Result<(), BlockError> {
        self.sleep().map_err(refused(&self.name))
    }

    fn wake(&self) -> Result<(), BlockError> {
        self.send(READ_VERIFY_SECTORS, TURNING).map(|_| ()).map_err(refused(&self.name))
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

    const STANDBY: [u8; 16] = [0x85, 0x06, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xe0, 0];
    const CHECK: [u8; 16] = [0x85, 0x06, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xe5, 0];
    const FLUSH_EXT: [u8; 16] = [0x85, 0x07, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xea, 0];
    const FLUSH: [u8; 16] = [0x85, 0x06, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xe7, 0];
    const VERIFY: [u8; 16] = [0x85, 0x06, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x40, 0x40, 0];

    fn registers(count: u8, status: u8, error: u8) -> Reply {
        let header = [0x72, 0x01, 0x00, 0x1d, 0, 0, 0, 14];
        let descriptor = [0x09, 0x0c, 0x00, error, 0x00, count, 0, 0, 0, 0, 0, 0, 0x40, status];
        Reply { status: 2, host_status: 0, sense: [header.as_slice(), &descriptor].concat() }
    }

    fn disk(replies: impl IntoIterator<Item = Reply>) -> (AtaDisk, Script) {
        let script = Script::new(replies);
        (AtaDisk::new("/dev/sda".into(), Box::new(script.clone())), script)
    }

    #[test]
    fn commands_are_those_of_the_standards() {
        for (command, block) in [
            (STANDBY_IMMEDIATE, STANDBY),
            (CHECK_POWER_MODE, CHECK),
            (FLUSH_CACHE_EXT, FLUSH_EXT),
            (FLUSH_CACHE, FLUSH),
            (READ_VERIFY_SECTORS, VERIFY),
        ] {
            assert_eq!(pass_through(command), block, "{command:#x}");
        }
    }

    #[test]
    fn the_count_says_what_the_motor_does() {
        for (counts, power) in [
            (&[0x00, 0x01, 0x40][..], Some(Power::Standby)),
            (&[0x41, 0x80, 0x81, 0x82, 0x83, 0xff], Some(Power::Spinning)),
            (&[0x02, 0x3f, 0x42, 0x7f, 0x84, 0xfe], None),
        ] {
            for &count in counts {
                let (disk, script) = disk([registers(count, 0x50, 0)]);
                assert_eq!(disk.power().ok(), power, "{count:#x}");
                assert_eq!(script.commands(), [CHECK], "nothing else is sent");
            }
        }
    }

    #[test]
    fn a_bridge_that_returns_no_registers_is_an_error() {
        let (disk, _) = disk([Reply::default()]);
        let error = disk.power().expect_err("it says nothing").to_string();
        assert_eq!(error, "/dev/sda: power management failed: command 0xe5 got an unexpected answer");
    }

    #[test]
    fn a_disk_that_turns_is_flushed_and_stopped_and_so_is_one_that_does_not_tell() {
        for answer in [registers(0xff, 0x50, 0), Reply::default()] {
            let (disk, script) = disk([answer, Reply::default(), Reply::default()]);
            disk.standby().expect("it sleeps");
            assert_eq!(script.commands(), [CHECK, FLUSH_EXT, STANDBY]);
        }
    }

    #[test]
    fn a_disk_that_sleeps_is_left_alone() {
        let (disk, script) = disk([registers(0x00, 0x50, 0)]);
        disk.standby().expect("it sleeps");
        assert_eq!(script.commands(), [CHECK]);
    }

    #[test]
    fn a_disk_without_long_addresses_is_flushed_as_it_knows_it() {
        for unknown in [
            Reply { status: 2, host_status: 0, sense: sense(0x0b, 0, 0) },
            Reply { status: 2, host_status: 0, sense: sense(0x05, 0x20, 0) },
            registers(0, 0x51, 0x04),
        ] {
            let (disk, script) = disk([registers(0x80, 0x50, 0), unknown, Reply::default(), Reply::default()]);
            disk.standby().expect("it sleeps");
            assert_eq!(script.commands(), [CHECK, FLUSH_EXT, FLUSH, STANDBY]);
        }
    }

    #[test]
    fn a_disk_that_cannot_flush_is_not_stopped() {
        let medium_error = Reply { status: 2, host_status: 0, sense: sense(0x03, 0x0c, 0) };
        let (disk, script) = disk([registers(0xff, 0x50, 0), medium_error]);
        disk.standby().expect_err("its buffer cannot be written");
        assert_eq!(script.commands(), [CHECK, FLUSH_EXT]);
    }

    #[test]
    fn a_disk_is_woken_by_what_needs_its_platters() {
        let (disk, script) = disk([Reply::default()]);
        disk.wake().expect("it wakes up");
        assert_eq!(script.commands(), [VERIFY]);
    }
}
