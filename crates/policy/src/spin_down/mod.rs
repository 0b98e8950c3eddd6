//! When a disk may sleep.
