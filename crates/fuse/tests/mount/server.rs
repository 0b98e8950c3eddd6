//! A file system in memory, with names that do something special:
//! - `panic` in any directory: the handler panics;
//! - reads of `gate*` wait until `open-gates` is made, reads of `slow` until they are interrupted; a file beside the
//!   mount says how many came to wait;
//! - writes to `late*` are done at once, and answered when `open-gates` is made;
//! - writes to `held*` are answered once a thousand of them wait, from another thread;
//! - `through*` is passed through to the backing file, which is registered once, or for each handle of `through-each`;
//! - `user.do` of the root, set to words, notifies the kernel; `user.count.NAME` counts requests.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

use umbrella_fuse::*;

const TTL: Duration = Duration::from_secs(100);

#[derive(Default, Clone)]
struct Inode {
    kind: Option<FileType>,
    mode: u32,
    owner: (u32, u32),
    nlink: u32,
    device: rustix::fs::Dev,
    times: [Timestamp; 3],
    data: Vec<u8>,
    entries: BTreeMap<OsString, u64>,
    xattrs: BTreeMap<OsString, Vec<u8>>,
    flags: u32,
    fs_xattr: FsXattr,
    locks: Vec<(LockOwner, Lock)>,
    waker: Option<PollHandle>,
}

#[derive(Default)]
struct State {
    inodes: HashMap<u64, Inode>,
    next: u64,
    gates_open: bool,
    interrupted: Vec<RequestId>,
    retrieved: Vec<u8>,
}

/// What the handlers share with those who answer later.
pub(crate) struct Memory {
    state: Arc<(Mutex<State>, Condvar)>,
    held: Sender<(usize, Reply<Written>)>,
    counts: Arc<Mutex<HashMap<u32, u64>>>,
    /// Requests of the kinds whose number matters that have come, each before it is answered.
    begun: Mutex<HashMap<&'static str, u64>>,
    pub(crate) notifier: Arc<OnceLock<Notifier>>,
    work: Sender<String>,
    backing: Option<PathBuf>,
    /// By handle; 0 for many.
    backing_files: Mutex<HashMap<u64, BackingFile>>,
    handles: AtomicU64,
    /// A file that says how many wait at the gates: a question through the mount would change the answer.
    pub(crate) waiting: PathBuf,
    at_gates: AtomicU64,
}

pub(crate) struct Count(pub(crate) Arc<Mutex<HashMap<u32, u64>>>);

impl Observer for Count {
    fn finished(&self, request: &Finished<'_>) {
        *self.0.lock().unwrap().entry(request.operation).or_default() += 1;
    }
}

impl Memory {
    pub(crate) fn new(counts: Arc<Mutex<HashMap<u32, u64>>>, backing: Option<PathBuf>) -> Memory {
        let (held, answers) = channel::<(usize, Reply<Written>)>();
        std::thread::spawn(move || {
            loop {
                let held: Vec<_> = answers.iter().take(1000).collect();
                if held.len() < 1000 {
                    break;
                }
                for (length, reply) in held {
                    reply.ok(Written(length as u32));
                }
            }
        });
        let root = Inode { kind: Some(FileType::Directory), mode: 0o755, nlink: 2, ..Inode::default() };
        let state = State { inodes: HashMap::from([(1, root)]), next: 100, ..State::default() };
        let state = Arc::new((Mutex::new(state), Condvar::new()));
        let (work, orders) = channel::<String>();
        let notifier: Arc<OnceLock<Notifier>> = Arc::default();
        let (to, tree) = (Arc::clone(&notifier), Arc::clone(&state));
        std::thread::spawn(move || orders.iter().for_each(|order| carry_out(&order, to.get().unwrap(), &tree.0)));
        let (backing_files, handles) = (Mutex::default(), AtomicU64::new(1));
        let (waiting, at_gates) = (PathBuf::new(), AtomicU64::new(0));
        let begun = Mutex::default();
        Memory { state, held, counts, begun, notifier, work, backing, backing_files, handles, waiting, at_gates }
    }

    fn begins(&self, operation: &'static str) {
        *self.begun.lock().unwrap().entry(operation).or_default() += 1;
    }

