use super::*;
use crate::device::{Options, profile};

#[test]
fn a_read_completes_once() {
    let mut disk = profile("maxtor_80gb").unwrap().build(&Options::default());
    disk.submit(Nanos(0), Request { id: RequestId(7), op: Op::Read, lba: Lba(1_000_000), sectors: 8 });
    let mut done = Vec::new();
    while let Some(at) = disk.next_event() {
        disk.advance(at, &mut done);
    }
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].id, RequestId(7));
    assert!(done[0].at < Nanos::from_millis(30));
}
