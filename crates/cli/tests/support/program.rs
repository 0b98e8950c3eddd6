//! The program as its users call it: what it prints, and how it ends.
#![allow(dead_code, unreachable_pub, reason = "shared by several test binaries, each of which uses a part")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;

/// What a command printed to standard error.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What came of a command, which must not panic.
pub fn output(command: &mut Command) -> Output {
    let output = command.output().expect("the program can be started");
    assert!(!said(&output).contains("panicked"), "{command:?}: {}", said(&output));
    output
}

/// Standard output of what must succeed.
pub fn given(command: &mut Command) -> String {
    let done = output(command);
    assert!(done.status.success(), "{command:?}: {}", said(&done));
    String::from_utf8(done.stdout).expect("text")
}

/// Must end with that code, nothing on standard output, and every part of `message` said.
pub fn refused(command: &mut Command, code: i32, message: &[&str]) {
    let done = output(command);
    assert_eq!(done.status.code(), Some(code), "{command:?}: {}", said(&done));
    assert!(done.stdout.is_empty(), "{command:?}: {}", String::from_utf8_lossy(&done.stdout));
    for part in message {
        assert!(said(&done).contains(part), "{command:?}: {part:?} is not in {:?}", said(&done));
    }
}

/// A trace of `lines`, in a folder of its own.
pub fn trace(name: &str, lines: impl IntoIterator<Item = String>) -> (TempDir, PathBuf) {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join(name);
    let mut text = "time_us,dev,op,offset_bytes,size_bytes,flags\n".to_owned();
    lines.into_iter().for_each(|line| text += &(line + "\n"));
    fs::write(&path, text).expect("a trace");
    (folder, path)
}
