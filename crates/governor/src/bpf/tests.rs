use super::btf::{Btf, Offset, TypeId};
use super::code::{Code, Label, Reg, Width};
use super::dirtied::Dirtied;
use super::mounted::{Line, Template};
use super::program::{self, RECORD};
use super::*;
use crate::{FileHandle, PageRange};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use umbrella_units::{FileId, Nanos, PageIndex, Pages};

/// Type information in the kernel's form, made by hand.
#[derive(Default)]
struct Types {
    types: Vec<u8>,
    strings: Vec<u8>,
}

impl Types {
    fn new() -> Types {
        Types { types: Vec::new(), strings: vec![0] }
    }

    fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let at = self.strings.len() as u32;
        self.strings.extend(name.bytes().chain([0]));
        at
    }

    fn push(&mut self, words: &[u32]) {
        self.types.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    }

    fn head(&mut self, name: &str, kind: u32, items: u32) {
        let name = self.name(name);
        self.push(&[name, kind << 24 | items, 0]);
    }

    fn members(&mut self, name: &str, kind: u32, members: &[(&str, u32, u32)]) {
        self.head(name, kind, members.len() as u32);
        for (member, id, byte) in members {
            let place = self.name(member);
            self.push(&[place, *id, byte * 8]);
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let types = self.types.len() as u32;
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        for word in [24, 0, types, types, self.strings.len() as u32] {
            bytes.extend(word.to_ne_bytes());
        }
        [&bytes[..], &self.types, &self.strings].concat()
    }
}

/// 1: an integer. 2: a structure in a union without a name (3), in a structure (4). 5: an enumeration. 6: a tracepoint.
fn example() -> Types {
    let mut types = Types::new();
    types.head("int", 1, 0);
    types.push(&[32]);
    types.members("", 4, &[("flags", 1, 0), ("index", 1, 4)]);
    types.members("", 5, &[("", 2, 0)]);
    types.members("folio", 4, &[("other", 1, 0), ("", 3, 8)]);
    types.head("pageflags", 6, 2);
    let (locked, head) = (types.name("PG_locked"), types.name("PG_head"));
    types.push(&[locked, 0, head, 6]);
    types.head("btf_trace_writeback_dirty_folio", 8, 0);
    types
}

#[test]
fn a_field_is_found_inside_members_without_a_name() {
    let btf = Btf::parse(example().bytes()).expect("well formed");
    assert_eq!(btf.field("folio", "index").expect("is there"), Offset(12));
    assert_eq!(btf.field("folio", "other").expect("is there"), Offset(0));
    assert_eq!(btf.enumerator("pageflags", "PG_head").expect("is there"), 6);
    assert_eq!(btf.tracepoint("writeback_dirty_folio").expect("is there"), TypeId(6));
}

#[test]
fn what_the_kernel_lacks_is_named() {
    let btf = Btf::parse(example().bytes()).expect("well formed");
    let error = btf.field("folio", "_flags_1").expect_err("is not there").to_string();
    assert!(error.contains("folio") && error.contains("_flags_1"), "{error}");
    let error = btf.tracepoint("sb_clear_inode_writeback").expect_err("is not there").to_string();
    assert!(error.contains("sb_clear_inode_writeback"), "{error}");
    assert!(btf.field("fol", "index").is_err(), "a name's beginning is no name");
}

#[test]
fn damaged_types_are_an_error_and_no_panic() {
    let seed = 6;
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let whole = example().bytes();
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..random.random_range(1..6) {
            let at = random.random_range(0..bytes.len());
            bytes[at] = random.random();
        }
        bytes.truncate(random.random_range(0..=bytes.len()));
        if let Some(btf) = Btf::parse(bytes) {
            let _ = (btf.field("folio", "index"), btf.enumerator("pageflags", "PG_head"));
            let _ = btf.tracepoint("writeback_dirty_folio");
        }
    }
}

#[test]
fn structures_that_hold_themselves_end() {
    let mut types = Types::new();
    types.members("folio", 4, &[("", 1, 0), ("", 1, 8)]);
    types.members("", 4, &[("", 2, 0)]);
    assert!(Btf::parse(types.bytes()).expect("well formed").field("folio", "index").is_err());
}

#[test]
fn the_types_of_this_kernel_are_read() {
    let btf = Btf::of_kernel().expect("this kernel has types");
    btf.field("inode", "i_ino").expect("every kernel has it");
    btf.field("folio", "index").expect("every kernel since 5.16 has it");
}

#[test]
fn instructions_are_written_as_the_kernel_reads_them() {
    let mut code = Code::default();
    code.load(Width::Eight, Reg::R6, Reg::R1, Offset(8));
    code.jump_if(Reg::R6, 0, Label::Out);
    code.store_value(Width::Four, Reg::Stack, Offset(-20), 0x100);
    // r6 = *(u64 *)(r1 + 8); if r6 == 0 goto +1; *(u32 *)(r10 - 20) = 256; r0 = 0; exit
    let expected = [0x0000_0000_0008_1679, 0x0000_0000_0001_0615, 0x0000_0100_ffec_0a62, 0x0000_0000_0000_00b7, 0x95];
    assert_eq!(code.finish(), expected);
}

