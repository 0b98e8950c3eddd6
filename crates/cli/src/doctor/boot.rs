//! Whether a pool is mounted at boot, after its branches.

use std::fs;
use std::path::{Path, PathBuf};

use super::Diagnostic;
use crate::mergerfs;
use crate::text::{quoted, visible_path};

/// What is looked for.
#[derive(Debug)]
pub(crate) struct BootRequirements<'a> {
    pub(crate) config: &'a Path,
    pub(crate) mount: &'a Path,
    /// Mount points that have to be there before.
    pub(crate) branches: Vec<PathBuf>,
}

/// Looks below `root`, which is `/` but in tests.
pub(crate) fn items(root: &Path, wanted: &BootRequirements<'_>) -> Vec<Diagnostic> {
    let unit = unit(root, wanted);
    let line = fstab_line(root, wanted);
    let mut items = Vec::from_iter(mergerfs_items(root, wanted));
    items.extend(match (unit, line) {
        (None, None) => vec![not_at_boot(wanted)],
        (Some(unit), Some(_)) => {
            let text = format!("both {unit} and /etc/fstab mount the pool at boot");
            vec![Diagnostic::problem("boot", text).todo(format!("systemctl disable {unit}, or delete the line"))]
        }
        (Some(unit), None) => unit_items(root, &unit, wanted),
        (None, Some(line)) => fstab_items(&line, wanted),
    });
    items
}

fn not_at_boot(wanted: &BootRequirements<'_>) -> Diagnostic {
    let text = "neither systemd nor /etc/fstab mounts the pool at boot";
    let todo = match name_of(wanted.config) {
        Some(name) => format!("systemctl enable umbrella@{name}"),
        None => format!(
            "move the configuration to /etc/umbrella/NAME.toml and enable umbrella@NAME, or add to /etc/fstab: {}  {}  fuse.umbrella  defaults  0 0",
            visible_path(wanted.config),
            visible_path(wanted.mount)
        ),
    };
    Diagnostic::remark("boot", text).todo(todo)
}

/// `media` of `/etc/umbrella/media.toml`.
fn name_of(config: &Path) -> Option<&str> {
    (config.parent() == Some(Path::new("/etc/umbrella"))).then_some(())?;
    config.file_name()?.to_str()?.strip_suffix(".toml")
}

/// The unit of this configuration, if it is enabled.
fn unit(root: &Path, wanted: &BootRequirements<'_>) -> Option<String> {
    let unit = format!("umbrella@{}.service", name_of(wanted.config)?);
    let targets = fs::read_dir(root.join("etc/systemd/system")).ok()?.flatten();
    let is_enabled = targets
        .filter(|target| target.file_name().as_encoded_bytes().ends_with(b".wants"))
        .any(|target| target.path().join(&unit).symlink_metadata().is_ok());
    is_enabled.then_some(unit)
}

fn unit_items(root: &Path, unit: &str, wanted: &BootRequirements<'_>) -> Vec<Diagnostic> {
    let mut items = Vec::new();
    let folders =
        ["etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"].map(|folder| root.join(folder));
    if !folders.iter().any(|folder| folder.join("umbrella@.service").exists()) {
        let text = format!("{unit} is enabled, but the file umbrella@.service does not exist");
        items.push(Diagnostic::problem("boot", text).todo("make install"));
    }
    let drop_ins = folders.iter().filter_map(|folder| fs::read_dir(folder.join(format!("{unit}.d"))).ok());
    let texts = drop_ins.flatten().flatten().filter_map(|file| fs::read_to_string(file.path()).ok());
    let after: Vec<PathBuf> = texts.flat_map(|text| required_by_unit(&text)).collect();
    let missing = missing(&after, wanted);
    if !missing.is_empty() {
        let text = format!("{unit} does not wait for the disks of all branches");
        let todo = format!("systemctl edit {unit}, with `[Unit]` and `RequiresMountsFor={}`", missing.join(" "));
        items.push(Diagnostic::remark("boot", text).todo(todo));
    }
    items
}

/// The paths of `RequiresMountsFor=`.
fn required_by_unit(text: &str) -> Vec<PathBuf> {
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("RequiresMountsFor="));
    lines.flat_map(str::split_whitespace).map(PathBuf::from).collect()
}

/// The options of the pool's line.
fn fstab_line(root: &Path, wanted: &BootRequirements<'_>) -> Option<String> {
    fstab(root).into_iter().find_map(|[source, at, kind, options]| {
        let is_it = kind == "fuse.umbrella" && (Path::new(&source) == wanted.config || Path::new(&at) == wanted.mount);
        is_it.then_some(options)
    })
}

/// A line that mounts mergerfs where the pool belongs.
fn mergerfs_items(root: &Path, wanted: &BootRequirements<'_>) -> Option<Diagnostic> {
    let is_it = |[_, at, kind, _]: &[String; 4]| {
        matches!(kind.as_str(), "mergerfs" | "fuse.mergerfs") && Path::new(at) == wanted.mount
    };
    fstab(root).iter().any(is_it).then(|| {
        let text = format!("/etc/fstab mounts mergerfs at {} too", visible_path(wanted.mount));
        Diagnostic::problem("boot", text).todo("remove that line")
    })
}

/// Source, mount point, kind and options of each line of fstab.
fn fstab(root: &Path) -> Vec<[String; 4]> {
    let text = fs::read_to_string(root.join("etc/fstab")).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let fields = lines.map(|line| {
        let mut fields = line.split_whitespace().map(mergerfs::unescape);
        [(); 4].map(|()| fields.next().unwrap_or_default())
    });
    fields.collect()
}

