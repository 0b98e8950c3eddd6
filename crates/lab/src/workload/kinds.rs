//! Kinds of parameters that several workloads have.

use umbrella_units::ByteSize;

use super::params::{Param, ParamKind};

/// At least one of something that is made before the run, and takes memory.
pub(super) const SOME: ParamKind = ParamKind::Count { min: 1, max: 20_000_000 };

/// Steps that are made together, or none.
pub(super) const FEW: ParamKind = ParamKind::Count { min: 0, max: 100_000 };

/// Some of it, or none.
pub(super) const ANY: ParamKind = ParamKind::Count { min: 0, max: 100_000_000 };

/// Clients, processes or threads.
pub(super) const CLIENTS: ParamKind = ParamKind::Count { min: 1, max: 100_000 };

/// Bytes of one call.
pub(super) const IO: ParamKind = ParamKind::Size { min: ByteSize(1), max: ByteSize(1 << 30) };

/// Bytes of a file.
pub(super) const FILE: ParamKind = ParamKind::Size { min: ByteSize(1), max: ByteSize(1 << 50) };

/// A probability.
pub(super) const SHARE: ParamKind = ParamKind::Number { min: 0.0, max: 1.0 };

/// How much sizes differ: the deviation of their logarithm.
pub(super) const SIGMA: ParamKind = ParamKind::Number { min: 0.0, max: 4.0 };

/// A parameter.
pub(super) const fn param(
    name: &'static str,
    kind: ParamKind,
    default: &'static str,
    source: &'static str,
    help: &'static str,
) -> Param {
    Param { name, kind, default, source, help }
}

/// What one page holds: the unit to which scaled file sizes are rounded.
pub(super) const PAGE: ByteSize = ByteSize(umbrella_units::PAGE_BYTES);
