//! Tests of forms: conversion of schemas, and validation of answers.

use serde_json::json;

use super::*;

/// A form with one required field `f` of this schema.
fn form(field: &Value) -> QuestionForm {
    let schema = json!({"type": "object", "properties": {"f": field}, "required": ["f"]});
    QuestionForm::of_schema(&schema).unwrap()
}

fn check(form: &QuestionForm, value: &Value) -> Result<(), String> {
    form.check(json!({ "f": value }).as_object().unwrap())
}

fn refusal(schema: &Value) -> String {
    QuestionForm::of_schema(schema).unwrap_err().to_string()
}

#[test]
fn each_field_kind_accepts_only_its_valid_values() {
    let cases = [
        (
            json!({"type": "string"}),
            vec![json!(""), json!("a\nb")],
            vec![json!(1), json!(null)],
        ),
        (
            json!({"type": "string", "minLength": 2, "maxLength": 3}),
            vec![json!("가나"), json!("abc")],
            vec![json!("a"), json!("abcd")],
        ),
        (
            json!({"type": "string", "format": "email"}),
            vec![json!("ada@example.org")],
            vec![
                json!("ada"),
                json!("@x"),
                json!("a@"),
                json!("a b@x.y"),
                json!("a@b@c"),
                json!("a@x..y"),
            ],
        ),
        (
            json!({"type": "string", "format": "uri"}),
            vec![json!("https://example.org/a?b"), json!("urn:isbn:1")],
            vec![
                json!("example.org"),
                json!("1a:b"),
                json!("a:"),
                json!("a: b"),
            ],
        ),
        (
            json!({"type": "string", "format": "date"}),
            vec![json!("2024-02-29")],
            vec![json!("2026-02-29"), json!("tomorrow")],
        ),
        (
            json!({"type": "string", "format": "date-time"}),
            vec![
                json!("2026-01-31T12:00:00Z"),
                json!("2026-01-31T12:00:00+09:00"),
            ],
            vec![json!("2026-01-31"), json!("noon")],
        ),
        (
            json!({"type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"]}),
            vec![json!("s"), json!("m")],
            vec![json!("Small"), json!("l"), json!("")],
        ),
        (
            json!({"type": "string", "oneOf": [{"const": "#f00", "title": "Red"}, {"const": "#0f0"}]}),
            vec![json!("#f00"), json!("#0f0")],
            vec![json!("Red")],
        ),
        (
            json!({"oneOf": [{"const": "a", "title": "A"}]}),
            vec![json!("a")],
            vec![json!("A"), json!(["a"])],
        ),
        (
            json!({"type": "string", "const": "only"}),
            vec![json!("only")],
            vec![json!("other")],
        ),
        (
            json!({"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}, "minItems": 1, "maxItems": 2}),
            vec![json!(["a"]), json!(["c", "a"])],
            vec![
                json!("a"),
                json!([]),
                json!(["a", "a"]),
                json!(["d"]),
                json!([1]),
                json!(["a", "b", "c"]),
            ],
        ),
        (
            json!({"type": "array", "items": {"anyOf": [{"const": "#f00", "title": "Red"}, {"const": "x,y"}]},
                "uniqueItems": true, "default": ["#f00"]}),
            vec![json!([]), json!(["x,y", "#f00"])],
            vec![json!(["Red"]), json!({"0": "#f00"})],
        ),
        (
            json!({"type": "number", "minimum": -0.5, "maximum": 2}),
            vec![json!(-0.5), json!(0), json!(2), json!(1.5)],
            vec![json!(-0.6), json!(3), json!("1")],
        ),
        (
            json!({"type": "integer", "minimum": 1, "maximum": u64::MAX}),
            vec![json!(1), json!(2.0), json!(u64::MAX)],
            vec![json!(0), json!(1.5), json!(-1), json!("1"), json!(true)],
        ),
        (
            json!({"type": "boolean"}),
            vec![json!(true), json!(false)],
            vec![json!("true"), json!(0)],
        ),
    ];
    for (schema, good, bad) in cases {
        let form = form(&schema);
        for value in good {
            assert_eq!(check(&form, &value), Ok(()), "{schema} refuses {value}");
        }
        for value in bad {
            let problem = check(&form, &value).unwrap_err();
            assert!(
                problem.starts_with("`f` must be "),
                "{schema} and {value}: {problem}"
            );
        }
    }
}

#[test]
fn form_answer_problems_are_all_reported_without_its_values() {
    let schema = json!({
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 1}},
        "required": ["name"],
    });
    let form = QuestionForm::of_schema(&schema).unwrap();
    let content = json!({"age": -4711, "color": "mauve"});
    let problem = form.check(content.as_object().unwrap()).unwrap_err();
    assert_eq!(
        problem,
        "`name` is missing; `age` must be a whole number of at least 1; `color` is not a field of the question"
    );
    let content = json!({"name": "x".repeat(MAX_ANSWER_BYTES)});
    let problem = form.check(content.as_object().unwrap()).unwrap_err();
    assert!(problem.contains("at most"), "{problem}");
    let content = json!({"name": "Ada"});
    assert_eq!(form.check(content.as_object().unwrap()), Ok(()));
}

