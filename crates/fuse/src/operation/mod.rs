//! Reads requests: from bytes to one of the [structs](crate::request).

use zerocopy::FromBytes;

use crate::abi::{self, bit, fattr, opcode};
use crate::body::{Body, Malformed, Parsed};
use crate::extensions::Extensions;
use crate::flags::{IoctlFlags, RenameFlags, WriteFlags};
use crate::operations::operations;
use crate::request::{
    Access, BMap, CopyFileRange, Create, FAllocate, FSync, Flush, Forget, GetAttr, GetLock, GetStatx, GetXattr, Ioctl,
    LSeek, Link, ListXattr, Lookup, MkDir, MkNod, Open, Poll, Read, ReadLink, Release, RemoveXattr, Rename, Retrieved,
    RmDir, SetAttr, SetLock, SetXattr, StatFs, SymLink, SyncFs, Unlink, Write,
};
use crate::types::{FileHandle, Lock, LockOwner, NewTime, NodeId, PollHandle, RequestId, Timestamp};

/// Defines what a request can be.
macro_rules! define_operation {
    ($($(#[$doc:meta])* $variant:ident $method:ident($request:ident $(<$life:lifetime>)?) -> $answer:ty;)*) => {
        /// A request, read.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub(crate) enum Operation<'a> {
            $($variant($request $(<$life>)?),)*
            Forget(Forget),
            BatchForget(Vec<Forget>),
            Interrupt(RequestId),
            Destroy,
            Retrieved(Retrieved<'a>),
            /// INIT once more, or an unknown operation.
            Unknown,
        }
    };
}

operations!(define_operation);

/// Whether the kernel waits for no answer.
pub(crate) fn is_one_way(number: u32) -> bool {
    matches!(number, opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT | opcode::NOTIFY_REPLY)
}

/// Shape of requests that was agreed on at INIT.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Shape {
    /// SETXATTR has its second word of flags.
    pub(crate) setxattr_ext: bool,
}

/// Reads a request.
#[allow(clippy::too_many_lines, reason = "one arm an operation, and nothing else")]
pub(crate) fn parse<'a>(header: &abi::InHeader, body: &mut Body<'a>, shape: Shape) -> Parsed<Operation<'a>> {
    use Operation as Op;
    let node = NodeId(header.nodeid);
    let extensions = Extensions::take(body, header)?;
    Ok(match header.opcode {
        opcode::LOOKUP => Op::Lookup(Lookup { parent: node, name: body.only_name()? }),
        opcode::FORGET => Op::Forget(Forget { node, lookups: body.take::<abi::ForgetIn>()?.nlookup }),
        opcode::BATCH_FORGET => Op::BatchForget(forgets(body)?),
        opcode::GETATTR => {
            let read: abi::GetattrIn = body.take()?;
            Op::GetAttr(GetAttr { node, handle: handle_if(read.getattr_flags & bit::GETATTR_FH, read.fh) })
        }
        opcode::STATX => {
            let read: abi::StatxIn = body.take()?;
            let handle = handle_if(read.getattr_flags & bit::GETATTR_FH, read.fh);
            Op::Statx(GetStatx { node, handle, flags: read.sx_flags, mask: read.sx_mask })
        }
        opcode::SETATTR => Op::SetAttr(set_attr(node, &body.take()?)),
        opcode::READLINK => Op::ReadLink(ReadLink { node }),
        opcode::SYMLINK => {
            Op::SymLink(SymLink { parent: node, name: body.only_name()?, target: body.name()?, extensions })
        }
        opcode::MKNOD => {
            let read: abi::MknodIn = body.take()?;
            let (mode, umask, device) = (read.mode, read.umask, read.rdev.into());
            Op::MkNod(MkNod { parent: node, name: body.name()?, mode, umask, device, extensions })
        }
        opcode::MKDIR => {
            let abi::MkdirIn { mode, umask } = body.take()?;
            Op::MkDir(MkDir { parent: node, name: body.name()?, mode, umask, extensions })
        }
        opcode::UNLINK => Op::Unlink(Unlink { parent: node, name: body.only_name()? }),
        opcode::RMDIR => Op::RmDir(RmDir { parent: node, name: body.only_name()? }),
        opcode::RENAME => {
            let abi::RenameIn { newdir } = body.take()?;
            Op::Rename(rename(node, newdir, 0, body)?)
        }
        opcode::RENAME2 => {
            let abi::Rename2In { newdir, flags, .. } = body.take()?;
            Op::Rename(rename(node, newdir, flags, body)?)
        }
        opcode::LINK => {
            let read: abi::LinkIn = body.take()?;
            Op::Link(Link { node: NodeId(read.oldnodeid), new_parent: node, new_name: body.name()? })
        }
        opcode::OPEN => Op::Open(open(node, body.take()?)),
        opcode::OPENDIR => Op::OpenDir(open(node, body.take()?)),
        opcode::CREATE => Op::Create(create(node, body, extensions)?),
        opcode::TMPFILE => Op::TmpFile(create(node, body, extensions)?),
        opcode::READ => Op::Read(read(node, &body.take()?)),
        opcode::READDIR => Op::ReadDir(read(node, &body.take()?)),
        opcode::READDIRPLUS => Op::ReadDirPlus(read(node, &body.take()?)),
        opcode::WRITE => Op::Write(write(node, body)?),
        opcode::STATFS => Op::StatFs(StatFs { node }),
        opcode::RELEASE => Op::Release(release(node, &body.take()?)),
        opcode::RELEASEDIR => Op::ReleaseDir(release(node, &body.take()?)),
        opcode::FSYNC => Op::FSync(fsync(node, &body.take()?)),
        opcode::FSYNCDIR => Op::FSyncDir(fsync(node, &body.take()?)),
        opcode::SYNCFS => Op::SyncFs(SyncFs { node }),
        opcode::SETXATTR => Op::SetXattr(set_xattr(node, body, shape)?),
        opcode::GETXATTR => {
            let read: abi::GetxattrIn = body.take()?;
            Op::GetXattr(GetXattr { node, name: body.name()?, size: read.size })
        }
        opcode::LISTXATTR => Op::ListXattr(ListXattr { node, size: body.take::<abi::GetxattrIn>()?.size }),
        opcode::REMOVEXATTR => Op::RemoveXattr(RemoveXattr { node, name: body.only_name()? }),
        opcode::FLUSH => {
            let read: abi::FlushIn = body.take()?;
            Op::Flush(Flush { node, handle: FileHandle(read.fh), lock_owner: LockOwner(read.lock_owner) })
        }
        number @ (opcode::GETLK | opcode::SETLK | opcode::SETLKW) => {
            let read: abi::LkIn = body.take()?;
            let lock = Lock::from_wire(&read.lk).ok_or(Malformed)?;
            let (handle, owner) = (FileHandle(read.fh), LockOwner(read.owner));
            let flock = read.lk_flags & bit::LK_FLOCK != 0;
            if number == opcode::GETLK {
                Op::GetLock(GetLock { node, handle, owner, lock, flock })
            } else {
                Op::SetLock(SetLock { node, handle, owner, lock, flock, wait: number == opcode::SETLKW })
            }
        }
        opcode::ACCESS => Op::Access(Access { node, mask: body.take::<abi::AccessIn>()?.mask }),
        opcode::INTERRUPT => Op::Interrupt(RequestId(body.take::<abi::InterruptIn>()?.unique)),
        opcode::BMAP => {
            let read: abi::BmapIn = body.take()?;
            Op::BMap(BMap { node, block: read.block, block_size: read.blocksize })
        }
        opcode::DESTROY => Op::Destroy,
        opcode::IOCTL => Op::Ioctl(ioctl(node, body)?),
        opcode::POLL => {
            let abi::PollIn { fh, kh, flags, events } = body.take()?;
            let wants_wake = flags & bit::POLL_SCHEDULE_NOTIFY != 0;
            Op::Poll(Poll { node, handle: FileHandle(fh), wake: PollHandle(kh), wants_wake, events })
        }
        opcode::NOTIFY_REPLY => {
            // The kernel puts its struct with the data.
            body.no_struct();
            let read: abi::NotifyRetrieveIn = body.take()?;
            let data = body.bytes(read.size as usize)?;
            Op::Retrieved(Retrieved { id: RequestId(header.unique), node, offset: read.offset, data })
        }
        opcode::FALLOCATE => {
            let abi::FallocateIn { fh, offset, length, mode, .. } = body.take()?;
            Op::FAllocate(FAllocate { node, handle: FileHandle(fh), offset, length, mode })
        }
        opcode::LSEEK => {
            let read: abi::LseekIn = body.take()?;
            let (offset, whence) = (read.offset as i64, read.whence as i32);
            Op::LSeek(LSeek { node, handle: FileHandle(read.fh), offset, whence })
        }
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
            Op::CopyFileRange(copy_file_range(node, &body.take()?, header.opcode))
        }
        _ => Op::Unknown,
    })
}

