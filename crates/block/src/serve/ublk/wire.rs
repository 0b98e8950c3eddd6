//! What is said to the ublk driver and by it, as bytes: `linux/ublk_cmd.h` of Linux 6.5.
//!
//! Numbers are in the machine's order, structs are laid out as C does.

use std::fmt;

use bitflags::bitflags;
use rustix::ioctl::opcode;
use umbrella_units::{Lba, SectorRange};

/// Bytes of a command to a device's queue (`struct ublksrv_io_cmd`).
pub(super) const QUEUE_COMMAND_BYTES: usize = 16;
/// Bytes of a command to the driver (`struct ublksrv_ctrl_cmd`).
const COMMAND_BYTES: usize = 32;
/// Bytes that io_uring carries for a command to the driver.
pub(super) const CARRIED_BYTES: usize = 80;
/// Bytes of the payload that a command to the driver points at. The longest is `struct ublksrv_ctrl_dev_info`.
pub(super) const PAYLOAD_BYTES: usize = 64;
/// Bytes of a request (`struct ublksrv_io_desc`).
pub(super) const REQUEST_BYTES: usize = 24;

/// What a command that asked for a request returns when there will be none any more (`UBLK_IO_RES_ABORT`).
pub(super) const ABORTED: i32 = -19;
/// Where the data of requests begins in a device's file (`UBLKSRV_IO_BUF_OFFSET`).
const DATA_OFFSET: u64 = 0x8000_0000;
/// How many bits of an offset are within one request's data (`UBLK_IO_BUF_BITS`).
const DATA_BITS: u32 = 25;
/// The mark in a device's information that says it is Umbrella's; the driver keeps it and does not look at it.
const MARK: u32 = u32::from_be_bytes(*b"umbr");
/// The device is not offered (`UBLK_S_DEV_DEAD`).
const DEAD: u16 = 0;

/// A command to the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlCommand {
    /// Return the state of a device.
    Info,
    /// Make a device that no program sees yet.
    Add,
    /// Give up its number.
    Delete,
    /// As [`ControlCommand::Delete`], without waiting until all programs have closed it.
    DeleteLater,
    /// Offer it.
    Start,
    /// Take it away, after what is under way.
    Stop,
    /// Say what it is like.
    SetParams,
}

impl ControlCommand {
    /// The command's number, which has the direction and size of its argument in it.
    pub(super) fn opcode(self) -> u32 {
        type Argument = [u8; COMMAND_BYTES];
        match self {
            ControlCommand::Info => opcode::read::<Argument>(b'u', 0x02),
            ControlCommand::Add => opcode::read_write::<Argument>(b'u', 0x04),
            ControlCommand::Delete => opcode::read_write::<Argument>(b'u', 0x05),
            ControlCommand::Start => opcode::read_write::<Argument>(b'u', 0x06),
            ControlCommand::Stop => opcode::read_write::<Argument>(b'u', 0x07),
            ControlCommand::SetParams => opcode::read_write::<Argument>(b'u', 0x08),
            ControlCommand::DeleteLater => opcode::read::<Argument>(b'u', 0x14),
        }
    }
}

impl fmt::Display for ControlCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ControlCommand::Info => "report the state of a device",
            ControlCommand::Add => "make a device",
            ControlCommand::Delete | ControlCommand::DeleteLater => "delete the device",
            ControlCommand::Start => "start the device",
            ControlCommand::Stop => "stop the device",
            ControlCommand::SetParams => "accept the parameters of the device",
        })
    }
}

/// A command to a device's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueCommand {
    /// Give a request.
    Fetch,
    /// Take the result of one, and give another.
    CommitAndFetch,
}

impl QueueCommand {
    pub(super) fn opcode(self) -> u32 {
        type Argument = [u8; QUEUE_COMMAND_BYTES];
        match self {
            QueueCommand::Fetch => opcode::read_write::<Argument>(b'u', 0x20),
            QueueCommand::CommitAndFetch => opcode::read_write::<Argument>(b'u', 0x21),
        }
    }
}

/// A place for one request in a device's only queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestTag(pub(super) u16);

impl RequestTag {
    /// Where the data of its request is in the device's file.
    pub(super) fn data_offset(self) -> u64 {
        DATA_OFFSET + (u64::from(self.0) << DATA_BITS)
    }
}

/// A command to the driver, as io_uring carries it. `address` is that of `bytes` of payload.
pub(super) fn command(device: u32, address: u64, bytes: usize, data: u64) -> [u8; CARRIED_BYTES] {
    let mut out = [0; CARRIED_BYTES];
    put(&mut out, 0, device.to_ne_bytes());
    // No queue in particular.
    put(&mut out, 4, u16::MAX.to_ne_bytes());
    put(&mut out, 6, (bytes as u16).to_ne_bytes());
    put(&mut out, 8, address.to_ne_bytes());
    put(&mut out, 16, data.to_ne_bytes());
    out
}

