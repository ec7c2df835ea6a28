//! JSON Schemas of all configuration files, derived from the shapes that the loader checks against.
//!
//! The schemas use draft 7, which editors support best. They accept every document that the loader
//! accepts. Problems that a schema cannot express, such as broken references or invalid patterns,
//! are only detected by the loader.

mod builtins;
mod connectors;
mod short_form;

use goondan_protocol::field;
use serde_json::{Map, Value as Json, json};

use crate::frame::{API_VERSION, FRAME};
use crate::kind::ResourceKind;
use crate::kinds;
use crate::kinds::script::SCRIPT;
use crate::reference::REFERENCE;
use crate::shape::value::{TAKEN, VALUE};
use crate::shape::{Case, Field, FieldConstraint, FieldType, Shape, ShapeChoice};
use crate::short_form::SHORT_FORM;

const DIALECT: &str = "http://json-schema.org/draft-07/schema#";

/// Name of the separate schema for scripts of the scripted model.
const SCRIPT_NAME: &str = "Script";

/// Pattern of an amount of money in string form.
const AMOUNT: &str = r"^[0-9]+(\.[0-9]{1,6})?$";

/// Names of all schemas: each kind, the short form, and script files of the scripted model.
pub fn schema_names() -> impl Iterator<Item = &'static str> {
    let others = [SHORT_FORM.name, SCRIPT_NAME];
    kinds::all().map(ResourceKind::name).chain(others)
}

/// The JSON Schema of any document, of the kind `name`, of the short form (`ShortForm`), or of a
/// script file (`Script`). `None` if the name is unknown.
#[must_use]
pub fn schema(name: Option<&str>) -> Option<Json> {
    let mut definitions = Definitions::default();
    let root = match name {
        None => any_document(&mut definitions),
        Some(SCRIPT_NAME) => definitions.object(&SCRIPT),
        Some(name) if name == SHORT_FORM.name => short_form::document(&mut definitions),
        Some(name) => {
            let kind = kinds::all().find(|kind| kind.name() == name)?;
            document(kind, &mut definitions)
        }
    };
    let mut schema = Map::new();
    schema.insert("$schema".into(), DIALECT.into());
    schema.insert(
        "title".into(),
        format!("goondan {}", name.unwrap_or("resource")).into(),
    );
    if let Json::Object(root) = root {
        schema.extend(root);
    }
    let mut definitions: Vec<(String, Json)> = definitions.0.into_iter().collect();
    definitions.sort_by(|(left, _), (right, _)| left.cmp(right));
    if !definitions.is_empty() {
        let definitions: Map<String, Json> = definitions.into_iter().collect();
        schema.insert("definitions".into(), Json::Object(definitions));
    }
    Some(Json::Object(schema))
}

/// Schema of any document: a resource or, without the fields of one, the short form.
fn any_document(definitions: &mut Definitions) -> Json {
    let of_resource = ["kind", "metadata", "spec"].map(|name| json!({ "required": [name] }));
    json!({
        "if": { "type": "object", "anyOf": of_resource },
        "then": any_resource(definitions),
        "else": short_form::document(definitions),
    })
}

/// Schema of a resource of any kind: the frame, and the `spec` by kind.
fn any_resource(definitions: &mut Definitions) -> Json {
    let kinds: Vec<&str> = kinds::all().map(ResourceKind::name).collect();
    let mut schema = frame(&json!({ "enum": kinds }), definitions);
    let cases: Vec<Json> = kinds::all()
        .map(|kind| {
            json!({
                "if": { "properties": { "kind": { "const": kind.name() } }, "required": ["kind"] },
                "then": spec(kind, definitions),
            })
        })
        .collect();
    insert(&mut schema, "allOf", cases.into());
    schema
}

fn document(kind: ResourceKind, definitions: &mut Definitions) -> Json {
    let mut schema = frame(&json!({ "const": kind.name() }), definitions);
    insert(&mut schema, "allOf", json!([spec(kind, definitions)]));
    schema
}

fn frame(kind: &Json, definitions: &mut Definitions) -> Json {
    let mut schema = definitions.object(&FRAME);
    if let Some(properties) = schema.get_mut("properties") {
        describe(properties, "apiVersion", &json!({ "const": API_VERSION }));
        describe(properties, "kind", kind);
    }
    schema
}

