//! What tests share: a channel that remembers, a kernel's end of a connection, and random numbers.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::channel::Channel;
use crate::device::Device;
use crate::types::{Errno, RequestId};

/// One answer.
pub(crate) type Answered = (RequestId, Result<Vec<u8>, Errno>);

/// Remembers what was answered.
#[derive(Default)]
pub(crate) struct Remembering(pub(crate) Mutex<Vec<Answered>>);

impl Channel for Remembering {
    fn send(&self, id: RequestId, answer: Result<&[&[u8]], Errno>) {
        self.0.lock().unwrap().push((id, answer.map(<[&[u8]]>::concat)));
    }

    fn fill(&self, id: RequestId, size: usize, write: &mut dyn FnMut(&mut [u8]) -> Result<usize, Errno>) {
        let mut buffer = vec![0; size];
        let filled = write(&mut buffer);
        self.0.lock().unwrap().push((id, filled.map(|filled| buffer[..filled].to_vec())));
    }
}

/// A device whose other end is the test's.
pub(crate) fn fake_kernel() -> (Arc<Device>, OwnedFd) {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    (Arc::new(Device::from_fd(ours)), theirs)
}

/// Random numbers, and how many inputs to make of them. `UMBRELLA_FUZZ_SEED` repeats a run, `UMBRELLA_FUZZ_ROUNDS`
/// makes a longer one.
pub(crate) fn fuzz() -> (ChaCha8Rng, u64) {
    let setting = |name: &str| std::env::var(name).ok().map(|value| value.parse().unwrap());
    let seed = setting("UMBRELLA_FUZZ_SEED").unwrap_or_else(rand::random);
    println!("UMBRELLA_FUZZ_SEED={seed}");
    (ChaCha8Rng::seed_from_u64(seed), setting("UMBRELLA_FUZZ_ROUNDS").unwrap_or(5_000))
}
