//! Compiles the programs that run in the kernel (`src/bpf/dirty_pages.bpf.c`) with clang, against the headers of the
//! libbpf that is linked in.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::{env, io};

const SOURCE: &str = "src/bpf/dirty_pages.bpf.c";

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed={SOURCE}");
    match compile() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            println!("cargo::error={}", reason.trim().replace('\n', " | "));
            ExitCode::FAILURE
        }
    }
}

fn compile() -> Result<(), String> {
    let variable = |name| env::var(name).map_err(|error| format!("{name}: {error}"));
    let object = Path::new(&variable("OUT_DIR")?).join("dirty_pages.bpf.o");
    let output = Command::new("clang")
        // -g writes the kernel's types (BTF), which libbpf needs; the build folder is left out, so that every build is
        // alike.
        .args(["-target", "bpf", "-O2", "-g", "-fdebug-compilation-dir=.", "-fno-stack-protector", "-Wall", "-Werror"])
        .arg("-I")
        .arg(variable("DEP_BPF_INCLUDE")?)
        .args(["-c", SOURCE, "-o"])
        .arg(object)
        .output()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                "clang, which compiles BPF programs, is missing: apt-get install clang".to_owned()
            }
            _ => format!("clang does not start: {error}"),
        })?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}
