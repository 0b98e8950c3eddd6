//! Opening: the last checkpoint, and the log after it.
//!
//! 1. The superblock is chosen from its two copies, and the newer of the checkpoints that are whole.
//! 2. From its heads on, each stream's chunks are followed. They are taken in the order of their numbers, as long as
//!    none is missing and the data of each is whole: what comes after a gap was never flushed. A chunk counts only if
//!    it was made after this checkpoint, or after the one that was being made when the store ended. If later chunks say
//!    that the first that is missing had been flushed, the store is opened for reading only (`loss`). Where the log
//!    cannot be read there is no telling whether it ends, so then the store is opened for reading only. If a newer
//!    checkpoint was there and is lost, what was written after it counts as well (`lost_checkpoint`). A page of the map
//!    that the log continues in must be the one that the checkpoint means; else it is rebuilt (`rebuild`). Where that
//!    leaves a block in doubt the store is refused. Whoever asks for it ([`OpenMode::Salvage`]) gets a store without
//!    what is damaged (`skip`): what is lost is known then, and cannot be read until it is written again.
//! 3. Nothing is written before all of that is done. Then the copy of the superblock that was damaged is written anew.
//! 4. The next step writes over what lies behind the end of the log. If a loss was found out from that, or something
//!    was skipped, the superblock notes it first: should the power be cut, the next opening reports the same
//!    ([`PendingLoss`]).
//! 5. A new checkpoint, three numbers on, makes sure that chunks after the gap are never taken for part of the log
//!    again.
//! 6. What the superblock noted has been reported, and is removed.
//!
//! Cost: the checkpoint, and the log after it, which is bounded by [`Options::checkpoint_every`](super::Options).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use umbrella_policy::log_layout::{BlockCost, Layout, LogicalMap, MapPage, Marks, SchemeInfo, Settings, Shape};
use umbrella_units::{BLOCK_SECTORS, BlockNo, Lba};

use super::buffer::CHUNK_BLOCKS;
use super::chunks_behind::ChunksBehind;
use super::core::{AfterCheckpoint, Core};
use super::counts::{MOST, StoreCounts};
use super::engine::{LogStore, Options, RoomAttempts, StoreShared, StoreState, WriteThrottle};
use super::error::LogStoreError;
use super::follow::{LostPages, OnDamage, Replay, Skipped};
use super::footprint::{memory_of_machine, refuse_without_memory};
use super::format::{
    BLOCK_BYTES, CheckpointHeader, CheckpointNo, Chosen, Counters, Field, FormatError, Incompat, Limit, PendingLoss,
    Sequence, Structure, Superblock,
};
use super::later_checkpoint::LaterCheckpoint;
use super::loss::{BlockRanges, Loss};
use super::named::{LoadedCheckpoint, NamedDevice};
use super::problem::Problem;
use super::rebuild::{Rebuilt, describe_page, rebuild};
use crate::device::{BlockDevice, Durability};
use crate::error::BlockError;

/// Whether a store may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// It is looked at; nothing is written to the device.
    ReadOnly,
    /// It is used.
    ReadWrite,
    /// It is used although flushed data is lost, where it is known which; else it is looked at.
    Salvage,
}

/// A log as it was found.
pub(super) struct Recovered {
    pub(super) core: Core,
    pub(super) replayed: u64,
    pub(super) area: usize,
    /// The checkpoint that it was followed from.
    pub(super) noted: CheckpointNo,
    pub(super) repair: Option<BlockNo>,
    pub(super) clean: bool,
    /// Chunks that were found behind the end of the log, at least: one that is not whole, or that comes after a gap.
    pub(super) abandoned: u64,
    /// Why the log could not be followed further, if it could not be read there.
    pub(super) unreadable: Option<BlockError>,
    /// Pages of the map that were rebuilt, why, and how many of their blocks are lost.
    pub(super) rebuilt: Vec<(MapPage, LogStoreError, u64)>,
    /// Blocks that are lost with damaged chunks that were skipped.
    pub(super) skipped: Vec<Range<u64>>,
    /// Flushed data that is lost at the end of the log, for certain or perhaps.
    pub(super) loss: Option<Loss>,
    /// What the next opening must know if this one is cut off.
    pending: Option<PendingLoss>,
    /// The error in the other checkpoint, if that may have been newer; the log is complete nevertheless.
    pub(super) checkpoint: Option<FormatError>,
}

