//! What to do about an error of a disk.

use std::error::Error;

use umbrella_block::hybrid::{Contents, Damage, HybridError};
use umbrella_block::log_store::LogStoreError;
use umbrella_block::log_store::format::{ChooseError, FormatError};

pub(super) fn of(error: &(dyn Error + 'static)) -> Option<&'static str> {
    if let Some(error) = error.downcast_ref::<HybridError>() {
        return of_hybrid(error);
    }
    if let Some(error) = error.downcast_ref::<LogStoreError>() {
        return of_store(error);
    }
    of_superblock(error.downcast_ref::<ChooseError>()?)
}

/// About a damaged record of a hybrid disk's log, when what it held was listed.
pub(crate) const GO_ON: &str = "`umbrella disk attach --salvage` continues without it";

fn of_hybrid(error: &HybridError) -> Option<&'static str> {
    Some(match error {
        HybridError::NoSuperblock { first, second, .. } | HybridError::NoTag { first, second, .. }
            if Damage::is_of_label(*first, *second) =>
        {
            "`umbrella disk salvage` copies what disk and flash still hold; `umbrella disk detach --forget-flash` \
            continues with the disk alone"
        }
        HybridError::Contradiction { .. } | HybridError::HeadUnreadable { .. } => {
            "`umbrella disk salvage` copies what disk and flash still hold"
        }
        HybridError::NoSuperblock { .. } => {
            "`umbrella disk create` makes one; if there was one, `umbrella disk salvage` copies what disk and flash still hold"
        }
        HybridError::NoTag { .. } => "`umbrella disk create` makes one, unless it was one before",
        HybridError::FlashLost { .. } => {
            "if this is the right flash and its beginning was overwritten: `umbrella disk salvage`. If the flash is \
            lost: `umbrella disk serve --read-only --disk DISK` offers the disk without it, and `umbrella disk detach \
            --forget-flash` makes it a plain disk"
        }
        HybridError::TagGone { .. } => {
            "`umbrella disk salvage` copies what disk and flash still hold. `umbrella disk detach --forget-flash` frees \
            the flash, and `umbrella disk create` joins them again; the data on the disk stays"
        }
        HybridError::DiskGrew { .. } => {
            "to enlarge a disk, take the pair apart first (`umbrella disk detach --dissolve`), then join it again with \
            `umbrella disk create`. The data on it stays"
        }
        HybridError::DiskCut { .. } | HybridError::Stale { .. } => {
            "to keep the disk as it is and give up the data that only the flash has: `umbrella disk detach \
            --forget-flash`"
        }
        HybridError::Detached { .. } => "`umbrella disk create` joins them again",
        HybridError::Changed { .. } => {
            "copy what you need from the disk (`mount -o ro`); `umbrella disk detach --forget-flash` then gives up \
            the data on the flash"
        }
        HybridError::Corrupt { .. } | HybridError::LogUnreadable { .. } => {
            "`umbrella disk check` lists what is lost, `umbrella disk attach --salvage` continues without it"
        }
        HybridError::Unreadable { .. } => {
            "to give these sectors up: `umbrella disk detach --keep-cache`, then `umbrella disk attach --salvage`"
        }
        HybridError::Occupied { contents, .. } => of_contents(contents),
        _ => return None,
    })
}

fn of_contents(contents: &Contents) -> &'static str {
    match contents {
        Contents::LogOf(_) | Contents::LogInUse => {
            "`umbrella disk detach --dissolve` ends that pair (--forget-flash keeps its disk in use without the \
            flash); --force writes over it"
        }
        Contents::HalfWith(_) => {
            "`umbrella disk detach` brings it to the disk (with --forget-flash if the flash is lost)"
        }
        Contents::OnFlash(_) | Contents::ToTheEnd(_) | Contents::InPlaceOfTag => "--force writes over it",
    }
}

fn of_store(error: &LogStoreError) -> Option<&'static str> {
    Some(match error {
        LogStoreError::Superblock { source, .. } => return of_superblock(source),
        LogStoreError::Checkpoints { .. } => "`umbrella disk salvage` copies the data out",
        LogStoreError::FlushedLost { .. } => {
            "to continue without what is lost: `attach` or `serve` with --salvage; to copy all that is left, later \
            data too: `umbrella disk salvage`; to read the state before the damage: --read-only"
        }
        LogStoreError::LogUnreadable { .. } => "--salvage continues without it, --read-only reads what is left",
        LogStoreError::Doubtful { source, .. } => return of_store(source),
        LogStoreError::MapPage { .. } => {
            "`umbrella disk salvage` copies the rest, and what the log still has of them; `attach` or `serve` with \
            --salvage continues without them"
        }
        LogStoreError::Damaged { .. } | LogStoreError::Unverified { .. } | LogStoreError::Lost { .. } => {
            "`umbrella disk salvage` copies what is left"
        }
        LogStoreError::Occupied { .. } => "--force does that",
        LogStoreError::NoRoom { .. } => "`umbrella disk check --data` says which",
        _ => return None,
    })
}

fn of_superblock(error: &ChooseError) -> Option<&'static str> {
    match error {
        ChooseError::Foreign => {
            Some("`umbrella disk create` makes one; if there was one, `umbrella disk salvage` copies its data out")
        }
        ChooseError::Damaged { .. } => Some("`umbrella disk salvage` copies the data out"),
        ChooseError::Unusable { source: FormatError::DeviceTooSmall { .. }, .. } => Some(
            "`umbrella disk check --data` then lists the losses. `umbrella disk salvage` copies what is left, \
             however much is missing",
        ),
        _ => None,
    }
}
