use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use umbrella_model::device::profile;

use super::*;
use crate::memory::Memory;

/// A second of the model takes a tenth of a millisecond.
fn fast() -> TimeScale {
    TimeScale::new(0.0001).expect("it is possible")
}

fn emulated(name: &str, backing: Arc<dyn BlockDevice>) -> EmulatedDisk {
    let profile = profile(name).expect("there is such a profile");
    EmulatedDisk::new(&profile, &Options::default(), fast(), backing).expect("a thread can be started")
}

fn memory(mebibytes: u64) -> Arc<Memory> {
    Arc::new(Memory::new(ByteSize(mebibytes << 20)))
}

/// The disk's work without its thread: the test passes the time.
fn worker(name: &str, options: &Options) -> DiskWorker {
    DiskWorker::new(profile(name).expect("there is such a profile").powered(options))
}

fn serve(worker: &mut DiskWorker, at: Nanos, op: Op, lba: u64) -> Receiver<()> {
    let (answer, answered) = sync_channel(1);
    worker.take(WorkerMessage::Serve(PendingRequest { at, op, lba: Lba(lba), sectors: 8, answer }));
    answered
}

fn sleep(worker: &mut DiskWorker, at: Nanos) -> Receiver<()> {
    let (answer, answered) = sync_channel(1);
    worker.take(WorkerMessage::Standby { at, answer });
    answered
}

fn is_answered(answer: &Receiver<()>) -> bool {
    match answer.try_recv() {
        Ok(()) => true,
        Err(TryRecvError::Empty) => false,
        Err(TryRecvError::Disconnected) => panic!("it was answered before, or never will be"),
    }
}

const MS: u64 = 1_000_000;

#[test]
fn what_is_written_by_many_at_once_is_what_the_backing_device_holds() {
    const REGION: usize = 1 << 20;
    for (name, seed) in [("deskstar_500gb", 1_u64), ("travelstar_e7k100", 2), ("sata_ssd", 3), ("raid5", 4)] {
        println!("{name}, seed {seed}");
        let backing = memory(8);
        let disk = emulated(name, Arc::clone(&backing) as _);
        let client = |region: usize| {
            let mut numbers = ChaCha8Rng::seed_from_u64(seed * 100 + region as u64);
            let mut expected = vec![0_u8; REGION];
            let base = (region * REGION) as u64 / SECTOR_BYTES;
            for _ in 0..120 {
                let start = numbers.random_range(0..2000_usize);
                let sectors = numbers.random_range(1..=(2048 - start).min(64));
                let (from, to) = (start * 512, (start + sectors) * 512);
                let (at, range) = (
                    Lba(base + start as u64),
                    SectorRange { start: Lba(base + start as u64), sectors: sectors as u64 },
                );
                let durability = if numbers.random() { Durability::Cached } else { Durability::Through };
                match numbers.random_range(0..10) {
                    0..=4 => {
                        expected[from..to].fill_with(|| numbers.random());
                        disk.write(at, &expected[from..to], durability).expect("it is written");
                    }
                    5..=7 => {
                        let mut buffer = vec![0xaa; to - from];
                        disk.read(at, &mut buffer).expect("it is read");
                        assert!(buffer == expected[from..to], "{name}: {range} of region {region}");
                    }
                    8 => {
                        expected[from..to].fill(0);
                        let zeroes = if numbers.random() { Zeroes::Unmap } else { Zeroes::Keep };
                        disk.write_zeroes(range, zeroes, durability).expect("zeroes are written");
                    }
                    _ => disk.flush().expect("it is flushed"),
                }
            }
            expected
        };
        let expected: Vec<u8> = thread::scope(|scope| {
            let clients: Vec<_> = (0..8).map(|region| scope.spawn(move || client(region))).collect();
            clients.into_iter().flat_map(|client| client.join().expect("no client fails")).collect()
        });
        assert!(backing.to_bytes() == expected, "{name}");
        assert!(disk.meter().expect("it runs").served >= 8 * 120, "{name}");
    }
}