fn handle_if(condition: u32, handle: u64) -> Option<FileHandle> {
    (condition != 0).then_some(FileHandle(handle))
}

fn forgets(body: &mut Body<'_>) -> Parsed<Vec<Forget>> {
    let head: abi::BatchForgetIn = body.take()?;
    let mut next = || body.take::<abi::ForgetOne>();
    (0..head.count).map(|_| next().map(|one| Forget { node: NodeId(one.nodeid), lookups: one.nlookup })).collect()
}

fn set_attr(node: NodeId, read: &abi::SetattrIn) -> SetAttr {
    let has = |bit| read.valid & bit != 0;
    let time = |given, now, seconds: u64, nanoseconds| match (has(given), has(now)) {
        (false, _) => None,
        (true, true) => Some(NewTime::Now),
        (true, false) => Some(NewTime::At(Timestamp { seconds: seconds as i64, nanoseconds })),
    };
    SetAttr {
        node,
        handle: has(fattr::FH).then_some(FileHandle(read.fh)),
        mode: has(fattr::MODE).then_some(read.mode),
        uid: has(fattr::UID).then_some(read.uid),
        gid: has(fattr::GID).then_some(read.gid),
        size: has(fattr::SIZE).then_some(read.size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, read.atime, read.atimensec),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, read.mtime, read.mtimensec),
        ctime: has(fattr::CTIME).then_some(Timestamp { seconds: read.ctime as i64, nanoseconds: read.ctimensec }),
        lock_owner: has(fattr::LOCKOWNER).then_some(LockOwner(read.lock_owner)),
        kill_suidgid: has(fattr::KILL_SUIDGID),
    }
}

