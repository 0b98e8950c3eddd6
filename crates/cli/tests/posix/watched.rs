//! Events of inotify, which programs that sync and index wait for.

use std::fs::{self, File};
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use crate::{Data, Two};

/// Events until one of `last`, by name; fails when none comes for ten seconds.
fn events(watch: &OwnedFd, last: ReadFlags) -> Vec<(u32, String)> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(watch.as_fd(), &mut buffer);
    let mut seen = Vec::new();
    loop {
        if reader.is_buffer_empty() {
            let wait = Timespec { tv_sec: 10, tv_nsec: 0 };
            let ready = poll(&mut [PollFd::new(watch, PollFlags::IN)], Some(&wait)).unwrap();
            assert_eq!(ready, 1, "waited for {last:?}; before it came {seen:?}");
        }
        let event = reader.next().unwrap();
        let name = event.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
        seen.push((event.events().bits(), name));
        if event.events().contains(last) {
            return seen;
        }
    }
}

/// All that a file goes through, as its directory's watch and its own tell.
fn life(dir: &Path, name: &str) -> [Vec<(u32, String)>; 2] {
    let [above, own] = [(); 2].map(|()| inotify::init(CreateFlags::CLOEXEC).unwrap());
    // Not when it is closed: a process that another test starts meanwhile has it open, too, for a moment.
    let all = WatchFlags::ALL_EVENTS - WatchFlags::CLOSE;
    inotify::add_watch(&above, dir, all).unwrap();
    let path = dir.join(name);
    let mut file = File::create_new(&path).unwrap();
    inotify::add_watch(&own, &path, all).unwrap();
    file.write_all(b"something").unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    drop(file);
    assert_eq!(fs::read(&path).unwrap(), b"something");
    let other = dir.join(format!("moved-{name}"));
    fs::rename(&path, &other).unwrap();
    fs::remove_file(&other).unwrap();
    [events(&above, ReadFlags::DELETE), events(&own, ReadFlags::IGNORED)]
}

#[test]
fn who_watches_a_file_hears_what_it_hears_on_ext4() {
    for data in Data::ALL {
        let two = Two::new(data);
        two.both().iter().for_each(|root| fs::create_dir(root.join("dir")).unwrap());
        for round in 0..20 {
            for name in ["file", "other.b"] {
                two.same(&format!("{data:?}, round {round}"), |root| life(&root.join("dir"), name));
            }
        }
    }
}