/// Adds keywords to an existing property.
fn describe(properties: &mut Json, name: &str, more: &Json) {
    if let (Some(Json::Object(property)), Json::Object(more)) = (properties.get_mut(name), more) {
        property.extend(more.clone());
    }
}

fn spec(kind: ResourceKind, definitions: &mut Definitions) -> Json {
    let content = definitions.content(kinds::spec_of(kind));
    match kind {
        ResourceKind::PACKAGE => json!({ "properties": { "spec": or_nothing(&content) } }),
        ResourceKind::CONNECTION => with_cases(content, connectors::cases(definitions)),
        ResourceKind::TOOL => with_cases(content, builtins::of_tools(definitions)),
        ResourceKind::EXTENSION => with_cases(content, builtins::of_extensions(definitions)),
        _ => json!({ "properties": { "spec": content }, "required": ["spec"] }),
    }
}

/// Schema of a `spec` with conditional parts.
fn with_cases(content: Json, cases: Vec<Json>) -> Json {
    let parts: Vec<Json> = std::iter::once(content).chain(cases).collect();
    json!({ "properties": { "spec": { "allOf": parts } }, "required": ["spec"] })
}

fn insert(schema: &mut Json, name: &str, value: Json) {
    if let Json::Object(fields) = schema {
        fields.insert(name.to_owned(), value);
    }
}

/// Adds a field's default; returns its description if it is not a single value.
fn with_default<C>(schema: &mut Json, field: &field::Field<C>) -> Option<&'static str> {
    match field.default?.value() {
        Ok(value) => insert(schema, "default", value),
        Err(meaning) => return Some(meaning),
    }
    None
}

