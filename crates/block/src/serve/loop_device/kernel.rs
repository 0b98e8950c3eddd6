//! The ioctls of the loop driver.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use linux_raw_sys::loop_device::{
    LO_FLAGS_AUTOCLEAR, LO_FLAGS_DIRECT_IO, LO_FLAGS_READ_ONLY, LOOP_CLR_FD, LOOP_CONFIGURE, LOOP_CTL_GET_FREE,
    LOOP_SET_CAPACITY, loop_config, loop_info64,
};
use rustix::io::Result;
use rustix::ioctl::{Ioctl, IoctlOutput, NoArg, Opcode, Setter, ioctl};

use super::AttachOptions;
use crate::file::Access;

/// The number of an unused device.
pub(super) fn free(control: &File) -> Result<u32> {
    // SAFETY: LOOP_CTL_GET_FREE takes no argument and returns a number.
    unsafe { ioctl(control, GetFree) }
}

/// Attaches a file: direct I/O, detached at the last close.
pub(super) fn configure(device: &File, backing: &File, file: &Path, options: &AttachOptions) -> Result<()> {
    let mut flags = LO_FLAGS_DIRECT_IO as u32 | LO_FLAGS_AUTOCLEAR as u32;
    if options.access == Access::ReadOnly {
        flags |= LO_FLAGS_READ_ONLY as u32;
    }
    let mut name = [0; 64];
    // Only for people, and cut as `losetup` cuts it; a zero ends it.
    for (to, from) in name.iter_mut().take(63).zip(file.as_os_str().as_bytes()) {
        *to = *from;
    }
    let info = loop_info64 {
        lo_device: 0,
        lo_inode: 0,
        lo_rdevice: 0,
        lo_offset: 0,
        lo_sizelimit: 0,
        lo_number: 0,
        lo_encrypt_type: 0,
        lo_encrypt_key_size: 0,
        lo_flags: flags,
        lo_file_name: name,
        lo_crypt_name: [0; 64],
        lo_encrypt_key: [0; 32],
        lo_init: [0; 2],
    };
    let config = loop_config {
        fd: backing.as_raw_fd().cast_unsigned(),
        block_size: options.sector_size,
        info,
        __reserved: [0; 8],
    };
    // SAFETY: LOOP_CONFIGURE reads a loop_config; the file that it names stays open during the call, and the driver
    // takes its own reference.
    unsafe { ioctl(device, Setter::<LOOP_CONFIGURE, loop_config>::new(config)) }
}

/// Lets the device detach at its last close.
pub(super) fn clear(device: &File) -> Result<()> {
    // SAFETY: LOOP_CLR_FD takes no argument.
    unsafe { ioctl(device, NoArg::<LOOP_CLR_FD>::new()) }
}

/// Lets the device take the size of its file.
pub(super) fn set_capacity(device: &File) -> Result<()> {
    // SAFETY: LOOP_SET_CAPACITY takes no argument.
    unsafe { ioctl(device, NoArg::<LOOP_SET_CAPACITY>::new()) }
}

/// LOOP_CTL_GET_FREE, which answers with its return value.
struct GetFree;

// SAFETY: the call has no argument, and its result is read from the return value alone.
unsafe impl Ioctl for GetFree {
    type Output = u32;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        LOOP_CTL_GET_FREE
    }

    fn as_ptr(&mut self) -> *mut rustix::ffi::c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut rustix::ffi::c_void) -> Result<u32> {
        Ok(out.cast_unsigned())
    }
}
