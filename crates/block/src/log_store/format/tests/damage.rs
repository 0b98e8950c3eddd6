//! Bytes that changed: never read as if they had not.

use super::*;

/// Each byte changed in each bit, and in all bits at once.
fn changes(bytes: &[u8], mut try_one: impl FnMut(usize, Vec<u8>)) {
    for at in 0..bytes.len() {
        for mask in (0..8).map(|bit| 1 << bit).chain([0xff]) {
            let mut changed = bytes.to_vec();
            changed[at] ^= mask;
            try_one(at, changed);
        }
    }
}

/// A change is an error; with the checksum corrected, it is an error or is seen in what was read.
fn no_byte_is_ignored<T: PartialEq>(
    block: &Block,
    checksum_at: usize,
    parse: impl Fn(&[u8]) -> Result<T, FormatError>,
) {
    let whole = parse(block).expect("it is whole");
    let mut seen = 0;
    changes(block, |at, mut changed| {
        match parse(&changed) {
            Err(FormatError::Checksum { .. }) => {}
            Err(FormatError::Foreign { .. }) => assert!(at < 8, "byte {at}"),
            other => panic!("byte {at}: {:?}", other.err()),
        }
        reseal(&mut changed, checksum_at);
        match parse(&changed) {
            Err(_) => {}
            Ok(_) if (checksum_at..checksum_at + 4).contains(&at) => {}
            Ok(read) => {
                assert!(read != whole, "byte {at} is ignored");
                seen += 1;
            }
        }
    });
    assert!(seen > 0, "some fields may have other values");
}

#[test]
fn no_byte_of_a_superblock_is_ignored() {
    no_byte_is_ignored(&encoded_store(), CHECKSUM_AT, |bytes| Superblock::parse(bytes, LARGE));
}

#[test]
fn no_byte_of_a_checkpoint_header_is_ignored() {
    let store = store();
    no_byte_is_ignored(&encoded_checkpoint(), CHECKSUM_AT, |bytes| CheckpointHeader::parse(bytes, &store));
}

#[test]
fn no_byte_of_a_chunk_header_is_ignored() {
    let store = store();
    no_byte_is_ignored(&encoded_chunk(), CHUNK_CHECKSUM_AT, |bytes| ChunkHeader::parse(bytes, &store, CHUNK_AT));
}

#[test]
fn no_byte_of_a_chunk_header_with_a_repeat_is_ignored() {
    let (store, (mut header, _)) = (store(), chunk());
    header.before = Some(Repeat::of(&header, CHUNK_AT));
    let block = header.encode(&store, CHUNK_AT).expect("it can be read");
    no_byte_is_ignored(&block, CHUNK_CHECKSUM_AT, |bytes| ChunkHeader::parse(bytes, &store, CHUNK_AT));
}

#[test]
fn no_byte_of_a_checkpoint_payload_is_ignored() {
    let (store, (mut header, payload)) = (store(), checkpoint());
    let len = header.payload.bytes.0 as usize;
    let read = |bytes: &[u8], header: &CheckpointHeader| {
        let payload = Payload::parse(bytes, header, &store)?;
        Ok::<_, FormatError>((payload.map().collect::<Vec<_>>(), payload.segments().collect::<Vec<_>>()))
    };
    let whole = read(&payload, &header).expect("it is whole");
    changes(&payload[..len], |at, changed| {
        header.payload.checksum = Checksum::of(&payload[..len]);
        assert!(matches!(read(&changed, &header), Err(FormatError::Checksum { .. })), "byte {at}");
        header.payload.checksum = Checksum::of(&changed);
        assert!(read(&changed, &header) != Ok(whole.clone()), "byte {at} is ignored");
    });
}

#[test]
fn no_byte_of_a_map_page_is_ignored() {
    let (shape, entry) = (store().shape, page_at(17));
    assert_eq!(entry.verify(&encoded_map_page()), Ok(()));
    changes(&encoded_map_page(), |at, changed| {
        assert!(MapPage::parse(&changed, &shape, MapPageNo(1)) != Ok(map_page()), "byte {at}");
        assert!(matches!(entry.verify(&changed), Err(FormatError::Checksum { .. })), "byte {at}");
    });
}
