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
    /// The kernel has no such tracepoint.
    #[error("this kernel has no tracepoint {name} (it came with Linux 5.18)")]
    NoTracepoint {
        /// Its name.
        name: &'static str,
    },
    /// A structure of the kernel lacks what the programs read.
    #[error("this kernel has no {field}, so its dirty pages cannot be told")]
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
