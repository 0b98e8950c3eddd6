//! A figure of a setting, one value a seed.

use std::collections::BTreeMap;

use serde::Serialize;

/// Figures whose means differ by less than this share are the same: the difference does not matter.
const SAME: f64 = 0.01;

/// Values of a figure under several seeds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Samples {
    /// Their mean.
    pub mean: f64,
    /// The least of them.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Samples {
    /// Of these values; zero of none.
    pub fn of(values: &[f64]) -> Samples {
        let values = || values.iter().copied();
        let (Some(least), Some(most)) = (values().reduce(f64::min), values().reduce(f64::max)) else {
            return Samples::default();
        };
        Samples { mean: values().sum::<f64>() / values().count() as f64, least, most }
    }

    /// Half of the distance between the least and the most, in percent of the mean.
    pub fn spread(&self) -> f64 {
        if self.mean > 0.0 { (self.most - self.least) * 50.0 / self.mean } else { 0.0 }
    }

    /// How much it differs from `base`, in percent of that.
    pub fn change_from(&self, base: &Samples) -> Option<f64> {
        (base.mean > 0.0).then(|| (self.mean / base.mean - 1.0) * 100.0)
    }

    /// Whether two settings differ by no more than their seeds do, or by too little.
    pub fn is_level_with(&self, other: &Samples) -> bool {
        let overlap = self.least <= other.most && other.least <= self.most;
        overlap || (self.mean - other.mean).abs() <= SAME * self.mean.max(other.mean)
    }

    /// Whether it is less, by more than the seeds differ.
    pub fn is_less_than(&self, other: &Samples) -> bool {
        self.mean < other.mean && !self.is_level_with(other)
    }
}

/// Figures by setting and seed: what came of several inputs under one seed is added up.
pub(super) struct SampleTable<K, const N: usize>(Vec<(K, BTreeMap<u64, [f64; N]>)>);

impl<K: PartialEq, const N: usize> SampleTable<K, N> {
    pub(super) fn new() -> SampleTable<K, N> {
        SampleTable(Vec::new())
    }

    pub(super) fn add(&mut self, setting: K, seed: u64, figures: [f64; N]) {
        let place = self.0.iter().position(|(known, _)| *known == setting).unwrap_or_else(|| {
            self.0.push((setting, BTreeMap::new()));
            self.0.len() - 1
        });
        let sums = self.0[place].1.entry(seed).or_insert([0.0; N]);
        sums.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure);
    }

    /// The settings in the order of their first figures; `of` makes the figures that are judged from the sums.
    pub(super) fn samples<const M: usize>(
        self,
        of: impl Fn(&[f64; N]) -> [f64; M],
    ) -> impl Iterator<Item = (K, [Samples; M])> {
        self.0.into_iter().map(move |(setting, seeds)| {
            let each: Vec<[f64; M]> = seeds.values().map(&of).collect();
            let figure = |number: usize| Samples::of(&each.iter().map(|figures| figures[number]).collect::<Vec<_>>());
            (setting, std::array::from_fn(figure))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_difference_where_seeds_overlap_or_it_is_too_small() {
        let of = Samples::of;
        assert!(of(&[19.0, 21.0, 20.0]).is_level_with(&of(&[18.0, 19.5, 18.5])));
        assert!(of(&[10.0, 10.0]).is_level_with(&of(&[10.05, 10.05])));
        assert!(of(&[10.0, 11.0]).is_less_than(&of(&[12.0, 13.0])));
        assert!(!of(&[12.0, 13.0]).is_less_than(&of(&[10.0, 11.0])));
        assert!(of(&[]).is_level_with(&of(&[0.0])));
    }

    #[test]
    fn several_inputs_of_a_seed_are_added_up() {
        let mut tally = SampleTable::new();
        for (setting, seed, figure) in [("a", 1, 1.0), ("b", 1, 5.0), ("a", 1, 2.0), ("a", 2, 4.0)] {
            tally.add(setting, seed, [figure]);
        }
        let samples: Vec<_> = tally.samples(|sums| *sums).collect();
        assert_eq!(samples, [("a", [Samples::of(&[3.0, 4.0])]), ("b", [Samples::of(&[5.0])])]);
    }
}
