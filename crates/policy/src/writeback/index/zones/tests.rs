use super::*;

/// Zones with one segment of 50 pages each, as many with 51 lone pages between them.
fn mixed(zones: u64) -> Zones {
    let mut mixed = Zones::new(2048, ZoneOrder::PagesAndLength);
    for pair in 0..zones {
        mixed.change(2 * pair * 2048, 50, 1);
        mixed.change((2 * pair + 1) * 2048, 51, 51);
    }
    mixed
}

#[test]
fn zones_below_the_average_are_passed_once_and_not_at_each_question() {
    let zones = 1000;
    let mut mixed = mixed(zones);
    for left in (1..=zones).rev() {
        assert_eq!(mixed.longest(50, true), None, "the average is above 50 while a zone has 51");
        let first = mixed.by_length.as_ref().unwrap().first().unwrap();
        assert_eq!(mixed.entries[first as usize].pages, 51, "nothing is passed at the next question");
        mixed.change((2 * left - 1) * 2048, -51, -51);
    }
    for zone in 0..zones {
        assert_eq!(mixed.longest(50, true).map(|zone| zone.number), Some(2 * zone), "all have as many as the average");
        mixed.change(2 * zone * 2048, -50, -1);
    }
    assert_eq!(mixed.longest(50, true), None);
}

#[test]
fn a_zone_that_was_passed_comes_back_when_it_has_grown() {
    let mut mixed = mixed(2);
    assert_eq!(mixed.longest(50, true), None);
    mixed.change(2 * 2048 + 50, 2, 0);
    assert_eq!(mixed.longest(50, true).map(|zone| (zone.number, zone.pages)), Some((2, 52)));
    mixed.change(2 * 2048, -52, -1);
    assert_eq!(mixed.longest(50, true), None);
    assert_eq!(mixed.longest(50, false).map(|zone| zone.number), Some(0), "whoever asks for no average gets it");
}
