//! JSON of what an event consists of: objects with known names, text that seldom needs an escape.
//!
//! Spells exactly what `serde_json` spells, which looks at each octet of each name and text by itself;
//! that was a third of what an event cost. Here names are copied, and text that needs no escape is
//! found out eight octets a step. What is rare is left to `serde_json`.

use std::fmt::{self, Display, Write as _};

use serde::ser::{
    Error as _, Impossible, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeTuple,
    Serializer,
};
use serde_json::Error;

/// Appends `value` to `out`.
///
/// # Errors
/// For an enumeration with data, which no event has.
pub(super) fn append(out: &mut Vec<u8>, value: &impl Serialize) -> Result<(), Error> {
    value.serialize(Json { out })
}

/// Where a value is to be appended.
struct Json<'o> {
    out: &'o mut Vec<u8>,
}

/// A list or an object that was begun.
struct Members<'o> {
    out: &'o mut Vec<u8>,
    first: bool,
    end: u8,
}

impl<'o> Members<'o> {
    fn begin(out: &'o mut Vec<u8>, [begin, end]: [u8; 2]) -> Self {
        out.push(begin);
        Self { out, first: true, end }
    }

    fn separate(&mut self) {
        if !std::mem::replace(&mut self.first, false) {
            self.out.push(b',');
        }
    }

    fn element(&mut self, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        self.separate();
        value.serialize(Json { out: self.out })
    }

    fn finish(self) {
        self.out.push(self.end);
    }
}

const OBJECT: [u8; 2] = *b"{}";
const LIST: [u8; 2] = *b"[]";

/// Whether JSON, as `serde_json` spells it, has another form for this octet within text.
const fn is_escaped(octet: u8) -> bool {
    (octet < b' ') | (octet == b'"') | (octet == b'\\')
}

/// Whether one of eight octets is escaped: each test sets the upper bit of an octet where it holds.
/// A borrow may set it for an octet above one that is escaped, too, which changes nothing.
fn is_any_escaped(octets: [u8; 8]) -> bool {
    const fn each(octet: u8) -> u64 {
        u64::from_ne_bytes([octet; 8])
    }
    let word = u64::from_le_bytes(octets);
    let below_space = word.wrapping_sub(each(b' ')) & !word;
    let quote = word ^ each(b'"');
    let backslash = word ^ each(b'\\');
    let is_zero = |word: u64| word.wrapping_sub(each(1)) & !word;
    (below_space | is_zero(quote) | is_zero(backslash)) & each(0x80) != 0
}

/// Whether text has to be spelled otherwise than it stands.
fn needs_escapes(text: &[u8]) -> bool {
    let (words, rest) = text.as_chunks::<8>();
    words.iter().any(|octets| is_any_escaped(*octets)) || rest.iter().any(|octet| is_escaped(*octet))
}

/// Appends text in quotes.
fn append_text(out: &mut Vec<u8>, text: &str) -> Result<(), Error> {
    if needs_escapes(text.as_bytes()) {
        return serde_json::to_writer(out, text);
    }
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
    Ok(())
}

/// Numbers as `serde_json` has them.
macro_rules! numbers {
    ($($function:ident: $number:ty),*) => {
        $(fn $function(self, value: $number) -> Result<(), Error> {
            serde_json::to_writer(self.out, &value)
        })*
    };
}

impl<'o> Serializer for Json<'o> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Members<'o>;
    type SerializeTuple = Members<'o>;
    type SerializeTupleStruct = Impossible<(), Error>;
    type SerializeTupleVariant = Impossible<(), Error>;
    type SerializeMap = Members<'o>;
    type SerializeStruct = Members<'o>;
    type SerializeStructVariant = Impossible<(), Error>;

    numbers!(
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
        serialize_f32: f32, serialize_f64: f64, serialize_char: char
    );

    fn serialize_bool(self, value: bool) -> Result<(), Error> {
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
        Ok(())
    }

    fn serialize_str(self, text: &str) -> Result<(), Error> {
        append_text(self.out, text)
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<(), Error> {
        let Self { out } = self;
        out.push(b'"');
        let start = out.len();
        write!(Text(out), "{value}").map_err(Error::custom)?;
        if needs_escapes(out.get(start..).unwrap_or_default()) {
            out.truncate(start - 1);
            return append_text(out, &value.to_string());
        }
        out.push(b'"');
        Ok(())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), Error> {
        serde_json::to_writer(self.out, value)
    }

    fn serialize_none(self) -> Result<(), Error> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Error> {
        self.out.extend_from_slice(b"null");
        Ok(())
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<(), Error> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
    ) -> Result<(), Error> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        _index: u32,
        _variant: &'static str,
        _value: &T,
    ) -> Result<(), Error> {
        Err(unknown(name))
    }

    fn serialize_seq(self, _length: Option<usize>) -> Result<Members<'o>, Error> {
        Ok(Members::begin(self.out, LIST))
    }

    fn serialize_tuple(self, _length: usize) -> Result<Members<'o>, Error> {
        Ok(Members::begin(self.out, LIST))
    }

    fn serialize_tuple_struct(
        self,
        name: &'static str,
        _length: usize,
    ) -> Result<Self::SerializeTupleStruct, Error> {
        Err(unknown(name))
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        _index: u32,
        _variant: &'static str,
        _length: usize,
    ) -> Result<Self::SerializeTupleVariant, Error> {
        Err(unknown(name))
    }

    fn serialize_map(self, _length: Option<usize>) -> Result<Members<'o>, Error> {
        Ok(Members::begin(self.out, OBJECT))
    }

    fn serialize_struct(self, _name: &'static str, _length: usize) -> Result<Members<'o>, Error> {
        Ok(Members::begin(self.out, OBJECT))
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        _index: u32,
        _variant: &'static str,
        _length: usize,
    ) -> Result<Self::SerializeStructVariant, Error> {
        Err(unknown(name))
    }
}

