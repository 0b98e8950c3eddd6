//! The negotiation: options in, answers out. No I/O, so that a fuzzer can drive it.

#[cfg(test)]
mod tests;

use super::errors::{Broken, Ended};
use super::export::{Export, Exports};
use super::tls::Tls;
use super::wire::option::{
    ContextQuery, ExportQuery, Info, MAX_OPTION_DATA, OptionHeader, OptionKind, OptionReply, info, old_export, reply,
};
use super::wire::reply::ALLOCATION_CONTEXT;
use super::wire::{ClientFlags, MAX_STRING};

/// What both sides have agreed upon for the transmission phase.
#[derive(Debug, Clone, Copy)]
pub(super) struct Session<'e> {
    /// What the client works on.
    pub(super) export: &'e Export,
    /// Reads are answered in chunks.
    pub(super) structured: bool,
    /// The client may ask how ranges are allocated.
    pub(super) allocation: bool,
}

/// What follows an option.
#[derive(Debug)]
pub(super) enum NextPhase<'e> {
    /// Another option.
    Option,
    /// The transmission phase.
    Transmit(Session<'e>),
    /// TLS: nothing that was agreed upon counts any more.
    Encrypt(&'e Tls),
    /// Nothing: the answers are to be sent and the connection closed.
    Close(Ended),
}

/// What has been agreed upon so far.
#[derive(Debug)]
pub(super) struct Negotiation<'e> {
    exports: &'e Exports,
    encrypted: bool,
    no_zeroes: bool,
    structured: bool,
    /// The export whose allocation the client wants to know.
    allocation_of: Option<&'e Export>,
}

impl<'e> Negotiation<'e> {
    /// Begins with what the client answered to the greeting.
    pub(super) fn new(exports: &'e Exports, flags: u32) -> Result<Negotiation<'e>, Broken> {
        let flags = ClientFlags::from_bits(flags).ok_or(Broken::Handshake)?;
        if !flags.contains(ClientFlags::FIXED_NEWSTYLE) {
            return Err(Broken::Handshake);
        }
        let no_zeroes = flags.contains(ClientFlags::NO_ZEROES);
        Ok(Negotiation { exports, encrypted: false, no_zeroes, structured: false, allocation_of: None })
    }

    /// Begins once more, with a client that encrypts now.
    pub(super) fn encrypted(&self) -> Negotiation<'e> {
        Negotiation { encrypted: true, structured: false, allocation_of: None, ..*self }
    }

    /// Whether the data of an option may be taken; if not, why the connection ends after the answer.
    pub(super) fn admit(&self, option: OptionHeader, out: &mut Vec<u8>) -> Result<(), Ended> {
        let limit = if option.kind() == OptionKind::ExportName { MAX_STRING as u32 } else { MAX_OPTION_DATA };
        if option.length <= limit {
            return Ok(());
        }
        if option.kind() != OptionKind::ExportName {
            reply(out, option.number, OptionReply::TooBig, b"the option is too long");
        }
        Err(Ended::Protocol(Broken::LongOption(option.length)))
    }

