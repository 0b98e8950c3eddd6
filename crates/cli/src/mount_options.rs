//! The general options of mount(8), and what each means for a pool: honoured, without effect here, or refused with what
//! to do instead.
//!
//! The order counts, as for mount(8): of two that contradict each other the last holds, so that `user,exec` is
//! `nosuid,nodev`.

use rustix::mount::MountFlags;
use thiserror::Error;
use umbrella_fs::spec::{AccessTimes, AtimeUpdate};

use crate::text::quoted;

/// Options of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MountOptions(MountFlags);

/// What one option means.
#[derive(Debug, Clone, Copy)]
enum Meaning {
    /// It clears the first flags, then sets the second.
    Changes(MountFlags, MountFlags),
    /// It is the default, or concerns mount(8), fstab or systemd.
    Nothing,
    /// It cannot be had: why, and what to do.
    Refused(&'static str),
}

use Meaning::{Changes, Nothing, Refused};

const NONE: MountFlags = MountFlags::empty();
const DEVICES: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);
const PROGRAMS: MountFlags = DEVICES.union(MountFlags::NOEXEC);
const ATIME: MountFlags = MountFlags::NOATIME.union(MountFlags::RELATIME).union(MountFlags::STRICTATIME);

const OF_THE_DISK: &str = "it belongs to each branch's own file system: mount the branches with it";
const OF_A_LABEL: &str = "a pool has no security labels of its own: set them on the files of the branches";
const CANNOT_BE_REMOUNTED: &str =
    "a pool cannot be remounted; unmount it and mount it with the new options (ro, for example)";

/// Every option; those that end with `=` have a value, those that end with `-` are a family.
const TABLE: [(&str, Meaning); 63] = [
    ("ro", Changes(NONE, MountFlags::RDONLY)),
    ("rw", Changes(MountFlags::RDONLY, NONE)),
    ("nosuid", Changes(NONE, MountFlags::NOSUID)),
    ("suid", Changes(MountFlags::NOSUID, NONE)),
    ("nodev", Changes(NONE, MountFlags::NODEV)),
    ("dev", Changes(MountFlags::NODEV, NONE)),
    ("noexec", Changes(NONE, MountFlags::NOEXEC)),
    ("exec", Changes(MountFlags::NOEXEC, NONE)),
    ("nosymfollow", Changes(NONE, MountFlags::NOSYMFOLLOW)),
    ("symfollow", Changes(MountFlags::NOSYMFOLLOW, NONE)),
    ("noatime", Changes(ATIME, MountFlags::NOATIME)),
    ("atime", Changes(MountFlags::NOATIME, NONE)),
    ("relatime", Changes(ATIME, MountFlags::RELATIME)),
    ("norelatime", Changes(MountFlags::RELATIME, NONE)),
    ("strictatime", Changes(ATIME, MountFlags::STRICTATIME)),
    ("nostrictatime", Changes(MountFlags::STRICTATIME, NONE)),
    ("nodiratime", Changes(NONE, MountFlags::NODIRATIME)),
    ("diratime", Changes(MountFlags::NODIRATIME, NONE)),
    ("user", Changes(NONE, PROGRAMS)),
    ("user=", Changes(NONE, PROGRAMS)),
    ("users", Changes(NONE, PROGRAMS)),
    ("owner", Changes(NONE, DEVICES)),
    ("group", Changes(NONE, DEVICES)),
    ("defaults", Nothing),
    ("async", Nothing),
    ("auto", Nothing),
    ("noauto", Nothing),
    ("nouser", Nothing),
    ("nousers", Nothing),
    ("noowner", Nothing),
    ("nogroup", Nothing),
    ("nofail", Nothing),
    ("_netdev", Nothing),
    ("silent", Nothing),
    ("loud", Nothing),
    ("nolazytime", Nothing),
    ("noiversion", Nothing),
    ("nomand", Nothing),
    ("x-", Nothing),
    ("X-", Nothing),
    ("comment=", Nothing),
    ("helper=", Nothing),
    ("uhelper=", Nothing),
    ("fsname=", Nothing),
    ("subtype=", Nothing),
    ("allow_other", Nothing),
    ("default_permissions", Nothing),
    ("nonempty", Nothing),
    ("sync", Refused(OF_THE_DISK)),
    ("dirsync", Refused(OF_THE_DISK)),
    ("lazytime", Refused(OF_THE_DISK)),
    ("iversion", Refused(OF_THE_DISK)),
    ("mand", Refused("Linux has no mandatory locks since 5.15")),
    ("context=", Refused(OF_A_LABEL)),
    ("fscontext=", Refused(OF_A_LABEL)),
    ("defcontext=", Refused(OF_A_LABEL)),
    ("rootcontext=", Refused(OF_A_LABEL)),
    ("seclabel", Refused(OF_A_LABEL)),
    ("remount", Refused(CANNOT_BE_REMOUNTED)),
    ("loop", Refused("a pool is not an image: name its configuration as the source")),
    ("loop=", Refused("a pool is not an image: name its configuration as the source")),
    ("offset=", Refused("a pool is not an image: name its configuration as the source")),
    ("sizelimit=", Refused("a pool is not an image: name its configuration as the source")),
];

