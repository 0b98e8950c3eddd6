//! A distribution that aging draws from.

use umbrella_units::SplitMix64;

/// A number of the standard normal distribution (Box and Muller).
pub(super) fn normal(random: &mut SplitMix64) -> f64 {
    let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.unit()).cos()
}