    /// How many requests of a kind the observer has seen. It may see one after who asked has the answer, so it is
    /// waited for.
    fn observed(&self, operation: &str) -> u64 {
        let seen = || {
            // Without the lock: the answer counts too.
            let counts = self.counts.lock().unwrap().clone();
            let of_kind = counts.into_iter().filter(|(number, _)| operation_name(*number) == operation);
            of_kind.map(|(_, count)| count).sum::<u64>()
        };
        let begun = self.begun.lock().unwrap().get(operation).copied().unwrap_or_default();
        let until = Instant::now() + Duration::from_secs(60);
        while seen() < begun && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        seen()
    }

    fn with<R>(&self, node: NodeId, call: impl FnOnce(&mut Inode) -> Result<R, Errno>) -> Result<R, Errno> {
        call(self.state.0.lock().unwrap().inodes.get_mut(&node.0).ok_or(Errno::ESTALE)?)
    }

    fn attributes(&self, node: u64, inode: &Inode) -> Attributes {
        Attributes {
            nlink: inode.nlink,
            uid: inode.owner.0,
            gid: inode.owner.1,
            device: inode.device,
            size: inode.data.len() as u64,
            blocks: inode.data.len().div_ceil(512) as u64,
            atime: inode.times[0],
            mtime: inode.times[1],
            ctime: inode.times[2],
            // Not the node id: the two are to be told apart.
            ..Attributes::new(InodeNumber(node + 1_000_000), inode.kind.unwrap(), inode.mode & 0o7777)
        }
    }

    fn entry(&self, node: u64, inode: &Inode) -> Entry {
        let attributes = self.attributes(node, inode);
        Entry { node: NodeId(node), generation: 0, entry_ttl: TTL, attributes_ttl: TTL, attributes }
    }

    fn make(&self, parent: NodeId, name: &OsStr, mut inode: Inode, groups: &[u32]) -> Result<Entry, Errno> {
        let mut state = self.state.0.lock().unwrap();
        let node = state.next;
        state.next += 1;
        if name == "open-gates" {
            state.gates_open = true;
            self.state.1.notify_all();
        }
        if let Some(group) = groups.first() {
            inode.xattrs.insert("user.group".into(), group.to_string().into_bytes());
        }
        inode.nlink = if inode.kind == Some(FileType::Directory) { 2 } else { u32::from(!name.is_empty()) };
        if !name.is_empty() {
            let entries = &mut state.inodes.get_mut(&parent.0).ok_or(Errno::ESTALE)?.entries;
            if entries.contains_key(name) {
                return Err(Errno::EEXIST);
            }
            entries.insert(name.to_owned(), node);
        }
        let entry = self.entry(node, &inode);
        state.inodes.insert(node, inode);
        Ok(entry)
    }

    fn remove(&self, parent: NodeId, name: &OsStr) -> Result<(), Errno> {
        let mut state = self.state.0.lock().unwrap();
        let node = *state.inodes.get(&parent.0).ok_or(Errno::ESTALE)?.entries.get(name).ok_or(Errno::ENOENT)?;
        if state.inodes.get(&node).is_some_and(|inode| !inode.entries.is_empty()) {
            return Err(Errno::ENOTEMPTY);
        }
        state.inodes.get_mut(&parent.0).unwrap().entries.remove(name);
        if let Some(inode) = state.inodes.get_mut(&node) {
            inode.nlink = inode.nlink.saturating_sub(1);
        }
        Ok(())
    }

    fn name_of(&self, node: NodeId) -> String {
        let state = self.state.0.lock().unwrap();
        let all = state.inodes.values().flat_map(|inode| &inode.entries);
        all.into_iter()
            .find(|(_, found)| **found == node.0)
            .map_or(String::new(), |(name, _)| name.to_string_lossy().into())
    }

