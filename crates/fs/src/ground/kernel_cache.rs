//! Keeps attributes that the kernel caches true: every change of one on a branch says why the cache stays right.

/// Why no attribute that the kernel caches is wrong after one was changed on a branch. Every call that changes one
/// takes it, so that none forgets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KernelCache(());

impl KernelCache {
    /// The kernel asked for this change, and the reply has the attributes after it.
    pub(crate) const REPLIED: KernelCache = KernelCache(());
    /// The kernel does not know the inode yet.
    pub(crate) const NEW_INODE: KernelCache = KernelCache(());
    /// What the pool shows stays as it was: another copy gets it, or it is put back.
    pub(crate) const SAME_SHOWN: KernelCache = KernelCache(());

    /// For all other changes: `drop` has it drop what it caches, after the change.
    pub(crate) fn invalidate_after<T>(change: impl FnOnce(KernelCache) -> T, drop: impl FnOnce(&T)) -> T {
        let changed = change(KernelCache(()));
        drop(&changed);
        changed
    }
}
