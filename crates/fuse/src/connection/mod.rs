//! INIT: kernel and file system agree on a version and on what each may use.

use std::io;

use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{self, opcode};
use crate::device::{Device, Incoming};
use crate::flags::InitFlags;
use crate::memory::{Pages, page_size};
use crate::operation::{Shape, split_header};

/// What the kernel can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Minor version of the protocol that it speaks; the major one is 7.
    pub minor: u32,
    /// What it offers.
    pub flags: InitFlags,
    /// The most bytes it reads ahead.
    pub max_readahead: u32,
}

/// What the file system wants. What the kernel does not offer is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreement {
    /// What to use. At the beginning ASYNC_READ, BIG_WRITES, PARALLEL_DIROPS and ASYNC_DIO.
    pub flags: InitFlags,
    /// The most bytes to read ahead.
    pub max_readahead: u32,
    /// Requests in the background (read-ahead, asynchronous I/O, releases) that may be under way; more wait in the
    /// kernel. Over io_uring no more than half of [`Config::max_entries`](crate::Config::max_entries): they never take
    /// all entries of a queue.
    pub max_background: u16,
    /// From how many requests in the background on the file system is called busy.
    pub congestion_threshold: u16,
    /// Nanoseconds that times are rounded to.
    pub time_granularity: u32,
    /// With PASSTHROUGH: how deep the file system counts as stacked, 1 or 2. Backing files must be less deep.
    pub max_stack_depth: u32,
    /// With REQUEST_TIMEOUT: seconds after which the kernel ends the connection for an unanswered request.
    pub request_timeout: u16,
}

impl Agreement {
    fn new(offer: &Offer) -> Agreement {
        Agreement {
            flags: InitFlags::ASYNC_READ | InitFlags::BIG_WRITES | InitFlags::PARALLEL_DIROPS | InitFlags::ASYNC_DIO,
            max_readahead: offer.max_readahead,
            max_background: 64,
            congestion_threshold: 48,
            time_granularity: 1,
            max_stack_depth: 0,
            request_timeout: 0,
        }
    }
}

/// What was agreed on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Agreed {
    unique: u64,
    offer: Offer,
    agreement: Agreement,
    max_write: u32,
}

/// Waits for INIT and lets the file system choose its options. Does not answer INIT yet.
pub(crate) fn negotiate(
    device: &Device,
    max_write: u32,
    init: impl FnOnce(&Offer, &mut Agreement) -> io::Result<()>,
) -> io::Result<Agreed> {
    let (unique, offer) = receive(device)?;
    let mut agreement = Agreement::new(&offer);
    init(&offer, &mut agreement)?;
    agreement.flags &= offer.flags - InitFlags::OVER_IO_URING;
    agreement.max_readahead = agreement.max_readahead.min(offer.max_readahead);
    // Without MAX_PAGES the kernel takes 32 pages for the most.
    let pages = if offer.flags.contains(InitFlags::MAX_PAGES) { u16::MAX } else { 32 };
    let most = usize::from(pages) * page_size();
    let max_write = max_write.min(u32::try_from(most).unwrap_or(u32::MAX));
    Ok(Agreed { unique, offer, agreement, max_write })
}

/// Reads INIT. A kernel of a later major version gets ours as the answer, and asks once more.
fn receive(device: &Device) -> io::Result<(u64, Offer)> {
    let mut buffer = Pages::new(abi::MIN_READ_BUFFER)?;
    loop {
        let length = match device.read(buffer.as_mut_slice())? {
            Incoming::Request(length) => length,
            Incoming::Again => continue,
            Incoming::Ended => return Err(io::ErrorKind::ConnectionAborted.into()),
        };
        let bytes = buffer.as_mut_slice().get(..length).unwrap_or_default();
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, "the kernel did not begin with INIT");
        let (header, body) = split_header(bytes).map_err(|_| invalid())?;
        let (init, _) = abi::InitShortIn::read_from_prefix(body).map_err(|_| invalid())?;
        if header.opcode != opcode::INIT || init.major < abi::MAJOR {
            return Err(invalid());
        }
        if init.major > abi::MAJOR {
            let ours = abi::InitOut { major: abi::MAJOR, minor: abi::MINOR, ..abi::InitOut::default() };
            device.write(header.unique, 0, &[ours.as_bytes()])?;
            continue;
        }
        let low = u64::from(init.flags);
        let high = abi::InitIn::read_from_prefix(body).map_or(0, |(whole, _)| u64::from(whole.flags2));
        let extended = low & InitFlags::INIT_EXT.bits() != 0;
        let flags = InitFlags::from_bits_retain(if extended { low | high << 32 } else { low });
        return Ok((header.unique, Offer { minor: init.minor, flags, max_readahead: init.max_readahead }));
    }
}

impl Agreed {
    pub(crate) fn offers_rings(&self) -> bool {
        self.offer.flags.contains(InitFlags::OVER_IO_URING)
    }

    pub(crate) fn shape(&self) -> Shape {
        Shape { setxattr_ext: self.agreement.flags.contains(InitFlags::SETXATTR_EXT) }
    }

    /// The most bytes that a request or an answer has, besides headers.
    pub(crate) fn payload(&self) -> usize {
        (self.max_write as usize).next_multiple_of(page_size()).max(abi::MIN_READ_BUFFER)
    }

    /// Answers INIT. From here on requests come; with rings of `entries` entries a queue, when those are ready.
    pub(crate) fn answer(&self, device: &Device, entries: Option<usize>) -> io::Result<()> {
        let mut flags = self.agreement.flags | (InitFlags::INIT_EXT | InitFlags::MAX_PAGES) & self.offer.flags;
        let Agreement { mut max_background, mut congestion_threshold, .. } = self.agreement;
        if let Some(entries) = entries {
            flags |= InitFlags::OVER_IO_URING;
            max_background = max_background.min(u16::try_from(entries / 2).unwrap_or(u16::MAX));
            congestion_threshold = congestion_threshold.min(max_background);
        }
        let answer = abi::InitOut {
            major: abi::MAJOR,
            minor: abi::MINOR.min(self.offer.minor),
            max_readahead: self.agreement.max_readahead,
            flags: flags.bits() as u32,
            max_background,
            congestion_threshold,
            max_write: self.max_write,
            time_gran: self.agreement.time_granularity,
            max_pages: u16::try_from(self.payload() / page_size()).unwrap_or(u16::MAX),
            flags2: (flags.bits() >> 32) as u32,
            max_stack_depth: self.agreement.max_stack_depth,
            request_timeout: self.agreement.request_timeout,
            ..abi::InitOut::default()
        };
        device.write(self.unique, 0, &[answer.as_bytes()])
    }
}

#[cfg(test)]
mod tests;
