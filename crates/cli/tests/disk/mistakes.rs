//! What a user may get wrong, and what must not happen then.

use std::fs;

use super::House;

#[test]
fn a_configuration_of_the_same_name_is_not_taken_for_the_disk_that_is_served() {
    let house = House::new();
    let config = house.hybrid("b2", "never");
    let config = config.to_str().expect("text");
    house.given(&["create", config]);
    let device = house.given(&["attach", config]);
    fs::create_dir(house.path("other")).expect("the folder can be made");
    let other = house.hybrid("other/b2", "never");
    let other = other.to_str().expect("text");
    for command in ["attach", "serve", "detach", "status", "stats", "create"] {
        let parts = ["b2 is served already with another configuration (disk /", "b2.disk, flash /", "another name"];
        house.refused(&[command, other], 1, &parts);
    }
    house.refused(&["attach", "--disk", "memory:size=1MiB", "--name", "b2"], 1, &["with another configuration"]);
    house.refused(&["attach", config, "--read-only"], 1, &["b2 is served already, and can be written"]);
    // The same file by another path is the same disk.
    std::os::unix::fs::symlink(house.path("b2.disk"), house.path("link")).expect("the link can be made");
    assert_eq!(house.given(&["attach", "--disk", "link", "--flash", "b2.flash", "--name", "b2"]), device);
    house.given(&["detach", config]);
}
