//! Labels that are damaged in both copies, and flash that cannot be read: the error says what to do, and readable data
//! can be rescued.

use super::super::format::BLOCK;
use super::*;
use crate::fault::ReadFault;

const DISK: u64 = 4000;

/// Blocks of the disk that have data: on the disk, drained from the log, and in the log, some of them twice.
fn used() -> (Pair, Vec<u8>) {
    let pair = Pair::new(DISK);
    let hybrid = pair.open(by_hand(Algorithm::Whole));
    let write = |numbers: std::ops::Range<u64>, more: u8| {
        for number in numbers {
            let data = fill(number as u8 + more, BLOCK);
            hybrid.write(Lba(number * BLOCK), &data, Durability::Through).expect("there is room");
        }
    };
    write(0..10, 1);
    hybrid.sleep().expect("it sleeps");
    write(5..30, 2);
    hybrid.drain().expect("to the disk");
    // Past the log: older records must not come back over it.
    write(5..8, 3);
    hybrid.sleep().expect("it sleeps");
    write(20..60, 4);
    write(50..55, 5);
    let held = read(&hybrid, 0, DISK);
    drop(hybrid);
    (pair, held)
}

fn flip_label(half: &PairHalf, sector: u64) {
    flip(&*half.device, (sector * SECTOR_BYTES) as usize + 40);
}

fn zero(half: &PairHalf, sector: u64) {
    half.device.write(Lba(sector), &fill(0, BLOCK), Durability::Cached).expect("memory");
}

fn both_copies(first: u64, half: &PairHalf, damage: fn(&PairHalf, u64)) {
    damage(half, first);
    damage(half, first + BLOCK);
}

#[test]
fn a_pair_with_damaged_labels_says_so_and_what_it_holds_is_got_out() {
    let (whole, held) = used();
    for (how, damage) in [("a bit", flip_label as fn(&PairHalf, u64)), ("zeroed", zero)] {
        for (of_flash, of_disk) in [(true, false), (false, true), (true, true)] {
            let pair = whole.copy();
            if of_flash {
                both_copies(0, &pair.flash, damage);
            }
            if of_disk {
                both_copies(DISK, &pair.disk, damage);
            }
            let label = format!("flash {of_flash}, disk {of_disk}, {how}");
            let refused = pair.try_open(by_hand(Algorithm::Whole)).map(|_| ()).expect_err(&label).to_string();
            let checked = check(&pair.disk, &pair.flash).expect_err(&label).to_string();
            assert_eq!(refused, checked, "{label}");
            assert!(refused.contains("label") || refused.contains("give the right one"), "{label}: {refused}");
            let before = (read(&*pair.flash.device, 0, 4000), read(&*pair.disk.device, 0, DISK + TAG_SECTORS));
            let remains = PairRemains::open(pair.disk.clone(), pair.flash.clone());
            let remains = remains.unwrap_or_else(|error| panic!("{label}: {error}"));
            assert_eq!(remains.damaged_labels().len(), usize::from(of_flash) + usize::from(of_disk), "{label}");
            let found = read(&remains, 0, DISK);
            let wrong: Vec<usize> =
                (0..DISK as usize / 8).filter(|at| found[at * 4096..][..4096] != held[at * 4096..][..4096]).collect();
            // Without any label nobody knows up to where the log was emptied: what was written past it since is hidden.
            let allowed: &[usize] = if of_flash && of_disk { &[5, 6, 7] } else { &[] };
            assert!(wrong.iter().all(|at| allowed.contains(at)), "{label}: {wrong:?}");
            let after = (read(&*pair.flash.device, 0, 4000), read(&*pair.disk.device, 0, DISK + TAG_SECTORS));
            assert!(before == after, "{label}: it was written to");
        }
    }
}

#[test]
fn two_halves_that_are_whole_are_read_as_ever_and_strangers_are_refused() {
    let (pair, held) = used();
    let remains = PairRemains::open(pair.disk.clone(), pair.flash.clone()).expect("it is a pair");
    assert!(remains.damaged_labels().is_empty() && remains.losses().is_empty());
    assert!(read(&remains, 0, DISK) == held);
    let other = Pair::new(DISK);
    assert!(matches!(PairRemains::open(pair.disk.clone(), other.flash.clone()), Err(HybridError::ForeignDisk { .. })));
    let empty = half("empty", Arc::new(flash_of(LEAST_LOG)));
    let refused = PairRemains::open(pair.disk, empty.clone()).map(|_| ());
    assert!(matches!(refused, Err(HybridError::FlashLost { .. })), "{refused:?}");
    let disk = half("disk", Arc::new(Memory::new(sectors(DISK))));
    assert!(matches!(PairRemains::open(disk, empty), Err(HybridError::NoSuperblock { .. })));
}

