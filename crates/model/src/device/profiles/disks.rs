//! Rotating disks of the papers, and a modern one.
//!
//! Figures come from the maker's document. If it could not be read, a figure is taken from a named disk of the same
//! class and time, or is assumed; its comment says which. No figure was chosen to meet a paper's result.

use umbrella_units::{ByteSize, Nanos};

use super::{Profile, Spec, power};
use crate::device::disk::{DiskSpec, Measured, Rate, SeekTimes};

pub(super) fn all() -> Vec<Profile> {
    vec![maxtor_80gb(), cheetah_10k7(), travelstar_e7k100(), deskstar_500gb(), modern()]
}

const fn seek_us(track_to_track: u64, average: u64, full_stroke: u64) -> SeekTimes {
    SeekTimes {
        track_to_track: Nanos::from_micros(track_to_track),
        average: Nanos::from_micros(average),
        full_stroke: Nanos::from_micros(full_stroke),
    }
}

/// How long a command may be passed over: assumed for all, no document says it.
const AGE_LIMIT: Nanos = Nanos::from_millis(500);

fn maxtor_80gb() -> Profile {
    let spec = DiskSpec {
        // 156,301,488 sectors, what every maker calls 80 GB (IDEMA LBA1-03).
        capacity: ByteSize(156_301_488 * 512),
        rpm: 7200,
        heads: 2,  // assumed: one platter
        zones: 16, // assumed
        // Rates: of the Hitachi Deskstar 7K250, also 80 GB a platter and 7200 rpm: 29.7-61.4 MB/s sustained
        // (techreport.com/review/8362).
        outer_rate: Rate(61_400_000),
        inner_rate: Rate(29_700_000),
        // Average: "9.3 ms" (Tom's Hardware, "SATA Hard Drives Run Riot", on the DiamondMax Plus 9). Track to track and
        // the write's extra millisecond: assumed. Full stroke: twice the average, rounded down to what the curve
        // allows; assumed.
        read_seek: seek_us(900, 9300, 18_000),
        write_seek: seek_us(1100, 10_300, 19_000),
        // Deskstar 60GXP specification, section 4.3.2: head switch 1.4 ms, cylinder switch 1.8 ms (typical).
        head_switch: Nanos::from_micros(1400),
        cylinder_switch: Nanos::from_micros(1800),
        overhead: Nanos::from_micros(300), // assumed
        interface: Rate::from_mb(133),     // Ultra ATA/133
        cache: ByteSize(2 << 20), // 2 MB or 8 MB (Tom's Hardware, "Maxtor Goes Serial ATA"); the smaller is assumed
        read_segments: 8,         // assumed
        write_runs: 128,          // assumed
        write_cache: true,
        queue_depth: 1, // parallel ATA as Linux 2.6.12 drives it: no queue
        age_limit: AGE_LIMIT,
        measured: Measured::default(),
    };
    Profile {
        name: "maxtor_80gb",
        summary: "Maxtor DiamondMax Plus 9 80 GB, 7200 rpm, ATA (the MRAM paper's disk)",
        source: "Tom's Hardware on the DiamondMax Plus 9 (average seek, interface, buffer); The Tech Report on the Deskstar 7K250 (rates of the \
                 same platter size); Hitachi Deskstar 60GXP specification (switches); the rest assumed",
        spec: Spec::Disk(spec),
        power: power::MAXTOR_80GB,
        watts: "data sheets of disks of the same class; the spin-up assumed",
    }
}

