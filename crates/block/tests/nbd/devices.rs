//! Devices to serve, and a server in a folder of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};
use umbrella_block::file::{FileDevice, OpenOptions};
use umbrella_block::memory::Memory;
use umbrella_block::serve::nbd::{Address, Export, Exports, Limits, Server};
use umbrella_block::{BlockDevice, BlockError, Durability, Geometry, Operation, Zeroes};
use umbrella_units::{ByteSize, Lba, SectorRange};

/// A server with a Unix socket.
pub(crate) struct Served {
    pub(crate) server: Server,
    folder: tempfile::TempDir,
}

impl Served {
    pub(crate) fn new(exports: Vec<Export>, limits: Limits) -> Served {
        let folder = tempfile::tempdir().expect("a folder");
        let exports = Exports::new(exports).expect("they can be served");
        let address = Address::Unix(folder.path().join("nbd"));
        Served { server: Server::start(exports, &[address], limits).expect("it starts"), folder }
    }

    pub(crate) fn of(device: Arc<dyn BlockDevice>) -> Served {
        Served::new(vec![Export::new("", device)], Limits::default())
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("nbd")
    }

    pub(crate) fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket().display())
    }
}

/// A file of these bytes, served as the default export.
pub(crate) struct ServedFile {
    pub(crate) served: Served,
    pub(crate) path: PathBuf,
    _folder: tempfile::TempDir,
}

impl ServedFile {
    pub(crate) fn new(content: &[u8]) -> ServedFile {
        ServedFile::within(&std::env::temp_dir(), content, OpenOptions::default())
    }

    pub(crate) fn within(folder: &Path, content: &[u8], options: OpenOptions) -> ServedFile {
        let folder = tempfile::tempdir_in(folder).expect("a folder");
        let path = folder.path().join("image");
        fs::write(&path, content).expect("a file");
        let device = Arc::new(FileDevice::open(&path, options).expect("a device"));
        let served = Served::new(vec![Export::of_file("", device)], Limits::default());
        ServedFile { served, path, _folder: folder }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        fs::read(&self.path).expect("a file")
    }
}

/// Memory that reports that calls at once pay, counts its calls, and fails and waits on demand.
pub(crate) struct ScriptedMemory {
    pub(crate) memory: Memory,
    pub(crate) geometry: Geometry,
    pub(crate) flushes: AtomicU64,
    pub(crate) writes_through: AtomicU64,
    pub(crate) fails_flushes: AtomicBool,
    /// Writes wait while this is set.
    pub(crate) holds_writes: Mutex<bool>,
    pub(crate) waiting: AtomicU64,
    pub(crate) changed: Condvar,
}

impl ScriptedMemory {
    pub(crate) fn new(size: ByteSize) -> ScriptedMemory {
        let memory = Memory::new(size);
        let geometry = Geometry { queue_depth: 8, ..memory.geometry() };
        ScriptedMemory {
            memory,
            geometry,
            flushes: AtomicU64::new(0),
            writes_through: AtomicU64::new(0),
            fails_flushes: AtomicBool::new(false),
            holds_writes: Mutex::new(false),
            waiting: AtomicU64::new(0),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn with_blocks(size: ByteSize, logical_block: u32) -> ScriptedMemory {
        let mut scripted = ScriptedMemory::new(size);
        scripted.geometry.logical_block = logical_block;
        scripted
    }

    pub(crate) fn hold_writes(&self, hold: bool) {
        *self.holds_writes.lock() = hold;
        self.changed.notify_all();
    }

    /// Waits until `count` writes wait.
    pub(crate) fn wait_for_writes(&self, count: u64) {
        let mut hold = self.holds_writes.lock();
        self.changed.wait_while(&mut hold, |_| self.waiting.load(Ordering::Relaxed) < count);
    }

    fn before_write(&self, durability: Durability) {
        if durability == Durability::Through {
            self.writes_through.fetch_add(1, Ordering::Relaxed);
        }
        let mut hold = self.holds_writes.lock();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_all();
        self.changed.wait_while(&mut hold, |hold| *hold);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl BlockDevice for ScriptedMemory {
    umbrella_block::forward!(memory: read, discard);

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<(), BlockError> {
        self.before_write(durability);
        self.memory.write(at, data, durability)
    }

    fn flush(&self) -> Result<(), BlockError> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        if self.fails_flushes.load(Ordering::Relaxed) {
            let reason = Arc::from("as the test wants it");
            return Err(BlockError::Poisoned { device: Arc::from("test"), operation: Operation::Flush, reason });
        }
        self.memory.flush()
    }

    fn write_zeroes(&self, range: SectorRange, zeroes: Zeroes, durability: Durability) -> Result<(), BlockError> {
        self.before_write(durability);
        self.memory.write_zeroes(range, zeroes, durability)
    }
}
