//! The layout of every struct, against sizes written down from the description of 7.45 and against the installed
//! header.

use std::fmt::Write as _;
use std::mem::offset_of;
use std::process::Command;

use super::*;

mod numbers;

/// A struct: its name in the header, since which minor version it is there and looks like this, its size, its fields.
struct Layout {
    name: &'static str,
    since: u32,
    size: usize,
    found: usize,
    /// Our name, the header's, and the offset.
    fields: Vec<(&'static str, &'static str, usize)>,
}

macro_rules! layouts {
    ($($name:ident = $header:literal since $since:literal size $size:literal { $($field:ident $(as $other:literal)?),* })*) => {
        vec![$(Layout {
            name: $header,
            since: $since,
            size: $size,
            found: size_of::<$name>(),
            fields: vec![$((
                stringify!($field),
                // The last one counts: the name in the header, if it is another.
                [stringify!($field) $(, $other)?].last().copied().unwrap(),
                offset_of!($name, $field),
            )),*],
        }),*]
    };
}

fn layouts() -> Vec<Layout> {
    layouts! {
        InHeader = "fuse_in_header" since 38 size 40 { len, opcode, unique, nodeid, uid, gid, pid, total_extlen, padding }
        OutHeader = "fuse_out_header" since 1 size 16 { len, error, unique }
        Attr = "fuse_attr" since 32 size 88 {
            ino, size, blocks, atime, mtime, ctime, atimensec, mtimensec, ctimensec, mode, nlink, uid, gid, rdev, blksize, flags
        }
        SxTime = "fuse_sx_time" since 39 size 16 { tv_sec, tv_nsec, reserved as "__reserved" }
        Statx = "fuse_statx" since 39 size 256 {
            mask, blksize, attributes, nlink, uid, gid, mode, spare0 as "__spare0", ino, size, blocks, attributes_mask, atime,
            btime, ctime, mtime, rdev_major, rdev_minor, dev_major, dev_minor, spare2 as "__spare2"
        }
        Kstatfs = "fuse_kstatfs" since 4 size 80 {
            blocks, bfree, bavail, files, ffree, bsize, namelen, frsize, padding, spare
        }
        FileLock = "fuse_file_lock" since 7 size 24 { start, end, kind as "type", pid }
        EntryOut = "fuse_entry_out" since 9 size 128 {
            nodeid, generation, entry_valid, attr_valid, entry_valid_nsec, attr_valid_nsec, attr
        }
        ForgetIn = "fuse_forget_in" since 1 size 8 { nlookup }
        ForgetOne = "fuse_forget_one" since 16 size 16 { nodeid, nlookup }
        BatchForgetIn = "fuse_batch_forget_in" since 16 size 8 { count, dummy }
        GetattrIn = "fuse_getattr_in" since 9 size 16 { getattr_flags, dummy, fh }
        AttrOut = "fuse_attr_out" since 9 size 104 { attr_valid, attr_valid_nsec, dummy, attr }
        StatxIn = "fuse_statx_in" since 39 size 24 { getattr_flags, reserved, fh, sx_flags, sx_mask }
        StatxOut = "fuse_statx_out" since 39 size 288 { attr_valid, attr_valid_nsec, flags, spare, stat }
        MknodIn = "fuse_mknod_in" since 12 size 16 { mode, rdev, umask, padding }
        MkdirIn = "fuse_mkdir_in" since 12 size 8 { mode, umask }
        RenameIn = "fuse_rename_in" since 1 size 8 { newdir }
        Rename2In = "fuse_rename2_in" since 23 size 16 { newdir, flags, padding }
        LinkIn = "fuse_link_in" since 1 size 8 { oldnodeid }
        SetattrIn = "fuse_setattr_in" since 23 size 88 {
            valid, padding, fh, size, lock_owner, atime, mtime, ctime, atimensec, mtimensec, ctimensec, mode, unused4, uid, gid,
            unused5
        }
        OpenIn = "fuse_open_in" since 33 size 8 { flags, open_flags }
        CreateIn = "fuse_create_in" since 33 size 16 { flags, mode, umask, open_flags }
        OpenOut = "fuse_open_out" since 40 size 16 { fh, open_flags, backing_id }
        ReleaseIn = "fuse_release_in" since 8 size 24 { fh, flags, release_flags, lock_owner }
        FlushIn = "fuse_flush_in" since 7 size 24 { fh, unused, padding, lock_owner }
        ReadIn = "fuse_read_in" since 9 size 40 { fh, offset, size, read_flags, lock_owner, flags, padding }
        WriteIn = "fuse_write_in" since 9 size 40 { fh, offset, size, write_flags, lock_owner, flags, padding }
        WriteOut = "fuse_write_out" since 1 size 8 { size, padding }
        FsyncIn = "fuse_fsync_in" since 1 size 16 { fh, fsync_flags, padding }
        SetxattrIn = "fuse_setxattr_in" since 33 size 16 { size, flags, setxattr_flags, padding }
        GetxattrIn = "fuse_getxattr_in" since 1 size 8 { size, padding }
        GetxattrOut = "fuse_getxattr_out" since 1 size 8 { size, padding }
        LkIn = "fuse_lk_in" since 9 size 48 { fh, owner, lk, lk_flags, padding }
        LkOut = "fuse_lk_out" since 7 size 24 { lk }
        AccessIn = "fuse_access_in" since 3 size 8 { mask, padding }
        InitIn = "fuse_init_in" since 36 size 64 { major, minor, max_readahead, flags, flags2, unused }
        InitOut = "fuse_init_out" since 43 size 64 {
            major, minor, max_readahead, flags, max_background, congestion_threshold, max_write, time_gran, max_pages,
            map_alignment, flags2, max_stack_depth, request_timeout, unused
        }
        InterruptIn = "fuse_interrupt_in" since 7 size 8 { unique }
        BmapIn = "fuse_bmap_in" since 8 size 16 { block, blocksize, padding }
        BmapOut = "fuse_bmap_out" since 8 size 8 { block }
        IoctlIn = "fuse_ioctl_in" since 11 size 32 { fh, flags, cmd, arg, in_size, out_size }
        IoctlOut = "fuse_ioctl_out" since 11 size 16 { result, flags, in_iovs, out_iovs }
        PollIn = "fuse_poll_in" since 21 size 24 { fh, kh, flags, events }
        PollOut = "fuse_poll_out" since 11 size 8 { revents, padding }
        FallocateIn = "fuse_fallocate_in" since 19 size 32 { fh, offset, length, mode, padding }
        Dirent = "fuse_dirent" since 1 size 24 { ino, off, namelen, kind as "type" }
        LseekIn = "fuse_lseek_in" since 24 size 24 { fh, offset, whence, padding }
        LseekOut = "fuse_lseek_out" since 24 size 8 { offset }
        CopyFileRangeIn = "fuse_copy_file_range_in" since 28 size 56 {
            fh_in, off_in, nodeid_out, fh_out, off_out, len, flags
        }
        CopyFileRangeOut = "fuse_copy_file_range_out" since 45 size 8 { bytes_copied }
        Secctx = "fuse_secctx" since 36 size 8 { size, padding }
        ExtHeader = "fuse_ext_header" since 38 size 8 { size, kind as "type" }
        SuppGroups = "fuse_supp_groups" since 39 size 4 { nr_groups }
        NotifyPollWakeupOut = "fuse_notify_poll_wakeup_out" since 11 size 8 { kh }
        NotifyInvalInodeOut = "fuse_notify_inval_inode_out" since 12 size 24 { ino, off, len }
        NotifyInvalEntryOut = "fuse_notify_inval_entry_out" since 38 size 16 { parent, namelen, flags }
        NotifyDeleteOut = "fuse_notify_delete_out" since 18 size 24 { parent, child, namelen, padding }
        NotifyStoreOut = "fuse_notify_store_out" since 15 size 24 { nodeid, offset, size, padding }
        NotifyRetrieveOut = "fuse_notify_retrieve_out" since 15 size 32 { notify_unique, nodeid, offset, size, padding }
        NotifyRetrieveIn = "fuse_notify_retrieve_in" since 15 size 40 { dummy1, offset, size, dummy2, dummy3, dummy4 }
        NotifyPruneOut = "fuse_notify_prune_out" since 45 size 16 { count, padding, spare }
        BackingMap = "fuse_backing_map" since 40 size 16 { fd, flags, padding }
        UringEntInOut = "fuse_uring_ent_in_out" since 42 size 32 { flags, commit_id, payload_sz, padding, reserved }
        UringReqHeader = "fuse_uring_req_header" since 42 size 288 { in_out, op_in, ring_ent_in_out }
        UringCmdReq = "fuse_uring_cmd_req" since 42 size 24 { flags, commit_id, qid, padding }
    }
}

