//! Writes XML elements with any content.

use std::borrow::Cow;
use std::io;

use quick_xml::events::{BytesEnd, BytesStart, Event as Xml};
use quick_xml::writer::Writer;

use crate::output::escape;

/// The writer of elements.
pub(crate) type XmlWriter<'a> = Writer<&'a mut Vec<u8>>;

/// Begins an element.
pub(crate) fn start(xml: &mut XmlWriter<'_>, name: &str, attributes: &[(&str, &str)]) -> io::Result<()> {
    xml.write_event(Xml::Start(element(name, attributes)))
}

/// An element without content.
pub(crate) fn empty(xml: &mut XmlWriter<'_>, name: &str, attributes: &[(&str, &str)]) -> io::Result<()> {
    xml.write_event(Xml::Empty(element(name, attributes)))
}

/// Ends an element.
pub(crate) fn end(xml: &mut XmlWriter<'_>, name: &str) -> io::Result<()> {
    xml.write_event(Xml::End(BytesEnd::new(name)))
}

fn element<'a>(name: &'a str, attributes: &[(&str, &str)]) -> BytesStart<'a> {
    let mut element = BytesStart::new(name);
    attributes.iter().for_each(|(name, value)| attribute(&mut element, name, value));
    element
}

/// Adds an attribute.
pub(crate) fn attribute(element: &mut BytesStart<'_>, name: &str, value: &str) {
    element.push_attribute((name, clean(value).as_ref()));
}

/// Returns text without the characters that XML 1.0 cannot hold even if escaped: control characters
/// (except line ends) and non-characters.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    let allowed = |c: char| c == '\n' || !(c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}'));
    if text.chars().all(allowed) {
        return text.into();
    }
    let lines: Vec<_> = text.split('\n').map(|line| escape(line).into_owned()).collect();
    lines.join("\n").replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}").into()
}
