use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;
use umbrella_units::{Lba, SECTOR_BYTES, SectorRange};

use super::params::{MOST_BYTES, encode, queue_depth, workers};
use super::wire::{Flags, IoRequest, QueueCommand, REQUEST_BYTES, RequestKind, RequestTag, command, queue_command};
use super::work::{Data, RequestError};
use super::*;
use crate::device::{Durability, Zeroes};
use crate::error::BlockError;
use crate::file::AlignedBuffer;

const DISK: Geometry =
    Geometry { capacity: Lba(1 << 21), logical_block: 512, physical_block: 4096, rotational: true, queue_depth: 31 };
const MEMORY: Geometry =
    Geometry { capacity: Lba(64), logical_block: 4096, physical_block: 4096, rotational: false, queue_depth: 1 };

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[test]
fn the_driver_gets_size_blocks_rotation_and_cache() {
    let params = encode(&DISK, Access::ReadWrite);
    assert_eq!((u32_at(&params, 0), u32_at(&params, 4)), (64, 0b11), "length and kinds");
    assert_eq!(u32_at(&params, 8), 0b1110, "rotational, volatile cache, FUA");
    assert_eq!(params[12..16], [9, 12, 12, 12]);
    assert_eq!(u32_at(&params, 16), MOST_BYTES / 512);
    assert_eq!(u64_at(&params, 24), 1 << 21);
    assert_eq!(u32_at(&params, 44), 4096, "discards are whole physical blocks");
    assert_eq!((u32_at(&params, 48), u32_at(&params, 52)), (262_144, 262_144));
    assert_eq!(params[56..58], 1u16.to_ne_bytes());
}

#[test]
fn what_does_not_rotate_or_may_not_be_written_says_so() {
    let params = encode(&MEMORY, Access::ReadOnly);
    assert_eq!(u32_at(&params, 8), 0b1101, "read-only, volatile cache, FUA");
    assert_eq!(params[12..16], [12, 12, 12, 12]);
    assert_eq!(u64_at(&params, 24), 64);
}

#[test]
fn a_disk_that_rotates_has_its_own_queue_and_a_worker_for_each_place_in_it() {
    assert_eq!((queue_depth(&DISK), workers(&DISK)), (31, 31));
    let deep = Geometry { queue_depth: 4096, ..DISK };
    assert_eq!((queue_depth(&deep), workers(&deep)), (128, 32));
}

#[test]
fn what_answers_at_once_has_a_deep_queue_and_no_workers() {
    assert_eq!((queue_depth(&MEMORY), workers(&MEMORY)), (128, 0));
}

#[test]
fn commands_have_the_numbers_of_the_kernels_header() {
    // As the macros of linux/ublk_cmd.h have them on x86-64 and arm64.
    assert_eq!(ControlCommand::Info.opcode(), 0x8020_7502);
    assert_eq!(ControlCommand::Add.opcode(), 0xc020_7504);
    assert_eq!(ControlCommand::Delete.opcode(), 0xc020_7505);
    assert_eq!(ControlCommand::Start.opcode(), 0xc020_7506);
    assert_eq!(ControlCommand::Stop.opcode(), 0xc020_7507);
    assert_eq!(ControlCommand::SetParams.opcode(), 0xc020_7508);
    assert_eq!(ControlCommand::DeleteLater.opcode(), 0x8020_7514);
    assert_eq!(QueueCommand::Fetch.opcode(), 0xc010_7520);
    assert_eq!(QueueCommand::CommitAndFetch.opcode(), 0xc010_7521);
}

#[test]
fn commands_are_laid_out_as_the_kernels_structs() {
    let carried = command(7, 0x1234_5678_9abc, 64, 99);
    assert_eq!(u32_at(&carried, 0), 7);
    assert_eq!(carried[4..8], [0xff, 0xff, 64, 0]);
    assert_eq!((u64_at(&carried, 8), u64_at(&carried, 16)), (0x1234_5678_9abc, 99));
    assert!(carried[24..].iter().all(|byte| *byte == 0));
    let carried = queue_command(RequestTag(0x0102), -5);
    assert_eq!(carried[..4], [0, 0, 2, 1]);
    assert_eq!(u32_at(&carried, 4).cast_signed(), -5);
    assert_eq!(u64_at(&carried, 8), 0, "no address: data goes by the device's file");
}

