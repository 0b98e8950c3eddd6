//! Options of the negotiation, and their answers.

use umbrella_units::ByteSize;

use super::{Cursor, ExportFlags};

/// How many bytes an option has, without its data.
pub const OPTION_BYTES: usize = 16;
/// The most data that an option may have: two strings of the longest, and room for lists.
pub const MAX_OPTION_DATA: u32 = 64 << 10;

const MAGIC: &[u8; 8] = b"IHAVEOPT";
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

/// What an option asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionKind {
    /// Begins transmission, the old way.
    ExportName,
    /// Ends the connection.
    Abort,
    /// Which exports there are.
    List,
    /// Encrypts from here on.
    StartTls,
    /// What an export is like.
    Info,
    /// The same, and begins transmission.
    Go,
    /// Enables answers in chunks.
    StructuredReply,
    /// Which metadata contexts there are.
    ListMetaContext,
    /// Which of them the client wants.
    SetMetaContext,
    /// Something else.
    Unknown(u32),
}

impl OptionKind {
    fn from_number(number: u32) -> OptionKind {
        match number {
            1 => OptionKind::ExportName,
            2 => OptionKind::Abort,
            3 => OptionKind::List,
            5 => OptionKind::StartTls,
            6 => OptionKind::Info,
            7 => OptionKind::Go,
            8 => OptionKind::StructuredReply,
            9 => OptionKind::ListMetaContext,
            10 => OptionKind::SetMetaContext,
            other => OptionKind::Unknown(other),
        }
    }
}

/// The front of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionHeader {
    /// Its number, which the answer repeats.
    pub number: u32,
    /// How many bytes of data follow.
    pub length: u32,
}

impl OptionHeader {
    /// Reads the front of an option; `None` if the bytes are not one.
    pub fn parse(bytes: &[u8; OPTION_BYTES]) -> Option<OptionHeader> {
        let mut cursor = Cursor(bytes);
        if cursor.bytes(MAGIC.len())? != MAGIC {
            return None;
        }
        Some(OptionHeader { number: cursor.u32()?, length: cursor.u32()? })
    }

    /// What it asks for.
    pub fn kind(&self) -> OptionKind {
        OptionKind::from_number(self.number)
    }
}

/// What INFO and GO want to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportQuery<'b> {
    /// Which export; the default one if empty.
    pub name: &'b str,
    /// The client wants to hear the name.
    pub wants_name: bool,
    /// The client wants to hear the description.
    pub wants_description: bool,
    /// The client keeps to block sizes.
    pub wants_block_size: bool,
}

impl<'b> ExportQuery<'b> {
    /// Reads the data of INFO and GO; `None` if they are malformed.
    pub fn parse(data: &'b [u8]) -> Option<ExportQuery<'b>> {
        let mut cursor = Cursor(data);
        let name = cursor.string()?;
        let count = cursor.u16()?;
        let mut query = ExportQuery { name, wants_name: false, wants_description: false, wants_block_size: false };
        for _ in 0..count {
            match cursor.u16()? {
                1 => query.wants_name = true,
                2 => query.wants_description = true,
                3 => query.wants_block_size = true,
                _ => {}
            }
        }
        cursor.0.is_empty().then_some(query)
    }
}

/// What LIST_META_CONTEXT and SET_META_CONTEXT ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextQuery<'b> {
    /// The export.
    pub name: &'b str,
    /// Whether no context is named.
    pub is_empty: bool,
    /// Whether "base:allocation" is named.
    pub names_allocation: bool,
    /// Whether all contexts of "base:" are requested.
    pub names_base: bool,
}

impl<'b> ContextQuery<'b> {
    /// Reads the data of the two options; `None` if they are malformed.
    pub fn parse(data: &'b [u8]) -> Option<ContextQuery<'b>> {
        let mut cursor = Cursor(data);
        let name = cursor.string()?;
        let count = cursor.u32()?;
        let mut query = ContextQuery { name, is_empty: count == 0, names_allocation: false, names_base: false };
        for _ in 0..count {
            match cursor.string()? {
                "base:allocation" => query.names_allocation = true,
                "base:" => query.names_base = true,
                _ => {}
            }
        }
        cursor.0.is_empty().then_some(query)
    }
}

/// The kinds of answers to options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum OptionReply {
    /// Done.
    Ack = 1,
    /// An export.
    Server = 2,
    /// A fact about an export.
    Info = 3,
    /// A metadata context.
    MetaContext = 4,
    /// The option is not known.
    Unsupported = 0x8000_0001,
    /// It is known, and not allowed.
    Policy = 0x8000_0002,
    /// Its data are malformed, or it comes at a wrong time.
    Invalid = 0x8000_0003,
    /// Only over TLS.
    TlsRequired = 0x8000_0005,
    /// No such export.
    UnknownExport = 0x8000_0006,
    /// The server is about to stop.
    Shutdown = 0x8000_0007,
    /// Its data are too long.
    TooBig = 0x8000_0009,
}

/// Appends an answer to option `number`.
pub fn reply(out: &mut Vec<u8>, number: u32, kind: OptionReply, data: &[u8]) {
    out.extend_from_slice(&REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&number.to_be_bytes());
    out.extend_from_slice(&(kind as u32).to_be_bytes());
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(data);
}

/// A fact about an export, for INFO and GO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Info<'s> {
    /// Its size, and what it can do.
    Export(ByteSize, ExportFlags),
    /// What it is called.
    Name(&'s str),
    /// What it is, for people.
    Description(&'s str),
    /// The least, the best and the largest transfer, in bytes.
    BlockSize(u32, u32, u32),
}

/// Appends a fact about an export as answer to option `number`.
pub fn info(out: &mut Vec<u8>, number: u32, info: Info<'_>) {
    let mut data = Vec::with_capacity(16);
    match info {
        Info::Export(size, flags) => {
            data.extend_from_slice(&0_u16.to_be_bytes());
            data.extend_from_slice(&size.0.to_be_bytes());
            data.extend_from_slice(&flags.bits().to_be_bytes());
        }
        Info::Name(name) => {
            data.extend_from_slice(&1_u16.to_be_bytes());
            data.extend_from_slice(name.as_bytes());
        }
        Info::Description(description) => {
            data.extend_from_slice(&2_u16.to_be_bytes());
            data.extend_from_slice(description.as_bytes());
        }
        Info::BlockSize(least, best, most) => {
            data.extend_from_slice(&3_u16.to_be_bytes());
            for size in [least, best, most] {
                data.extend_from_slice(&size.to_be_bytes());
            }
        }
    }
    reply(out, number, OptionReply::Info, &data);
}

/// Appends the answer to EXPORT_NAME, which has no frame; zeroes end it unless both sides have agreed to leave them
/// out.
pub fn old_export(out: &mut Vec<u8>, size: ByteSize, flags: ExportFlags, no_zeroes: bool) {
    out.extend_from_slice(&size.0.to_be_bytes());
    out.extend_from_slice(&flags.bits().to_be_bytes());
    if !no_zeroes {
        out.extend_from_slice(&[0; 124]);
    }
}