impl LogStore {
    /// Opens the store on a device.
    pub fn open(
        device: Arc<dyn BlockDevice>,
        name: &str,
        options: Options,
        access: OpenMode,
    ) -> Result<LogStore, LogStoreError> {
        let named = NamedDevice::new(name, device);
        let (recovered, access) = recover_or_read_only(&named, options, access)?;
        let is_written = access != OpenMode::ReadOnly;
        let superblock = recovered.core.superblock.clone();
        recovered.log_findings(&named.name);
        let mut repaired = recovered.repaired_damage();
        repaired.extend(recovered.loss.as_ref().map(ToString::to_string));
        if is_written && let Some(copy) = recovered.repair {
            let block = superblock.encode().map_err(|source| named.format(source))?;
            named.device.write(Lba(copy.0 * BLOCK_SECTORS), &block, Durability::Through)?;
        }
        let mut core = recovered.core;
        if is_written && !superblock.incompat.has(Incompat::ALL) {
            core.superblock = named.upgrade(&superblock)?;
        }
        if is_written && recovered.pending.is_some() && recovered.pending != superblock.pending_loss {
            let changed = Superblock { pending_loss: recovered.pending, ..core.superblock };
            core.superblock = named.replace_superblock(changed)?;
        }
        // Chunks of the abandoned end have this number's predecessors, and must never follow a later checkpoint.
        core.epoch = core.epoch.next();
        let flushed_until = core.next_sequence.before();
        core.flushed = flushed_until;
        core.marked = flushed_until;
        let state = StoreState {
            core,
            flushed_until,
            flushing: false,
            answered: Sequence(0),
            answered_at: Instant::now(),
            poisoned: None,
            read_only: !is_written,
            skips_lost: access == OpenMode::Salvage,
            unread: std::collections::BTreeSet::new(),
            repairing_map: false,
            closing: false,
            threads: false,
            area: recovered.area,
            noted: recovered.noted,
            freed: 0,
            damaged: Vec::new(),
            wanted: 0,
            stuck: false,
            room_attempts: RoomAttempts::default(),
            last_access: Instant::now(),
            paused: Duration::ZERO,
            block_cost: BlockCost::default(),
            throttle: WriteThrottle::new(Instant::now()),
            counts: StoreCounts { replayed: recovered.replayed, repaired, ..StoreCounts::default() },
        };
        let shared = StoreShared {
            named,
            options,
            first: superblock.first,
            segment_blocks: u64::from(superblock.shape.segment_blocks()),
            advertised: AtomicU64::new(superblock.shape.advertised().0),
            state: Mutex::new(state),
            writer: Condvar::new(),
            written: Condvar::new(),
            room: Condvar::new(),
            keeper: Condvar::new(),
            checkpointing: Mutex::new(()),
            arm: AtomicU64::new(0),
            travelled: AtomicU64::new(0),
        };
        if is_written {
            // What was just read may be in a cache only.
            shared.named.flush()?;
            if !shared.checkpoint(AfterCheckpoint::GoesOn)? {
                return Err(LogStoreError::NoRoom { device: shared.named.name });
            }
            shared.remove_pending_loss()?;
        }
        LogStore::start(shared)
    }
}

impl StoreShared {
    /// Removes the loss from the superblock, after it was reported.
    fn remove_pending_loss(&self) -> Result<(), LogStoreError> {
        let superblock = self.state.lock().core.superblock.clone();
        if superblock.pending_loss.is_some() {
            let superblock = self.named.replace_superblock(Superblock { pending_loss: None, ..superblock })?;
            self.state.lock().core.superblock = superblock;
        }
        Ok(())
    }
}

impl Recovered {
    /// Damage without loss, a line each. An opening that writes repairs it.
    fn repaired_damage(&self) -> Vec<String> {
        let copy = self.repair.map(|at| Problem::SuperblockCopy(at).to_string());
        let checkpoint = self.checkpoint.map(|error| Problem::Checkpoint(error).to_string());
        let pages = self.rebuilt.iter().map(|(page, _, doubtful)| describe_page(*page, *doubtful));
        let skipped = (!self.skipped.is_empty()).then(|| {
            format!(
                "the log is damaged: blocks {} are lost, and cannot be read until they are written again",
                BlockRanges(&self.skipped)
            )
        });
        copy.into_iter().chain(checkpoint).chain(pages).chain(skipped).collect()
    }

