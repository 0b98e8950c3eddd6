use std::sync::Arc;

use proptest::prelude::*;
use umbrella_units::ByteSize;

use super::super::wire::ExportFlags;
use super::*;
use crate::file::{FileDevice, OpenOptions};
use crate::memory::Memory;

fn two_exports() -> Exports {
    let memory = || Arc::new(Memory::new(ByteSize(1 << 20)));
    Exports::new(vec![Export::new("one", memory()), Export::new("two", memory()).described("the second").read_only()])
        .expect("the names are different")
}

fn file_export(folder: &tempfile::TempDir) -> Exports {
    let path = folder.path().join("disk");
    std::fs::write(&path, vec![0; 4096]).expect("a file");
    let file = FileDevice::open(&path, OpenOptions::default()).expect("a device");
    let memory = Export::new("memory", Arc::new(Memory::new(ByteSize(512))));
    Exports::new(vec![Export::of_file("file", Arc::new(file)), memory]).expect("the names are different")
}

fn begin(exports: &Exports) -> Negotiation<'_> {
    Negotiation::new(exports, 3).expect("the flags are known")
}

/// The numbers of the answers to one option, with their data.
fn ask<'e>(negotiation: &mut Negotiation<'e>, number: u32, data: &[u8]) -> (Vec<(u32, Vec<u8>)>, NextPhase<'e>) {
    let option = OptionHeader { number, length: data.len() as u32 };
    let mut out = Vec::new();
    let next = match negotiation.admit(option, &mut out) {
        Ok(()) => negotiation.answer(option, data, &mut out),
        Err(ended) => NextPhase::Close(ended),
    };
    let mut replies = Vec::new();
    let mut rest = out.as_slice();
    while number != 1 && !rest.is_empty() {
        let word = |at: usize| u32::from_be_bytes(*rest[at..].first_chunk().expect("a whole answer"));
        assert_eq!((word(8), word(0)), (number, 0x0003_e889), "the option is repeated, behind the magic number");
        let end = 20 + word(16) as usize;
        replies.push((word(12), rest[20..end].to_vec()));
        rest = &rest[end..];
    }
    (replies, next)
}

fn kinds(replies: &[(u32, Vec<u8>)]) -> Vec<u32> {
    replies.iter().map(|(kind, _)| *kind).collect()
}

fn named(name: &str, rest: &[u8]) -> Vec<u8> {
    [&(name.len() as u32).to_be_bytes(), name.as_bytes(), rest].concat()
}

const ACK: u32 = OptionReply::Ack as u32;
const INFO: u32 = OptionReply::Info as u32;

#[test]
fn a_client_without_the_fixed_handshake_or_with_unknown_flags_is_refused() {
    let exports = two_exports();
    for flags in [0, 2, 7, u32::MAX] {
        assert_eq!(Negotiation::new(&exports, flags).err(), Some(Broken::Handshake), "flags {flags}");
    }
}

#[test]
fn list_names_every_export() {
    let exports = two_exports();
    let (replies, next) = ask(&mut begin(&exports), 3, &[]);
    let server = OptionReply::Server as u32;
    let wanted = [(server, named("one", b"")), (server, named("two", b"the second")), (ACK, Vec::new())];
    assert_eq!(replies, wanted);
    assert!(matches!(next, NextPhase::Option));
}

#[test]
fn info_tells_size_name_description_and_blocks_and_continues() {
    let exports = two_exports();
    let data = named("two", b"\x00\x02\x00\x01\x00\x02");
    let (replies, next) = ask(&mut begin(&exports), 6, &data);
    assert_eq!(kinds(&replies), [INFO, INFO, INFO, INFO, ACK]);
    assert_eq!(replies[0].1[..10], *b"\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00");
    assert_eq!(replies[1].1, b"\x00\x01two");
    assert_eq!(replies[2].1, b"\x00\x02the second");
    assert_eq!(replies[3].1, b"\x00\x03\x00\x00\x02\x00\x00\x00\x10\x00\x02\x00\x00\x00");
    assert!(matches!(next, NextPhase::Option));
}

#[test]
fn go_and_export_name_begin_transmission_of_the_export_that_they_name() {
    let exports = two_exports();
    let (_, next) = ask(&mut begin(&exports), 7, &named("two", b"\x00\x00"));
    assert!(matches!(next, NextPhase::Transmit(Session { export, .. }) if export.name() == "two"));
    let (_, next) = ask(&mut begin(&exports), 1, b"two");
    assert!(matches!(next, NextPhase::Transmit(Session { export, .. }) if export.name() == "two"));
    let (_, next) = ask(&mut begin(&exports), 7, &named("", b"\x00\x00"));
    assert!(matches!(next, NextPhase::Transmit(Session { export, .. }) if export.name() == "one"), "the default");
}

#[test]
fn an_export_that_does_not_exist_is_an_error_and_the_end_where_there_is_no_answer() {
    let exports = two_exports();
    let (replies, next) = ask(&mut begin(&exports), 7, &named("three", b"\x00\x00"));
    assert_eq!(kinds(&replies), [OptionReply::UnknownExport as u32]);
    assert!(matches!(next, NextPhase::Option));
    let (_, next) = ask(&mut begin(&exports), 1, b"three");
    assert!(matches!(next, NextPhase::Close(Ended::Protocol(Broken::UnknownExport))));
}

