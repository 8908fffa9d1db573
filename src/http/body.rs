//! JSON bodies, read strictly: unknown and duplicate members, trailing text, lists in the place of objects and anything that
//! is not UTF-8 are refused.

use serde::de::value::Error as NoValue;
use serde::de::{DeserializeOwned, Deserializer, Error, Visitor};
use serde::forward_to_deserialize_any;

use crate::domain::problem::Problem;

/// Reads a body; an empty one reads like `{}`.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let bytes = if bytes.is_empty() { b"{}" } else { bytes };
    // serde takes a list for an object, by position: what a body means would hang on the order of our fields.
    if !objects_are_objects(bytes, is_list::<T>()) {
        return Err(Problem::malformed("", "An object is wanted where there is a list."));
    }
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let body = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string().replace(['.', '['], "/").replace(']', "");
        let members = path.split('/').filter(|member| !member.is_empty() && *member != "?");
        let pointer = members.fold(String::new(), |pointer, member| pointer + "/" + member);
        Problem::malformed(&pointer, clean(&error.into_inner().to_string()))
    })?;
    reader.end().map_err(|error| Problem::malformed("", clean(&error.to_string())))?;
    Ok(body)
}

/// serde's messages quote the input; a long one is cut, and where in the text it was says nothing to a caller.
fn clean(message: &str) -> String {
    let message = message.split(" at line ").next().unwrap_or_default();
    message.chars().filter(|character| !character.is_control()).take(200).collect()
}

/// Whether every list stands where a list may: as the body if that is one, or as a member's value that is no member of a
/// list itself. Which members take lists, serde knows; the only objects among members, `external`, is named here.
fn objects_are_objects(bytes: &[u8], body_is_list: bool) -> bool {
    let (mut in_text, mut escaped, mut depth) = (false, false, 0_usize);
    // The last sign that was not space, and the last member's name.
    let (mut before, mut text, mut name) = (None, Vec::new(), Vec::new());
    let mut inside = Vec::new();
    for &byte in bytes {
        if in_text {
            if byte == b'"' && !escaped {
                in_text = false;
            } else if depth == 1 {
                text.push(byte);
            }
            escaped = byte == b'\\' && !escaped;
            continue;
        }
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => continue,
            b'"' => {
                in_text = true;
                text.clear();
            }
            b':' => name.clone_from(&text),
            b'[' => {
                let in_list = inside.last() == Some(&b'[');
                let as_body = before.is_none();
                if in_list || (as_body && !body_is_list) || (before == Some(b':') && name == b"external") {
                    return false;
                }
                inside.push(byte);
                depth += 1;
            }
            b'{' => {
                inside.push(byte);
                depth += 1;
            }
            b']' | b'}' => {
                inside.pop();
                depth = depth.saturating_sub(1);
            }
            _ => {}
        }
        before = Some(byte);
    }
    true
}

/// Whether a type is read from a list.
fn is_list<T: DeserializeOwned>() -> bool {
    T::deserialize(Probe).is_err_and(|error| error.to_string() == LIST)
}

/// What [`Probe`] says of a list.
const LIST: &str = "a list";

/// Reads nothing, and says whether a list was asked for.
struct Probe;

impl<'de> Deserializer<'de> for Probe {
    type Error = NoValue;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, NoValue> {
        Err(NoValue::custom("something else"))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, _: V) -> Result<V::Value, NoValue> {
        Err(NoValue::custom(LIST))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct tuple tuple_struct map struct enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        system: String,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        external: Option<Inner>,
        names: Option<Vec<String>>,
    }

    #[test]
    fn a_list_is_no_object() {
        assert!(parse::<Outer>(br#"{"external":{"system":"[a]"},"names":["\"[", "b"]}"#).is_ok());
        assert!(parse::<Vec<Inner>>(br#"[{"system":"a"}]"#).is_ok());
        for body in ["[]", r#" [{"system":"a"},null]"#, r#"{"external":["a"]}"#, r#"{"external" : [ "a" ]}"#] {
            assert!(parse::<Outer>(body.as_bytes()).is_err(), "{body}");
        }
        assert!(parse::<Vec<Inner>>(b"[[\"a\"]]").is_err());
    }

    #[test]
    fn a_pointer_leads_to_the_fault() {
        let pointer = |fault: Problem| fault.extra["errors"][0]["pointer"].clone();
        assert_eq!(parse::<Vec<Inner>>(br#"[{"system":1}]"#).map_err(pointer), Err("/0/system".into()));
        assert_eq!(parse::<Outer>(br#"{"external":{"system":1}}"#).map_err(pointer), Err("/external/system".into()));
        assert_eq!(parse::<Outer>(b"{/").map_err(pointer), Err("".into()));
    }
}
