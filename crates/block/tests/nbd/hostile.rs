//! Clients that break the rules, stop in the middle, or are too many. Whatever they do, others are served.

use std::sync::Arc;
use std::time::Duration;

use umbrella_block::memory::Memory;
use umbrella_block::serve::nbd::{Export, Limits};
use umbrella_units::ByteSize;

use super::client::{Client, DISCONNECT, FLUSH, READ, WRITE, option, request};
use super::devices::{ScriptedMemory, Served};

const SIZE: ByteSize = ByteSize(64 << 20);
const LONG: Duration = Duration::from_secs(600);
/// Limits that a test can wait for, and one of them that it must not run into on a machine that does much else.
const SHORT: Limits = Limits {
    connections: 8,
    memory: ByteSize(64 << 20),
    handshake: LONG,
    pause: Duration::from_millis(200),
    grace: Duration::from_millis(200),
};
const EINVAL: u32 = 22;

/// One export that answers at once, and one whose calls are handed to several threads.
fn served(limits: Limits) -> Served {
    let exports = vec![
        Export::new("memory", Arc::new(Memory::new(SIZE))),
        Export::new("scripted", Arc::new(ScriptedMemory::new(SIZE))),
    ];
    Served::new(exports, limits)
}

fn assert_serves(served: &Served) {
    for export in ["memory", "scripted"] {
        // A client of ours that stood still for longer than the limits allow is let go like any other.
        let answered = (0..50).find_map(|_| one_block(served, export).ok());
        let mut client = answered.unwrap_or_else(|| panic!("{export} is not served"));
        let _ = client.send(&request(0, DISCONNECT, 0, 0));
        assert!(client.until_closed().is_empty());
    }
}

/// A client that has read one block.
fn one_block(served: &Served, export: &str) -> std::io::Result<Client> {
    let mut client = Client::connect(&served.socket());
    client.take(18)?;
    client.send(&[&3_u32.to_be_bytes()[..], &option(1, export.as_bytes())].concat())?;
    client.take(10)?;
    client.send(&request(0, READ, 0, 512))?;
    assert_eq!(client.take(16)?[4..8], [0; 4], "no error");
    client.take(512)?;
    Ok(client)
}

