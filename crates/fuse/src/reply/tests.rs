use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use super::*;
use crate::answer::Written;
use crate::tests::Remembering;

fn pending(to: &Arc<Remembering>) -> Pending {
    let to: Arc<dyn Channel> = Arc::<Remembering>::clone(to);
    Pending { id: RequestId(8), to, observed: None }
}

fn answers(to: &Remembering) -> Vec<Result<Vec<u8>, Errno>> {
    to.0.lock()
        .unwrap()
        .drain(..)
        .map(|(id, answer)| {
            assert_eq!(id, RequestId(8));
            answer
        })
        .collect()
}

#[test]
fn a_reply_that_is_dropped_answers_eio_once() {
    let to = Arc::<Remembering>::default();
    drop(Reply::<Written>::new(pending(&to)));
    assert_eq!(answers(&to), [Err(Errno::EIO)]);
}

#[test]
fn a_reply_that_was_sent_answers_no_more() {
    let to = Arc::<Remembering>::default();
    Reply::<Written>::new(pending(&to)).ok(Written(3));
    Reply::<Written>::new(pending(&to)).error(Errno::ENOSPC);
    assert_eq!(answers(&to), [Ok(vec![3, 0, 0, 0, 0, 0, 0, 0]), Err(Errno::ENOSPC)]);
}

#[test]
fn a_reply_goes_from_another_thread_too() {
    let to = Arc::<Remembering>::default();
    let reply = Reply::<()>::new(pending(&to));
    std::thread::spawn(move || reply.ok(())).join().unwrap();
    assert_eq!(answers(&to), [Ok(vec![])]);
}

#[test]
fn a_panic_while_data_is_written_answers_eio() {
    let to = Arc::<Remembering>::default();
    let reply = Reply::<Data>::new(pending(&to));
    let panicked = catch_unwind(AssertUnwindSafe(|| reply.fill(10, |_| panic!("as it was asked for"))));
    assert!(panicked.is_err());
    assert_eq!(answers(&to), [Err(Errno::EIO)]);
}

#[test]
fn data_longer_than_its_buffer_is_cut() {
    let to = Arc::<Remembering>::default();
    Reply::<Data>::new(pending(&to)).fill(4, |buffer| {
        buffer.copy_from_slice(b"1234");
        Ok(usize::MAX)
    });
    assert_eq!(answers(&to), [Ok(b"1234".to_vec())]);
}

#[test]
fn an_extended_attribute_is_answered_as_it_was_asked_for() {
    let to = Arc::<Remembering>::default();
    for room in [0, 2, 3, 100] {
        Reply::<Xattr>::new(pending(&to)).value(room, b"abc");
    }
    let size = vec![3, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(answers(&to), [Ok(size), Err(Errno::ERANGE), Ok(b"abc".to_vec()), Ok(b"abc".to_vec())]);
}

#[derive(Default)]
struct Seen(Mutex<Vec<Option<Errno>>>);

impl Observer for Seen {
    fn finished(&self, request: &Finished<'_>) {
        self.0.lock().unwrap().push(request.error);
    }
}

#[test]
fn an_observer_sees_every_end_once() {
    let (to, seen) = (Arc::<Remembering>::default(), Arc::<Seen>::default());
    let observed = || {
        let observer: Arc<dyn Observer> = Arc::<Seen>::clone(&seen);
        let observed =
            Observed { observer, since: Instant::now(), operation: 15, node: NodeId(2), pid: 3, names: [None, None] };
        Pending { observed: Some(Box::new(observed)), ..pending(&to) }
    };
    Reply::<()>::new(observed()).ok(());
    Reply::<()>::new(observed()).error(Errno::EPERM);
    drop(Reply::<()>::new(observed()));
    Reply::<Data>::new(observed()).fill(1, |_| Err(Errno::EISDIR));
    Reply::<Data>::new(observed()).fill(1, |_| Ok(1));
    observed().done();
    let all = [None, Some(Errno::EPERM), Some(Errno::EIO), Some(Errno::EISDIR), None, None];
    assert_eq!(*seen.0.lock().unwrap(), all);
}

struct Panics;

impl Observer for Panics {
    fn finished(&self, _request: &Finished<'_>) {
        panic!("as it was asked for");
    }
}

#[test]
fn an_observer_that_panics_harms_neither_the_answer_nor_who_answers() {
    let to = Arc::<Remembering>::default();
    let observed = || {
        let observer: Arc<dyn Observer> = Arc::new(Panics);
        let observed =
            Observed { observer, since: Instant::now(), operation: 15, node: NodeId(2), pid: 3, names: [None, None] };
        Pending { observed: Some(Box::new(observed)), ..pending(&to) }
    };
    Reply::<()>::new(observed()).ok(());
    let handler = catch_unwind(AssertUnwindSafe(|| {
        let _reply = Reply::<()>::new(observed());
        panic!("in a handler");
    }));
    assert!(handler.is_err());
    assert_eq!(answers(&to), [Ok(vec![]), Err(Errno::EIO)]);
}
