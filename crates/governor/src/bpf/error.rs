//! Why dirty pages cannot be watched.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

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
    /// Type information of another kind.
    #[error("{path}: type information of a kind that is not known", path = path.display())]
    BadTypes {
        /// Where it lies.
        path: PathBuf,
    },
    /// The kernel has no such tracepoint.
    #[error("this kernel has no tracepoint {name} (it came with Linux 5.18)")]
    NoTracepoint {
        /// Its name.
        name: &'static str,
    },
    /// A structure of the kernel lacks what the programs read.
    #[error("this kernel's {structure} has no {member}, so its dirty pages cannot be told")]
    NoField {
        /// The structure.
        structure: &'static str,
        /// The member.
        member: &'static str,
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
    /// A call to bpf(2) failed.
    #[error("{step}: {source}")]
    Call {
        /// What was tried.
        step: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The kernel does not accept a program.
    #[error("the kernel refuses the program on {tracepoint}: {source}\n{log}")]
    Refused {
        /// Which program.
        tracepoint: &'static str,
        /// The error of the call.
        source: io::Error,
        /// What the kernel's verifier says.
        log: String,
    },
}

impl BpfError {
    /// The error of a call.
    pub(super) fn of_call(step: &'static str, source: io::Error) -> BpfError {
        match source.raw_os_error() {
            Some(libc::ENOSYS) => BpfError::NoBpf,
            Some(libc::EPERM | libc::EACCES) => BpfError::NotPermitted { step },
            _ => BpfError::Call { step, source },
        }
    }
}
