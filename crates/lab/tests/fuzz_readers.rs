//! Damaged traces by the thousand, for a fixed time: no reader may panic, hang, or give a record that cannot be.
//!
//! UMBRELLA_FUZZ_SECONDS is the time for all readers together (default 60); UMBRELLA_FUZZ_SEED repeats a run,
//! UMBRELLA_FUZZ_INPUT runs one file.

#[path = "fixtures/list.rs"]
mod list;

use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use umbrella_units::SplitMix64;

use umbrella_lab::trace::{Format, fuzz_one, lost_events, parse_trace_pipe};

use self::list::FIXTURES;

/// What hurts readers of text and numbers.
const WORDS: [&[u8]; 28] = [
    b"18446744073709551615",
    b"18446744073709551616",
    b"9223372036854775807",
    b"36028797018963968",
    b"4294967295",
    b"4294967296",
    b"99999999999999999999999999",
    b"-1",
    b"0",
    b"0.0000000000001",
    b"1266874889.708658509",
    b"1e9",
    b"NaN",
    b",",
    b",,,,,,,,",
    b"\n",
    b"\r\n",
    b"\0",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xef\xbb\xbf",
    b"\x1f\x8b\x08\0\0\0\0\0",
    b"\x28\xb5\x2f\xfd\x04\0",
    b"fio version 2 iolog\n",
    b"fio version 3 iolog\n",
    b" wait ",
    b"CPU0 (8,0):\n",
    b"  8,0 1 1 0.5 1 Q W 1 + 1 [x]\n",
    b"time_us,dev,op,offset_bytes,size_bytes,flags\n",
];

fn byte(random: &mut SplitMix64) -> u8 {
    random.next_u64() as u8
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, not a number")))
}

fn place(random: &mut SplitMix64, bytes: &[u8]) -> usize {
    random.index(bytes.len() + 1)
}

/// One change, or one that builds on it.
fn mutate(random: &mut SplitMix64, bytes: &mut Vec<u8>, others: &[Vec<u8>]) {
    match random.index(9) {
        0 if !bytes.is_empty() => {
            let at = random.index(bytes.len());
            bytes[at] ^= 1 << random.index(8);
        }
        1 if !bytes.is_empty() => {
            let at = random.index(bytes.len());
            bytes[at] = byte(random);
        }
        2 => {
            let at = place(random, bytes);
            bytes.truncate(at);
        }
        3 => {
            let (from, to) = (place(random, bytes), place(random, bytes));
            bytes.drain(from.min(to)..from.max(to).min(from.min(to) + 64));
        }
        4 => {
            let (from, to) = (place(random, bytes), place(random, bytes));
            let piece = bytes[from.min(to)..from.max(to)].to_vec();
            let at = place(random, bytes);
            bytes.splice(at..at, piece);
        }
        5 => {
            let other = &others[random.index(others.len())];
            let (from, at) = (place(random, other), place(random, bytes));
            let piece = other[from..(from + 200).min(other.len())].to_vec();
            bytes.splice(at..at, piece);
        }
        6 => {
            let count = 1 + random.index(39);
            let noise: Vec<u8> = (0..count).map(|_| byte(random)).collect();
            let at = place(random, bytes);
            bytes.splice(at..at, noise);
        }
        7 => {
            // A word in a number's place.
            let numbers: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at].is_ascii_digit()).collect();
            if numbers.is_empty() {
                return;
            }
            let start = numbers[random.index(numbers.len())];
            let end = (start..bytes.len()).find(|at| !bytes[*at].is_ascii_digit()).unwrap_or(bytes.len());
            bytes.splice(start..end, WORDS[random.index(WORDS.len())].iter().copied());
        }
        _ => {
            let at = place(random, bytes);
            bytes.splice(at..at, WORDS[random.index(WORDS.len())].iter().copied());
        }
    }
    bytes.truncate(1 << 20);
}

fn run_one(format: Option<Format>, bytes: &[u8]) {
    fuzz_one(format, bytes);
    for line in bytes.split(|byte| *byte == b'\n').take(8) {
        let _ = parse_trace_pipe(line);
        let _ = lost_events(line);
    }
}

/// Says it also where the test passes, whose output is not shown otherwise.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn keep(bytes: &[u8], seed: u64, format: Option<Format>) -> PathBuf {
    let path = std::env::temp_dir().join(format!("umbrella-fuzz-{seed}-{}", format.map_or("detect", Format::name)));
    std::fs::write(&path, bytes).expect("the failing input can be kept");
    path
}

/// Runs one input; says what it was if it fails.
fn check(format: Option<Format>, bytes: &[u8], seed: u64) {
    let started = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| run_one(format, bytes)));
    let slow = started.elapsed() > Duration::from_secs(60);
    if outcome.is_ok() && !slow {
        return;
    }
    let path = keep(bytes, seed, format);
    let how = if slow { "took more than 60 s" } else { "panicked" };
    panic!(
        "the reader {how} on {} (seed {seed}; run it alone: UMBRELLA_FUZZ_INPUT={})",
        path.display(),
        path.display()
    );
}

#[test]
fn readers_survive_damaged_traces() {
    if let Some(path) = std::env::var_os("UMBRELLA_FUZZ_INPUT") {
        let bytes = std::fs::read(path).expect("UMBRELLA_FUZZ_INPUT names a file");
        Format::ALL.into_iter().map(Some).chain([None]).for_each(|format| run_one(format, &bytes));
        return;
    }
    let seconds = number("UMBRELLA_FUZZ_SECONDS").unwrap_or(60);
    let seed = number("UMBRELLA_FUZZ_SEED").unwrap_or_else(|| RandomState::new().hash_one(0));
    say(&format!("fuzzing {} readers for {seconds} s in all, UMBRELLA_FUZZ_SEED={seed}", FIXTURES.len()));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let corpus: Vec<Vec<u8>> =
        FIXTURES.iter().map(|(name, _)| std::fs::read(folder.join(name)).expect("the fixture is there")).collect();
    let share = Duration::from_secs(seconds) / FIXTURES.len() as u32;
    for (number, (name, format)) in FIXTURES.iter().enumerate() {
        let mut random = SplitMix64::new(seed.wrapping_add(number as u64));
        let begun = Instant::now();
        let mut inputs = 0u64;
        while begun.elapsed() < share || inputs < 16 {
            let mut bytes = corpus[number].clone();
            for _ in 0..=random.index(8) {
                mutate(&mut random, &mut bytes, &corpus);
            }
            let as_format = if random.index(4) > 0 { Some(*format) } else { None };
            check(as_format, &bytes, seed);
            inputs += 1;
        }
        say(&format!("{name}: {inputs} inputs"));
    }
}
