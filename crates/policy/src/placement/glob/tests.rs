use proptest::prelude::*;

use super::{Glob, GlobError, naive};

fn matches(pattern: &str, path: &str) -> bool {
    Glob::new(pattern).unwrap().matches(path.as_bytes())
}

fn check(pattern: &str, hits: &[&str], misses: &[&str]) {
    for path in hits {
        assert!(matches(pattern, path), "{pattern} should match {path}");
    }
    for path in misses {
        assert!(!matches(pattern, path), "{pattern} should not match {path}");
    }
}

#[test]
fn a_literal_matches_the_whole_path_and_nothing_else() {
    check("/a/b.c", &["/a/b.c"], &["/a/b.cc", "/a/bxc", "/x/a/b.c", "/A/b.c", "/a/b"]);
}

#[test]
fn a_star_stays_inside_a_directory() {
    check("/home/dave/*", &["/home/dave/a", "/home/dave/.b"], &["/home/dave/x/y", "/home/davex", "/home/dave"]);
    check("/home/*/x", &["/home/dave/x"], &["/home/dave/y/x", "/home/x"]);
    check("/a*c", &["/ac", "/abc"], &["/a/c", "/ab"]);
}

#[test]
fn two_stars_cross_directories_anywhere() {
    check("/home/dave/**", &["/home/dave/a", "/home/dave/x/y/z"], &["/home/dav/a", "/home/daves"]);
    check("/home/dave/**.avi", &["/home/dave/a.avi", "/home/dave/x/y.avi"], &["/home/dave/a.mpg", "/home/eve/a.avi"]);
    check("/a**b/c", &["/ab/c", "/a/x/b/c", "/axb/c"], &["/ab/x/c"]);
}

#[test]
fn two_stars_between_slashes_may_be_no_directory() {
    check("/a/**/b", &["/a/b", "/a/x/b", "/a/x/y/b"], &["/ab", "/a/xb", "/a/b/c"]);
    check("/**/b", &["/b", "/x/b"], &["/xb"]);
    check("/a/**/*/b", &["/a/x/b", "/a/x/y/b"], &["/a/b"]);
}

#[test]
fn a_pattern_without_a_leading_slash_matches_at_any_depth() {
    check("*.avi", &["/x.avi", "/a/b/x.avi", "/a/.avi"], &["/x.avi/y", "/x.AVI"]);
    check("core", &["/core", "/a/core"], &["/score", "/core/x"]);
    check("a/b*", &["/a/b", "/x/a/bc"], &["/xa/b", "/a/x/b"]);
    check("**/x", &["/x", "/a/b/x"], &["/ax"]);
    check("tmp/**", &["/tmp/x", "/a/tmp/x/y"], &["/tmp", "/atmp/x"]);
}

#[test]
fn a_question_mark_is_one_byte_but_no_slash() {
    check("/a?c", &["/abc", "/a.c"], &["/ac", "/a/c", "/abbc"]);
    assert!(Glob::new("/?").unwrap().matches(b"/\xff"));
}