/// An option that a pool cannot be mounted with.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum OptionError {
    #[error("mount option {} is refused: {why}", quoted(option))]
    Refused { option: String, why: &'static str },
    #[error("unknown mount option {}{}; {}", quoted(option), did_you_mean(option), known())]
    Unknown { option: String },
}

impl OptionError {
    /// Whether `mount -s` may continue: without the option the mount is what it would have been. A remount would be
    /// another mount.
    pub(crate) fn may_be_tolerated(&self) -> bool {
        !matches!(self, OptionError::Refused { why: CANNOT_BE_REMOUNTED, .. })
    }
}

/// Options of our own in fstab, which have a value.
pub(crate) const OURS: [&str; 2] = ["allow-missing=", "log="];

/// The nearest option. An option with a value matches whatever its value is.
fn did_you_mean(option: &str) -> String {
    let name = option.split_inclusive('=').next().unwrap_or(option);
    umbrella_units::did_you_mean(name, TABLE.iter().map(|(name, _)| *name).chain(OURS))
}

/// All known options, for a message about an unknown one.
fn known() -> String {
    let such = |wanted: fn(&Meaning) -> bool| {
        let names = TABLE.iter().filter(|(_, meaning)| wanted(meaning)).map(|(name, _)| match name.strip_suffix('-') {
            Some(family) => format!("{family}-..."),
            None => (*name).to_owned(),
        });
        names.collect::<Vec<_>>().join(", ")
    };
    format!(
        "honoured: {}; without effect: {}; refused: {}; in fstab also: allow-missing=BRANCH, log=FILE",
        such(|meaning| matches!(meaning, Changes(..))),
        such(|meaning| matches!(meaning, Nothing)),
        such(|meaning| matches!(meaning, Refused(_)))
    )
}

fn meaning(option: &str) -> Option<Meaning> {
    let is_it = |name: &str| {
        if name.ends_with(['=', '-']) { option.starts_with(name) } else { option == name }
    };
    TABLE.iter().find(|(name, _)| is_it(name)).map(|(_, meaning)| *meaning)
}

/// For the command line: whether such an option can be given.
pub(crate) fn checked(option: &str) -> Result<String, OptionError> {
    MountOptions::default().add(option).map(|()| option.to_owned())
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions(NONE)
    }
}

impl MountOptions {
    /// The next option.
    pub(crate) fn add(&mut self, option: &str) -> Result<(), OptionError> {
        match meaning(option) {
            Some(Changes(clears, sets)) => {
                self.0.remove(clears);
                self.0.insert(sets);
            }
            Some(Nothing) => {}
            Some(Refused(why)) => return Err(OptionError::Refused { option: option.to_owned(), why }),
            None if option.is_empty() => {}
            None => return Err(OptionError::Unknown { option: option.to_owned() }),
        }
        Ok(())
    }

