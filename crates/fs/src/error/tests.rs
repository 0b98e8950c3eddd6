use super::*;

fn not_opened(source: Errno) -> Error {
    Error::of_branch("ssd", &BranchError::Open { path: "/mnt/ssd".into(), source })
}

#[test]
fn a_branch_that_is_missing_can_be_left_out() {
    let error = not_opened(Errno::NOENT);
    assert!(matches!(error, Error::BranchMissing { .. }), "{error:?}");
}

#[test]
fn a_daemon_that_lacks_descriptors_memory_or_threads_is_not_told_to_leave_a_branch_out() {
    for (source, remedy) in
        [(Errno::MFILE, "LimitNOFILE="), (Errno::NFILE, "fs.file-max"), (Errno::NOMEM, "MemoryMax=")]
    {
        let error = not_opened(source);
        assert!(matches!(error, Error::BranchUnopened { .. }) && error.to_string().contains(remedy), "{error:?}");
    }
    let error = Error::of_branch("ssd", &BranchError::NoThread { path: "/mnt/ssd".into() });
    assert!(matches!(error, Error::BranchUnopened { .. }), "{error:?}");
    assert_eq!(error.to_string().matches("TasksMax=").count(), 1, "{error}");
    let mount = Error::Mount { path: "/srv".into(), source: std::io::Error::from_raw_os_error(24) }.to_string();
    assert!(mount.contains("ulimit -n"), "{mount}");
}