fn rename<'a>(parent: NodeId, new_parent: u64, flags: u32, body: &mut Body<'a>) -> Parsed<Rename<'a>> {
    Ok(Rename {
        parent,
        name: body.name()?,
        new_parent: NodeId(new_parent),
        new_name: body.name()?,
        flags: RenameFlags::from_bits_retain(flags),
    })
}

fn open(node: NodeId, read: abi::OpenIn) -> Open {
    Open { node, flags: read.flags as i32, kill_suidgid: read.open_flags & bit::OPEN_KILL_SUIDGID != 0 }
}

fn create<'a>(parent: NodeId, body: &mut Body<'a>, extensions: Extensions<'a>) -> Parsed<Create<'a>> {
    let abi::CreateIn { flags, mode, umask, open_flags } = body.take()?;
    let kill_suidgid = open_flags & bit::OPEN_KILL_SUIDGID != 0;
    Ok(Create { parent, name: body.name()?, mode, umask, flags: flags as i32, kill_suidgid, extensions })
}

fn read(node: NodeId, read: &abi::ReadIn) -> Read {
    Read {
        node,
        handle: FileHandle(read.fh),
        offset: read.offset,
        size: read.size,
        flags: read.flags as i32,
        lock_owner: (read.read_flags & bit::READ_LOCKOWNER != 0).then_some(LockOwner(read.lock_owner)),
    }
}

fn write<'a>(node: NodeId, body: &mut Body<'a>) -> Parsed<Write<'a>> {
    let read: abi::WriteIn = body.take()?;
    let write_flags = WriteFlags::from_bits_retain(read.write_flags);
    Ok(Write {
        node,
        handle: FileHandle(read.fh),
        offset: read.offset,
        data: body.bytes(read.size as usize)?,
        write_flags,
        flags: read.flags as i32,
        lock_owner: write_flags.contains(WriteFlags::LOCK_OWNER).then_some(LockOwner(read.lock_owner)),
    })
}

fn release(node: NodeId, read: &abi::ReleaseIn) -> Release {
    Release {
        node,
        handle: FileHandle(read.fh),
        flags: read.flags as i32,
        lock_owner: LockOwner(read.lock_owner),
        flush: read.release_flags & bit::RELEASE_FLUSH != 0,
        unlock_flock: read.release_flags & bit::RELEASE_FLOCK_UNLOCK != 0,
    }
}

fn fsync(node: NodeId, read: &abi::FsyncIn) -> FSync {
    FSync { node, handle: FileHandle(read.fh), data_only: read.fsync_flags & bit::FSYNC_FDATASYNC != 0 }
}

fn set_xattr<'a>(node: NodeId, body: &mut Body<'a>, shape: Shape) -> Parsed<SetXattr<'a>> {
    let read: abi::SetxattrIn = if shape.setxattr_ext {
        body.take()?
    } else {
        let abi::SetxattrShortIn { size, flags } = body.take()?;
        abi::SetxattrIn { size, flags, ..abi::SetxattrIn::default() }
    };
    let name = body.name()?;
    let value = body.bytes(read.size as usize)?;
    let kill_sgid = read.setxattr_flags & bit::SETXATTR_ACL_KILL_SGID != 0;
    Ok(SetXattr { node, name, value, flags: read.flags, kill_sgid })
}

fn ioctl<'a>(node: NodeId, body: &mut Body<'a>) -> Parsed<Ioctl<'a>> {
    let read: abi::IoctlIn = body.take()?;
    Ok(Ioctl {
        node,
        handle: FileHandle(read.fh),
        flags: IoctlFlags::from_bits_retain(read.flags),
        command: read.cmd,
        argument: read.arg,
        input: body.bytes(read.in_size as usize)?,
        output_size: read.out_size,
    })
}

fn copy_file_range(node: NodeId, read: &abi::CopyFileRangeIn, number: u32) -> CopyFileRange {
    // The older form answers with 32 bits.
    let most = if number == opcode::COPY_FILE_RANGE { u64::from(u32::MAX) & !4095 } else { u64::MAX };
    CopyFileRange {
        node,
        handle: FileHandle(read.fh_in),
        offset: read.off_in,
        new_node: NodeId(read.nodeid_out),
        new_handle: FileHandle(read.fh_out),
        new_offset: read.off_out,
        length: read.len.min(most),
        flags: read.flags,
    }
}

/// The header at the beginning of what `/dev/fuse` hands over, and what follows.
pub(crate) fn split_header(bytes: &[u8]) -> Parsed<(abi::InHeader, &[u8])> {
    abi::InHeader::read_from_prefix(bytes).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests;
