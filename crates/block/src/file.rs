//! A regular file or a real device.
