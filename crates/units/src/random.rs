//! Numbers that look random and depend on a seed alone.

/// SplitMix64: the same numbers for a seed on every machine and in every version. Not for secrets.
///
/// Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

/// The golden ratio's fraction, odd: what the state grows by.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

impl SplitMix64 {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> SplitMix64 {
        SplitMix64(seed)
    }

    /// The numbers of a seed that belong to `stream`; those of other streams are independent of them.
    pub fn stream(seed: u64, stream: u64) -> SplitMix64 {
        SplitMix64(seed ^ mix64(stream))
    }

    /// Any number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix64(self.0)
    }

    /// A number below `bound`; 0 when that is 0. The bias is below `bound` / 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// An index into a list of that length; 0 when it is empty.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// A number from 0 to just below 1.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Yes or no, evenly.
    pub fn random_bool(&mut self) -> bool {
        self.below(2) == 1
    }

    /// Any order of the items, each as likely.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }
}

/// Spreads a change of any bit over all bits; one to one.
pub fn mix64(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_seed_are_those_of_the_reference() {
        let mut random = SplitMix64::new(1_234_567);
        let numbers: Vec<u64> = (0..5).map(|_| random.next_u64()).collect();
        let reference = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(numbers, reference);
    }

    #[test]
    fn numbers_stay_below_their_bound_and_streams_differ() {
        let mut random = SplitMix64::new(1);
        assert!((0..1000).all(|_| random.below(7) < 7 && (0.0..1.0).contains(&random.unit())));
        assert_eq!((random.below(0), random.index(0)), (0, 0));
        assert_ne!(SplitMix64::stream(1, 1).next_u64(), SplitMix64::stream(1, 2).next_u64());
    }

    #[test]
    fn a_shuffled_list_has_the_same_items() {
        let mut items: Vec<u32> = (0..100).collect();
        SplitMix64::new(3).shuffle(&mut items);
        assert!(!items.is_sorted());
        items.sort_unstable();
        assert!(items.iter().copied().eq(0..100));
    }
}
