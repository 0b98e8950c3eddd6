use super::*;

#[test]
fn a_gate_lets_through_what_is_over() {
    let gate = Gate::default();
    gate.set(Phase::Serving);
    assert_eq!(gate.wait(Phase::Registering), Phase::Serving);
    gate.set(Phase::Ended);
    assert_eq!(gate.wait(Phase::Serving), Phase::Ended);
}

/// Mounts for other processes; this one only serves.
#[cfg(feature = "live-tests")]
mod live {
    use std::process::Command;

    use super::*;
    use crate::connection;
    use crate::filesystem::{Context, Filesystem, Interruptions, Server};
    use crate::mount::{MountOptions, MountSpec, Mounting};
    use crate::transport::dev::{DeviceReaders, Limits};
    use crate::transport::processors;
    use crate::{Reply, Space, StatFs};

    struct Nothing;

    impl Filesystem for Nothing {
        fn statfs(&self, _context: &Context<'_>, _request: StatFs, reply: Reply<Space>) {
            reply.ok(Space { blocks: 4711, block_size: 512, ..Space::default() });
        }
    }

    #[test]
    fn a_registration_that_fails_gives_the_connection_back_to_the_device() {
        let folder = tempfile::tempdir().unwrap();
        let queues = processors::queues(crate::Transport::Auto).unwrap();
        let device = Arc::new(Device::open().unwrap());
        let spec = MountSpec { source: "nothing".into(), subtype: String::new(), options: MountOptions::empty() };
        let mounting = Mounting::new(&device, &spec, folder.path()).unwrap();
        let agreed = connection::negotiate(&device, 1 << 20, |_, _| Ok(())).unwrap();
        let (interruptions, observer, thread_start) = (Interruptions::new(), None, None);
        let server = Server { filesystem: Nothing, shape: agreed.shape(), interruptions, observer, thread_start };
        let server: Arc<dyn Serve> = Arc::new(server);
        // Shorter than what was agreed on: the kernel refuses it.
        let sizes = Sizes { queues, most: 2, payload: 4096 };
        let prepared = Rings::prepare(&device, Arc::clone(&server), sizes, None).unwrap();
        agreed.answer(&device, Some(sizes.most)).unwrap();
        let refused = prepared.register().err().unwrap();
        assert!(matches!(refused, Refused::GivenBack(error) if error.raw_os_error() == Some(libc::EINVAL)));
        let unmounter = mounting.attach(Arc::clone(&device), folder.path().to_owned()).unwrap();
        let limits = Limits { least: 2, most: 2, payload: agreed.payload(), gathers: false };
        let readers = DeviceReaders::new(device, server, limits);
        let served = std::thread::spawn(move || readers.run());
        let output =
            Command::new("timeout").args(["60", "stat", "-f", "-c", "%b"]).arg(folder.path()).output().unwrap();
        unmounter.unmount().unwrap();
        served.join().unwrap().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "4711");
    }
}
