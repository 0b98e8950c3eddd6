//! The `umbrella` binary.

fn main() {}
