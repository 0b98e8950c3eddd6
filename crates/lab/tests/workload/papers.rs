//! The papers' parameters come out when a workload is run to its end.

use umbrella_lab::workload::{ClientId, FileOperation};
use umbrella_units::Nanos;

use crate::model::{Speed, build, run, run_for, within};

#[test]
fn seq_write_appends_4_kib_for_60_s() {
    let seen = run("seq-write", 1.0);
    assert_eq!((seen.creates, seen.reads, seen.largest_write), (1, 0, 4096));
    assert_eq!(seen.model.files().map(|file| file.size).sum::<u64>(), seen.written);
    assert!((60.0..60.001).contains(&seen.end.as_secs_f64()), "{}", seen.end);
}

#[test]
fn rnd_write_writes_16_kib_all_over_2_gib() {
    let seen = run("rnd-write", 1.0);
    assert_eq!((seen.prepared_bytes, seen.creates, seen.reads), (2 << 30, 0, 0));
    assert_eq!(seen.written, seen.writes * 16_384);
    let mean = seen.places.iter().map(|((_, place), n)| (place * n) as f64).sum::<f64>() / seen.writes as f64;
    within(mean, (1_u64 << 30) as f64, 0.02);
    assert!(seen.places.keys().all(|(_, place)| place % 16_384 == 0));
    assert!((60.0..60.001).contains(&seen.end.as_secs_f64()), "{}", seen.end);
}

#[test]
fn the_file_server_has_8000_of_10000_files_of_128_kib_and_goes_through_its_five_calls() {
    let seen = run("fileserver", 1.0);
    within(seen.prepared_files as f64, 8_000.0, 0.03);
    within(seen.prepared_bytes as f64 / seen.prepared_files as f64, 131_072.0, 0.05);
    assert_eq!(seen.prepared_dirs, 500 + 25 + 2);
    within(seen.creates as f64, seen.deletes as f64, 0.02);
    within(seen.creates as f64, seen.stats as f64, 0.02);
    assert!(seen.largest_write <= 1 << 20 && seen.largest_write > 16_384);
    assert!((60.0..61.0).contains(&seen.end.as_secs_f64()), "{}", seen.end);
}

#[test]
fn appends_of_the_file_server_are_8_kib_on_average() {
    let mut workload = build("fileserver:threads=1", 3, 1.0);
    while workload.prepare().is_some() {}
    let (mut appends, mut bytes) = (0_u64, 0_u64);
    for _ in 0..60_000 {
        if let Some(FileOperation::Write { offset, size, .. }) = workload.next(ClientId(0), Nanos(0))
            && offset.0 > 0
            && size.0 <= 16_384
            && offset.0 % (1 << 20) != 0
        {
            appends += 1;
            bytes += size.0;
        }
    }
    assert!(appends > 9_000);
    within(bytes as f64 / appends as f64, 8_192.0, 0.03);
}

#[test]
fn the_video_server_streams_4_files_of_1_gib_to_4_readers() {
    let seen = run("videoserver", 1.0);
    assert_eq!((seen.prepared_files, seen.prepared_bytes, seen.writes), (4, 4 << 30, 0));
    assert_eq!(seen.reads_by_client.len(), 4);
    assert_eq!(seen.read, seen.reads * (256 << 10));
}

#[test]
fn the_video_servers_writer_replaces_films_while_others_are_read() {
    let seen = run("videoserver:passive=3,size=64MiB", 1.0);
    assert_eq!(seen.prepared_files, 7);
    assert_eq!(seen.model.files().count(), 7);
    assert_eq!(seen.creates, seen.deletes);
    assert!((5..=6).contains(&seen.creates), "{} films in 60 s", seen.creates);
    assert_eq!(seen.writes_by_client.keys().collect::<Vec<_>>(), [&4]);
}

#[test]
fn postmark_does_what_tesa_asked_of_it() {
    let seen = run("postmark", 1.0);
    assert_eq!(seen.phases, ["create", "transactions", "delete"]);
    assert_eq!((seen.prepared_dirs, seen.prepared_files), (100, 0));
    assert_eq!(seen.creates, seen.deletes, "all is removed in the end");
    // 200,000 transactions, half of which create a file.
    within((seen.creates - 100_000) as f64, 100_000.0, 0.01);
    assert_eq!(seen.largest_write, 4096);
}

