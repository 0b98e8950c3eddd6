//! Values that may be written in more than one way: a number or a text, one or a list.

use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use toml::Spanned;
use umbrella_policy::placement::spec::Comparison;

/// A number or a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scalar {
    Number(i64),
    Text(String),
}

/// A number with or without decimals, `10` or `0.5`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Number(pub(super) f64);

/// One comparison, or several that must all hold (a range).
#[derive(Debug)]
pub(super) enum Values {
    One(Scalar),
    All(Vec<Spanned<Scalar>>),
}

/// One name, or a list of names.
#[derive(Debug)]
pub(super) enum Names {
    One(String),
    List(Vec<Spanned<String>>),
}

/// What an extended attribute may be asked for.
#[derive(Debug)]
pub(super) enum XattrValues {
    There(bool),
    Values(Names),
}

/// Patterns of directories, or how many components those have.
#[derive(Debug)]
pub(super) enum Patterns {
    Depth(i64),
    List(Names),
}

/// What `mode` may be.
#[derive(Debug)]
pub(super) enum ModeValues {
    Values(Values),
    Masked(Mask),
}

/// `{ bits = "0111", is = "!= 0" }`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mask {
    pub(super) bits: Spanned<String>,
    pub(super) is: Spanned<String>,
}

impl Scalar {
    /// The value as text.
    pub(super) fn text(&self) -> String {
        match self {
            Scalar::Number(number) => number.to_string(),
            Scalar::Text(text) => text.clone(),
        }
    }

    /// Splits `">= 10MiB"` into its comparison and the rest; a value alone must be equal.
    pub(super) fn comparison(&self) -> (Comparison, String) {
        match self {
            Scalar::Number(number) => (Comparison::Equal, number.to_string()),
            Scalar::Text(text) => {
                let (is, rest) = comparison(text);
                (is, rest.to_owned())
            }
        }
    }
}

/// Splits `">= 10MiB"` into its comparison and the rest; a value alone must be equal.
pub(super) fn comparison(text: &str) -> (Comparison, &str) {
    const OPERATORS: [(&str, Comparison); 7] = [
        ("<=", Comparison::LessOrEqual),
        ("<", Comparison::Less),
        ("==", Comparison::Equal),
        ("=", Comparison::Equal),
        ("!=", Comparison::NotEqual),
        (">=", Comparison::GreaterOrEqual),
        (">", Comparison::Greater),
    ];
    let text = text.trim();
    OPERATORS
        .iter()
        .find_map(|(sign, is)| text.strip_prefix(sign).map(|rest| (*is, rest.trim())))
        .unwrap_or((Comparison::Equal, text))
}

/// Every value with its place; a single value has the place of the whole.
pub(super) fn all_values(values: &Spanned<Values>) -> Vec<(Range<usize>, &Scalar)> {
    each_value(values.get_ref(), values.span())
}

/// As [`all_values`], for values whose place is kept elsewhere.
pub(super) fn each_value(values: &Values, span: Range<usize>) -> Vec<(Range<usize>, &Scalar)> {
    match values {
        Values::One(value) => vec![(span, value)],
        Values::All(list) => list.iter().map(|value| (value.span(), value.get_ref())).collect(),
    }
}

/// Every name with its place.
pub(super) fn all_names(names: &Spanned<Names>) -> Vec<(Range<usize>, &str)> {
    each_name(names.get_ref(), names.span())
}

/// As [`all_names`], for names whose place is kept elsewhere.
pub(super) fn each_name(names: &Names, span: Range<usize>) -> Vec<(Range<usize>, &str)> {
    match names {
        Names::One(name) => vec![(span, name)],
        Names::List(list) => list.iter().map(|name| (name.span(), name.get_ref().as_str())).collect(),
    }
}

struct ScalarVisitor;

impl Visitor<'_> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text in quotes or a whole number")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Scalar, E> {
        Ok(Scalar::Number(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct NumberVisitor;

impl Visitor<'_> for NumberVisitor {
    type Value = Number;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Number, E> {
        Ok(Number(number as f64))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Number, E> {
        Ok(Number(number))
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberVisitor)
    }
}

struct ValuesVisitor;

impl<'de> Visitor<'de> for ValuesVisitor {
    type Value = Values;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a comparison in quotes (\">= 10\"), a whole number, or a list of them")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Values, E> {
        Ok(Values::One(Scalar::Number(number)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Values, E> {
        Ok(Values::One(Scalar::Text(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Values, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(Values::All)
    }
}

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValuesVisitor)
    }
}

struct NamesVisitor;

impl<'de> Visitor<'de> for NamesVisitor {
    type Value = Names;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name in quotes or a list of names")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Names, E> {
        Ok(Names::One(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Names, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(Names::List)
    }
}

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NamesVisitor)
    }
}

struct XattrVisitor;

impl<'de> Visitor<'de> for XattrVisitor {
    type Value = XattrValues;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value in quotes, a list of values, true or false (with the name in quotes: xattr = { \"user.keep\" = \"ssd\" })")
    }

    fn visit_bool<E: Error>(self, there: bool) -> Result<XattrValues, E> {
        Ok(XattrValues::There(there))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<XattrValues, E> {
        NamesVisitor.visit_str(text).map(XattrValues::Values)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<XattrValues, A::Error> {
        NamesVisitor.visit_seq(list).map(XattrValues::Values)
    }
}

impl<'de> Deserialize<'de> for XattrValues {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(XattrVisitor)
    }
}

struct PatternsVisitor;

impl<'de> Visitor<'de> for PatternsVisitor {
    type Value = Patterns;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a pattern of directories in quotes (\"/TV/*/*\"), a list of them, or a number of components")
    }

    fn visit_i64<E: Error>(self, depth: i64) -> Result<Patterns, E> {
        Ok(Patterns::Depth(depth))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Patterns, E> {
        Ok(Patterns::List(Names::One(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Patterns, A::Error> {
        NamesVisitor.visit_seq(list).map(Patterns::List)
    }
}

impl<'de> Deserialize<'de> for Patterns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PatternsVisitor)
    }
}

struct ModeVisitor;

impl<'de> Visitor<'de> for ModeVisitor {
    type Value = ModeValues;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "permission bits in quotes (\"0644\"), a list of comparisons, or { bits = \"0111\", is = \"!= 0\" }",
        )
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<ModeValues, E> {
        Ok(ModeValues::Values(Values::One(Scalar::Number(number))))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ModeValues, E> {
        Ok(ModeValues::Values(Values::One(Scalar::Text(text.to_owned()))))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<ModeValues, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(|list| ModeValues::Values(Values::All(list)))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ModeValues, A::Error> {
        Mask::deserialize(MapAccessDeserializer::new(map)).map(ModeValues::Masked)
    }
}

impl<'de> Deserialize<'de> for ModeValues {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ModeVisitor)
    }
}
