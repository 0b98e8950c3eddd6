//! The order of all locks. This list is its documentation: a thread that holds one waits only for those below it.

/// A lock's place in the order.
pub(crate) trait Ranked {
    const RANK: Rank;
}

/// Makes the list and a type for each rank, by which a lock says what it is.
macro_rules! ranks {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Rank {
            $($(#[$doc])* $name,)*
        }

        $(
            $(#[$doc])*
            pub(crate) enum $name {}

            impl Ranked for $name {
                const RANK: Rank = Rank::$name;
            }
        )*
    };
}

ranks! {
    // What concerns the whole pool.
    /// One reload of the configuration at a time.
    Reload,
    /// One change of how a branch is written back at a time.
    WriteBackChange,
    /// Held during a change of the branches; has what the kernel knows of them.
    Branches,
    /// One at a time lets files leave the staging area where the branches are short of room; the others wait.
    StagingShort,
    /// Held while what an earlier mount left in the staging area is taken in.
    StagingTakenBack,

    // Files and directories. First what is held for as long as a copy lasts: no thread that keeps others from resolving
    // names waits for it.
    /// Shared by reads and writes of a file through the daemon and by truncation; exclusive while it moves under its
    /// writers. Key: the node.
    FileIo,
    /// Shared by batches of moves, and by commits on branches that may be slow. Exclusive for a rename of a directory:
    /// it waits for them before any thread waits for [`TreeNames`].
    TreeSlowCommits,
    /// Shared by all that resolves names; exclusive while a directory changes its place or a branch comes or goes.
    TreeNames,
    /// A directory's merged listing, while it is made. Key: the node.
    DirListing,
    /// Held while a move is committed in a directory, a copy of it is made, or it is removed. Key: the node.
    DirCommit,
    /// Where a file is, its names, who has it open. Key: the node.
    FileState,
    /// Held while the attributes of a directory's copies are changed or compared. Key: the node.
    DirAttributes,
    /// Directories whose copies differ.
    TreeDiffering,
    /// What branches may have made although they did not say so.
    TreeOrphans,
    /// Held while times of a directory are put back. Key: the node.
    DirTimes,
    /// Directories that the kernel forgot, with changes that are not durable.
    TreeUnsyncedDirs,
    /// Where a directory has changes that are not durable. Key: the node.
    DirChanges,
    /// A directory's copies and its place. Key: the node.
    DirState,

    // Tables and queues.
    /// Copies of directories on branches that are away.
    TreeCopiesAway,
    /// What waits in the staging area.
    AreaQueue,
    /// What the workers of the staging area have to do.
    StagingWorkers,
    /// What waits for the mover.
    MoverQueue,
    /// Moves that have or want a turn on a disk.
    DiskTurns,
    /// What is to be walked because names changed.
    RevisitsDue,
    /// Walks under way.
    EnforcerWalks,
    /// How far fill levels are.
    EvictRuns,
    /// Copies that hung branches may still make.
    MigrateGivenUp,
    /// Nodes by inode: one of the shards. Held while the node of an inode is made, with its number.
    NodesByBacking,
    /// Nodes by id: one of the shards.
    NodesById,
    /// Directories that the kernel forgot.
    NodesForgotten,
    /// The holder of each inode number. Held while an entry changes its holder.
    InodeHolders,
    /// Numbers of inodes that have none of the usual kind.
    InodeHashed,
    /// Devices below a branch.
    InodeForeign,
    /// Numbers that are lent to files of other devices.
    InodeLent,
    /// The one that writes a branch's log of numbers.
    InodeLogWriter,
    /// A branch's log of numbers.
    InodeLog,
    /// A branch's numbers.
    InodeEntries,
    /// How warm files are: one of the shards.
    Heats,
    /// How much has moved because of heat.
    HeatSpending,
    /// How large the last files of each kind were.
    LastSizes,
    /// Which branch holds most of directories that are kept together.
    PlacementHoldings,
    /// Open files: one of the shards.
    IoHandles,
    /// Open directories of branches: one of the shards.
    TreeDirFds,

    // Branches.
    /// What write-back policies were chosen while mounted.
    WriteBackChosen,
    /// Files whose write-back failed.
    WriteBackFailed,
    /// The kernel's log, while it is read.
    DiskLog,
    /// Disks that are watched for errors.
    DiskWatched,
    /// A branch goes from one state to the other.
    BranchChange,
    /// A branch's errors.
    BranchErrors,
    /// What the pool remembers of its branches. Held while it is written.
    PoolFile,
    /// Ranges of inode numbers that were given out and are not noted yet.
    PoolReserved,
    /// Which branches are online, by identity.
    PoolClaims,
    /// Why a branch is offline.
    BranchOffline,
    /// Room on a branch.
    BranchSpace,

    // What any thread may use, whatever it holds.
    /// Warnings of `umbrella status`.
    ContextWarnings,
    /// How much a walk has copied.
    Throttle,
    /// Whether the monitor is wanted.
    Wakeup,
    /// A branch is probed.
    Prober,
    /// What a probe found.
    ProberReply,
    /// A call to a branch that may hang, until it is answered.
    WorkersCall,
    /// Calls to a branch that may hang.
    WorkersQueue,
    /// Descriptors that are to be closed.
    Closers,
    /// Lines of the trace of requests.
    TraceLines,
    /// Connections of the control socket.
    ControlClients,
}