    /// Answers an option whose data have been admitted.
    pub(super) fn answer(&mut self, option: OptionHeader, data: &[u8], out: &mut Vec<u8>) -> NextPhase<'e> {
        let number = option.number;
        if let Some(next) = self.encrypts(option, data, out) {
            return next;
        }
        match option.kind() {
            OptionKind::ExportName => return self.export_name(data, out),
            OptionKind::Abort => {
                reply(out, number, OptionReply::Ack, &[]);
                return NextPhase::Close(Ended::Closed);
            }
            OptionKind::Info | OptionKind::Go => return self.info_or_go(option, data, out),
            OptionKind::List => self.list(number, data, out),
            OptionKind::StructuredReply if !data.is_empty() => invalid(number, out),
            OptionKind::StructuredReply => {
                self.structured = true;
                reply(out, number, OptionReply::Ack, &[]);
            }
            OptionKind::ListMetaContext | OptionKind::SetMetaContext => self.contexts(option, data, out),
            OptionKind::StartTls | OptionKind::Unknown(_) => {
                reply(out, number, OptionReply::Unsupported, b"not supported by this server");
            }
        }
        NextPhase::Option
    }

    /// Answers what is about TLS; nothing for an option that may be answered as it is.
    fn encrypts(&self, option: OptionHeader, data: &[u8], out: &mut Vec<u8>) -> Option<NextPhase<'e>> {
        let tls = self.exports.tls()?;
        match option.kind() {
            OptionKind::StartTls if self.encrypted || !data.is_empty() => invalid(option.number, out),
            OptionKind::StartTls => {
                reply(out, option.number, OptionReply::Ack, &[]);
                return Some(NextPhase::Encrypt(tls));
            }
            kind if self.encrypted || !tls.is_required() || kind == OptionKind::Abort => return None,
            OptionKind::ExportName => return Some(NextPhase::Close(Ended::Protocol(Broken::Unencrypted))),
            _ => reply(out, option.number, OptionReply::TlsRequired, b"this server serves only over TLS"),
        }
        Some(NextPhase::Option)
    }

    fn export_name(&self, name: &[u8], out: &mut Vec<u8>) -> NextPhase<'e> {
        let export = std::str::from_utf8(name).ok().and_then(|name| self.exports.find(name));
        let Some(export) = export else {
            return NextPhase::Close(Ended::Protocol(Broken::UnknownExport));
        };
        old_export(out, export.device().geometry().size(), export.flags(self.structured), self.no_zeroes);
        NextPhase::Transmit(self.session(export))
    }

    fn list(&self, number: u32, data: &[u8], out: &mut Vec<u8>) {
        if !data.is_empty() {
            return invalid(number, out);
        }
        for export in self.exports.iter() {
            let mut entry = (export.name().len() as u32).to_be_bytes().to_vec();
            entry.extend_from_slice(export.name().as_bytes());
            entry.extend_from_slice(export.description().as_bytes());
            reply(out, number, OptionReply::Server, &entry);
        }
        reply(out, number, OptionReply::Ack, &[]);
    }

    fn info_or_go(&self, option: OptionHeader, data: &[u8], out: &mut Vec<u8>) -> NextPhase<'e> {
        let number = option.number;
        let Some(query) = ExportQuery::parse(data) else {
            invalid(number, out);
            return NextPhase::Option;
        };
        let Some(export) = self.exports.find(query.name) else {
            reply(out, number, OptionReply::UnknownExport, b"no such export");
            return NextPhase::Option;
        };
        let size = export.device().geometry().size();
        info(out, number, Info::Export(size, export.flags(self.structured)));
        if query.wants_name {
            info(out, number, Info::Name(export.name()));
        }
        if query.wants_description && !export.description().is_empty() {
            info(out, number, Info::Description(export.description()));
        }
        // Also sent to a client that did not ask: one that ignores block sizes learns here that it must not.
        let (least, best, most) = export.block_sizes();
        info(out, number, Info::BlockSize(least, best, most));
        reply(out, number, OptionReply::Ack, &[]);
        if option.kind() == OptionKind::Go { NextPhase::Transmit(self.session(export)) } else { NextPhase::Option }
    }

    fn contexts(&mut self, option: OptionHeader, data: &[u8], out: &mut Vec<u8>) {
        let number = option.number;
        let set = option.kind() == OptionKind::SetMetaContext;
        if set {
            self.allocation_of = None; // Whatever comes of it, the last selection is gone.
        }
        let Some(query) = ContextQuery::parse(data).filter(|_| self.structured) else {
            return invalid(number, out);
        };
        let Some(export) = self.exports.find(query.name) else {
            return reply(out, number, OptionReply::UnknownExport, b"no such export");
        };
        let wanted = query.names_allocation || (!set && (query.names_base || query.is_empty));
        if wanted && export.has_extents() {
            let id = if set { ALLOCATION_CONTEXT } else { 0 };
            let mut context = id.to_be_bytes().to_vec();
            context.extend_from_slice(b"base:allocation");
            reply(out, number, OptionReply::MetaContext, &context);
            if set {
                self.allocation_of = Some(export);
            }
        }
        reply(out, number, OptionReply::Ack, &[]);
    }

    fn session(&self, export: &'e Export) -> Session<'e> {
        // A selection made for another export does not count.
        let allocation = self.allocation_of.is_some_and(|chosen| std::ptr::eq(chosen, export));
        Session { export, structured: self.structured, allocation }
    }
}

fn invalid(number: u32, out: &mut Vec<u8>) {
    reply(out, number, OptionReply::Invalid, b"malformed, or at a wrong time");
}
