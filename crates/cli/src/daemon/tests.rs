use super::*;

#[test]
fn a_daemon_that_is_killed_or_gives_up_while_it_starts_may_have_lacked_memory() {
    for (signal, name) in [(libc::SIGKILL, "SIGKILL"), (libc::SIGABRT, "SIGABRT")] {
        let text = describe_exit(ExitStatus::from_raw(signal));
        assert!(text.contains(name) && text.contains("MemoryMax="), "{text}");
    }
    assert!(!describe_exit(ExitStatus::from_raw(libc::SIGTERM)).contains("memory"));
}
