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
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use umbrella_block::file::{FileDevice, OpenOptions};
use umbrella_block::memory::Memory;
use umbrella_block::serve::nbd::{Address, Export, Exports, Limits, Server};
use umbrella_units::ByteSize;

use super::client::{option, request};
use super::devices::ScriptedMemory;
use super::tls::Certificates;

const SIZE: u64 = 1 << 20;
const NAMES: [&str; 5] = ["memory", "scripted", "file", "", "no such"];

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
        spoil(rng, &mut bytes);
    }
    bytes
}

/// Changes, cuts off or adds something, a few times.
fn spoil(rng: &mut ChaCha8Rng, bytes: &mut Vec<u8>) {
    for _ in 0..rng.random_range(1..4) {
        let at = rng.random_range(0..bytes.len());
        match rng.random_range(0..3) {
            0 => bytes[at] = rng.random(),
            1 => bytes.truncate(at.max(1)),
            _ => drop(bytes.splice(at..at, garbage(rng, 40))),
        }
    }
}

fn connected(server: &Server) -> UnixStream {
    let (client, served) = UnixStream::pair().expect("sockets");
    client.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    client.set_write_timeout(Some(Duration::from_secs(60))).expect("a socket");
    server.serve_client(OwnedFd::from(served));
    client
}

/// Sends all of it, and takes whatever comes until the server has closed the connection.
fn talk(mut client: UnixStream, bytes: &[u8]) {
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

/// What one client sends after STARTTLS, if it got there; whether it encrypted.
fn talk_over_tls(rng: &mut ChaCha8Rng, server: &Server, trusting: &Arc<ClientConfig>) -> bool {
    let mut client = connected(server);
    let mut clear = 3_u32.to_be_bytes().to_vec();
    for _ in 0..rng.random_range(0..3) {
        // What is answered in one piece, and leaves the server with options.
        clear.extend(if rng.random() { option(3, b"") } else { option(8, b"") });
    }
    clear.extend(option(START_TLS, b""));
    if rng.random_ratio(1, 20) {
        clear.extend(garbage(rng, 200));
    }
    let _ = client.write_all(&clear);
    if !may_encrypt(&mut client) {
        talk(client, b"");
        return false;
    }
    let name = ServerName::try_from("localhost").expect("a name");
    let mut tls = ClientConnection::new(Arc::clone(trusting), name).expect("it can be begun");
    if rng.random_ratio(1, 6) {
        let mut hello = if rng.random() { garbage(rng, 2000) } else { encrypted(&mut tls) };
        if !hello.is_empty() {
            spoil(rng, &mut hello);
        }
        talk(client, &hello);
        return false;
    }
    while tls.is_handshaking() {
        if tls.complete_io(&mut client).is_err() {
            // Something was sent in the clear behind STARTTLS.
            talk(client, b"");
            return false;
        }
    }
    tls.set_buffer_limit(None);
    // The flags were sent in the clear.
    tls.writer().write_all(session(rng).get(4..).unwrap_or_default()).expect("memory");
    if rng.random() {
        tls.send_close_notify();
    }
    let mut bytes = encrypted(&mut tls);
    if !bytes.is_empty() && rng.random_ratio(1, 3) {
        spoil(rng, &mut bytes);
    }
    talk(client, &bytes);
    true
}

const START_TLS: u32 = 5;

/// Takes the greeting and all answers up to that to STARTTLS: whether it is yes.
fn may_encrypt(client: &mut UnixStream) -> bool {
    if client.read_exact(&mut [0; 18]).is_err() {
        return false;
    }
    let mut answer = || {
        let mut front = [0; 20];
        client.read_exact(&mut front).ok()?;
        let number = |at: usize| u32::from_be_bytes(front[at..at + 4].try_into().expect("four bytes"));
        client.read_exact(&mut vec![0; number(16) as usize]).ok()?;
        Some((number(8), number(12)))
    };
    loop {
        match answer() {
            Some((START_TLS, kind)) => return kind == 1,
            Some(_) => {}
            None => return false,
        }
    }
}

fn encrypted(tls: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut bytes).expect("memory");
    }
    bytes
}

/// A server of devices of each kind.
struct Prey {
    server: Server,
    folder: tempfile::TempDir,
}

impl Prey {
    fn new(over: impl FnOnce(Exports) -> Exports) -> Prey {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().name().is_some_and(|name| name.starts_with("nbd")) {
                PANICS.fetch_add(1, Ordering::Relaxed);
            }
            hook(panic);
        }));
        let folder = tempfile::tempdir().expect("a folder");
        let image = folder.path().join("image");
        std::fs::write(&image, vec![0; SIZE as usize]).expect("a file");
        let file = Arc::new(FileDevice::open(&image, OpenOptions::default()).expect("a device"));
        let size = ByteSize(SIZE);
        let exports = vec![
            Export::new("memory", Arc::new(Memory::new(size))),
            Export::new("scripted", Arc::new(ScriptedMemory::new(size))),
            Export::of_file("file", file),
        ];
        let address = Address::Unix(folder.path().join("nbd"));
        let limits = Limits { pause: Duration::from_secs(5), ..Limits::default() };
        let exports = over(Exports::new(exports).expect("they differ"));
        Prey { server: Server::start(exports, &[address], limits).expect("it starts"), folder }
    }

    /// One session after the other until the time is over, then an orderly one.
    fn endures(self, mut session: impl FnMut(&mut ChaCha8Rng, &Server)) {
        let seed = setting("UMBRELLA_FUZZ_SEED").unwrap_or_else(rand::random);
        let seconds = setting("UMBRELLA_FUZZ_SECONDS").unwrap_or(10);
        println!("UMBRELLA_FUZZ_SEED={seed}");
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (begun, mut sessions) = (Instant::now(), 0);
        while begun.elapsed() < Duration::from_secs(seconds) {
            session(&mut rng, &self.server);
            sessions += 1;
            assert_eq!(PANICS.load(Ordering::Relaxed), 0, "after {sessions} sessions of seed {seed}");
        }
        println!("{sessions} sessions, {:?}", self.server.stats());
        let mut client = super::client::Client::transmitting(&self.folder.path().join("nbd"), "file");
        client.request(super::client::READ, 0, 4096);
        assert_eq!(client.error(), 0, "it serves the next client");
        drop(client);
        self.server.stop().expect("the flush works");
    }
}

#[test]
fn almost_right_sessions_never_break_the_server() {
    Prey::new(|exports| exports).endures(|rng, server| talk(connected(server), &session(rng)));
}

#[test]
fn almost_right_sessions_over_tls_never_break_the_server() {
    let certificates = Certificates::new();
    let authority = CertificateDer::from_pem_file(certificates.folder().join("ca-cert.pem")).expect("a certificate");
    let mut trusted = RootCertStore::empty();
    trusted.add(authority).expect("an authority");
    let client = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .with_root_certificates(trusted)
        .with_no_client_auth();
    let client = Arc::new(client);
    let mut encrypted = 0_u64;
    Prey::new(|exports| exports.over(certificates.tls(false).optional())).endures(|rng, server| {
        if rng.random_ratio(1, 10) {
            talk(connected(server), &session(rng));
        } else {
            encrypted += u64::from(talk_over_tls(rng, server, &client));
        }
    });
    println!("{encrypted} of them encrypted");
    assert!(encrypted > 0);
}