#[test]
fn a_client_that_is_slow_to_negotiate_is_let_go() {
    let served = served(Limits { handshake: Duration::from_millis(200), pause: LONG, ..SHORT });
    Client::connect(&served.socket()).until_closed();
    let mut half = Client::connect(&served.socket());
    let _ = half.send(b"\0\0\0\x03IHAVE");
    half.until_closed();
    // Each byte in time, all of them not.
    let mut drip = Client::connect(&served.socket());
    let _ = drip.send(b"\0\0\0\x03IHAVEOPT\0\0\0\x07\0\0\x10\0");
    while drip.send(b"\0").is_ok() {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_serves(&served);
}

#[test]
fn wrong_magic_numbers_and_flags_end_the_connection() {
    let served = served(Limits::default());
    let mut flags = Client::connect(&served.socket());
    flags.send(&u32::MAX.to_be_bytes()).expect("it listens");
    assert_eq!(flags.until_closed().len(), 18, "nothing but the greeting");
    let mut option = Client::greeted(&served.socket());
    option.send(&[0x55; 64]).expect("it listens");
    assert!(option.until_closed().is_empty());
    for export in ["memory", "scripted"] {
        let mut magic = Client::transmitting(&served.socket(), export);
        magic.send(&[0x55; 64]).expect("it listens");
        assert!(magic.until_closed().is_empty());
    }
    assert_serves(&served);
}

#[test]
fn an_option_of_four_gibibytes_is_refused_unread() {
    let served = served(Limits::default());
    let mut client = Client::greeted(&served.socket());
    client.send(b"IHAVEOPT\x00\x00\x00\x07\xff\xff\xff\xff").expect("it listens");
    let answer = client.until_closed();
    assert_eq!(answer[12..16], 0x8000_0009_u32.to_be_bytes(), "too big");
    assert_serves(&served);
}

#[test]
fn a_read_that_is_too_long_is_refused_and_a_write_ends_the_connection() {
    let served = served(Limits::default());
    for export in ["memory", "scripted"] {
        let mut client = Client::transmitting(&served.socket(), export);
        for length in [u32::MAX, (32 << 20) + 512] {
            client.request(READ, 0, length);
            assert_eq!(client.error(), EINVAL);
        }
        client.request(READ, 0, 32 << 20);
        assert_eq!(client.error(), 0);
        client.take(32 << 20).expect("data");
        client.request(WRITE, 0, u32::MAX);
        assert!(client.until_closed().is_empty());
    }
    assert_serves(&served);
}

#[test]
fn commands_that_nobody_knows_are_refused_and_the_next_is_served() {
    let served = served(Limits::default());
    for export in ["memory", "scripted"] {
        let mut client = Client::transmitting(&served.socket(), export);
        for command in [4_u16, 8, 999, u16::MAX] {
            client.request(command, 512, u32::MAX);
            assert_eq!(client.error(), EINVAL, "command {command}");
        }
        client.request(FLUSH, 1, 1);
        assert_eq!(client.error(), EINVAL, "a flush has no place");
        client.request(FLUSH, 0, 0);
        assert_eq!(client.error(), 0);
    }
}

#[test]
fn the_data_of_a_refused_write_are_not_taken_for_requests() {
    let served = served(Limits::default());
    for export in ["memory", "scripted"] {
        let mut client = Client::transmitting(&served.socket(), export);
        for length in [512_usize, 512 << 10, 4 << 20] {
            let inner = request(0, WRITE, 0, 512);
            let data: Vec<u8> = inner.iter().copied().cycle().take(length).collect();
            client.send(&request(0x8000, WRITE, 0, length as u32)).expect("it listens");
            client.send(&data).expect("it listens");
            assert_eq!(client.error(), EINVAL);
        }
        client.request(READ, 0, 512);
        assert_eq!(client.error(), 0);
        assert_eq!(client.take(512).expect("data"), [0; 512], "nothing was written");
    }
}

#[test]
fn a_client_that_stops_in_the_middle_of_a_write_is_let_go() {
    let served = served(SHORT);
    for export in ["memory", "scripted"] {
        for (length, sent) in [(4096, 100), (4096, 0), (8 << 20, 1 << 20)] {
            let mut client = Client::transmitting(&served.socket(), export);
            client.request(WRITE, 0, length);
            // It may have been let go already.
            let _ = client.send(&vec![1; sent]);
            assert!(client.until_closed().is_empty());
        }
        let mut client = Client::transmitting(&served.socket(), export);
        client.send(&request(0, WRITE, 0, 512)[..13]).expect("it listens");
        client.until_closed();
        let mut client = Client::transmitting(&served.socket(), export);
        client.request(READ, 0, 4096);
        assert_eq!(client.error(), 0);
        assert_eq!(client.take(4096).expect("data"), [0; 4096], "half a write is none");
    }
    assert_serves(&served);
}

#[test]
fn clients_that_stop_in_the_middle_do_not_keep_the_memory() {
    // Room for two of the largest transfers, wanted by four clients who do not continue.
    let served = served(SHORT);
    let mut stuck: Vec<_> = (0..4).map(|_| Client::transmitting(&served.socket(), "scripted")).collect();
    for client in &mut stuck {
        client.request(WRITE, 0, 32 << 20);
    }
    // A client of ours that stands still while it takes its data is let go like any other.
    let served_one = || {
        let mut client = Client::transmitting(&served.socket(), "scripted");
        client.request(READ, 0, 32 << 20);
        client.take(16 + (32 << 20)).is_ok_and(|answer| answer[4..8] == [0; 4])
    };
    assert!((0..50).any(|_| served_one()), "it is served in the end");
    for mut client in stuck {
        client.until_closed();
    }
}

#[test]
fn clients_that_drip_or_take_no_answers_do_not_hold_up_others() {
    for greedy in [(WRITE, "drips"), (READ, "takes no answers")] {
        let served = served(Limits { pause: LONG, ..Limits::default() });
        let mut clients: Vec<_> = (0..20).map(|_| Client::transmitting(&served.socket(), "scripted")).collect();
        for client in &mut clients {
            for _ in 0..4 {
                client.request(greedy.0, 0, 32 << 20);
            }
        }
        let mut other = Client::transmitting(&served.socket(), "scripted");
        for _ in 0..20 {
            for client in clients.iter_mut().filter(|_| greedy.0 == WRITE) {
                client.send(&[1; 16]).expect("it listens");
            }
            other.request(READ, 0, 1 << 20);
            assert_eq!(other.take(16).unwrap_or_else(|error| panic!("one {}: {error}", greedy.1))[4..8], [0; 4]);
            other.take(1 << 20).expect("data");
            other.request(WRITE, 0, 1 << 20);
            other.send(&vec![2; 1 << 20]).expect("it listens");
            assert_eq!(other.error(), 0);
        }
        for client in clients {
            client.0.shutdown(std::net::Shutdown::Both).expect("a socket");
        }
    }
}

#[test]
fn a_client_that_takes_no_answers_is_let_go() {
    let served = served(SHORT);
    for export in ["memory", "scripted"] {
        let mut client = Client::transmitting(&served.socket(), export);
        // Until nothing more fits, or the server has closed it.
        client.0.set_write_timeout(Some(Duration::from_secs(2))).expect("a socket");
        while client.send(&request(0, READ, 0, 32 << 20)).is_ok() {}
        assert_serves(&served);
    }
    served.server.stop().expect("nobody holds it up");
}

#[test]
fn a_client_that_closes_in_the_middle_of_everything_harms_nobody() {
    let served = served(Limits::default());
    for export in ["memory", "scripted"] {
        for cut in [1, 27, 28, 29, 28 + 4096, 28 + 4096 + 28] {
            let mut client = Client::transmitting(&served.socket(), export);
            let bytes = [request(0, WRITE, 0, 4096), vec![7; 4096], request(0, READ, 0, 1 << 20)].concat();
            client.send(&bytes[..cut]).expect("it listens");
        }
    }
    assert_serves(&served);
}

#[test]
fn a_hundred_connections_are_as_many_as_allowed() {
    let served = served(Limits { connections: 60, handshake: LONG, ..Limits::default() });
    let mut clients: Vec<_> = (0..100).map(|_| Client::connect(&served.socket())).collect();
    let greeted = clients.iter_mut().filter_map(|client| client.take(18).ok()).count();
    assert_eq!(greeted, 60);
    let stats = served.server.stats();
    assert_eq!((stats.connections, stats.turned_away), (60, 40));
    clients.clear();
    while served.server.stats().connections > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_serves(&served);
}

#[test]
fn a_silent_client_keeps_its_connection() {
    let served = served(SHORT);
    let mut client = Client::transmitting(&served.socket(), "scripted");
    std::thread::sleep(SHORT.pause * 3);
    client.request(READ, 0, 512);
    assert_eq!(client.error(), 0);
}