    fn opened(&self, node: NodeId) -> Opened {
        let handle = FileHandle(self.handles.fetch_add(1, Ordering::Relaxed));
        let name = self.name_of(node);
        if let (Some(backing), true) = (&self.backing, name.starts_with("through")) {
            let register = || {
                let file = std::fs::OpenOptions::new().read(true).write(true).open(backing).unwrap();
                self.notifier.get().unwrap().open_backing(file.as_fd()).unwrap()
            };
            let key = if name == "through-each" { handle.0 } else { 0 };
            let mut backing_files = self.backing_files.lock().unwrap();
            return Opened::passthrough(handle, OpenFlags::empty(), backing_files.entry(key).or_insert_with(register));
        }
        let direct = name.starts_with("gate") || name.starts_with("held") || name.starts_with("slow");
        let flags =
            if direct { OpenFlags::DIRECT_IO | OpenFlags::PARALLEL_DIRECT_WRITES } else { OpenFlags::KEEP_CACHE };
        Opened::new(handle, flags)
    }

    fn list(&self, request: &Read, plus: bool) -> Listing {
        let state = self.state.0.lock().unwrap();
        let mut listing = Listing::new(request.size);
        let Some(directory) = state.inodes.get(&request.node.0) else { return listing };
        for (next, (name, node)) in (1..).zip(&directory.entries).skip(request.offset as usize) {
            let inode = &state.inodes[node];
            let kind = inode.kind.unwrap();
            let listed = Listed { ino: InodeNumber(node + 1_000_000), next, kind, name };
            let added = if plus {
                listing.add_with_attributes(&listed, &self.entry(*node, inode))
            } else {
                listing.add(&listed)
            };
            if added.is_err() {
                break;
            }
        }
        listing
    }

    /// Waits at a gate, or for the interruption of a slow read.
    fn wait(&self, context: &Context<'_>, name: &str) -> Result<(), Errno> {
        let mut state = self.state.0.lock().unwrap();
        if name.starts_with("gate") || name.starts_with("slow") {
            let waiting = self.at_gates.fetch_add(1, Ordering::Relaxed) + 1;
            let _ = std::fs::write(&self.waiting, waiting.to_string());
        }
        if name.starts_with("gate") {
            while !state.gates_open {
                state = self.state.1.wait(state).unwrap();
            }
        }
        if name.starts_with("slow") {
            while !context.is_interrupted() {
                state = self.state.1.wait(state).unwrap();
            }
            return Err(Errno::EINTR);
        }
        Ok(())
    }
}

/// What the root's `user.do` says.
fn carry_out(order: &str, notifier: &Notifier, state: &Mutex<State>) {
    let words: Vec<&str> = order.split(' ').collect();
    let node = |name: &str| NodeId(state.lock().unwrap().inodes[&1].entries[OsStr::new(name)]);
    let done = match words[..] {
        ["inval_entry", name] => notifier.inval_entry(NodeId::ROOT, name.as_ref()),
        ["expire_entry", name] => notifier.expire_entry(NodeId::ROOT, name.as_ref()),
        ["inval_inode", name] => notifier.inval_inode(node(name), 0, 0),
        ["delete", name] => notifier.delete(NodeId::ROOT, node(name), name.as_ref()),
        ["store", name, text] => notifier.store(node(name), 0, text.as_bytes()),
        ["retrieve", name] => notifier.retrieve(node(name), 0, 4096).map(drop),
        ["inc_epoch"] => notifier.inc_epoch(),
        ["prune", name] => notifier.prune(&[node(name)]),
        ["resend"] => notifier.resend(),
        ["wake", name] => {
            let node = node(name);
            let waker = state.lock().unwrap().inodes[&node.0].waker;
            waker.map_or(Ok(()), |waker| notifier.poll_wakeup(waker))
        }
        _ => panic!("nobody knows how to {order}"),
    };
    let result = done.map_or_else(|error| error.to_string(), |()| "done".to_owned());
    state.lock().unwrap().inodes.get_mut(&1).unwrap().xattrs.insert("user.done".into(), result.into_bytes());
}