#[test]
fn a_lone_caller_waits_exactly_as_long_as_the_model_says() {
    let slc = profile("slc_memoright").expect("there is such a profile");
    let mut twin = slc.build(&Options::default());
    twin.submit(
        Nanos(0),
        umbrella_model::device::Request {
            id: umbrella_model::device::RequestId(0),
            op: Op::Read,
            lba: Lba(0),
            sectors: 8,
        },
    );
    let service = twin.next_event().expect("it is under way");
    let disk = emulated("slc_memoright", memory(4));
    let mut buffer = [0; 4096];
    for index in 0..50 {
        disk.read(Lba(index * 8), &mut buffer).expect("it is read");
    }
    let meter = disk.meter().expect("it runs");
    assert_eq!((meter.served, meter.waited), (50, Nanos(50 * service.0)));
    assert_eq!(meter.power.time_in(PowerState::Active), Nanos(50 * service.0));
    assert!(meter.now >= meter.waited, "virtual time is not slower than the wall clock says");
    assert_eq!((meter.device.reads, meter.device.sectors_read), (50, 400));
}

#[test]
fn more_callers_than_there_is_room_for_are_served_in_order_or_as_the_queue_chooses() {
    let order = |depth| {
        let mut worker = worker("deskstar_500gb", &Options { queue_depth: Some(depth), ..Options::default() });
        // The farthest first.
        let answers: Vec<_> = (0..40).map(|n| serve(&mut worker, Nanos(0), Op::Read, (40 - n) * 20_000_000)).collect();
        let (mut order, mut left) = (Vec::new(), (0..40).collect::<Vec<usize>>());
        for step in 1..4000 {
            worker.advance(Nanos(step * MS / 10));
            left.retain(|&index| {
                let answered = is_answered(&answers[index]);
                if answered {
                    order.push(index);
                }
                !answered
            });
        }
        order
    };
    assert_eq!(order(1), (0..40).collect::<Vec<_>>());
    assert_ne!(order(32), (0..40).collect::<Vec<_>>());
    let mut all = order(32);
    all.sort_unstable();
    assert_eq!(all, (0..40).collect::<Vec<_>>());
}

#[test]
fn oversleeping_changes_no_time_but_that_of_the_answer() {
    let run = |wakings: &[u64]| {
        let mut worker = worker("deskstar_500gb", &Options { queue_depth: Some(2), ..Options::default() });
        let answers: Vec<_> =
            (0..20).map(|n| serve(&mut worker, Nanos(n), Op::Read, n * 7_000_000 % 90_000_000)).collect();
        for &waking in wakings {
            worker.advance(Nanos(waking));
        }
        assert!(answers.iter().all(is_answered));
        (worker.meter().waited, worker.meter().device)
    };
    let punctual: Vec<u64> = (0..10_000).map(|step| step * MS / 10).collect();
    assert_eq!(run(&punctual), run(&[5 * MS, 130 * MS, 1000 * MS]));
}

#[test]
fn a_read_wakes_a_sleeping_disk() {
    let disk = emulated("travelstar_e7k100", memory(4));
    assert_eq!(disk.power().expect("it runs"), Power::Spinning);
    disk.standby().expect("it can sleep");
    assert_eq!(disk.power().expect("it runs"), Power::Standby);
    disk.flush().expect("nothing is left to flush");
    assert_eq!(disk.power().expect("it runs"), Power::Standby, "that is no reason to wake up");
    let before = disk.meter().expect("it runs");
    disk.read(Lba(80), &mut [0; 512]).expect("it wakes up");
    let after = disk.meter().expect("it runs");
    assert_eq!(disk.power().expect("it runs"), Power::Spinning);
    assert_eq!((after.power.spin_downs, after.power.spin_ups, after.power.delayed), (1, 1, 1));
    assert_eq!(after.power.time_in(PowerState::SpinningDown), Nanos::from_secs(2));
    assert_eq!(after.power.time_in(PowerState::SpinningUp), Nanos::from_secs(4));
    assert!(after.waited - before.waited >= Nanos::from_secs(4), "the read waited for the motor");
    // 3.8 W for 4 s.
    assert!((after.power.energy_in(PowerState::SpinningUp, &after.spec).joules() - 15.2).abs() < 1e-9);
    assert!(after.energy() > before.energy());
}

#[test]
fn a_disk_that_is_woken_can_be_used_when_the_call_returns() {
    let disk = emulated("modern", memory(4));
    disk.wake().expect("it is awake");
    disk.standby().expect("it can sleep");
    disk.standby().expect("it sleeps already");
    disk.wake().expect("it wakes up");
    assert_eq!(disk.power().expect("it runs"), Power::Spinning);
    disk.write(Lba(0), &[1; 512], Durability::Through).expect("it is written");
    let power = disk.meter().expect("it runs").power;
    assert_eq!((power.spin_downs, power.spin_ups, power.delayed), (1, 1, 0));
}

