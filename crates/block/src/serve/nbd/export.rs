//! What is offered, and under which names.

use std::fmt;
use std::sync::Arc;

use umbrella_units::PAGE_BYTES;

use super::errors::ServeError;
use super::rate_limit::RateLimit;
use super::tls::Tls;
use super::wire::{ExportFlags, MAX_STRING, MAX_TRANSFER};
use crate::device::BlockDevice;
use crate::file::{Access, FileDevice};

/// A device with a name.
#[derive(Clone)]
pub struct Export {
    name: String,
    description: String,
    access: Access,
    device: Arc<dyn BlockDevice>,
    /// The same device, if it is a file: it can say what is in memory and where its holes are.
    file: Option<Arc<FileDevice>>,
    /// Lines about requests that failed.
    pub(super) failures: Arc<RateLimit>,
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Export").field("name", &self.name).field("access", &self.access).finish_non_exhaustive()
    }
}

impl Export {
    /// Offers a device.
    pub fn new(name: impl Into<String>, device: Arc<dyn BlockDevice>) -> Export {
        Export {
            name: name.into(),
            description: String::new(),
            access: Access::ReadWrite,
            device,
            file: None,
            failures: Arc::default(),
        }
    }

    /// Offers a file, read-only if it is open so.
    pub fn of_file(name: impl Into<String>, file: Arc<FileDevice>) -> Export {
        let device: Arc<dyn BlockDevice> = Arc::<FileDevice>::clone(&file);
        Export { access: file.access(), file: Some(file), ..Export::new(name, device) }
    }

    /// Tells clients what it is.
    #[must_use]
    pub fn described(self, description: impl Into<String>) -> Export {
        Export { description: description.into(), ..self }
    }

    /// Lets clients only read.
    #[must_use]
    pub fn read_only(self) -> Export {
        Export { access: Access::ReadOnly, ..self }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn description(&self) -> &str {
        &self.description
    }

    pub(super) fn device(&self) -> &dyn BlockDevice {
        &*self.device
    }

    pub(super) fn file(&self) -> Option<&FileDevice> {
        self.file.as_deref()
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.access == Access::ReadOnly
    }

    /// Whether clients can learn how it is allocated.
    pub(super) fn has_extents(&self) -> bool {
        self.device.has_extents()
    }

    /// The abilities that clients are offered.
    pub(super) fn flags(&self, structured: bool) -> ExportFlags {
        let mut flags = ExportFlags::HAS_FLAGS | ExportFlags::FLUSH | ExportFlags::FUA | ExportFlags::MULTI_CONN;
        if self.is_read_only() {
            flags |= ExportFlags::READ_ONLY;
        } else {
            flags |= ExportFlags::TRIM | ExportFlags::WRITE_ZEROES;
            flags.set(ExportFlags::FAST_ZERO, self.file.is_some());
        }
        flags.set(ExportFlags::ROTATIONAL, self.device.geometry().rotational);
        flags.set(ExportFlags::CACHE, self.file.is_some());
        flags.set(ExportFlags::DF, structured);
        flags
    }

    /// The least, the best and the largest transfer, in bytes.
    pub(super) fn block_sizes(&self) -> (u32, u32, u32) {
        let geometry = self.device.geometry();
        (geometry.logical_block, geometry.physical_block.max(PAGE_BYTES as u32).min(MAX_TRANSFER), MAX_TRANSFER)
    }
}

/// All that a server offers. The first is the default: what a client gets that names none.
#[derive(Debug, Clone)]
pub struct Exports {
    exports: Vec<Export>,
    tls: Option<Tls>,
}

impl Exports {
    /// At least one export; names are different, and not longer than the protocol allows.
    pub fn new(exports: Vec<Export>) -> Result<Exports, ServeError> {
        if exports.is_empty() {
            return Err(ServeError::NoExport);
        }
        for (at, export) in exports.iter().enumerate() {
            if export.name.len() > MAX_STRING || export.description.len() > MAX_STRING {
                return Err(ServeError::LongName { name: export.name.chars().take(40).collect(), limit: MAX_STRING });
            }
            if exports.iter().take(at).any(|other| other.name == export.name) {
                return Err(ServeError::SameName { name: export.name.clone() });
            }
        }
        Ok(Exports { exports, tls: None })
    }

    /// Offered over TLS.
    #[must_use]
    pub fn over(self, tls: Tls) -> Exports {
        Exports { tls: Some(tls), ..self }
    }

    pub(super) fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Export> {
        self.exports.iter()
    }

    /// The export of that name; the first one if the name is empty and none is called so.
    pub(super) fn find(&self, name: &str) -> Option<&Export> {
        let named = self.iter().find(|export| export.name == name);
        if name.is_empty() { named.or(self.exports.first()) } else { named }
    }
}
