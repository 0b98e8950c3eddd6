//! The operations that want an answer, in one table: variant of [`Operation`](crate::operation::Operation), method of
//! [`Filesystem`](crate::Filesystem), request and answer.

/// Calls a macro with the table.
macro_rules! operations {
    ($define:ident) => {
        $define! {
            /// Looks up a name. [`Entry::negative`] lets the kernel remember that it does not exist.
            Lookup lookup(Lookup<'a>) -> Entry;
            /// Attributes.
            GetAttr getattr(GetAttr) -> Stat;
            /// Attributes with the time of birth. After ENOSYS the kernel asks `getattr`.
            Statx statx(GetStatx) -> Statx;
            /// Changes attributes, and returns the new ones.
            SetAttr setattr(SetAttr) -> Stat;
            /// Target of a symbolic link.
            ReadLink readlink(ReadLink) -> Data;
            /// Makes a file, device, pipe or socket.
            MkNod mknod(MkNod<'a>) -> Entry;
            /// Makes a directory.
            MkDir mkdir(MkDir<'a>) -> Entry;
            /// Makes a symbolic link.
            SymLink symlink(SymLink<'a>) -> Entry;
            /// Removes a name.
            Unlink unlink(Unlink<'a>) -> ();
            /// Removes a directory.
            RmDir rmdir(RmDir<'a>) -> ();
            /// Renames. Refuse flags that you do not know with EINVAL.
            Rename rename(Rename<'a>) -> ();
            /// Makes a hard link.
            Link link(Link<'a>) -> Entry;
            /// Opens a file. After ENOSYS the kernel opens by itself, with handle 0.
            Open open(Open) -> Opened;
            /// Makes a file and opens it. After ENOSYS the kernel asks `mknod` and `open`.
            Create create(Create<'a>) -> Created;
            /// Makes a file without a name and opens it.
            TmpFile tmpfile(Create<'a>) -> Created;
            /// Reads. Less than was asked for means the end of the file.
            Read read(Read) -> Data;
            /// Writes.
            Write write(Write<'a>) -> Written;
            /// A descriptor is closed. After ENOSYS the kernel asks no more.
            Flush flush(Flush) -> ();
            /// The last descriptor of an open file is closed. An error is reported to no caller.
            Release release(Release) -> ();
            /// Makes a file durable.
            FSync fsync(FSync) -> ();
            /// Opens a directory. After ENOSYS the kernel opens by itself, with handle 0.
            OpenDir opendir(Open) -> Opened;
            /// A piece of a listing; an empty one ends it.
            ReadDir readdir(Read) -> Listing;
            /// A piece of a listing, with attributes.
            ReadDirPlus readdirplus(Read) -> Listing;
            /// The last descriptor of an open directory is closed.
            ReleaseDir releasedir(Release) -> ();
            /// Makes a directory durable.
            FSyncDir fsyncdir(FSync) -> ();
            /// Makes the whole file system durable.
            SyncFs syncfs(SyncFs) -> ();
            /// Free and total space.
            StatFs statfs(StatFs) -> Space;
            /// Sets an extended attribute.
            SetXattr setxattr(SetXattr<'a>) -> ();
            /// Value of an extended attribute.
            GetXattr getxattr(GetXattr<'a>) -> Xattr;
            /// Names of extended attributes.
            ListXattr listxattr(ListXattr) -> Xattr;
            /// Removes an extended attribute.
            RemoveXattr removexattr(RemoveXattr<'a>) -> ();
            /// Whether the caller may access a file.
            Access access(Access) -> ();
            /// Asks for a lock that conflicts.
            GetLock getlk(GetLock) -> Lock;
            /// Locks or unlocks; EAGAIN if it would have to wait and must not.
            SetLock setlk(SetLock) -> ();
            /// Block of the device below.
            BMap bmap(BMap) -> Block;
            /// An ioctl; ENOTTY if it is not known.
            Ioctl ioctl(Ioctl<'a>) -> IoctlAnswer;
            /// Asks which operations would not block.
            Poll poll(Poll) -> Ready;
            /// Allocates space, or punches a hole.
            FAllocate fallocate(FAllocate) -> ();
            /// Finds data or holes.
            LSeek lseek(LSeek) -> Offset;
            /// Copies data from one file to another.
            CopyFileRange copy_file_range(CopyFileRange) -> Copied;
        }
    };
}

pub(crate) use operations;
