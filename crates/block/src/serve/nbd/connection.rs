//! One connection from greeting to end.

use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::errors::{Broken, Ended};
use super::input::Input;
use super::negotiate::{Negotiation, NextPhase, Session};
use super::shared::ServerShared;
use super::socket::Socket;
use super::tls::Tls;
use super::transmit::Transmission;
use super::wire::greeting;
use super::wire::option::{OPTION_BYTES, OptionHeader};

/// Serves a client until one side ends it. Always returns why.
pub(super) fn serve(socket: &Socket, shared: &ServerShared) -> Ended {
    let until = Deadline::new(shared.limits.handshake);
    let mut input = Input::new();
    let greeted = handshake(socket, &until, &mut input);
    let ended = greeted.and_then(|flags| {
        let negotiation = Negotiation::new(&shared.exports, flags).map_err(Ended::Protocol)?;
        negotiate_and_serve(socket, shared, &until, input, negotiation)
    });
    ended.unwrap_or_else(|ended| ended)
}

/// Sends the greeting. Returns the client's flags.
fn handshake(socket: &Socket, until: &Deadline, input: &mut Input) -> Result<u32, Ended> {
    socket.set_send_limit(until.limit)?;
    socket.send(&greeting())?;
    let flags = u32::from_be_bytes(*until.peek(input, socket)?);
    input.consume(4);
    Ok(flags)
}

/// Negotiates, and then serves. Negotiates again after the client has started TLS.
fn negotiate_and_serve(
    socket: &Socket,
    shared: &ServerShared,
    until: &Deadline,
    mut input: Input,
    mut negotiation: Negotiation<'_>,
) -> Result<Ended, Ended> {
    match negotiate(socket, shared, until, &mut input, &mut negotiation)? {
        Agreed::Transmit(session) => {
            socket.set_receive_limit(shared.limits.pause)?;
            socket.set_send_limit(shared.limits.pause)?;
            Ok(Transmission::new(session, socket, shared, input).run())
        }
        // An attacker who can write between the two may have sent it.
        Agreed::Encrypt(_) if !input.buffered().is_empty() => Err(Ended::Protocol(Broken::AfterStartTls)),
        Agreed::Encrypt(tls) => {
            drop(input);
            let inside = |socket: &Socket| {
                socket.set_send_limit(until.limit)?;
                negotiate_and_serve(socket, shared, until, Input::new(), negotiation.encrypted())
            };
            tls.within(socket, shared.limits.pause, inside)?
        }
    }
}

/// What a negotiation led to.
enum Agreed<'s> {
    Transmit(Session<'s>),
    Encrypt(&'s Tls),
}

fn negotiate<'s>(
    socket: &Socket,
    shared: &ServerShared,
    until: &Deadline,
    input: &mut Input,
    negotiation: &mut Negotiation<'s>,
) -> Result<Agreed<'s>, Ended> {
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
            NextPhase::Option => {}
            NextPhase::Transmit(session) => return Ok(Agreed::Transmit(session)),
            NextPhase::Encrypt(tls) => return Ok(Agreed::Encrypt(tls)),
            NextPhase::Close(ended) => return Err(ended),
        }
    }
}

/// When the negotiation has to be over.
struct Deadline {
    deadline: Instant,
    limit: Duration,
}

impl Deadline {
    fn new(limit: Duration) -> Deadline {
        Deadline { deadline: Instant::now() + limit, limit }
    }

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
