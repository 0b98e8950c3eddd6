//! The way of a command to a disk: SG_IO.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use thiserror::Error;

use super::sense::Sense;

/// What came back for a command, before it is interpreted.
#[derive(Debug, Clone, Default)]
pub(super) struct Reply {
    /// The SCSI status.
    pub(super) status: u8,
    /// What the host adapter says; zero if nothing.
    pub(super) host_status: u16,
    /// Sense data, as far as there are any.
    pub(super) sense: Vec<u8>,
}

/// Brings commands to a disk.
pub(super) trait Transport: Send + Sync {
    /// Sends a command, and puts what the disk says into `data`.
    fn send(&self, command: &[u8], data: &mut [u8], timeout: Duration) -> io::Result<Reply>;
}

/// A command that was not carried out.
#[derive(Debug, Error)]
pub(super) enum CommandError {
    #[error(transparent)]
    System(#[from] io::Error),
    #[error("the disk cannot be reached (host status {status:#04x})")]
    Host { status: u16 },
    #[error("command {command:#04x} was refused (status {status:#04x})")]
    Status { command: u8, status: u8 },
    #[error("command {command:#04x} was refused (sense {:#x}, {:#04x}/{:#04x})", sense.key, sense.code.0, sense.code.1)]
    Sense { command: u8, sense: Sense },
    #[error("command {command:#04x} got an unexpected answer")]
    NoAnswer { command: u8 },
}

impl From<CommandError> for io::Error {
    fn from(error: CommandError) -> io::Error {
        match error {
            CommandError::System(error) => error,
            error => io::Error::other(error),
        }
    }
}

const GOOD: u8 = 0x00;
const CHECK_CONDITION: u8 = 0x02;

/// How often a command is tried that only met the news of a reset.
const TRIES: usize = 3;

/// Carries out a command; returns what the disk says of it, if anything.
pub(super) fn run(
    transport: &dyn Transport,
    command: &[u8],
    data: &mut [u8],
    timeout: Duration,
) -> Result<Option<Sense>, CommandError> {
    let code = command.first().copied().unwrap_or(0);
    let mut tries = 0;
    loop {
        tries += 1;
        let reply = transport.send(command, data, timeout)?;
        if reply.host_status != 0 {
            return Err(CommandError::Host { status: reply.host_status });
        }
        let sense = Sense::parse(&reply.sense);
        match (reply.status & 0x3e, sense) {
            (GOOD, sense) => return Ok(sense),
            (CHECK_CONDITION, Some(sense)) if sense.is_harmless() => return Ok(Some(sense)),
            (CHECK_CONDITION, Some(sense)) if sense.key == Sense::UNIT_ATTENTION && tries < TRIES => {}
            (CHECK_CONDITION, Some(sense)) => return Err(CommandError::Sense { command: code, sense }),
            (status, _) => return Err(CommandError::Status { command: code, status }),
        }
    }
}

/// `struct sg_io_hdr` of `<scsi/sg.h>`.
#[repr(C)]
struct SgIoHeader {
    interface_id: libc::c_int,
    direction: libc::c_int,
    command_length: u8,
    most_sense: u8,
    iovec_count: u16,
    data_length: libc::c_uint,
    data: *mut libc::c_void,
    command: *const u8,
    sense: *mut u8,
    timeout_ms: libc::c_uint,
    flags: libc::c_uint,
    pack_id: libc::c_int,
    user: *mut libc::c_void,
    status: u8,
    masked_status: u8,
    message_status: u8,
    sense_written: u8,
    host_status: u16,
    driver_status: u16,
    residue: libc::c_int,
    duration_ms: libc::c_uint,
    info: libc::c_uint,
}

const SG_IO: libc::c_ulong = 0x2285;
const NO_DATA: libc::c_int = -1;
const FROM_DEVICE: libc::c_int = -3;

/// An open disk.
#[derive(Debug)]
pub(super) struct SgIo {
    file: File,
}

impl SgIo {
    pub(super) fn new(file: File) -> SgIo {
        SgIo { file }
    }
}

impl Transport for SgIo {
    fn send(&self, command: &[u8], data: &mut [u8], timeout: Duration) -> io::Result<Reply> {
        let mut sense = [0_u8; 64];
        let too_long = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let mut header = SgIoHeader {
            interface_id: libc::c_int::from(b'S'),
            direction: if data.is_empty() { NO_DATA } else { FROM_DEVICE },
            command_length: u8::try_from(command.len()).map_err(too_long)?,
            most_sense: sense.len() as u8,
            iovec_count: 0,
            data_length: libc::c_uint::try_from(data.len()).map_err(too_long)?,
            data: data.as_mut_ptr().cast(),
            command: command.as_ptr(),
            sense: sense.as_mut_ptr(),
            timeout_ms: libc::c_uint::try_from(timeout.as_millis()).unwrap_or(libc::c_uint::MAX),
            flags: 0,
            pack_id: 0,
            user: std::ptr::null_mut(),
            status: 0,
            masked_status: 0,
            message_status: 0,
            sense_written: 0,
            host_status: 0,
            driver_status: 0,
            residue: 0,
            duration_ms: 0,
            info: 0,
        };
        // SAFETY: the header has the kernel's layout, and its pointers and lengths are those of buffers that outlive
        // the call. The kernel writes only to `data` and `sense`, both borrowed mutably.
        let result = unsafe { libc::ioctl(self.file.as_raw_fd(), SG_IO as _, &raw mut header) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        let written = usize::from(header.sense_written).min(sense.len());
        Ok(Reply { status: header.status, host_status: header.host_status, sense: sense[..written].to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Script, sense};
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn outcome(reply: Reply) -> Result<Option<Sense>, String> {
        run(&Script::new([reply]), &[0x1b], &mut [], SECOND).map_err(|error| error.to_string())
    }

    #[test]
    fn the_header_is_as_large_as_the_kernels() {
        let pointers = 4 * size_of::<usize>() + size_of::<usize>() % 8;
        assert_eq!(size_of::<SgIoHeader>(), 56 + pointers);
    }

    #[test]
    fn a_file_that_takes_no_commands_is_an_error() {
        let null = SgIo::new(File::open("/dev/null").expect("it is there"));
        let error = null.send(&[0; 6], &mut [0; 36], SECOND).expect_err("it takes none");
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
        assert_eq!(
            null.send(&[0; 300], &mut [], SECOND).expect_err("no command is that long").kind(),
            io::ErrorKind::InvalidInput
        );
    }

    #[test]
    fn what_the_disk_the_adapter_or_the_system_refuses_is_told_apart() {
        assert_eq!(outcome(Reply::default()), Ok(None));
        assert_eq!(
            outcome(Reply { status: 2, sense: sense(1, 0, 0), host_status: 0 }).map(|sense| sense.map(|s| s.key)),
            Ok(Some(1))
        );
        let refused = |reply| outcome(reply).expect_err("it is refused");
        assert_eq!(
            refused(Reply { status: 2, sense: sense(5, 0x20, 0), host_status: 0 }),
            "command 0x1b was refused (sense 0x5, 0x20/0x00)"
        );
        assert_eq!(refused(Reply { status: 8, ..Reply::default() }), "command 0x1b was refused (status 0x08)");
        assert_eq!(refused(Reply { status: 2, ..Reply::default() }), "command 0x1b was refused (status 0x02)");
        assert_eq!(
            refused(Reply { host_status: 3, ..Reply::default() }),
            "the disk cannot be reached (host status 0x03)"
        );
    }

    #[test]
    fn the_news_of_a_reset_is_no_answer_unless_it_comes_again_and_again() {
        let news = || Reply { status: 2, sense: sense(6, 0x29, 0), host_status: 0 };
        let script = Script::new([news(), news(), Reply::default()]);
        assert!(run(&script, &[0x1b], &mut [], SECOND).is_ok());
        assert_eq!(script.commands().len(), 3);
        assert!(run(&Script::new([news(), news(), news()]), &[0x1b], &mut [], SECOND).is_err());
    }
}