    /// Logs what users should know about the opening.
    fn log_findings(&self, store: &str) {
        for damage in &self.repaired_damage() {
            tracing::warn!(store, lost = self.core.map.lost(), "{damage}");
        }
        if let Some(loss) = &self.loss {
            tracing::error!(store, "{loss}");
        }
        if self.abandoned > 0 && self.loss.is_none() {
            tracing::warn!(
                store,
                abandoned = self.abandoned,
                "data lies behind the end of the log. After a power cut or a kill it was never flushed, otherwise the log is damaged there"
            );
        }
        if let Some(error) = &self.unreadable {
            tracing::error!(store, %error, "the end of the log cannot be read: the data written last may be lost");
        }
    }
}

/// How the layout of a store is set up.
pub(super) fn settings(
    named: &NamedDevice,
    superblock: &Superblock,
    options: Options,
) -> Result<Settings, LogStoreError> {
    let scheme = |source| LogStoreError::Scheme { device: named.name.clone(), source: Box::new(source) };
    let text = superblock.scheme.as_str();
    let made = SchemeInfo::make_for_disk(&text.parse().map_err(scheme)?).map_err(scheme)?;
    let streams = superblock.shape.map_stream().0;
    if made.streams() != streams {
        let (scheme, wanted) = (text.to_owned(), made.streams());
        return Err(LogStoreError::OtherStreams { device: named.name.clone(), streams, scheme, wanted });
    }
    let segments = superblock.shape.segments();
    let Marks { low, high } = Marks::of(segments);
    Ok(Settings {
        shape: Shape { segments, segment_blocks: superblock.shape.segment_blocks() },
        scheme: made,
        victim: options.victim,
        chunk: Some(CHUNK_BLOCKS.min(superblock.shape.segment_blocks())),
        map: true,
        low,
        high,
    })
}

/// A store as a checkpoint describes it.
struct StoreAtCheckpoint {
    core: Core,
    clean: bool,
    area: usize,
    repair: Option<BlockNo>,
    reaches: Option<(CheckpointNo, Sequence)>,
    in_doubt: Option<FormatError>,
    /// Whether the other checkpoint cannot be used: of a store that was killed while it wrote one, or whose newest one
    /// is lost.
    is_only: bool,
}

/// Reads a store as it was left. A store that is opened to be salvaged may have to be opened read-only instead. Writes
/// nothing.
fn recover_or_read_only(
    named: &NamedDevice,
    options: Options,
    access: OpenMode,
) -> Result<(Recovered, OpenMode), LogStoreError> {
    match recover(named, options, access) {
        Err(error @ (LogStoreError::FlushedLost { .. } | LogStoreError::LogUnreadable { .. }))
            if access == OpenMode::Salvage =>
        {
            tracing::error!(store = named.name, %error, "not all losses are known: serving the store read-only");
            Ok((recover(named, options, OpenMode::ReadOnly)?, OpenMode::ReadOnly))
        }
        recovered => Ok((recovered?, access)),
    }
}

/// Reads a store as it was left. Writes nothing.
///
/// If the log continues in a page of the map that cannot be used, the page is rebuilt. If that leaves a block doubtful,
/// the store is refused, except for salvage.
pub(super) fn recover(named: &NamedDevice, options: Options, access: OpenMode) -> Result<Recovered, LogStoreError> {
    let standing = at_checkpoint(named, options)?;
    let error = match replay(named, standing, Rebuilt::default(), (access, LostPages::Fail)) {
        Err(Halted::OfPage(error)) => error,
        Err(Halted::Otherwise(error)) => return Err(error),
        Ok(recovered) => return Ok(recovered),
    };
    let standing = at_checkpoint(named, options)?;
    let rebuilt = rebuild(named, &standing.core, &|| true).unwrap_or_default();
    let lost_pages = match access {
        OpenMode::ReadWrite if rebuilt.doubtful > 0 => {
            return Err(LogStoreError::Doubtful { source: Box::new(error), blocks: rebuilt.doubtful });
        }
        OpenMode::ReadWrite | OpenMode::Salvage => LostPages::Fail,
        OpenMode::ReadOnly => LostPages::Skip,
    };
    replay(named, standing, rebuilt, (access, lost_pages)).map_err(Halted::error)
}

