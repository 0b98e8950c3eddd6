//! HP's SRT traces (hplajw, cello, snake: Ruemmler and Wilkes, USENIX 1993), as in DiskSim's validation set. Read only.
//!
//! A text that describes the system ends with a form feed. Big-endian records of 14 words follow:
//! 1. size in bytes
//! 2. kind
//! 3. seconds
//! 4. microseconds
//! 5. time until the start (us)
//! 6. time until the end (us)
//! 7. bytes
//! 8. sector
//! 9. device (bits 8 to 15: the disk)
//! 10. driver
//! 11. cylinder
//! 12. flags (bit 0: a read)
//! 13. information
//! 14. length of the queue
//!
//! The text gives the size of sectors (`sectorsize = 256`). They are counted on their disk.

use super::devices::Devices;
use super::parse::{Parse, record};
use super::problem::{Excerpt, Problem};
use super::{Record, TraceOp};

/// What a trace begins with.
const MAGIC: &[u8] = b"$$TR_IOREC";

/// What ends the text.
pub(super) const END_OF_TEXT: u8 = 0x0c;

/// The words of a record that count.
const WORDS: usize = 14;
/// A longer record is none.
const MOST_BYTES: usize = 1024;

/// Whether a trace that begins so is one.
pub(super) fn looks_like(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

/// The bytes of a record that begins so.
pub(super) fn record_bytes(prefix: &[u8]) -> Option<usize> {
    let bytes = u32::from_be_bytes(*prefix.first_chunk()?) as usize;
    (WORDS * 4..=MOST_BYTES).contains(&bytes).then_some(bytes)
}

/// Reads it.
#[derive(Debug)]
pub(super) struct SrtParser {
    sector: Result<u64, Problem>,
}

impl SrtParser {
    pub(super) fn new(head: &[u8]) -> SrtParser {
        SrtParser { sector: sector_bytes(head) }
    }
}

/// How large the text says that sectors are: 256 bytes if it does not.
fn sector_bytes(head: &[u8]) -> Result<u64, Problem> {
    let text = head.split(|byte| *byte == END_OF_TEXT).next().unwrap_or_default();
    let mut said = None;
    for line in text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii) {
        let Some(value) = line.strip_prefix(b"sectorsize") else { continue };
        let digits = value.split(|byte| b" =,;\t".contains(byte)).find(|word| !word.is_empty()).unwrap_or_default();
        let size = super::cursor::whole(digits, "sectorsize")?;
        if !size.is_power_of_two() || size > 1 << 16 || said.is_some_and(|said| said != size) {
            let found = Excerpt::new(digits);
            return Err(Problem::Unexpected { field: "sectorsize", found, expected: "one power of two for all disks" });
        }
        said = Some(size);
    }
    Ok(said.unwrap_or(256))
}

impl Parse for SrtParser {
    fn parse(&mut self, unit: &[u8], devices: &mut Devices) -> Result<Option<Record>, Problem> {
        let sector_bytes = self.sector.clone()?;
        let (words, _) = unit.as_chunks::<4>();
        let Some(words) = words.first_chunk::<WORDS>() else {
            return Err(Problem::CutRecord { found: unit.len(), expected: WORDS * 4 });
        };
        let [_, _, seconds, micros, _, _, bytes, sector, device, _, _, flags, ..] =
            words.map(|word| u64::from(u32::from_be_bytes(word)));
        let op = if flags & 1 == 1 { TraceOp::Read } else { TraceOp::Write };
        let device = devices.number((device >> 8 & 0xff).to_string().as_bytes())?;
        let time = seconds * 1_000_000_000 + micros * 1_000;
        record(time, device, op, sector * sector_bytes, bytes).map(Some)
    }
}
