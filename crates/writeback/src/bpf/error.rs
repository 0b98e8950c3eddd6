//! Why dirty pages cannot be watched.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::FlusherError;

/// The kernel does not let its dirty pages be watched. Nothing is attached then.
#[derive(Debug, Error)]
pub enum BpfError {
    /// No type information of the kernel.
    #[error("{path}: {source} (watching dirty pages needs a kernel with CONFIG_DEBUG_INFO_BTF=y)", path = path.display())]
    NoTypes {
        /// Where it was expected.
        path: PathBuf,
        /// Why it cannot be read.
        source: io::Error,
    },
    /// The kernel has no such tracepoint.
    #[error("this kernel has no tracepoint {name} (it came with Linux 5.18)")]
    NoTracepoint {
        /// Its name.
        name: &'static str,
    },
    /// A structure of the kernel lacks what the programs read.
    #[error("this kernel has no {field}, so its dirty pages cannot be seen")]
    NoField {
        /// Structure and member.
        field: String,
    },
    /// The kernel has no BPF.
    #[error("this kernel has no bpf(2) (watching dirty pages needs CONFIG_BPF_SYSCALL=y)")]
    NoBpf,
    /// The caller may not load programs.
    #[error("bpf(2) is not permitted: {step} (start as root; a container needs CAP_BPF and CAP_PERFMON)")]
    NotPermitted {
        /// What was tried.
        step: &'static str,
    },
    /// Something with BPF failed.
    #[error("{step}: {source:#}")]
    Call {
        /// What was tried.
        step: &'static str,
        /// Why it failed.
        source: libbpf_rs::Error,
    },
    /// The kernel does not accept the programs.
    #[error("the kernel refuses the programs: {source:#}\n{log}")]
    Refused {
        /// The error of the call.
        source: libbpf_rs::Error,
        /// What libbpf and the kernel's verifier say.
        log: String,
    },
    /// The object that was built in lacks a part.
    #[error("the built-in BPF programs have no {part} (build again)")]
    NoPart {
        /// Its name.
        part: &'static str,
    },
}

impl BpfError {
    /// The error of a step.
    pub(super) fn of(step: &'static str) -> impl FnOnce(libbpf_rs::Error) -> BpfError {
        move |source| match source.kind() {
            libbpf_rs::ErrorKind::PermissionDenied => BpfError::NotPermitted { step },
            _ => BpfError::Call { step, source },
        }
    }
}

/// Why the write-back of a file system that is in no pool cannot be ordered.
#[derive(Debug, Error)]
pub enum WatchError {
    /// The path cannot be looked at.
    #[error("{}: {source}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A device instead of a mount point.
    #[error("{path}: is a device (give the directory where its file system is mounted: findmnt {path})", path = path.display())]
    Device {
        /// The path.
        path: PathBuf,
    },
    /// Nothing is mounted there.
    #[error("{}: is not a mount point (give the directory where the file system is mounted; see findmnt)", path.display())]
    NoMountPoint {
        /// The path.
        path: PathBuf,
    },
    /// A file system of another kind.
    #[error("{}: {kind} has no ordered write-back (ext4, xfs and btrfs have)", path.display())]
    Kind {
        /// Where it is mounted.
        path: PathBuf,
        /// Its kind.
        kind: String,
    },
    /// Files cannot be reached by their numbers.
    #[error("{}: files of this {kind} cannot be opened by their inode numbers", path.display())]
    Handles {
        /// Where it is mounted.
        path: PathBuf,
        /// Its kind.
        kind: String,
    },
    /// The caller may not open files by their numbers.
    #[error("{}: files cannot be opened by their inode numbers: {source} (start as root; a container needs CAP_DAC_READ_SEARCH)", path.display())]
    MayNotOpen {
        /// Where it is mounted.
        path: PathBuf,
        /// The error of the first attempt.
        source: io::Error,
    },
    /// Another flusher has it.
    #[error("{}: process {holder} already orders its write-back (stop that one first)", path.display())]
    AlreadyRunning {
        /// Where it is mounted.
        path: PathBuf,
        /// The process that has it.
        holder: String,
    },
    /// It was unmounted.
    #[error("{}: is no longer mounted", path.display())]
    Unmounted {
        /// Where it was mounted.
        path: PathBuf,
    },
    /// The kernel cannot be asked.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// The flusher does not start.
    #[error(transparent)]
    Flusher(#[from] FlusherError),
}
