//! Files and real devices as block devices. Needs root and the loop driver.

mod support;

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::{FcntlArg, fcntl};
use proptest::prelude::*;
use support::{Mount, noise, run};
use umbrella_block::file::{Access, AlignedBuffer, Allocation, Cache, FileDevice, OpenError, OpenOptions};
use umbrella_block::memory::Memory;
use umbrella_block::serve::loop_device::{AttachOptions, LoopDevice};
use umbrella_block::{BlockDevice, BlockError, Durability, Operation, Zeroes};
use umbrella_units::{ByteSize, Lba, SectorRange};

const READ_ONLY: OpenOptions = OpenOptions { access: Access::ReadOnly, cache: Cache::Page };
const DIRECT: OpenOptions = OpenOptions { access: Access::ReadWrite, cache: Cache::Direct };

struct Image {
    folder: tempfile::TempDir,
}

impl Image {
    fn new(content: &[u8]) -> Image {
        let image = Image { folder: tempfile::tempdir().expect("a folder") };
        fs::write(image.path(), content).expect("a file");
        image
    }

    fn sparse(size: u64) -> Image {
        let image = Image::new(&[]);
        fs::File::options().write(true).open(image.path()).and_then(|file| file.set_len(size)).expect("it grows");
        image
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn open(&self, options: OpenOptions) -> FileDevice {
        FileDevice::open(&self.path(), options).expect("a device")
    }
}

fn sectors(start: u64, sectors: u64) -> SectorRange {
    SectorRange { start: Lba(start), sectors }
}

fn read(device: &dyn BlockDevice, range: SectorRange) -> Vec<u8> {
    let mut bytes = vec![1; range.bytes().0 as usize];
    device.read(range.start, &mut bytes).expect("it is there");
    bytes
}

#[test]
fn a_file_is_as_large_as_the_whole_sectors_in_it() {
    let image = Image::new(&noise(1, 3 * 512 + 511));
    let device = image.open(OpenOptions::default());
    let geometry = device.geometry();
    assert_eq!((geometry.capacity, geometry.logical_block), (Lba(3), 512));
    assert!(read(&device, sectors(0, 3)) == fs::read(image.path()).expect("a file")[..3 * 512]);
    assert!(matches!(device.read(Lba(3), &mut [0; 512]), Err(BlockError::BeyondEnd { .. })));
    assert!(matches!(device.write(Lba(0), &[0; 100], Durability::Cached), Err(BlockError::Unaligned { .. })));
}

#[test]
fn a_writer_is_alone_and_readers_are_not() {
    let image = Image::sparse(4096);
    let writer = image.open(OpenOptions::default());
    for options in [OpenOptions::default(), READ_ONLY] {
        let refused = FileDevice::open(&image.path(), options).expect_err("it is being written");
        assert!(matches!(refused, OpenError::InUse { .. }), "{refused}");
        assert!(refused.to_string().contains("in use"), "{refused}");
    }
    drop(writer);
    let readers = [image.open(READ_ONLY), image.open(READ_ONLY)];
    assert!(matches!(FileDevice::open(&image.path(), DIRECT), Err(OpenError::InUse { .. })));
    drop(readers);
    image.open(OpenOptions::default());
}

#[test]
fn a_copy_of_the_descriptor_keeps_no_lock() {
    let image = Image::sparse(4096);
    let device = image.open(OpenOptions::default());
    // As a process that is being started has one until it executes its program.
    let copy = device.as_fd().try_clone_to_owned().expect("a descriptor");
    drop(device);
    image.open(OpenOptions::default());
    let shared = fs::File::open(image.path()).expect("a file");
    let mut found = libc::flock { l_type: libc::F_WRLCK as i16, l_whence: 0, l_start: 0, l_len: 0, l_pid: 0 };
    fcntl(&shared, FcntlArg::F_OFD_GETLK(&mut found)).expect("an answer");
    assert_eq!(i32::from(found.l_type), libc::F_UNLCK, "no lock of QEMU's programs either");
    drop(copy);
}

#[test]
fn what_is_no_block_device_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |path: &Path| FileDevice::open(path, OpenOptions::default()).expect_err("it cannot be one");
    assert!(matches!(refused(folder.path()), OpenError::WrongKind { .. }));
    assert!(matches!(refused(Path::new("/dev/null")), OpenError::WrongKind { .. }));
    assert!(matches!(refused(&folder.path().join("missing")), OpenError::Open { .. }));
    assert!(matches!(refused(&Image::new(&[0; 511]).path()), OpenError::TooSmall { size: ByteSize(511), .. }));
}

