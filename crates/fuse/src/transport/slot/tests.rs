use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::*;

fn payload(slot: &Slot, length: usize) -> Vec<u8> {
    slot.request(length).to_vec()
}

#[test]
fn an_answer_does_not_touch_a_request_that_is_looked_at() {
    let slot = Slot::new(8192).unwrap();
    slot.begin(true);
    slot.send(RequestId(2), Ok(&[b"ans", b"wer"]));
    assert_eq!(payload(&slot, 6), [0; 6]);
    assert_eq!(slot.wait_for_answer(), Some((0, 6)));
    assert_eq!(payload(&slot, 6), b"answer");
}

#[test]
fn data_is_put_where_the_kernel_takes_it() {
    let slot = Slot::new(8192).unwrap();
    slot.begin(false);
    let mut place = 0;
    slot.fill(RequestId(2), 4096, &mut |buffer| {
        place = buffer.as_ptr().addr();
        buffer[..4].copy_from_slice(b"data");
        Ok(4)
    });
    assert_eq!((slot.wait_for_answer(), place), (Some((0, 4)), slot.payload().start().as_ptr().addr()));
    slot.begin(true);
    slot.fill(RequestId(4), 4096, &mut |buffer| {
        assert_ne!(buffer.as_ptr().addr(), place, "the request is there");
        Ok(2)
    });
    assert_eq!(slot.wait_for_answer(), Some((0, 2)));
}

#[test]
fn slots_of_given_memory_lie_one_behind_the_other() {
    let memory = RingMemory { file: tempfile::tempfile().unwrap(), address: 0x5100_0000_0000 };
    memory.reserve(2 * Slot::stride(8192)).unwrap();
    let slot = Slot::within(&memory, 1, 8192).unwrap();
    let start = memory.address + page_size() + 8192;
    assert_eq!(slot.headers().start().as_ptr().addr(), start);
    assert_eq!(slot.payload().start().as_ptr().addr(), start + page_size());
    slot.begin(false);
    slot.send(RequestId(2), Ok(&[b"answer"]));
    assert_eq!((slot.wait_for_answer(), payload(&slot, 6)), (Some((0, 6)), b"answer".to_vec()));
}

#[test]
fn an_answer_that_has_no_room_is_eio() {
    for in_use in [false, true] {
        let slot = Slot::new(4096).unwrap();
        slot.begin(in_use);
        slot.send(RequestId(2), Ok(&[&[1; 5000]]));
        assert_eq!(slot.wait_for_answer(), Some((-libc::EIO, 0)));
    }
}

#[test]
fn an_answer_may_come_later_and_from_elsewhere() {
    let slot = Arc::new(Slot::new(4096).unwrap());
    slot.begin(true);
    let later = Arc::clone(&slot);
    let other = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        later.send(RequestId(2), Err(Errno::ENOSPC));
    });
    assert_eq!(slot.wait_for_answer(), Some((-libc::ENOSPC, 0)));
    other.join().unwrap();
}

#[test]
fn who_holds_a_reply_keeps_no_connection_from_ending() {
    let slot = Arc::new(Slot::new(4096).unwrap());
    slot.begin(false);
    let waits = Arc::clone(&slot);
    let thread = thread::spawn(move || waits.wait_for_answer());
    slot.end();
    assert_eq!(thread.join().unwrap(), None);
    slot.send(RequestId(2), Ok(&[b"too late"]));
    assert_eq!(payload(&slot, 8), [0; 8]);
}
