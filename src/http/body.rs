//! JSON bodies, read strictly: unknown and duplicate members, trailing text, lists in the place of objects and anything that
//! is not UTF-8 are refused.

use serde::de::DeserializeOwned;

use self::objects::Objects;
use crate::domain::problem::Problem;

mod objects;

/// Reads a body; an empty one reads like `{}`.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let bytes = if bytes.is_empty() { b"{}" } else { bytes };
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let body = serde_path_to_error::deserialize(Objects(&mut reader)).map_err(|error| {
        let path = error.path().to_string().replace(['.', '['], "/").replace(']', "");
        let members = path.split('/').filter(|member| !member.is_empty() && *member != "?");
        let pointer = members.fold(String::new(), |pointer, member| pointer + "/" + member);
        Problem::malformed(&pointer, clean(&error.into_inner().to_string()))
    })?;
    reader.end().map_err(|error| Problem::malformed("", clean(&error.to_string())))?;
    Ok(body)
}

/// serde's messages quote the input; a long one is cut, and where in the text it was says nothing to a caller.
pub(super) fn clean(message: &str) -> String {
    let message = message.split(" at line ").next().unwrap_or_default();
    message.chars().filter(|character| !character.is_control()).take(200).collect()
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
        let pointer = |body: &str| parse::<Outer>(body.as_bytes()).map_err(|fault| fault.extra["errors"][0].clone());
        let detail = "an object is wanted where there is a list";
        let expected = serde_json::json!({"pointer": "/external", "detail": detail});
        assert_eq!(pointer(r#"{"external":["a"]}"#), Err(expected));
    }

    #[test]
    fn a_pointer_leads_to_the_fault() {
        let pointer = |fault: Problem| fault.extra["errors"][0]["pointer"].clone();
        assert_eq!(parse::<Vec<Inner>>(br#"[{"system":1}]"#).map_err(pointer), Err("/0/system".into()));
        assert_eq!(parse::<Outer>(br#"{"external":{"system":1}}"#).map_err(pointer), Err("/external/system".into()));
        assert_eq!(parse::<Outer>(b"{/").map_err(pointer), Err("".into()));
    }
}
