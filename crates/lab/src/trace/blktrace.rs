//! The binary files of blktrace: recognised, and their readers told how to make text of them.
//!
//! An event begins with a magic number (blktrace_api.h: 0x65617400 and the version) in the byte order of the machine that recorded it.

use std::path::Path;

/// The magic number without the version in its lowest byte.
const MAGIC: u32 = 0x6561_7400;

/// Versions so far are 7 and 8; a letter there would be text.
const VERSIONS: std::ops::RangeInclusive<u32> = 1..=31;

/// Whether a trace that begins so is one.
pub(super) fn is_binary(head: &[u8]) -> bool {
    let Some(first) = head.first_chunk::<4>() else { return false };
    [u32::from_le_bytes(*first), u32::from_be_bytes(*first)]
        .into_iter()
        .any(|magic| magic & !0xff == MAGIC && VERSIONS.contains(&(magic & 0xff)))
}

/// The shell's command that turns a file into text; of one processor's file `sda.blktrace.0` with the files of the others.
pub(super) fn command_to_text(path: Option<&Path>) -> String {
    // A name that no terminal shows is in no command to copy.
    let name = path.and_then(Path::to_str).filter(|name| !name.chars().any(char::is_control));
    let (Some(path), Some(name)) = (path, name) else { return "blkparse -i - -o TRACE.txt < TRACE".to_owned() };
    let of_all = name.rsplit_once(".blktrace.").filter(|(_, cpu)| cpu.parse::<u32>().is_ok());
    let unpack = match path.extension().and_then(|ending| ending.to_str()) {
        Some("gz") => Some("zcat"),
        Some("zst") => Some("zstdcat"),
        _ => None,
    };
    match (of_all, unpack) {
        (Some((all, _)), _) => format!("blkparse -i {} -o {}", quoted(all), quoted(&format!("{all}.txt"))),
        (None, Some(unpack)) => {
            format!("{unpack} {} | blkparse -i - -o {}", quoted(name), quoted(&format!("{name}.txt")))
        }
        (None, None) => format!("blkparse -i - -o {} < {}", quoted(&format!("{name}.txt")), quoted(name)),
    }
}

/// As the shell takes it.
fn quoted(text: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+:@%,=".contains(letter);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_magic_number_is_known_in_both_byte_orders_and_no_text_has_it() {
        for binary in [b"\x07tae\x01\0\0\0", b"eat\x07\0\0\0\x01", b"\x08tae\0\0\0\0"] {
            assert!(is_binary(binary), "{binary:?}");
        }
        for other in [&b""[..], b"\x07ta", b"eat this", b"eat\0", b"tae\x07", b"0,0,W,0,512,\n"] {
            assert!(!is_binary(other), "{other:?}");
        }
    }

    #[test]
    fn the_command_names_all_files_of_a_recording() {
        let command = |name: &str| command_to_text(Some(Path::new(name)));
        assert_eq!(command("/t/sda.blktrace.0"), "blkparse -i /t/sda -o /t/sda.txt");
        assert_eq!(command("it's"), "blkparse -i - -o 'it'\\''s.txt' < 'it'\\''s'");
        assert_eq!(command("a b.gz"), "zcat 'a b.gz' | blkparse -i - -o 'a b.gz.txt'");
        assert_eq!(command("a.blktrace.zst"), "zstdcat a.blktrace.zst | blkparse -i - -o a.blktrace.zst.txt");
    }
}
