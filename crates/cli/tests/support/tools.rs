//! Test programs from elsewhere: `pjdfstest` and `fsx`, installed by `make setup`.

use std::path::PathBuf;

/// Where a tool is: below the workspace's `target/tools/bin`, in `UMBRELLA_TOOLS`, or in `PATH`.
pub fn tool(name: &str) -> PathBuf {
    let mut folders = Vec::new();
    if let Some(folder) = std::env::var_os("UMBRELLA_TOOLS") {
        folders.push(PathBuf::from(folder));
    }
    folders.push(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin"));
    if let Some(path) = std::env::var_os("PATH") {
        folders.extend(std::env::split_paths(&path));
    }
    folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file()).unwrap_or_else(|| {
        panic!("{name} is not installed: run `make setup`, or set UMBRELLA_TOOLS to the folder it is in")
    })
}
