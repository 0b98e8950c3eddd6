//! UmbrellaFS, figure 8: read-only files to flash, Dave's files to the encrypted disk, his films and all else to the
//! magnetic one.

use super::*;

fn rules() -> Rules {
    compile(
        vec![
            when("read-only", vec![access(Access::ReadOnly)], to(&["flash", "disk"])),
            table(
                "by name",
                vec![
                    ("/home/dave/**", to(&["crypt"])),
                    ("/home/dave/**.avi", to(&["disk", "crypt"])),
                    ("/**", to(&["disk"])),
                ],
            ),
        ],
        &["disk"],
    )
}

fn read_only(path: &str) -> FileFacts<'_> {
    FileFacts { mode: 0o444, ..file(path) }
}

fn place(facts: &FileFacts<'_>) -> (String, Choice) {
    let rules = rules();
    let decision = rules.decide(facts, &[ROOMY; 4], None, &Empty);
    (rules.entries()[decision.entry.index()].name.clone(), decision.choice)
}

#[test]
fn a_read_only_file_goes_to_flash() {
    assert_eq!(place(&read_only("/etc/hosts")), ("read-only".to_owned(), Choice::Place(FLASH)));
}

#[test]
fn a_read_only_film_of_daves_goes_to_flash_because_rule_1_comes_first() {
    assert_eq!(place(&read_only("/home/dave/x.avi")).1, Choice::Place(FLASH));
}

#[test]
fn a_file_of_daves_goes_to_the_encrypted_disk() {
    assert_eq!(place(&file("/home/dave/letter.txt")), ("by name: /home/dave/**".to_owned(), Choice::Place(CRYPT)));
}

#[test]
fn a_film_of_daves_goes_to_the_magnetic_disk_because_that_match_is_longer() {
    assert_eq!(place(&file("/home/dave/films/x.avi")), ("by name: /home/dave/**.avi".to_owned(), Choice::Place(DISK)));
}

#[test]
fn everything_else_goes_to_the_magnetic_disk() {
    assert_eq!(place(&file("/srv/x.avi")), ("by name: /**".to_owned(), Choice::Place(DISK)));
}

#[test]
fn a_read_only_file_stays_writable_while_it_is_new_so_its_name_decides() {
    let facts = FileFacts { stage: Stage::New, ..read_only("/home/dave/letter.txt") };
    assert_eq!(place(&facts).1, Choice::Place(CRYPT));
}

#[test]
fn read_only_files_and_films_have_a_second_choice() {
    let full_flash = [ROOMY, FULL, ROOMY, ROOMY];
    assert_eq!(choice(&rules(), &read_only("/etc/hosts"), &full_flash, None), Choice::Place(DISK));
    let full_disk = [FULL, ROOMY, ROOMY, ROOMY];
    assert_eq!(choice(&rules(), &file("/home/dave/x.avi"), &full_disk, None), Choice::Place(CRYPT));
}

#[test]
fn daves_secrets_go_nowhere_else_when_the_encrypted_disk_is_full() {
    let full_crypt = [ROOMY, ROOMY, FULL, ROOMY];
    assert_eq!(choice(&rules(), &file("/home/dave/letter.txt"), &full_crypt, None), Choice::NoRoom);
}

#[test]
fn a_file_made_read_only_moves_to_flash_and_back() {
    assert_eq!(choice(&rules(), &read_only("/srv/x"), &[ROOMY; 4], Some(DISK)), Choice::Place(FLASH));
    assert_eq!(choice(&rules(), &file("/srv/x"), &[ROOMY; 4], Some(FLASH)), Choice::Place(DISK));
}

#[test]
fn every_rule_of_the_figure_can_match() {
    assert_eq!(rules().unreachable(), []);
}
