//! Reads what follows the header of a request. Nothing in here can panic, whatever the bytes are.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use zerocopy::{FromBytes, Immutable, KnownLayout};

/// A request whose sizes do not fit one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

pub(crate) type Parsed<T> = Result<T, Malformed>;

/// The rest of a request, taken piece by piece.
///
/// `/dev/fuse` hands over the struct of the operation and what follows it as one. With io_uring the struct has a place
/// of its own, of fixed size, and the payload lies elsewhere.
#[derive(Debug, Clone)]
pub(crate) struct Body<'a> {
    /// The place of the operation's struct, until it was taken.
    apart: Option<&'a [u8]>,
    rest: &'a [u8],
    /// The names that were taken: no request has more than two.
    names: [Option<&'a OsStr>; 2],
}

impl<'a> Body<'a> {
    /// The body of a request read from `/dev/fuse`, without its header.
    pub(crate) fn joined(bytes: &'a [u8]) -> Body<'a> {
        Body { apart: None, rest: bytes, names: [None; 2] }
    }

    /// The body of a request of a ring.
    pub(crate) fn split(operation: &'a [u8], payload: &'a [u8]) -> Body<'a> {
        Body { apart: Some(operation), rest: payload, names: [None; 2] }
    }

    /// The struct of the operation, or a further one of the payload.
    pub(crate) fn take<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Parsed<T> {
        if let Some(apart) = self.apart.take() {
            return T::read_from_prefix(apart).map(|(value, _)| value).map_err(|_| Malformed);
        }
        let (value, rest) = T::read_from_prefix(self.rest).map_err(|_| Malformed)?;
        self.rest = rest;
        Ok(value)
    }

    /// The operation has no struct: its place holds nothing.
    pub(crate) fn no_struct(&mut self) {
        self.apart = None;
    }

    /// The next `length` bytes of the payload.
    pub(crate) fn bytes(&mut self, length: usize) -> Parsed<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// The name of an operation that has no struct.
    pub(crate) fn only_name(&mut self) -> Parsed<&'a OsStr> {
        self.no_struct();
        self.name()
    }

    /// A name of the payload, which ends with a zero.
    pub(crate) fn name(&mut self) -> Parsed<&'a OsStr> {
        let end = self.rest.iter().position(|byte| *byte == 0).ok_or(Malformed)?;
        let name = OsStr::from_bytes(self.bytes(end)?);
        self.bytes(1)?;
        // A file without a name has an empty one.
        if let Some(place) = self.names.iter_mut().find(|place| place.is_none() && end > 0) {
            *place = Some(name);
        }
        Ok(name)
    }

    /// The names so far, for observers of requests.
    pub(crate) fn names(&self) -> [Option<&'a OsStr>; 2] {
        self.names
    }

    /// The last `length` bytes of the payload.
    pub(crate) fn last(&mut self, length: usize) -> Parsed<&'a [u8]> {
        let before = self.rest.len().checked_sub(length).ok_or(Malformed)?;
        let (rest, last) = self.rest.split_at_checked(before).ok_or(Malformed)?;
        self.rest = rest;
        Ok(last)
    }
}
