//! The flash drives of the dissertation, the card of the NVCache paper, and a drive of today.
//!
//! The dissertation's table I gives one set of times: read 25 us and write 200 us for 2 KB, erase 1.5 ms for 128 KB.
//! They are those of single-level flash and are used for the SLC drive unchanged. The 1 MB boundary that it reports
//! fixes the allocation unit; with its erase blocks of 128 KB that makes eight blocks, taken as eight chips working at
//! once.

use umbrella_units::{ByteSize, Nanos};

use super::{Profile, Spec, power};
use crate::device::disk::Rate;
use crate::device::ssd::SsdSpec;

pub(super) fn all() -> Vec<Profile> {
    vec![slc_memoright(), mlc_samsung(), sandisk_ultra2(), sata_ssd()]
}

fn slc_memoright() -> Profile {
    let spec = SsdSpec {
        capacity: ByteSize(32_000_000_000), // "32GB"; the exact size is assumed
        page: ByteSize(2048),               // table I
        erase_block: ByteSize(128 << 10),   // table I
        channels: 8,                        // 1 MB / 128 KB
        read: Nanos::from_micros(25),       // table I
        program: Nanos::from_micros(200),   // table I
        erase: Nanos::from_micros(1500),    // table I
        log_units: 16,                      // assumed
        overhead: Nanos::from_micros(60),   // assumed
        interface: Rate::from_mb(133),      // assumed: ATA/133
        queue_depth: 1,                     // assumed
    };
    Profile {
        name: "slc_memoright",
        summary: "Memoright MR25.2-032S 32 GB, single-level flash (the dissertation's SLC drive)",
        source: "UmbrellaFS dissertation, table I (flash times, page, erase block) and chapter I (1 MB boundary); the rest assumed",
        spec: Spec::Ssd(spec),
        power: power::SLC_MEMORIGHT,
        watts: "assumed",
    }
}

fn mlc_samsung() -> Profile {
    let spec = SsdSpec {
        capacity: ByteSize(32_000_000_000), // "32GB"; the exact size is assumed
        page: ByteSize(4096),               // assumed: two-bit cells come with 4 KB pages
        erase_block: ByteSize(128 << 10),   // table I
        channels: 8,                        // 1 MB / 128 KB
        read: Nanos::from_micros(60),       // assumed
        program: Nanos::from_micros(800),   // assumed: four times table I, for twice the page
        erase: Nanos::from_micros(1500),    // table I
        log_units: 8,                       // assumed
        overhead: Nanos::from_micros(60),   // assumed
        interface: Rate::from_mb(66),       // assumed: ATA/66
        queue_depth: 1,                     // assumed
    };
    Profile {
        name: "mlc_samsung",
        summary: "Samsung MCBOE32G8APR 32 GB, multi-level flash (the dissertation's MLC drive)",
        source: "UmbrellaFS dissertation, table I (erase time and block) and chapter I (1 MB boundary); the slower program and read of \
                 multi-level cells and the rest assumed",
        spec: Spec::Ssd(spec),
        power: power::MLC_SAMSUNG,
        watts: "assumed",
    }
}

fn sandisk_ultra2() -> Profile {
    let spec = SsdSpec {
        capacity: ByteSize(1_000_000_000), // assumed: the line went up to 8 GB; the paper used 64 MB of it
        // The dissertation's single-level flash, on one chip: 9.0 MB/s written with its erasures, as the card was
        // specified.
        page: ByteSize(2048),
        erase_block: ByteSize(128 << 10),
        channels: 1,                       // assumed
        read: Nanos::from_micros(25),      // table I
        program: Nanos::from_micros(200),  // table I
        erase: Nanos::from_micros(1500),   // table I
        log_units: 4,                      // assumed
        overhead: Nanos::from_micros(500), // assumed
        interface: Rate::from_mb(10),      // 10 MB/s read
        queue_depth: 1,
    };
    Profile {
        name: "sandisk_ultra2",
        summary: "SanDisk Ultra II CompactFlash card (the NVCache paper's flash)",
        source: "Rob Galbraith, \"Sandisk to unveil Extreme III CompactFlash\", 2004 (9 MB/s written, 10 MB/s read); UmbrellaFS dissertation, \
                 table I (flash times); the rest assumed",
        spec: Spec::Ssd(spec),
        power: power::SANDISK_ULTRA2,
        watts: "assumed",
    }
}

/// A drive that maps single pages has no units to merge: each page is a unit of its own. The time of a page includes
/// the drive's background work.
fn sata_ssd() -> Profile {
    let spec = SsdSpec {
        capacity: ByteSize(500_107_862_016), // what every maker calls 500 GB (IDEMA LBA1-03)
        page: ByteSize(4096),
        erase_block: ByteSize(4096),
        channels: 1,
        // All assumed: some 80 us for a random page, 500 MB/s in large pieces.
        read: Nanos::from_micros(1),
        program: Nanos::from_micros(3),
        erase: Nanos(0),
        log_units: 1,
        overhead: Nanos::from_micros(70),
        interface: Rate::from_mb(550), // SATA 6 Gb/s, as drives reach it
        queue_depth: 32,
    };
    Profile {
        name: "sata_ssd",
        summary: "a current SATA flash drive, 500 GB",
        source: "assumed: no document; it serves one request after another, whatever its queue",
        spec: Spec::Ssd(spec),
        power: power::SATA_SSD,
        watts: "assumed",
    }
}