/// What a pair comes to whose flash has a block that cannot be read.
fn with_unreadable(whole: &Pair, held: &[u8], at: u64) -> &'static str {
    let latent = Rule::on_read(ReadFault::Latent).within(range(at, BLOCK));
    let pair = whole.copy().with_flash(Arc::new(faulty_copy_of(&whole.flash, latent)));
    let report = check(&pair.disk, &pair.flash).unwrap_or_else(|error| panic!("sector {at}: {error}"));
    let damaged = PairRemains::open(pair.disk.clone(), pair.flash.clone()).expect("it is a pair");
    let mut found = fill(0, BLOCK);
    for block in 0..DISK / BLOCK {
        let is_read = damaged.read(Lba(block * BLOCK), &mut found).is_ok();
        assert!(!is_read || found == held[block as usize * 4096..][..4096], "sector {at}: block {block} is wrong");
    }
    match pair.try_open(by_hand(Algorithm::Whole)) {
        Ok(hybrid) => {
            assert!(report.damage.is_none(), "sector {at}: {report:?}");
            assert!(read(&hybrid, 0, DISK) == held, "sector {at}: flushed data is gone");
            "opened"
        }
        Err(error @ HybridError::LogUnreadable { .. }) => {
            assert!(report.damage.is_some(), "sector {at}: check says nothing of {error}");
            assert!(error.to_string().contains("continue without what cannot be read"), "sector {at}: {error}");
            "refused"
        }
        Err(error) => panic!("sector {at}: {error}"),
    }
}

#[test]
fn flash_of_which_a_block_cannot_be_read_is_used_or_refused_with_a_word() {
    let (whole, held) = used();
    let tail = read_superblock(&whole.flash).expect("it is whole").tail.0;
    for at in (0..256).step_by(BLOCK as usize) {
        assert_eq!(with_unreadable(&whole, &held, at), "opened", "sector {at}");
    }
    for at in (0..256).step_by(BLOCK as usize) {
        with_unreadable(&whole, &held, LOG_START.0 + tail + at);
    }
    assert_eq!(with_unreadable(&whole, &held, LOG_START.0 + tail), "refused");
}

#[test]
fn a_disk_whose_beginning_cannot_be_read_is_refused_with_a_word_and_salvaged() {
    let (whole, held) = used();
    let latent = Rule::on_read(ReadFault::Latent).within(range(0, BLOCK));
    let pair = Pair::of(faulty_copy_of(&whole.disk, latent), Arc::new(copy_of(&whole.flash)));
    let opened = pair.try_open(by_hand(Algorithm::Whole));
    let refused = opened.map(|_| ()).expect_err("nobody knows who wrote to it").to_string();
    assert!(refused.contains("beginning of disk cannot be read") && refused.contains("ddrescue"), "{refused}");
    assert_eq!(check(&pair.disk, &pair.flash).expect_err("it cannot tell either").to_string(), refused);
    let remains = PairRemains::open(pair.disk, pair.flash).expect("the rest is there");
    assert_eq!(remains.damaged_labels().len(), 1);
    assert!(read(&remains, BLOCK, DISK - BLOCK) == held[4096..]);
    assert!(remains.read(Lba(0), &mut fill(0, BLOCK)).is_err());
}

#[test]
fn copies_of_a_superblock_that_differ_under_one_number_are_refused() {
    let (pair, held) = used();
    let superblock = read_superblock(&pair.flash).expect("it is whole");
    let other = super::super::format::FlashSuperblock { head: None, durable: RecordNo(1), ..superblock };
    pair.flash.device.write(Lba(BLOCK), &other.encode(), Durability::Cached).expect("memory");
    let refused = pair.try_open(by_hand(Algorithm::Whole)).map(|_| ()).expect_err("nobody knows which one counts");
    assert!(refused.to_string().contains("differ"), "{refused}");
    let remains = PairRemains::open(pair.disk.clone(), pair.flash.clone()).expect("the records are there");
    assert!(read(&remains, 0, DISK) == held);
}