fn unknown(name: &str) -> Error {
    Error::custom(format_args!("{name} is nothing that an event consists of"))
}

impl SerializeSeq for Members<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.element(value)
    }

    fn end(self) -> Result<(), Error> {
        self.finish();
        Ok(())
    }
}

impl SerializeTuple for Members<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.element(value)
    }

    fn end(self) -> Result<(), Error> {
        self.finish();
        Ok(())
    }
}

/// All names are text.
impl SerializeMap for Members<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, name: &T) -> Result<(), Error> {
        self.element(name)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.out.push(b':');
        value.serialize(Json { out: self.out })
    }

    fn end(self) -> Result<(), Error> {
        self.finish();
        Ok(())
    }
}

/// The names of our own fields hold nothing that would need an escape.
impl SerializeStruct for Members<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
        self.separate();
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        value.serialize(Json { out: self.out })
    }

    fn end(self) -> Result<(), Error> {
        self.finish();
        Ok(())
    }
}

/// Lets text be written into octets.
struct Text<'o>(&'o mut Vec<u8>);

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde::Serialize;

    use super::*;

    /// Something of everything that events consist of.
    #[derive(Debug, Serialize)]
    struct Sample {
        text: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        perhaps: Option<String>,
        nothing: Option<u8>,
        numbers: (u64, u16, bool, f64),
        list: Vec<String>,
        address: std::net::IpAddr,
        #[serde(flatten)]
        flat: Flat,
        map: BTreeMap<String, serde_json::Value>,
    }

    #[derive(Debug, Serialize)]
    struct Flat {
        inner: Vec<u16>,
        letter: char,
    }

    #[derive(Serialize)]
    enum Data {
        One(u8),
    }

    proptest! {
        #[test]
        fn everything_is_spelled_as_serde_json_spells_it(
            text in "(?s).{0,40}",
            perhaps in proptest::option::of("[\"\\\\\\x00-\\x20é\u{7f}]{0,20}"),
            number in any::<u64>(),
            real in -1e9..1e9,
            list in proptest::collection::vec("(?s).{0,10}", 0..3),
            address in any::<std::net::IpAddr>(),
        ) {
            let map = list.iter().map(|name| (name.clone(), serde_json::json!({ "a": [number, null] }))).collect();
            let flat = Flat { inner: vec![1, 2], letter: '"' };
            let numbers = (number, 7, true, real);
            let sample = Sample { text, perhaps, nothing: None, numbers, list, address, flat, map };
            let mut out = Vec::new();
            append(&mut out, &sample).unwrap();
            prop_assert_eq!(String::from_utf8(out).unwrap(), serde_json::to_string(&sample).unwrap());
        }
    }

    #[test]
    fn eight_octets_are_told_like_each_of_them() {
        for octet in 0..=u8::MAX {
            for place in 0..8 {
                let mut octets = [b'~'; 8];
                octets[place] = octet;
                assert_eq!(is_any_escaped(octets), is_escaped(octet), "{octet} at {place}");
            }
        }
    }

    #[test]
    fn what_is_displayed_is_escaped_too() {
        struct Shown(&'static str);
        impl Serialize for Shown {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self.0)
            }
        }
        for text in ["", "plain", "a\"b\\\n\u{1b}"] {
            let mut out = b"before".to_vec();
            append(&mut out, &Shown(text)).unwrap();
            let expected = format!("before{}", serde_json::to_string(text).unwrap());
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn what_no_event_consists_of_is_an_error_and_not_wrong_json() {
        assert!(append(&mut Vec::new(), &Data::One(1)).is_err());
    }
}
