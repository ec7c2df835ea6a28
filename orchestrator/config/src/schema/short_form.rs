//! JSON Schema of the short form.
//!
//! Its resources have the fields of their kinds, and shorter forms of some fields. The schema does
//! not contain required fields, because they depend on the forms used.

use serde_json::{Map, Value as Json, json};

use super::{Definitions, describe, insert, or_nothing};
use crate::frame::API_VERSION;
use crate::kind::{LISTS, ResourceKind};
use crate::kinds;
use crate::shape::{FieldType, Shape};
use crate::short_form::SHORT_FORM;

pub(super) fn document(definitions: &mut Definitions) -> Json {
    let mut schema = definitions.object(&SHORT_FORM);
    let lists: Vec<(&str, Json)> = LISTS
        .into_iter()
        .map(|(name, kind)| (name, resources(kind, definitions)))
        .collect();
    let policy = properties(ResourceKind::SWARM, definitions).remove("policy");
    let package = package(definitions);
    // A document has more fields than `apiVersion`.
    insert(&mut schema, "minProperties", 2.into());
    if let Some(fields) = schema.get_mut("properties") {
        describe(fields, "apiVersion", &json!({ "const": API_VERSION }));
        describe(fields, "package", &or_nothing(&package));
        describe(
            fields,
            "entryAgent",
            &json!({ "type": ["string", "object", "null"] }),
        );
        describe(
            fields,
            "instanceKey",
            &json!({ "type": ["string", "null"] }),
        );
        describe(fields, "policy", &policy.unwrap_or_default());
        for (name, resources) in &lists {
            describe(fields, name, resources);
        }
    }
    schema
}

fn package(definitions: &mut Definitions) -> Json {
    let mut fields = properties(ResourceKind::PACKAGE, definitions);
    fields.insert("name".to_owned(), json!({ "type": "string" }));
    json!({
        "anyOf": [
            { "type": "string" },
            { "type": "object", "properties": fields, "required": ["name"],
              "additionalProperties": false },
        ],
    })
}

/// Resources of a kind, by name.
fn resources(kind: ResourceKind, definitions: &mut Definitions) -> Json {
    let resource = definitions.named(&format!("Short{kind}"), |definitions| {
        let mut fields = properties(kind, definitions);
        for (name, shorter) in shorter_forms(kind, definitions) {
            let forms = match fields.remove(name) {
                Some(long) => json!({ "anyOf": [shorter, long] }),
                None => shorter,
            };
            fields.insert(name.to_owned(), forms);
        }
        json!({ "type": "object", "properties": fields, "additionalProperties": false })
    });
    let resources = json!({
        "type": "object",
        "additionalProperties": or_nothing(&resource),
    });
    or_nothing(&resources)
}

/// The fields of a kind's `spec`, in any of its shapes.
fn properties(kind: ResourceKind, definitions: &mut Definitions) -> Map<String, Json> {
    let shapes: Vec<&'static Shape> = match kinds::spec_of(kind) {
        FieldType::Mapping(shape) => vec![shape],
        FieldType::Choice(choice) => {
            let cases = choice.cases.iter().map(|(_, shape)| *shape);
            cases.chain([choice.otherwise]).collect()
        }
        _ => Vec::new(),
    };
    let mut properties = Map::new();
    for field in shapes.into_iter().flat_map(|shape| shape.fields) {
        let schema = or_nothing(&definitions.field(field));
        let there = properties.remove(field.name);
        let schema = match there {
            Some(other) if other != schema => json!({ "anyOf": [other, schema] }),
            Some(_) | None => schema,
        };
        properties.insert(field.name.to_owned(), schema);
    }
    properties
}

/// Shorter forms of fields, as `short_form` expands them.
fn shorter_forms(kind: ResourceKind, definitions: &mut Definitions) -> Vec<(&'static str, Json)> {
    let listed = || {
        json!({
            "type": ["array", "null"],
            "items": {
                "anyOf": [
                    { "type": "string" },
                    { "type": "object", "minProperties": 1, "maxProperties": 1 },
                    { "type": "object", "anyOf": [{ "required": ["ref"] }, { "required": ["name"] }] },
                ],
            },
        })
    };
    let long = definitions.content(FieldType::Secret);
    let value = || {
        json!({
            "anyOf": [
                long,
                { "type": "string", "pattern": r"^\$[A-Za-z_][A-Za-z0-9_]*$" },
                { "type": "object", "properties": { "secret": { "type": "string" } },
                  "required": ["secret"], "additionalProperties": false },
            ],
        })
    };
    match kind {
        ResourceKind::MODEL => vec![("apiKey", value())],
        ResourceKind::AGENT => vec![
            ("model", json!({ "type": ["string", "object", "null"] })),
            ("prompt", json!({ "type": "string" })),
            ("tools", listed()),
            ("extensions", listed()),
        ],
        ResourceKind::CONNECTION => vec![
            ("connector", json!({ "type": ["string", "object", "null"] })),
            ("rules", rules()),
            (
                "secrets",
                json!({ "type": "object", "additionalProperties": value() }),
            ),
        ],
        _ => Vec::new(),
    }
}

/// Rules with conditions and route beside each other, or as in a Connection.
fn rules() -> Json {
    let text = || json!({ "type": ["string", "null"] });
    json!({
        "type": ["array", "null"],
        "items": {
            "type": "object",
            "properties": {
                "event": text(),
                "properties": { "type": ["object", "null"] },
                "agent": { "type": ["string", "object", "null"] },
                "instanceKey": text(),
                "instanceKeyProperty": text(),
                "instanceKeyPrefix": text(),
                "match": {},
                "route": {},
            },
            "additionalProperties": false,
        },
    })
}
