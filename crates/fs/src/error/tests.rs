use super::*;

fn open(source: Errno) -> String {
    Error::of_branch("ssd", &BranchError::Open { path: "/mnt/ssd".into(), source }).to_string()
}

#[test]
fn a_branch_that_is_missing_can_be_left_out() {
    assert!(open(Errno::NOENT).ends_with("(start with --allow-missing ssd to go on without it)"));
}

#[test]
fn a_daemon_that_lacks_descriptors_memory_or_threads_is_not_told_to_leave_a_branch_out() {
    for (source, remedy) in
        [(Errno::MFILE, "LimitNOFILE="), (Errno::NFILE, "fs.file-max"), (Errno::NOMEM, "MemoryMax=")]
    {
        let text = open(source);
        assert!(text.contains(remedy) && !text.contains("--allow-missing"), "{text}");
    }
    let text = Error::of_branch("ssd", &BranchError::NoThread { path: "/mnt/ssd".into() }).to_string();
    assert_eq!(text.matches("TasksMax=").count(), 1, "{text}");
    assert!(!text.contains("--allow-missing"), "{text}");
    let mount = Error::Mount { path: "/srv".into(), source: std::io::Error::from_raw_os_error(24) }.to_string();
    assert!(mount.contains("ulimit -n"), "{mount}");
}
