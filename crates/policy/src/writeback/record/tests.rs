//! Text and back.

use proptest::prelude::*;
use umbrella_units::{BlockNo, FileId, PageIndex, PageKey};

use super::*;
use crate::writeback::tests::script::page;

fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let key = (1u64..4, 0u64..20).prop_map(|(file, index)| page(file, index));
    let event = (key, 0u8..10, 0u64..30, any::<bool>()).prop_map(|(page, kind, number, active)| match kind {
        0 => Event::Rewrite { page },
        1 => Event::Touch { page },
        2 => Event::Activate { page },
        3 => Event::Deactivate { page },
        4 => Event::Clean { page },
        5 => Event::Truncate { file: page.file, from: page.index },
        6 => Event::Delete { file: page.file },
        7 => Event::Remap { page, block: BlockNo(number) },
        8 => Event::Foresee { page, next_write: Nanos(number) },
        _ => Event::Dirty { page, block: BlockNo(page.index.0 + number / 10), active },
    });
    prop::collection::vec((0u64..3, event), 0..60)
}

fn read(text: &str) -> Result<(Vec<RecordEntry>, bool), RecordError> {
    let mut reader = RecordReader::new();
    let mut steps = Vec::new();
    for line in text.lines() {
        reader.line(line, &mut steps)?;
    }
    Ok((steps, reader.is_complete()))
}

fn recorder() -> Recorder {
    Recorder::new(&"zone_segment:alpha=20,zone=1MiB".parse().expect("a policy"))
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(events in events(), answer in prop::collection::vec((0u64..4, 0u64..9, 0u64..9), 0..20)) {
        let mut recorder = recorder();
        let mut steps = Vec::new();
        let mut now = Nanos(0);
        for (later, event) in events {
            now = now + Nanos(later);
            recorder.on(now, &event);
            steps.push(RecordEntry::Event(now, event));
        }
        let pages: Vec<DirtyPage> =
            answer.iter().map(|&(file, index, block)| DirtyPage { page: page(file, index), block: BlockNo(block) }).collect();
        recorder.selected(now, Pages(9), &pages);
        steps.push(RecordEntry::Selected { now, want: Pages(9), pages });
        let taken = recorder.take();
        prop_assert!(taken.ends_with('\n'));
        prop_assert_eq!(read(&(taken + &recorder.finish())), Ok((steps, true)));
    }

    #[test]
    fn any_text_is_read_or_refused(lines in prop::collection::vec("[dwtaicmfxks>] [0-9 a-]{0,40}|end [0-9a-f ]{0,20}|.{0,20}", 0..20)) {
        let text = format!("umbrella-events 1\npolicy cscan\n{}", lines.join("\n"));
        let _ = read(&text);
        let _ = read(&lines.join("\n"));
    }

    #[test]
    fn a_byte_that_changes_is_noticed(events in events(), place in any::<prop::sample::Index>(), by in 1u8..128) {
        let mut recorder = recorder();
        for (at, (_, event)) in events.iter().enumerate() {
            recorder.on(Nanos(at as u64), event);
        }
        let text = recorder.finish();
        let before = read(&text);
        let mut bytes = text.clone().into_bytes();
        let place = place.index(bytes.len());
        bytes[place] ^= by;
        if let Ok(changed) = String::from_utf8(bytes)
            && changed.lines().ne(text.lines())
        {
            let after = read(&changed);
            let ended = matches!(after, Ok((_, true)));
            // The sum itself may be written in another way that means the same.
            prop_assert!(!ended || after == before, "{:?}", changed);
        }
    }
}

#[test]
fn adjacent_pages_are_one_line() {
    let mut recorder = recorder();
    for index in 0..100 {
        let page = PageKey { file: FileId(7), index: PageIndex(index) };
        recorder.on(Nanos(5), &Event::Dirty { page, block: BlockNo(1000 + index), active: false });
    }
    assert_eq!(recorder.finish().lines().nth(2), Some("d 5 7 0 100 1000 -"));
}

#[test]
fn time_that_goes_back_counts_as_the_last() {
    let mut recorder = recorder();
    recorder.on(Nanos(50), &Event::Delete { file: FileId(1) });
    recorder.on(Nanos(20), &Event::Delete { file: FileId(2) });
    let (steps, _) = read(&recorder.finish()).expect("reads");
    assert!(matches!(steps[1], RecordEntry::Event(Nanos(50), Event::Delete { file: FileId(2) })));
}

#[test]
fn a_policy_that_takes_over_knows_all_that_is_dirty() {
    let mut old = crate::writeback::WriteBack::parse("file").expect("a policy");
    for index in 0..50 {
        let at = Nanos::from_millis(index * 3);
        old.on(at, Event::Dirty { page: page(1, index), block: BlockNo(99 - index), active: index % 5 == 0 });
        old.on(at, Event::Rewrite { page: page(1, index) });
    }
    let now = Nanos::from_secs(1);
    let mut new = crate::writeback::WriteBack::parse("zone_segment").expect("a policy");
    for (at, event) in old.state_as_events(now) {
        new.on(at, event);
    }
    assert_eq!(new.index().known(now), old.index().known(now));
    assert_eq!((new.dirty(), new.eligible()), (Pages(50), Pages(40)));
}
