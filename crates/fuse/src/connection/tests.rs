use std::os::fd::OwnedFd;
use std::sync::Arc;

use rand::Rng;

use super::*;
use crate::tests::{fake_kernel, fuzz};

fn send_init(kernel: &OwnedFd, unique: u64, init: &abi::InitIn) {
    let header = abi::InHeader { opcode: opcode::INIT, unique, ..abi::InHeader::default() };
    rustix::io::write(kernel, &[header.as_bytes(), init.as_bytes()].concat()).unwrap();
}

fn answer(kernel: &OwnedFd) -> (abi::OutHeader, abi::InitOut) {
    let mut bytes = [0; 200];
    let length = rustix::io::read(kernel, &mut bytes).unwrap();
    let (header, rest) = abi::OutHeader::read_from_prefix(&bytes[..length]).unwrap();
    (header, abi::InitOut::read_from_prefix(rest).unwrap().0)
}

fn modern() -> abi::InitIn {
    let offered = InitFlags::INIT_EXT
        | InitFlags::MAX_PAGES
        | InitFlags::PASSTHROUGH
        | InitFlags::OVER_IO_URING
        | InitFlags::ASYNC_READ;
    let flags = offered.bits();
    let (low, high) = (flags as u32, (flags >> 32) as u32);
    abi::InitIn { major: 7, minor: 45, max_readahead: 65_536, flags: low, flags2: high, ..abi::InitIn::default() }
}

#[test]
fn what_is_not_offered_is_not_used() {
    let (device, kernel) = fake_kernel();
    send_init(&kernel, 2, &modern());
    let agreed = negotiate(&device, 1 << 20, |offer, agreement| {
        assert_eq!((offer.minor, offer.max_readahead), (45, 65_536));
        agreement.flags |= InitFlags::PASSTHROUGH | InitFlags::POSIX_ACL | InitFlags::OVER_IO_URING;
        agreement.max_readahead = u32::MAX;
        agreement.max_stack_depth = 1;
        Ok(())
    });
    let agreed = agreed.unwrap();
    assert!(agreed.offers_rings());
    agreed.answer(&device, None).unwrap();
    let (header, out) = answer(&kernel);
    let flags = InitFlags::from_bits_retain(u64::from(out.flags) | u64::from(out.flags2) << 32);
    assert_eq!((header.unique, header.error), (2, 0));
    let used = InitFlags::PASSTHROUGH | InitFlags::ASYNC_READ | InitFlags::INIT_EXT | InitFlags::MAX_PAGES;
    assert_eq!(flags, used, "io_uring only with rings");
    assert_eq!((out.max_readahead, out.max_write, out.max_pages, out.max_stack_depth), (65_536, 1 << 20, 256, 1));
}

#[test]
fn requests_in_the_background_leave_half_of_the_entries() {
    for (entries, allowed) in [(None, (1024, 768)), (Some(512), (256, 256)), (Some(4096), (1024, 768))] {
        let (device, kernel) = fake_kernel();
        send_init(&kernel, 2, &modern());
        let agreed = negotiate(&device, 1 << 20, |_, agreement| {
            (agreement.max_background, agreement.congestion_threshold) = (1024, 768);
            Ok(())
        });
        agreed.unwrap().answer(&device, entries).unwrap();
        let (_, out) = answer(&kernel);
        assert_eq!((out.max_background, out.congestion_threshold), allowed, "{entries:?} entries");
    }
}

#[test]
fn a_write_of_more_pages_than_the_answer_can_name_is_cut() {
    let (device, kernel) = fake_kernel();
    send_init(&kernel, 2, &modern());
    let agreed = negotiate(&device, u32::MAX, |_, _| Ok(())).unwrap();
    agreed.answer(&device, None).unwrap();
    let (_, out) = answer(&kernel);
    assert_eq!((out.max_pages, out.max_write), (u16::MAX, u32::from(u16::MAX) * page_size() as u32));
}

#[test]
fn an_older_kernel_sends_less_and_takes_smaller_writes() {
    let (device, kernel) = fake_kernel();
    let header = abi::InHeader { opcode: opcode::INIT, unique: 2, ..abi::InHeader::default() };
    let init =
        abi::InitShortIn { major: 7, minor: 31, max_readahead: 4096, flags: InitFlags::ASYNC_READ.bits() as u32 };
    rustix::io::write(&kernel, &[header.as_bytes(), init.as_bytes()].concat()).unwrap();
    let agreed = negotiate(&device, 1 << 20, |_, _| Ok(())).unwrap();
    agreed.answer(&device, None).unwrap();
    let (_, out) = answer(&kernel);
    assert_eq!((out.minor, out.max_write, out.flags2), (31, 32 * 4096, 0));
    assert!(!agreed.offers_rings());
}

#[test]
fn a_later_major_version_gets_ours_and_asks_again() {
    let (device, kernel) = fake_kernel();
    send_init(&kernel, 2, &abi::InitIn { major: 8, ..modern() });
    send_init(&kernel, 4, &modern());
    let agreed = negotiate(&device, 1 << 20, |_, _| Ok(())).unwrap();
    agreed.answer(&device, None).unwrap();
    assert_eq!((answer(&kernel).1.major, answer(&kernel).0.unique), (7, 4));
}

#[test]
fn what_is_no_init_is_an_error() {
    for bytes in [&b"short"[..], &[0; 200]] {
        let (device, kernel) = fake_kernel();
        rustix::io::write(&kernel, bytes).unwrap();
        assert!(negotiate(&device, 1 << 20, |_, _| Ok(())).is_err());
    }
    let (device, kernel) = fake_kernel();
    drop(kernel);
    assert!(negotiate(&Arc::clone(&device), 1 << 20, |_, _| Ok(())).is_err());
}

#[test]
fn any_beginning_is_an_agreement_or_an_error() {
    let (mut random, rounds) = fuzz();
    for _ in 0..rounds {
        let (device, kernel) = fake_kernel();
        let mut bytes: Vec<u8> = (0..random.random_range(1..160)).map(|_| random.random()).collect();
        let init = abi::InitIn { flags: random.random(), flags2: random.random(), ..modern() };
        if random.random_bool(0.8) {
            // The right operation and version, as often as not cut short.
            let header = abi::InHeader { opcode: opcode::INIT, unique: random.random(), ..abi::InHeader::default() };
            let sound = [header.as_bytes(), init.as_bytes()].concat();
            let length = random.random_range(0..=sound.len()).min(bytes.len());
            bytes[..length].copy_from_slice(&sound[..length]);
        }
        rustix::io::write(&kernel, &bytes).unwrap();
        // A kernel with a later version than ours has to begin anew.
        let _ = rustix::net::shutdown(&kernel, rustix::net::Shutdown::Write);
        let Ok(agreed) = negotiate(&device, random.random(), |_, _| Ok(())) else { continue };
        agreed.answer(&device, Some(random.random_range(2..4096))).unwrap();
        assert!((4096..=256 << 20).contains(&agreed.payload()), "{}", agreed.payload());
        let (_, out) = answer(&kernel);
        assert!(out.minor <= 45 && u64::from(out.max_pages) * page_size() as u64 >= u64::from(out.max_write));
    }
}
