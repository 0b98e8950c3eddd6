//! Sense data: what a device says of a command, in the fixed or in the descriptor format of SPC-4.
//!
//! It comes from outside: whatever the bytes are, reading them gives something or nothing, and no panic.

/// What a device says of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sense {
    /// The sense key.
    pub(super) key: u8,
    /// The additional sense code and its qualifier.
    pub(super) code: (u8, u8),
    /// The registers of an ATA device, if it was asked for them.
    pub(super) ata: Option<AtaRegisters>,
}

/// What an ATA device leaves behind after a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AtaRegisters {
    pub(super) error: u8,
    pub(super) status: u8,
    /// The lower half of the count.
    pub(super) count: u8,
}

/// The descriptor that holds ATA registers (SAT-3).
const ATA_STATUS_RETURN: u8 = 0x09;

/// "ATA pass through information available": fixed sense data that holds ATA registers.
const ATA_INFORMATION: (u8, u8) = (0x00, 0x1d);

impl Sense {
    pub(super) const NOT_READY: u8 = 0x02;
    pub(super) const UNIT_ATTENTION: u8 = 0x06;
    pub(super) const ABORTED: u8 = 0x0b;
    pub(super) const ILLEGAL_REQUEST: u8 = 0x05;

    /// Whether the command was carried out: there was no error, or it was corrected.
    pub(super) fn is_harmless(self) -> bool {
        self.key <= 1
    }

    /// Reads sense data; `None` if they are none.
    pub(super) fn parse(bytes: &[u8]) -> Option<Sense> {
        let at = |index: usize| bytes.get(index).copied();
        match at(0)? & 0x7f {
            0x70 | 0x71 => {
                let code = (at(12).unwrap_or(0), at(13).unwrap_or(0));
                let registers = || Some(AtaRegisters { error: at(3)?, status: at(4)?, count: at(6)? });
                let ata = if code == ATA_INFORMATION { registers() } else { None };
                Some(Sense { key: at(2)? & 0x0f, code, ata })
            }
            0x72 | 0x73 => {
                let end = 8 + usize::from(at(7)?);
                let ata = ata_descriptor(bytes.get(8..end.min(bytes.len())).unwrap_or_default());
                Some(Sense { key: at(1)? & 0x0f, code: (at(2)?, at(3)?), ata })
            }
            _ => None,
        }
    }
}

fn ata_descriptor(mut descriptors: &[u8]) -> Option<AtaRegisters> {
    while let &[kind, length, ..] = descriptors {
        let at = |index: usize| descriptors.get(index).copied();
        if kind == ATA_STATUS_RETURN {
            return Some(AtaRegisters { error: at(3)?, status: at(13)?, count: at(5)? });
        }
        descriptors = descriptors.get(2 + usize::from(length)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What Linux answers for CHECK POWER MODE of a sleeping disk: recovered error, "ATA pass through information
    /// available".
    const DESCRIPTOR: [u8; 22] = [
        0x72, 0x01, 0x00, 0x1d, 0, 0, 0, 14, // header
        0x09, 0x0c, 0x00, 0x04, 0x00, 0x80, 0, 0, 0, 0, 0, 0, 0x40, 0x50, // registers
    ];

    #[test]
    fn registers_are_found_in_a_descriptor() {
        let sense = Sense::parse(&DESCRIPTOR).expect("it is sense data");
        assert_eq!((sense.key, sense.code), (1, (0, 0x1d)));
        assert_eq!(sense.ata, Some(AtaRegisters { error: 0x04, status: 0x50, count: 0x80 }));
        assert!(sense.is_harmless());
    }

    #[test]
    fn registers_are_found_behind_another_descriptor() {
        let mut bytes = [0x72, 0x01, 0x00, 0x1d, 0, 0, 0, 14 + 12].to_vec();
        bytes.extend([0x00, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(&DESCRIPTOR[8..]);
        assert_eq!(Sense::parse(&bytes).and_then(|sense| sense.ata).map(|ata| ata.count), Some(0x80));
    }

    #[test]
    fn registers_are_found_in_fixed_sense_data_that_say_so() {
        let mut bytes = [0_u8; 18];
        bytes[..8].copy_from_slice(&[0x70, 0, 0x01, 0x04, 0x50, 0x40, 0xff, 10]);
        bytes[13] = 0x1d;
        let sense = Sense::parse(&bytes).expect("it is sense data");
        assert_eq!(sense.ata, Some(AtaRegisters { error: 0x04, status: 0x50, count: 0xff }));
        bytes[12..14].copy_from_slice(&[0x04, 0x01]);
        assert_eq!(Sense::parse(&bytes).expect("it is sense data"), Sense { key: 1, code: (4, 1), ata: None });
    }

    #[test]
    fn what_is_cut_short_or_foreign_is_nothing() {
        assert_eq!(Sense::parse(&[]), None);
        assert_eq!(Sense::parse(&[0; 18]), None);
        assert_eq!(Sense::parse(&DESCRIPTOR[..4]), None);
        assert_eq!(Sense::parse(&DESCRIPTOR[..20]).and_then(|sense| sense.ata), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_sense_data_or_not(bytes in prop::collection::vec(any::<u8>(), 0..300), first in 0x70_u8..0x74) {
            let _ = Sense::parse(&bytes);
            let _ = Sense::parse(&[&[first], bytes.as_slice()].concat());
        }
    }
}
