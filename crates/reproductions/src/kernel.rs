//! How the kernels of the papers, Linux 2.6.12 (TESA, MRAM) and 2.6.24 (UmbrellaFS), write files.

/// A policy that goes by files, as a change of those kernels. A file that is not written to its end is continued from
/// there (`writeback_index`), and waits behind the others unless the files are sorted. No file has a share of its own
/// (`chunk`). Sources: the policies' parameters.
pub(crate) fn by_files(policy: &str) -> String {
    let params = match policy {
        "file" => "chunk=0,resume=true,requeue=true",
        _ if policy.contains("sorted") => "resume=true,requeue=false",
        _ => "resume=true,requeue=true",
    };
    format!("{policy}:{params}")
}

/// The policy's name alone.
pub(crate) fn name(spec: &str) -> &str {
    spec.split(':').next().unwrap_or_default()
}
