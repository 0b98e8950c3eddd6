//! Which branch a file belongs on: ordered rules, the name table, preference lists, room and hysteresis.
//!
//! Source: UmbrellaFS, chapter III. Rules are looked at in order and the first match wins; the name table stands at one
//! place in that order, and inside it the pattern with the longest overall match wins. No match: the default list.

pub mod spec;
