//! A file system that shows one file: `cargo run --example one_file -- /mnt`, then `cat /mnt/hello`. It ends with
//! `umount /mnt`.
#![allow(clippy::wildcard_imports)]
use std::ffi::OsStr;
use std::time::Duration;
use umbrella_fuse::*;

const FILE: NodeId = NodeId(2);
const TEXT: &[u8] = b"Hello from user space.\n";
const TTL: Duration = Duration::from_secs(60);

struct OneFile;

fn attributes(node: NodeId) -> Attributes {
    let ino = InodeNumber(node.0);
    match node {
        FILE => Attributes { size: TEXT.len() as u64, ..Attributes::new(ino, FileType::RegularFile, 0o444) },
        _ => Attributes::new(ino, FileType::Directory, 0o555),
    }
}

impl Filesystem for OneFile {
    fn lookup(&self, _context: &Context<'_>, request: Lookup<'_>, reply: Reply<Entry>) {
        if request.name != "hello" {
            return reply.ok(Entry::negative(TTL));
        }
        let attributes = attributes(FILE);
        reply.ok(Entry { node: FILE, generation: 0, entry_ttl: TTL, attributes_ttl: TTL, attributes });
    }

    fn getattr(&self, _context: &Context<'_>, request: GetAttr, reply: Reply<Stat>) {
        reply.ok(Stat { attributes: attributes(request.node), ttl: TTL });
    }

    fn read(&self, _context: &Context<'_>, request: Read, reply: Reply<Data>) {
        let rest = TEXT.get(request.offset as usize..).unwrap_or_default();
        reply.data(&rest[..rest.len().min(request.size as usize)]);
    }

    fn readdir(&self, _context: &Context<'_>, request: Read, reply: Reply<Listing>) {
        let (file, directory) = (FileType::RegularFile, FileType::Directory);
        let entries = [(NodeId::ROOT, directory, "."), (NodeId::ROOT, directory, ".."), (FILE, file, "hello")];
        let mut listing = Listing::new(request.size);
        for (next, (node, kind, name)) in (1..).zip(entries).skip(request.offset as usize) {
            let entry = Listed { ino: InodeNumber(node.0), next, kind, name: OsStr::new(name) };
            if listing.add(&entry).is_err() {
                break;
            }
        }
        reply.ok(listing);
    }
}

fn main() -> std::io::Result<()> {
    let at = std::env::args_os().nth(1).expect("name the directory to mount on");
    let options = MountOptions::DEFAULT_PERMISSIONS | MountOptions::ALLOW_OTHER;
    let spec = MountSpec { source: "one_file".into(), subtype: "one_file".into(), options };
    Session::mount(OneFile, at.as_ref(), &spec, Config::default())?.run()
}
