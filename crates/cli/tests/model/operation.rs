//! What can be done to a tree, and how it is chosen.

use crate::support::choices::Choices;

/// A path inside the tree.
pub(crate) type Name = &'static str;

/// Few names, so that operations meet each other. What ends in `.b` belongs on `b`.
const NAMES: &[Name] =
    &["f", "g.b", "d", "d/f", "d/g.b", "d/e", "d/e/f", "d/e/g.b", "x.b", "x.b/f", "x.b/g.b", "h", "d/h.b", "x.b/y"];
const DIRS: &[Name] = &["d", "d/e", "x.b", "x.b/y", ""];

/// Sizes on both sides of what the rules and the tiny branch look at.
const SIZES: &[u64] = &[0, 1, 100, 4096, 5_000, 30_000, 33_000, 70_000];

/// The user that does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Root,
    /// A user without rights of his own.
    Nobody,
}

/// One operation. `handle` numbers one of a few files that stay open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operation {
    Write {
        name: Name,
        size: u64,
        seed: u64,
        who: Who,
    },
    WriteAt {
        name: Name,
        at: u64,
        size: u64,
        seed: u64,
    },
    Append {
        name: Name,
        size: u64,
        seed: u64,
        who: Who,
    },
    Truncate {
        name: Name,
        size: u64,
    },
    Allocate {
        name: Name,
        mode: Allocate,
        at: u64,
        size: u64,
    },
    Open {
        handle: usize,
        name: Name,
        how: How,
    },
    OpenUnnamed {
        handle: usize,
        dir: Name,
    },
    LinkUnnamed {
        handle: usize,
        name: Name,
    },
    HandleWrite {
        handle: usize,
        at: u64,
        size: u64,
        seed: u64,
    },
    HandleRead {
        handle: usize,
    },
    HandleStat {
        handle: usize,
    },
    HandleTruncate {
        handle: usize,
        size: u64,
    },
    HandleMode {
        handle: usize,
        mode: u32,
    },
    Close {
        handle: usize,
    },
    Copy {
        from: Name,
        to: Name,
    },
    MakeDir {
        name: Name,
        mode: u32,
        who: Who,
    },
    RemoveDir {
        name: Name,
        who: Who,
    },
    Unlink {
        name: Name,
        who: Who,
    },
    Rename {
        from: Name,
        to: Name,
        flags: Flags,
        who: Who,
    },
    Link {
        from: Name,
        to: Name,
        who: Who,
    },
    Symlink {
        target: Name,
        name: Name,
    },
    Pipe {
        name: Name,
    },
    Mode {
        name: Name,
        mode: u32,
        who: Who,
    },
    Owner {
        name: Name,
        uid: Option<u32>,
        gid: Option<u32>,
        who: Who,
    },
    Times {
        name: Name,
        secs: i64,
        nanos: i64,
    },
    SetXattr {
        name: Name,
        key: &'static str,
        size: u64,
    },
    RemoveXattr {
        name: Name,
        key: &'static str,
    },
    Read {
        name: Name,
        who: Who,
    },
    List {
        name: Name,
        who: Who,
    },
    /// The enforcer walks; a plain directory has none.
    Enforce,
    /// The pool is unmounted and mounted again. Handles are closed before, on both sides.
    Remount,
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Read,
    Create,
    CreateNew,
    Append,
    Truncate,
}

/// Modes of `fallocate` that every branch has; tmpfs cannot zero a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allocate {
    Plain,
    KeepSize,
    Punch,
}

/// Flags of `renameat2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flags {
    None,
    NoReplace,
    Exchange,
}

/// Files that may be open at once.
pub(crate) const HANDLES: u64 = 3;

impl Operation {
    /// A random operation; those that make something are chosen more often than those that take it away.
    pub(crate) fn random(choices: &mut Choices) -> Self {
        let name = choices.pick(NAMES);
        let other = choices.pick(NAMES);
        let size = choices.pick(SIZES);
        let at = choices.pick(SIZES);
        let seed = choices.below(1_000);
        let handle = choices.below(HANDLES) as usize;
        let who = if choices.once_in(5) { Who::Nobody } else { Who::Root };
        let mode = choices.pick(&[0o644, 0o600, 0o444, 0o755, 0o666, 0o777, 0o4755, 0o2775, 0o1777, 0o000]);
        let key = choices.pick(&["trusted.a", "trusted.b"]);
        match choices.below(100) {
            0..=11 => Self::Write { name, size, seed, who },
            12..=15 => Self::WriteAt { name, at, size, seed },
            16..=20 => Self::Append { name, size, seed, who },
            21..=24 => Self::Truncate { name, size },
            25..=27 => {
                let mode = choices.pick(&[Allocate::Plain, Allocate::KeepSize, Allocate::Punch]);
                Self::Allocate { name, mode, at, size }
            }
            28..=32 => {
                let how = choices.pick(&[How::Read, How::Create, How::CreateNew, How::Append, How::Truncate]);
                Self::Open { handle, name, how }
            }
            33 => Self::OpenUnnamed { handle, dir: choices.pick(DIRS) },
            34 => Self::LinkUnnamed { handle, name },
            35..=39 => Self::HandleWrite { handle, at, size, seed },
            40..=42 => Self::HandleRead { handle },
            43..=44 => Self::HandleStat { handle },
            45 => Self::HandleTruncate { handle, size },
            46 => Self::HandleMode { handle, mode },
            47..=49 => Self::Close { handle },
            50..=51 => Self::Copy { from: name, to: other },
            52..=58 => {
                Self::MakeDir { name: if choices.once_in(3) { name } else { choices.pick(&DIRS[..4]) }, mode, who }
            }
            59..=60 => Self::RemoveDir { name, who },
            61..=64 => Self::Unlink { name, who },
            65..=74 => {
                let flags = choices.pick(&[Flags::None, Flags::None, Flags::NoReplace, Flags::Exchange]);
                Self::Rename { from: name, to: other, flags, who }
            }
            75..=78 => Self::Link { from: name, to: other, who },
            79..=80 => Self::Symlink { target: other, name },
            81 => Self::Pipe { name },
            82..=84 => Self::Mode { name, mode, who },
            85..=86 => {
                let id = |choices: &mut Choices| choices.pick(&[None, Some(0), Some(4711), Some(65534)]);
                Self::Owner { name, uid: id(choices), gid: id(choices), who }
            }
            87 => Self::Times {
                name,
                secs: choices.pick(&[-5, 0, 1_000_000_000, 4_000_000_000]),
                nanos: choices.pick(&[0, 1, 999_999_999]),
            },
            88..=89 => Self::SetXattr { name, key, size: choices.pick(&[0, 1, 200]) },
            90 => Self::RemoveXattr { name, key },
            91..=93 => Self::Read { name, who },
            94..=95 => Self::List { name: choices.pick(DIRS), who },
            96..=98 => Self::Enforce,
            _ => Self::Remount,
        }
    }
}