#[test]
fn a_read_only_device_refuses_every_change() {
    let image = Image::sparse(4096);
    let device = image.open(READ_ONLY);
    let all = sectors(0, 8);
    for refused in [
        device.write(Lba(0), &[0; 512], Durability::Cached),
        device.discard(all),
        device.write_zeroes(all, Zeroes::Keep, Durability::Cached),
    ] {
        assert!(matches!(refused, Err(BlockError::ReadOnly { .. })));
    }
    device.flush().expect("there is nothing to flush");
}

#[test]
fn direct_io_takes_memory_at_any_address() {
    let image = Image::sparse(8 << 20);
    let device = image.open(DIRECT);
    assert_eq!(device.cache(), Cache::Direct, "the temporary folder is on a disk");
    let block = device.geometry().logical_block as usize;
    let content = noise(5, (3 << 20) + block + 1);
    for (data, durability) in
        [(&content[..content.len() - 1], Durability::Cached), (&content[1..], Durability::Through)]
    {
        device.write(Lba(block as u64 / 512), data, durability).expect("it is aligned on disk");
        let mut buffer = vec![0; data.len() + 1];
        device.read(Lba(block as u64 / 512), &mut buffer[1..]).expect("it is there");
        assert!(&buffer[1..] == data);
    }
    let mut aligned = AlignedBuffer::new(1 << 20);
    device.read(Lba(block as u64 / 512), aligned.as_mut_slice()).expect("it is there");
    assert!(aligned.as_slice() == &content[1..=1 << 20]);
}

#[test]
fn where_direct_io_is_refused_the_page_cache_is_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let mount = Mount::new(Path::new("none"), folder.path(), &["-t", "ramfs"]);
    let path = mount.path().join("image");
    fs::write(&path, noise(6, 4096)).expect("a file");
    let device = FileDevice::open(&path, DIRECT).expect("the page cache does");
    assert_eq!(device.cache(), Cache::Page);
    assert_eq!(device.geometry().queue_depth, 1, "it is memory");
    assert!(read(&device, sectors(0, 8)) == noise(6, 4096));
}

#[test]
fn holes_are_given_back_and_read_as_zeroes() {
    let image = Image::new(&noise(7, 1 << 20));
    let device = image.open(OpenOptions::default());
    let whole = sectors(0, 2048);
    let extents = |device: &FileDevice| -> Vec<_> {
        device.extents(whole).expect("it exists").map(|extent| extent.expect("it can say")).collect()
    };
    assert_eq!(extents(&device), [(whole, Allocation::Data)]);
    device.discard(sectors(512, 512)).expect("the file system can");
    device.write_zeroes(sectors(1536, 256), Zeroes::Unmap, Durability::Through).expect("it can");
    assert_eq!(
        extents(&device),
        [
            (sectors(0, 512), Allocation::Data),
            (sectors(512, 512), Allocation::Hole),
            (sectors(1024, 512), Allocation::Data),
            (sectors(1536, 256), Allocation::Hole),
            (sectors(1792, 256), Allocation::Data),
        ]
    );
    assert!(read(&device, sectors(1536, 256)).iter().all(|byte| *byte == 0));
    assert!(read(&device, sectors(1792, 256)) == noise(7, 1 << 20)[1792 * 512..]);
}

#[test]
fn zeroes_that_keep_their_space_keep_it() {
    let image = Image::new(&noise(8, 1 << 20));
    let device = image.open(OpenOptions::default());
    let blocks = || std::os::unix::fs::MetadataExt::blocks(&fs::metadata(image.path()).expect("a file"));
    let before = blocks();
    device.write_zeroes(sectors(0, 2048), Zeroes::Keep, Durability::Through).expect("it can");
    assert!(read(&device, sectors(0, 2048)).iter().all(|byte| *byte == 0));
    assert!(blocks() >= before, "{} of {before} blocks are left", blocks());
}