fn fstab_items(options: &str, wanted: &BootRequirements<'_>) -> Vec<Diagnostic> {
    let after = options.split(',').filter_map(|option| option.strip_prefix("x-systemd.requires-mounts-for="));
    let missing = missing(&after.map(PathBuf::from).collect::<Vec<_>>(), wanted);
    if missing.is_empty() {
        return Vec::new();
    }
    let options: Vec<String> = missing.iter().map(|path| format!("x-systemd.requires-mounts-for={path}")).collect();
    let text = "the pool's line in /etc/fstab does not wait for the disks of all branches";
    vec![Diagnostic::remark("boot", text).todo(format!("add to its options: {}", options.join(",")))]
}

/// Mount points of branches that nothing waits for.
fn missing(after: &[PathBuf], wanted: &BootRequirements<'_>) -> Vec<String> {
    let is_waited_for = |branch: &PathBuf| after.iter().any(|path| path.starts_with(branch));
    let mut missing: Vec<String> =
        wanted.branches.iter().filter(|branch| !is_waited_for(branch)).map(|branch| visible_path(branch)).collect();
    missing.dedup();
    missing
}

/// For messages about a configuration that cannot be read.
pub(crate) fn about(config: &Path) -> String {
    format!("configuration {}", quoted(&config.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            match text.strip_prefix("-> ") {
                Some(target) => symlink(target, path).unwrap(),
                None => fs::write(path, text).unwrap(),
            }
        }
        root
    }

    fn reported(files: &[(&str, &str)], config: &str) -> Vec<String> {
        let root = root(files);
        let wanted = BootRequirements {
            config: Path::new(config),
            mount: Path::new("/srv/media"),
            branches: vec!["/mnt/disk1".into(), "/mnt/ssd".into()],
        };
        items(root.path(), &wanted).into_iter().map(|item| item.todo.unwrap_or_default()).collect()
    }

    const ENABLED: (&str, &str) = (
        "etc/systemd/system/multi-user.target.wants/umbrella@media.service",
        "-> /etc/systemd/system/umbrella@.service",
    );
    const UNIT: (&str, &str) = ("etc/systemd/system/umbrella@.service", "[Service]\n");
    const CONFIG: &str = "/etc/umbrella/media.toml";

    #[test]
    fn doctor_says_how_to_mount_at_boot_a_branch_that_nothing_mounts() {
        assert_eq!(reported(&[UNIT], CONFIG), ["systemctl enable umbrella@media"]);
        assert!(reported(&[], "/root/pool.toml")[0].contains("/root/pool.toml  /srv/media  fuse.umbrella"));
        let comment = ("etc/fstab", "# /root/pool.toml /srv/media fuse.umbrella defaults 0 0\n");
        assert!(reported(&[comment], "/root/pool.toml")[0].contains("/etc/umbrella/NAME.toml"));
    }

    #[test]
    fn doctor_names_the_branches_that_a_unit_does_not_wait_for() {
        let drop_in = "etc/systemd/system/umbrella@media.service.d/override.conf";
        let some = (drop_in, "[Unit]\nRequiresMountsFor=/mnt/disk1\n");
        assert!(reported(&[ENABLED, UNIT, some], CONFIG)[0].ends_with("`RequiresMountsFor=/mnt/ssd`"));
        let all = (drop_in, "[Unit]\nRequiresMountsFor=/mnt/disk1 /mnt/ssd\n");
        assert_eq!(reported(&[ENABLED, UNIT, all], CONFIG), [""; 0]);
        assert_eq!(reported(&[ENABLED, all], CONFIG), ["make install"]);
    }

    #[test]
    fn doctor_names_the_branches_that_a_line_of_fstab_does_not_wait_for() {
        let line = |options: &str| format!("/etc/x.toml /srv/media fuse.umbrella {options} 0 0\n");
        let some = line("nofail,x-systemd.requires-mounts-for=/mnt/disk1");
        assert!(
            reported(&[("etc/fstab", &some)], "/etc/x.toml")[0].ends_with(": x-systemd.requires-mounts-for=/mnt/ssd")
        );
        let all = line("x-systemd.requires-mounts-for=/mnt/disk1,x-systemd.requires-mounts-for=/mnt/ssd");
        assert_eq!(reported(&[("etc/fstab", &all)], "/etc/x.toml"), [""; 0]);
    }

    #[test]
    fn a_line_that_still_mounts_mergerfs_at_the_mount_point_is_a_problem() {
        let line = "/mnt/a:/mnt/b /srv/media/ fuse.mergerfs defaults 0 0\n";
        assert_eq!(reported(&[ENABLED, UNIT, ("etc/fstab", line)], CONFIG)[0], "remove that line");
        let both = format!("{line}/etc/x.toml /srv/media fuse.umbrella defaults 0 0\n");
        assert_eq!(reported(&[("etc/fstab", &both)], "/etc/x.toml")[0], "remove that line");
    }

    #[test]
    fn a_pool_that_two_mount_at_boot_is_a_problem() {
        let line = "/etc/umbrella/media.toml /srv/media fuse.umbrella defaults 0 0\n";
        assert!(
            reported(&[ENABLED, UNIT, ("etc/fstab", line)], CONFIG)[0]
                .contains("systemctl disable umbrella@media.service")
        );
    }
}
