use std::ffi::OsStr;

use umbrella_fuse::{Errno, NodeId, RequestId};

use super::*;

fn lookup(error: Option<Errno>, found: Option<NodeId>) -> Finished<'static> {
    Finished {
        id: RequestId(8),
        operation: 1,
        node: NodeId(1),
        pid: 77,
        name: Some(OsStr::new("a \"b\"\n")),
        new_name: None,
        since: Instant::now(),
        took: Duration::from_micros(12),
        error,
        found,
    }
}

/// Lines without the time at their beginning, which changes.
fn traced(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
}

#[test]
fn each_request_is_a_line_and_the_last_ones_are_written_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    for round in 1..=2 {
        let trace = RequestTrace::begin(&path).unwrap();
        let observer = trace.observer();
        observer.finished(&lookup(None, Some(NodeId(5))));
        observer.finished(&lookup(None, Some(NodeId(0))));
        observer.finished(&lookup(Some(Errno::ENOENT), None));
        drop(trace);
        assert_eq!(traced(&path).len(), 3 * round, "a trace goes on where another one ended");
    }
    let head = r#"#8 lookup node=1 name="a \"b\"\n" pid=77 handler_us=12.0 result="#;
    let all = ["ok found=5", "ok found=nothing", "ENOENT"].map(|end| format!("{head}{end}"));
    assert_eq!(traced(&path)[..3], all);
}

#[test]
fn a_trace_that_cannot_be_written_ends_and_keeps_nothing() {
    let lines = TraceLog { begun: Instant::now(), waiting: LeafMutex::default(), changed: Condvar::new() };
    lines.finished(&lookup(None, None));
    lines.write_to(File::options().write(true).open("/dev/full").unwrap(), Path::new("/dev/full"));
    assert!(lines.waiting.lock().ended);
    lines.finished(&lookup(None, None));
    assert!(lines.waiting.lock().text.is_empty());
}

#[test]
fn what_waits_for_a_slow_file_is_bounded_and_what_is_left_out_is_counted() {
    let lines = TraceLog { begun: Instant::now(), waiting: LeafMutex::default(), changed: Condvar::new() };
    lines.waiting.lock().text = "x".repeat(MOST_WAITING);
    for _ in 0..3 {
        lines.finished(&lookup(None, None));
    }
    let text = lines.next().unwrap();
    assert!(text[MOST_WAITING..].starts_with("# 3 requests left out"), "{}", &text[MOST_WAITING..]);
    lines.finished(&lookup(None, None));
    assert!(lines.next().unwrap().contains("lookup"));
}

#[test]
fn a_writer_that_hangs_does_not_keep_the_pool_from_ending() {
    let lines = Arc::new(TraceLog { begun: Instant::now(), waiting: LeafMutex::default(), changed: Condvar::new() });
    let (let_go, hangs) = std::sync::mpsc::channel::<()>();
    let writer = thread::spawn(move || {
        let _ = hangs.recv();
    });
    drop(RequestTrace { lines, writer: Some(writer) });
    drop(let_go);
}