#[test]
fn where_zeroes_have_to_be_written_they_are_written_and_not_called_quick() {
    let folder = tempfile::tempdir().expect("a folder");
    let mount = Mount::new(Path::new("none"), folder.path(), &["-t", "ramfs"]);
    let path = mount.path().join("image");
    fs::write(&path, noise(9, 3 << 20)).expect("a file");
    let device = FileDevice::open(&path, OpenOptions::default()).expect("a device");
    let most = sectors(1, 6 * 1024 - 2);
    for zeroes in [Zeroes::Unmap, Zeroes::Keep] {
        assert!(!device.zero_quickly(most, zeroes).expect("it can say"));
    }
    assert!(read(&device, sectors(0, 6 * 1024)) == noise(9, 3 << 20), "nothing has changed");
    device.discard(most).expect("only advice");
    device.write_zeroes(most, Zeroes::Unmap, Durability::Cached).expect("written");
    let content = read(&device, sectors(0, 6 * 1024));
    assert!(content[512..content.len() - 512].iter().all(|byte| *byte == 0));
    assert!(content[..512] == noise(9, 3 << 20)[..512], "what is before it stays");
    assert!(content[content.len() - 512..] == noise(9, 3 << 20)[content.len() - 512..], "what is behind it stays");
}

#[test]
fn only_what_is_in_the_page_cache_is_read_without_waiting() {
    let image = Image::new(&noise(10, 1 << 20));
    let device = image.open(OpenOptions::default());
    device.flush().expect("clean pages can be dropped");
    let range = sectors(0, 64);
    let mut buffer = vec![0; range.bytes().0 as usize];
    // Advice: the kernel keeps pages for now that another processor still has in hand.
    let dropped = (0..500).any(|_| {
        rustix::fs::fadvise(&device, 0, None, rustix::fs::Advice::DontNeed).expect("it is a file");
        std::thread::sleep(std::time::Duration::from_millis(10));
        !device.read_cached(range.start, &mut buffer).expect("it can say")
    });
    assert!(dropped, "it was dropped");
    device.read(range.start, &mut buffer).expect("it is there");
    buffer.fill(0);
    assert!(device.read_cached(range.start, &mut buffer).expect("it can say"), "it was just read");
    assert!(buffer == noise(10, 1 << 20)[..buffer.len()]);
    let direct = Image::new(&noise(11, 4096));
    let direct = direct.open(DIRECT);
    assert!(!direct.read_cached(Lba(0), &mut [0; 4096]).expect("it can say"), "there is no cache");
}

#[test]
fn a_file_that_was_cut_fails_reads_beyond_its_new_end() {
    let image = Image::new(&noise(12, 8192));
    let device = image.open(OpenOptions::default());
    fs::File::options().write(true).open(image.path()).and_then(|file| file.set_len(4096)).expect("it is cut");
    let failed = device.read(Lba(0), &mut [0; 8192]).expect_err("half of it is gone");
    assert!(matches!(failed, BlockError::Io { operation: Operation::Read, .. }), "{failed}");
    device.read(Lba(0), &mut [0; 4096]).expect("this half is there");
}

#[test]
fn a_file_that_was_cut_and_made_longer_by_a_write_is_not_flushed() {
    let image = Image::new(&noise(13, 16384));
    let device = image.open(OpenOptions::default());
    device.flush().expect("it is whole");
    fs::File::options().write(true).open(image.path()).and_then(|file| file.set_len(4096)).expect("it is cut");
    device.write(Lba(16), &[1; 4096], Durability::Cached).expect("the file becomes longer");
    let failed = device.flush().expect_err("what lay before it reads as zeroes now");
    assert!(failed.to_string().contains("shorter"), "{failed}");
    device.write(Lba(0), &[1; 4096], Durability::Cached).expect_err("nothing is written any more");
}

