//! Buffers for reads, one a thread.

use std::cell::RefCell;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Calls with this thread's buffer, `size` bytes of it.
pub(super) fn with_buffer<T>(size: usize, call: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < size {
            buffer.resize(size, 0);
        }
        call(buffer.get_mut(..size).unwrap_or_default())
    })
}
