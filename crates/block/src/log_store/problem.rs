//! The problems that a check can find in a store, and how they are reported.

use std::fmt;
use std::ops::Range;

use umbrella_policy::log_layout::{LogBlock, MapPage, SegmentNo};
use umbrella_units::BlockNo;

use super::error::LogStoreError;
use super::format::FormatError;
use super::loss::{BlockRanges, Loss};
use crate::error::BlockError;

/// The most runs of blocks that are listed.
pub(super) const MOST_RUNS: usize = 32;

/// The cause.
#[derive(Debug, Clone)]
pub enum Problem {
    /// A copy of the superblock is damaged or old; the next opening mends it.
    SuperblockCopy(BlockNo),
    /// Flushed data at the end of the log is lost, for certain or perhaps.
    Loss(Loss),
    /// The newest checkpoint is damaged, or may have been the newest; the one before it and the log are used. Data lost
    /// with it is reported as [`Problem::Loss`].
    Checkpoint(FormatError),
    /// The log after the last checkpoint cannot be read further.
    LogUnreadable(BlockError),
    /// A page of the map cannot be used.
    Page(MapPage, LogStoreError),
    /// A page of the map is damaged, and the log has all of it; the next use rebuilds it.
    RebuiltPage(MapPage),
    /// Blocks that are lost, until they are written again: how many, and the first runs of them.
    Lost(u64, Vec<Range<u64>>),
    /// The checkpoint and the log after it count another number of lost blocks than the map has.
    LostCount(u64, u64),
    /// A block lies where nothing can be.
    Misplaced(BlockNo, LogBlock),
    /// A page of the map does.
    MisplacedPage(MapPage, LogBlock),
    /// Two blocks lie at one place.
    Twice(LogBlock),
    /// The segment table has another count of live blocks than the map.
    Live(SegmentNo, u32, u32),
    /// The chunks of a segment name fewer of the blocks that the map has there.
    Summary(SegmentNo, u32, u32),
    /// A block is not what was written.
    Damaged(BlockNo, LogBlock),
    /// A page of the map is not.
    DamagedPage(MapPage, LogBlock),
    /// A part of a segment cannot be read.
    Unreadable(SegmentNo, BlockError),
    /// A header in a segment is damaged.
    Header(SegmentNo, u32, FormatError),
    /// Blocks and pages of the map in a segment that no header could be found for: how many, and the first runs of
    /// blocks.
    Unnamed(SegmentNo, u32, Vec<(BlockNo, u32)>),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::SuperblockCopy(at) => {
                write!(
                    f,
                    "the copy of the superblock at block {} is damaged or old (the next opening repairs it)",
                    at.0
                )
            }
            Problem::Loss(loss) => write!(f, "{loss}"),
            Problem::Checkpoint(error) => {
                write!(
                    f,
                    "the newest checkpoint is damaged ({error}): the one before it and the log after it are used (the next opening that writes repairs it)"
                )
            }
            Problem::LogUnreadable(error) => {
                write!(f, "the log after the last checkpoint cannot be read to its end: {error}")
            }
            Problem::Page(_, error @ LogStoreError::MapPage { .. }) => write!(f, "{error}"),
            Problem::Page(page, error) => write!(f, "page {} of the map: {error}", page.0),
            Problem::RebuiltPage(page) => {
                write!(
                    f,
                    "page {} of the map is damaged; nothing is lost with it, and the store rebuilds it from the log when it is needed",
                    page.0
                )
            }
            Problem::Lost(count, runs) => {
                write!(
                    f,
                    "{} lost to earlier damage, and cannot be read until written again: {}",
                    if *count == 1 { "1 block is".to_owned() } else { format!("{count} blocks are") },
                    BlockRanges(runs)
                )?;
                let reported: u64 = runs.iter().map(|run| run.end - run.start).sum();
                if reported < *count { write!(f, " and {} more", count - reported) } else { Ok(()) }
            }
            Problem::LostCount(said, found) => {
                write!(f, "the map has {found} lost blocks, the checkpoint and the log after it say {said}")
            }
            Problem::Misplaced(block, place) => {
                write!(f, "the map puts block {} at {}, where no block can be", block.0, place.0)
            }
            Problem::MisplacedPage(page, place) => {
                write!(f, "the index puts page {} of the map at {}, where no page can be", page.0, place.0)
            }
            Problem::Twice(place) => write!(f, "the map puts two blocks at {}", place.0),
            Problem::Live(segment, table, found) => {
                write!(f, "segment {} has {found} live blocks, the table says {table}", segment.0)
            }
            Problem::Summary(segment, live, named) => {
                write!(f, "segment {} has {live} live blocks, its headers name {named} of them", segment.0)
            }
            Problem::Damaged(block, place) => write!(f, "block {} at {} is not what was written", block.0, place.0),
            Problem::DamagedPage(page, place) => {
                write!(f, "page {} of the map at {} is not what was written", page.0, place.0)
            }
            Problem::Unreadable(segment, error) => write!(f, "segment {}: {error}", segment.0),
            Problem::Header(segment, slot, error) => write!(f, "segment {}, slot {slot}: {error}", segment.0),
            Problem::Unnamed(segment, count, runs) => {
                write!(
                    f,
                    "segment {}: {count} blocks in it may be wrong, because their checksums are lost:",
                    segment.0
                )?;
                let mut reported = 0;
                for (nth, (first, blocks)) in runs.iter().enumerate() {
                    reported += blocks;
                    write!(f, "{}{}", if nth == 0 { " " } else { ", " }, first.0)?;
                    if *blocks > 1 {
                        write!(f, "-{}", first.0 + u64::from(*blocks) - 1)?;
                    }
                }
                if reported < *count {
                    let (and, more) = if runs.is_empty() { (" ", "") } else { (" and ", " more") };
                    write!(f, "{and}{}{more} of the store or its map", count - reported)?;
                }
                Ok(())
            }
        }
    }
}

