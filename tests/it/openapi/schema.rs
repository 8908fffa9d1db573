//! As much of JSON Schema as the document uses. Stricter in one thing: an object has no members but those described.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::resolved;

/// Whether the value is of the schema.
///
/// # Errors
/// Says where it is not, and why.
pub(crate) fn check(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    at(document, schema, value, "")
}

fn at(document: &Value, schema: &Value, value: &Value, place: &str) -> Result<(), String> {
    let schema = resolved(document, schema);
    let wrong = |what: &str| Err(format!("{place}: {what}: {value}"));
    if let Some(one_of) = schema["oneOf"].as_array() {
        let fits = one_of.iter().any(|schema| at(document, schema, value, place).is_ok());
        return if fits { Ok(()) } else { wrong("fits none") };
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        return wrong("not in the enum");
    }
    let types = match &schema["type"] {
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect::<Vec<_>>(),
    };
    if !types.is_empty() && !types.iter().any(|name| is(name, value)) {
        return wrong(&format!("not of type {types:?}"));
    }
    if let Some(text) = value.as_str()
        && !has_form(schema["format"].as_str().unwrap_or_default(), text)
    {
        return wrong("not of its format");
    }
    for (index, row) in value.as_array().into_iter().flatten().enumerate() {
        at(document, &schema["items"], row, &format!("{place}/{index}"))?;
    }
    value.as_object().map_or(Ok(()), |object| members(document, schema, object, place))
}

fn members(document: &Value, schema: &Value, object: &Map<String, Value>, place: &str) -> Result<(), String> {
    let parts = parts(document, schema);
    if parts.iter().all(|part| part["properties"].is_null()) {
        return Ok(());
    }
    for required in parts.iter().flat_map(|part| part["required"].as_array().into_iter().flatten()) {
        if !required.as_str().is_some_and(|name| object.contains_key(name)) {
            return Err(format!("{place}: {required} is missing"));
        }
    }
    let mut known = BTreeSet::new();
    for (name, schema) in parts.iter().flat_map(|part| part["properties"].as_object().into_iter().flatten()) {
        known.insert(name);
        if let Some(value) = object.get(name) {
            at(document, schema, value, &format!("{place}/{name}"))?;
        }
    }
    match object.keys().find(|name| !known.contains(name)) {
        Some(unknown) => Err(format!("{place}: {unknown} is not described")),
        None => Ok(()),
    }
}

/// An object's descriptions: one, or all of `allOf`.
fn parts<'a>(document: &'a Value, schema: &'a Value) -> Vec<&'a Value> {
    let schema = resolved(document, schema);
    match schema["allOf"].as_array() {
        Some(all) => all.iter().flat_map(|part| parts(document, part)).collect(),
        None => vec![schema],
    }
}

fn is(name: &str, value: &Value) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("type {other}"),
    }
}

fn has_form(format: &str, text: &str) -> bool {
    match format {
        "uuid" => uuid::Uuid::try_parse(text).is_ok_and(|id| id.to_string() == text),
        "date-time" => text.parse::<jiff::Timestamp>().is_ok(),
        "date" => text.parse::<jiff::civil::Date>().is_ok(),
        _ => true,
    }
}
