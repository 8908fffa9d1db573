//! Schemas as the derives leave them, made as exact as the answers are.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use utoipa::openapi::schema::ArrayItems;
use utoipa::openapi::{Ref, RefOr, Schema};

use crate::domain::problem::Code;

/// A document's schemas, by name.
pub type Schemas = BTreeMap<String, RefOr<Schema>>;

/// Answers that leave out what they have not. All others have every member, with null for what there is not.
const SPARSE: [&str; 4] = ["CloudEvent", "CommandFate", "Problem", "WorkerState"];

/// Completes the schemas of a document whose operations answer with these codes.
pub fn complete(schemas: &mut Schemas, codes: &BTreeSet<Code>) {
    let names: BTreeSet<String> = schemas.keys().cloned().collect();
    for (name, schema) in schemas.iter_mut() {
        let RefOr::T(schema) = schema else { continue };
        if let Some(row) = name.strip_prefix("Page_").filter(|row| names.contains(*row)) {
            rows(schema, row);
        }
        if !SPARSE.contains(&name.as_str()) {
            members(schema);
        }
    }
    if let Some(RefOr::T(Schema::Object(problem))) = schemas.get_mut("Problem")
        && let Some(RefOr::T(Schema::Object(code))) = problem.properties.get_mut("code")
    {
        code.enum_values = Some(codes.iter().map(|code| Value::from(code.as_str())).collect());
    }
}

/// A page's rows by their name: the derive writes them out for every page anew.
fn rows(page: &mut Schema, row: &str) {
    if let Schema::Object(page) = page
        && let Some(RefOr::T(Schema::Array(items))) = page.properties.get_mut("items")
    {
        items.items = ArrayItems::RefOrSchema(Box::new(Ref::from_schema_name(row).into()));
    }
}

/// Which members an answer has. Requests are told by their strictness: they take no members but those they name.
fn members(schema: &mut Schema) {
    match schema {
        Schema::Object(object) if object.additional_properties.is_none() => {
            object.required = object.properties.keys().cloned().collect();
        }
        Schema::AllOf(all) => {
            for part in &mut all.items {
                if let RefOr::T(part) = part {
                    members(part);
                }
            }
        }
        _ => {}
    }
}
