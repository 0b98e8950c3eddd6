//! Recorded runs, decided again.

use proptest::prelude::*;
use umbrella_lab::events::{EventsError, replay};
use umbrella_policy::writeback::record::Recorder;
use umbrella_policy::writeback::{DirtyPage, Event, Spec, WriteBack, policies};
use umbrella_units::{BlockNo, FileId, Nanos, PageIndex, PageKey, Pages};

/// What a generated run does: a kind and two numbers that choose the pages.
type Act = (u8, u64, u64);

/// Plays a run and records it, as a flusher does.
fn record(policy: &str, acts: &[Act]) -> (String, Vec<Vec<DirtyPage>>) {
    let spec: Spec = policy.parse().expect("a policy");
    let mut live = WriteBack::parse(policy).expect("a policy");
    let mut recorder = Recorder::new(&spec);
    let mut answers = Vec::new();
    for (at, &(kind, a, b)) in acts.iter().enumerate() {
        let now = Nanos::from_millis(7 * (at as u64 / 3));
        let file = FileId(a % 7 + 1);
        let page = |index: u64| PageKey { file, index: PageIndex(index) };
        if kind == 0 {
            let mut answer = Vec::new();
            live.select(now, Pages(b % 20), &mut answer);
            recorder.selected(now, Pages(b % 20), &answer);
            answers.push(answer);
            continue;
        }
        for index in b..=b + a % 9 {
            let event = match kind {
                1 => Event::Touch { page: page(index) },
                2 => Event::Activate { page: page(index) },
                3 => Event::Deactivate { page: page(index) },
                4 => Event::Clean { page: page(index) },
                5 => Event::Truncate { file, from: PageIndex(index) },
                6 => Event::Delete { file },
                7 => Event::Remap { page: page(index), block: BlockNo(index * 3) },
                _ => Event::Dirty { page: page(index), block: BlockNo(file.0 * 5000 + index), active: a % 3 == 0 },
            };
            live.on(now, event);
            recorder.on(now, &event);
        }
    }
    (recorder.finish(), answers)
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    prop::collection::vec((0u8..14, 0u64..1000, 0u64..3000), 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_policy_decides_again_what_it_decided(acts in acts()) {
        for info in policies().iter().filter(|info| !info.offline) {
            let (text, answers) = record(info.name, &acts);
            let replayed = replay(text.as_bytes(), None).unwrap_or_else(|error| panic!("{}: {error}", info.name));
            prop_assert!(replayed.complete);
            prop_assert_eq!(&replayed.recorded, &replayed.chosen);
            prop_assert_eq!(replayed.recorded.pages as usize, answers.iter().map(Vec::len).sum::<usize>());
        }
    }

    #[test]
    fn another_policy_writes_no_more_than_is_dirty(acts in acts()) {
        let (text, _) = record("zone_segment:alpha=3,zone=1MiB", &acts);
        let replayed = replay(text.as_bytes(), Some("cscan")).expect("replays");
        prop_assert_eq!(replayed.recorded.selections, replayed.chosen.selections);
        prop_assert!(replayed.chosen.pages + replayed.left <= replayed.events);
        prop_assert!(replayed.chosen.runs <= replayed.chosen.pages);
    }

    #[test]
    fn a_record_that_is_cut_anywhere_is_replayed_as_far_as_it_goes(acts in acts(), cut in 0.0f64..1.0) {
        let (text, _) = record("sweep", &acts);
        let cut = (text.len() as f64 * cut) as usize;
        match replay(&text.as_bytes()[..cut], None) {
            Ok(replayed) => prop_assert!(!replayed.complete),
            Err(error) => prop_assert!(matches!(error, EventsError::Empty), "{}", error),
        }
    }
}

const RUN: &str = "umbrella-events 1\npolicy cscan\nd 0 1 0 4 100 -\nd 5 2 0 2 50 -\n";

#[test]
fn a_decision_that_differs_is_an_error_that_names_the_first() {
    let wrong = format!("{RUN}s 1 2 1\n> 2 0 2 50\ns 1 2 1\n> 1 0 1 100\n");
    let error = replay(wrong.as_bytes(), None).expect_err("one page was left out");
    assert!(matches!(error, EventsError::Differs { number: 2, place: 2, recorded: None, .. }), "{error}");
    assert!(
        error.to_string().starts_with(
            "selection 2 at 0.000000 s: page 2 of the answer was none, and is now page 1 of file 1 at block 101"
        ),
        "{error}"
    );
}

#[test]
fn runs_and_the_way_between_them_are_counted() {
    let right = format!("{RUN}s 1 6 2\n> 2 0 2 50\n> 1 0 4 100\n");
    let replayed = replay(right.as_bytes(), None).expect("replays");
    let recorded = &replayed.recorded;
    assert_eq!((recorded.pages, recorded.runs, recorded.distance), (6, 2, 48));
    assert!(!replayed.complete && replayed.left == 0);
}

#[test]
fn another_policy_may_write_as_much_as_was_written_not_as_was_asked_for() {
    // The flusher asks for more than there is room for in flight, and takes what it can.
    let record = "umbrella-events 1\npolicy cscan\nd 0 1 0 4 100 -\nd 5 2 0 2 50 -\ns 1 60 1\n> 2 0 2 50\ns 2 60 1\n> 1 0 3 100\n";
    let replayed = replay(record.as_bytes(), Some("file")).expect("replays");
    assert_eq!((replayed.recorded.pages, replayed.chosen.pages, replayed.left), (5, 5, 1));
}

#[test]
fn what_is_no_record_is_refused() {
    for (text, why) in [
        ("", "the record ends before it names a policy"),
        ("hello\n", "line 1: not a record of write-back events"),
        ("umbrella-events 2\n", "line 1: unknown version 2 of the format"),
        ("umbrella-events 1\npolicy nonsense\n", "there is no policy \"nonsense\""),
        ("umbrella-events 1\npolicy cscan\nd 1 2 3\n", "line 3: \"d 1 2 3\" is not an event"),
        ("umbrella-events 1\npolicy cscan\nd 1 2 3 99999999999 5 -\n", "line 3: 99999999999 pages"),
        ("umbrella-events 1\npolicy cscan\nk 1 2\nend 3 0\n", "line 4: the record was changed or damaged"),
        (
            "umbrella-events 1\npolicy cscan\nd 0 1 0 1 7 -\ns 1 9 1\n> 1 0 1 8\n",
            "selection 1 at 0.000000 s: page 1 of the answer was page 0 of file 1 at block 8, and is now page 0 of file 1 at block 7",
        ),
        (
            "umbrella-events 1\npolicy cscan\nd 0 1 0 1 7 -\ns 1 9 1\n> 1 0 1 8\nend 5 0\n",
            "line 6: the record was changed or damaged",
        ),
        (
            "umbrella-events 1\npolicy cscan\nend 7 0\n",
            "line 3: the record has 2 lines before its end, but 7 were written",
        ),
    ] {
        let error = replay(text.as_bytes(), None).expect_err(text).to_string();
        assert!(error.starts_with(why), "{error}");
    }
    let long = format!("umbrella-events 1\npolicy {}\n", "x".repeat(5000));
    assert!(matches!(replay(long.as_bytes(), None), Err(EventsError::LongLine { line: 2 })));
}

#[test]
fn a_record_of_blocks_at_the_end_of_the_world_is_read_without_a_panic() {
    let text = "umbrella-events 1\npolicy file\ns 1 0 1\n> 1 0 2 18446744073709551615\n";
    assert!(replay(text.as_bytes(), None).is_err());
    let far = "s 1 1 3\n> 1 0 1 0\n> 1 1 1 18446744073709551615\n> 1 2 1 0\n";
    let text = format!("umbrella-events 1\npolicy file\n{far}");
    assert!(replay(text.as_bytes(), Some("cscan")).is_ok_and(|replayed| replayed.recorded.distance == u64::MAX));
}

#[test]
fn a_short_record_cannot_take_all_memory() {
    let lines = (1..1000).map(|file| format!("d 0 {file} 0 65536 0\n"));
    let text: String = std::iter::once("umbrella-events 1\npolicy file\n".to_owned()).chain(lines).collect();
    let refused = replay(text.as_bytes(), None);
    assert!(refused.is_err(), "it is refused before it is read to its end");
    let answer = "> 1 0 65536 0\n".repeat(3000);
    let text = format!("umbrella-events 1\npolicy file\ns 1 1 3000\n{answer}");
    let refused = replay(text.as_bytes(), None).expect_err("too much for one answer").to_string();
    assert!(refused.contains("line 68: an answer of more than"), "{refused}");
}

#[test]
fn a_policy_that_needs_the_future_is_refused() {
    for policy in ["clairvoyant", "write_minimal:window=1s"] {
        let error = replay(RUN.as_bytes(), Some(policy)).expect_err(policy);
        assert!(matches!(error, EventsError::Offline(_)), "{error}");
    }
}
