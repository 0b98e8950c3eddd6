use std::sync::Barrier;

use super::*;

/// Answers each request with itself.
struct Echo;

impl Service for Echo {
    type Request = u32;
    type Answer = u32;
    type Progress = ();

    fn carry_out(&self, request: u32, _: &mut dyn FnMut(&()) -> bool) -> Result<u32, String> {
        Ok(request)
    }
}

fn ask(path: &Path) -> String {
    say_to(path, b"7\n")
}

fn say_to(path: &Path, request: &[u8]) -> String {
    let mut client = UnixStream::connect(path).unwrap();
    client.write_all(request).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn of_many_that_start_at_once_over_a_dead_socket_one_is_answered() {
    const STARTED: usize = 8;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    for _ in 0..200 {
        drop(UnixListener::bind(&path).unwrap());
        let begin = Barrier::new(STARTED);
        let bound: Vec<_> = thread::scope(|scope| {
            let start = || {
                begin.wait();
                Listener::bind(&path)
            };
            let threads: Vec<_> = (0..STARTED).map(|_| scope.spawn(start)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let (mut bound, refused): (Vec<_>, Vec<_>) = bound.into_iter().partition(Result::is_ok);
        assert_eq!((bound.len(), refused.len()), (1, STARTED - 1));
        for error in refused {
            assert!(matches!(error, Err(BindError::Answered { pid, .. }) if pid == std::process::id()), "{error:?}");
        }
        let serving = bound.pop().unwrap().unwrap().serve(Echo);
        assert!(ask(&path).contains('7'));
        drop(serving);
        assert!(!path.exists());
    }
}

#[test]
fn what_is_no_request_is_answered_whatever_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let _serving = Listener::bind(&path).unwrap().serve(Echo);
    for request in [&b"\xff\xfe\n"[..], b"\"\xff\"\n", b"\0\n", b"\n", b"seven\n"] {
        let answer = say_to(&path, request);
        assert!(answer.contains("error") && answer.contains("not a request"), "{request:?}: {answer:?}");
    }
}

#[test]
fn the_end_leaves_a_socket_alone_that_took_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let first = Listener::bind(&path).unwrap().serve(Echo);
    let waiting = Listener::bind(&folder.path().join("other")).unwrap();
    for moved in [folder.path().join("moved"), folder.path().join("moved too")] {
        fs::rename(&path, moved).unwrap();
        drop(Listener::bind(&path).unwrap());
        assert!(!path.exists(), "one that nobody answered yet goes, too");
        std::mem::forget(Listener::bind(&path).unwrap());
    }
    drop((first, waiting));
    assert!(path.exists());
    assert!(!folder.path().join("other").exists());
}

#[test]
fn what_is_no_socket_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    fs::write(&path, "mine").unwrap();
    assert!(matches!(Listener::bind(&path), Err(BindError::Io { .. })));
    assert_eq!(fs::read(&path).unwrap(), b"mine");
}

#[test]
fn what_a_client_asked_that_is_gone_is_not_done_and_one_that_only_waits_is_answered() {
    struct Counted(Arc<std::sync::atomic::AtomicU32>);
    impl Service for Counted {
        type Request = u32;
        type Answer = u32;
        type Progress = ();

        fn carry_out(&self, request: u32, _: &mut dyn FnMut(&()) -> bool) -> Result<u32, String> {
            self.0.fetch_add(request, Ordering::Relaxed);
            Ok(request)
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = Listener::bind(&path).unwrap();
    // Nobody answers yet, as when the daemon is stopped.
    let mut gone = UnixStream::connect(&path).unwrap();
    gone.write_all(b"100\n").unwrap();
    drop(gone);
    let mut waits = UnixStream::connect(&path).unwrap();
    waits.write_all(b"7\n").unwrap();
    waits.shutdown(std::net::Shutdown::Write).unwrap();
    let done = Arc::default();
    let serving = listener.serve(Counted(Arc::clone(&done)));
    let mut answer = String::new();
    waits.read_to_string(&mut answer).unwrap();
    assert!(answer.contains('7'), "{answer}");
    // Waits for all who asked.
    drop(serving);
    assert_eq!(done.load(Ordering::Relaxed), 7);
}

#[test]
fn a_client_that_does_not_read_ends_its_work_and_holds_no_thread() {
    struct Talkative(std::sync::mpsc::Sender<bool>);
    impl Service for Talkative {
        type Request = u32;
        type Answer = u32;
        type Progress = Word;

        fn carry_out(&self, request: u32, tell: &mut dyn FnMut(&Word) -> bool) -> Result<u32, String> {
            let word = Word { text: "x".repeat(1 << 16), is_followed: false };
            assert!(tell(&word), "the first fits into the socket");
            let heard = (0..1 << 12).all(|_| tell(&word));
            // Nothing more is said to it, not even if it reads again.
            let _test_is_over = self.0.send(heard || tell(&word));
            Ok(request)
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let (heard, told) = std::sync::mpsc::channel();
    let serving = Listener::bind(&path).unwrap().serve_readers(Talkative(heard), Duration::from_millis(100));
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"7\n").unwrap();
    assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(false));
    let clients = Arc::clone(&serving.clients);
    drop(serving);
    assert_eq!(*clients.number.lock(), 0, "its thread has ended");
    let mut heard = String::new();
    client.read_to_string(&mut heard).unwrap();
    assert!(!heard.contains("done"), "what was cut off has no end");
}

/// A line of a client's: the protocol tags it, which only a struct can be.
#[derive(serde::Serialize)]
struct Word {
    text: String,
    #[serde(skip)]
    is_followed: bool,
}

#[test]
fn what_is_told_together_arrives_with_the_last_of_it_or_when_it_is_much() {
    struct Bundling(std::sync::Mutex<std::sync::mpsc::Receiver<()>>);
    impl Service for Bundling {
        type Request = u32;
        type Answer = u32;
        type Progress = Word;

        fn carry_out(&self, much: u32, tell: &mut dyn FnMut(&Word) -> bool) -> Result<u32, String> {
            let word = |text: &str, is_followed| Word { text: text.repeat(much as usize), is_followed };
            tell(&word("first", true));
            tell(&word("last", much > 1));
            // Until the client has heard it.
            self.0.lock().unwrap().recv().unwrap();
            Ok(much)
        }

        fn is_followed(word: &Word) -> bool {
            word.is_followed
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let (heard, hears) = std::sync::mpsc::channel();
    let _serving = Listener::bind(&path).unwrap().serve(Bundling(std::sync::Mutex::new(hears)));
    for much in [1, 10_000] {
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(format!("{much}\n").as_bytes()).unwrap();
        let mut lines = std::io::BufReader::new(client).lines();
        let mut next = || lines.next().unwrap().unwrap();
        assert!(next().contains("first") && next().contains("last"));
        heard.send(()).unwrap();
        assert!(next().contains(&format!("\"answer\":{much}")));
    }
}
