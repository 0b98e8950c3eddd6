//! Rotating disks.

use umbrella_units::{ByteSize, Nanos};

use super::{Profile, Spec};
use crate::device::disk::{DiskSpec, Rate, SeekTimes};

pub(super) fn all() -> Vec<Profile> {
    vec![maxtor_80gb()]
}

const fn seek_us(track_to_track: u64, average: u64, full_stroke: u64) -> SeekTimes {
    SeekTimes {
        track_to_track: Nanos::from_micros(track_to_track),
        average: Nanos::from_micros(average),
        full_stroke: Nanos::from_micros(full_stroke),
    }
}

fn maxtor_80gb() -> Profile {
    let spec = DiskSpec {
        capacity: ByteSize(80_026_361_856),
        rpm: 7200,
        heads: 2,
        zones: 16,
        outer_rate: Rate::from_mb(58),
        inner_rate: Rate::from_mb(33),
        read_seek: seek_us(800, 9300, 17_800),
        write_seek: seek_us(1000, 10_300, 18_800),
        head_switch: Nanos::from_micros(800),
        overhead: Nanos::from_micros(300),
        interface: Rate::from_mb(133),
        cache: ByteSize(2 << 20),
        read_segments: 8,
        write_cache: true,
        queue_depth: 1,
        age_limit: Nanos::from_millis(500),
    };
    Profile {
        name: "maxtor-80gb",
        summary: "Maxtor DiamondMax Plus 9 80 GB, 7200 rpm, parallel ATA",
        source: "assumed",
        spec: Spec::Disk(spec),
    }
}
