//! How much memory staged files may use.

use std::io::Read;
use std::path::Path;

use umbrella_units::ByteSize;

/// What the kernel says of its memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Memory {
    /// All of it.
    pub(crate) total: ByteSize,
    /// What could be had without swapping; what is staged in memory is not in it.
    pub(crate) available: ByteSize,
    /// Share of the last ten seconds in which a task waited for memory (PSI), in percent; 0 where the kernel does not
    /// report it.
    pub(crate) pressure: f64,
}

/// Above this, memory is short.
const SHORT_PERCENT: f64 = 10.0;

impl Memory {
    pub(crate) fn now() -> Option<Memory> {
        let text = read("/proc/meminfo")?;
        let kib = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim_start_matches(':').split_whitespace().next()?.parse::<u64>().ok()
        };
        let bytes = |name: &str| kib(name).map(|kib| ByteSize(kib.saturating_mul(1024)));
        let pressure = read("/proc/pressure/memory").and_then(|text| some_avg10(&text)).unwrap_or(0.0);
        Some(Memory { total: bytes("MemTotal")?, available: bytes("MemAvailable")?, pressure })
    }

    /// How much may be staged while `staged` is. Without a size: half of what would be free without staging; with one:
    /// at most all of that but a twentieth of the memory. When memory is short: a quarter, whatever the size.
    pub(crate) fn limit(&self, staged: ByteSize, size: Option<ByteSize>) -> ByteSize {
        let free = staged.0.saturating_add(self.available.0);
        let short = self.pressure > SHORT_PERCENT || self.available.0 < self.total.0 / 20;
        let most = if short { free / 4 } else { free / 2 };
        match size {
            Some(size) if short => ByteSize(size.0.min(most)),
            Some(size) => ByteSize(size.0.min(free.saturating_sub(self.total.0 / 20))),
            None => ByteSize(most),
        }
    }
}

/// Files leave when more waits, so that there is room for new ones before the limit is reached.
pub(crate) fn high_water(limit: ByteSize) -> ByteSize {
    ByteSize(limit.0 / 8 * 7)
}

/// They leave until no more than this waits.
pub(crate) fn low_water(limit: ByteSize) -> ByteSize {
    ByteSize(limit.0 / 4 * 3)
}

pub(crate) fn read(path: impl AsRef<Path>) -> Option<String> {
    let mut text = String::new();
    std::fs::File::open(path).ok()?.take(1 << 16).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The share of the last ten seconds in which a task waited.
pub(crate) fn some_avg10(text: &str) -> Option<f64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.split_whitespace().find_map(|field| field.strip_prefix("avg10="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use umbrella_units::ByteSize;

    use super::{Memory, some_avg10};

    const GIB: u64 = 1 << 30;

    fn memory(available: u64, pressure: f64) -> Memory {
        Memory { total: ByteSize(16 * GIB), available: ByteSize(available), pressure }
    }

    #[test]
    fn half_of_what_is_free_may_wait_and_what_waits_does_not_shrink_it() {
        assert_eq!(memory(8 * GIB, 0.0).limit(ByteSize(0), None), ByteSize(4 * GIB));
        assert_eq!(memory(6 * GIB, 0.0).limit(ByteSize(2 * GIB), None), ByteSize(4 * GIB));
    }

    #[test]
    fn a_size_holds_until_memory_is_short() {
        let size = Some(ByteSize(7 * GIB));
        assert_eq!(memory(8 * GIB, 0.0).limit(ByteSize(0), size), ByteSize(7 * GIB));
        assert_eq!(memory(8 * GIB, 11.0).limit(ByteSize(0), size), ByteSize(2 * GIB));
        assert_eq!(memory(GIB / 2, 0.0).limit(ByteSize(0), size), ByteSize(GIB / 8));
        assert_eq!(
            memory(2 * GIB, 0.0).limit(ByteSize(GIB), size),
            ByteSize(3 * GIB - 16 * GIB / 20),
            "there is no more"
        );
    }

    #[test]
    fn pressure_is_read_as_the_kernel_writes_it() {
        let text = "some avg10=12.50 avg60=0.10 avg300=0.00 total=1\nfull avg10=99.00 avg60=0.00 avg300=0.00 total=0\n";
        assert_eq!(some_avg10(text), Some(12.5));
        assert_eq!(some_avg10("full avg10=99.00"), None);
        assert!(Memory::now().is_some_and(|now| now.total >= now.available && now.available.0 > 0));
    }
}
