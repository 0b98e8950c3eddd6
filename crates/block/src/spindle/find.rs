//! Finds the disk that a device belongs to, whether it has a motor, and which commands that understands.
//!
//! The kernel's files say all except the commands; for those, INQUIRY is sent to the disk. That wakes nothing: disks
//! answer it asleep or not, and for ATA disks the kernel does.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Sleepless;
use super::sg::{CommandError, Transport, run};

/// The device file of the disk that a device is or lies on, if it can sleep. `sys` is where sysfs is mounted.
pub(super) fn whole_disk(sys: &Path, device: u64) -> io::Result<Result<PathBuf, Sleepless>> {
    let numbers = format!("dev/block/{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let mut folder = fs::canonicalize(sys.join(numbers))?;
    if folder.join("partition").exists() {
        folder.pop();
    }
    // SCSI disks, and ATA disks as the kernel shows them, have a level; peripheral type 0 is a disk.
    let scsi = folder.join("device");
    if !scsi.join("scsi_level").exists() || fs::read_to_string(scsi.join("type"))?.trim() != "0" {
        return Ok(Err(Sleepless::NoDisk));
    }
    if fs::read_to_string(folder.join("queue/rotational"))?.trim() == "0" {
        return Ok(Err(Sleepless::NoPlatters));
    }
    let name = folder.file_name().ok_or(io::ErrorKind::NotFound)?.to_string_lossy().replace('!', "/");
    Ok(Ok(Path::new("/dev").join(name)))
}

/// Which commands a disk understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommandSet {
    /// ATA, through ATA PASS-THROUGH.
    Ata,
    /// SCSI.
    Scsi,
}

const TIMEOUT: Duration = Duration::from_secs(30);
/// What the device is, 36 bytes.
const INQUIRY: [u8; 6] = [0x12, 0, 0, 0, 36, 0];
/// The page "ATA information", which what translates for an ATA disk has: its first 64 bytes.
const INQUIRY_ATA: [u8; 6] = [0x12, 1, 0x89, 0, 64, 0];

/// Asks the disk.
pub(super) fn command_set(transport: &dyn Transport) -> Result<CommandSet, CommandError> {
    let mut data = [0; 36];
    run(transport, &INQUIRY, &mut data, TIMEOUT)?;
    if &data[8..16] == b"ATA     " {
        return Ok(CommandSet::Ata);
    }
    let mut page = [0; 64];
    match run(transport, &INQUIRY_ATA, &mut page, TIMEOUT) {
        Ok(_) if page[1] == 0x89 => Ok(CommandSet::Ata),
        Ok(_) | Err(CommandError::Sense { .. }) => Ok(CommandSet::Scsi),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::sg::Reply;
    use super::super::testing::{Script, sense};
    use super::*;

    /// A sysfs with one device, number 8:16, and the files that it has.
    fn sysfs(folder: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder can be made");
        let device = root.path().join("devices").join(folder);
        fs::create_dir_all(&device).expect("a folder can be made");
        for (name, text) in files {
            let path = device.join(name);
            fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("a folder can be made");
            fs::write(path, text).expect("a file can be written");
        }
        fs::create_dir_all(root.path().join("dev/block")).expect("a folder can be made");
        symlink(&device, root.path().join("dev/block/8:16")).expect("a link can be made");
        root
    }

    fn found(folder: &str, files: &[(&str, &str)]) -> Result<PathBuf, Sleepless> {
        whole_disk(sysfs(folder, files).path(), rustix::fs::makedev(8, 16)).expect("it can be read")
    }

    const DISK: [(&str, &str); 3] = [("device/scsi_level", "6\n"), ("device/type", "0\n"), ("queue/rotational", "1\n")];

    #[test]
    fn a_disk_with_platters_is_found_also_by_its_partition() {
        assert_eq!(found("pci/block/sdb", &DISK), Ok("/dev/sdb".into()));
        let partition = [
            ("../device/scsi_level", "6\n"),
            ("../device/type", "0\n"),
            ("../queue/rotational", "1\n"),
            ("partition", "1\n"),
        ];
        assert_eq!(found("pci/block/sdb/sdb1", &partition), Ok("/dev/sdb".into()));
    }

    #[test]
    fn what_is_no_disk_or_has_no_platters_is_told_apart() {
        assert_eq!(found("virtual/block/loop0", &[("queue/rotational", "1\n")]), Err(Sleepless::NoDisk));
        let virtio = [("device/vendor", "0x1af4\n"), ("queue/rotational", "1\n")];
        assert_eq!(found("virtio1/block/vda", &virtio), Err(Sleepless::NoDisk));
        let tape = [("device/scsi_level", "6\n"), ("device/type", "1\n"), ("queue/rotational", "1\n")];
        assert_eq!(found("pci/block/st0", &tape), Err(Sleepless::NoDisk));
        let flash = [("device/scsi_level", "6\n"), ("device/type", "0\n"), ("queue/rotational", "0\n")];
        assert_eq!(found("pci/block/sdb", &flash), Err(Sleepless::NoPlatters));
    }

    #[test]
    fn a_device_that_the_kernel_does_not_know_is_an_error() {
        let error = whole_disk(sysfs("x", &DISK).path(), rustix::fs::makedev(8, 32)).expect_err("there is none");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    fn inquiry(vendor: [u8; 8]) -> (Reply, Vec<u8>) {
        (Reply::default(), [&[0, 0, 6, 2, 31, 0, 0, 0], vendor.as_slice(), b"MODEL           REV1"].concat())
    }

    #[test]
    fn ata_disks_are_known_by_their_vendor_or_by_the_page_about_them() {
        let direct = Script::with_data([inquiry(*b"ATA     ")]);
        assert_eq!(command_set(&direct).expect("it answers"), CommandSet::Ata);
        assert_eq!(direct.commands(), [[0x12, 0, 0, 0, 36, 0]]);
        let bridge = Script::with_data([inquiry(*b"WD      "), (Reply::default(), vec![0, 0x89, 0x02, 0x38])]);
        assert_eq!(command_set(&bridge).expect("it answers"), CommandSet::Ata);
        assert_eq!(bridge.commands()[1], [0x12, 1, 0x89, 0, 64, 0]);
    }

    #[test]
    fn a_disk_without_that_page_is_a_scsi_disk() {
        let refused = Reply { status: 2, host_status: 0, sense: sense(5, 0x24, 0) };
        let sas = Script::with_data([inquiry(*b"SEAGATE "), (refused, vec![])]);
        assert_eq!(command_set(&sas).expect("it answers"), CommandSet::Scsi);
        let other = Script::with_data([inquiry(*b"SEAGATE "), (Reply::default(), vec![0, 0x83])]);
        assert_eq!(command_set(&other).expect("it answers"), CommandSet::Scsi);
        let gone = Reply { host_status: 1, ..Reply::default() };
        assert!(command_set(&Script::with_data([inquiry(*b"SEAGATE "), (gone, vec![])])).is_err());
    }
}
