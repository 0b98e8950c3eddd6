//! Keeps every write and flush in order, and makes the states that a power cut can leave.
