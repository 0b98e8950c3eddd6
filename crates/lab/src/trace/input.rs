//! Where a trace's bytes come from: plain, gzip or Zstandard, detected by the first bytes and not by the name.

use std::fs::{File, FileType};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;

use super::compression::Compression;
use super::error::TraceError;

/// A source that decompresses.
pub(super) type Source = Box<dyn Read + Send>;

const BUFFER_BYTES: usize = 256 << 10;

/// Decompresses what the first bytes say is compressed.
pub(super) fn decompress(mut source: impl Read + Send + 'static) -> io::Result<(Source, Compression)> {
    let mut head = [0; 4];
    let mut filled = 0;
    while let Some(free) = head.get_mut(filled..).filter(|free| !free.is_empty()) {
        match source.read(free) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let head = head.get(..filled).unwrap_or_default().to_vec();
    let compression = Compression::of(&head);
    let whole = io::Cursor::new(head).chain(source);
    Ok((
        match compression {
            Compression::None => Box::new(whole),
            Compression::Gzip => Box::new(MultiGzDecoder::new(BufReader::with_capacity(BUFFER_BYTES, whole))),
            Compression::Zstd => Box::new(zstd::stream::read::Decoder::new(whole)?),
        },
        compression,
    ))
}

/// Counts the bytes read from a source, for a progress bar.
#[derive(Debug)]
pub(super) struct Counted<R> {
    pub(super) source: R,
    pub(super) bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// Opens a file, a pipe or a character device; refuses what cannot be a trace. Says how long a regular file is.
pub(super) fn open_file(path: &Path) -> Result<(File, Option<u64>), TraceError> {
    let failed = |source| TraceError::Open { path: path.to_owned(), source };
    let kind = std::fs::metadata(path).map_err(failed)?.file_type();
    if let Some(kind) = no_trace(kind) {
        return Err(TraceError::NotAFile { path: path.to_owned(), kind });
    }
    let file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?;
    Ok((file, length.is_file().then_some(length.len())))
}

fn no_trace(kind: FileType) -> Option<&'static str> {
    if kind.is_dir() {
        Some("a directory")
    } else if kind.is_block_device() {
        Some("a block device")
    } else if kind.is_socket() {
        Some("a socket")
    } else {
        None
    }
}