    /// All of them, in order.
    pub(crate) fn of<'o>(options: impl IntoIterator<Item = &'o str>) -> Result<MountOptions, OptionError> {
        let mut all = MountOptions::default();
        options.into_iter().try_for_each(|option| all.add(option)).map(|()| all)
    }

    /// The shortest text that means the same.
    pub(crate) fn names(self) -> Vec<&'static str> {
        let sets = |flag: MountFlags| flag.bits().is_power_of_two() && self.0.contains(flag);
        let named = TABLE.iter().filter(|(_, meaning)| matches!(meaning, Changes(_, flags) if sets(*flags)));
        named.map(|(name, _)| *name).collect()
    }

    /// What the mount itself is given; where it already has `others`, those that forbid something stay.
    pub(crate) fn flags(self, others: &[String]) -> Option<MountFlags> {
        let forbidding = PROGRAMS | MountFlags::RDONLY | MountFlags::NOSYMFOLLOW;
        let mut had = MountOptions::default();
        for other in others {
            let _not_general = had.add(other);
        }
        (!self.0.is_empty()).then_some(self.0 | (had.0 & forbidding))
    }

    /// What reads change on the branches.
    pub(crate) fn access_times(self) -> AccessTimes {
        let updates = [
            (MountFlags::NOATIME, AtimeUpdate::Never),
            (MountFlags::RELATIME, AtimeUpdate::Relative),
            (MountFlags::STRICTATIME, AtimeUpdate::Always),
        ];
        AccessTimes {
            update: updates.into_iter().find(|(flag, _)| self.0.contains(*flag)).map(|(_, update)| update),
            not_of_directories: self.0.contains(MountFlags::NODIRATIME),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(options: &str) -> Vec<&'static str> {
        MountOptions::of(options.split(',')).unwrap().names()
    }

    #[test]
    fn of_options_that_contradict_each_other_the_last_holds() {
        assert_eq!(names("ro,rw"), Vec::<&str>::new());
        assert_eq!(names("user,exec"), ["nosuid", "nodev"]);
        assert_eq!(names("users"), ["nosuid", "nodev", "noexec"]);
        assert_eq!(names("owner,dev,x-systemd.automount"), ["nosuid"]);
        assert_eq!(names("noatime,strictatime"), ["strictatime"]);
        assert_eq!(names("relatime,noatime,atime"), Vec::<&str>::new());
        assert_eq!(names("noatime,nodiratime,nosymfollow"), ["nosymfollow", "noatime", "nodiratime"]);
    }

    /// The list in the manual of mount(8), under "filesystem-independent mount options".
    #[test]
    fn every_general_option_of_mount_8_is_honoured_or_refused_by_name() {
        let manual = "async atime noatime auto noauto context=x fscontext=x defcontext=x rootcontext=x defaults dev nodev diratime nodiratime \
                      dirsync exec noexec group iversion noiversion mand nomand _netdev nofail relatime norelatime strictatime nostrictatime \
                      lazytime nolazytime suid nosuid silent loud owner remount ro rw sync user nouser users X-mount.mkdir x-systemd.after=y \
                      nosymfollow";
        for option in manual.split_whitespace() {
            let unknown = matches!(MountOptions::of([option]), Err(OptionError::Unknown { .. }));
            assert!(!unknown, "{option}");
        }
    }

    #[test]
    fn what_cannot_be_honoured_is_refused_with_what_to_do() {
        for option in
            ["sync", "dirsync", "lazytime", "iversion", "mand", "context=system_u:object_r:x", "remount", "loop"]
        {
            let error = MountOptions::of(["nosuid", option]).unwrap_err();
            assert!(matches!(error, OptionError::Refused { .. }), "{option}: {error}");
        }
        let error = MountOptions::of(["noexc"]).unwrap_err().to_string();
        let nearest = |option: &str| MountOptions::of([option]).unwrap_err().to_string();
        for (option, known) in
            [("contxt=x:y", "context="), ("allow-mising=usb", "allow-missing="), ("relatme", "relatime")]
        {
            assert!(nearest(option).contains(&format!("did you mean \"{known}\"?")), "{}", nearest(option));
        }
        for part in ["did you mean \"noexec\"?", "honoured: ro, rw", "x-...", "refused: sync", "allow-missing=BRANCH"] {
            assert!(error.contains(part), "{part} in {error}");
        }
    }

    #[test]
    fn a_mount_keeps_what_it_forbids_already() {
        let had = ["rw", "nosuid", "relatime", "user_id=0"].map(str::to_owned);
        let flags = MountOptions::of(["noatime"]).unwrap().flags(&had);
        assert_eq!(flags, Some(MountFlags::NOATIME | MountFlags::NOSUID));
        assert_eq!(MountOptions::default().flags(&had), None);
    }
}
