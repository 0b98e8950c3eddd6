//! The demerit figure: how far two distributions of response times lie apart.
//!
//! Source: Ruemmler and Wilkes, "An introduction to disk drive modeling", IEEE Computer 27(3), 1994: the root mean
//! square of the horizontal distance between the two cumulative distributions.

use umbrella_units::Nanos;

/// Two distributions of as many response times, and their distance.
#[derive(Debug, Clone, PartialEq)]
pub struct Demerit {
    /// What the drive took, the shortest first.
    pub measured: Vec<Nanos>,
    /// What the model took, the shortest first.
    pub modelled: Vec<Nanos>,
}

impl Demerit {
    /// Of response times in any order; as many of both.
    pub fn new(mut measured: Vec<Nanos>, mut modelled: Vec<Nanos>) -> Demerit {
        measured.sort_unstable();
        modelled.sort_unstable();
        Demerit { measured, modelled }
    }

    /// The demerit figure in milliseconds; 0 of nothing.
    pub fn millis(&self) -> f64 {
        let pairs = self.measured.iter().zip(&self.modelled);
        let squares: f64 = pairs.map(|(one, other)| millis(*one) - millis(*other)).map(|d| d * d).sum();
        (squares / self.measured.len().max(1) as f64).sqrt()
    }

    /// The demerit figure as a share of the drive's mean response time; 0 of nothing.
    pub fn share(&self) -> f64 {
        let mean = self.measured_mean();
        if mean > 0.0 { self.millis() / mean } else { 0.0 }
    }

    /// The drive's mean response time in milliseconds.
    pub fn measured_mean(&self) -> f64 {
        mean(&self.measured)
    }

    /// The model's mean response time in milliseconds.
    pub fn modelled_mean(&self) -> f64 {
        mean(&self.modelled)
    }
}

pub(super) fn millis(time: Nanos) -> f64 {
    time.0 as f64 / 1e6
}

fn mean(times: &[Nanos]) -> f64 {
    times.iter().map(|&time| millis(time)).sum::<f64>() / times.len().max(1) as f64
}
