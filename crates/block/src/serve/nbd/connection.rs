//! One connection from greeting to end.

use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::errors::{Broken, Ended};
use super::input::Input;
use super::negotiate::{Negotiation, Next, Session};
use super::server::Shared;
use super::socket::Socket;
use super::transmit::Transmission;
use super::wire::greeting;
use super::wire::option::{OPTION_BYTES, OptionHeader};

/// Serves a client until one side ends it. Always returns why.
pub(super) fn serve(socket: &Socket, shared: &Shared) -> Ended {
    let mut input = Input::new();
    match negotiate(socket, shared, &mut input) {
        Ok(session) => Transmission::new(session, socket, shared, input).run(),
        Err(ended) => ended,
    }
}

fn negotiate<'s>(socket: &Socket, shared: &'s Shared, input: &mut Input) -> Result<Session<'s>, Ended> {
    let limit = shared.limits.handshake;
    let until = Until { deadline: Instant::now() + limit, limit };
    socket.set_send_limit(limit)?;
    socket.send(&greeting())?;
    let flags = u32::from_be_bytes(*until.peek(input, socket)?);
    input.consume(4);
    let mut negotiation = Negotiation::new(&shared.exports, flags).map_err(Ended::Protocol)?;
    let mut out = Vec::new();
    loop {
        if shared.is_stopping() {
            return Err(Ended::Stopped);
        }
        let header = until.peek::<OPTION_BYTES>(input, socket)?;
        let option = OptionHeader::parse(header).ok_or(Ended::Protocol(Broken::OptionMagic))?;
        input.consume(OPTION_BYTES);
        if let Err(ended) = negotiation.admit(option, &mut out) {
            socket.send(&out)?;
            return Err(ended);
        }
        let length = option.length as usize;
        until.wait_for(length, input, socket)?;
        let next = negotiation.answer(option, input.buffered().get(..length).unwrap_or_default(), &mut out);
        input.consume(length);
        socket.send(&out)?;
        out.clear();
        match next {
            Next::Option => {}
            Next::Transmit(session) => {
                socket.set_receive_limit(shared.limits.pause)?;
                socket.set_send_limit(shared.limits.pause)?;
                return Ok(session);
            }
            Next::Close(ended) => return Err(ended),
        }
    }
}

/// When the negotiation has to be over.
struct Until {
    deadline: Instant,
    limit: Duration,
}

impl Until {
    fn wait_for(&self, bytes: usize, input: &mut Input, socket: &Socket) -> Result<(), Ended> {
        while input.buffered().len() < bytes {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Ended::Stalled(self.limit));
            }
            socket.set_receive_limit(left)?;
            match input.receive(socket) {
                Err(Ended::Io(error)) if error.raw_os_error() == Some(Errno::AGAIN.raw_os_error()) => {}
                received => received?,
            }
        }
        Ok(())
    }

    fn peek<'i, const N: usize>(&self, input: &'i mut Input, socket: &Socket) -> Result<&'i [u8; N], Ended> {
        self.wait_for(N, input, socket)?;
        input.peek().ok_or(Ended::Closed)
    }
}