#[test]
fn what_is_known_of_a_device_survives_the_way_to_the_driver_and_back() {
    let info = DeviceInfo {
        device: 3,
        queue_depth: 31,
        dead: true,
        most_bytes: MOST_BYTES,
        features: Features::IOCTL_ENCODE | Features::USER_COPY,
        owner: Some(4_194_303),
    };
    let mut bytes = info.encode();
    assert_eq!(bytes[..2], 1u16.to_ne_bytes(), "one queue");
    assert_eq!(DeviceInfo::decode(&bytes), info);
    bytes[4] = 1;
    assert!(!DeviceInfo::decode(&bytes).dead);
    bytes[32..40].fill(0);
    assert_eq!(DeviceInfo::decode(&bytes).owner, None, "another program's");
}

#[test]
fn the_data_of_each_tag_is_at_an_offset_of_its_own() {
    assert_eq!(RequestTag(0).data_offset(), 0x8000_0000);
    assert_eq!(RequestTag(1).data_offset() - RequestTag(0).data_offset(), 32 << 20);
}

fn described(word: u32, sectors: u32, start: u64) -> IoRequest {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[..4].copy_from_slice(&word.to_ne_bytes());
    bytes[4..8].copy_from_slice(&sectors.to_ne_bytes());
    bytes[8..16].copy_from_slice(&start.to_ne_bytes());
    bytes[16..].fill(0xff);
    IoRequest::decode(&bytes)
}

#[test]
fn requests_are_read_as_the_driver_writes_them() {
    let kinds = [0, 1, 2, 3, 4, 5, 13, 255].map(|word| described(word, 0, 0).operation);
    let expected = [
        RequestKind::Read,
        RequestKind::Write,
        RequestKind::Flush,
        RequestKind::Discard,
        RequestKind::Unknown(4),
        RequestKind::WriteZeroes,
        RequestKind::Unknown(13),
        RequestKind::Unknown(255),
    ];
    assert_eq!(kinds, expected);
    let request = described(1 | 1 << 13 | 1 << 11, 8, u64::MAX);
    assert!(request.flags.contains(Flags::FUA) && !request.flags.contains(Flags::KEEP));
    assert_eq!(request.range, SectorRange { start: Lba(u64::MAX), sectors: 8 });
    assert!(described(5 | 1 << 15, 8, 0).flags.contains(Flags::KEEP));
}

#[test]
fn without_the_driver_it_is_said_how_to_get_it() {
    let text = UblkError::NoDriver.to_string();
    for word in ["modprobe ublk_drv", "Linux 6.5", "linux-image-6.12-amd64", "Debian 13"] {
        assert!(text.contains(word), "{text}");
    }
    if !Path::new("/dev/ublk-control").exists() {
        let device: Arc<dyn BlockDevice> = Arc::new(RecordingDevice::default());
        let refused = Ublk::attach(&device, Access::ReadWrite).map(drop);
        assert!(matches!(refused, Err(UblkError::NoDriver)), "{refused:?}");
    }
}

/// A call of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Call {
    Read(Lba, usize),
    Write(Lba, Vec<u8>, Durability),
    Flush,
    Discard(SectorRange),
    Zeroes(SectorRange, Zeroes, Durability),
}

/// A device that notes its calls. Its sectors are sevens.
#[derive(Default)]
struct RecordingDevice {
    calls: Mutex<Vec<Call>>,
    broken: bool,
    /// Where a read reports itself, and waits.
    gate: Option<(SyncSender<()>, Mutex<Receiver<()>>)>,
}

impl RecordingDevice {
    fn note(&self, call: Call) -> Result<(), BlockError> {
        self.calls.lock().push(call);
        if self.broken {
            let (device, source) = ("told".into(), Errno::NOSPC.into());
            return Err(BlockError::io(&device, crate::error::Operation::Write, None, source));
        }
        Ok(())
    }
}