/// Problems of one kind that may concern adjacent blocks or pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProblemRun {
    Blocks,
    Pages,
    RebuiltPages,
}

impl Problem {
    fn in_run(&self) -> Option<(ProblemRun, u64)> {
        match self {
            Problem::Damaged(block, _) => Some((ProblemRun::Blocks, block.0)),
            Problem::DamagedPage(page, _) => Some((ProblemRun::Pages, page.0.into())),
            Problem::RebuiltPage(page) => Some((ProblemRun::RebuiltPages, page.0.into())),
            _ => None,
        }
    }

    /// Problems in words, those of adjacent blocks or pages in one line: how many each line is for, and the line.
    pub fn lines(mut problems: &[&Problem]) -> Vec<(usize, String)> {
        let mut lines = Vec::new();
        while let Some(problem) = problems.first() {
            let line = match problem.in_run() {
                Some((run, first)) => {
                    let rest = (first..).zip(problems);
                    let count = rest.take_while(|(number, problem)| problem.in_run() == Some((run, *number))).count();
                    let reported =
                        if count > 1 { run.describe(first, first + count as u64 - 1) } else { problem.to_string() };
                    (count, reported)
                }
                None => (1, problem.to_string()),
            };
            problems = problems.get(line.0..).unwrap_or_default();
            lines.push(line);
        }
        lines
    }
}

impl ProblemRun {
    fn describe(self, first: u64, last: u64) -> String {
        match self {
            ProblemRun::Blocks => format!("blocks {first}-{last} are not what was written"),
            ProblemRun::Pages => format!("pages {first}-{last} of the map are not what was written"),
            ProblemRun::RebuiltPages => format!(
                "pages {first}-{last} of the map are damaged; nothing is lost with them, and the store rebuilds them from the log when they are needed"
            ),
        }
    }
}
