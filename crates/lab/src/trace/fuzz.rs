//! What a fuzzer calls: reads any bytes as a trace, in each way a trace can be read.

use std::io::Cursor;

use super::{Event, Format, OpenOptions, Order, Strictness, Summary, from_reader, pages};

/// Reads the bytes as this format (or as whatever they look like), and checks that what comes out keeps its promises.
///
/// # Panics
/// When a reader gives a record that cannot be: out of order, or beyond the last address. That is what a fuzzer looks
/// for.
pub fn fuzz_one(format: Option<Format>, bytes: &[u8]) {
    for strictness in [Strictness::Strict, Strictness::Normal, Strictness::Lenient] {
        for order in [Order::Time { window: 4 }, Order::File] {
            let options = OpenOptions { format, event: Event::Auto, strictness, order, ..OpenOptions::default() };
            let Ok(mut reader) = from_reader(Cursor::new(bytes.to_vec()), &options) else { continue };
            let mut summary = Summary::default();
            let mut last = None;
            while let Some(result) = reader.next() {
                let Ok(record) = result else {
                    assert!(reader.next().is_none(), "something came after an error");
                    break;
                };
                assert!(
                    record.offset.0.checked_add(record.size.0).is_some(),
                    "{record:?} ends beyond the last address"
                );
                assert!(
                    order == Order::File || last.is_none_or(|last| last <= record.time),
                    "{record:?} is out of order"
                );
                assert!(pages(&record).take(16).all(|page| page.block.0 <= u64::MAX / 4096));
                last = Some(record.time);
                summary.add(&record);
            }
            summary.finish(&reader);
        }
    }
}