#[test]
fn a_record_says_what_the_program_wrote() {
    let record = |what: u32| -> Vec<u8> {
        [
            &7_u64.to_ne_bytes()[..],
            &3_u32.to_ne_bytes(),
            &what.to_ne_bytes(),
            &40_u64.to_ne_bytes(),
            &9_u64.to_ne_bytes(),
        ]
        .concat()
    };
    assert_eq!(record(0).len(), RECORD);
    let file = FileKey { file: FileId(7), generation: 3 };
    let dirtied = |pages| Some(Seen::Dirtied { file, first: PageIndex(40), pages: Pages(pages), at: Nanos(9) });
    assert_eq!(program::read(&record(0)), dirtied(1));
    assert_eq!(program::read(&record(4)), dirtied(16));
    assert_eq!(program::read(&record(0x100)), Some(Seen::Written { file, at: Nanos(9) }));
    assert_eq!(program::read(&record(21)), None, "no folio is that large");
    assert_eq!(program::read(&record(0)[..31]), None);
}

#[test]
fn handles_are_written_as_the_file_system_writes_that_of_its_root() {
    let file = FileKey { file: FileId(300), generation: 9 };
    let handle = |kind, parts: &[&[u8]]| FileHandle { kind, bytes: parts.concat().into() };
    let (four, eight) = (300_u32.to_ne_bytes(), 300_u64.to_ne_bytes());
    for (root, number, expected) in [
        (handle(1, &[&2_u32.to_ne_bytes(), &[0; 4]]), 2, handle(1, &[&four, &9_u32.to_ne_bytes()])),
        (handle(0x81, &[&128_u64.to_ne_bytes(), &[0; 4]]), 128, handle(0x81, &[&eight, &9_u32.to_ne_bytes()])),
        (
            handle(0x4d, &[&256_u64.to_ne_bytes(), &5_u64.to_ne_bytes(), &[0; 4]]),
            256,
            handle(0x4d, &[&eight, &5_u64.to_ne_bytes(), &9_u32.to_ne_bytes()]),
        ),
    ] {
        let template = Template::of(&root, FileId(number)).expect("is known");
        assert_eq!(template.handle(file), Some(expected));
        assert_eq!(Template::of(&root, FileId(number + 1)), None, "the number of another file");
    }
}

#[test]
fn handles_of_an_unknown_kind_and_numbers_that_no_file_has_give_none() {
    let handle = |kind, bytes: &[u8]| FileHandle { kind, bytes: bytes.into() };
    assert_eq!(Template::of(&handle(1, &[0; 12]), FileId(0)), None);
    assert_eq!(Template::of(&handle(0x55, &[0; 8]), FileId(0)), None);
    let key = |number| FileKey { file: FileId(number), generation: 0 };
    assert_eq!(Template::Short.handle(key(1 << 32)), None);
    assert_eq!(Template::Subvolume(5).handle(key(1)), None, "the tree's own blocks");
}

#[test]
fn a_line_of_the_mount_table_gives_device_and_kind() {
    let line = Line::parse(b"36 35 98:3 / /mnt\\040two rw,noatime master:1 opt:2 - ext4 /dev/sda1 rw").expect("a line");
    assert_eq!((line.mount, line.kind.as_str()), (36, "ext4"));
    assert_eq!((rustix::fs::major(line.device), rustix::fs::minor(line.device)), (98, 3));
    for broken in [
        &b""[..],
        b"36",
        b"36 35 98 / /mnt rw - ext4 x rw",
        b"x 35 98:0 / /mnt rw - ext4 x rw",
        b"36 35 98:0 / /mnt rw",
    ] {
        assert!(Line::parse(broken).is_none());
    }
}

#[test]
fn pages_of_a_step_are_given_on_by_file_in_order_and_once() {
    let [one, two] = [1, 2].map(|number| FileKey { file: FileId(number), generation: 0 });
    let range = |first, pages| PageRange { first: PageIndex(first), pages: Pages(pages) };
    let mut dirtied = Dirtied::default();
    for (file, first, pages) in
        [(two, 9, 1), (one, 4, 1), (two, 3, 2), (two, 5, 4), (one, 4, 1), (one, 6, 2), (two, 4, 1)]
    {
        dirtied.add(file, range(first, pages));
    }
    assert_eq!(dirtied.pages, 12);
    let ordered: Vec<_> = dirtied.in_order().collect();
    assert_eq!(ordered, [(two, range(3, 7)), (one, range(4, 1)), (one, range(6, 2))]);
}
