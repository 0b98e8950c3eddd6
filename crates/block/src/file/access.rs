//! What a device is opened for.

/// Whether a file may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Only read; others may read it at the same time.
    ReadOnly,
    /// Read and written, by this opener alone.
    #[default]
    ReadWrite,
}
