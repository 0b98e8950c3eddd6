//! What becomes of each option that sets nothing in the configuration.

/// What becomes of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OptionMapping {
    /// It has no equal; why, or what to do instead.
    Missing(&'static str),
    /// It is always so, or is not needed; why.
    Needless(&'static str),
    /// It stays an option of the mount.
    Kept,
    /// It has done nothing in mergerfs either.
    Dropped,
}

use OptionMapping::{Dropped, Kept, Missing, Needless};

use super::policies;

/// How Umbrella treats an option, whose name has `-` in place of `_`.
pub(super) fn map_option(key: &str, value: &str) -> OptionMapping {
    let known = of_value(key, value).or_else(|| always(key)).or_else(|| of_kernel(key)).or_else(|| of_mounts(key));
    known.unwrap_or(Missing("unknown option; nothing was written for it"))
}

/// Options whose value decides.
fn of_value(key: &str, value: &str) -> Option<OptionMapping> {
    let is_off = matches!(value, "false" | "0" | "off" | "never" | "none");
    let unless_off = |fate| if is_off { Dropped } else { fate };
    Some(match key {
        "moveonenospc" if is_off => {
            Missing("a file that outgrows its branch always moves to the next branch of its list with room")
        }
        "moveonenospc" if !matches!(value, "" | "true" | "1" | "on" | "yes") && policies::find(value).is_none() => {
            Missing("unknown value: mergerfs takes true, false or a policy")
        }
        "moveonenospc" => Needless(
            "a file that outgrows its branch moves to the next branch of its list with room, and programs keep it open",
        ),
        "cache.writeback" => unless_off(Missing(
            "the kernel does not gather small writes; in passthrough, writes go to the branch at native speed",
        )),
        "symlinkify" => unless_off(Missing("old files stay files; reads in passthrough are as fast as on the branch")),
        "link-cow" => unless_off(Missing("writing to a file changes it under all its names, as on any file system")),
        "follow-symlinks" => unless_off(Missing("symbolic links stay links")),
        "nullrw" => unless_off(Missing("it is for measuring mergerfs")),
        "lazy-umount-mountpoint" => unless_off(Missing("a mount point must not be in use; unmount it first")),
        "export-support" | "never-forget-nodes" | "noforget" => {
            unless_off(Missing("a pool cannot be exported by the kernel's NFS server"))
        }
        "nfsopenhack" => unless_off(Missing("a pool cannot be exported by the kernel's NFS server")),
        "security-capability" if !is_off => Dropped,
        "security-capability" => Missing("extended attributes, file capabilities too, are always those of the branch"),
        "xattr" if matches!(value, "passthrough" | "") => Dropped,
        "xattr" => Missing("extended attributes always pass through"),
        "statfs" if matches!(value, "base" | "") => Dropped,
        "statfs" => Missing("the pool always shows the space of all branches"),
        "statfs-ignore" => unless_off(Missing("the pool always shows the space of all branches")),
        "posix-acl" if is_off => Missing("ACLs are always in force where the branches keep them"),
        "posix-acl" => Needless("ACLs are in force where the branches keep them"),
        "kernel-permissions-check" if is_off => Missing("the kernel always checks permissions"),
        "kernel-permissions-check" | "default-permissions" => Needless("the kernel always checks permissions"),
        "proxy-ioprio" => {
            unless_off(Missing("requests have the priority of the daemon, but in passthrough that of the caller"))
        }
        "passthrough.io" | "passthrough" if is_off => {
            Needless("it is on where the kernel has it (Linux 6.9); `passthrough = false` on a branch switches it off")
        }
        "passthrough.io" | "passthrough" => Needless("it is on where the kernel has it (Linux 6.9)"),
        _ => return None,
    })
}

/// Options of mergerfs whose matter is settled here.
fn always(key: &str) -> Option<OptionMapping> {
    Some(match key {
        "func.mkdir" | "func.mknod" | "func.symlink" => Missing(
            "rules and groups decide for all kinds of files alike; a directory comes to a branch with the first file that goes there",
        ),
        "func.readdir" => Needless("a listing asks all branches, and the kernel keeps it"),
        key if key.starts_with("func.") || key.starts_with("category.") => Needless(
            "a change applies to every copy of a directory, and to the file that the pool shows: the newest of its name",
        ),
        "ignorepponrename" | "link-exdev" | "rename-exdev" => {
            Needless("renames and links inside the pool never fail with EXDEV")
        }
        "inodecalc" | "use-ino" => Needless("inode numbers stay, also when a file moves to another branch"),
        "symlinkify-timeout" => Dropped,
        "branches-mount-timeout-fail" => {
            Needless("the pool does not start without a branch, unless the branch is `optional`")
        }
        "readahead" => Missing("set it on the disks: `blockdev --setra` or a udev rule"),
        "scheduling-priority" => Missing("set it in the unit: `Nice=` (`systemctl edit umbrella@NAME`)"),
        "pin-threads" => Needless("over io_uring each processor has threads of its own"),
        "threads" | "read-thread-count" | "process-thread-count" | "process-thread-queue-depth" => {
            Needless("there are as many threads as requests that wait")
        }
        "flush-on-close" => Missing("closing a file flushes nothing; fsync does"),
        "debug" => Missing("use `umbrella mount --trace-requests FILE`"),
        "log.file" => Missing("use the mount option `log=FILE`"),
        "allow-idmap" => Needless("the pool can be mounted with other owners (idmapped mounts, Linux 6.12)"),
        _ => return None,
    })
}

/// What the kernel keeps and how requests come.
fn of_kernel(key: &str) -> Option<OptionMapping> {
    Some(match key {
        "cache.files"
        | "cache.files.process-names"
        | "direct-io"
        | "kernel-cache"
        | "auto-cache"
        | "dropcacheonclose" => Needless(
            "in passthrough there is one page cache, the branch's; elsewhere the kernel keeps pages as long as they are right",
        ),
        "cache.negative-entry" | "negative-entry" | "negative-timeout" => {
            Needless("the kernel keeps absent names as long as it keeps names (`cache_timeout`)")
        }
        "cache.statfs" | "cache.open" | "cache.symlinks" | "cache.readdir" => {
            Needless("it is always kept, and always right")
        }
        "async-read"
        | "sync-read"
        | "fuse-msg-size"
        | "parallel-direct-writes"
        | "direct-io-allow-mmap"
        | "passthrough.max-stack-depth" => Needless("the pool uses the fastest that the kernel has"),
        "big-writes" | "hard-remove" | "splice-move" | "splice-read" | "splice-write" | "atomic-o-trunc"
        | "auto-unmount" | "nonempty" | "allow-other" | "fsname" | "subtype" | "defaults" | "pipe-max-size" => Dropped,
        _ => return None,
    })
}

/// Options of every mount.
fn of_mounts(key: &str) -> Option<OptionMapping> {
    const MOUNT: [&str; 22] = [
        "ro",
        "rw",
        "suid",
        "nosuid",
        "dev",
        "nodev",
        "exec",
        "noexec",
        "atime",
        "noatime",
        "relatime",
        "strictatime",
        "nodiratime",
        "diratime",
        "auto",
        "noauto",
        "nofail",
        "user",
        "users",
        "nouser",
        "-netdev",
        "nosymfollow",
    ];
    (MOUNT.contains(&key) || key.starts_with("x-") || key.starts_with("X-")).then_some(Kept)
}
