//! How much memory the daemon's control groups leave: those of a container, or of a unit with `MemoryMax=`. Files that
//! wait in memory are charged to them. A process with more than they allow is killed, however much the machine has.

use std::path::{Path, PathBuf};

use umbrella_units::ByteSize;

use crate::area::memory::{Memory, read, some_avg10};

/// The names under which the two versions of control groups say the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CgroupFiles {
    limits: &'static [&'static str],
    used: &'static str,
    /// In `memory.stat`: pages that are given up first.
    reclaimable: &'static str,
}

const FIRST: CgroupFiles = CgroupFiles {
    limits: &["memory.limit_in_bytes"],
    used: "memory.usage_in_bytes",
    reclaimable: "total_inactive_file",
};
const SECOND: CgroupFiles =
    CgroupFiles { limits: &["memory.max", "memory.high"], used: "memory.current", reclaimable: "inactive_file" };

/// The groups that the daemon is in, the innermost first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Groups {
    folders: Vec<(PathBuf, CgroupFiles)>,
}

impl Groups {
    /// The groups of this process; none where the kernel does not report them.
    pub(crate) fn of_this_process() -> Groups {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Groups::parse(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"))
    }

    /// Parses `/proc/self/cgroup` and `/proc/self/mountinfo`.
    fn parse(groups: &str, mounts: &str) -> Groups {
        let mut folders = Vec::new();
        for line in groups.lines() {
            let mut fields = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(group)) = (fields.next(), fields.next(), fields.next()) else {
                continue;
            };
            let names = match controllers {
                "" => SECOND,
                _ if controllers.split(',').any(|controller| controller == "memory") => FIRST,
                _ => continue,
            };
            let Some((root, at)) = mounts.lines().find_map(|mount| mounted(mount, names)) else { continue };
            // Only the part of the group that is mounted here can be seen.
            let below = Path::new(group).strip_prefix(root).unwrap_or(Path::new(""));
            let inside = below.ancestors().map(|below| at.join(below));
            folders.extend(inside.map(|folder| (folder, names)));
        }
        Groups { folders }
    }

    /// The machine's memory, reduced to the limits of all groups.
    pub(crate) fn limit_to_groups(&self, machine: Memory) -> Memory {
        self.folders.iter().fold(machine, |memory, (folder, names)| {
            let number = |name: &str| read(folder.join(name))?.trim().parse::<u64>().ok();
            let limit = names.limits.iter().filter_map(|name| number(name)).min();
            let (Some(limit), Some(used)) = (limit, number(names.used)) else { return memory };
            let stat = read(folder.join("memory.stat")).unwrap_or_default();
            let reclaimable = stat.lines().find_map(|line| line.strip_prefix(names.reclaimable)?.trim().parse().ok());
            let available = limit.saturating_sub(used).saturating_add(reclaimable.unwrap_or(0)).min(limit);
            let pressure = read(folder.join("memory.pressure")).and_then(|text| some_avg10(&text));
            Memory {
                total: memory.total.min(ByteSize(limit)),
                available: memory.available.min(ByteSize(available)),
                pressure: memory.pressure.max(pressure.unwrap_or(0.0)),
            }
        })
    }
}

/// Reads a line of mountinfo: which group is mounted, and where, if it is memory's hierarchy.
fn mounted(line: &str, names: CgroupFiles) -> Option<(&str, &Path)> {
    let (place, kind) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(3);
    let mut kind = kind.split(' ');
    let is_memory = match kind.next()? {
        "cgroup2" => names == SECOND,
        "cgroup" => names == FIRST && kind.nth(1)?.split(',').any(|option| option == "memory"),
        _ => false,
    };
    is_memory.then_some((place.next()?, Path::new(place.next()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const MACHINE: Memory = Memory { total: ByteSize(4096 * MIB), available: ByteSize(3000 * MIB), pressure: 1.0 };

    fn paths(groups: &str, mounts: &str) -> Vec<String> {
        Groups::parse(groups, mounts).folders.iter().map(|(path, _)| path.display().to_string()).collect()
    }

    #[test]
    fn groups_of_both_versions_are_found_with_those_around_them() {
        let mounts = "22 1 0:20 / /proc rw - proc proc rw\n\
                      30 1 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let of = paths("0::/system.slice/umbrella@pool.service\n", mounts);
        let folders = ["/sys/fs/cgroup/system.slice/umbrella@pool.service", "/sys/fs/cgroup/system.slice"];
        assert_eq!(of, [&folders[..], &["/sys/fs/cgroup/"]].concat());

        let mounts = "31 1 0:27 / /cg/cpu rw - cgroup cgroup rw,cpu\n\
                      32 1 0:28 /docker/abc /cg/memory rw - cgroup cgroup rw,memory\n";
        let groups = "5:cpu:/docker/abc\n4:memory:/docker/abc/inner\n0::/\n";
        assert_eq!(paths(groups, mounts), ["/cg/memory/inner", "/cg/memory/"]);
        assert_eq!(paths("4:memory:/elsewhere\n", mounts), ["/cg/memory/"]);
        assert_eq!(paths("nonsense\n4:cpu\n", "nonsense\n1 2 - \n"), Vec::<String>::new());
    }

    #[test]
    fn the_tightest_of_them_holds_and_what_can_be_given_up_counts_as_free() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        };
        let groups = Groups { folders: vec![(dir.path().join("a/b"), SECOND), (dir.path().join("a"), SECOND)] };
        assert_eq!(groups.limit_to_groups(MACHINE), MACHINE, "nothing is said");
        write("a/memory.max", &format!("{}\n", 1000 * MIB));
        write("a/memory.high", "max\n");
        write("a/memory.current", &format!("{}\n", 900 * MIB));
        write("a/memory.stat", &format!("anon 5\ninactive_file {}\nactive_file 7\n", 50 * MIB));
        write("a/b/memory.max", "max\n");
        write("a/b/memory.current", "5\n");
        write("a/b/memory.pressure", "some avg10=30.00 avg60=0.00 avg300=0.00 total=0\n");
        let [total, available] = [1000, 150].map(|mib| ByteSize(mib * MIB));
        assert_eq!(groups.limit_to_groups(MACHINE), Memory { total, available, pressure: 1.0 });
        write("a/b/memory.high", &format!("{}\n", 200 * MIB));
        let [total, available] = [ByteSize(200 * MIB), ByteSize(150 * MIB)];
        assert_eq!(groups.limit_to_groups(MACHINE), Memory { total, available, pressure: 30.0 });
        write("a/memory.current", &format!("{}\n", 2000 * MIB));
        assert_eq!(groups.limit_to_groups(MACHINE).available, ByteSize(50 * MIB));
    }

    #[test]
    fn a_group_without_a_limit_bounds_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let groups = Groups { folders: vec![(dir.path().to_owned(), FIRST)] };
        std::fs::write(dir.path().join("memory.limit_in_bytes"), "9223372036854771712\n").expect("a file");
        std::fs::write(dir.path().join("memory.usage_in_bytes"), "4096\n").expect("a file");
        assert_eq!(groups.limit_to_groups(MACHINE), MACHINE);
    }
}
