//! Called by mount(8): `mount -t fuse.umbrella CONFIG DIR -o OPTIONS`, by hand or from fstab.
//!
//! mount(8) runs `/sbin/mount.fuse.umbrella CONFIG DIR [-sfnv] [-o OPTIONS] [-t TYPE]` if that exists (a link to this
//! program); otherwise mount.fuse runs `umbrella CONFIG DIR -o OPTIONS`. Both become
//! `umbrella mount CONFIG --daemon --at DIR`. Options for mount(8), fstab and systemd are known and passed over; one
//! that is refused or unknown is an error, unless `-s` asks for tolerance.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use thiserror::Error;

use crate::mount_options::{MountOptions, OURS, OptionError};
use crate::mounts;

/// A call by mount(8) that cannot be understood.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum HelperError {
    #[error(
        "mount -t fuse.umbrella takes a configuration and a directory: mount -t fuse.umbrella /etc/umbrella/pool.toml /srv/pool"
    )]
    Usage,
    #[error(transparent)]
    Option(#[from] OptionError),
    #[error("unknown switch {switch}; known: -s, -f, -n, -v, -r, -w, -o OPTIONS, -t TYPE, -N NAMESPACE")]
    Switch { switch: String },
    /// mount(8) makes the device by itself, and passes it in the place of the configuration.
    #[error(
        "{device} is a block device, not a configuration: leave out the mount option \"loop\", and name the configuration as the source"
    )]
    Device { device: String },
    #[error("{option} needs a value")]
    NoValue { option: String },
}

/// The command line that such a call stands for; `None` when it is an ordinary one.
pub(crate) fn command_line(args: &[OsString]) -> Option<Result<Vec<OsString>, HelperError>> {
    let (program, rest) = args.split_first()?;
    let name = Path::new(program).file_name().unwrap_or_default().as_bytes();
    let as_helper = [&b"mount.umbrella"[..], b"mount.fuse.umbrella", b"mount.fuse3.umbrella"].contains(&name);
    (as_helper || is_helper_call(rest)).then(|| translate(rest))
}

/// Whether the arguments are those of mount(8): `CONFIG DIR -o ...`. In place of a subcommand they have a path.
fn is_helper_call(args: &[OsString]) -> bool {
    let [config, directory, options, ..] = args else { return false };
    let path = Path::new(config);
    let is_path = path.components().count() > 1 || path.extension().is_some() || mounts::is_file(path);
    options.as_bytes().starts_with(b"-o") && is_path && !starts_with_dash(directory)
}

fn starts_with_dash(word: &OsStr) -> bool {
    word.as_bytes().starts_with(b"-")
}

fn translate(args: &[OsString]) -> Result<Vec<OsString>, HelperError> {
    let (mut places, mut options) = (Vec::new(), Vec::new());
    let (mut tolerant, mut dry_run, mut verbose) = (false, false, false);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let Some(switches) = arg.as_bytes().strip_prefix(b"-").filter(|switches| !switches.is_empty()) else {
            places.push(arg);
            continue;
        };
        for (index, switch) in switches.iter().enumerate() {
            match switch {
                b's' => tolerant = true,
                b'f' => dry_run = true,
                b'v' => verbose = true,
                b'r' => options.push(b"ro".to_vec()),
                b'w' => options.push(b"rw".to_vec()),
                b'n' => {}
                // The value follows in the same word or in the next.
                b'o' | b't' | b'N' => {
                    let attached = switches.get(index + 1..).filter(|value| !value.is_empty());
                    let next = || args.next().map(|value| value.as_bytes());
                    let option = || format!("-{}", char::from(*switch));
                    let value = attached.or_else(next).ok_or_else(|| HelperError::NoValue { option: option() })?;
                    if *switch == b'o' {
                        options.extend(value.split(|byte| *byte == b',').map(<[u8]>::to_vec));
                    }
                    break;
                }
                _ => return Err(HelperError::Switch { switch: arg.to_string_lossy().into_owned() }),
            }
        }
    }
    let [config, directory] = places.as_slice() else { return Err(HelperError::Usage) };
    if mounts::is_block_device(Path::new(config)) {
        return Err(HelperError::Device { device: config.to_string_lossy().into_owned() });
    }
    // A trial run of mount(8) mounts nothing: the configuration is checked.
    let mut line: Vec<OsString> = vec!["umbrella".into()];
    if dry_run {
        line.extend(["check".into(), (*config).clone()]);
        return Ok(line);
    }
    line.extend(["mount".into(), (*config).clone(), "--daemon".into(), "--at".into(), (*directory).clone()]);
    // `mount -a` passes over what is mounted by comparing this with fstab.
    line.extend(["--source".into(), (*config).clone()]);
    if verbose {
        line.push("--verbose".into());
    }
    let mut general = MountOptions::default();
    for option in options {
        if let Some(argument) = argument(&option)? {
            line.extend(argument);
        } else if let Err(error) = general.add(&String::from_utf8_lossy(&option))
            && !(tolerant && error.may_be_tolerated())
        {
            return Err(error.into());
        }
    }
    let names = general.names();
    if !names.is_empty() {
        line.extend(["--options".into(), names.join(",").into()]);
    }
    Ok(line)
}

