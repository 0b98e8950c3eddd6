//! Memory at addresses that direct I/O takes.

/// What the memory is aligned to, in bytes: the page, which every file system and disk takes.
pub const ALIGNMENT: usize = 4096;

/// Zeroed bytes that begin at a multiple of [`ALIGNMENT`].
#[derive(Debug, Default)]
pub struct AlignedBuffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    /// A buffer of `len` zero bytes.
    pub fn new(len: usize) -> AlignedBuffer {
        let bytes = vec![0; len + ALIGNMENT - 1];
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        AlignedBuffer { bytes, start, len }
    }

    /// Makes room for at least `len` bytes. The contents may be lost.
    pub fn reserve(&mut self, len: usize) {
        if self.len < len {
            *self = AlignedBuffer::new(len);
        }
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All its bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..][..self.len]
    }

    /// All its bytes, to be changed.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.len]
    }

    /// Its first `len` bytes, to be changed; it has as many from now on, and what was in it may be gone.
    pub fn room(&mut self, len: usize) -> &mut [u8] {
        self.reserve(len);
        &mut self.as_mut_slice()[..len]
    }
}

/// Whether direct I/O takes memory that begins here.
pub(super) fn is_aligned(bytes: &[u8], alignment: usize) -> bool {
    bytes.as_ptr().addr().is_multiple_of(alignment)
}
