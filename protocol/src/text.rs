//! Values that are written as a text: ids, addresses, points in time.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;

use serde::Deserializer;
use serde::de::{Error, Visitor};

/// Reads a value from its text, where the text lies: there are a dozen in every frame, and none is kept.
///
/// # Errors
///
/// As the deserializer says if there is no text, and as the value's type says if the text is none of its.
pub(crate) fn parse<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr,
    T::Err: Display,
    D: Deserializer<'de>,
{
    deserializer.deserialize_string(OfText(PhantomData))
}

struct OfText<T>(PhantomData<T>);

impl<T> Visitor<'_> for OfText<T>
where
    T: FromStr,
    T::Err: Display,
{
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}
