use super::dirtied::Dirtied;
use super::mounted::{Line, Template};
use super::*;
use crate::{FileHandle, PageRange};
use umbrella_units::{FileId, Nanos, PageIndex, Pages};

#[test]
fn a_record_says_what_the_program_wrote() {
    let reported = |what: u32| -> Vec<u8> {
        [
            &7_u64.to_ne_bytes()[..],
            &3_u32.to_ne_bytes(),
            &what.to_ne_bytes(),
            &40_u64.to_ne_bytes(),
            &9_u64.to_ne_bytes(),
        ]
        .concat()
    };
    let file = FileKey { file: FileId(7), generation: 3 };
    let dirtied = |pages| Some(KernelReport::Dirtied { file, first: PageIndex(40), pages: Pages(pages), at: Nanos(9) });
    assert_eq!(record::parse(&reported(0)), dirtied(1));
    assert_eq!(record::parse(&reported(4)), dirtied(16));
    assert_eq!(record::parse(&reported(0x100)), Some(KernelReport::Written { file, at: Nanos(9) }));
    assert_eq!(record::parse(&reported(21)), None, "no folio is that large");
    assert_eq!(record::parse(&reported(0)[..31]), None);
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