impl BlockDevice for RecordingDevice {
    fn geometry(&self) -> Geometry {
        MEMORY
    }

    fn read(&self, at: Lba, buffer: &mut [u8]) -> Result<(), BlockError> {
        if let Some((arrived, leave)) = &self.gate {
            arrived.send(()).expect("the test listens");
            let _ = leave.lock().recv_timeout(Duration::from_secs(60));
        }
        buffer.fill(7);
        self.note(Call::Read(at, buffer.len()))
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<(), BlockError> {
        self.note(Call::Write(at, data.to_vec(), durability))
    }

    fn flush(&self) -> Result<(), BlockError> {
        self.note(Call::Flush)
    }

    fn discard(&self, range: SectorRange) -> Result<(), BlockError> {
        self.note(Call::Discard(range))
    }

    fn write_zeroes(&self, range: SectorRange, zeroes: Zeroes, durability: Durability) -> Result<(), BlockError> {
        self.note(Call::Zeroes(range, zeroes, durability))
    }
}

/// The data of requests, by tag.
#[derive(Default)]
struct TagData(Mutex<HashMap<u16, Vec<u8>>>);

impl Data for Arc<TagData> {
    fn fetch(&self, tag: RequestTag, buffer: &mut [u8]) -> io::Result<()> {
        let data = self.0.lock();
        buffer.copy_from_slice(data.get(&tag.0).ok_or(io::ErrorKind::NotFound)?);
        Ok(())
    }

