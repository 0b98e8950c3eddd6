//! Outcomes to answers, in the form that the client has agreed to.

use umbrella_units::SectorRange;

use super::errors::{Ended, error_message};
use super::negotiate::Session;
use super::output::{Output, PIECE};
use super::perform::RequestOutcome;
use super::wire::Offset;
use super::wire::reply::{
    ChunkFollows, ChunkType, DATA_CHUNK_BYTES, ErrorCode, SIMPLE_BYTES, chunk, data_chunk, error_chunk, hole_chunk,
    simple, status_chunk,
};
use super::wire::request::{Cookie, Request};

impl Session<'_> {
    /// Answers a request that is not a read, or one that failed.
    pub(super) fn answer(
        &self,
        output: &mut Output<'_>,
        cookie: Cookie,
        outcome: &RequestOutcome,
    ) -> Result<(), Ended> {
        match outcome {
            RequestOutcome::Done => output.push(&simple(None, cookie)),
            RequestOutcome::Failed(code) if !self.structured => output.push(&simple(Some(*code), cookie)),
            RequestOutcome::Failed(code) => {
                let mut bytes = Vec::with_capacity(128);
                error_chunk(&mut bytes, cookie, *code, error_message(*code));
                output.push(&bytes)
            }
            RequestOutcome::Extents(extents) => {
                let mut bytes = Vec::with_capacity(32 + 8 * extents.len());
                status_chunk(&mut bytes, cookie, extents);
                output.push(&bytes)
            }
        }
    }

    /// Answers a read that has no data.
    pub(super) fn answer_empty(&self, output: &mut Output<'_>, cookie: Cookie) -> Result<(), Ended> {
        if self.structured {
            output.push(&chunk(ChunkFollows::Done, ChunkType::None, cookie, 0))
        } else {
            output.push(&simple(None, cookie))
        }
    }

    /// Answers a read of at most [`PIECE`] bytes; `read` fills the answer's place and says whether it could.
    /// False, and no answer, if it could not.
    pub(super) fn answer_in_place(
        &self,
        output: &mut Output<'_>,
        request: &Request,
        read: impl FnOnce(&mut [u8]) -> Result<bool, ErrorCode>,
    ) -> Result<bool, Ended> {
        let length = (request.length as usize).min(PIECE);
        let front = if self.structured { DATA_CHUNK_BYTES } else { SIMPLE_BYTES };
        let room = output.room(front + length)?;
        let (head, data) = room.split_at_mut(front);
        match read(data) {
            Ok(true) if self.structured => {
                head.copy_from_slice(&data_chunk(ChunkFollows::Done, request.cookie, request.offset, length as u32));
            }
            Ok(true) => head.copy_from_slice(&simple(None, request.cookie)),
            Ok(false) => return Ok(false),
            Err(code) => {
                self.answer(output, request.cookie, &RequestOutcome::Failed(code))?;
                return Ok(true);
            }
        }
        output.keep(front + length)?;
        Ok(true)
    }

    /// Answers a read with data that are somewhere else.
    pub(super) fn answer_with(&self, output: &mut Output<'_>, request: &Request, data: &[u8]) -> Result<(), Ended> {
        if self.structured {
            output.push(&data_chunk(ChunkFollows::Done, request.cookie, request.offset, data.len() as u32))?;
        } else {
            output.push(&simple(None, request.cookie))?;
        }
        output.send(data)
    }

    /// Answers part of a read with data.
    pub(super) fn answer_piece(
        &self,
        output: &mut Output<'_>,
        cookie: Cookie,
        range: SectorRange,
        data: &[u8],
    ) -> Result<(), Ended> {
        output.push(&data_chunk(ChunkFollows::Follows, cookie, place(range), data.len() as u32))?;
        output.send(data)
    }

    /// Answers part of a read with zeroes; the range is not longer than a read may be.
    pub(super) fn answer_hole(&self, output: &mut Output<'_>, cookie: Cookie, range: SectorRange) -> Result<(), Ended> {
        output.push(&hole_chunk(ChunkFollows::Follows, cookie, place(range), range.bytes().0 as u32))
    }
}

fn place(range: SectorRange) -> Offset {
    Offset(SectorRange { start: umbrella_units::Lba(0), sectors: range.start.0 }.bytes().0)
}
