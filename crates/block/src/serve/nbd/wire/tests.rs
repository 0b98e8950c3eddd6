use proptest::prelude::*;
use umbrella_units::ByteSize;

use super::option::{ContextQuery, ExportQuery, Info, OptionHeader, OptionKind, OptionReply, info, old_export, reply};
use super::reply::{
    ChunkFollows, ChunkType, ErrorCode, Status, chunk, data_chunk, error_chunk, hole_chunk, simple, status_chunk,
};
use super::request::{Command, Cookie, Request};
use super::{CommandFlags, ExportFlags, Offset, greeting};

const COOKIE: Cookie = Cookie(*b"cookie!!");

#[test]
fn the_greeting_is_what_the_protocol_says() {
    assert_eq!(&greeting(), b"NBDMAGICIHAVEOPT\x00\x03");
}

#[test]
fn a_request_is_read_field_by_field() {
    let mut bytes = [0; 28];
    bytes[..4].copy_from_slice(&[0x25, 0x60, 0x95, 0x13]);
    bytes[5] = 1; // FUA
    bytes[7] = 1; // write
    bytes[8..16].copy_from_slice(&COOKIE.0);
    bytes[16..24].copy_from_slice(&0x0102_0304_0506_0708_u64.to_be_bytes());
    bytes[24..].copy_from_slice(&4096_u32.to_be_bytes());
    let request = Request::parse(&bytes).expect("it has the magic number");
    assert_eq!(
        request,
        Request {
            command: Command::Write,
            flags: CommandFlags::FUA,
            cookie: COOKIE,
            offset: Offset(0x0102_0304_0506_0708),
            length: 4096
        }
    );
    assert_eq!(request.payload(), 4096);
    bytes[3] = 0;
    assert_eq!(Request::parse(&bytes), None, "another magic number");
}

#[test]
fn only_a_write_brings_data() {
    for number in 0..20_u16 {
        let request = Request {
            command: Command::from(number),
            flags: CommandFlags::empty(),
            cookie: COOKIE,
            offset: Offset(0),
            length: 512,
        };
        assert_eq!(request.payload(), if number == 1 { 512 } else { 0 }, "command {number}");
    }
}

#[test]
fn answers_have_the_layout_of_the_protocol() {
    assert_eq!(simple(Some(ErrorCode::NoSpace), COOKIE), *b"\x67\x44\x66\x98\x00\x00\x00\x1ccookie!!");
    assert_eq!(
        chunk(ChunkFollows::Done, ChunkType::None, COOKIE, 0),
        *b"\x66\x8e\x33\xef\x00\x01\x00\x00cookie!!\x00\x00\x00\x00"
    );
    assert_eq!(
        data_chunk(ChunkFollows::Follows, COOKIE, Offset(258), 512),
        *b"\x66\x8e\x33\xef\x00\x00\x00\x01cookie!!\x00\x00\x02\x08\x00\x00\x00\x00\x00\x00\x01\x02"
    );
    assert_eq!(
        hole_chunk(ChunkFollows::Follows, COOKIE, Offset(1), 3),
        *b"\x66\x8e\x33\xef\x00\x00\x00\x02cookie!!\x00\x00\x00\x0c\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x03"
    );
    let mut error = Vec::new();
    error_chunk(&mut error, COOKIE, ErrorCode::Io, "no");
    assert_eq!(error, b"\x66\x8e\x33\xef\x00\x01\x80\x01cookie!!\x00\x00\x00\x08\x00\x00\x00\x05\x00\x02no");
    let mut status = Vec::new();
    status_chunk(&mut status, COOKIE, &[(7, Status::Data), (9, Status::Hole)]);
    assert_eq!(
        status,
        b"\x66\x8e\x33\xef\x00\x01\x00\x05cookie!!\x00\x00\x00\x14\x00\x00\x00\x01\
          \x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x09\x00\x00\x00\x03"
    );
}

#[test]
fn answers_to_options_have_the_layout_of_the_protocol() {
    let mut out = Vec::new();
    reply(&mut out, 7, OptionReply::Ack, &[]);
    info(&mut out, 7, Info::Export(ByteSize(512), ExportFlags::HAS_FLAGS));
    assert_eq!(
        out,
        b"\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x07\x00\x00\x00\x01\x00\x00\x00\x00\
          \x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x07\x00\x00\x00\x03\x00\x00\x00\x0c\
          \x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x01"
    );
    let (mut long, mut short) = (Vec::new(), Vec::new());
    old_export(&mut long, ByteSize(1), ExportFlags::HAS_FLAGS, false);
    old_export(&mut short, ByteSize(1), ExportFlags::HAS_FLAGS, true);
    assert_eq!((long.len(), short.as_slice()), (134, &b"\x00\x00\x00\x00\x00\x00\x00\x01\x00\x01"[..]));
}

#[test]
fn what_info_asks_for_is_read() {
    let query = ExportQuery::parse(b"\x00\x00\x00\x02hd\x00\x03\x00\x01\x00\x03\x00\x09").expect("it is well-formed");
    let wanted = ExportQuery { name: "hd", wants_name: true, wants_description: false, wants_block_size: true };
    assert_eq!(query, wanted);
}

#[test]
fn malformed_option_data_are_refused() {
    for (why, data) in [
        ("nothing", &b""[..]),
        ("no count", b"\x00\x00\x00\x00"),
        ("a name longer than the data", b"\x00\x00\x00\x05ab\x00\x00"),
        ("a name of 4 GiB", b"\xff\xff\xff\xffab\x00\x00"),
        ("a name that is no UTF-8", b"\x00\x00\x00\x02\xff\xfe\x00\x00"),
        ("fewer requests than counted", b"\x00\x00\x00\x00\x00\x02\x00\x01"),
        ("more than counted", b"\x00\x00\x00\x00\x00\x00\x00\x01"),
    ] {
        assert_eq!(ExportQuery::parse(data), None, "{why}");
    }
    for (why, data) in [
        ("nothing", &b""[..]),
        ("4 billion contexts and none there", b"\x00\x00\x00\x00\xff\xff\xff\xff"),
        ("more than counted", b"\x00\x00\x00\x00\x00\x00\x00\x00x"),
    ] {
        assert_eq!(ContextQuery::parse(data), None, "{why}");
    }
}

#[test]
fn contexts_are_recognised_by_name() {
    let both = ContextQuery::parse(b"\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x01x\x00\x00\x00\x0fbase:allocation");
    let query = both.expect("it is well-formed");
    assert!(query.names_allocation && !query.names_base && !query.is_empty);
    let base = ContextQuery::parse(b"\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x05base:").expect("well-formed");
    assert!(base.names_base && !base.names_allocation);
}

#[test]
fn extended_headers_are_an_option_that_is_not_known() {
    let header = OptionHeader::parse(b"IHAVEOPT\x00\x00\x00\x0b\x00\x00\x00\x00").expect("it has the magic number");
    assert_eq!(header.kind(), OptionKind::Unknown(11));
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = ExportQuery::parse(&bytes);
        let _ = ContextQuery::parse(&bytes);
        if let Some(front) = bytes.first_chunk() {
            let _ = Request::parse(front);
        }
        if let Some(front) = bytes.first_chunk() {
            let _ = OptionHeader::parse(front);
        }
    }

    #[test]
    fn words_of_any_length_fit_their_chunk(words in "\\PC{0,6000}") {
        let mut out = Vec::new();
        error_chunk(&mut out, COOKIE, ErrorCode::Io, &words);
        let length = u32::from_be_bytes(*out[16..].first_chunk().expect("the length"));
        prop_assert_eq!(out.len(), 20 + length as usize);
    }
}