/// A command to the first queue of a device. `result` is that of the tag's last request: bytes, or an error's number
/// below zero.
pub(super) fn queue_command(tag: RequestTag, result: i32) -> [u8; QUEUE_COMMAND_BYTES] {
    let mut out = [0; QUEUE_COMMAND_BYTES];
    put(&mut out, 2, tag.0.to_ne_bytes());
    put(&mut out, 4, result.to_ne_bytes());
    out
}

bitflags! {
    /// What a device's driver and daemon agree on.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) struct Features: u64 {
        /// Numbers of commands have the size of the argument in them.
        const IOCTL_ENCODE = 1 << 6;
        /// The daemon copies data from and to requests by reading and writing the device's file.
        const USER_COPY = 1 << 7;
        const _ = !0;
    }
}

/// A device as its driver sees it (`struct ublksrv_ctrl_dev_info`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeviceInfo {
    /// The number in its name; `u32::MAX` asks for a free one.
    pub(super) device: u32,
    /// Requests under way at most.
    pub(super) queue_depth: u16,
    /// Whether the device is not offered: not yet, or no more.
    pub(super) dead: bool,
    /// The most bytes in one request.
    pub(super) most_bytes: u32,
    pub(super) features: Features,
    /// The process that made it, if that was Umbrella.
    pub(super) owner: Option<u32>,
}

impl DeviceInfo {
    pub(super) fn encode(&self) -> [u8; PAYLOAD_BYTES] {
        let mut out = [0; PAYLOAD_BYTES];
        // One queue.
        put(&mut out, 0, 1u16.to_ne_bytes());
        put(&mut out, 2, self.queue_depth.to_ne_bytes());
        put(&mut out, 8, self.most_bytes.to_ne_bytes());
        put(&mut out, 12, self.device.to_ne_bytes());
        put(&mut out, 24, self.features.bits().to_ne_bytes());
        let owner = self.owner.map_or(0, |owner| u64::from(MARK) << 32 | u64::from(owner));
        put(&mut out, 32, owner.to_ne_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8; PAYLOAD_BYTES]) -> DeviceInfo {
        let owner = u64::from_ne_bytes(get(bytes, 32));
        DeviceInfo {
            device: u32::from_ne_bytes(get(bytes, 12)),
            queue_depth: u16::from_ne_bytes(get(bytes, 2)),
            dead: u16::from_ne_bytes(get(bytes, 4)) == DEAD,
            most_bytes: u32::from_ne_bytes(get(bytes, 8)),
            features: Features::from_bits_retain(u64::from_ne_bytes(get(bytes, 24))),
            owner: (owner >> 32 == u64::from(MARK)).then_some(owner as u32),
        }
    }
}

bitflags! {
    /// How a request is to be carried out.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) struct Flags: u32 {
        /// What it writes is to be durable when it is done.
        const FUA = 1 << 13;
        /// Space that reads as zeroes stays allocated.
        const KEEP = 1 << 15;
        const _ = !0;
    }
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestKind {
    Read,
    Write,
    Flush,
    Discard,
    WriteZeroes,
    /// Something that was never offered.
    Unknown(u8),
}

/// A request (`struct ublksrv_io_desc`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IoRequest {
    pub(super) operation: RequestKind,
    pub(super) flags: Flags,
    pub(super) range: SectorRange,
}

impl IoRequest {
    pub(super) fn decode(bytes: &[u8; REQUEST_BYTES]) -> IoRequest {
        let word = u32::from_ne_bytes(get(bytes, 0));
        let operation = match word as u8 {
            0 => RequestKind::Read,
            1 => RequestKind::Write,
            2 => RequestKind::Flush,
            3 => RequestKind::Discard,
            5 => RequestKind::WriteZeroes,
            other => RequestKind::Unknown(other),
        };
        let (sectors, start) = (u32::from_ne_bytes(get(bytes, 4)), u64::from_ne_bytes(get(bytes, 8)));
        let range = SectorRange { start: Lba(start), sectors: u64::from(sectors) };
        IoRequest { operation, flags: Flags::from_bits_retain(word & !0xff), range }
    }
}

/// Writes a field at its offset.
pub(super) fn put<const SIZE: usize>(to: &mut [u8], at: usize, field: [u8; SIZE]) {
    if let Some(place) = to.get_mut(at..at + SIZE) {
        place.copy_from_slice(&field);
    }
}

/// The field at an offset.
fn get<const SIZE: usize>(from: &[u8], at: usize) -> [u8; SIZE] {
    from.get(at..at + SIZE).and_then(|field| field.try_into().ok()).unwrap_or([0; SIZE])
}
