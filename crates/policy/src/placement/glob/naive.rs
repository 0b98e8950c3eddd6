//! Patterns matched the slow, obvious way: what the compiled ones are compared with.

use proptest::prelude::*;

/// A part of a pattern.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::placement) enum Part {
    Literal(char),
    One,
    Class { negated: bool, from: char, to: char },
    Star,
    Cross,
    Braces(Vec<Vec<Part>>),
}

/// The pattern as a user writes it.
pub(in crate::placement) fn text(parts: &[Part]) -> String {
    let mut text = String::new();
    for part in parts {
        match part {
            Part::Literal(c) if "*?[]{},\\".contains(*c) => text.extend(['\\', *c]),
            Part::Literal(c) => text.push(*c),
            Part::One => text.push('?'),
            Part::Class { negated, from, to } => {
                text.push('[');
                text.push_str(if *negated { "!" } else { "" });
                text.extend([*from, '-', *to, ']']);
            }
            Part::Star => text.push('*'),
            Part::Cross => text.push_str("**"),
            Part::Braces(all) => {
                let all: Vec<String> = all.iter().map(|one| super::naive::text(one)).collect();
                text.extend(["{", &all.join(","), "}"]);
            }
        }
    }
    text
}

/// Literal characters of the alternative that has fewest.
pub(in crate::placement) fn literals(parts: &[Part]) -> usize {
    let slash = Part::Literal('/');
    let count = |flat: &Vec<Part>| {
        let optional = |at: usize| at > 0 && flat[at - 1] == Part::Cross && (at == 1 || flat[at - 2] == slash);
        (0..flat.len()).filter(|at| matches!(flat[*at], Part::Literal(c) if c != '/' || !optional(*at))).count()
    };
    expand(parts).iter().map(count).min().unwrap()
}

/// Whether there is more than literal characters and braces.
pub(in crate::placement) fn wildcards(parts: &[Part]) -> bool {
    let rooted = |flat: &Vec<Part>| flat.first() == Some(&Part::Literal('/'));
    expand(parts).iter().any(|flat| !rooted(flat) || flat.iter().any(|part| !matches!(part, Part::Literal(_))))
}

/// Whether a path matches.
pub(in crate::placement) fn matches(parts: &[Part], path: &[u8]) -> bool {
    expand(parts).into_iter().any(|flat| {
        let mut rooted = Vec::new();
        if flat.first() != Some(&Part::Literal('/')) {
            rooted.extend([Part::Literal('/'), Part::Cross, Part::Literal('/')]);
        }
        rooted.extend(flat);
        matches_from(&rooted, 0, path)
    })
}

fn expand(parts: &[Part]) -> Vec<Vec<Part>> {
    let Some((first, rest)) = parts.split_first() else {
        return vec![Vec::new()];
    };
    let heads = match first {
        Part::Braces(all) => all.iter().flat_map(|one| expand(one)).collect(),
        part => vec![vec![part.clone()]],
    };
    let tails = expand(rest);
    heads.iter().flat_map(|head| tails.iter().map(move |tail| [head.as_slice(), tail].concat())).collect()
}

fn matches_from(parts: &[Part], at: usize, path: &[u8]) -> bool {
    let Some(part) = parts.get(at) else {
        return path.is_empty();
    };
    let one = |fits: &dyn Fn(u8) -> bool| {
        path.split_first().is_some_and(|(byte, rest)| fits(*byte) && matches_from(parts, at + 1, rest))
    };
    match part {
        Part::Literal(c) => one(&|byte| byte == *c as u8),
        Part::One => one(&|byte| byte != b'/'),
        Part::Class { negated, from, to } => {
            one(&|byte| byte != b'/' && (*from as u8..=*to as u8).contains(&byte) != *negated)
        }
        Part::Star => (0..=path.len())
            .take_while(|end| !path[..*end].contains(&b'/'))
            .any(|end| matches_from(parts, at + 1, &path[end..])),
        Part::Cross => {
            let slash = Some(&Part::Literal('/'));
            let no_directory = at > 0 && parts.get(at - 1) == slash && parts.get(at + 1) == slash;
            no_directory && matches_from(parts, at + 2, path)
                || (0..=path.len()).any(|end| matches_from(parts, at + 1, &path[end..]))
        }
        Part::Braces(_) => unreachable!("expanded before"),
    }
}

/// Patterns of a few parts over a small alphabet.
pub(in crate::placement) fn patterns() -> impl Strategy<Value = Vec<Part>> {
    let simple = prop_oneof![
        6 => prop::sample::select(vec!['a', 'b', '.', '/', '/', '*']).prop_map(Part::Literal),
        1 => Just(Part::One),
        1 => (any::<bool>(), Just('a'), prop::sample::select(vec!['a', 'b', 'z'])).prop_map(|(negated, from, to)| Part::Class { negated, from, to }),
        2 => Just(Part::Star),
        2 => Just(Part::Cross),
    ];
    let part = simple.prop_recursive(2, 8, 3, |inner| {
        prop::collection::vec(prop::collection::vec(inner, 0..3), 1..3).prop_map(Part::Braces)
    });
    let rooted = prop_oneof![Just(vec![Part::Literal('/')]), Just(Vec::new())];
    (rooted, prop::collection::vec(part, 1..6)).prop_map(|(mut parts, more)| {
        parts.extend(more);
        separate_stars(parts)
    })
}

/// Two stars in a row would be written `**`, which is something else.
fn separate_stars(parts: Vec<Part>) -> Vec<Part> {
    let mut apart: Vec<Part> = Vec::new();
    for part in parts {
        match part {
            Part::Star if matches!(apart.last(), Some(Part::Star)) => {}
            Part::Cross if matches!(apart.last(), Some(Part::Star)) => {
                apart.pop();
                apart.push(Part::Cross);
            }
            Part::Braces(all) => apart.push(Part::Braces(all.into_iter().map(separate_stars).collect())),
            part => apart.push(part),
        }
    }
    apart
}

/// Paths over the same alphabet, and beyond it.
pub(in crate::placement) fn paths() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop::sample::select(b"aaabbb..z*\xff\n".to_vec());
    let component = prop::collection::vec(byte, 1..4).prop_filter("no name", |name| name != b"." && name != b"..");
    prop::collection::vec(component, 1..4)
        .prop_map(|components| components.iter().flat_map(|component| [b"/".as_slice(), component].concat()).collect())
}