    fn deliver(&self, tag: RequestTag, bytes: &[u8]) -> io::Result<()> {
        self.0.lock().insert(tag.0, bytes.to_vec());
        Ok(())
    }
}

fn worker(device: &Arc<RecordingDevice>, data: &Arc<TagData>) -> Worker<Arc<TagData>> {
    let device: Arc<dyn BlockDevice> = Arc::<RecordingDevice>::clone(device);
    Worker { device, data: Arc::clone(data), counters: Arc::default() }
}

const EIGHT: SectorRange = SectorRange { start: Lba(16), sectors: 8 };

fn request(operation: RequestKind, flags: Flags) -> IoRequest {
    IoRequest { operation, flags, range: EIGHT }
}

#[test]
fn each_request_is_one_call_of_the_device_and_is_counted() {
    let (device, data) = (Arc::new(RecordingDevice::default()), Arc::<TagData>::default());
    let (worker, mut buffer) = (worker(&device, &data), AlignedBuffer::default());
    let mut try_execute = |operation, flags| worker.try_execute(RequestTag(3), &request(operation, flags), &mut buffer);
    data.0.lock().insert(3, vec![9; 4096]);
    assert_eq!(try_execute(RequestKind::Write, Flags::empty()), Ok(4096));
    assert_eq!(try_execute(RequestKind::Write, Flags::FUA), Ok(4096));
    assert_eq!(try_execute(RequestKind::Read, Flags::empty()), Ok(4096));
    assert_eq!(data.0.lock()[&3], vec![7; 4096]);
    assert_eq!(try_execute(RequestKind::Flush, Flags::empty()), Ok(0));
    assert_eq!(try_execute(RequestKind::Discard, Flags::empty()), Ok(0));
    assert_eq!(try_execute(RequestKind::WriteZeroes, Flags::empty()), Ok(0));
    assert_eq!(try_execute(RequestKind::WriteZeroes, Flags::KEEP | Flags::FUA), Ok(0));
    let expected = [
        Call::Write(Lba(16), vec![9; 4096], Durability::Cached),
        Call::Write(Lba(16), vec![9; 4096], Durability::Through),
        Call::Read(Lba(16), 4096),
        Call::Flush,
        Call::Discard(EIGHT),
        Call::Zeroes(EIGHT, Zeroes::Unmap, Durability::Cached),
        Call::Zeroes(EIGHT, Zeroes::Keep, Durability::Through),
    ];
    assert_eq!(*device.calls.lock(), expected);
    let Traffic { reads, read, writes, written, flushes, others, .. } = worker.counters.so_far();
    assert_eq!((reads, writes, flushes, others), (1, 2, 1, 3));
    assert_eq!((read.0, written.0), (4096, 2 * 4096));
}

#[test]
fn a_request_that_fails_is_not_counted_and_tells_the_devices_error() {
    let device = Arc::new(RecordingDevice { broken: true, ..RecordingDevice::default() });
    let (worker, mut buffer) = (worker(&device, &Arc::default()), AlignedBuffer::default());
    let failed = worker.try_execute(RequestTag(0), &request(RequestKind::Flush, Flags::empty()), &mut buffer);
    assert_eq!(failed, Err(RequestError(Errno::NOSPC.raw_os_error())));
    assert_eq!(worker.counters.so_far(), Traffic::default());
}

#[test]
fn what_was_not_offered_never_reaches_the_device() {
    let device = Arc::<RecordingDevice>::default();
    let (worker, mut buffer) = (worker(&device, &Arc::default()), AlignedBuffer::default());
    let unknown = worker.try_execute(RequestTag(0), &request(RequestKind::Unknown(13), Flags::empty()), &mut buffer);
    assert_eq!(unknown, Err(RequestError(Errno::OPNOTSUPP.raw_os_error())));
    let sectors = u64::from(MOST_BYTES) / SECTOR_BYTES + 8;
    let long =
        IoRequest { range: SectorRange { start: Lba(0), sectors }, ..request(RequestKind::Read, Flags::empty()) };
    assert_eq!(worker.try_execute(RequestTag(0), &long, &mut buffer), Err(RequestError(Errno::INVAL.raw_os_error())));
    let lost = worker.try_execute(RequestTag(0), &request(RequestKind::Write, Flags::empty()), &mut buffer);
    assert_eq!(lost, Err(RequestError(Errno::IO.raw_os_error())), "its data cannot be fetched");
    assert!(device.calls.lock().is_empty());
}

#[test]
fn a_panic_costs_an_answer_and_not_the_thread() {
    let (arrived, nobody) = sync_channel(0);
    let (_, leave) = sync_channel(0);
    drop(nobody);
    let device = Arc::new(RecordingDevice { gate: Some((arrived, Mutex::new(leave))), ..RecordingDevice::default() });
    let (worker, mut buffer) = (worker(&device, &Arc::default()), AlignedBuffer::default());
    let mut result = |operation| worker.execute(RequestTag(0), &request(operation, Flags::empty()), &mut buffer);
    assert_eq!(result(RequestKind::Read), -Errno::IO.raw_os_error());
    assert_eq!(result(RequestKind::Flush), 0);
}

#[test]
fn as_many_calls_are_under_way_as_there_are_threads_and_all_are_answered() {
    let (arrived, arrivals) = sync_channel(8);
    let (let_go, leave) = sync_channel(8);
    let device = Arc::new(RecordingDevice { gate: Some((arrived, Mutex::new(leave))), ..RecordingDevice::default() });
    let data = Arc::default();
    let (first, second) = (worker(&device, &data), worker(&device, &data));
    let work_queue = WorkQueue::new(Notifier::new().expect("an eventfd"));
    std::thread::scope(|scope| {
        scope.spawn(|| first.run(&work_queue));
        scope.spawn(|| second.run(&work_queue));
        for tag in 0..3 {
            work_queue.submit(RequestTag(tag), request(RequestKind::Read, Flags::empty()));
        }
        for _ in 0..2 {
            arrivals.recv_timeout(Duration::from_secs(60)).expect("two calls are under way at once");
        }
        assert!(work_queue.take_results().is_empty());
        work_queue.close();
        for _ in 0..3 {
            let_go.send(()).expect("the device waits");
        }
    });
    let mut results = work_queue.take_results();
    results.sort_by_key(|(tag, _)| tag.0);
    assert_eq!(results, [0, 1, 2].map(|tag| (RequestTag(tag), 4096)));
}
