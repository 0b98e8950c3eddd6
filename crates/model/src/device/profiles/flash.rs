//! The flash drives of the dissertation.
//!
//! Its table I gives one set of times: read 25 us and write 200 us for 2 KB, erase 1.5 ms for 128 KB. They are those of single-level
//! flash and are used for the SLC drive as they stand. The 1 MB boundary that it reports fixes the allocation unit; with
//! its erase blocks of 128 KB that makes eight blocks, taken as eight chips working at once.

use umbrella_units::{ByteSize, Nanos};

use super::{Profile, Spec};
use crate::device::disk::Rate;
use crate::device::ssd::SsdSpec;

pub(super) fn all() -> Vec<Profile> {
    vec![slc_memoright(), mlc_samsung()]
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
    }
}
