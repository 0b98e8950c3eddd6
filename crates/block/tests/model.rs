//! Every device that only holds sectors behaves as an array of bytes does, for any calls.

use std::sync::Arc;

use proptest::prelude::*;
use umbrella_block::fault::{Faulty, Plan};
use umbrella_block::memory::Memory;
use umbrella_block::record::{DeviceNo, Discarded, Journal, Medium, Overlay, Recorder};
use umbrella_block::{BlockDevice, BlockError, Durability, Zeroes};
use umbrella_units::{ByteSize, Lba, SECTOR_BYTES, SectorRange};

/// Neither a multiple of 4 KiB nor of the unit in which a device may hold sectors.
const SECTORS: u64 = 37;
const BYTES: usize = (SECTORS * SECTOR_BYTES) as usize;

#[derive(Debug, Clone)]
enum Call {
    Read { at: Lba, bytes: usize },
    Write { at: Lba, bytes: usize, fill: u8, durability: Durability },
    Zeroes { range: SectorRange, zeroes: Zeroes, durability: Durability },
    Discard { range: SectorRange },
    Flush,
}

/// How a call ended; errors are alike when their kind is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Well,
    BeyondEnd,
    Unaligned,
    Otherwise,
}

fn ended(result: &Result<(), BlockError>) -> Ended {
    match result {
        Ok(()) => Ended::Well,
        Err(BlockError::BeyondEnd { .. }) => Ended::BeyondEnd,
        Err(BlockError::Unaligned { .. }) => Ended::Unaligned,
        Err(_) => Ended::Otherwise,
    }
}

/// The bytes, and the sectors that may as well be zeroes since they were discarded.
struct Model {
    bytes: Vec<u8>,
    discarded: Vec<bool>,
}

impl Model {
    fn new() -> Model {
        Model { bytes: vec![0; BYTES], discarded: vec![false; SECTORS as usize] }
    }

    /// The sectors of a transfer, as the interface says.
    fn sectors(at: Lba, bytes: usize) -> Result<std::ops::Range<usize>, Ended> {
        if !bytes.is_multiple_of(SECTOR_BYTES as usize) {
            return Err(Ended::Unaligned);
        }
        let sectors = bytes as u64 / SECTOR_BYTES;
        match at.0.checked_add(sectors) {
            Some(end) if end <= SECTORS => Ok(at.0 as usize..end as usize),
            _ => Err(Ended::BeyondEnd),
        }
    }

    fn range(range: SectorRange) -> Result<std::ops::Range<usize>, Ended> {
        match range.start.0.checked_add(range.sectors) {
            Some(end) if end <= SECTORS => Ok(range.start.0 as usize..end as usize),
            _ => Err(Ended::BeyondEnd),
        }
    }

    fn set(&mut self, sectors: std::ops::Range<usize>, contents: impl Fn(usize) -> u8) {
        self.discarded[sectors.clone()].fill(false);
        for sector in sectors.clone() {
            let bytes = sector * SECTOR_BYTES as usize..(sector + 1) * SECTOR_BYTES as usize;
            self.bytes[bytes].fill(contents(sector - sectors.start));
        }
    }

    /// What the call does to the array, and how it has to end.
    fn call(&mut self, call: &Call) -> Ended {
        let sectors = match call {
            Call::Read { at, bytes } | Call::Write { at, bytes, .. } => Model::sectors(*at, *bytes),
            Call::Zeroes { range, .. } | Call::Discard { range } => Model::range(*range),
            Call::Flush => return Ended::Well,
        };
        let sectors = match sectors {
            Ok(sectors) => sectors,
            Err(ended) => return ended,
        };
        match call {
            Call::Write { fill, .. } => self.set(sectors, |index| fill.wrapping_add(index as u8)),
            Call::Zeroes { .. } => self.set(sectors, |_| 0),
            Call::Discard { .. } => self.discarded[sectors].fill(true),
            Call::Read { .. } | Call::Flush => {}
        }
        Ended::Well
    }

    /// Whether sectors that were read are those of the array.
    fn agrees(&self, at: usize, read: &[u8]) -> bool {
        read.chunks(SECTOR_BYTES as usize).enumerate().all(|(index, read)| {
            let sector = at + index;
            let held = &self.bytes[sector * SECTOR_BYTES as usize..(sector + 1) * SECTOR_BYTES as usize];
            read == held || (self.discarded[sector] && read.iter().all(|byte| *byte == 0))
        })
    }
}

fn carry_out(device: &dyn BlockDevice, call: &Call, model: &Model) -> Result<(), BlockError> {
    match *call {
        Call::Read { at, bytes } => {
            let mut buffer = vec![0xee; bytes];
            device.read(at, &mut buffer)?;
            assert!(model.agrees(at.0 as usize, &buffer), "{call:?} read something else");
            Ok(())
        }
        Call::Write { at, bytes, fill, durability } => {
            let sector = |index: usize| fill.wrapping_add((index / SECTOR_BYTES as usize) as u8);
            let data: Vec<u8> = (0..bytes).map(sector).collect();
            device.write(at, &data, durability)
        }
        Call::Zeroes { range, zeroes, durability } => device.write_zeroes(range, zeroes, durability),
        Call::Discard { range } => device.discard(range),
        Call::Flush => device.flush(),
    }
}

