//! Compiles the programs that run in the kernel (`src/bpf/dirty_pages.bpf.c`) with clang.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::{env, io};

use libbpf_cargo::SkeletonBuilder;

const SOURCE: &str = "src/bpf/dirty_pages.bpf.c";

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed={SOURCE}");
    if Command::new("clang").arg("--version").output().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        println!("cargo::error=clang, which compiles BPF programs, is missing: apt-get install clang");
        return ExitCode::FAILURE;
    }
    let Some(out) = env::var_os("OUT_DIR") else { return ExitCode::FAILURE };
    let object = Path::new(&out).join("dirty_pages.bpf.o");
    match SkeletonBuilder::new().source(SOURCE).obj(object).clang_args(["-Wall", "-Werror"]).build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("cargo::error={}", format!("{error:#}").replace('\n', " | "));
            ExitCode::FAILURE
        }
    }
}
