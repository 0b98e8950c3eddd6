//! Bytes that nobody wrote, and structures damaged at random, also where the checksums are right: nothing panics, and
//! what is read is what would be written again, byte for byte.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

/// How many inputs each structure gets, and where they begin: `UMBRELLA_FUZZ_ROUNDS` (default 20,000) and
/// `UMBRELLA_FUZZ_SEED` (1).
fn rounds_and_seed() -> (u32, u64) {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    (number("UMBRELLA_FUZZ_ROUNDS").unwrap_or(20_000) as u32, number("UMBRELLA_FUZZ_SEED").unwrap_or(1))
}

fn random_number(random: &mut StdRng) -> u64 {
    match random.random_range(0..6) {
        0 => 0,
        1 => u64::MAX,
        2 => random.random_range(0..100),
        3 => random.random_range(0..1 << 14),
        4 => 1 << random.random_range(0..64),
        _ => random.random(),
    }
}

/// Changes something, mostly a number of the first `len` bytes.
fn damage(bytes: &mut [u8], len: usize, random: &mut StdRng) {
    let len = if random.random_bool(0.9) { len.min(bytes.len()) } else { bytes.len() };
    match random.random_range(0..6) {
        0 => bytes[random.random_range(0..len)] = random.random(),
        1 => bytes[random.random_range(0..len)] ^= 1 << random.random_range(0..8),
        2 => {
            let size = [1, 2, 4, 8][random.random_range(0..4)];
            let at = random.random_range(0..len / size) * size;
            bytes[at..at + size].copy_from_slice(&random_number(random).to_le_bytes()[..size]);
        }
        3 => {
            let (from, to) = (random.random_range(0..len / 4) * 4, random.random_range(0..len / 4) * 4);
            bytes.copy_within(from..from + 4, to);
        }
        4 => {
            let at = random.random_range(0..len);
            let end = (at + random.random_range(1..40)).min(len);
            bytes[at..end].fill([0, 0xff, random.random()][random.random_range(0..3)]);
        }
        _ => {
            let at = random.random_range(0..len);
            let end = (at + random.random_range(1..17)).min(len);
            random.fill(&mut bytes[at..end]);
        }
    }
}

/// One input: random bytes behind the magic, or the structure with a few changes; mostly with the right checksum,
/// sometimes cut off.
fn input(whole: &[u8], len: usize, magic: usize, checksum_at: Option<usize>, random: &mut StdRng) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    if random.random_bool(0.1) {
        random.fill(&mut bytes[magic..]);
    } else {
        for _ in 0..random.random_range(1..4) {
            damage(&mut bytes, len, random);
        }
    }
    if let Some(at) = checksum_at
        && random.random_bool(0.9)
    {
        reseal(&mut bytes, at);
    }
    if random.random_bool(0.02) {
        bytes.truncate(random.random_range(0..=bytes.len()));
    }
    bytes
}

/// Gives a parser all its inputs; it says whether it took one. Some are taken, some refused.
fn fuzz(name: &str, mut one: impl FnMut(&mut StdRng) -> bool) {
    let (rounds, seed) = rounds_and_seed();
    let mut random = StdRng::seed_from_u64(seed);
    println!("{name}: seed {seed}, {rounds} inputs");
    let taken = (0..rounds).filter(|_| one(&mut random)).count();
    println!("{name}: {taken} read");
    assert!(taken > 0 && taken < rounds as usize);
}

/// The store of the samples; sometimes another one that is possible, made by damage.
fn some_store(random: &mut StdRng) -> Superblock {
    let store = store();
    if random.random_bool(0.7) {
        return store;
    }
    let bytes = input(&encoded_store(), 98, 8, Some(CHECKSUM_AT), random);
    Superblock::parse(&bytes, Lba(u64::MAX)).unwrap_or(store)
}

