//! Todo
