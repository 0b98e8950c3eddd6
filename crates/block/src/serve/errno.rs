//! The error number that the kernel gets for an error of a device.

use rustix::io::Errno;

use crate::error::BlockError;

/// The error's number in POSIX. Also logs the error for people.
pub(super) fn errno(error: &BlockError) -> i32 {
    tracing::warn!(%error, "a request failed");
    match error {
        BlockError::BeyondEnd { .. } | BlockError::Unaligned { .. } => Errno::INVAL.raw_os_error(),
        BlockError::ReadOnly { .. } => Errno::ROFS.raw_os_error(),
        BlockError::Poisoned { .. } => Errno::IO.raw_os_error(),
        BlockError::Io { source, .. } => {
            source.raw_os_error().filter(|code| *code > 0).unwrap_or(Errno::IO.raw_os_error())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use umbrella_units::{Lba, SectorRange};

    use super::*;
    use crate::error::Operation;

    #[test]
    fn a_refusal_of_the_system_keeps_its_errno_and_other_errors_get_one_by_meaning() {
        let device: Arc<str> = "disk".into();
        let range = SectorRange { start: Lba(8), sectors: 8 };
        let io = |source| BlockError::io(&device, Operation::Write, Some(range), source);
        let expected = [
            (BlockError::BeyondEnd { range, capacity: Lba(8) }, Errno::INVAL),
            (BlockError::Unaligned { at: Lba(1), bytes: 512, logical_block: 4096 }, Errno::INVAL),
            (BlockError::ReadOnly { device: Arc::clone(&device) }, Errno::ROFS),
            (
                BlockError::Poisoned {
                    device: Arc::clone(&device),
                    operation: Operation::Flush,
                    reason: "lost power".into(),
                },
                Errno::IO,
            ),
            (io(Errno::NOSPC.into()), Errno::NOSPC),
            (io(io::Error::from_raw_os_error(-5)), Errno::IO),
            (io(io::Error::other("torn")), Errno::IO),
        ];
        for (error, code) in expected {
            assert_eq!(errno(&error), code.raw_os_error(), "{error}");
        }
    }
}