#[test]
fn any_bytes_are_a_superblock_or_an_error() {
    let whole = encoded_store();
    let pending = super::superblock::with_pending_loss().encode().expect("it can be read");
    fuzz("superblock", |random| {
        let (sample, len) = if random.random_bool(0.5) { (&whole, 128) } else { (&pending, 640) };
        let bytes = input(sample, len, 8, Some(CHECKSUM_AT), random);
        let capacity = Lba(random_number(random));
        let first = Superblock::parse(&bytes, capacity);
        let second = Superblock::parse(&input(&whole, 128, 8, Some(CHECKSUM_AT), random), LARGE);
        let _ = choose(first, second);
        let parsed = Superblock::parse(&bytes, LARGE);
        if let Ok(superblock) = &parsed {
            assert!(superblock.encode().expect("it was read") == bytes[..]);
            assert!(superblock.end().lba() <= LARGE);
        }
        parsed.is_ok()
    });
}

#[test]
fn any_bytes_are_a_checkpoint_header_or_an_error() {
    let whole = encoded_checkpoint();
    fuzz("checkpoint header", |random| {
        let store = some_store(random);
        let bytes = input(&whole, 336, 8, Some(CHECKSUM_AT), random);
        let parsed = CheckpointHeader::parse(&bytes, &store);
        if let Ok(header) = &parsed {
            assert!(header.encode(&store).expect("it was read") == bytes[..]);
        }
        parsed.is_ok()
    });
}

#[test]
fn any_bytes_are_a_checkpoint_payload_or_an_error() {
    let (own, whole) = checkpoint();
    let block = encoded_checkpoint();
    let len = own.payload.bytes.0 as usize;
    fuzz("checkpoint payload", |random| {
        let store = some_store(random);
        let parsed = CheckpointHeader::parse(&input(&block, 272, 8, Some(CHECKSUM_AT), random), &store);
        let mut header = parsed.unwrap_or(own.clone());
        let bytes = input(&whole[..len], len, 0, None, random);
        if random.random_bool(0.95) {
            header.payload.checksum = Checksum::of(&bytes);
        }
        let parsed = Payload::parse(&bytes, &header, &store);
        if let Ok(payload) = &parsed {
            let mut again = vec![0; BLOCK_BYTES];
            let mut encoder = PayloadEncoder::new(payload.map(), payload.segments());
            assert_eq!(encoder.fill(&mut again), BLOCK_BYTES);
            assert_eq!(encoder.sum(), header.payload);
            let len = header.payload.bytes.0 as usize;
            assert!(again[..len] == bytes[..len]);
            assert!(payload.map().flatten().all(|page| page.place().0 < header.shape.places().0));
        }
        parsed.is_ok()
    });
}

#[test]
fn any_bytes_are_a_chunk_header_or_an_error() {
    let whole = encoded_chunk();
    let repeating = super::chunk::repeating().encode(&store(), CHUNK_AT).expect("it can be read");
    let (_, data) = chunk();
    fuzz("chunk header", |random| {
        let store = some_store(random);
        let at = if random.random_bool(0.9) { CHUNK_AT } else { LogBlock(random_number(random)) };
        let (whole, len) = if random.random_bool(0.5) { (&whole, 200) } else { (&repeating, 3400) };
        let bytes = input(whole, len, 4, Some(CHUNK_CHECKSUM_AT), random);
        let parsed = ChunkHeader::parse(&bytes, &store, at);
        if let Ok(header) = &parsed {
            assert!(header.encode(&store, at).expect("it was read") == bytes[..]);
            let _ = header.verify_data(&data[..random.random_range(0..=data.len())]);
            assert!(store.shape.slot_of(at).0 + header.blocks() <= store.shape.segment_blocks());
        }
        parsed.is_ok()
    });
}

#[test]
fn any_bytes_are_a_map_page_or_an_error() {
    let whole = encoded_map_page();
    fuzz("map page", |random| {
        let shape = some_store(random).shape;
        let page = MapPageNo(if random.random_bool(0.9) { 1 } else { random_number(random) });
        let bytes = input(&whole, 188 * 8, 0, None, random);
        let parsed = MapPage::parse(&bytes, &shape, page);
        if let Ok(map) = &parsed {
            assert!(map.encode(&shape, page).expect("it was read") == bytes[..]);
            assert!(
                map.mapped(page)
                    .all(|(block, entry)| { block.0 < shape.advertised().0 && entry.place().0 < shape.places().0 })
            );
        }
        parsed.is_ok()
    });
}
