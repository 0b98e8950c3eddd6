//! How a server stops.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use umbrella_block::serve::nbd::{Export, Limits};
use umbrella_units::ByteSize;

use super::client::{Client, WRITE};
use super::devices::{ScriptedMemory, Served};

#[test]
fn a_stop_finishes_what_is_under_way_and_flushes() {
    let scripted = Arc::new(ScriptedMemory::new(ByteSize(1 << 20)));
    let limits = Limits { grace: std::time::Duration::from_secs(600), ..Limits::default() };
    let served = Served::new(vec![Export::new("", Arc::clone(&scripted) as _)], limits);
    let mut client = Client::transmitting(&served.socket(), "");
    let mut idle = Client::transmitting(&served.socket(), "");
    scripted.hold_writes(true);
    for place in 0..3 {
        client.request(WRITE, place * 4096, 4096);
        client.send(&[7; 4096]).expect("it listens");
    }
    scripted.wait_for_writes(3);
    let socket = served.socket();
    let stopping = std::thread::spawn(move || served.server.stop());
    assert!(idle.until_closed().is_empty(), "who asks for nothing is let go");
    while socket.exists() {
        std::thread::yield_now();
    }
    scripted.hold_writes(false);
    for _ in 0..3 {
        assert_eq!(client.error(), 0, "what was under way is answered");
    }
    assert!(client.until_closed().is_empty());
    stopping.join().expect("no panic").expect("the flush works");
    assert_eq!(scripted.flushes.load(Ordering::Relaxed), 1);
    assert!(scripted.memory.to_bytes()[..3 * 4096].iter().all(|byte| *byte == 7));
}

#[test]
fn a_stop_flushes_all_exports_and_tells_of_the_one_that_fails() {
    let scripted = [Arc::new(ScriptedMemory::new(ByteSize(4096))), Arc::new(ScriptedMemory::new(ByteSize(4096)))];
    scripted[0].fails_flushes.store(true, Ordering::Relaxed);
    let exports =
        vec![Export::new("bad", Arc::clone(&scripted[0]) as _), Export::new("good", Arc::clone(&scripted[1]) as _)];
    let served = Served::new(exports, Limits::default());
    let error = served.server.stop().expect_err("one cannot be flushed");
    assert!(error.to_string().contains("\"bad\""), "{error}");
    assert_eq!(scripted[1].flushes.load(Ordering::Relaxed), 1);
}

#[test]
fn a_stop_does_not_wait_for_a_client_that_takes_no_answers() {
    let scripted = Arc::new(ScriptedMemory::new(ByteSize(64 << 20)));
    let limits = Limits { grace: std::time::Duration::from_millis(100), ..Limits::default() };
    let served = Served::new(vec![Export::new("", Arc::clone(&scripted) as _)], limits);
    let mut client = Client::transmitting(&served.socket(), "");
    for _ in 0..4 {
        client.request(super::client::READ, 0, 32 << 20);
    }
    // The first answer has begun.
    client.take(16).expect("an answer");
    served.server.stop().expect("the flush works");
}
