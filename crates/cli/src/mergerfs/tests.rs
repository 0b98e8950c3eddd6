use std::path::Path;

use proptest::prelude::*;

use super::*;

/// What is given, the name of its golden, and the mount point on the command line.
const CASES: &[(&str, &str, Option<&str>)] = &[
    (
        "fstab",
        "/mnt/disk*:/mnt/ssd=NC,50G:/mnt/old=RO  /srv/pool  fuse.mergerfs  allow_other,use_ino,cache.files=partial,dropcacheonclose=true,category.create=mfs,minfreespace=100G,nofail,x-systemd.requires=/mnt/disk1,fsname=pool 0 0",
        None,
    ),
    (
        "command_line",
        "sudo mergerfs -o category.create=epmfs,moveonenospc=true -o cache.entry=30,cache.attr=120 '/mnt/one disk:/mnt/b' /srv/pool",
        None,
    ),
    (
        "options",
        "branches=/mnt/a=RW,10G:/mnt/b/a,func.getattr=newest,symlinkify=true,nullrw=false,whatever=7,statfs=full",
        Some("/srv/pool"),
    ),
    (
        "option_file",
        "# my pool\nbranches=/mnt/a:/mnt/b\nmountpoint=/srv/my pool\ncategory.create=pfrd\nbranches-mount-timeout=30\nread-thread-count=4\n",
        None,
    ),
    (
        "old_fstab",
        "mergerfs#/mnt/a:/mnt/b /srv/pool fuse defaults,allow_other,direct_io,category.create=newest,moveonenospc=false 0 0",
        None,
    ),
];

fn goldens() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/mergerfs/goldens")
}

#[test]
fn each_way_to_mount_mergerfs_becomes_the_configuration_of_its_golden() {
    for (name, given, mount) in CASES {
        let text = translate(given, *mount).unwrap_or_else(|error| panic!("{name}: {error}")).outline.text();
        let golden = goldens().join(format!("{name}.toml"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&golden, &text).unwrap();
        }
        assert_eq!(text, std::fs::read_to_string(&golden).unwrap(), "{name}");
    }
}

#[test]
fn each_golden_is_a_right_configuration() {
    let disks = tempfile::tempdir().unwrap();
    // What the patterns mean.
    for disk in ["disk1", "disk2"] {
        std::fs::create_dir(disks.path().join(disk)).unwrap();
    }
    for (name, ..) in CASES {
        let text = std::fs::read_to_string(goldens().join(format!("{name}.toml"))).unwrap();
        let bytes = text.replace("\"/mnt/", &format!("\"{}/", disks.path().display())).into_bytes();
        if let Err(errors) = crate::config::parse(Path::new(name), bytes) {
            panic!("{errors}");
        }
    }
}

fn policy(name: &str) -> Translation {
    translate(&format!("/mnt/a:/mnt/b /srv/pool fuse.mergerfs category.create={name}"), None).unwrap()
}

#[test]
fn each_policy_becomes_a_spread_and_says_what_differs() {
    for known in policies::POLICIES {
        let translation = policy(known.name);
        let group = &translation.outline.groups[0];
        assert_eq!(group.spread, known.spread, "{}", known.name);
        assert_eq!(translation.missing.is_empty(), known.note.is_none(), "{}", known.name);
        assert_eq!(translation.outline.default, ["pool"]);
    }
}

#[test]
fn the_page_has_a_row_for_each_policy() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/from-mergerfs.md");
    let page = std::fs::read_to_string(page).unwrap();
    for known in policies::POLICIES {
        let spread = match known.spread {
            [one] => format!("\"{one}\""),
            several => format!("[{}]", several.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")),
        };
        let newer = if known.is_newer { " (newer)" } else { "" };
        let row = format!("| `{}`{newer} | `{spread}` |", known.name);
        assert!(page.contains(&row), "docs/from-mergerfs.md lacks: {row}");
    }
}

#[test]
fn an_unknown_policy_and_no_policy_are_said() {
    let reported =
        |translation: Translation| translation.missing.into_iter().map(|note| note.option).collect::<Vec<_>>();
    assert_eq!(reported(policy("best")), ["category.create=best"]);
    let unsaid = translate("/a:/b /srv/pool fuse.mergerfs defaults", None).unwrap();
    assert_eq!(unsaid.unsure[0].option, "category.create");
    assert_eq!(reported(unsaid), [""; 0]);
    let odd = translate("branches=/a:/b,category.create=ff,moveonenospc=tru", Some("/srv/pool")).unwrap();
    assert!(odd.missing[0].text.starts_with("unknown value"), "{:?}", odd.missing);
}

