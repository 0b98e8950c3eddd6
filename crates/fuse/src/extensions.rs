//! What the kernel adds to requests that create: groups of the caller, and security contexts for the new entry.
//!
//! Each extension begins with its size (header and padding to eight bytes included) and its type.

use std::ffi::OsStr;

use crate::abi;
use crate::body::{Body, Malformed, Parsed};

/// What came with a request that creates. Empty unless it was agreed on at INIT.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extensions<'a> {
    /// The directory's group, if the caller has it besides its own ([`InitFlags::CREATE_SUPP_GROUP`]).
    ///
    /// [`InitFlags::CREATE_SUPP_GROUP`]: crate::InitFlags::CREATE_SUPP_GROUP
    pub groups: Vec<u32>,
    /// Extended attributes that the new entry is to have from its beginning ([`InitFlags::SECURITY_CTX`]).
    ///
    /// [`InitFlags::SECURITY_CTX`]: crate::InitFlags::SECURITY_CTX
    pub security: Vec<SecurityContext<'a>>,
}

/// The label of a security module, as `security.selinux`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecurityContext<'a> {
    /// Name of the extended attribute.
    pub name: &'a OsStr,
    /// Its value.
    pub value: &'a [u8],
}

impl<'a> Extensions<'a> {
    /// Parses the extensions at the end of a request's payload.
    pub(crate) fn take(body: &mut Body<'a>, header: &abi::InHeader) -> Parsed<Extensions<'a>> {
        Extensions::parse(body.last(usize::from(header.total_extlen) * 8)?)
    }

    pub(crate) fn parse(bytes: &'a [u8]) -> Parsed<Extensions<'a>> {
        let mut found = Extensions::default();
        let mut rest = bytes;
        while !rest.is_empty() {
            let mut body = Body::joined(rest);
            let header: abi::ExtHeader = body.take()?;
            let whole = (header.size as usize).next_multiple_of(8);
            if (header.size as usize) < size_of::<abi::ExtHeader>() {
                return Err(Malformed);
            }
            let (extension, after) = rest.split_at_checked(whole).ok_or(Malformed)?;
            rest = after;
            let mut body = Body::joined(extension);
            let _: abi::ExtHeader = body.take()?;
            match header.kind {
                abi::EXT_GROUPS => found.groups(&mut body)?,
                // The header is a fuse_secctx_header: its second word counts.
                count if count <= abi::MAX_NR_SECCTX => found.contexts(count, &mut body)?,
                _ => {}
            }
        }
        Ok(found)
    }

    fn groups(&mut self, body: &mut Body<'a>) -> Parsed<()> {
        let head: abi::SuppGroups = body.take()?;
        for _ in 0..head.nr_groups {
            self.groups.push(body.take()?);
        }
        Ok(())
    }

    fn contexts(&mut self, count: u32, body: &mut Body<'a>) -> Parsed<()> {
        for _ in 0..count {
            let head: abi::Secctx = body.take()?;
            let name = body.name()?;
            self.security.push(SecurityContext { name, value: body.bytes(head.size as usize)? });
        }
        Ok(())
    }
}