/// The Cheetah 10K.7 of 73 GB, also a member of the array.
pub(super) fn cheetah_spec() -> DiskSpec {
    DiskSpec {
        capacity: ByteSize(143_374_744 * 512), // 73.4 GB; the sector count is assumed
        rpm: 10_000,
        heads: 2,  // assumed: 300 GB on four platters make 73 GB on one
        zones: 16, // assumed
        // Assumed: 80 MB/s outside and half of it inside.
        outer_rate: Rate::from_mb(80),
        inner_rate: Rate::from_mb(40),
        // Average and full stroke are those of the IBM/Hitachi Ultrastar 146Z10 specification, section 4.5.2, also a
        // 10,000 rpm disk with 4.7 / 5.3 ms. Single track is that of the Seagate Savvio 10K.4 manual, section 4.2.1,
        // 0.30 / 0.56 ms.
        read_seek: seek_us(300, 4700, 10_500),
        write_seek: seek_us(560, 5300, 11_500),
        head_switch: Nanos::from_micros(600),     // assumed
        cylinder_switch: Nanos::from_micros(800), // assumed
        // Savvio 10K.4 manual, section 4.2.1: access times with controller overhead are 0.2 ms longer than without.
        overhead: Nanos::from_micros(200),
        interface: Rate::from_mb(320), // Ultra320 SCSI
        cache: ByteSize(8 << 20),      // assumed
        read_segments: 16,             // assumed
        write_runs: 256,               // assumed
        write_cache: false,            // assumed: SCSI disks of servers are shipped so
        queue_depth: 32,               // of the model's range; tagged queueing allows more
        age_limit: AGE_LIMIT,
        measured: Measured::default(),
    }
}

fn cheetah_10k7() -> Profile {
    Profile {
        name: "cheetah_10k7",
        summary: "Seagate Cheetah 10K.7 73 GB, 10,000 rpm, SCSI (the dissertation's disk)",
        source: "IBM Ultrastar 146Z10 specification 4.5.2 (seeks of the same class) and Seagate Savvio 10K.4 manual 4.2.1 (single track, \
                 overhead); the rest assumed",
        spec: Spec::Disk(cheetah_spec()),
        power: power::CHEETAH_10K7,
        watts: "assumed",
    }
}

fn travelstar_e7k100() -> Profile {
    let spec = DiskSpec {
        capacity: ByteSize(195_371_568 * 512), // 100 GB (IDEMA LBA1-03)
        rpm: 7200,
        heads: 4,                      // assumed: two platters
        zones: 16,                     // assumed
        outer_rate: Rate::from_mb(50), // assumed
        inner_rate: Rate::from_mb(26), // assumed
        // Single track 1.0 / 1.1 ms and full stroke 20 / 21 ms: Hitachi Travelstar 5K160 specification, section 4.4.1,
        // the same in the 7K320's; average 10 / 11 ms assumed (11 / 13 for the 5K160, 12 for the 7K320).
        read_seek: seek_us(1000, 10_000, 20_000),
        write_seek: seek_us(1100, 11_000, 21_000),
        head_switch: Nanos::from_micros(1400),     // as the Deskstar 60GXP
        cylinder_switch: Nanos::from_micros(1800), // as the Deskstar 60GXP
        overhead: Nanos::from_millis(1),           // Travelstar 48GH specification, figure 11: command overhead 1.0 ms
        interface: Rate::from_mb(100),             // Ultra ATA/100
        cache: ByteSize(8 << 20),                  // assumed
        read_segments: 8,                          // assumed
        write_runs: 128,                           // assumed
        write_cache: true,
        queue_depth: 1,
        age_limit: AGE_LIMIT,
        measured: Measured::default(),
    };
    Profile {
        name: "travelstar_e7k100",
        summary: "Hitachi Travelstar E7K100 100 GB, 7200 rpm, 2.5 inch (the NVCache paper's disk)",
        source: "Hitachi Travelstar 5K160 and 7K320 specifications (single track, full stroke), Travelstar 48GH specification (overhead), \
                 Deskstar 60GXP specification (switches); the rest assumed",
        spec: Spec::Disk(spec),
        power: power::TRAVELSTAR_E7K100,
        watts: "a later model's data sheet for the spin-up; the rest assumed",
    }
}