fn attach(path: &Path, sector_size: u32) -> LoopDevice {
    LoopDevice::attach(path, &AttachOptions { sector_size, ..AttachOptions::default() }).expect("root may")
}

#[test]
fn a_device_has_the_blocks_that_the_kernel_says() {
    let image = Image::sparse(4 << 20);
    let disk = attach(&image.path(), 4096);
    for options in [OpenOptions::default(), DIRECT] {
        let device = FileDevice::open(disk.path(), options).expect("a device");
        assert_eq!((device.geometry().capacity, device.geometry().logical_block), (Lba(8192), 4096));
        assert_eq!(device.cache(), options.cache);
        let content = noise(13, 1 << 20);
        device.write(Lba(8), &content, Durability::Through).expect("there is room");
        assert!(read(&device, sectors(8, 2048)) == content);
        device.write_zeroes(sectors(8, 8), Zeroes::Unmap, Durability::Cached).expect("it can");
        device.write_zeroes(sectors(16, 8), Zeroes::Keep, Durability::Cached).expect("it can");
        device.discard(sectors(24, 8)).expect("it can");
        assert!(read(&device, sectors(8, 16)).iter().all(|byte| *byte == 0));
        assert!(matches!(device.write(Lba(1), &[0; 512], Durability::Cached), Err(BlockError::Unaligned { .. })));
        let extents: Vec<_> = device.extents(sectors(0, 8192)).expect("it exists").flatten().collect();
        assert_eq!(extents, [(sectors(0, 8192), Allocation::Data)], "a disk cannot say");
    }
}

#[test]
fn a_mounted_device_cannot_be_written_behind_the_file_system() {
    let (image, folder) = (Image::sparse(16 << 20), tempfile::tempdir().expect("a folder"));
    let disk = attach(&image.path(), 512);
    run("mkfs.ext4", &["-q", "-F", disk.path().to_str().expect("UTF-8")]);
    let mount = Mount::new(disk.path(), folder.path(), &[]);
    let refused = FileDevice::open(disk.path(), OpenOptions::default()).expect_err("it is mounted");
    assert!(matches!(refused, OpenError::InUse { .. }), "{refused}");
    FileDevice::open(disk.path(), READ_ONLY).expect("looking is allowed");
    drop(mount);
    FileDevice::open(disk.path(), OpenOptions::default()).expect("nobody uses it");
}

/// A disk whose cached writes cannot reach the medium: it is a sparse file on a file system that is full.
struct Full {
    disk: LoopDevice,
    _mount: Mount,
    _folder: tempfile::TempDir,
}

impl Full {
    fn new() -> Full {
        let folder = tempfile::tempdir().expect("a folder");
        let mount = Mount::new(Path::new("none"), folder.path(), &["-t", "tmpfs", "-o", "size=1m"]);
        let path = mount.path().join("image");
        let file = fs::File::create_new(&path).expect("a file");
        file.set_len(8 << 20).expect("it is sparse");
        file.write_all_at(&noise(14, 1 << 20), 0).expect("it just fits");
        Full { disk: attach(&path, 512), _mount: mount, _folder: folder }
    }

    fn open(&self) -> FileDevice {
        FileDevice::open(self.disk.path(), OpenOptions::default()).expect("a device")
    }
}

fn assert_poisoned(device: &FileDevice) {
    let range = sectors(0, 8);
    for refused in [
        device.write(Lba(0), &[0; 512], Durability::Cached),
        device.write(Lba(0), &[0; 512], Durability::Through),
        device.flush(),
        device.discard(range),
        device.write_zeroes(range, Zeroes::Keep, Durability::Cached),
        device.zero_quickly(range, Zeroes::Keep).map(|_| ()),
    ] {
        assert!(matches!(refused, Err(BlockError::Poisoned { .. })), "{refused:?}");
    }
    assert!(read(device, range) == noise(14, 1 << 20)[..4096], "reads continue");
}

