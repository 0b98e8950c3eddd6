use zerocopy::FromBytes;

use super::*;
use crate::tests::fake_kernel;

/// What the kernel reads: the number of the notification and what follows.
fn sent(send: impl FnOnce(&Notifier) -> io::Result<()>) -> (i32, Vec<u8>) {
    let (device, kernel) = fake_kernel();
    send(&Notifier::new(device)).unwrap();
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
    assert_eq!(sent(|notifier| notifier.inval_entry(NodeId(5), name)), (3, body(0)));
    assert_eq!(sent(|notifier| notifier.expire_entry(NodeId(5), name)), (3, body(1)));
}

#[test]
fn some_notifications_are_a_number_only() {
    assert_eq!(sent(Notifier::resend), (7, vec![]));
    assert_eq!(sent(Notifier::inc_epoch), (8, vec![]));
}

#[test]
fn nodes_to_prune_follow_their_number() {
    let (code, body) = sent(|notifier| notifier.prune(&[NodeId(3), NodeId(4)]));
    let ids = [[2_u64, 0, 3, 4].map(u64::to_le_bytes)].concat().concat();
    assert_eq!((code, body), (9, ids));
}

#[test]
fn no_two_retrievals_of_a_connection_have_one_id() {
    let (device, kernel) = fake_kernel();
    let notifiers = [Notifier::new(Arc::clone(&device)), Notifier::new(Arc::clone(&device))];
    let ids = [0, 1, 0].map(|which| notifiers[which].retrieve(NodeId(2), 0, 10).unwrap().0);
    assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
    device.poke().unwrap();
    let mut unique = ids.to_vec();
    for _ in 0..4 {
        let mut bytes = [0; 100];
        rustix::io::read(&kernel, &mut bytes).unwrap();
        unique.push(u64::from_ne_bytes(bytes[16..24].try_into().unwrap()));
    }
    let is_poke = |unique: &u64| {
        let opcode = crate::abi::opcode::NOTIFY_REPLY;
        Device::is_poke(&abi::InHeader { opcode, unique: *unique, ..abi::InHeader::default() })
    };
    assert_eq!((&unique[3..6], unique.iter().filter(|unique| is_poke(unique)).count()), (&ids[..], 1));
    assert!(unique.iter().all(|unique| unique & 1 == 0), "the lowest bit means an interruption");
}