impl Filesystem for Memory {
    fn init(&mut self, offer: &Offer, agreement: &mut Agreement) -> io::Result<()> {
        agreement.flags |= InitFlags::HANDLE_KILLPRIV_V2
            | InitFlags::SETXATTR_EXT
            | InitFlags::POSIX_LOCKS
            | InitFlags::FLOCK_LOCKS
            | InitFlags::DO_READDIRPLUS
            | InitFlags::CREATE_SUPP_GROUP
            | InitFlags::ALLOW_IDMAP
            | InitFlags::HAS_RESEND
            | InitFlags::PASSTHROUGH;
        agreement.max_stack_depth = 1;
        agreement.max_background = 1000;
        assert!(offer.minor >= 31);
        Ok(())
    }

    fn lookup(&self, _context: &Context<'_>, request: Lookup<'_>, reply: Reply<Entry>) {
        assert!(request.name != "panic", "as it was asked for");
        self.begins("lookup");
        let state = self.state.0.lock().unwrap();
        let found = state.inodes.get(&request.parent.0).and_then(|inode| inode.entries.get(request.name));
        match found {
            Some(node) => reply.ok(self.entry(*node, &state.inodes[node])),
            None => reply.ok(Entry::negative(TTL)),
        }
    }

    fn interrupt(&self, id: RequestId) {
        self.state.0.lock().unwrap().interrupted.push(id);
        self.state.1.notify_all();
    }

    fn retrieved(&self, request: &Retrieved<'_>) {
        self.state.0.lock().unwrap().retrieved = request.data.to_vec();
    }

    fn getattr(&self, _context: &Context<'_>, request: GetAttr, reply: Reply<Stat>) {
        reply.send(
            self.with(request.node, |inode| Ok(Stat { attributes: self.attributes(request.node.0, inode), ttl: TTL })),
        );
    }

    fn statx(&self, _context: &Context<'_>, request: GetStatx, reply: Reply<Statx>) {
        let birth = Some(Timestamp { seconds: -5, nanoseconds: 7 });
        reply.send(self.with(request.node, |inode| {
            Ok(Statx { attributes: self.attributes(request.node.0, inode), ttl: TTL, birth })
        }));
    }

    fn setattr(&self, _context: &Context<'_>, request: SetAttr, reply: Reply<Stat>) {
        reply.send(self.with(request.node, |inode| {
            let time = |given: Option<NewTime>, now: Timestamp| match given {
                Some(NewTime::At(time)) => time,
                Some(NewTime::Now) => Timestamp { seconds: 1_000_000_000, nanoseconds: 0 },
                None => now,
            };
            inode.times = [time(request.atime, inode.times[0]), time(request.mtime, inode.times[1]), inode.times[2]];
            inode.mode = request.mode.unwrap_or(inode.mode);
            inode.owner = (request.uid.unwrap_or(inode.owner.0), request.gid.unwrap_or(inode.owner.1));
            if let Some(size) = request.size {
                inode.data.resize(size as usize, 0);
            }
            if request.kill_suidgid {
                inode.mode &= !0o6000;
            }
            Ok(Stat { attributes: self.attributes(request.node.0, inode), ttl: TTL })
        }));
    }