#[test]
fn postmarks_files_are_5250_bytes_on_average() {
    let mut workload = build("postmark", 1, 1.0);
    while workload.prepare().is_some() {}
    let (mut files, mut bytes) = (0_u64, 0_u64);
    loop {
        match workload.next(ClientId(0), Nanos(0)).unwrap() {
            FileOperation::Phase { name: "transactions" } => break,
            FileOperation::Create { .. } => files += 1,
            FileOperation::Write { size, .. } => bytes += size.0,
            _ => {}
        }
    }
    assert_eq!(files, 100_000);
    within(bytes as f64 / files as f64, f64::midpoint(500.0, 10_000.0), 0.01);
}

#[test]
fn postmark_does_what_umbrellafs_and_mram_asked_of_it() {
    let seen = run("postmark:files=12500,low=8KiB,high=64KiB,dirs=200,transactions=25000", 1.0);
    assert_eq!(seen.prepared_dirs, 200);
    within((seen.creates - 12_500) as f64, 12_500.0, 0.03);
    let seen = run("postmark:files=500,low=2MiB,high=6MiB,dirs=0,transactions=1000", 1.0);
    assert_eq!(seen.prepared_dirs, 0);
    assert!(seen.written > 500 * (3 << 20));
}

#[test]
fn postmark_keeps_at_most_twice_the_files_of_the_beginning() {
    let mut workload = build("postmark:files=10,transactions=1000,create-bias=10", 1, 1.0);
    while workload.prepare().is_some() {}
    let mut creates = 0;
    while let Some(step) = workload.next(ClientId(0), Nanos(0)) {
        creates += u64::from(matches!(step, FileOperation::Create { .. }));
    }
    assert_eq!(creates, 20);
}

#[test]
fn the_backup_copies_18630_files_of_649_mib() {
    let seen = run("data-backup", 1.0);
    assert_eq!((seen.creates, seen.written, seen.reads), (18_630, 649 << 20, 0));
    within(seen.mkdirs as f64, 18_630.0 / 10.2, 0.01);
}

#[test]
fn the_backup_also_makes_the_files_of_mrams_figure_4_1() {
    let empty = run("data-backup:files=32768,total=1B,per-dir=1000000", 1.0);
    assert_eq!((empty.creates, empty.mkdirs, empty.written), (32_768, 1, 1));
    let large = run("data-backup:files=100,total=10GB,sigma=0,per-dir=1000000", 1.0);
    assert_eq!((large.creates, large.mkdirs, large.written), (100, 1, 10_000_000_000));
    assert!(large.model.files().all(|file| file.size == 100_000_000));
}

#[test]
fn bonnie_writes_its_file_three_times_and_seeks_8000_times() {
    let seen = run("bonnie", 1.0);
    let gib = 1_u64 << 30;
    assert_eq!(seen.phases, ["char-write", "block-write", "rewrite", "char-read", "block-read", "seek"]);
    // By character, by block, rewritten; a tenth of the 8000 seeks.
    within((seen.written - 3 * gib) as f64 / 8192.0, 800.0, 0.1);
    assert_eq!(seen.read, 3 * gib + 8000 * 8192);
    assert_eq!(seen.model.files().count(), 0);
    assert_eq!(seen.reads_by_client.len(), 3);
}

#[test]
fn bonnie_without_characters_writes_its_file_twice() {
    let seen = run("bonnie:chars=false,files=100,seeks=0", 1.0);
    assert_eq!(seen.written, 2 << 30);
    assert_eq!((seen.creates, seen.stats, seen.deletes), (201, 200, 201));
    assert_eq!(
        seen.phases[3..],
        ["seek", "create", "stat", "delete", "create-at-random", "stat-at-random", "delete-at-random"]
    );
}

#[test]
fn untar_writes_540802444_bytes_in_pieces_of_at_most_10_kib() {
    let seen = run("untar", 1.0);
    assert_eq!((seen.creates, seen.mkdirs, seen.written), (21_000, 1_100, 540_802_444));
    assert_eq!(seen.largest_write, 10_240);
    assert_eq!(seen.read, seen.prepared_bytes, "the archive is read once");
    within(seen.prepared_bytes as f64, f64::from(540_802_444 + 22_100 * 512 + 21_000 * 256), 0.001);
}