#[test]
fn what_is_in_the_buffer_is_written_out_before_the_motor_stops() {
    let mut worker = worker("deskstar_500gb", &Options::default());
    let answers: Vec<_> = (0..20).map(|n| serve(&mut worker, Nanos(0), Op::Write, n * 40_000_000)).collect();
    worker.advance(Nanos(10 * MS));
    assert!(answers.iter().all(is_answered), "all is in the buffer");
    let asleep = sleep(&mut worker, Nanos(10 * MS));
    worker.advance(Nanos(60 * MS));
    assert_eq!(worker.meter().state, PowerState::Active, "twenty places take longer than that");
    worker.advance(Nanos::from_secs(30));
    assert!(is_answered(&asleep));
    let meter = worker.meter();
    assert_eq!((meter.state, meter.power.spin_downs), (PowerState::Standby, 1));
    assert!(meter.device.seeks >= 18, "{:?}", meter.device);
}

#[test]
fn a_disk_that_is_needed_before_it_sleeps_stays_awake_and_says_so() {
    let mut worker = worker("deskstar_500gb", &Options::default());
    let written = serve(&mut worker, Nanos(0), Op::Write, 900_000_000);
    worker.advance(Nanos(MS));
    assert!(is_answered(&written));
    let asleep = sleep(&mut worker, Nanos(MS));
    let read = serve(&mut worker, Nanos(2 * MS), Op::Read, 8);
    worker.advance(Nanos(100 * MS));
    assert!(is_answered(&read) && is_answered(&asleep));
    assert_eq!((worker.meter().state, worker.meter().power.spin_downs), (PowerState::Idle, 0));
}

#[test]
fn a_write_that_must_be_on_the_medium_waits_for_it() {
    let waited = |durability, write_cache| {
        let profile = profile("deskstar_500gb").expect("there is such a profile");
        let options = Options { write_cache: Some(write_cache), ..Options::default() };
        let disk = EmulatedDisk::new(&profile, &options, fast(), memory(64)).expect("a thread can be started");
        disk.write(Lba(100_000), &[7; 4096], durability).expect("it is written");
        disk.meter().expect("it runs").waited
    };
    let cached = waited(Durability::Cached, true);
    assert!(cached < Nanos::from_micros(400), "overhead and transfer: {cached}");
    assert!(waited(Durability::Through, true) > cached, "the platters have to come around");
    assert!(waited(Durability::Cached, false) > Nanos::from_micros(300));
}

#[test]
fn flash_cannot_be_put_to_sleep() {
    let flash = emulated("sandisk_ultra2", memory(1));
    let error = flash.standby().expect_err("it has no motor").to_string();
    assert_eq!(error, "emulated sandisk_ultra2: power management failed: it has no motor to switch off");
    flash.wake().expect("it is awake");
    assert_eq!(flash.power().expect("it runs"), Power::Spinning);
}

#[test]
fn the_disk_is_as_large_as_the_smaller_of_profile_and_backing_device() {
    let disk = emulated("deskstar_500gb", memory(4));
    let geometry = disk.geometry();
    assert_eq!((geometry.capacity, geometry.rotational, geometry.queue_depth), (Lba(8192), true, 32));
    let one_megabyte = Options { capacity: Some(ByteSize(1 << 20)), ..Options::default() };
    let profile = profile("slc_memoright").expect("there is such a profile");
    let flash = EmulatedDisk::new(&profile, &one_megabyte, fast(), memory(4)).expect("a thread can be started");
    let geometry = flash.geometry();
    assert_eq!((geometry.capacity, geometry.rotational, geometry.queue_depth), (Lba(2048), false, 1));
    assert!(matches!(flash.write(Lba(2048), &[0; 512], Durability::Cached), Err(BlockError::BeyondEnd { .. })));
    assert!(matches!(flash.read(Lba(0), &mut [0; 511]), Err(BlockError::Unaligned { .. })));
    assert_eq!(flash.meter().expect("it runs").served, 0);
}

/// A backing device that counts flushes, and fails to read its second half.
struct Odd {
    memory: Memory,
    flushes: Arc<AtomicU64>,
}

