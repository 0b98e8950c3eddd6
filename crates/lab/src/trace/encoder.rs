//! Compresses a trace that is written.

use std::fmt;
use std::io::{self, Write};

use flate2::write::GzEncoder;

use super::Compression;

const ZSTD_LEVEL: i32 = 9;

/// A writer that compresses. Complete only after [`Encoder::finish`].
pub struct Encoder<W: Write> {
    inner: Inner<W>,
}

enum Inner<W: Write> {
    Plain(W),
    Gzip(GzEncoder<W>),
    Zstd(zstd::stream::write::Encoder<'static, W>),
}

impl<W: Write> Encoder<W> {
    /// Compresses into `out`.
    pub fn new(out: W, compression: Compression) -> io::Result<Self> {
        let inner = match compression {
            Compression::None => Inner::Plain(out),
            Compression::Gzip => Inner::Gzip(GzEncoder::new(out, flate2::Compression::default())),
            Compression::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(out, ZSTD_LEVEL)?;
                encoder.include_checksum(true)?;
                Inner::Zstd(encoder)
            }
        };
        Ok(Self { inner })
    }

    /// Writes the end, and gives the output back.
    pub fn finish(self) -> io::Result<W> {
        match self.inner {
            Inner::Plain(out) => Ok(out),
            Inner::Gzip(encoder) => encoder.finish(),
            Inner::Zstd(encoder) => encoder.finish(),
        }
    }
}

impl<W: Write> fmt::Debug for Encoder<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}

impl<W: Write> Write for Encoder<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.inner {
            Inner::Plain(out) => out.write(bytes),
            Inner::Gzip(encoder) => encoder.write(bytes),
            Inner::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.inner {
            Inner::Plain(out) => out.flush(),
            Inner::Gzip(encoder) => encoder.flush(),
            Inner::Zstd(encoder) => encoder.flush(),
        }
    }
}
