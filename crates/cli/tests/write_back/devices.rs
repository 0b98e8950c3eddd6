//! Devices of the tests' own with ext4 on them: one that remembers its writes, one that is slow.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use umbrella_block::memory::Memory;
use umbrella_block::record::{Action, DeviceNo, Journal, Recorder};
use umbrella_block::serve::loop_device::{AttachOptions, LoopDevice};
use umbrella_block::serve::loop_file::LoopFile;
use umbrella_block::{BlockDevice, BlockError, Durability};
use umbrella_units::Lba;

use super::support::{MIB, TIMEOUT, disk::unmount, poll, run, temp_dir};

/// ext4 on a device that remembers its writes. Dropped from the top down.
pub(super) struct Remembering {
    pub(super) at: PathBuf,
    journal: Arc<Journal>,
    parts: Option<(LoopDevice, LoopFile)>,
    _folder: tempfile::TempDir,
}

impl Remembering {
    pub(super) fn new() -> Remembering {
        Remembering::over(|memory| memory)
    }

    /// The file system is made before the device can fail.
    pub(super) fn over<D: BlockDevice + 'static>(device: impl FnOnce(Memory) -> D) -> Remembering {
        super::support::require_root_and_fuse();
        let folder = temp_dir("order");
        let (below, at, image) = (folder.path().join("below"), folder.path().join("mnt"), folder.path().join("image"));
        fs::create_dir(&below).and_then(|()| fs::create_dir(&at)).expect("folders");
        File::create(&image).and_then(|file| file.set_len(256 * MIB)).expect("an image");
        let options = ["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,packed_meta_blocks=1"];
        run("mkfs.ext4", options.iter().map(OsString::from).chain([image.clone().into()]));
        let memory = Memory::from_bytes(fs::read(&image).expect("the image"));
        let journal = Journal::new();
        let device = Recorder::new(device(memory), DeviceNo(0), Arc::clone(&journal));
        let options = AttachOptions { scheduler: Some("none".to_owned()), ..AttachOptions::default() };
        let file = LoopFile::mount(Arc::new(device), &below, options.access).expect("the file is mounted");
        let device = LoopDevice::attach(&file.path(), &options).expect("it is attached");
        run("mount", [device.path(), at.as_path()]);
        Remembering { at, journal, parts: Some((device, file)), _folder: folder }
    }

    /// First sectors of the writes of at least a page since `from` writes ago, in the order in which they came.
    pub(super) fn writes(&self, from: usize) -> Vec<u64> {
        let recording = self.journal.recording();
        let changes = recording.changes().iter().skip(from);
        changes
            .filter_map(|change| if let Action::Write { at, .. } = &change.action { Some(at.0) } else { None })
            .collect()
    }

    pub(super) fn now(&self) -> usize {
        self.journal.recording().changes().len()
    }
}

impl Drop for Remembering {
    fn drop(&mut self) {
        unmount(&self.at);
        if let Some((mut device, mut file)) = self.parts.take() {
            // Another test's mount namespace may have it mounted for a moment longer.
            let detached = poll(TIMEOUT, || device.detach().is_ok().then_some(()));
            let unmounted = poll(TIMEOUT, || file.unmount().is_ok().then_some(()));
            assert!(thread::panicking() || (detached.is_some() && unmounted.is_some()), "nobody uses it");
        }
    }
}

/// Writes 16 MiB a second, one request at a time: any writer on any machine is faster.
pub(super) struct Slow {
    memory: Memory,
    arm: Mutex<()>,
}

impl Slow {
    pub(super) fn new(memory: Memory) -> Slow {
        Slow { memory, arm: Mutex::new(()) }
    }
}

impl BlockDevice for Slow {
    umbrella_block::forward!(memory: geometry, read, flush, discard, write_zeroes);

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<(), BlockError> {
        let _one = self.arm.lock().unwrap_or_else(PoisonError::into_inner);
        thread::sleep(Duration::from_secs(1).mul_f64(data.len() as f64 / (16 * MIB) as f64));
        self.memory.write(at, data, durability)
    }
}