/// The argument that an option of ours stands for.
fn argument(option: &[u8]) -> Result<Option<[OsString; 2]>, HelperError> {
    let found = OURS.iter().find_map(|name| Some((name.trim_end_matches('='), option.strip_prefix(name.as_bytes())?)));
    match found {
        None => Ok(None),
        Some((name, b"")) => Err(HelperError::NoValue { option: name.to_owned() }),
        Some((name, value)) => Ok(Some([format!("--{name}").into(), OsStr::from_bytes(value).to_owned()])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn translated(line: &str) -> String {
        let line = command_line(&words(line)).expect("a call by mount(8)").unwrap();
        line.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_call_by_mount_becomes_a_daemon_at_the_given_place() {
        assert_eq!(
            translated("/sbin/mount.fuse.umbrella pool.toml /srv/pool -o rw,nosuid,_netdev,x-systemd.automount"),
            "umbrella mount pool.toml --daemon --at /srv/pool --source pool.toml --options nosuid"
        );
        assert_eq!(
            translated("mount.umbrella pool.toml /srv/pool -n -v -o allow-missing=usb,log=/tmp/x -t fuse.umbrella"),
            "umbrella mount pool.toml --daemon --at /srv/pool --source pool.toml --verbose --allow-missing usb --log /tmp/x"
        );
        assert_eq!(translated("mount.umbrella a /b -r"), "umbrella mount a --daemon --at /b --source a --options ro");
        assert_eq!(translated("mount.umbrella a /b"), "umbrella mount a --daemon --at /b --source a");
        assert_eq!(
            translated("mount.umbrella a /b -o ro,user,exec,log=/x,rw,strictatime"),
            "umbrella mount a --daemon --at /b --source a --log /x --options nosuid,nodev,strictatime"
        );
    }

    #[test]
    fn mount_fuse_calls_the_program_itself() {
        let config = tempfile::NamedTempFile::new().unwrap();
        let config = config.path().display();
        assert_eq!(
            translated(&format!("umbrella {config} /srv/pool -o rw,dev,suid")),
            format!("umbrella mount {config} --daemon --at /srv/pool --source {config}")
        );
    }

    #[test]
    fn mount_fuse_with_a_configuration_that_is_not_there_is_a_call_to_mount() {
        assert_eq!(
            translated("umbrella /srv/nosuch.toml /srv/pool -o rw"),
            "umbrella mount /srv/nosuch.toml --daemon --at /srv/pool --source /srv/nosuch.toml"
        );
        assert_eq!(
            translated("umbrella nosuch.toml /srv/pool -o rw"),
            "umbrella mount nosuch.toml --daemon --at /srv/pool --source nosuch.toml"
        );
    }

    #[test]
    fn a_trial_run_checks_the_configuration() {
        assert_eq!(translated("mount.umbrella pool.toml /srv/pool -f -o rw"), "umbrella check pool.toml");
    }

    #[test]
    fn an_unknown_option_is_an_error_unless_tolerance_is_asked_for() {
        let error = command_line(&words("mount.umbrella a /b -o noexc")).unwrap().unwrap_err();
        assert!(error.to_string().contains("did you mean \"noexec\"?"), "{error}");
        assert_eq!(translated("mount.umbrella a /b -s -o noexc,sync"), "umbrella mount a --daemon --at /b --source a");
        let error = command_line(&words("mount.umbrella a /b -o nosuid,sync")).unwrap().unwrap_err();
        assert!(error.to_string().contains("\"sync\" is refused"), "{error}");
    }

    #[test]
    fn a_remount_is_refused_with_what_to_do_instead() {
        for line in ["mount.umbrella a /b -o remount,ro", "mount.umbrella a /b -s -o rw,remount"] {
            let error = command_line(&words(line)).expect("a call by mount(8)").unwrap_err().to_string();
            assert!(error.contains("a pool cannot be remounted"), "{line}: {error}");
        }
    }

    #[test]
    fn ordinary_command_lines_are_left_alone() {
        for line in
            ["umbrella", "umbrella status /srv/pool -o x", "umbrella mount a --daemon", "umbrella nosuchfile /x -o rw"]
        {
            assert_eq!(command_line(&words(line)), None, "{line}");
        }
    }

    #[test]
    fn incomplete_calls_are_errors() {
        assert_eq!(command_line(&words("mount.umbrella a")).unwrap(), Err(HelperError::Usage));
        let no_value = HelperError::NoValue { option: "-o".to_owned() };
        assert_eq!(command_line(&words("mount.umbrella a b -o")).unwrap(), Err(no_value));
    }
}
