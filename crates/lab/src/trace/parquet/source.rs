//! The bytes of a Parquet file, and the limits that a hostile one meets.
//!
//! The decoder allocates what a page's header says. Each header is read here before the decoder sees it: its first two
//! fields are the page's type and its size when decompressed, as every writer writes them.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::FOOTER_SIZE;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::file::reader::{ChunkReader, Length};

use super::MAGIC;
use super::problem::ParquetProblem;

/// The largest footer: tens of thousands of row groups of five columns.
const MAX_FOOTER: u64 = 32 << 20;

/// The largest page, compressed or not; writers end a page after 1 MiB.
pub(super) const MAX_PAGE: u64 = 128 << 20;

/// The most that is kept of a stream, which cannot be read from its end.
const MAX_STREAM: u64 = 1 << 30;

/// Whether a trace that begins so is Parquet.
pub(in crate::trace) fn is_parquet(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

/// A whole file, on disk or in memory.
#[derive(Debug)]
enum TraceStorage {
    File(File),
    Memory(Bytes),
}

/// A file that can be read from its end, with the bytes that were read of it.
#[derive(Debug)]
pub(in crate::trace) struct FromFile {
    place: TraceStorage,
    read: Arc<AtomicU64>,
}

impl FromFile {
    /// If it is Parquet by its first bytes; the file itself if it is not.
    pub(in crate::trace) fn of_file(
        mut file: File,
        read: &Arc<AtomicU64>,
    ) -> io::Result<std::result::Result<FromFile, File>> {
        let mut head = Vec::new();
        file.by_ref().take(MAGIC.len() as u64).read_to_end(&mut head)?;
        file.seek(SeekFrom::Start(0))?;
        let of = |file| FromFile { place: TraceStorage::File(file), read: Arc::clone(read) };
        Ok(if is_parquet(&head) { Ok(of(file)) } else { Err(file) })
    }

    /// All of a stream: its beginning, and what is left.
    pub(in crate::trace) fn of_stream(
        head: Vec<u8>,
        rest: impl Read,
    ) -> io::Result<std::result::Result<FromFile, ParquetProblem>> {
        let mut bytes = head;
        rest.take(MAX_STREAM).read_to_end(&mut bytes)?;
        if bytes.len() as u64 >= MAX_STREAM {
            return Ok(Err(ParquetProblem::StreamTooLong { most: MAX_STREAM }));
        }
        Ok(Ok(FromFile { place: TraceStorage::Memory(bytes.into()), read: Arc::default() }))
    }

    /// What the footer says of the rows.
    pub(super) fn metadata(&self) -> std::result::Result<ParquetMetaData, ParquetProblem> {
        let footer = self.get_bytes(self.len().saturating_sub(FOOTER_SIZE as u64), FOOTER_SIZE)?;
        let length = footer.first_chunk().map_or(0, |length| u64::from(u32::from_le_bytes(*length)));
        if footer.ends_with(MAGIC) && length > MAX_FOOTER {
            return Err(ParquetProblem::TooLarge { what: "a footer", found: length, most: MAX_FOOTER });
        }
        Ok(ParquetMetaDataReader::new().parse_and_finish(self)?)
    }
}

impl Length for FromFile {
    fn len(&self) -> u64 {
        match &self.place {
            TraceStorage::File(file) => file.len(),
            TraceStorage::Memory(bytes) => bytes.len() as u64,
        }
    }
}

impl ChunkReader for FromFile {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(match &self.place {
            // A page's header is tens of bytes.
            TraceStorage::File(file) => {
                let mut file = file.try_clone()?;
                file.seek(SeekFrom::Start(start))?;
                Box::new(BufReader::with_capacity(512, file))
            }
            TraceStorage::Memory(bytes) => Box::new(bytes.get_read(start)?),
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        self.read.fetch_add(length as u64, Ordering::Relaxed);
        match &self.place {
            TraceStorage::File(file) => file.get_bytes(start, length),
            TraceStorage::Memory(bytes) => bytes.get_bytes(start, length),
        }
    }
}

/// The pages of a file, none of them larger than [`MAX_PAGE`].
#[derive(Debug)]
pub(super) struct ColumnPages(pub(super) FromFile);

impl Length for ColumnPages {
    fn len(&self) -> u64 {
        self.0.len()
    }
}

impl ChunkReader for ColumnPages {
    type T = Box<dyn Read>;

    /// What is read so begins with a page's header.
    fn get_read(&self, start: u64) -> Result<Self::T> {
        let mut read = self.0.get_read(start)?;
        let mut begin = Vec::new();
        read.by_ref().take(HEADER_BEGIN as u64).read_to_end(&mut begin)?;
        let bytes = unpacked_bytes(&begin)
            .ok_or_else(|| ParquetError::General("a page's header does not begin with its type and size".to_owned()))?;
        allowed(bytes)?;
        Ok(Box::new(io::Cursor::new(begin).chain(read)))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        allowed(length as u64)?;
        self.0.get_bytes(start, length)
    }
}

fn allowed(bytes: u64) -> Result<()> {
    if bytes <= MAX_PAGE {
        return Ok(());
    }
    let what = "a page";
    Err(ParquetError::External(Box::new(ParquetProblem::TooLarge { what, found: bytes, most: MAX_PAGE })))
}

/// Two fields of 32 bits: a byte that says so, and up to five bytes each.
const HEADER_BEGIN: usize = 12;

/// In Thrift's compact protocol: the field after the one before, a number of 32 bits.
const NEXT_FIELD_I32: u8 = 0x15;

/// The second field of a page's header: the size of the page when decompressed.
fn unpacked_bytes(header: &[u8]) -> Option<u64> {
    let mut bytes = header.iter().copied();
    let mut field = || {
        if bytes.next() != Some(NEXT_FIELD_I32) {
            return None;
        }
        let mut value = 0u64;
        for shift in [0, 7, 14, 21, 28] {
            let byte = bytes.next()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    };
    field()?;
    // Zigzag: even numbers are positive, and the decoder refuses the others.
    field().map(|zigzag| zigzag >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_page_is_read_from_its_header() {
        assert_eq!(unpacked_bytes(&[0x15, 0x00, 0x15, 0x80, 0x01, 0x15]), Some(64));
        assert_eq!(unpacked_bytes(&[0x15, 0x04, 0x15, 0xfe, 0xff, 0xff, 0xff, 0x0f]), Some(i32::MAX as u64));
        for bad in [&[][..], &[0x15, 0x00], &[0x15, 0x00, 0x25, 0x02], &[0x15, 0, 0x15, 0xff, 0xff, 0xff, 0xff, 0xff]] {
            assert_eq!(unpacked_bytes(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_page_beyond_the_limit_is_refused_before_it_is_decoded() {
        let mut header = vec![0x15, 0x00, 0x15];
        let mut size = (MAX_PAGE + 1) << 1;
        while size >= 0x80 {
            header.push((size as u8 & 0x7f) | 0x80);
            size >>= 7;
        }
        header.push(size as u8);
        let of = |header: Vec<u8>| {
            ColumnPages(FromFile { place: TraceStorage::Memory(header.into()), read: Arc::default() })
        };
        assert!(of(header).get_read(0).is_err_and(|error| error.to_string().contains("limit")));
        assert!(of(vec![0x15, 0x00, 0x15, 0x10]).get_read(0).is_ok());
    }
}
