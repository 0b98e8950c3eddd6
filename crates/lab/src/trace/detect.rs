//! Detects the format of a trace from its beginning: a guess that is certain, or none.
//!
//! A line is like a format if it has the format's fields, by their number, place and spelling; separators alone say
//! nothing. The formats with commas differ in where the operation is and how it is spelled:
//!
//! | format | fields | the operation |
//! | --- | --- | --- |
//! | `iotrace` | 10 or more | the second: `R`, `W`, `D` |
//! | `csv` | 5 or 6 | the third: `R`, `W`, `D` |
//! | `systor` | 6 | the third: `R`, `W` or nothing |
//! | `spc` | 5 or more | the fourth: `R`, `W`, `r`, `w` |
//! | `msr` | 6 or 7 | the fourth: `Read`, `Write` |
//! | `alibaba` | 5 | the second: `R`, `W` |
//! | `tencent` | 5 | the fourth: `0`, `1` |
//!
//! Of the formats with blanks, `ascii` and `disksim` have the same five columns, with times in ns and in ms. Without a
//! fraction in a time or another flag, they cannot be told apart. Of those with commas only `csv` and `systor` can
//! share a line: `0,0,W,0,512,4096`. A fraction in the second field is a response time (`systor`), a word is a device's
//! name (`csv`), and numbers in the last field are no flags.
//!
//! A format is certain if it is the only one that fits all lines at the top that fit any format, or if the trace begins
//! with its header. Lines that fit no format do not count: a damaged line at the top hides nothing.

use super::cursor::Fields;
use super::error::TraceError;
use super::problem::MAX_LINE;
use super::{
    Format, alibaba, ascii, biosnoop, blkparse, blktrace, csv, disksim, fio, fiu, iotrace, msr, parquet, spc, srt,
    systor, tencent, vscsi,
};

/// How many lines are looked at.
const LINES: usize = 32;

/// The format of a trace that begins so, or why it is not certain.
pub(super) fn detect(head: &[u8]) -> Result<Format, TraceError> {
    let binary = [
        (Format::Parquet, parquet::is_parquet(head)),
        (Format::Blktrace, blktrace::looks_like(head)),
        (Format::Srt, srt::looks_like(head)),
        (Format::Vscsi, vscsi::looks_like(head)),
    ];
    if let Some((format, _)) = binary.into_iter().find(|(_, like)| *like) {
        return Ok(format);
    }
    let mut lines = whole_lines(head)
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .filter(|line| !line.is_empty())
        .take(LINES)
        .peekable();
    let first = lines.peek().copied().unwrap_or_default();
    if let Some(format) = of_header(first) {
        return Ok(format);
    }
    let mut seen = Vec::new();
    let mut common: Option<Vec<Format>> = None;
    for line in lines {
        let like = of_line(line);
        if like.is_empty() {
            continue;
        }
        seen.extend(like.iter().copied().filter(|format| !seen.contains(format)).collect::<Vec<_>>());
        match &mut common {
            Some(common) => common.retain(|format| like.contains(format)),
            None => common = Some(like),
        }
    }
    match common.as_deref() {
        None => Err(TraceError::UnknownFormat),
        Some([format]) if !is_header(first) => Ok(*format),
        Some([]) => Err(TraceError::UncertainFormat { candidates: seen }),
        Some(candidates) => Err(TraceError::UncertainFormat { candidates: candidates.to_vec() }),
    }
}

/// Without the last line, if it may continue.
fn whole_lines(head: &[u8]) -> &[u8] {
    let end = if head.len() < MAX_LINE { None } else { memchr::memrchr(b'\n', head) };
    end.and_then(|end| head.get(..end)).unwrap_or(head)
}

fn of_header(line: &[u8]) -> Option<Format> {
    const HEADERS: [(&[u8], Format); 9] = [
        (fio::HEADER_2, Format::Fio2),
        (fio::HEADER_3, Format::Fio3),
        (csv::HEADER.as_bytes(), Format::Csv),
        (iotrace::HEADER.as_bytes(), Format::IoTrace),
        (msr::HEADER.as_bytes(), Format::Msr),
        (systor::HEADER.as_bytes(), Format::Systor),
        (alibaba::HEADER.as_bytes(), Format::Alibaba),
        (tencent::HEADER.as_bytes(), Format::Tencent),
        (biosnoop::HEADER, Format::Biosnoop),
    ];
    HEADERS.into_iter().find(|(header, _)| line.starts_with(header)).map(|(_, format)| format)
}

/// Whether it names columns: words between commas. The columns of a header that is of no format could be anything.
fn is_header(line: &[u8]) -> bool {
    let fields = Fields::commas(line);
    fields.len() > 2 && (0..fields.len()).all(|place| fields.at(place).first().is_some_and(u8::is_ascii_alphabetic))
}

/// All formats that a line can be of.
fn of_line(line: &[u8]) -> Vec<Format> {
    if let Some(format) = of_header(line) {
        return vec![format];
    }
    let blanks = Fields::blanks(line);
    // A process's name may have any commas.
    if blkparse::looks_like(&blanks) {
        return vec![Format::Blkparse];
    }
    let commas = Fields::commas(line);
    let like = [
        (Format::Csv, csv::looks_like(&commas)),
        (Format::Systor, systor::looks_like(&commas)),
        (Format::Msr, msr::looks_like(&commas)),
        (Format::Spc, spc::looks_like(&commas)),
        (Format::IoTrace, iotrace::looks_like(&commas)),
        (Format::Alibaba, alibaba::looks_like(&commas)),
        (Format::Tencent, tencent::looks_like(&commas)),
        (Format::Ascii, ascii::looks_like(&blanks)),
        (Format::Disksim, disksim::looks_like(&blanks)),
        (Format::Fiu, fiu::looks_like(line)),
        (Format::Biosnoop, biosnoop::looks_like(line, &blanks)),
    ];
    like.into_iter().filter(|(_, like)| *like).map(|(format, _)| format).collect()
}