fn deskstar_500gb() -> Profile {
    let spec = DiskSpec {
        capacity: ByteSize(976_773_168 * 512), // 500 GB: Seagate Constellation ES manual 3.2, and IDEMA LBA1-03
        rpm: 7200,
        heads: 10, // assumed: five platters
        // Deskstar 7K500 specification, section 4.4.4: zones 0 to 29; sustained 64.8 MB/s in zone 0, 31.0 MB/s in
        // zone 29.
        zones: 30,
        outer_rate: Rate(64_800_000),
        inner_rate: Rate(31_000_000),
        // Average read 8.5 ms (The Tech Report 8362, Deskstar 7K250 and T7K250), write 9.5 ms (Deskstar 7K1000.C
        // specification 4.5.2, two-disk model, whose read is 8.5 ms as well). Full stroke 14.7 / 15.7 ms (Deskstar
        // 60GXP specification 4.3.2). Track to track assumed.
        read_seek: seek_us(800, 8500, 14_700),
        write_seek: seek_us(1000, 9500, 15_700),
        // Deskstar 60GXP specification; they agree with the 7K500's own rates: 76.3 MB/s on a track, 64.8 MB/s
        // sustained.
        head_switch: Nanos::from_micros(1400),
        cylinder_switch: Nanos::from_micros(1800),
        overhead: Nanos::from_micros(300), // assumed
        interface: Rate::from_mb(300),     // 7K500 specification 4.4.4
        cache: ByteSize(16 << 20),         // assumed
        read_segments: 16,                 // assumed
        write_runs: 256,                   // assumed
        write_cache: true,
        queue_depth: 32, // native command queueing
        age_limit: AGE_LIMIT,
        measured: Measured::default(),
    };
    Profile {
        name: "deskstar_500gb",
        summary: "Hitachi Deskstar 7K500 500 GB, 7200 rpm, SATA (for the TESA paper's unnamed 500 GB disk)",
        source: "Hitachi Deskstar 7K500 specification 4.4.4 (zones, rates, interface); Deskstar 7K1000.C 4.5.2 and 60GXP 4.3.2 specifications and The \
                 Tech Report 8362 (seeks, switches); the rest assumed",
        spec: Spec::Disk(spec),
        power: power::DESKSTAR_500GB,
        watts: "a later model's data sheets; standby and spin-up assumed",
    }
}

fn modern() -> Profile {
    let spec = DiskSpec {
        capacity: ByteSize(16_000_900_661_248), // ST16000NM001G as it identifies itself (smartctl)
        rpm: 7200,
        heads: 18, // assumed: nine platters
        zones: 32, // assumed
        // Assumed outside; inside by the ratio of the Seagate Constellation ES.3 manual, section 4.1.2: 83 to 175 MB/s.
        outer_rate: Rate::from_mb(261),
        inner_rate: Rate::from_mb(124),
        // Average 7.4 / 8.2 ms and single track 0.23 / 0.32 ms: Western Digital Ultrastar DC HC310 specification,
        // section 4.5.1. Full stroke 17.06 / 18.08 ms would be the Constellation.2's (manual 5.2); 15 / 16 ms is
        // assumed for the shorter average.
        read_seek: seek_us(230, 7400, 15_000),
        write_seek: seek_us(320, 8200, 16_000),
        head_switch: Nanos::from_micros(1000),     // assumed
        cylinder_switch: Nanos::from_micros(1000), // assumed
        overhead: Nanos::from_micros(100),         // assumed
        interface: Rate::from_mb(600),             // SATA 6 Gb/s
        cache: ByteSize(256 << 20),                // assumed
        read_segments: 32,                         // assumed
        write_runs: 512,                           // assumed
        write_cache: true,
        queue_depth: 32,
        age_limit: AGE_LIMIT,
        measured: Measured::default(),
    };
    Profile {
        name: "modern",
        summary: "Seagate Exos X16 16 TB, 7200 rpm, SATA",
        source: "Western Digital Ultrastar DC HC310 specification 4.5.1 (seeks of the same class); Seagate Constellation ES.3 manual 4.1.2 (inner to \
                 outer rate); capacity as the ST16000NM001G reports it; the rest assumed",
        spec: Spec::Disk(spec),
        power: power::MODERN,
        watts: "assumed; the times are those of a data sheet",
    }
}
