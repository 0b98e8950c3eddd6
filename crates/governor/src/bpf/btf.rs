//! Where the running kernel keeps the fields that the programs read: a reader of its own type information (BTF).
//!
//! A structure of the kernel has another layout in every build. `/sys/kernel/btf/vmlinux` tells the layout of the one that
//! runs, so that no program has to be made for a kernel. Only what is asked for here is understood: structures with their
//! members, enumerators, and the types that stand for tracepoints. Source: Documentation/bpf/btf.rst of Linux.

use std::fs;
use std::path::Path;

use super::error::BpfError;

const VMLINUX: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xeb9f;
/// Bytes of what every type begins with: name, info, and size or type.
const HEAD: usize = 12;
const MEMBER: usize = 12;
/// How deep structures without a name may lie in each other.
const DEPTH: usize = 8;

const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;

/// A type's number, as the kernel counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TypeId(pub(super) u32);

/// Bytes from the begin of a structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offset(pub(super) i16);

/// The kernel's type information.
pub(super) struct Btf {
    bytes: Vec<u8>,
    /// Where each type begins; type 1 is the first.
    types: Vec<usize>,
    strings: usize,
}

#[derive(Clone, Copy)]
struct Type {
    at: usize,
    name: usize,
    kind: u32,
    items: usize,
    flag: bool,
}

impl Btf {
    /// Of the kernel that runs.
    pub(super) fn of_kernel() -> Result<Btf, BpfError> {
        Btf::read(Path::new(VMLINUX))
    }

    fn read(path: &Path) -> Result<Btf, BpfError> {
        let bytes = fs::read(path).map_err(|source| BpfError::NoTypes { path: path.to_owned(), source })?;
        Btf::parse(bytes).ok_or_else(|| BpfError::BadTypes { path: path.to_owned() })
    }

    /// None when the bytes are not type information that this reader knows.
    pub(super) fn parse(bytes: Vec<u8>) -> Option<Btf> {
        let word = |at: usize| usize::try_from(word_at(&bytes, at)?).ok();
        if u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?) != MAGIC {
            return None;
        }
        let head = word(4)?;
        let begin = head.checked_add(word(8)?)?;
        let end = begin.checked_add(word(12)?)?;
        let strings = head.checked_add(word(16)?)?;
        if end > bytes.len() || strings > bytes.len() {
            return None;
        }
        let mut btf = Btf { bytes, types: Vec::new(), strings };
        let mut at = begin;
        while at < end {
            let tail = btf.type_at(at)?.tail()?;
            btf.types.push(at);
            at = at.checked_add(HEAD)?.checked_add(tail)?;
        }
        Some(btf)
    }

    fn type_at(&self, at: usize) -> Option<Type> {
        let name = usize::try_from(word_at(&self.bytes, at)?).ok()?;
        let info = word_at(&self.bytes, at.checked_add(4)?)?;
        Some(Type { at, name, kind: info >> 24 & 0x1f, items: (info & 0xffff) as usize, flag: info >> 31 == 1 })
    }

    fn by_id(&self, id: TypeId) -> Option<Type> {
        self.type_at(*self.types.get((id.0 as usize).checked_sub(1)?)?)
    }

    fn all(&self) -> impl Iterator<Item = (TypeId, Type)> {
        (1..).zip(&self.types).filter_map(|(id, &at)| Some((TypeId(id), self.type_at(at)?)))
    }

    /// Whether the string at this place is `name`.
    fn is_named(&self, place: usize, name: &str) -> bool {
        let at = self.strings.saturating_add(place);
        let text = self.bytes.get(at..).unwrap_or_default();
        text.starts_with(name.as_bytes()) && text.get(name.len()) == Some(&0)
    }

    fn find(&self, name: &str, kind: u32) -> Option<(TypeId, Type)> {
        self.all().find(|(_, found)| found.kind == kind && self.is_named(found.name, name))
    }

    /// The type that stands for a tracepoint's function.
    pub(super) fn tracepoint(&self, name: &'static str) -> Result<TypeId, BpfError> {
        let found = self.find(&format!("btf_trace_{name}"), TYPEDEF);
        found.map(|(id, _)| id).ok_or(BpfError::NoTracepoint { name })
    }

    /// Where a member lies in a structure, also inside members without a name.
    pub(super) fn field(&self, structure: &'static str, member: &'static str) -> Result<Offset, BpfError> {
        let missing = || BpfError::NoField { structure, member };
        let (_, found) = self.find(structure, STRUCT).ok_or_else(missing)?;
        let bits = self.member(found, member, DEPTH).ok_or_else(missing)?;
        i16::try_from(bits / 8).map(Offset).map_err(|_| missing())
    }

    /// In bits from the begin of `holder`.
    fn member(&self, holder: Type, name: &str, depth: usize) -> Option<u32> {
        for item in 0..holder.items {
            let at = holder.at + HEAD + item * MEMBER;
            let (place, id, word) =
                (word_at(&self.bytes, at)?, word_at(&self.bytes, at + 4)?, word_at(&self.bytes, at + 8)?);
            let bits = if holder.flag { word & 0x00ff_ffff } else { word };
            let place = usize::try_from(place).ok()?;
            if self.is_named(place, name) {
                return Some(bits);
            }
            let inner = self.by_id(TypeId(id)).filter(|inner| matches!(inner.kind, STRUCT | UNION));
            if let Some(inner) = inner.filter(|_| depth > 0 && self.is_named(place, ""))
                && let Some(found) = self.member(inner, name, depth - 1)
            {
                return bits.checked_add(found);
            }
        }
        None
    }

    /// The value of an enumerator.
    pub(super) fn enumerator(&self, set: &'static str, name: &'static str) -> Result<i32, BpfError> {
        let missing = || BpfError::NoField { structure: set, member: name };
        let (_, found) = self.find(set, ENUM).ok_or_else(missing)?;
        let values = (0..found.items).filter_map(|item| {
            let at = found.at + HEAD + item * 8;
            Some((usize::try_from(word_at(&self.bytes, at)?).ok()?, word_at(&self.bytes, at + 4)?))
        });
        let mut values = values.filter(|(place, _)| self.is_named(*place, name));
        values.next().map(|(_, value)| value.cast_signed()).ok_or_else(missing)
    }
}

impl Type {
    /// Bytes behind the head; none for a kind that is not known, behind which nothing can be found.
    fn tail(self) -> Option<usize> {
        Some(match self.kind {
            1 | 14 | 17 => 4,
            3 => 12,
            STRUCT | UNION | 15 | 19 => 12 * self.items,
            ENUM | 13 => 8 * self.items,
            2 | 7..=12 | 16 | 18 => 0,
            _ => return None,
        })
    }
}

fn word_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}
