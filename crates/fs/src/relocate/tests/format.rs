use proptest::collection::vec;
use proptest::prelude::*;
use umbrella_units::Timestamp;

use super::*;

fn name() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![1_u8..=46, 48_u8..=255], 1..=255).prop_filter("dots", |name| name != b"." && name != b"..")
}

fn path() -> impl Strategy<Value = Vec<u8>> {
    vec(name(), 1..6).prop_map(|names| names.join(&b'/')).prop_filter("hidden", |path| !path.starts_with(b".umbrella"))
}

fn time() -> impl Strategy<Value = Timestamp> {
    (any::<i64>(), 0..1_000_000_000_u32).prop_map(|(secs, nanos)| Timestamp { secs, nanos })
}

fn fingerprint() -> impl Strategy<Value = Fingerprint> {
    (any::<[u64; 5]>(), any::<[u32; 3]>(), time(), time(), proptest::option::of(time())).prop_map(
        |([dev, ino, size, nlink, rdev], [mode, uid, gid], mtime, ctime, btime)| Fingerprint {
            dev,
            ino,
            size,
            mtime,
            ctime,
            btime,
            mode,
            uid,
            gid,
            nlink,
            rdev,
        },
    )
}

fn uuid() -> impl Strategy<Value = BranchUuid> {
    any::<[u8; 16]>().prop_map(|bytes| BranchUuid(uuid::Uuid::from_bytes(bytes)))
}

fn intent() -> impl Strategy<Value = Intent> {
    prop_oneof![
        (uuid(), uuid(), vec(path(), 1..5), name(), fingerprint(), fingerprint())
            .prop_filter("two branches", |(from, to, ..)| from != to)
            .prop_map(|(from, to, names, temp, source, target)| Intent::Move { from, to, names, temp, source, target }),
        (uuid(), uuid(), vec(batch_file(), 1..4))
            .prop_filter("two branches", |(from, to, ..)| from != to)
            .prop_map(|(from, to, files)| Intent::Moves { from, to, files }),
        (path(), path(), vec(uuid(), 1..9), any::<bool>(), verdict())
            .prop_filter("not into itself", |(from, to, ..)| !to.starts_with(from))
            .prop_map(|(from, to, branches, replaced, verdict)| Intent::RenameDir {
                from,
                to,
                branches,
                replaced,
                verdict
            }),
        (path(), path(), uuid(), fingerprint(), uuid(), fingerprint(), verdict())
            .prop_filter("two of each", |(from, to, winner, _, loser, ..)| from != to && winner != loser)
            .prop_map(|(from, to, winner, winner_file, loser, loser_file, verdict)| Intent::Supersede {
                from,
                to,
                winner,
                winner_file,
                loser,
                loser_file,
                verdict
            }),
        (path(), path(), vec(site(), 1..5), verdict())
            .prop_filter("apart", |(one, other, ..)| !one.starts_with(other) && !other.starts_with(one))
            .prop_map(|(one, other, sites, verdict)| Intent::Exchange { one, other, sites, verdict }),
    ]
}

fn batch_file() -> impl Strategy<Value = BatchFile> {
    (path(), name(), fingerprint(), fingerprint()).prop_map(|(path, temp, source, target)| BatchFile {
        path,
        temp,
        source,
        target,
    })
}

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![Just(Verdict::Open), Just(Verdict::Done), Just(Verdict::Undone)]
}

fn site() -> impl Strategy<Value = ExchangeSite> {
    let print = || proptest::option::of(fingerprint());
    (uuid(), print(), print())
        .prop_filter("either", |(_, one, other)| one.is_some() || other.is_some())
        .prop_map(|(branch, one, other)| ExchangeSite { branch, one, other })
}

proptest! {
    #[test]
    fn an_intent_reads_as_it_was_written(intent in intent()) {
        prop_assert_eq!(Intent::decode(&intent.encode().unwrap()), Ok(intent));
    }

    #[test]
    fn any_bytes_are_an_answer(bytes in vec(any::<u8>(), 0..2000)) {
        prop_assert!(Intent::decode(&bytes).is_err());
    }

    #[test]
    fn any_damage_is_noticed(intent in intent(), at in any::<prop::sample::Index>(), bit in 0..8) {
        let mut bytes = intent.encode().unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        prop_assert!(Intent::decode(&bytes).is_err());
    }

    #[test]
    fn a_cut_is_noticed(intent in intent(), at in any::<prop::sample::Index>()) {
        let bytes = intent.encode().unwrap();
        prop_assert!(Intent::decode(&bytes[..at.index(bytes.len())]).is_err());
    }

    #[test]
    fn fields_of_nonsense_under_a_right_checksum_are_an_answer(kind in 0..7_u8, payload in vec(any::<u8>(), 0..600)) {
        let mut bytes = b"UMBRINT\0".to_vec();
        bytes.extend_from_slice(&[if kind == 5 { 2 } else { 1 }, 0, kind, 0]);
        bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&payload);
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        if let Ok(intent) = Intent::decode(&bytes) {
            prop_assert_eq!(intent.encode().unwrap(), bytes);
        }
    }
}