#[test]
fn every_struct_has_the_size_of_its_description() {
    for layout in layouts() {
        assert_eq!(layout.found, layout.size, "{}", layout.name);
    }
    assert_eq!((size_of::<InitShortIn>(), size_of::<SetxattrShortIn>()), (16, 8), "what older kernels send");
}

/// Compiled, not run: a difference is an error of the compiler that names the struct and the field.
#[test]
fn every_struct_is_laid_out_as_in_the_installed_header() {
    let mut program = String::from("#include <stddef.h>\n#include <linux/fuse.h>\n");
    for Layout { name, since, size, fields, .. } in layouts() {
        writeln!(program, "#if FUSE_KERNEL_MINOR_VERSION >= {since}").unwrap();
        writeln!(program, "_Static_assert(sizeof(struct {name}) == {size}, \"{name}\");").unwrap();
        for (_, field, offset) in fields {
            writeln!(program, "_Static_assert(offsetof(struct {name}, {field}) == {offset}, \"{name}.{field}\");")
                .unwrap();
        }
        program.push_str("#endif\n");
    }
    compile(&program);
}

/// Compiles a program, and does not run it.
fn compile(program: &str) {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("layout.c");
    std::fs::write(&source, program).unwrap();
    let output = Command::new("cc").arg("-fsyntax-only").arg(&source).output().expect("a C compiler is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