/// The same for a salvage, which needs all data: it checks every page of the map, and rebuilds damaged ones.
pub(super) fn recover_all(named: &NamedDevice, superblock: Superblock) -> Result<Recovered, LogStoreError> {
    let standing = standing(named, Options::default(), superblock, None)?;
    let rebuilt = rebuild(named, &standing.core, &|| true).unwrap_or_default();
    replay(named, standing, rebuilt, (OpenMode::ReadOnly, LostPages::Skip)).map_err(Halted::error)
}

/// The store as its newest checkpoint describes it; an error if that is an older one than `noted`, which is damaged
/// then.
pub(super) fn as_noted(named: &NamedDevice, options: Options, noted: CheckpointNo) -> Result<Core, LogStoreError> {
    let standing = at_checkpoint(named, options)?;
    if standing.core.epoch < noted {
        let unreadable = FormatError::Unreadable { structure: Structure::Checkpoint };
        return Err(named.format(standing.in_doubt.unwrap_or(unreadable)));
    }
    Ok(standing.core)
}

fn at_checkpoint(named: &NamedDevice, options: Options) -> Result<StoreAtCheckpoint, LogStoreError> {
    let logical_block = named.device.geometry().logical_block;
    if logical_block as usize > BLOCK_BYTES {
        return Err(LogStoreError::LargeBlocks { device: named.name.clone(), block: logical_block });
    }
    let Chosen { superblock, repair } = named.superblock()?;
    standing(named, options, superblock, repair)
}

fn standing(
    named: &NamedDevice,
    options: Options,
    superblock: Superblock,
    repair: Option<BlockNo>,
) -> Result<StoreAtCheckpoint, LogStoreError> {
    refuse_without_memory(&named.name, &superblock.shape, memory_of_machine())?;
    let LoadedCheckpoint { header, index, table, area, reaches, in_doubt, is_only } = named.checkpoint(&superblock)?;
    check_counts(&header).map_err(|source| named.format(source))?;
    let heads: Vec<_> = header
        .heads
        .iter()
        .map(|head| umbrella_policy::log_layout::Head {
            open: head.open.map(|open| (open.segment, open.slot.0)),
            next: head.next,
        })
        .collect();
    let layout = Layout::restore(settings(named, &superblock, options)?, table, &heads, header.clock);
    let exists = |page: MapPage| index.get(page.0 as usize).is_some_and(Option::is_some);
    let mut map = LogicalMap::absent(superblock.shape.advertised().0, exists);
    map.count_lost(header.lost);
    let mut core = Core::new(superblock, layout, map, index, header.counters, options.map_memory);
    core.next_sequence = header.next_sequence;
    core.epoch = header.number;
    Ok(StoreAtCheckpoint { core, clean: header.clean, area, repair, reaches, in_doubt, is_only })
}

/// Why the log could not be followed.
enum Halted {
    /// A page of the map cannot be used.
    OfPage(LogStoreError),
    Otherwise(LogStoreError),
}

impl Halted {
    fn error(self) -> LogStoreError {
        let (Halted::OfPage(error) | Halted::Otherwise(error)) = self;
        error
    }
}

impl From<LogStoreError> for Halted {
    fn from(error: LogStoreError) -> Halted {
        Halted::Otherwise(error)
    }
}

