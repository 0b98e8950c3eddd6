//! What the devices of the profiles take from their supply.
//!
//! No data sheet gives the mean power of a spin-down: the motor is off then, and standby's is assumed for all. Maxima
//! of times are used where the documents give nothing else.

use umbrella_units::Nanos;

use crate::power::{Milliwatts, Phase, PowerSpec, SpindleSpec};

/// A disk, in milliwatts; the times are in milliseconds.
const fn disk(active: u32, idle: u32, standby: u32, spin_up: (u32, u64), spin_down_ms: u64) -> PowerSpec {
    PowerSpec {
        active: Milliwatts(active),
        idle: Milliwatts(idle),
        spindle: Some(SpindleSpec {
            standby: Milliwatts(standby),
            spin_down: Phase { time: Nanos::from_millis(spin_down_ms), power: Milliwatts(standby) },
            spin_up: Phase { time: Nanos::from_millis(spin_up.1), power: Milliwatts(spin_up.0) },
        }),
    }
}

/// Flash, in milliwatts.
const fn flash(active: u32, idle: u32) -> PowerSpec {
    PowerSpec { active: Milliwatts(active), idle: Milliwatts(idle), spindle: None }
}

/// Operating 12.1, idle 7.5, standby 2.0 W: Seagate Barracuda 7200.7 SATA manual, rev. N, table 5 (same years, speed
/// and platter size; two platters). Standby to ready 10 s, ready to stop 12 s, both at most: Barracuda 7200.8 SATA
/// manual, rev. B, section 2.7. 20 W for a spin-up: assumed (its peak is 2.8 A at 12 V).
pub(super) const MAXTOR_80GB: PowerSpec = disk(12_100, 7500, 2000, (20_000, 10_000), 12_000);

/// Assumed.
pub(super) const CHEETAH_10K7: PowerSpec = disk(12_000, 8000, 1500, (22_000, 15_000), 20_000);

/// 3.8 W from power on to ready: Hitachi Travelstar 5K320 SATA specification, section 6.2 (5400 rpm, two years later;
/// 5.0 W at its peak, reading and writing 1.8 W, low power idle 0.55 W, standby 0.2 W). The rest assumed: 2.3 W active,
/// 0.85 W in low power idle, 0.25 W in standby, 4 s to ready, 2 s to rest.
pub(super) const TRAVELSTAR_E7K100: PowerSpec = disk(2300, 850, 250, (3800, 4000), 2000);

/// Operating 10.8 W, idle 9 W: the maker's figures for the Deskstar 7K1000, also five platters (Computerworld,
/// "Hitachi's old-school 1TB DeskStar 7K1000"). Standby to ready 13.5 s, ready to stop 20 s, both at most: Seagate
/// Constellation ES.2 SATA manual, rev. H, section 2.7, 2 TB. Standby 1 W and 24 W for a spin-up: assumed.
pub(super) const DESKSTAR_500GB: PowerSpec = disk(10_800, 9000, 1000, (24_000, 13_500), 20_000);

/// Standby to ready 15 s, ready to stop 20 s, both at most: Seagate Constellation ES.2 SATA manual, rev. H, section
/// 2.7, 3 TB. Powers: assumed.
pub(super) const MODERN: PowerSpec = disk(10_000, 5000, 1000, (20_000, 15_000), 20_000);

/// Assumed.
pub(super) const SLC_MEMORIGHT: PowerSpec = flash(2000, 800);

/// Assumed.
pub(super) const MLC_SAMSUNG: PowerSpec = flash(1000, 300);

/// 75 mA at 3.3 V while it works: assumed. It falls asleep by itself 5 ms after a command (SanDisk CompactFlash product
/// manual, "Automatic sleep mode"), taken as at once; 0.3 mA then: assumed.
pub(super) const SANDISK_ULTRA2: PowerSpec = flash(248, 1);

/// Assumed.
pub(super) const SATA_SSD: PowerSpec = flash(2500, 50);
