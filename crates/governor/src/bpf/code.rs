//! BPF instructions, written down one by one.
//!
//! Only those that the programs of [`super::program`] need. Source: Documentation/bpf/standardization/instruction-set.rst of
//! Linux.

use std::os::fd::{AsRawFd, BorrowedFd};

use super::btf::Offset;

/// A register. `R0` holds results, `R1` to `R5` arguments, `R6` to `R9` survive calls, `Stack` ends the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R6 = 6,
    R7,
    R8,
    Stack = 10,
}

/// How many bytes are read or written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Width {
    One,
    Two,
    Four,
    Eight,
}

impl Width {
    fn bits(self) -> u8 {
        match self {
            Width::Four => 0x00,
            Width::Two => 0x08,
            Width::One => 0x10,
            Width::Eight => 0x18,
        }
    }
}

/// The kernel's functions that the programs call.
#[derive(Debug, Clone, Copy)]
#[repr(i32)]
pub(super) enum Helper {
    MapUpdate = 2,
    Nanoseconds = 5,
    RingOutput = 130,
}

/// A place that jumps go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Label {
    /// The end of the program.
    Out,
    /// Behind a step that is passed over.
    Next,
}

/// A program in the making.
#[derive(Debug, Default)]
pub(super) struct Code {
    words: Vec<u64>,
    jumps: Vec<(usize, Label)>,
}

impl Code {
    fn push(&mut self, code: u8, dst: u8, src: u8, offset: i16, immediate: i32) {
        let registers = dst | src << 4;
        let word = u64::from(code)
            | u64::from(registers) << 8
            | u64::from(offset.cast_unsigned()) << 16
            | u64::from(immediate.cast_unsigned()) << 32;
        self.words.push(word);
    }

    /// `to = *(from + offset)`
    pub(super) fn load(&mut self, width: Width, to: Reg, from: Reg, offset: Offset) {
        self.push(0x61 | width.bits(), to as u8, from as u8, offset.0, 0);
    }

    /// `*(to + offset) = from`
    pub(super) fn store(&mut self, width: Width, to: Reg, offset: Offset, from: Reg) {
        self.push(0x63 | width.bits(), to as u8, from as u8, offset.0, 0);
    }

    /// `*(to + offset) = value`
    pub(super) fn store_value(&mut self, width: Width, to: Reg, offset: Offset, value: i32) {
        self.push(0x62 | width.bits(), to as u8, 0, offset.0, value);
    }

    /// `*(to + offset) += from`, seen as one step by all processors.
    pub(super) fn add_atomic(&mut self, to: Reg, offset: Offset, from: Reg) {
        self.push(0xdb, to as u8, from as u8, offset.0, 0);
    }

    /// `to = from`
    pub(super) fn copy(&mut self, to: Reg, from: Reg) {
        self.push(0xbf, to as u8, from as u8, 0, 0);
    }

    /// `to = value`
    pub(super) fn set(&mut self, to: Reg, value: i32) {
        self.push(0xb7, to as u8, 0, 0, value);
    }

    /// `to += value`
    pub(super) fn add(&mut self, to: Reg, value: i32) {
        self.push(0x07, to as u8, 0, 0, value);
    }

    /// `to &= value`
    pub(super) fn and(&mut self, to: Reg, value: i32) {
        self.push(0x57, to as u8, 0, 0, value);
    }

    /// `to = the map`
    pub(super) fn map(&mut self, to: Reg, map: BorrowedFd<'_>) {
        self.push(0x18, to as u8, 1, 0, map.as_raw_fd());
        self.push(0, 0, 0, 0, 0);
    }

    /// `to = the address of the first value of an array`
    pub(super) fn map_value(&mut self, to: Reg, array: BorrowedFd<'_>) {
        self.push(0x18, to as u8, 2, 0, array.as_raw_fd());
        self.push(0, 0, 0, 0, 0);
    }

    /// `R0 = helper(R1, ...)`
    pub(super) fn call(&mut self, helper: Helper) {
        self.push(0x85, 0, 0, 0, helper as i32);
    }

    /// Jumps when `reg == value`.
    pub(super) fn jump_if(&mut self, reg: Reg, value: i32, to: Label) {
        self.jump(0x15, reg, value, to);
    }

    /// Jumps when the lower four bytes of `reg` are not `value`.
    pub(super) fn jump_unless(&mut self, reg: Reg, value: i32, to: Label) {
        self.jump(0x56, reg, value, to);
    }

    fn jump(&mut self, code: u8, reg: Reg, value: i32, to: Label) {
        self.jumps.push((self.words.len(), to));
        self.push(code, reg as u8, 0, 0, value);
    }

    /// The jumps to `label` so far come here.
    pub(super) fn here(&mut self, label: Label) {
        let here = self.words.len();
        let words = &mut self.words;
        self.jumps.retain(|&(from, to)| {
            if to == label
                && let (Some(word), Ok(distance)) = (words.get_mut(from), i16::try_from(here - from - 1))
            {
                *word |= u64::from(distance.cast_unsigned()) << 16;
            }
            to != label
        });
    }

    /// Ends the program: `return 0`.
    pub(super) fn finish(mut self) -> Vec<u64> {
        self.here(Label::Out);
        self.set(Reg::R0, 0);
        self.push(0x95, 0, 0, 0, 0);
        self.words
    }
}