#[test]
fn the_last_of_two_policies_counts_as_in_mergerfs() {
    assert_eq!(policy("mfs,func.create=ff").outline.groups[0].spread, ["in-order"]);
    assert_eq!(policy("mfs,func.create=ff,category.create=lus").outline.groups[0].spread, ["least-used"]);
}

#[test]
fn an_option_that_means_nothing_is_reported_in_full_and_is_no_line_of_its_own() {
    let translation = translate("branches=/a:/b,odd\u{1b}[2J=x,category.create=ff", Some("/srv/pool")).unwrap();
    assert_eq!(translation.missing[0].option, "odd\u{1b}[2J=x");
    assert!(!translation.outline.text().contains('\u{1b}'));
}

#[test]
fn every_option_of_mergerfs_is_known() {
    // Those of 2.33.5 and of later releases, as their pages list them.
    let options = "allow_other moveonenospc=true use_ino inodecalc=path-hash dropcacheonclose=true symlinkify=true symlinkify_timeout=9 \
        nullrw=true ignorepponrename=true security_capability=false xattr=nosys link_cow=true statfs=full statfs_ignore=ro \
        nfsopenhack=all follow-symlinks=all link-exdev=rel-symlink rename-exdev=rel-symlink posix_acl=true async_read=true \
        fuse_msg_size=256 threads=4 fsname=x func.getattr=newest category.action=all category.search=ff cache.open=1 cache.statfs=1 \
        cache.negative_entry=1 cache.files=off cache.writeback=true cache.symlinks=true cache.readdir=true direct_io kernel_cache \
        auto_cache sync_read direct-io-allow-mmap=true lazy-umount-mountpoint=true export-support=false \
        kernel-permissions-check=false readahead=1 read-thread-count=1 process-thread-count=1 process-thread-queue-depth=1 \
        pin-threads=R1L flush-on-close=never scheduling-priority=-10 proxy-ioprio=true func.readdir=cor func.mkdir=epff \
        cache.files.process-names=x parallel-direct-writes=true passthrough.io=rw passthrough.max-stack-depth=1 \
        never-forget-nodes=true noforget allow-idmap=true debug log.file=x branches-mount-timeout-fail=true atomic_o_trunc \
        big_writes hard_remove nonempty splice_move splice_read splice_write negative_entry pipe-max-size=1";
    for option in options.split_whitespace() {
        let given = format!("branches=/a:/b,category.create=ff,{option}");
        let translation = translate(&given, Some("/srv/pool")).unwrap();
        let unknown = translation.missing.iter().find(|note| note.text.contains("unknown option"));
        assert_eq!(unknown, None);
    }
}

#[test]
fn what_is_no_mount_of_mergerfs_is_refused_with_what_to_give() {
    let said = |text: &str| translate(text, None).unwrap_err().to_string();
    assert!(said("/dev/sda1 /mnt/a ext4 defaults 0 2").contains("ext4 is not mergerfs"));
    assert!(said("category.create=mfs").contains("--mount"));
    assert!(said("mountpoint=/srv/pool,category.create=mfs").contains("branches=/mnt/a:/mnt/b"));
    assert!(said("mnt/a:/mnt/b /srv/pool mergerfs x").contains("not absolute"));
    assert!(said("").contains("mount point"));
    assert!(said("/a:/b /srv/pool mergerfs minfreespace=4X").contains("not a size"));
    assert!(said("/a:/b /srv/pool mergerfs config=/etc/pool.conf").contains("/etc/pool.conf"));
}

#[test]
fn branches_that_all_only_read_are_the_default_list() {
    let outline = translate("/a=RO:/b=RO /srv/pool mergerfs category.create=ff", None).unwrap().outline;
    assert_eq!(
        (outline.default, &outline.groups[0].branches),
        (vec!["pool".to_owned()], &vec!["a".to_owned(), "b".to_owned()])
    );
}

proptest! {
    #[test]
    fn no_text_causes_a_panic(text in any::<String>()) {
        let _ = translate(&text, Some("/srv/pool"));
    }

    #[test]
    fn what_is_written_is_always_toml(path in "/[^:=*?\\[{,\\\\]{1,20}", option in "[^,]{0,30}") {
        let given = format!("branches={path}:/mnt/b,category.create=ff,{option}");
        if let Ok(translation) = translate(&given, Some("/srv/pool")) {
            let text = translation.outline.text();
            prop_assert!(text.parse::<toml_edit::DocumentMut>().is_ok(), "{text}");
        }
    }
}