pub(super) fn of_version_2(intent: &Intent) -> Vec<u8> {
    let mut bytes = intent.encode().unwrap();
    bytes.truncate(bytes.len() - 4);
    bytes[8] = 2;
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

fn rename_to(to: &[u8]) -> Intent {
    Intent::RenameDir {
        from: b"x".to_vec(),
        to: to.to_vec(),
        branches: vec![A],
        replaced: false,
        verdict: Verdict::Open,
    }
}

#[test]
fn paths_that_leave_the_branch_are_not_recorded() {
    for path in ["..", "a/../b", ".", "a//b", "", "/", "a/", ".umbrella", ".umbrella/tmp/x", "a\0b"] {
        let result = rename_to(path.as_bytes()).encode();
        assert_eq!(result, Err(RelocateError::BadIntent { reason: DecodeError::Path }), "{path:?}");
    }
    assert!(rename_to(&[b'n'; 256]).encode().is_err());
    assert!(rename_to(b".umbrella2/a..b/...").encode().is_ok());
}

#[test]
fn an_exchange_of_a_directory_with_something_in_it_is_not_recorded() {
    let site = ExchangeSite { branch: A, one: Some(Fingerprint::default()), other: None };
    let exchange = |one: &str, other: &str| Intent::Exchange {
        one: one.into(),
        other: other.into(),
        sites: vec![site],
        verdict: Verdict::Open,
    };
    for (one, other) in [("a", "a"), ("a", "a/b"), ("a/b/c", "a")] {
        let result = exchange(one, other).encode();
        assert_eq!(result, Err(RelocateError::BadIntent { reason: DecodeError::Field }), "{one} {other}");
    }
    assert!(exchange("a", "ab").encode().is_ok());
}

#[test]
fn a_rename_of_a_directory_into_itself_is_not_recorded() {
    let rename = |from: &str, to: &str| Intent::RenameDir {
        from: from.into(),
        to: to.into(),
        branches: vec![A],
        replaced: false,
        verdict: Verdict::Done,
    };
    for (from, to) in [("a", "a"), ("a", "a/b"), ("a/b", "a/b/c/d")] {
        let result = rename(from, to).encode();
        assert_eq!(result, Err(RelocateError::BadIntent { reason: DecodeError::Field }), "{from} {to}");
    }
    assert!(rename("a", "ab").encode().is_ok() && rename("a/b", "a").encode().is_ok());
}

/// That a change is over may be all there is to say.
#[test]
fn only_what_is_decided_may_name_no_branch() {
    for verdict in [Verdict::Open, Verdict::Done, Verdict::Undone] {
        let decided = verdict != Verdict::Open;
        let (from, to, one, other) = (b"a".to_vec(), b"b".to_vec(), b"a".to_vec(), b"b".to_vec());
        let rename = Intent::RenameDir { from, to, branches: vec![], replaced: false, verdict };
        let exchange = Intent::Exchange { one, other, sites: vec![], verdict };
        assert_eq!((rename.encode().is_ok(), exchange.encode().is_ok()), (decided, decided));
    }
}

#[test]
fn a_newer_format_is_told_apart() {
    assert_eq!(Intent::decode(&of_version_2(&rename_to(b"a"))), Err(DecodeError::Version(2)));
}

#[test]
fn an_intent_has_a_limit() {
    let long = vec![vec![b'd'; 200]; 10_000].join(&b'/');
    assert_eq!(rename_to(&long).encode(), Err(RelocateError::IntentTooLong));
}

/// Version 1, forever.
#[test]
fn version_1_stays_readable() {
    let bytes = b"UMBRINT\0\x01\0\x02\0\x20\0\0\0\x01\0\0\0x\x01\0\0\0y\x01\0\0\0\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\x01\0";
    let mut bytes = bytes.to_vec();
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    let intent = Intent::RenameDir {
        from: b"x".to_vec(),
        to: b"y".to_vec(),
        branches: vec![A],
        replaced: true,
        verdict: Verdict::Open,
    };
    assert_eq!(Intent::decode(&bytes), Ok(intent));
}