impl BlockDevice for Odd {
    crate::forward!(memory: write, discard, write_zeroes);

    fn geometry(&self) -> Geometry {
        Geometry { logical_block: 4096, ..self.memory.geometry() }
    }

    fn read(&self, at: Lba, buffer: &mut [u8]) -> Result<(), BlockError> {
        if at >= Lba(self.memory.geometry().capacity.0 / 2) {
            return Err(BlockError::io(&"odd".into(), Operation::Read, None, io::Error::other("it is worn out")));
        }
        self.memory.read(at, buffer)
    }

    fn flush(&self) -> Result<(), BlockError> {
        self.flushes.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

fn odd(bytes: u64) -> (Arc<Odd>, Arc<AtomicU64>) {
    let flushes = Arc::new(AtomicU64::new(0));
    (Arc::new(Odd { memory: Memory::new(ByteSize(bytes)), flushes: Arc::clone(&flushes) }), flushes)
}

#[test]
fn blocks_are_those_of_the_backing_device_and_so_are_errors() {
    let (backing, _) = odd((1 << 20) + 1024);
    let disk = emulated("modern", backing);
    assert_eq!((disk.geometry().capacity, disk.geometry().logical_block), (Lba(2048), 4096));
    assert!(matches!(disk.read(Lba(1), &mut [0; 4096]), Err(BlockError::Unaligned { .. })));
    let error = disk.read(Lba(1600), &mut [0; 4096]).expect_err("it cannot be read").to_string();
    assert_eq!(error, "odd: read failed: it is worn out");
    disk.read(Lba(0), &mut [0; 4096]).expect("the rest can");
}

#[test]
fn a_disk_that_is_dropped_while_requests_wait_answers_them_flushes_and_ends_its_thread() {
    let (backing, flushes) = odd(16 << 20);
    let disk = Arc::new(emulated("travelstar_e7k100", Arc::clone(&backing) as _));
    disk.standby().expect("it can sleep");
    let clients: Vec<_> = (0..8)
        .map(|client| {
            let disk = Arc::clone(&disk);
            thread::spawn(move || (0..5).try_for_each(|n| disk.read(Lba((client * 5 + n) * 64), &mut [0; 4096])))
        })
        .collect();
    drop(disk);
    for client in clients {
        client.join().expect("no client panics").expect("all is read");
    }
    assert_eq!(flushes.load(Ordering::SeqCst), 1);
    assert_eq!(Arc::strong_count(&backing), 1, "nobody holds the backing device any more");
}

#[test]
fn who_stops_waiting_is_served_nonetheless() {
    let mut worker = worker("deskstar_500gb", &Options::default());
    drop(serve(&mut worker, Nanos(0), Op::Write, 0));
    worker.advance(Nanos(MS));
    assert_eq!(worker.meter().served, 1);
}

/// Sixteen terabytes that take no memory.
struct Sparse;

impl BlockDevice for Sparse {
    fn geometry(&self) -> Geometry {
        let capacity = Lba(16_000_000_000_000 / 512);
        Geometry { capacity, logical_block: 512, physical_block: 512, rotational: false, queue_depth: 1 }
    }

    fn read(&self, _: Lba, _: &mut [u8]) -> Result<(), BlockError> {
        Ok(())
    }

    fn write(&self, _: Lba, _: &[u8], _: Durability) -> Result<(), BlockError> {
        Ok(())
    }

    fn flush(&self) -> Result<(), BlockError> {
        Ok(())
    }

    fn discard(&self, _: SectorRange) -> Result<(), BlockError> {
        Ok(())
    }

    fn write_zeroes(&self, _: SectorRange, _: Zeroes, _: Durability) -> Result<(), BlockError> {
        Ok(())
    }
}

#[test]
fn a_range_longer_than_a_request_of_the_model_can_be_is_timed_in_pieces() {
    let disk = emulated("modern", Arc::new(Sparse));
    let ten_gibibytes = SectorRange { start: Lba(0), sectors: 10 << 21 };
    disk.write_zeroes(ten_gibibytes, Zeroes::Keep, Durability::Cached).expect("it is written");
    let meter = disk.meter().expect("it runs");
    assert_eq!((meter.device.writes, meter.device.sectors_written), (10, 10 << 21));
    disk.discard(SectorRange { start: Lba(0), sectors: disk.geometry().capacity.0 }).expect("it is forgotten");
}