#[test]
fn after_a_failed_flush_nothing_is_written_any_more() {
    let full = Full::new();
    let device = full.open();
    device.write(Lba(8192), &noise(15, 1 << 20), Durability::Cached).expect("into the page cache");
    let failed = device.flush().expect_err("there is no room");
    assert!(matches!(failed, BlockError::Io { operation: Operation::Flush, .. }), "{failed}");
    assert_poisoned(&device);
}

#[test]
fn after_a_failed_write_through_nothing_is_written_any_more() {
    let full = Full::new();
    let device = full.open();
    let failed = device.write(Lba(8192), &noise(16, 4096), Durability::Through).expect_err("there is no room");
    assert!(matches!(failed, BlockError::Io { operation: Operation::Write, .. }), "{failed}");
    assert_poisoned(&device);
}

#[test]
fn flushes_from_many_threads_all_learn_of_a_failure() {
    let full = Full::new();
    let device = Arc::new(full.open());
    device.write(Lba(8192), &noise(17, 1 << 20), Durability::Cached).expect("into the page cache");
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let device = Arc::clone(&device);
            std::thread::spawn(move || device.flush())
        })
        .collect();
    for thread in threads {
        assert!(thread.join().expect("no panic").is_err(), "the data were lost for all of them");
    }
}

#[derive(Debug, Clone)]
enum Step {
    Write(u64, Vec<u8>, Durability),
    Zero(SectorRange, Zeroes),
    Discard(SectorRange),
    Flush,
}

const MODEL_SECTORS: u64 = 256;

fn step() -> impl Strategy<Value = Step> {
    let range = (0..MODEL_SECTORS)
        .prop_flat_map(|start| (1..=(MODEL_SECTORS - start).min(40)).prop_map(move |length| sectors(start, length)));
    let durability = prop_oneof![Just(Durability::Cached), Just(Durability::Through)];
    let zeroes = prop_oneof![Just(Zeroes::Unmap), Just(Zeroes::Keep)];
    prop_oneof![
        4 => (range.clone(), any::<u64>(), durability)
            .prop_map(|(range, seed, how)| Step::Write(range.start.0, noise(seed, range.bytes().0 as usize), how)),
        2 => (range.clone(), zeroes).prop_map(|(range, zeroes)| Step::Zero(range, zeroes)),
        1 => range.prop_map(Step::Discard),
        1 => Just(Step::Flush),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_file_behaves_as_memory_does(steps in proptest::collection::vec(step(), 1..30), direct in any::<bool>()) {
        let image = Image::sparse(MODEL_SECTORS * 512);
        let device = image.open(if direct { DIRECT } else { OpenOptions::default() });
        prop_assume!(device.geometry().logical_block == 512);
        let memory = Memory::new(ByteSize(MODEL_SECTORS * 512));
        for step in steps {
            for device in [&device as &dyn BlockDevice, &memory] {
                match &step {
                    Step::Write(at, data, durability) => device.write(Lba(*at), data, *durability),
                    Step::Zero(range, zeroes) => device.write_zeroes(*range, *zeroes, Durability::Cached),
                    // What a discarded range reads as is the device's choice.
                    Step::Discard(range) => device
                        .discard(*range)
                        .and_then(|()| device.write_zeroes(*range, Zeroes::Keep, Durability::Cached)),
                    Step::Flush => device.flush(),
                }
                .expect("nothing is wrong with it");
            }
        }
        prop_assert!(read(&device, sectors(0, MODEL_SECTORS)) == memory.to_bytes());
        drop(device);
        prop_assert!(fs::read(image.path()).expect("a file") == memory.to_bytes());
    }
}

#[test]
fn what_was_cut_from_a_file_is_no_hole() {
    let image = Image::sparse(1 << 20);
    let device = image.open(READ_ONLY);
    let file = fs::File::options().write(true).open(image.path()).expect("it is there");
    file.set_len((512 << 10) + 100).expect("it shrinks");
    let mut extents = device.extents(sectors(0, 2048)).expect("it can say");
    assert_eq!(extents.next().map(|first| first.expect("it is there")), Some((sectors(0, 1024), Allocation::Hole)));
    assert!(matches!(extents.next(), Some(Err(BlockError::Io { .. }))));
    assert!(extents.next().is_none());
}