#[test]
fn a_class_is_one_byte_of_a_set() {
    check("/[abx-z]", &["/a", "/y"], &["/c", "/ab", "//"]);
    check("/[!a-c]", &["/d", "/-"], &["/a", "//"]);
    check("/[^a]", &["/b"], &["/a"]);
    check("/[]-]", &["/]", "/-"], &["/a"]);
    check("/[!]]", &["/a"], &["/]"]);
    check(r"/[\]\\]", &["/]", r"/\"], &["/a"]);
    check("/[.-0]x", &["/.x", "/0x"], &["//x"]);
}

#[test]
fn braces_are_either() {
    check("*.{jpg,gif}", &["/a.jpg", "/x/a.gif"], &["/a.png", "/a.{jpg,gif}"]);
    check("/{a,b{c,d}}/x", &["/a/x", "/bc/x", "/bd/x"], &["/b/x"]);
    check("/a{,b}", &["/a", "/ab"], &["/abb"]);
    check("{/a,b}/c", &["/a/c", "/b/c", "/x/b/c"], &["/x/a/c"]);
}

#[test]
fn a_backslash_takes_the_next_character_as_it_is() {
    check(r"/\*\?\[\{\\", &[r"/*?[{\"], &["/abcd"]);
    check(r"/{a\,b,c}", &["/a,b", "/c"], &["/a"]);
}

#[test]
fn names_need_not_be_utf8_and_characters_may_be_wide() {
    assert!(Glob::new("/*.avi").unwrap().matches(b"/\xff\xfe\n.avi"));
    assert!(Glob::new("/a?*[!x]b").unwrap().matches(b"/a\xff\n\xfeb"));
    check("/fé?l", &["/féol"], &["/feol"]);
}

#[test]
fn literal_characters_are_counted_in_the_shortest_alternative() {
    for (pattern, literals) in [
        ("/home/dave/**", 11),
        ("/home/dave/**.avi", 15),
        ("*.avi", 4),
        ("*.{jpeg,gi}", 3),
        ("/[abc]?", 1),
        ("/é", 2),
        ("/**/*", 1),
        ("**", 0),
        ("/a/**/b/**", 5),
        (r"/\*", 2),
    ] {
        assert_eq!(Glob::new(pattern).unwrap().literals, literals, "{pattern}");
    }
}

#[test]
fn what_cannot_match_or_be_read_is_refused_with_its_reason() {
    let cases = [
        ("", GlobError::Empty),
        ("/a\0", GlobError::Nul),
        ("/a/", GlobError::TrailingSlash),
        ("/", GlobError::TrailingSlash),
        ("/a/**/", GlobError::TrailingSlash),
        ("/a//b", GlobError::EmptyComponent),
        ("/a/**//b", GlobError::EmptyComponent),
        ("/a\\", GlobError::DanglingEscape),
        ("/[a", GlobError::UnclosedClass),
        ("/[]", GlobError::UnclosedClass),
        ("/[a-", GlobError::UnclosedClass),
        ("/[z-a]", GlobError::BadRange { from: 'z', to: 'a' }),
        ("/[é]", GlobError::WideCharacterInClass { character: 'é' }),
        ("/{a,b", GlobError::UnbalancedBraces),
        ("/a}", GlobError::UnbalancedBraces),
    ];
    for (pattern, error) in cases {
        assert_eq!(Glob::new(pattern).unwrap_err(), error, "{pattern:?}");
    }
}

#[test]
fn hostile_patterns_are_refused_and_not_expanded() {
    let cases = [
        ("a".repeat(5000), GlobError::TooLong),
        ("{a,b}".repeat(800), GlobError::TooManyAlternatives),
        (format!("{{{}}}", "a,".repeat(2000)), GlobError::TooManyAlternatives),
        (format!("{}{{{}}}", "a".repeat(3000), "b,".repeat(200)), GlobError::TooManyAlternatives),
        (format!("{}{}", "{".repeat(2000), "}".repeat(2000)), GlobError::NestedTooDeep),
    ];
    for (pattern, error) in cases {
        assert_eq!(Glob::new(&pattern).unwrap_err(), error);
    }
}

#[test]
fn many_wildcards_take_linear_time() {
    let started = std::time::Instant::now();
    for pattern in [format!("/{}b", "a*".repeat(1000)), format!("/{}b", "?*[!x]**".repeat(400))] {
        if let Ok(glob) = Glob::new(&pattern) {
            assert!(!glob.matches(format!("/{}", "a".repeat(4000)).as_bytes()));
        }
    }
    assert!(started.elapsed().as_secs() < 20, "took {:?}", started.elapsed());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn compiled_patterns_match_what_naive_ones_do(pattern in naive::patterns(), paths in prop::collection::vec(naive::paths(), 12)) {
        match Glob::new(&naive::text(&pattern)) {
            Err(error) => prop_assert!(matches!(error, GlobError::TrailingSlash | GlobError::EmptyComponent | GlobError::Empty | GlobError::TooManyAlternatives), "{}", error),
            Ok(glob) => {
                prop_assert_eq!(glob.literals, naive::literals(&pattern));
                for path in paths {
                    prop_assert_eq!(glob.matches(&path), naive::matches(&pattern, &path), "{} on {}", naive::text(&pattern), path.escape_ascii());
                }
            }
        }
    }

    #[test]
    fn any_text_is_a_pattern_or_an_error(pattern in r"[/*?\[\]{},\\!^a-c-]{0,40}|\PC{0,20}", path in prop::collection::vec(any::<u8>(), 0..20)) {
        if let Ok(glob) = Glob::new(&pattern) {
            glob.matches(&path);
        }
    }

    #[test]
    fn a_pattern_covers_another_only_if_it_matches_all_its_paths(a in naive::patterns(), b in naive::patterns(), paths in prop::collection::vec(naive::paths(), 8)) {
        if let (Ok(one), Ok(other)) = (Glob::new(&naive::text(&a)), Glob::new(&naive::text(&b))) {
            for path in paths {
                prop_assert!(!one.covers(&other) || !other.matches(&path) || one.matches(&path));
                prop_assert!(!one.is_everything() || one.matches(&path));
            }
        }
    }
}
