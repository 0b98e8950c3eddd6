//! What is in the way of a new pair.

use std::fmt;

use uuid::Uuid;

/// What the start of a device can show that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signature {
    /// ext2, 3 or 4.
    Ext,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
    /// A volume of LVM.
    Lvm,
    /// A member of an array.
    Md,
    /// An encrypted volume.
    Luks,
    /// A partition table.
    Table,
    /// A boot sector, which may have a partition table.
    Boot,
}

impl Signature {
    fn name(self) -> &'static str {
        match self {
            Signature::Ext => "an ext file system",
            Signature::Xfs => "an XFS file system",
            Signature::Btrfs => "a btrfs file system",
            Signature::Lvm => "an LVM volume",
            Signature::Md => "a member of an md array",
            Signature::Luks => "a LUKS volume",
            Signature::Table => "a partition table",
            Signature::Boot => "a partition table or boot sector",
        }
    }
}

/// What is in the way of a new pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// On the flash: the log of this disk.
    LogOf(Uuid),
    /// The log of a disk that is attached to it.
    LogInUse,
    /// On the disk: data that is only whole together with this flash.
    HalfWith(Uuid),
    /// On the flash, what these bytes show; nothing that is known if there are none.
    OnFlash(Option<Signature>),
    /// On the disk, what may use it to its end.
    ToTheEnd(Signature),
    /// Something where the tag would be.
    InPlaceOfTag,
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contents::LogOf(disk) => write!(f, "the log of the disk {disk}"),
            Contents::LogInUse => f.write_str("the log of an attached disk"),
            Contents::HalfWith(flash) => write!(f, "data that belongs together with the flash {flash}"),
            Contents::OnFlash(Some(signature)) => f.write_str(signature.name()),
            Contents::ToTheEnd(signature) => {
                write!(f, "{}, which may need its last 8 KiB: give one of its partitions or volumes", signature.name())
            }
            Contents::OnFlash(None) => f.write_str("unknown data"),
            Contents::InPlaceOfTag => f.write_str("unknown data in its last 8 KiB, where its label goes"),
        }
    }
}
