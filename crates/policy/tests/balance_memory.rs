//! What a balance over very many files takes of memory: in a process of its own, as the kernel counts it.

use umbrella_policy::balance::{Inventory, InventoryFile, Member};
use umbrella_units::ByteSize;

/// Bytes that the process had in memory at most.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// What names a file on a disk: the branch, the device, the inode.
type Name = (u16, u64, u64);

#[test]
fn a_file_takes_little_memory_while_a_group_is_evened_out() {
    const FILES: u64 = 1_000_000;
    let before = peak();
    let mut inventory: Inventory<Name> = Inventory::new(4);
    let mut used = [ByteSize(0); 4];
    for file in 0..FILES {
        // Sizes of all kinds, most of them on the first two members.
        let bytes = ByteSize(4096 * (1 + file.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 1000));
        let on = [0, 0, 0, 1, 1, 2][(file % 6) as usize];
        used[on].0 += bytes.0;
        inventory.note((on as u16, 0, file), InventoryFile { on, may_be_on: &[0, 1, 2, 3], bytes }, []);
    }
    let noted = peak();
    let members = used.map(|used| Member { total: ByteSize(10 << 40), used, room: ByteSize(1 << 40), files: u64::MAX });
    let moves = inventory.plan(&members, 0);
    let after = peak();
    println!(
        "{FILES} files: {} bytes each when noted, {} when planned",
        (noted - before) / FILES,
        (after - before) / FILES
    );
    assert!(moves.bytes.0 > used[0].0 / 4, "many move: {} of {}", moves.bytes, used[0]);
    assert!(after - before < FILES * 150, "{} bytes for {FILES} files", after - before);
}
