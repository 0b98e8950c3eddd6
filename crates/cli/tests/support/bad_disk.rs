//! ext4 on a device with sectors that can be neither read nor written, as soon as a test says so.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use umbrella_block::memory::Memory;
use umbrella_block::serve::loop_device::{AttachOptions, LoopDevice};
use umbrella_block::serve::loop_file::LoopFile;
use umbrella_block::{BlockDevice, BlockError, Durability, Operation};
use umbrella_units::{Lba, SECTOR_BYTES, SectorRange};

use super::disk::unmount;
use super::{TIMEOUT, poll, require_root_and_fuse, run, temp_dir};

struct BadSectors {
    memory: Memory,
    bad: Mutex<Vec<SectorRange>>,
}

impl BadSectors {
    fn check(&self, operation: Operation, at: Lba, bytes: usize) -> Result<(), BlockError> {
        let range = SectorRange { start: at, sectors: bytes as u64 / SECTOR_BYTES };
        if self.bad.lock().unwrap().iter().any(|bad| bad.overlaps(range)) {
            return Err(BlockError::io(&"bad".into(), operation, Some(range), io::Error::from(Errno::IO)));
        }
        Ok(())
    }
}

impl BlockDevice for BadSectors {
    umbrella_block::forward!(memory: geometry, flush, discard, write_zeroes);

    fn read(&self, at: Lba, buffer: &mut [u8]) -> Result<(), BlockError> {
        self.check(Operation::Read, at, buffer.len())?;
        self.memory.read(at, buffer)
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<(), BlockError> {
        self.check(Operation::Write, at, data.len())?;
        self.memory.write(at, data, durability)
    }
}

/// A mounted disk that gets bad sectors.
pub struct BadDisk {
    sectors: Arc<BadSectors>,
    parts: Option<(LoopDevice, LoopFile)>,
    folder: tempfile::TempDir,
}

impl BadDisk {
    /// Without bad sectors yet.
    pub fn ext4(size: u64) -> BadDisk {
        require_root_and_fuse();
        let folder = temp_dir("bad");
        let [below, at, image] = ["below", "mnt", "image"].map(|name| folder.path().join(name));
        fs::create_dir(&below).and_then(|()| fs::create_dir(&at)).unwrap();
        File::create(&image).and_then(|file| file.set_len(size)).unwrap();
        run("mkfs.ext4", ["-q".as_ref(), "-F".as_ref(), image.as_os_str()]);
        let sectors =
            Arc::new(BadSectors { memory: Memory::from_bytes(fs::read(&image).unwrap()), bad: Mutex::default() });
        fs::remove_file(image).unwrap();
        let options = AttachOptions::default();
        let file = LoopFile::mount(sectors.clone(), &below, options.access).expect("the file is mounted");
        let device = LoopDevice::attach(&file.path(), &options).expect("it is attached");
        run("mount", [device.path(), at.as_path()]);
        BadDisk { sectors, parts: Some((device, file)), folder }
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("mnt")
    }

    /// The sectors of a file of this disk are bad from now on, and nothing of it is in memory.
    pub fn break_file(&self, file: &Path) {
        self.break_extents(file);
        rustix::fs::fadvise(File::open(file).unwrap(), 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }

    /// The same of a directory, so that its names cannot be read.
    pub fn break_dir(&self, dir: &Path) {
        // What only the journal has stays in memory.
        for change in ["-f", "-u"] {
            run("fsfreeze", [change.as_ref(), self.path().as_os_str()]);
        }
        self.break_extents(dir);
        let is_forgotten = || {
            fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
            fs::read_dir(dir).and_then(Iterator::collect::<io::Result<Vec<_>>>).is_err().then_some(())
        };
        assert!(poll(TIMEOUT, is_forgotten).is_some(), "{} stays in memory", dir.display());
    }

    fn break_extents(&self, file: &Path) {
        File::open(file).unwrap().sync_all().unwrap();
        let reported = run("filefrag", ["-e".as_ref(), "-b512".as_ref(), file.as_os_str()]);
        let reported = String::from_utf8_lossy(&reported.stdout).into_owned();
        let extents = reported.lines().filter(|line| line.contains("..") && line.contains(':'));
        let mut bad = self.sectors.bad.lock().unwrap();
        for extent in extents {
            let (first, last) = extent.split(':').nth(2).unwrap().split_once("..").unwrap();
            let [first, last] = [first, last].map(|sector| sector.trim().parse::<u64>().unwrap());
            bad.push(SectorRange { start: Lba(first), sectors: last - first + 1 });
        }
        assert!(!bad.is_empty(), "{reported}");
    }

    /// All of it is bad.
    pub fn die(&self) {
        let all = SectorRange { start: Lba(0), sectors: self.sectors.geometry().capacity.0 };
        self.sectors.bad.lock().unwrap().push(all);
    }

    /// No sector is bad any more.
    pub fn mend(&self) {
        self.sectors.bad.lock().unwrap().clear();
    }
}

impl Drop for BadDisk {
    fn drop(&mut self) {
        // What waits to be written has to get away.
        self.mend();
        unmount(&self.path());
        if let Some((mut device, mut file)) = self.parts.take() {
            // Another test's mount namespace may have it mounted for a moment longer.
            let detached = poll(TIMEOUT, || device.detach().is_ok().then_some(()));
            let unmounted = poll(TIMEOUT, || file.unmount().is_ok().then_some(()));
            assert!(std::thread::panicking() || (detached.is_some() && unmounted.is_some()), "nobody uses it");
        }
    }
}
