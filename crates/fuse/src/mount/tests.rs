use super::*;

#[test]
fn each_option_is_what_either_way_of_mounting_calls_it() {
    for (option, attribute, flag) in [
        (MountOptions::READ_ONLY, MountAttrFlags::MOUNT_ATTR_RDONLY, MountFlags::RDONLY),
        (MountOptions::NO_SUID, MountAttrFlags::MOUNT_ATTR_NOSUID, MountFlags::NOSUID),
        (MountOptions::NO_DEV, MountAttrFlags::MOUNT_ATTR_NODEV, MountFlags::NODEV),
        (MountOptions::NO_EXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC, MountFlags::NOEXEC),
        (MountOptions::NO_ATIME, MountAttrFlags::MOUNT_ATTR_NOATIME, MountFlags::NOATIME),
        (MountOptions::DEFAULT_PERMISSIONS, MountAttrFlags::empty(), MountFlags::empty()),
        (MountOptions::ALLOW_OTHER, MountAttrFlags::empty(), MountFlags::empty()),
    ] {
        let spec = MountSpec { source: String::new(), subtype: String::new(), options: option };
        assert_eq!((spec.attributes(), spec.flags()), (attribute, flag), "{option:?}");
    }
}