/// Follows the log from a checkpoint on.
fn replay(
    named: &NamedDevice,
    standing: StoreAtCheckpoint,
    rebuilt: Rebuilt,
    (access, lost_pages): (OpenMode, LostPages),
) -> Result<Recovered, Halted> {
    let StoreAtCheckpoint { mut core, clean, area, repair, reaches, in_doubt, is_only } = standing;
    let first_epoch = core.epoch;
    // Of an opening from the same checkpoint that was cut off: it may have written over what it knew this from.
    let before = core.superblock.pending_loss.clone();
    let of_this_log = before.as_ref().filter(|before| before.checkpoint == first_epoch);
    let flushed = of_this_log.map(|before| before.flushed).max(reaches.map(|(_, next)| next.before()));
    let later = LaterCheckpoint::new(core.next_sequence, reaches.map(|(number, _)| number));
    let pages = rebuilt.install(&mut core, &named.name)?;
    let mut replay = Replay {
        named,
        core,
        first_epoch,
        last_epoch: first_epoch.next(),
        later,
        waiting: Vec::new(),
        unreadable: BTreeMap::new(),
        mark: (flushed.unwrap_or_default(), Sequence(0)),
        lost_pages,
        lacks_page: false,
        on_damage: if access == OpenMode::Salvage { OnDamage::Skip } else { OnDamage::End },
        skipped: Skipped::default(),
    };
    let followed = replay_log(&mut replay, (clean, in_doubt.is_some(), is_only));
    let (replayed, behind) = match followed {
        Err(error) if replay.lacks_page => return Err(Halted::OfPage(error)),
        followed => followed?,
    };
    let end = replay.core.next_sequence;
    let was_opened = of_this_log.is_some_and(|before| before.end == end);
    let is_closed = clean && replayed == 0 && replay.ends_at_checkpoint();
    let found = if is_closed { None } else { replay.loss(&behind) };
    let flushed = replay.marks(&behind).0;
    let lacks_checkpoint = in_doubt.is_some() || replay.lacks_checkpoint();
    let must_note = found.is_some() || lacks_checkpoint || replay.skipped.behind.is_some();
    let loss = match (found, before.as_ref().and_then(Loss::of_pending)) {
        (Some(found), _) if found.is_certain => Some(found),
        (Some(found), Some(before)) if !was_opened => Some(found.and(before)),
        (found, before) => before.or(found),
    };
    let pending = must_note.then(|| Loss::pending(loss.as_ref(), (first_epoch, flushed, end)));
    let abandoned = replay.abandoned().max(behind.len() as u64);
    let skipped = replay.still_lost();
    let lost = replay.lacks_checkpoint().then_some(FormatError::NotWritten { structure: Structure::Checkpoint });
    let Replay { mut core, unreadable, last_epoch, .. } = replay;
    let unreadable = unreadable.into_values().next();
    if access != OpenMode::ReadOnly {
        let device = named.name.clone();
        if let Some(source) = unreadable {
            return Err(LogStoreError::LogUnreadable { device, source }.into());
        }
        if let Some(loss) = loss.as_ref().filter(|loss| loss.is_certain) {
            return Err(LogStoreError::FlushedLost { device, loss: Box::new(loss.clone()) }.into());
        }
    }
    core.layout.replayed();
    // The highest number that a chunk of the abandoned end can have.
    core.epoch = last_epoch;
    // One of a store that was about to grow is whole, and does not count.
    let checkpoint = in_doubt.filter(FormatError::is_damage).or(lost);
    Ok(Recovered {
        core,
        replayed,
        area,
        noted: first_epoch,
        repair,
        clean: is_closed,
        abandoned,
        unreadable,
        rebuilt: pages,
        checkpoint,
        skipped,
        pending,
        loss,
    })
}

/// Replays the log to its end. Returns the number of chunks, and the chunks behind the end.
fn replay_log(
    replay: &mut Replay<'_>,
    (clean, is_damaged, is_only): (bool, bool, bool),
) -> Result<(u64, ChunksBehind), LogStoreError> {
    let mut replayed = replay.run()?;
    if is_damaged || (is_only && replay.waits_for_checkpoint()) {
        replay.note_all_segments(is_damaged);
        replayed += replay.run()?;
    }
    // Of a store that was closed in order nothing comes after the checkpoint.
    while !(clean && replayed == 0 && replay.ends_at_checkpoint()) {
        let behind = replay.behind();
        if !replay.extend() {
            return Ok((replayed, behind));
        }
        replayed += replay.run()?;
    }
    Ok((replayed, ChunksBehind::default()))
}

fn check_counts(header: &CheckpointHeader) -> Result<(), FormatError> {
    let out_of_range =
        |value, limit| FormatError::OutOfRange { structure: Structure::Checkpoint, field: Field::Count, value, limit };
    if header.next_sequence.0 == 0 {
        return Err(out_of_range(0, Limit::AtLeast(1)));
    }
    let Counters { user_blocks, copied_blocks, map_blocks, header_blocks, cleaner_reads, cleaned_segments, .. } =
        header.counters;
    let counters = [user_blocks, copied_blocks, map_blocks, header_blocks, cleaner_reads, cleaned_segments];
    let rest = [header.counters.flushes, header.counters.discarded_blocks];
    let numbers = [header.number.0, header.next_sequence.0, header.clock.0];
    match counters.into_iter().chain(rest).chain(numbers).find(|count| *count > MOST) {
        Some(count) => Err(out_of_range(count, Limit::AtMost(MOST))),
        None => Ok(()),
    }
}
