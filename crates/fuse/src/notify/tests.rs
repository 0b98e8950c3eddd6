use zerocopy::FromBytes;

use super::*;
use crate::test_support::fake_kernel;

/// What the kernel reads: the number of the notification and what follows.
fn told(tell: impl FnOnce(&Notifier) -> io::Result<()>) -> (i32, Vec<u8>) {
    let (device, kernel) = fake_kernel();
    tell(&Notifier::new(device)).unwrap();
    let mut bytes = [0; 400];
    let length = rustix::io::read(&kernel, &mut bytes).unwrap();
    let (header, rest) = abi::OutHeader::read_from_prefix(&bytes[..length]).unwrap();
    assert_eq!((header.unique, header.len as usize), (0, length));
    (header.error, rest.to_vec())
}

#[test]
fn a_name_that_expires_is_not_dropped() {
    let name = OsStr::new("name");
    let body = |flags: u32| [&5_u64.to_le_bytes()[..], &4_u32.to_le_bytes(), &flags.to_le_bytes(), b"name\0"].concat();
    assert_eq!(told(|notifier| notifier.inval_entry(NodeId(5), name)), (3, body(0)));
    assert_eq!(told(|notifier| notifier.expire_entry(NodeId(5), name)), (3, body(1)));
}

#[test]
fn some_notifications_are_a_number_only() {
    assert_eq!(told(Notifier::resend), (7, vec![]));
    assert_eq!(told(Notifier::inc_epoch), (8, vec![]));
}

#[test]
fn nodes_to_prune_follow_their_number() {
    let (code, body) = told(|notifier| notifier.prune(&[NodeId(3), NodeId(4)]));
    let ids = [[2_u64, 0, 3, 4].map(u64::to_le_bytes)].concat().concat();
    assert_eq!((code, body), (9, ids));
}

#[test]
fn what_is_retrieved_has_an_id_of_its_own() {
    let (device, _kernel) = fake_kernel();
    let notifier = Notifier::new(device);
    let ids = [(); 3].map(|()| notifier.retrieve(NodeId(2), 0, 10).unwrap().0);
    assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids.iter().all(|id| id & 1 == 0 && id & RETRIEVE != 0));
}
