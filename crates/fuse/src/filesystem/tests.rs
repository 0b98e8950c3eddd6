//! A kernel that sends anything: no panic gets out, and every request has one answer.

use std::collections::HashMap;
use std::time::Duration;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::abi::opcode;
use crate::channel::Channel;
use crate::tests::{Remembering, fake_kernel, fuzz};
use crate::transport::dev::{DeviceReaders, Limits};

/// Answers a few operations, forgets some, panics in others.
struct Erratic;

impl Filesystem for Erratic {
    fn lookup(&self, _context: &Context<'_>, request: request::Lookup<'_>, reply: Reply<Entry>) {
        if request.name.len().is_multiple_of(3) {
            reply.ok(Entry::negative(Duration::ZERO));
        }
    }

    fn getattr(&self, _context: &Context<'_>, _request: request::GetAttr, _reply: Reply<Stat>) {
        panic!("as it was asked for");
    }

    fn read(&self, _context: &Context<'_>, request: request::Read, reply: Reply<Data>) {
        reply.fill(request.size.min(100) as usize, |buffer| Ok(buffer.len()));
    }

    fn write(&self, _context: &Context<'_>, request: request::Write<'_>, reply: Reply<Written>) {
        let length = request.data.len() as u32;
        std::thread::spawn(move || reply.ok(Written(length)));
    }
}

fn server() -> Server<Erratic> {
    Server {
        filesystem: Erratic,
        shape: Shape::default(),
        interruptions: Interruptions::new(),
        observer: None,
        thread_start: None,
    }
}

/// Operations more often than other numbers, and names more often than other bytes.
fn random_request(random: &mut ChaCha8Rng, unique: u64) -> (abi::InHeader, Vec<u8>) {
    let mut body: Vec<u8> = (0..random.random_range(0..200)).map(|_| random.random()).collect();
    for byte in &mut body {
        if random.random_bool(0.5) {
            *byte = 0;
        }
    }
    let opcode = if random.random_bool(0.95) { random.random_range(0..60) } else { random.random() };
    let total_extlen = if random.random_bool(0.8) { 0 } else { random.random_range(0..12) };
    let len = (size_of::<abi::InHeader>() + body.len()) as u32;
    (abi::InHeader { len, opcode, unique, total_extlen, nodeid: random.random(), ..abi::InHeader::default() }, body)
}

#[test]
fn any_request_of_a_ring_is_answered_once() {
    let (mut random, rounds) = fuzz();
    let (server, answers) = (server(), Arc::<Remembering>::default());
    let mut expected = 0;
    for unique in 1..4 * rounds {
        let (header, body) = random_request(&mut random, unique);
        let channel: Arc<dyn Channel> = Arc::<Remembering>::clone(&answers);
        let (apart, rest) = body.split_at(random.random_range(0..=body.len().min(128)));
        let mut operation = [0; 128];
        operation[..apart.len()].copy_from_slice(apart);
        server.serve(&header, Body::split(&operation, rest), channel);
        expected += usize::from(!operation::is_one_way(header.opcode));
    }
    drop(server);
    // Writes are answered by threads.
    let until = Instant::now() + Duration::from_secs(60);
    while answers.0.lock().unwrap().len() < expected && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    let answers = answers.0.lock().unwrap();
    let mut times = HashMap::new();
    answers.iter().for_each(|(id, _)| *times.entry(*id).or_insert(0) += 1);
    assert_eq!((answers.len(), times.len()), (expected, expected));
}

#[test]
fn any_bytes_of_a_device_do_no_harm_and_every_request_is_answered() {
    let (mut random, rounds) = fuzz();
    let (device, kernel) = fake_kernel();
    let limits = Limits { least: 3, most: 8, payload: 1 << 16, gathers: true };
    let readers = DeviceReaders::new(device, Arc::new(server()), limits);
    let served = std::thread::spawn(move || readers.run());
    for unique in 1..rounds {
        if random.random_bool(0.1) {
            let noise: Vec<u8> = (0..random.random_range(1..40)).map(|_| random.random()).collect();
            rustix::io::write(&kernel, &noise).unwrap();
        }
        let (header, body) = random_request(&mut random, unique << 1);
        rustix::io::write(&kernel, &[header.as_bytes(), &body].concat()).unwrap();
        if operation::is_one_way(header.opcode) {
            continue;
        }
        let mut answer = vec![0; 1 << 16];
        let length = rustix::io::read(&kernel, &mut answer).unwrap();
        let (out, _) = abi::OutHeader::read_from_prefix(&answer).unwrap();
        assert_eq!((out.len as usize, out.unique), (length, unique << 1), "operation {}", header.opcode);
    }
    drop(kernel);
    served.join().unwrap().unwrap();
}

#[test]
fn an_interruption_that_comes_before_its_request_is_remembered() {
    let server = server();
    let answers = Arc::<Remembering>::default();
    let interrupt = abi::InHeader { opcode: opcode::INTERRUPT, unique: 11, ..abi::InHeader::default() };
    let body = 42_u64.to_ne_bytes();
    server.serve(&interrupt, Body::joined(&body), Arc::<Remembering>::clone(&answers) as Arc<dyn Channel>);
    let asks =
        |id| Context { id: RequestId(id), uid: 0, gid: 0, pid: 0, resent: false, interruptions: &server.interruptions };
    assert!(asks(42).is_interrupted() && !asks(44).is_interrupted());
    assert!(answers.0.lock().unwrap().is_empty(), "nobody waits for an answer to it");
}

#[test]
fn an_observer_that_panics_at_a_malformed_request_harms_no_thread() {
    struct Panics;
    impl Observer for Panics {
        fn finished(&self, _request: &crate::reply::Finished<'_>) {
            panic!("as it was asked for");
        }
    }
    let server = Server { observer: Some(Arc::new(Panics)), ..server() };
    let answers = Arc::<Remembering>::default();
    let header = abi::InHeader { opcode: opcode::WRITE, unique: 8, ..abi::InHeader::default() };
    server.serve(&header, Body::joined(b"short"), Arc::<Remembering>::clone(&answers) as Arc<dyn Channel>);
    assert_eq!(*answers.0.lock().unwrap(), [(RequestId(8), Err(Errno::EIO))]);
}