/// Addresses inside, at the borders, and where a sum would wrap.
fn address() -> impl Strategy<Value = Lba> {
    prop_oneof![
        8 => 0..SECTORS,
        2 => prop_oneof![Just(0), Just(7), Just(8), Just(SECTORS - 1), Just(SECTORS), Just(SECTORS + 1)],
        1 => prop_oneof![Just(u64::MAX), Just(u64::MAX / SECTOR_BYTES), Just(u64::MAX - 8)],
    ]
    .prop_map(Lba)
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        8 => (0usize..12).prop_map(|sectors| sectors * SECTOR_BYTES as usize),
        1 => prop_oneof![Just(1usize), Just(511), Just(513), Just(BYTES), Just(BYTES + 512)],
    ]
}

fn range() -> impl Strategy<Value = SectorRange> {
    let sectors = prop_oneof![8 => 0u64..12, 1 => prop_oneof![Just(SECTORS), Just(SECTORS + 1), Just(u64::MAX)]];
    (address(), sectors).prop_map(|(start, sectors)| SectorRange { start, sectors })
}

fn call() -> impl Strategy<Value = Call> {
    let durability = || prop_oneof![Just(Durability::Cached), Just(Durability::Through)];
    let zeroes = prop_oneof![Just(Zeroes::Unmap), Just(Zeroes::Keep)];
    prop_oneof![
        4 => (address(), length()).prop_map(|(at, bytes)| Call::Read { at, bytes }),
        4 => (address(), length(), any::<u8>(), durability())
            .prop_map(|(at, bytes, fill, durability)| Call::Write { at, bytes, fill, durability }),
        2 => (range(), zeroes, durability())
            .prop_map(|(range, zeroes, durability)| Call::Zeroes { range, zeroes, durability }),
        1 => range().prop_map(|range| Call::Discard { range }),
        1 => Just(Call::Flush),
    ]
}

fn memory() -> Memory {
    Memory::new(ByteSize(BYTES as u64))
}

/// Carries out the calls on the device and on an array of bytes.
fn like_an_array(device: &dyn BlockDevice, calls: &[Call]) -> Result<(), TestCaseError> {
    let mut model = Model::new();
    for call in calls {
        // A read looks at the array; everything else has to end alike before it changes.
        let result = carry_out(device, call, &model);
        let expected = model.call(call);
        prop_assert_eq!(ended(&result), expected, "{:?} gave {:?}", call, result);
    }
    let mut all = vec![0xee; BYTES];
    device.read(Lba(0), &mut all).expect("all of it exists");
    prop_assert!(model.agrees(0, &all), "at the end");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn memory_is_like_an_array(calls in prop::collection::vec(call(), 1..60)) {
        like_an_array(&memory(), &calls)?;
    }

    #[test]
    fn an_overlay_is_like_an_array_and_leaves_what_is_below(calls in prop::collection::vec(call(), 1..60)) {
        let base = Arc::new(memory());
        let overlay = Overlay::new(base.clone());
        let fork = overlay.fork();
        like_an_array(&overlay, &calls)?;
        like_an_array(&Overlay::new(Arc::new(fork)), &calls)?;
        prop_assert_eq!(base.to_bytes(), vec![0; BYTES]);
    }

    #[test]
    fn a_fork_has_what_was_written_before_it_and_nothing_later(
        before in prop::collection::vec(call(), 1..30),
        after in prop::collection::vec(call(), 1..30),
    ) {
        let overlay = Overlay::new(Arc::new(memory()));
        like_an_array(&overlay, &before)?;
        let mut held = vec![0; BYTES];
        overlay.read(Lba(0), &mut held).expect("all of it exists");
        let fork = overlay.fork();
        for call in &after {
            // Reads would be compared with an array that lacks the earlier writes.
            if !matches!(call, Call::Read { .. }) {
                let _ = carry_out(&overlay, call, &Model::new());
            }
        }
        let mut seen = vec![0; BYTES];
        fork.read(Lba(0), &mut seen).expect("all of it exists");
        prop_assert!(seen == held);
    }

    #[test]
    fn a_recorder_is_like_an_array_and_knows_what_it_holds(calls in prop::collection::vec(call(), 1..60)) {
        let journal = Journal::new();
        let recorder = Recorder::new(memory(), DeviceNo(0), Arc::clone(&journal));
        like_an_array(&recorder, &calls)?;
        recorder.flush().expect("memory does not fail");
        let recording = journal.recording();
        let mut medium = Medium::new(DeviceNo(0), Arc::new(memory()), Discarded::Kept);
        medium.advance(&recording, recording.now()).expect("memory does not fail");
        let all = SectorRange { start: Lba(0), sectors: SECTORS };
        medium.check(&recording, recorder.inner(), all).expect("all was flushed, so there is one version of each sector");
    }

    #[test]
    fn a_faulty_device_without_faults_is_like_an_array(
        calls in prop::collection::vec(call(), 1..60),
        volatile in any::<bool>(),
    ) {
        let plan = if volatile { Plan::new(1).volatile() } else { Plan::new(1) };
        let device = Faulty::new(memory(), plan);
        like_an_array(&device, &calls)?;
        device.flush().expect("there are no faults");
        let mut seen = vec![0; BYTES];
        device.read(Lba(0), &mut seen).expect("all of it exists");
        prop_assert_eq!(seen, device.into_inner().to_bytes());
    }
}
