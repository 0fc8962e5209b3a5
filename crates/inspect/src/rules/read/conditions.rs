//! Reads `match.FIELD` and `unless.FIELD`.

use std::ops::Range;

use serde_spanned::Spanned;
use toml::de::DeValue;

use super::super::field::{BannerField, BannerSender, FieldFault};
use super::super::pattern::{PatternId, PatternTable};
use super::super::rule::{FieldTest, RuleCondition};
use super::DeclaredLists;
use super::toml_value::{SpannedText, ValueReader};
use crate::event::Protocol;

/// The rule's protocol and sender, which decide about fields, and the sets to which patterns and
/// lists are added.
pub(super) struct ConditionContext<'a> {
    pub(super) protocol: Option<Protocol>,
    pub(super) sender: Option<BannerSender>,
    pub(super) lists: &'a mut DeclaredLists,
    pub(super) patterns: &'a mut PatternTable,
}

/// Reads the table of `key`, which is `match` or `unless`.
pub(super) fn read(
    reader: &mut ValueReader<'_>,
    key: &str,
    value: &Spanned<DeValue<'_>>,
    context: &mut ConditionContext<'_>,
) -> Vec<RuleCondition> {
    let mut conditions = Vec::new();
    for (name, span, value) in reader.table(key, value).unwrap_or_default() {
        // `match.header.server` means the same as `match."header.server"`.
        if let ("header", DeValue::Table(_)) = (name, value.get_ref()) {
            for (header, span, value) in reader.table(name, value).unwrap_or_default() {
                let name = format!("header.{header}");
                conditions.extend(condition(reader, &name, &span, value, context));
            }
            continue;
        }
        conditions.extend(condition(reader, name, &span, value, context));
    }
    conditions
}

fn condition(
    reader: &mut ValueReader<'_>,
    name: &str,
    span: &Range<usize>,
    value: &Spanned<DeValue<'_>>,
    context: &mut ConditionContext<'_>,
) -> Option<RuleCondition> {
    let field = match BannerField::parse(name, context.protocol, context.sender) {
        Ok(field) => Some(field),
        Err(fault) => {
            report_field(reader, name, span, &fault, context);
            None
        }
    };
    // The value is read even if the field is unknown, so that its faults are reported, too.
    let test = test(reader, name, value, context)?;
    Some(RuleCondition { field: field?, test })
}

fn report_field(
    reader: &mut ValueReader<'_>,
    name: &str,
    span: &Range<usize>,
    fault: &FieldFault,
    context: &ConditionContext<'_>,
) {
    match fault {
        FieldFault::Unknown { nearest: Some(nearest) } => {
            let help = format!("did you mean `{nearest}`?");
            reader.error_with_help(span, format!("unknown field `{name}`"), help);
        }
        FieldFault::Unknown { nearest: None } => {
            let known = BannerField::names(context.protocol, context.sender).join(", ");
            reader.error_with_help(span, format!("unknown field `{name}`"), format!("known fields: {known}"));
        }
        FieldFault::Protocol(protocol) => {
            let message = format!("`{name}` is a field of {} rules", protocol.name());
            let help =
                format!("fields here: {}", BannerField::names(context.protocol, context.sender).join(", "));
            reader.error_with_help(span, message, help);
        }
        FieldFault::Side(side) => {
            let message = format!("only a {} sends `{name}`", side.name());
            reader.error_with_help(span, message, format!("write `from = \"{}\"`", side.name()));
        }
        FieldFault::HeaderName => reader.error(span, "not the name of a header field"),
    }
}

/// Reads a pattern, a list of alternative patterns, or `@name` of a list of values.
fn test(
    reader: &mut ValueReader<'_>,
    name: &str,
    value: &Spanned<DeValue<'_>>,
    context: &mut ConditionContext<'_>,
) -> Option<FieldTest> {
    if let DeValue::String(text) = value.get_ref()
        && let Some(list) = text.strip_prefix('@')
    {
        return context.lists.values(reader, list, &value.span()).map(FieldTest::Values);
    }
    let texts = reader.texts(name, value);
    if let (true, DeValue::Array(_)) = (texts.is_empty(), value.get_ref()) {
        reader.error(&value.span(), format!("`{name}` has no pattern"));
    }
    let ids: Vec<PatternId> =
        texts.iter().filter_map(|text| pattern(reader, text, context.patterns)).collect();
    (!ids.is_empty()).then_some(FieldTest::Patterns(ids))
}

fn pattern(
    reader: &mut ValueReader<'_>,
    text: &SpannedText,
    patterns: &mut PatternTable,
) -> Option<PatternId> {
    if text.value.is_empty() {
        let help = "write `.` for any value that is not empty, `^$` for an empty one";
        reader.error_with_help(&text.span, "an empty pattern matches every value", help);
        return None;
    }
    match patterns.intern(&text.value) {
        Ok(id) => Some(id),
        Err(fault) => {
            let span = fault.span.map_or_else(|| text.span.clone(), |inner| reader.within(text, &inner));
            reader.error(&span, fault.message);
            None
        }
    }
}
