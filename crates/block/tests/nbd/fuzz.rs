//! Sessions that are almost right, and garbage: the server never panics, never hangs, and serves the next client.
//!
//! UMBRELLA_FUZZ_SECONDS says for how long (default 10), UMBRELLA_FUZZ_SEED repeats a run.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use umbrella_block::file::{FileDevice, OpenOptions};
use umbrella_block::memory::Memory;
use umbrella_block::serve::nbd::{Address, Export, Exports, Limits, Server};
use umbrella_units::ByteSize;

use super::client::{option, request};
use super::devices::Told;

const SIZE: u64 = 1 << 20;
const NAMES: [&str; 5] = ["memory", "told", "file", "", "no such"];

/// Threads that panicked, of all tests of this program.
static PANICS: AtomicU64 = AtomicU64::new(0);

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

fn named(name: &str, rest: &[u8]) -> Vec<u8> {
    [&(name.len() as u32).to_be_bytes(), name.as_bytes(), rest].concat()
}

fn an_option(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let name = *NAMES.choose(rng).expect("not empty");
    let contexts = [&1_u32.to_be_bytes()[..], &named("base:allocation", b"")].concat();
    match rng.random_range(0..12) {
        0 => option(3, b""),
        1 => option(5, b""),
        2 => option(6, &named(name, b"\x00\x02\x00\x01\x00\x03")),
        3 | 4 => option(8, b""),
        5 => option(9, &named(name, &contexts)),
        6 | 7 => option(10, &named(name, &contexts)),
        8 if rng.random_ratio(1, 8) => option(2, b""),
        9 => option(rng.random(), &garbage(rng, 100)),
        10 => option(7, &garbage(rng, 5000)),
        _ => option(11, b""),
    }
}

fn a_request(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let right = rng.random_ratio(2, 3);
    let command = if right || rng.random_ratio(9, 10) { rng.random_range(0..8) } else { rng.random() };
    let (flags, offset, length) = match command {
        3 if right => (0, 0, 0),
        _ if right => (0, rng.random_range(0..SIZE / 1024) * 512, 512 * rng.random_range(0..200)),
        _ => (rng.random::<u16>() & 0x3f, a_number(rng), a_number(rng) as u32),
    };
    let mut bytes = request(flags, command, offset, length);
    if command == 1 {
        bytes.resize(bytes.len() + length.min(2 << 20) as usize, 7);
    }
    // A good-bye only now and then.
    if command == 2 && rng.random_ratio(9, 10) { Vec::new() } else { bytes }
}

fn a_number(rng: &mut ChaCha8Rng) -> u64 {
    match rng.random_range(0..4) {
        0 => rng.random(),
        1 => rng.random_range(0..2 * SIZE),
        _ => 512 * rng.random_range(0..SIZE / 512),
    }
}

fn garbage(rng: &mut ChaCha8Rng, most: usize) -> Vec<u8> {
    let length = rng.random_range(0..=most);
    (0..length).map(|_| rng.random()).collect()
}

/// All that one client sends.
fn session(rng: &mut ChaCha8Rng) -> Vec<u8> {
    if rng.random_ratio(1, 20) {
        return garbage(rng, 2000);
    }
    let flags = if rng.random_ratio(9, 10) { 3_u32 } else { rng.random_range(0..5) };
    let mut bytes = flags.to_be_bytes().to_vec();
    for _ in 0..rng.random_range(0..4) {
        bytes.extend(an_option(rng));
    }
    let name = *NAMES.choose(rng).expect("not empty");
    bytes.extend(if rng.random() { option(7, &named(name, b"\x00\x00")) } else { option(1, name.as_bytes()) });
    for _ in 0..rng.random_range(0..30) {
        bytes.extend(a_request(rng));
    }
    if rng.random_ratio(1, 3) {
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(0..bytes.len());
            match rng.random_range(0..3) {
                0 => bytes[at] = rng.random(),
                1 => bytes.truncate(at.max(1)),
                _ => drop(bytes.splice(at..at, garbage(rng, 40))),
            }
        }
    }
    bytes
}

/// Sends all of it, and takes whatever comes until the server has closed the connection.
fn talk(server: &Server, bytes: &[u8]) {
    let (mut client, served) = UnixStream::pair().expect("sockets");
    client.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    client.set_write_timeout(Some(Duration::from_secs(60))).expect("a socket");
    server.take_in(OwnedFd::from(served));
    let mut answers = client.try_clone().expect("a socket");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            loop {
                match answers.read(&mut buffer) {
                    Ok(0) => return,
                    Ok(_) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
                    Err(error) => panic!("the server neither answers nor closes: {error}"),
                }
            }
        });
        // The server may close it at any point.
        let _ = client.write_all(bytes);
        let _ = client.shutdown(Shutdown::Write);
    });
}

#[test]
fn almost_right_sessions_never_break_the_server() {
    let seed = setting("UMBRELLA_FUZZ_SEED").unwrap_or_else(rand::random);
    let seconds = setting("UMBRELLA_FUZZ_SECONDS").unwrap_or(10);
    println!("UMBRELLA_FUZZ_SEED={seed}");
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().name().is_some_and(|name| name.starts_with("nbd")) {
            PANICS.fetch_add(1, Ordering::Relaxed);
        }
        hook(panic);
    }));
    let image = tempfile::NamedTempFile::new().expect("a file");
    image.as_file().set_len(SIZE).expect("it grows");
    let file = Arc::new(FileDevice::open(image.path(), OpenOptions::default()).expect("a device"));
    let size = ByteSize(SIZE);
    let exports = vec![
        Export::new("memory", Arc::new(Memory::new(size))),
        Export::new("told", Arc::new(Told::new(size))),
        Export::of_file("file", file),
    ];
    let folder = tempfile::tempdir().expect("a folder");
    let address = Address::Unix(folder.path().join("nbd"));
    let limits = Limits { pause: Duration::from_secs(5), ..Limits::default() };
    let server = Server::start(Exports::new(exports).expect("they differ"), &[address], limits).expect("it starts");

    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (begun, mut sessions) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(seconds) {
        talk(&server, &session(&mut rng));
        sessions += 1;
        assert_eq!(PANICS.load(Ordering::Relaxed), 0, "after {sessions} sessions of seed {seed}");
    }
    println!("{sessions} sessions, {:?}", server.stats());
    let mut client = super::client::Client::transmitting(&folder.path().join("nbd"), "file");
    client.request(super::client::READ, 0, 4096);
    assert_eq!(client.error(), 0, "it serves the next client");
    drop(client);
    server.stop().expect("the flush works");
}