#[test]
fn options_that_are_not_known_are_refused_and_the_negotiation_continues() {
    let exports = two_exports();
    for (what, number) in [("STARTTLS", 5), ("EXTENDED_HEADERS", 11), ("PEEK_EXPORT", 4), ("nonsense", u32::MAX)] {
        let (replies, next) = ask(&mut begin(&exports), number, b"");
        assert_eq!(kinds(&replies), [OptionReply::Unsupported as u32], "{what}");
        assert!(matches!(next, NextPhase::Option), "{what}");
    }
}

#[test]
fn abort_is_acknowledged_and_ends_it() {
    let exports = two_exports();
    let (replies, next) = ask(&mut begin(&exports), 2, &[]);
    assert_eq!(kinds(&replies), [ACK]);
    assert!(matches!(next, NextPhase::Close(Ended::Closed)));
}

#[test]
fn an_option_that_is_too_long_ends_it_before_its_data_are_read() {
    let exports = two_exports();
    let mut out = Vec::new();
    let long = OptionHeader { number: 7, length: u32::MAX };
    assert!(matches!(begin(&exports).admit(long, &mut out), Err(Ended::Protocol(Broken::LongOption(u32::MAX)))));
    assert_eq!(out[12..16], (OptionReply::TooBig as u32).to_be_bytes());
    let long_name = OptionHeader { number: 1, length: 4097 };
    assert!(begin(&exports).admit(long_name, &mut out).is_err());
}

#[test]
fn flags_say_what_an_export_can_do() {
    let exports = two_exports();
    let flags = |name: &str, structured| exports.find(name).expect("it exists").flags(structured);
    assert!(!flags("one", false).contains(ExportFlags::READ_ONLY));
    assert!(flags("one", false).contains(ExportFlags::MULTI_CONN | ExportFlags::FUA | ExportFlags::TRIM));
    assert!(!flags("one", false).intersects(ExportFlags::DF | ExportFlags::CACHE | ExportFlags::FAST_ZERO));
    assert!(flags("one", true).contains(ExportFlags::DF));
    assert!(flags("two", false).contains(ExportFlags::READ_ONLY));
    assert!(!flags("two", false).intersects(ExportFlags::TRIM | ExportFlags::WRITE_ZEROES));
}

#[test]
fn allocation_is_offered_for_files_with_structured_answers_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let exports = file_export(&folder);
    let mut negotiation = begin(&exports);
    let query = |export: &str| named(export, &[&1_u32.to_be_bytes()[..], &named("base:allocation", b"")].concat());
    let (replies, _) = ask(&mut negotiation, 10, &query("file"));
    assert_eq!(kinds(&replies), [OptionReply::Invalid as u32], "structured answers come first");
    ask(&mut negotiation, 8, &[]);
    let (replies, _) = ask(&mut negotiation, 10, &query("memory"));
    assert_eq!(kinds(&replies), [ACK], "memory does not know");
    let (replies, _) = ask(&mut negotiation, 10, &query("file"));
    assert_eq!(replies[0], (OptionReply::MetaContext as u32, b"\x00\x00\x00\x01base:allocation".to_vec()));
    let (_, next) = ask(&mut negotiation, 7, &named("memory", b"\x00\x00"));
    assert!(matches!(next, NextPhase::Transmit(Session { allocation: false, .. })), "it was chosen for another export");
    let (_, next) = ask(&mut negotiation, 7, &named("file", b"\x00\x00"));
    assert!(matches!(next, NextPhase::Transmit(Session { allocation: true, .. })));
}

#[test]
fn a_wildcard_lists_contexts_and_selects_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let exports = file_export(&folder);
    let mut negotiation = begin(&exports);
    ask(&mut negotiation, 8, &[]);
    for query in [named("", &0_u32.to_be_bytes()), named("", b"\x00\x00\x00\x01\x00\x00\x00\x05base:")] {
        let (replies, _) = ask(&mut negotiation, 9, &query);
        assert_eq!(replies[0].1, b"\x00\x00\x00\x00base:allocation");
        let (replies, _) = ask(&mut negotiation, 10, &query);
        assert_eq!(kinds(&replies), [ACK]);
    }
}

#[test]
fn names_must_differ_and_fit() {
    let export = |name: &str| Export::new(name, Arc::new(Memory::new(ByteSize(512))));
    assert!(Exports::new(Vec::new()).is_err());
    assert!(Exports::new(vec![export("a"), export("a")]).is_err());
    assert!(Exports::new(vec![export(&"a".repeat(4097))]).is_err());
    assert!(Exports::new(vec![export(&"a".repeat(4096)), export("")]).is_ok());
}

proptest! {
    #[test]
    fn any_options_are_answered_in_whole_frames(
        options in proptest::collection::vec((0_u32..14, proptest::collection::vec(any::<u8>(), 0..64)), 0..20),
    ) {
        let exports = two_exports();
        let mut negotiation = begin(&exports);
        for (number, data) in options {
            let (replies, next) = ask(&mut negotiation, number, &data);
            prop_assert!(number == 1 || !replies.is_empty());
            if !matches!(next, NextPhase::Option) {
                break;
            }
        }
    }
}
