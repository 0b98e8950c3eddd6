use super::*;

#[test]
fn moments_before_1970_count_their_nanoseconds_forward() {
    let half_a_second_before = UNIX_EPOCH - Duration::from_millis(500);
    assert_eq!(Timestamp::from(half_a_second_before), Timestamp { seconds: -1, nanoseconds: 500_000_000 });
    for (seconds, nanoseconds) in [(-1, 500_000_000), (-7, 0), (0, 0), (0, 1), (1 << 33, 999_999_999)] {
        let moment = Timestamp { seconds, nanoseconds };
        assert_eq!(Timestamp::from(SystemTime::from(moment)), moment);
    }
}

#[test]
fn moments_out_of_range_do_no_harm() {
    for seconds in [i64::MIN, i64::MAX] {
        let _ = SystemTime::from(Timestamp { seconds, nanoseconds: u32::MAX });
    }
}

#[test]
fn errors_that_the_kernel_would_refuse_become_eio() {
    for wrong in [0, -1, 512, i32::MAX, i32::MIN] {
        assert_eq!(Errno::from_raw(wrong), Errno::EIO);
    }
    assert_eq!(Errno::from_raw(2), Errno::ENOENT);
    assert_eq!(Errno::from(io_error(28)), Errno::ENOSPC);
    assert_eq!(Errno::from(std::io::Error::other("without a number")), Errno::EIO);
}

fn io_error(number: i32) -> std::io::Error {
    std::io::Error::from_raw_os_error(number)
}

#[test]
fn the_kernels_packing_of_devices_is_that_of_st_rdev() {
    for (major, minor) in [(0, 0), (8, 1), (250, 100_000), (0xfff, 0xf_ffff)] {
        let device = rustix::fs::makedev(major, minor);
        let sent = Attributes { device, ..Attributes::new(InodeNumber(1), FileType::BlockDevice, 0) }.wire().rdev;
        assert_eq!(sent, (minor & 0xff) | major << 8 | (minor & 0xf_ff00) << 12);
        assert_eq!(rustix::fs::Dev::from(sent), device);
    }
}

#[test]
fn kinds_are_those_of_the_mode() {
    for mode in
        [libc::S_IFREG, libc::S_IFDIR, libc::S_IFLNK, libc::S_IFIFO, libc::S_IFSOCK, libc::S_IFCHR, libc::S_IFBLK]
    {
        let kind = FileType::from_raw_mode(mode | 0o644);
        assert_eq!(Attributes::new(InodeNumber(1), kind, 0o644).mode(), mode | 0o644);
    }
}
