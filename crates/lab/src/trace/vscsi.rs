//! VSCSI traces, version 1: binary records of 32 bytes, little-endian, without a header (VMware vscsiStats;
//! CloudPhysics).
//!
//! u32 serial, u32 bytes, u32 scatter-gather count, u16 command, u16 version (1 in the high byte), u64 LBA in 512 B,
//! u64 time in microseconds. Commands are SCSI reads and writes of 6 to 16 bytes. One device.

use umbrella_units::SECTOR_BYTES;

use super::devices::Devices;
use super::parse::{Parse, Render, record, sectors, time};
use super::problem::{Excerpt, Problem};
use super::{Record, TraceOp, Unwritable};

pub(super) const RECORD_BYTES: usize = 32;

const VERSION: u16 = 0x0100;

struct VscsiRecord {
    bytes: u32,
    command: u16,
    version: u16,
    lba: u64,
    micros: u64,
}

fn take<const N: usize>(unit: &[u8], at: usize) -> Option<[u8; N]> {
    unit.get(at..at + N)?.try_into().ok()
}

fn fields(unit: &[u8]) -> Option<VscsiRecord> {
    Some(VscsiRecord {
        bytes: u32::from_le_bytes(take(unit, 4)?),
        command: u16::from_le_bytes(take(unit, 12)?),
        version: u16::from_le_bytes(take(unit, 14)?),
        lba: u64::from_le_bytes(take(unit, 16)?),
        micros: u64::from_le_bytes(take(unit, 24)?),
    })
}

fn op(command: u16) -> Option<TraceOp> {
    match command {
        0x08 | 0x28 | 0x88 | 0xa8 => Some(TraceOp::Read),
        0x0a | 0x2a | 0x8a | 0xaa => Some(TraceOp::Write),
        _ => None,
    }
}

/// Version 1, in the high byte as recorders write it or in the low one.
fn is_version_1(version: u16) -> bool {
    version >> 8 == 1 || version == 1
}

/// Whether the first records all could be.
pub(super) fn looks_like(head: &[u8]) -> bool {
    let mut records = head.chunks_exact(RECORD_BYTES).take(4).filter_map(fields).peekable();
    records.peek().is_some() && records.all(|record| op(record.command).is_some() && is_version_1(record.version))
}

/// Reads it.
#[derive(Debug, Default)]
pub(super) struct VscsiParser;

impl Parse for VscsiParser {
    fn parse(&mut self, unit: &[u8], devices: &mut Devices) -> Result<Option<Record>, Problem> {
        let fields = fields(unit).ok_or(Problem::CutRecord { found: unit.len(), expected: RECORD_BYTES })?;
        if !is_version_1(fields.version) {
            let found = Excerpt::new(format!("{:#06x}", fields.version).as_bytes());
            return Err(Problem::Unexpected { field: "the version", found, expected: "0x0100" });
        }
        let Some(op) = op(fields.command) else {
            let found = Excerpt::new(format!("{:#04x}", fields.command).as_bytes());
            return Err(Problem::UnknownOp { found, known: "SCSI reads (0x28) and writes (0x2a)" });
        };
        let offset = sectors(fields.lba, "the LBA")?;
        let device = devices.number(b"0")?;
        record(time(fields.micros, 1_000)?, device, op, offset, u64::from(fields.bytes)).map(Some)
    }
}

/// Writes it.
#[derive(Debug, Default)]
pub(super) struct VscsiRenderer {
    serial: u32,
    device: Option<u32>,
}

impl Render for VscsiRenderer {
    fn record(&mut self, out: &mut Vec<u8>, record: &Record, _name: &str) -> Result<(), Unwritable> {
        let command: u16 = match record.op {
            TraceOp::Read => 0x28,
            TraceOp::Write => 0x2a,
            TraceOp::Discard => return Err(Unwritable::Discard),
        };
        if *self.device.get_or_insert(record.device) != record.device {
            return Err(Unwritable::SecondDevice);
        }
        if !record.offset.0.is_multiple_of(SECTOR_BYTES) {
            return Err(Unwritable::Misaligned);
        }
        let bytes = u32::try_from(record.size.0).map_err(|_| Unwritable::TooLarge)?;
        self.serial = self.serial.wrapping_add(1);
        out.extend_from_slice(&self.serial.to_le_bytes());
        out.extend_from_slice(&bytes.to_le_bytes());
        out.extend_from_slice(&1u32.to_le_bytes());
        out.extend_from_slice(&command.to_le_bytes());
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&(record.offset.0 / SECTOR_BYTES).to_le_bytes());
        out.extend_from_slice(&(record.time.0 / 1_000).to_le_bytes());
        Ok(())
    }
}