#[test]
fn zipf_writers_of_iozone_rewrite_popular_records() {
    for writers in [2_u32, 4, 8] {
        let seen = run(&format!("iozone:writers={writers},file=16MiB"), 1.0);
        assert_eq!((seen.prepared_files, seen.prepared_bytes), (16, 16 * (16 << 20)));
        let records = 4096.0;
        // theta 1: the most popular of n records gets 1/H(n) of the writes; H(4096) = 8.895.
        for file in 2..2 + u64::from(writers) {
            let most = seen.places.iter().filter(|((of, _), _)| *of == file).map(|(_, n)| *n).max().unwrap();
            within(most as f64, records / 8.895, 0.15);
            assert_eq!(seen.writes_by_client[&(file as u32 - 2)], 4096);
        }
        for client in writers..16 {
            within(seen.reads_by_client[&client] as f64, records / 2.0, 0.1);
            assert_eq!(seen.reads_by_client[&client] + seen.writes_by_client[&client], 4096);
        }
    }
}

#[test]
fn zipf_writers_whose_files_are_made_last_are_the_last_clients() {
    let seen = run("iozone:writers=2,file=1MiB,writers-last=true", 1.0);
    assert!(seen.reads_by_client.keys().copied().eq(0..14), "{:?}", seen.reads_by_client);
}

#[test]
fn iozones_popular_records_follow_the_power_law() {
    let seen = run("iozone:procs=1,writers=1,file=4MiB,passes=500,theta=1.5", 1.0);
    let mut counts: Vec<u64> = seen.places.values().copied().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    // Rank 1 to rank 8: 8^1.5.
    within(counts[0] as f64 / counts[7] as f64, 8_f64.powf(1.5), 0.05);
}

#[test]
fn dbench_has_100_clients_for_300_s() {
    let workload = build("dbench:load=stand-in", 1, 1.0);
    assert_eq!(workload.clients(), 100);
    assert!(workload.warnings().is_empty());
    let slow = Speed { call: Nanos::from_millis(100), per_kib: Nanos(0) };
    let seen = run_for(workload, slow, true, u64::MAX);
    assert_eq!(seen.prepared_dirs, 100);
    assert!((300.0..300.2).contains(&seen.end.as_secs_f64()), "{}", seen.end);
}

#[test]
fn the_kernel_is_compiled_by_4_jobs_and_linked_once_all_objects_are_there() {
    let seen = run("kernel-compile", 0.1);
    // 600 objects and lists of dependencies, 30 directories, the kernel.
    assert_eq!(seen.creates, 2 * 600 + 30 + 1);
    assert_eq!(seen.phases, ["link"]);
    assert_eq!(seen.reads, 600 + 600 * 150 + 600 + 30);
    // Computing of 0.5 s a source, four at a time.
    within(seen.end.as_secs_f64(), 600.0 * 0.5 / 4.0, 0.25);
    let kernel = seen.model.files().map(|file| file.size).max().unwrap();
    within(kernel as f64, 600.0 * 100_000.0, 0.2);
}

#[test]
fn ninety_percent_of_the_updates_go_to_ten_percent_of_the_files_and_half_of_the_others_never_change() {
    let seen = run("hot-cold:files=10000,updates=50000", 1.0);
    assert_eq!((seen.prepared_files, seen.prepared_dirs, seen.prepared_bytes), (10_000, 100, 1_000_000_000));
    assert_eq!(seen.written, 50_000 * 100_000);
    let mut updates: Vec<u64> =
        seen.places.iter().filter(|((_, offset), _)| *offset == 0).map(|(_, updates)| *updates).collect();
    updates.sort_unstable_by(|a, b| b.cmp(a));
    within(updates[..1000].iter().sum::<u64>() as f64, 45_000.0, 0.02);
    // 1000 hot and 4500 cold files; each cold one is missed with probability exp(-5000/4500) = 0.33.
    within(updates.len() as f64, 1000.0 + 4500.0 * 0.67, 0.03);
}
