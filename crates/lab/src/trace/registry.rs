//! What reads, writes and recognises each format. A new format is one file, and one line in each list here.

use super::error::TraceError;
use super::format::Format;
use super::frame::Framing;
use super::parse::{Event, Parse, Render};
use super::{
    alibaba, ascii, biosnoop, blkparse, blktrace, csv, detect, disksim, fio, fiu, iotrace, msr, parquet, spc, srt,
    systor, tencent, vscsi,
};

impl Format {
    /// How its bytes are cut into records.
    pub(super) fn framing(self) -> Framing {
        let sized = |prefix, bytes, text_until| Framing::Sized { prefix, bytes, text_until };
        match self {
            Format::Vscsi => sized(vscsi::RECORD_BYTES, |_| Some(vscsi::RECORD_BYTES), None),
            Format::Blktrace => sized(blktrace::EVENT_BYTES, blktrace::record_bytes, None),
            Format::Srt => sized(4, srt::record_bytes, Some(srt::END_OF_TEXT)),
            _ => Framing::Lines,
        }
    }

    /// A reader of lines or records in this format; `head` is the beginning of the trace. Parquet has columns instead.
    pub(super) fn reader(self, event: Event, head: &[u8]) -> Option<Box<dyn Parse>> {
        Some(match self {
            Format::Parquet => return None,
            Format::Csv => Box::<csv::CsvParser>::default(),
            Format::Msr => Box::<msr::MsrParser>::default(),
            Format::Spc => Box::<spc::SpcParser>::default(),
            Format::Ascii => Box::<ascii::AsciiParser>::default(),
            Format::IoTrace => Box::<iotrace::IoTraceParser>::default(),
            Format::Blkparse => Box::new(blkparse::BlkparseParser::new(event, head)),
            Format::Fio2 => Box::new(fio::FioParser::version_2()),
            Format::Fio3 => Box::new(fio::FioParser::version_3()),
            Format::Vscsi => Box::<vscsi::VscsiParser>::default(),
            Format::Systor => Box::<systor::SystorParser>::default(),
            Format::Blktrace => Box::new(blktrace::BlktraceParser::new(event, head)),
            Format::Disksim => Box::<disksim::DisksimParser>::default(),
            Format::Srt => Box::new(srt::SrtParser::new(head)),
            Format::Alibaba => Box::<alibaba::AlibabaParser>::default(),
            Format::Tencent => Box::<tencent::TencentParser>::default(),
            Format::Fiu => Box::<fiu::FiuParser>::default(),
            Format::Biosnoop => Box::<biosnoop::BiosnoopParser>::default(),
        })
    }

    /// A writer of this format, if there is one.
    pub(super) fn writer(self) -> Option<Box<dyn Render>> {
        match self {
            Format::Csv => Some(Box::<csv::CsvRenderer>::default()),
            Format::Msr => Some(Box::<msr::MsrRenderer>::default()),
            Format::Spc => Some(Box::<spc::SpcRenderer>::default()),
            Format::Fio2 => Some(Box::new(fio::FioRenderer::version_2())),
            Format::Fio3 => Some(Box::new(fio::FioRenderer::version_3())),
            Format::Vscsi => Some(Box::<vscsi::VscsiRenderer>::default()),
            Format::Parquet => Some(Box::<parquet::ParquetRenderer>::default()),
            _ => None,
        }
    }

    /// The formats that can be written.
    pub fn writable() -> impl Iterator<Item = Format> {
        Self::ALL.into_iter().filter(|format| format.writer().is_some())
    }

    /// Which format the beginning of a trace is in: certain, or an error that says what it may be.
    pub fn detect(head: &[u8]) -> Result<Format, TraceError> {
        detect::detect(head)
    }
}
