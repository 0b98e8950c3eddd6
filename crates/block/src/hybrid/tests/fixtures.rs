//! Images of released versions, as they were written then. They are never written anew.
//!
//! Versions 1 and 2: 4000 sectors of disk, the smallest log; `hybrid_v1_*.img.zst` and `hybrid_v2_*.img.zst`. Made by
//! [`the_work`].

use super::super::recover::{LogStep, scan_log};
use super::super::scanner::Unreadable;
use super::*;

const DISK: &[u8] = include_bytes!("../../../tests/fixtures/hybrid_v1_disk.img.zst");
const FLASH: &[u8] = include_bytes!("../../../tests/fixtures/hybrid_v1_flash.img.zst");

const DISK_2: &[u8] = include_bytes!("../../../tests/fixtures/hybrid_v2_disk.img.zst");
const FLASH_2: &[u8] = include_bytes!("../../../tests/fixtures/hybrid_v2_flash.img.zst");

fn image(packed: &[u8]) -> Memory {
    Memory::from_bytes(zstd::decode_all(packed).expect("the fixture is whole"))
}

fn write(hybrid: &Hybrid, at: u64, byte: u8, count: u64) {
    hybrid.write(Lba(at), &fill(byte, count), Durability::Cached).expect("it is written");
}

/// What the images went through: the log runs over its end once and holds data, several writes in a record, zeroes.
fn the_work(pair: &Pair) {
    let hybrid = pair.open(by_hand(Algorithm::Whole));
    write(&hybrid, 0, 1, 100);
    hybrid.sleep().expect("it sleeps");
    for _ in 0..3 {
        write(&hybrid, 1000, 2, 2000);
    }
    hybrid.drain().expect("it is drained");
    hybrid.sleep().expect("it sleeps");
    write(&hybrid, 50, 3, 1900);
    write(&hybrid, 60, 4, 11);
    hybrid.write_zeroes(range(65, 3), Zeroes::Unmap, Durability::Cached).expect("it is zeroed");
    hybrid.close().expect("it can be closed");
}

fn held() -> Vec<u8> {
    [fill(1, 50), fill(3, 10), fill(4, 5), fill(0, 3), fill(4, 3), fill(3, 1879), fill(2, 1050), fill(0, 1000)].concat()
}

#[test]
fn version_1_is_read() {
    let pair = Pair::of(image(DISK), Arc::new(image(FLASH)));
    let report = pair.checked();
    assert_eq!((report.records, report.torn, &report.damage), (3, false, &None));
    assert_eq!(report.only_in_log, [range(50, 1900)]);
    let hybrid = pair.open(by_hand(Algorithm::Whole));
    assert!(read(&hybrid, 0, 4000) == held());
    hybrid.dissolve().expect("it can be detached");
    assert!(read(&pair.sleeping_disk.inner, 0, 4000) == held());
}

#[test]
fn version_2_is_read_and_is_still_what_is_written() {
    let flash = Arc::new(image(FLASH_2));
    let pair = Pair::of(image(DISK_2), flash.clone());
    let report = pair.checked();
    assert_eq!((report.records, &report.damage, report.perhaps_lost.is_empty()), (3, &None, true));
    let superblock = format::FlashSuperblock::decode(&flash.to_bytes()).expect("it is whole");
    assert_eq!(superblock.encode(), flash.to_bytes()[..512]);
    let (mut records, mut marks) = (0, 0);
    let mut each = |header: &format::Header| {
        let at = LOG_START.0 + header.at.0 % superblock.log_size;
        assert_eq!(header.encode(), read(&*flash, at, format::BLOCK));
        *(if header.is_mark() { &mut marks } else { &mut records }) += 1;
    };
    scan_log(&pair.flash, &superblock, Unreadable::Refused, |step| {
        let LogStep::Record(header, _) = step else { panic!("it has no gap") };
        each(header);
        Ok(())
    })
    .expect("it is whole");
    assert_eq!((records, marks), (3, 1));
    let tag = read(&*pair.disk.device, 4000, 1);
    assert_eq!(format::DiskTag::decode(&tag).expect("it is whole").encode(), tag);
    assert!(read(&pair.open(by_hand(Algorithm::Whole)), 0, 4000) == held());
    // The same work leaves the same contents today.
    let pair = Pair::new(4000);
    the_work(&pair);
    assert!(read(&pair.open(by_hand(Algorithm::Whole)), 0, 4000) == held());
}