#[test]
fn text_input_is_parsed_by_the_field_type() {
    let read = |schema: Value, text: &str| form(&schema).0[0].read(text);
    assert_eq!(read(json!({"type": "string"}), "007"), Ok(json!("007")));
    assert_eq!(read(json!({"type": "integer"}), " 7 "), Ok(json!(7)));
    assert_eq!(read(json!({"type": "number"}), "-1.5e2"), Ok(json!(-150.0)));
    assert_eq!(read(json!({"type": "boolean"}), "true"), Ok(json!(true)));
    assert_eq!(
        read(json!({"type": "string", "enum": ["true"]}), "true"),
        Ok(json!("true"))
    );
    let several = json!({"type": "array", "items": {"enum": ["a", "b", "x,y"]}, "maxItems": 2});
    for (text, list) in [
        ("", json!([])),
        ("a", json!(["a"])),
        (" b , a", json!(["b", "a"])),
        ("x,y", json!(["x,y"])),
        (r#"["x,y", "a"]"#, json!(["x,y", "a"])),
    ] {
        assert_eq!(read(several.clone(), text), Ok(list));
    }
    for (schema, text, told) in [
        (
            several,
            "a,c",
            "must be a list with at most 2 of: a, b, x,y",
        ),
        (json!({"type": "boolean"}), "yes", "must be true or false"),
        (json!({"type": "integer"}), "1.5", "must be a whole number"),
        (json!({"type": "number"}), "NaN", "must be a number"),
        (json!({"type": "number"}), "[1]", "must be a number"),
    ] {
        assert_eq!(read(schema, text), Err(told.to_owned()));
    }
}

#[test]
fn a_form_keeps_its_order_and_is_read_back_as_it_was_written() {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "title": "t",
        "additionalProperties": false,
        "properties": {
            "b": {"type": "boolean", "default": true, "title": "B", "description": "about b"},
            "a": {"type": "string", "enum": ["x"], "enumNames": ["X"], "default": "x"},
        },
    });
    let form = QuestionForm::of_schema(&schema).unwrap();
    let names: Vec<&str> = form.fields().iter().map(|field| &*field.name).collect();
    assert_eq!(names, ["b", "a"]);
    let written = serde_json::to_value(&form).unwrap();
    assert_eq!(
        written,
        json!([
            {"name": "b", "title": "B", "description": "about b", "required": false,
             "takes": {"type": "boolean"}, "default": true},
            {"name": "a", "required": false,
             "takes": {"type": "choice", "choices": [{"value": "x", "title": "X"}]}, "default": "x"},
        ])
    );
    assert_eq!(
        serde_json::from_value::<QuestionForm>(written).unwrap(),
        form
    );
    // A question may only ask for confirmation.
    assert!(
        QuestionForm::of_schema(&json!({"type": "object"}))
            .unwrap()
            .fields()
            .is_empty()
    );
}

