//! UmbrellaFS: the dissertation's page-cache write-back and optimality study (chapters IV and V), figures 23 to 41.
//!
//! The machine is the dissertation's: 2 GB of memory, Linux 2.6.24's thresholds of 5 and 10 %, ext2, one test drive.
//! Every scheme is compared with `file`, the unmodified kernel. The claims are those of the frozen list.
//!
//! The text's statements about writes, reads and their order concern the time that a benchmark runs, so the write-out
//! after it is left out. The exception is the optimum (figures 40 and 41): there the last dirty pages are written under
//! all policies.
//!
//! Figures 29 and 30 plot how often each block was written. The distance between writes shows that sorting clusters
//! them. That some blocks are rewritten much more often is not judged, as the lab does not record writes by block.

mod bench;
mod dbench;
mod iozone;
mod optimality;
mod runs;
#[cfg(test)]
mod tests;

use self::runs::{DRIVES, MAGNETIC, MLC, NO_FSYNC, NO_READS, SLC, compared, in_both, measure_both};
use super::{Effort, Figure, Measured, Paper, WriteBackCells};

/// The paper.
pub static PAPER: Paper = Paper {
    name: "umbrellafs",
    title: "UmbrellaFS, chapters IV and V: page-cache write-back and its optimality",
    figures: FIGURES,
};

static FIGURES: &[Figure] = &[
    Figure {
        id: "23",
        title: "IOzone on the magnetic disk, time against the unmodified kernel",
        assumed: iozone::ASSUMED,
        cells: |effort| in_both(iozone::cells(effort, MAGNETIC), NO_READS),
        measure: |outcomes| measure_both(outcomes, NO_READS, |of| iozone::measure(MAGNETIC, of)),
    },
    Figure {
        id: "24",
        title: "IOzone on the Samsung drive (MLC), time against the unmodified kernel",
        assumed: iozone::ASSUMED,
        cells: |effort| in_both(iozone::cells(effort, MLC), NO_READS),
        measure: |outcomes| measure_both(outcomes, NO_READS, |of| iozone::measure(MLC, of)),
    },
    Figure {
        id: "25",
        title: "IOzone on the Memoright drive (SLC), time against the unmodified kernel",
        assumed: iozone::ASSUMED,
        cells: |effort| in_both(iozone::cells(effort, SLC), NO_READS),
        measure: |outcomes| measure_both(outcomes, NO_READS, |of| iozone::measure(SLC, of)),
    },
    Figure {
        id: "26",
        title: "writes within 1 MB in 100 ms, IOzone on the Memoright drive",
        assumed: iozone::ASSUMED,
        cells: |effort| in_both(iozone::cells(effort, SLC), NO_READS),
        measure: |outcomes| measure_both(outcomes, NO_READS, iozone::measure_windows),
    },
    Figure {
        id: "27",
        title: "dbench, throughput against the unmodified kernel",
        assumed: dbench::ASSUMED,
        cells: |effort| in_both(dbench::cells(effort, &DRIVES), NO_FSYNC),
        measure: |outcomes| measure_both(outcomes, NO_FSYNC, dbench::measure),
    },
    Figure {
        id: "28",
        title: "dbench on the Memoright drive, data written to it and read from it",
        assumed: dbench::ASSUMED,
        cells: |effort| in_both(dbench::cells(effort, &[SLC]), NO_FSYNC),
        measure: |outcomes| measure_both(outcomes, NO_FSYNC, dbench::measure_written),
    },
    Figure {
        id: "30",
        title: "dbench on the Memoright drive, where writes go, sorted and (figure 29) not",
        assumed: "Locality is the mean distance between writes. How often each block is written is not \
                  recorded, so claims about it are not judged. Otherwise as in figure 27.",
        cells: |effort| in_both(dbench::cells(effort, &[SLC]), NO_FSYNC),
        measure: |outcomes| measure_both(outcomes, NO_FSYNC, dbench::measure_locality),
    },
    Figure {
        id: "31",
        title: "kernel compilation, time against the unmodified kernel",
        assumed: bench::COMPILE_ASSUMED,
        cells: |effort| compared(effort, bench::QUICK, &DRIVES, bench::COMPILE),
        measure: bench::measure_compile,
    },
    Figure {
        id: "32",
        title: "kernel compilation on the Memoright drive, average size of sequential writes",
        assumed: "A sequential write is a run of requests, each of which begins where the one before it ends. \
                  Otherwise as in figure 31.",
        cells: |effort| compared(effort, bench::QUICK, &[SLC], bench::COMPILE),
        measure: bench::measure_length,
    },
    Figure {
        id: "33",
        title: "Postmark, time against the unmodified kernel",
        assumed: "",
        cells: |effort| compared(effort, bench::QUICK, &DRIVES, bench::POSTMARK),
        measure: bench::measure_postmark,
    },
    Figure {
        id: "34",
        title: "IOzone on two magnetic disks, each with a policy of its own",
        assumed: iozone::PAIR_ASSUMED,
        cells: |effort| in_both(iozone::pair_cells(effort, [MAGNETIC, MAGNETIC]), NO_READS),
        measure: |outcomes| measure_both(outcomes, NO_READS, iozone::measure_two_disks),
    },
    Figure {
        id: "35",
        title: "IOzone on a magnetic disk and the Samsung drive, each with a policy of its own",
        assumed: iozone::PAIR_ASSUMED,
        cells: |effort| in_both(iozone::pair_cells(effort, [MAGNETIC, MLC]), NO_READS),
        measure: |outcomes| measure_both(outcomes, NO_READS, iozone::measure_mixed_pair),
    },
    Figure {
        id: "36",
        title: "IOzone on NILFS, magnetic disk, time against the unmodified kernel",
        assumed: iozone::LOG_ASSUMED,
        cells: |effort| in_both(iozone::log_cells(effort, MAGNETIC), NO_READS),
        measure: |outcomes| measure_both(outcomes, NO_READS, |of| iozone::measure_log(MAGNETIC, of)),
    },
    Figure {
        id: "37",
        title: "IOzone on NILFS, Samsung drive, time against the unmodified kernel",
        assumed: iozone::LOG_ASSUMED,
        cells: |effort| in_both(iozone::log_cells(effort, MLC), NO_READS),
        measure: |outcomes| measure_both(outcomes, NO_READS, |of| iozone::measure_log(MLC, of)),
    },
    Figure {
        id: "38",
        title: "IOzone on NILFS, Memoright drive, time against the unmodified kernel",
        assumed: iozone::LOG_ASSUMED,
        cells: |effort| in_both(iozone::log_cells(effort, SLC), NO_READS),
        measure: |outcomes| measure_both(outcomes, NO_READS, |of| iozone::measure_log(SLC, of)),
    },
    Figure {
        id: "39",
        title: "an hour of an NFS trace of e-mail and research work, as fast as possible",
        assumed: bench::TRACE_ASSUMED,
        cells: |effort| compared(effort, bench::QUICK_FILESERVER, &[MAGNETIC, MLC], bench::FILESERVER),
        measure: bench::measure_trace,
    },
    Figure {
        id: "40",
        title: "boundary crossings, against the optimum",
        assumed: optimality::ASSUMED,
        cells: optimality::cells,
        measure: optimality::measure_crossings,
    },
    Figure {
        id: "41",
        title: "data written, against the optimum",
        assumed: optimality::ASSUMED,
        cells: optimality::cells,
        measure: optimality::measure_written,
    },
];

/// "Slight", "overhead": as little as the tables show.
const SLIGHT: f64 = 0.1;
