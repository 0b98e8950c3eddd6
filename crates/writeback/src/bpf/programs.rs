//! The programs of `dirty_pages.bpf.c` in the kernel: loaded and attached, or the reason why not.

use std::cell::RefCell;
use std::fs::File;
use std::path::Path;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Typedef;
use libbpf_rs::{Error, ErrorKind, Link, Map, MapCore, Object, ObjectBuilder, OpenObject, PrintLevel, set_print};
use rustix::fs::Dev;
use umbrella_units::ByteSize;

use super::error::BpfError;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/dirty_pages.bpf.o"));
const VMLINUX: &str = "/sys/kernel/btf/vmlinux";
const TRACEPOINTS: [&str; 2] = ["writeback_dirty_folio", "sb_clear_inode_writeback"];
/// The maps of variables are called after the object.
const NAME: &str = "umbrella";
const CONSTANTS: &str = "umbrella.rodata";
/// The variables.
pub(super) const COUNTERS: &str = "umbrella.bss";
/// What is seen.
pub(super) const RING: &str = "ring";
/// Files that are noted while the ring is full.
pub(super) const OVERFLOWED: &str = "overflowed";

thread_local! {
    /// What libbpf said since the last load on this thread began.
    static LIBBPF_OUTPUT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Attached until it is dropped.
pub(super) struct Programs {
    object: Object,
    _links: Vec<Link>,
}

impl Programs {
    /// Watches this device, through a ring of `ring` bytes.
    pub(super) fn attach(device: Dev, ring: ByteSize) -> Result<Programs, BpfError> {
        set_print(Some((PrintLevel::Warn, |_, words| LIBBPF_OUTPUT.with_borrow_mut(|said| said.push_str(&words)))));
        LIBBPF_OUTPUT.take();
        let opened = prepared(device, ring)?;
        let object = opened.load().map_err(|error| refused(error, LIBBPF_OUTPUT.take()))?;
        let links = object.progs_mut().map(|program| program.attach()).collect::<Result<_, _>>();
        Ok(Programs { _links: links.map_err(BpfError::of("attaching the programs"))?, object })
    }

    /// One of their maps.
    pub(super) fn map(&self, name: &'static str) -> Result<Map<'_>, BpfError> {
        self.object.maps().find(|map| map.name() == name).ok_or(BpfError::NoPart { part: name })
    }
}

fn prepared(device: Dev, ring: ByteSize) -> Result<OpenObject, BpfError> {
    let opened = ObjectBuilder::default().name(NAME).and_then(|builder| builder.open_memory(OBJECT));
    let mut object = opened.map_err(BpfError::of("reading the programs"))?;
    // As the kernel itself keeps it.
    let device = rustix::fs::major(device) << 20 | rustix::fs::minor(device);
    for mut map in object.maps_mut() {
        if map.name() == CONSTANTS {
            map.set_initial_value(&device.to_ne_bytes()).map_err(BpfError::of("setting the device"))?;
        } else if map.name() == RING {
            map.set_max_entries(ring.0 as u32).map_err(BpfError::of("setting the size of the ring"))?;
        }
    }
    Ok(object)
}

/// Why the programs cannot be loaded.
fn refused(source: Error, log: String) -> BpfError {
    // The verifier refuses with the error of a caller without permission.
    let verified = log.contains("PROG LOAD LOG");
    match source.kind() {
        ErrorKind::PermissionDenied if !verified => BpfError::NotPermitted { step: "loading the programs" },
        ErrorKind::Unsupported => BpfError::NoBpf,
        _ => lacking(&log).unwrap_or(BpfError::Refused { source, log }),
    }
}

/// What this kernel does not have.
fn lacking(log: &str) -> Option<BpfError> {
    let path = Path::new(VMLINUX);
    if let Err(source) = File::open(path) {
        return Some(BpfError::NoTypes { path: path.to_owned(), source });
    }
    let types = Btf::from_vmlinux().ok()?;
    let missing = |name: &&str| types.type_by_name::<Typedef<'_>>(&format!("btf_trace_{name}")).is_none();
    if let Some(name) = TRACEPOINTS.into_iter().find(missing) {
        return Some(BpfError::NoTracepoint { name });
    }
    // failed to resolve CO-RE relocation <byte_off> [24] struct inode.i_generation (0:3 @ offset 24)
    let (_, place) = log.split_once("failed to resolve CO-RE relocation")?;
    let field = place.lines().next()?.split_once("] ")?.1;
    Some(BpfError::NoField { field: field.split(" (").next()?.to_owned() })
}
