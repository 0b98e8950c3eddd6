//! Finds the dirty pages of a file without reports: cachestat(2) counts them in a range, and halving the range finds
//! each.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use umbrella_units::{PAGE_BYTES, PageIndex, Pages};

use crate::file::PageRange;
use crate::sys;

/// Appends the ranges of dirty pages, in order, and stops when the time is over or the kernel does not answer.
pub(super) fn dirty_ranges(file: BorrowedFd<'_>, most: Duration, out: &mut Vec<PageRange>) {
    let begun = Instant::now();
    let size = rustix::fs::fstat(file).map_or(0, |stat| stat.st_size.cast_unsigned().div_ceil(PAGE_BYTES));
    let mut left = vec![PageRange { first: PageIndex(0), pages: Pages(size) }];
    while let Some(range) = left.pop() {
        if begun.elapsed() >= most {
            return;
        }
        match sys::dirty_pages(file, range) {
            Ok(Pages(0)) => {}
            Ok(dirty) if dirty >= range.pages => match out.last_mut() {
                Some(last) if last.end() == range.first => last.pages.0 += range.pages.0,
                _ => out.push(range),
            },
            Ok(_) => {
                let half = Pages(range.pages.0 / 2);
                let middle = PageIndex(range.first.0 + half.0);
                left.push(PageRange { first: middle, pages: Pages(range.pages.0 - half.0) });
                left.push(PageRange { first: range.first, pages: half });
            }
            Err(_) => return,
        }
    }
}
