use super::*;

fn ring_memory(address: usize) -> RingMemory {
    RingMemory { file: tempfile::tempfile().unwrap(), address }
}

#[test]
fn memory_of_a_file_lies_where_it_was_asked_for_and_is_in_the_file() {
    let memory = ring_memory(0x5000_0000_0000);
    memory.reserve(4 * page_size()).unwrap();
    let mut pages = memory.map(3 * page_size(), 100).unwrap();
    assert_eq!((pages.start().as_ptr().addr(), pages.len()), (0x5000_0000_0000 + 3 * page_size(), page_size()));
    pages.as_mut_slice()[..4].copy_from_slice(b"text");
    let mut found = [0; 4];
    std::os::unix::fs::FileExt::read_exact_at(&memory.file, &mut found, 3 * page_size() as u64).unwrap();
    assert_eq!(&found, b"text");
    memory.reserve(1).unwrap();
    pages.release_pages();
    assert_eq!(pages.as_mut_slice()[0], 0);
}

#[test]
fn memory_of_a_file_replaces_no_other() {
    let taken = Pages::new(100).unwrap();
    let refused = ring_memory(taken.start().as_ptr().addr()).map(0, 100).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EEXIST));
    assert!(ring_memory(usize::MAX - 4095).map(1 << 20, 100).is_err());
}