#[test]
fn schema_that_is_not_a_flat_primitive_form_is_refused_in_place() {
    let with = |field: Value| json!({"type": "object", "properties": {"login": field}});
    let nested = with(json!({
        "type": "object", "properties": {"password": {"type": "string", "format": "password"}},
    }));
    let told = refusal(&nested);
    assert!(
        told.contains("field `login`") && told.contains("its type is `object`"),
        "{told}"
    );
    for (field, word) in [
        (
            json!({"type": "string", "format": "password"}),
            "Questions must not request secrets",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}}),
            "must be strings with choices",
        ),
        (json!({"type": "array"}), "without `items`"),
        (
            json!({"type": "array", "items": {"type": "integer", "enum": [1]}}),
            "must be strings with choices",
        ),
        (
            json!({"type": "array", "items": {"enum": ["a"], "pattern": "a"}}),
            "`pattern`, which is not supported",
        ),
        (
            json!({"type": "array", "items": {"enum": ["a"]}, "minItems": 2}),
            "no list of its choices",
        ),
        (
            json!({"type": "array", "items": {"enum": ["a"]}, "default": ["b"]}),
            "its `default` must be a list",
        ),
        (json!({"type": ["string", "null"]}), "no `type`"),
        (json!({}), "no `type`"),
        (json!("string"), "must be an object"),
        (
            json!({"type": "string", "pattern": "a"}),
            "`pattern`, which is not supported",
        ),
        (
            json!({"type": "boolean", "minimum": 1}),
            "`minimum`, which is not supported",
        ),
        (json!({"type": "string", "enum": []}), "choices"),
        (json!({"type": "string", "enum": [1]}), "list of texts"),
        (
            json!({"type": "string", "enum": ["a"], "enumNames": ["A", "B"]}),
            "as many",
        ),
        (
            json!({"type": "string", "oneOf": [{"title": "A"}]}),
            "no `const`",
        ),
        (
            json!({"type": "string", "oneOf": [{"const": "a", "x": 1}]}),
            "`x`",
        ),
        (
            json!({"type": "string", "enum": ["a"], "oneOf": []}),
            "either",
        ),
        (
            json!({"type": "string", "minLength": -1}),
            "not a valid length",
        ),
        (
            json!({"type": "string", "minLength": 2, "maxLength": 1}),
            "is larger than",
        ),
        (
            json!({"type": "number", "minimum": 2, "maximum": 1.5}),
            "within its bounds",
        ),
        (json!({"type": "integer", "maximum": "9"}), "not a number"),
        (
            json!({"type": "integer", "default": "x"}),
            "its `default` must be a whole number",
        ),
        (json!({"type": "string", "title": 7}), "not text"),
    ] {
        let told = refusal(&with(field.clone()));
        assert!(
            told.contains(word) && told.contains("`login`"),
            "{field}: {told}"
        );
    }
    for (schema, word) in [
        (json!("x"), "must be an object"),
        (json!({}), "of the type `object`"),
        (json!({"type": "object", "allOf": []}), "`allOf`"),
        (
            json!({"type": "object", "properties": []}),
            "must be an object",
        ),
        (
            json!({"type": "object", "required": ["a"]}),
            "which is not a field",
        ),
        (
            json!({"type": "object", "properties": {"a=b": {"type": "string"}}}),
            "no `=`",
        ),
        (
            json!({"type": "object", "properties": {"\u{1b}[2J": {"type": "string"}}}),
            "control",
        ),
        (
            json!({"type": "object", "title": "x".repeat(20_000)}),
            "bytes; at most",
        ),
    ] {
        let told = refusal(&schema);
        assert!(told.contains(word), "{told}");
        assert!(!told.contains('\u{1b}'), "{told:?}");
    }
    let fields = (0..33).map(|n| (n.to_string(), json!({"type": "boolean"})));
    let properties = Value::Object(fields.collect());
    let told = refusal(&json!({"type": "object", "properties": properties}));
    assert!(told.contains("33 fields"), "{told}");
}
