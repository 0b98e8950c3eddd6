//! A store that is only looked at is never written to, whatever is damaged.

use super::*;
use crate::error::BlockError;

/// A device on which every write is a failure of the test.
struct Sealed(Arc<dyn BlockDevice>);

impl BlockDevice for Sealed {
    crate::forward!(0: geometry, read, flush);

    fn write(&self, at: Lba, _: &[u8], _: Durability) -> Result<(), BlockError> {
        panic!("something writes at {at:?}");
    }

    fn discard(&self, range: SectorRange) -> Result<(), BlockError> {
        panic!("something discards {range:?}");
    }

    fn write_zeroes(&self, range: SectorRange, _: Zeroes, _: Durability) -> Result<(), BlockError> {
        panic!("something zeroes {range:?}");
    }
}

#[test]
fn read_only_commands_write_nothing_whatever_is_damaged() {
    let (whole, _) = after_random_work(11, 60);
    let superblock = superblock(&whole);
    let blocks = whole.len() / 4096;
    let areas = areas(&superblock);
    let mut damages: Vec<Vec<usize>> = vec![Vec::new(), vec![0], vec![256 * 4096], vec![0, 256 * 4096]];
    damages.extend(areas.map(|at| vec![at]));
    damages.extend(areas.map(|at| vec![at + 4096]));
    damages.push(areas.to_vec());
    let used = (512..blocks).filter(|block| whole[block * 4096..][..4096].iter().any(|byte| *byte != 0));
    damages.extend(used.step_by(23).map(|block| vec![block * 4096]));
    let whole = from_bytes(whole);
    for at in damages {
        let device: Arc<dyn BlockDevice> = Arc::new(Sealed(damaged(&whole, &at)));
        for depth in [Depth::Structure, Depth::Data] {
            _ = try_check(&device, depth);
        }
        if let Ok(mut salvage) = Salvage::open(Arc::clone(&device), "disk") {
            _ = salvage.copy(|_, _| Ok::<(), ()>(()), &mut |_, _| {});
        }
        for threads in [false, true] {
            let options = Options { threads, ..by_hand() };
            let Ok(store) = LogStore::open(Arc::clone(&device), "disk", options, OpenMode::ReadOnly) else { continue };
            for block in 0..sectors_of(&store) / 8 {
                _ = store.read(Lba(block * 8), &mut fill(0, 8));
            }
            assert!(store.write(Lba(0), &fill(1, 8), Durability::Through).is_err());
            assert!(store.discard(range(0, 8)).is_err());
            assert!(store.write_zeroes(range(0, 8), Zeroes::Unmap, Durability::Through).is_err());
            _ = store.flush();
            _ = store.checkpoint();
            _ = store.grow();
            _ = store.close();
        }
    }
}