    fn readlink(&self, _context: &Context<'_>, request: ReadLink, reply: Reply<Data>) {
        match self.with(request.node, |inode| Ok(inode.data.clone())) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error),
        }
    }

    fn mknod(&self, context: &Context<'_>, request: MkNod<'_>, reply: Reply<Entry>) {
        let (kind, owner) = (Some(FileType::from_raw_mode(request.mode)), (context.uid, context.gid));
        let inode = Inode { kind, mode: request.mode, owner, device: request.device, ..Inode::default() };
        reply.send(self.make(request.parent, request.name, inode, &request.extensions.groups));
    }

    fn mkdir(&self, context: &Context<'_>, request: MkDir<'_>, reply: Reply<Entry>) {
        let kind = Some(FileType::Directory);
        let inode = Inode { kind, mode: request.mode, owner: (context.uid, context.gid), ..Inode::default() };
        reply.send(self.make(request.parent, request.name, inode, &request.extensions.groups));
    }

    fn symlink(&self, context: &Context<'_>, request: SymLink<'_>, reply: Reply<Entry>) {
        let (kind, data) = (Some(FileType::Symlink), request.target.as_encoded_bytes().to_vec());
        let inode = Inode { kind, mode: 0o777, owner: (context.uid, context.gid), data, ..Inode::default() };
        reply.send(self.make(request.parent, request.name, inode, &[]));
    }

    fn unlink(&self, _context: &Context<'_>, request: Unlink<'_>, reply: Reply<()>) {
        reply.send(self.remove(request.parent, request.name));
    }

    fn rmdir(&self, _context: &Context<'_>, request: RmDir<'_>, reply: Reply<()>) {
        reply.send(self.remove(request.parent, request.name));
    }

    fn rename(&self, context: &Context<'_>, request: Rename<'_>, reply: Reply<()>) {
        let mut state = self.state.0.lock().unwrap();
        let old = state.inodes[&request.parent.0].entries.get(request.name).copied();
        let new = state.inodes[&request.new_parent.0].entries.get(request.new_name).copied();
        let Some(old) = old else { return reply.error(Errno::ENOENT) };
        if request.flags.contains(RenameFlags::NOREPLACE) && new.is_some() {
            return reply.error(Errno::EEXIST);
        }
        state.inodes.get_mut(&request.parent.0).unwrap().entries.remove(request.name);
        state.inodes.get_mut(&request.new_parent.0).unwrap().entries.insert(request.new_name.to_owned(), old);
        if let (true, Some(new)) = (request.flags.contains(RenameFlags::EXCHANGE), new) {
            state.inodes.get_mut(&request.parent.0).unwrap().entries.insert(request.name.to_owned(), new);
        }
        drop(state);
        if request.flags.contains(RenameFlags::WHITEOUT) {
            let kind = Some(FileType::CharacterDevice);
            let whiteout = Inode { kind, owner: (context.uid, context.gid), ..Inode::default() };
            let _ = self.make(request.parent, request.name, whiteout, &[]);
        }
        reply.ok(());
    }

    fn link(&self, _context: &Context<'_>, request: Link<'_>, reply: Reply<Entry>) {
        let mut state = self.state.0.lock().unwrap();
        state
            .inodes
            .get_mut(&request.new_parent.0)
            .unwrap()
            .entries
            .insert(request.new_name.to_owned(), request.node.0);
        let inode = state.inodes.get_mut(&request.node.0).unwrap();
        inode.nlink += 1;
        let entry = self.entry(request.node.0, inode);
        reply.ok(entry);
    }

    fn open(&self, _context: &Context<'_>, request: Open, reply: Reply<Opened>) {
        reply.ok(self.opened(request.node));
    }

    fn create(&self, context: &Context<'_>, request: Create<'_>, reply: Reply<Created>) {
        let kind = Some(FileType::RegularFile);
        let inode = Inode { kind, mode: request.mode, owner: (context.uid, context.gid), ..Inode::default() };
        let made = self.make(request.parent, request.name, inode, &request.extensions.groups);
        reply.send(made.map(|entry| Created { entry, opened: self.opened(entry.node) }));
    }

    fn tmpfile(&self, context: &Context<'_>, request: Create<'_>, reply: Reply<Created>) {
        let kind = Some(FileType::RegularFile);
        let inode = Inode { kind, mode: request.mode, owner: (context.uid, context.gid), ..Inode::default() };
        let made = self.make(request.parent, OsStr::new(""), inode, &[]);
        reply.send(made.map(|entry| Created { entry, opened: self.opened(entry.node) }));
    }

    fn read(&self, context: &Context<'_>, request: Read, reply: Reply<Data>) {
        self.begins("read");
        let name = self.name_of(request.node);
        if context.resent {
            let _ = std::fs::write(self.waiting.with_extension("resent"), "");
        }
        if let Err(error) = self.wait(context, &name) {
            return reply.error(error);
        }
        reply.fill(request.size as usize, |buffer| {
            assert!(buffer.as_ptr().addr().is_multiple_of(4096));
            self.with(request.node, |inode| {
                let rest = inode.data.get(request.offset as usize..).unwrap_or_default();
                let length = rest.len().min(buffer.len());
                buffer[..length].copy_from_slice(&rest[..length]);
                Ok(length)
            })
        });
    }

    fn write(&self, context: &Context<'_>, request: Write<'_>, reply: Reply<Written>) {
        self.begins("write");
        assert!(request.data.as_ptr().addr().is_multiple_of(4096), "data begins at a page");
        let written = self.with(request.node, |inode| {
            let end = request.offset as usize + request.data.len();
            if inode.data.len() < end {
                inode.data.resize(end, 0);
            }
            inode.data[request.offset as usize..end].copy_from_slice(request.data);
            Ok(request.data.len())
        });
        let name = self.name_of(request.node);
        if name.starts_with("late") {
            let _ = self.wait(context, "gate");
        }
        match written {
            Ok(length) if name.starts_with("held") => self.held.send((length, reply)).unwrap(),
            written => reply.send(written.map(|length| Written(length as u32))),
        }
    }

    fn fsync(&self, _context: &Context<'_>, _request: FSync, reply: Reply<()>) {
        reply.ok(());
    }

    fn release(&self, _context: &Context<'_>, request: Release, reply: Reply<()>) {
        self.backing_files.lock().unwrap().remove(&request.handle.0);
        let _ = self.with(request.node, |inode| {
            inode.locks.retain(|(owner, _)| *owner != request.lock_owner);
            Ok(())
        });
        reply.ok(());
    }

    fn flush(&self, _context: &Context<'_>, request: Flush, reply: Reply<()>) {
        let _ = self.with(request.node, |inode| {
            inode.locks.retain(|(owner, _)| *owner != request.lock_owner);
            Ok(())
        });
        self.state.1.notify_all();
        reply.ok(());
    }

    fn readdir(&self, _context: &Context<'_>, request: Read, reply: Reply<Listing>) {
        reply.ok(self.list(&request, false));
    }

    fn readdirplus(&self, _context: &Context<'_>, request: Read, reply: Reply<Listing>) {
        reply.ok(self.list(&request, true));
    }

    fn statfs(&self, _context: &Context<'_>, _request: StatFs, reply: Reply<Space>) {
        reply.ok(Space { block_size: 512, blocks: 1000, blocks_free: 500, longest_name: 255, ..Space::default() });
    }

    fn setxattr(&self, _context: &Context<'_>, request: SetXattr<'_>, reply: Reply<()>) {
        let done = self.with(request.node, |inode| {
            inode.xattrs.remove(OsStr::new("user.done"));
            inode.xattrs.insert(request.name.to_owned(), request.value.to_vec());
            Ok(())
        });
        if request.name == "user.do" {
            self.work.send(String::from_utf8_lossy(request.value).into()).unwrap();
        }
        reply.send(done);
    }

    fn getxattr(&self, _context: &Context<'_>, request: GetXattr<'_>, reply: Reply<Xattr>) {
        let name = request.name.to_string_lossy();
        if let Some(operation) = name.strip_prefix("user.count.") {
            return reply.value(request.size, self.observed(operation).to_string().as_bytes());
        }
        if name == "user.retrieved" {
            let retrieved = self.state.0.lock().unwrap().retrieved.clone();
            return reply.value(request.size, &retrieved);
        }
        match self.with(request.node, |inode| inode.xattrs.get(request.name).cloned().ok_or(Errno::ENODATA)) {
            Ok(value) => reply.value(request.size, &value),
            Err(error) => reply.error(error),
        }
    }

    fn listxattr(&self, _context: &Context<'_>, request: ListXattr, reply: Reply<Xattr>) {
        let names = self.with(request.node, |inode| {
            Ok(inode.xattrs.keys().flat_map(|name| [name.as_encoded_bytes(), &[0]].concat()).collect::<Vec<u8>>())
        });
        match names {
            Ok(names) => reply.value(request.size, &names),
            Err(error) => reply.error(error),
        }
    }

    fn removexattr(&self, _context: &Context<'_>, request: RemoveXattr<'_>, reply: Reply<()>) {
        reply.send(self.with(request.node, |inode| inode.xattrs.remove(request.name).map(drop).ok_or(Errno::ENODATA)));
    }

    fn getlk(&self, _context: &Context<'_>, request: GetLock, reply: Reply<Lock>) {
        reply.send(self.with(request.node, |inode| {
            Ok(conflict(inode, request.owner, &request.lock).unwrap_or(Lock { kind: LockKind::Unlock, ..request.lock }))
        }));
    }

    fn setlk(&self, context: &Context<'_>, request: SetLock, reply: Reply<()>) {
        let mut state = self.state.0.lock().unwrap();
        loop {
            let inode = state.inodes.get_mut(&request.node.0).unwrap();
            if conflict(inode, request.owner, &request.lock).is_none() {
                inode.locks.retain(|(owner, _)| *owner != request.owner);
                if request.lock.kind != LockKind::Unlock {
                    inode.locks.push((request.owner, request.lock));
                }
                self.state.1.notify_all();
                return reply.ok(());
            }
            if !request.wait {
                return reply.error(Errno::EAGAIN);
            }
            if context.is_interrupted() {
                return reply.error(Errno::EINTR);
            }
            state = self.state.1.wait(state).unwrap();
        }
    }

    fn ioctl(&self, _context: &Context<'_>, request: Ioctl<'_>, reply: Reply<IoctlAnswer>) {
        let Some(wanted) = request.file_ioctl() else { return reply.error(Errno::ENOTTY) };
        reply.send(self.with(request.node, |inode| {
            Ok(match wanted {
                FileIoctl::GetFlags => IoctlAnswer::flags(inode.flags),
                FileIoctl::GetFsXattr => IoctlAnswer::fs_xattr(&inode.fs_xattr),
                FileIoctl::SetFlags(flags) => {
                    inode.flags = flags;
                    IoctlAnswer::default()
                }
                FileIoctl::SetFsXattr(value) => {
                    inode.fs_xattr = value;
                    IoctlAnswer::default()
                }
            })
        }));
    }

    fn poll(&self, _context: &Context<'_>, request: Poll, reply: Reply<Ready>) {
        reply.send(self.with(request.node, |inode| {
            if request.wants_wake {
                inode.waker = Some(request.wake);
            }
            Ok(Ready(u32::from(!inode.data.is_empty())))
        }));
    }

    fn fallocate(&self, _context: &Context<'_>, request: FAllocate, reply: Reply<()>) {
        reply.send(self.with(request.node, |inode| {
            let end = (request.offset + request.length) as usize;
            inode.data.resize(inode.data.len().max(end), 0);
            Ok(())
        }));
    }

    fn lseek(&self, _context: &Context<'_>, request: LSeek, reply: Reply<Offset>) {
        reply.send(self.with(request.node, |inode| {
            let (at, end) = (request.offset as usize, inode.data.len());
            match request.whence {
                3 if at < end => Ok(Offset(request.offset as u64)),
                4 if at < end => Ok(Offset(end as u64)),
                _ => Err(Errno::ENXIO),
            }
        }));
    }

    fn copy_file_range(&self, _context: &Context<'_>, request: CopyFileRange, reply: Reply<Copied>) {
        let from = self.with(request.node, |inode| {
            let rest = inode.data.get(request.offset as usize..).unwrap_or_default();
            Ok(rest[..rest.len().min(request.length as usize)].to_vec())
        });
        reply.send(from.and_then(|data| {
            self.with(request.new_node, |inode| {
                let end = request.new_offset as usize + data.len();
                inode.data.resize(inode.data.len().max(end), 0);
                inode.data[request.new_offset as usize..end].copy_from_slice(&data);
                Ok(Copied(data.len() as u64))
            })
        }));
    }
}

fn conflict(inode: &Inode, owner: LockOwner, wanted: &Lock) -> Option<Lock> {
    let apart = |held: &Lock| held.end < wanted.start || wanted.end < held.start;
    let both_read = |held: &Lock| held.kind == LockKind::Read && wanted.kind == LockKind::Read;
    let others = inode.locks.iter().filter(|(holder, _)| *holder != owner && wanted.kind != LockKind::Unlock);
    others.map(|(_, held)| *held).find(|held| !apart(held) && !both_read(held))
}
