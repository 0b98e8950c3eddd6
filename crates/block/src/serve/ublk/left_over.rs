//! Devices of daemons that were killed: the driver removes such a device, but keeps its number until it is deleted.

use std::fs;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::kernel::Control;
use super::wire::{ControlCommand, DeviceInfo, PAYLOAD_BYTES};

/// Gives up the numbers of devices that Umbrella made and whose process is gone. What is still mounted keeps its number
/// until it is unmounted.
pub(super) fn forget(control: &mut Control) {
    for device in numbers() {
        let mut bytes = [0; PAYLOAD_BYTES];
        if control.call(ControlCommand::Info, device, 0, Some(&mut bytes)).is_err() {
            continue;
        }
        let info = DeviceInfo::decode(&bytes);
        if !info.dead || !info.owner.is_some_and(is_gone) {
            continue;
        }
        match control.call(ControlCommand::DeleteLater, device, 0, None) {
            Ok(()) => tracing::info!("removed /dev/ublkc{device}, left behind by a killed daemon"),
            // Linux before 6.9 has no such command; the number is only wasted.
            Err(error) => tracing::debug!(%error, "cannot remove /dev/ublkc{device}, left behind by a killed daemon"),
        }
    }
}

/// The numbers of all devices that there are.
fn numbers() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/dev") else { return Vec::new() };
    let number = |name: &str| name.strip_prefix("ublkc")?.parse().ok();
    entries.flatten().filter_map(|entry| number(entry.file_name().to_str()?)).collect()
}

fn is_gone(process: u32) -> bool {
    let process = Pid::from_raw(process.cast_signed());
    process.is_some_and(|process| test_kill_process(process) == Err(Errno::SRCH))
}
