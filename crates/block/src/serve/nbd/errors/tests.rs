use std::sync::Arc;

use umbrella_units::{Lba, SectorRange};

use super::*;
use crate::error::Operation;

fn refused(errno: Errno) -> ErrorCode {
    let source = io::Error::from_raw_os_error(errno.raw_os_error());
    error_code(&BlockError::io(&Arc::from("/secret/disk"), Operation::Write, None, source))
}

#[test]
fn each_error_of_a_device_has_its_code() {
    for (errno, code) in [
        (Errno::NOSPC, ErrorCode::NoSpace),
        (Errno::DQUOT, ErrorCode::NoSpace),
        (Errno::FBIG, ErrorCode::NoSpace),
        (Errno::NOMEM, ErrorCode::NoMemory),
        (Errno::ROFS, ErrorCode::Perm),
        (Errno::OPNOTSUPP, ErrorCode::NotSupported),
        (Errno::IO, ErrorCode::Io),
        (Errno::NODEV, ErrorCode::Io),
        // The request was checked before: what the system then calls invalid is not the client's fault.
        (Errno::INVAL, ErrorCode::Io),
    ] {
        assert_eq!(refused(errno), code, "{errno}");
    }
    let device: Arc<str> = Arc::from("disk");
    let range = SectorRange { start: Lba(8), sectors: 1 };
    let poisoned =
        BlockError::Poisoned { device: Arc::clone(&device), operation: Operation::Flush, reason: Arc::from("gone") };
    assert_eq!(error_code(&poisoned), ErrorCode::Io);
    assert_eq!(error_code(&BlockError::ReadOnly { device }), ErrorCode::Perm);
    assert_eq!(error_code(&BlockError::BeyondEnd { range, capacity: Lba(8) }), ErrorCode::Invalid);
    assert_eq!(error_code(&BlockError::Unaligned { at: Lba(1), bytes: 1, logical_block: 512 }), ErrorCode::Invalid);
}

#[test]
fn an_error_without_a_number_is_an_io_error() {
    let eof = io::Error::from(io::ErrorKind::UnexpectedEof);
    assert_eq!(error_code(&BlockError::io(&Arc::from("disk"), Operation::Read, None, eof)), ErrorCode::Io);
}
