//! The last record of the log, which no later record mentions: its header is damaged after its flush was answered.

use super::super::format::BLOCK;
use super::*;

/// Sectors of a record with one block of data.
const RECORD: u64 = 2 * BLOCK;

fn write(hybrid: &Hybrid, number: u64, durability: Durability) {
    hybrid.write(Lba(number * BLOCK), &fill(number as u8 + 1, BLOCK), durability).expect("to the log");
}

#[test]
fn a_damaged_header_of_the_last_record_is_told_whichever_byte_it_is_and_once() {
    let (pair, hybrid) = sleeping_pair(1000);
    (0..3).for_each(|number| write(&hybrid, number, Durability::Through));
    drop(hybrid);
    for byte in (0..112).chain((112..4096).step_by(97)).chain(4090..4096) {
        let pair = pair.copy();
        pair.flip(2 * RECORD, byte);
        let report = pair.checked();
        assert_eq!((report.damage, report.perhaps_lost.unknown_records), (None, 1), "byte {byte}");
        let hybrid = pair.open(by_hand(Algorithm::Whole));
        assert_eq!(hybrid.perhaps_lost().unknown_records, 1, "byte {byte}");
        assert_eq!(read(&hybrid, 0, 2 * BLOCK), [fill(1, BLOCK), fill(2, BLOCK)].concat(), "byte {byte}");
        hybrid.sleep().expect("it sleeps");
        write(&hybrid, 9, Durability::Through);
        drop(hybrid);
        assert!(pair.checked().perhaps_lost.is_empty(), "byte {byte}: it was reported");
        let hybrid = pair.open(by_hand(Algorithm::Whole));
        assert_eq!(read(&hybrid, 9 * BLOCK, BLOCK), fill(10, BLOCK), "byte {byte}: the log continues");
        hybrid.dissolve().expect("the log can be emptied");
    }
}

#[test]
fn a_damaged_header_of_the_last_record_that_nobody_was_promised_is_cut_off_in_silence() {
    let (pair, hybrid) = sleeping_pair(1000);
    write(&hybrid, 0, Durability::Through);
    // The first record behind a flush expects one; the second does not.
    write(&hybrid, 1, Durability::Cached);
    write(&hybrid, 2, Durability::Cached);
    drop(hybrid);
    // All that a power cut leaves of a header begins with its first sectors.
    for sectors in 1..BLOCK {
        let torn = pair.copy();
        let at = Lba(LOG_START.0 + 2 * RECORD + sectors);
        torn.flash.device.write(at, &fill(0, BLOCK - sectors), Durability::Cached).expect("memory");
        // Where the rest was never written anyway it is whole.
        torn.flip(2 * RECORD, 4095);
        let report = torn.checked();
        assert!(report.damage.is_none() && report.perhaps_lost.is_empty(), "{sectors} sectors: {report:?}");
        assert!(torn.open(by_hand(Algorithm::Whole)).perhaps_lost().is_empty(), "{sectors} sectors");
    }
}

#[test]
fn a_damaged_header_of_the_last_record_of_an_earlier_opening_is_no_loss() {
    let (pair, hybrid) = sleeping_pair(1000);
    write(&hybrid, 0, Durability::Through);
    drop(hybrid);
    pair.flip(0, 40);
    assert_eq!(pair.checked().perhaps_lost.unknown_records, 1);
    drop(pair.open(by_hand(Algorithm::Whole)));
    assert!(pair.checked().perhaps_lost.is_empty());
    assert!(pair.open(by_hand(Algorithm::Whole)).perhaps_lost().is_empty());
}