fn required<C>(fields: &'static [field::Field<C>]) -> Vec<&'static str> {
    let required = fields.iter().filter(|field| field.is_required);
    required.map(|field| field.name).collect()
}

/// Condition that a field is present with a value.
fn is_there(name: &str) -> Json {
    json!({ "required": [name], "properties": { name: { "not": { "type": "null" } } } })
}

/// Converts `file-system` to `FileSystem`.
fn camel(name: &str) -> String {
    let words = name.split('-').map(|word| {
        let mut letters = word.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    });
    words.collect()
}

/// Also accepts null, because a field without a value counts as absent.
fn or_nothing(schema: &Json) -> Json {
    json!({ "anyOf": [schema, { "type": "null" }] })
}

/// Definitions of shapes, by name.
#[derive(Debug, std::default::Default)]
struct Definitions(Map<String, Json>);

impl Definitions {
    /// A reference to the schema built by `make`, which runs once per name.
    fn named(&mut self, name: &str, make: impl FnOnce(&mut Self) -> Json) -> Json {
        if !self.0.contains_key(name) {
            // Inserted first because the schema may be recursive.
            self.0.insert(name.to_owned(), Json::Null);
            let made = make(self);
            self.0.insert(name.to_owned(), made);
        }
        json!({ "$ref": format!("#/definitions/{name}") })
    }

    fn shape(&mut self, shape: &'static Shape) -> Json {
        self.named(shape.name, |definitions| definitions.object(shape))
    }

    fn object(&mut self, shape: &'static Shape) -> Json {
        let properties: Map<String, Json> = shape
            .fields
            .iter()
            .map(|field| (field.name.to_owned(), self.field(field)))
            .collect();
        let required = required(shape.fields);
        let mut schema = json!({
            "type": "object",
            "description": shape.about,
            "properties": properties,
        });
        if !required.is_empty() {
            insert(&mut schema, "required", json!(required));
        }
        if !shape.is_open {
            insert(&mut schema, "additionalProperties", false.into());
        }
        let rules: Vec<Json> = shape.rules.iter().map(rule).collect();
        if !rules.is_empty() {
            insert(&mut schema, "allOf", rules.into());
        }
        schema
    }

    fn field(&mut self, field: &'static Field) -> Json {
        let mut schema = self.content(field.content);
        if !field.is_required {
            schema = or_nothing(&schema);
        } else if schema.get("$ref").is_some() {
            // Keywords next to `$ref` are ignored.
            schema = json!({ "allOf": [schema] });
        }
        let mut about = field.about.to_owned();
        if let Some(meaning) = with_default(&mut schema, field) {
            about = format!("{about} Default: {meaning}.");
        }
        insert(&mut schema, "description", about.into());
        schema
    }

    fn content(&mut self, content: FieldType) -> Json {
        match content {
            FieldType::Text | FieldType::Path => json!({ "type": "string" }),
            FieldType::Word(words) => json!({ "enum": words }),
            FieldType::Number(least, most) => {
                json!({ "type": "integer", "minimum": least, "maximum": most })
            }
            FieldType::Boolean => json!({ "type": "boolean" }),
            FieldType::Amount => {
                json!({ "type": ["number", "string"], "minimum": 0, "pattern": AMOUNT })
            }
            FieldType::Mapping(shape) => self.shape(shape),
            FieldType::WordOr(words, shape) => {
                json!({ "anyOf": [{ "enum": words }, self.shape(shape)] })
            }
            FieldType::Choice(choice) => self.choice(choice),
            FieldType::List(content) => json!({ "type": "array", "items": self.content(*content) }),
            FieldType::Entries(content) => {
                let values = self.content(*content);
                json!({ "type": "object", "additionalProperties": values })
            }
            FieldType::Anything => json!({}),
            FieldType::Settings => self.named("Settings", |definitions| {
                let value = definitions.setting();
                json!({
                    "type": "object",
                    "description": "Settings. Every value can be a `valueFrom`.",
                    "additionalProperties": value,
                })
            }),
            FieldType::Variables => self.named("Variables", |definitions| {
                let taken = definitions.shape(&VALUE);
                json!({
                    "type": "object",
                    "additionalProperties": {
                        "if": { "type": "object" },
                        "then": taken,
                        "else": { "type": "string" },
                    },
                })
            }),
            FieldType::Reference(kind) => self.reference(kind),
            FieldType::Listed(shape) => {
                let Some(FieldType::Reference(kind)) =
                    shape.field("ref").map(|field| field.content)
                else {
                    return json!({});
                };
                let mut listed = json!({
                    "if": { "type": "object", "required": ["ref"] },
                    "then": self.shape(shape),
                    "else": self.reference(kind),
                });
                if kind == ResourceKind::EXTENSION {
                    let cases = builtins::of_listed_extensions(self);
                    insert(&mut listed, "allOf", cases.into());
                }
                listed
            }
            FieldType::Secret => self.shape(&VALUE),
        }
    }

    fn setting(&mut self) -> Json {
        self.named("Setting", |definitions| {
            let taken = definitions.shape(&TAKEN);
            json!({
                "if": { "type": "object", "required": ["valueFrom"] },
                "then": taken,
                "else": {
                    "items": { "$ref": "#/definitions/Setting" },
                    "additionalProperties": { "$ref": "#/definitions/Setting" },
                },
            })
        })
    }

    fn choice(&mut self, choice: &'static ShapeChoice) -> Json {
        let mut schema = self.shape(choice.otherwise);
        for (case, shape) in choice.cases.iter().rev() {
            let value = match case {
                Case::Is(words) => json!({ "enum": words }),
                Case::IsThere => json!({ "not": { "type": "null" } }),
                Case::Holds(field, words) => json!({
                    "type": "object",
                    "properties": { *field: { "enum": words } },
                    "required": [field],
                }),
            };
            schema = json!({
                "if": {
                    "type": "object",
                    "properties": { choice.field: value },
                    "required": [choice.field],
                },
                "then": self.shape(shape),
                "else": schema,
            });
        }
        schema
    }

    fn reference(&mut self, kind: ResourceKind) -> Json {
        self.named(&format!("{kind}Reference"), |definitions| {
            let mut written_out = definitions.object(&REFERENCE);
            if let Some(properties) = written_out.get_mut("properties") {
                describe(properties, "kind", &json!({ "const": kind.name() }));
            }
            json!({
                "description": format!("A reference to a resource of kind {kind}: `{kind}/name`."),
                "if": { "type": "object" },
                "then": written_out,
                "else": { "type": "string", "pattern": format!("^{kind}/.") },
            })
        })
    }
}

fn rule(rule: &FieldConstraint) -> Json {
    match rule {
        FieldConstraint::NotBoth(first, second) => {
            json!({ "not": { "allOf": [is_there(first), is_there(second)] } })
        }
        FieldConstraint::AnyOf(names, _) => {
            let cases: Vec<Json> = names.iter().copied().map(is_there).collect();
            json!({ "anyOf": cases })
        }
        FieldConstraint::RequiredWithout(name, others) => {
            let cases: Vec<Json> = [name]
                .into_iter()
                .chain(*others)
                .copied()
                .map(is_there)
                .collect();
            json!({ "anyOf": cases })
        }
    }
}
