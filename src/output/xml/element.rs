//! Elements of XML, whatever stands in them.

use std::borrow::Cow;
use std::io;

use quick_xml::events::{BytesEnd, BytesStart, Event as Xml};
use quick_xml::writer::Writer;

use crate::output::escape;

/// Where elements are written.
pub(crate) type Out<'a> = Writer<&'a mut Vec<u8>>;

/// Begins an element.
pub(crate) fn start(xml: &mut Out<'_>, name: &str, attributes: &[(&str, &str)]) -> io::Result<()> {
    xml.write_event(Xml::Start(element(name, attributes)))
}

/// An element without content.
pub(crate) fn empty(xml: &mut Out<'_>, name: &str, attributes: &[(&str, &str)]) -> io::Result<()> {
    xml.write_event(Xml::Empty(element(name, attributes)))
}

/// Ends an element.
pub(crate) fn end(xml: &mut Out<'_>, name: &str) -> io::Result<()> {
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

/// Text without what XML 1.0 cannot hold at all, not even escaped: control characters (but a line end)
/// and non-characters.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    let allowed = |c: char| c == '\n' || !(c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}'));
    if text.chars().all(allowed) {
        return text.into();
    }
    let lines: Vec<_> = text.split('\n').map(|line| escape(line).into_owned()).collect();
    lines.join("\n").replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}").into()
}
