//! The checksum of everything that this crate writes: CRC32C.

/// That of `bytes`: a block of 4 KiB in 90 ns where the processor multiplies without carries, in 190 with its CRC
/// instruction alone.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}
