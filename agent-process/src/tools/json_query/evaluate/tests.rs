//! Tests of `JMESPath` queries: bounded work, and results equal to those of the reference library.

use serde_json::{Value, json};

use super::*;

fn shared(document: &Value) -> Rcvar {
    Rcvar::new(Variable::from_serializable(document).unwrap())
}

fn ours(query: &str, document: &Value) -> Result<Value, QueryError> {
    let found = search(query, &shared(document))?;
    Ok(serde_json::to_value(&*found).unwrap())
}

fn is_too_much(query: &str, document: &Value) -> bool {
    assert!(query.chars().count() <= MAX_QUERY_CHARS);
    matches!(ours(query, document), Err(QueryError::TooMuchWork))
}

#[test]
fn json_query_with_exponential_growth_is_stopped() {
    let document = json!({"a": "\"text\\", "list": ["x", "x", "x"]});
    let piped = |part: &str| {
        let count = (MAX_QUERY_CHARS - 20) / (part.len() + 1);
        vec![part; count].join("|")
    };
    for part in [
        "[@,@]",
        "{a:@,b:@}",
        "[@,@]|[@]",
        "[[@,@],[@,@]]",
        "[to_string([@,@])]",
        "to_string([@])",
        "[join('',[to_string(@),to_string(@)])]",
        "map(&[@,@],[@])",
        "[@,@][]|[@,@]",
        "merge({a:@},{b:@})",
        "[not_null(@),to_array(@)]",
        "[[@,@][?@==@],[@]]",
        "[@,@]|[*].[@,@]",
    ] {
        assert!(is_too_much(&piped(part), &document), "{part}");
    }
}

#[test]
fn a_text_between_many_others_is_counted_before_it_is_written() {
    let document = json!({"glue": "x".repeat(1 << 20), "parts": vec![""; 10_000]});
    assert!(is_too_much("join(glue, parts)", &document));
}

#[test]
fn an_honest_query_of_a_large_document_is_answered() {
    let items: Vec<Value> = (0..50_000)
        .map(|n| json!({"id": n, "name": format!("item {n}"), "tags": ["a", "b"]}))
        .collect();
    let document = json!({ "items": items });
    let query = "items[?id >= `49998`].{id: id, name: name, tags: length(tags)}";
    let found = json!([
        {"id": 49_998, "name": "item 49998", "tags": 2},
        {"id": 49_999, "name": "item 49999", "tags": 2},
    ]);
    assert_eq!(ours(query, &document).unwrap(), found);
    let sorted = ours("sort_by(items, &name)[-1].id", &document).unwrap();
    assert_eq!(sorted, json!(9_999));
}

/// The library is the oracle: results and errors must be identical.
#[test]
fn json_query_results_and_errors_match_the_reference_library() {
    let document = json!({
        "a": {"b": [1, 2, [3, [4]], null], "c": "text", "d": {"x": 1, "y": null}},
        "people": [
            {"name": "Ann", "age": 40, "tags": ["x", "y"]},
            {"name": "Bob", "age": 30, "tags": []},
            {"name": "Cid", "age": 40},
        ],
        "mixed": [1, "a", null],
        "n": -1.5,
    });
    for query in [
        "a",
        "a.b",
        "a.b[0]",
        "a.b[-1]",
        "a.b[-9]",
        "a.b[9]",
        "a.b[]",
        "a.b[][]",
        "a.b[*]",
        "a.*",
        "a.d.*",
        "*.c",
        "a.b[1:]",
        "a.b[::-1]",
        "a.b[:-1]",
        "a.b[::0]",
        "a.b[5:1:-2]",
        "c[0]",
        "people[*].name",
        "people[?age > `30`].name",
        "people[?age == `40` && tags].name",
        "people[].tags[]",
        "people[*].[name, age]",
        "people[*].{n: name, a: age} | [0]",
        "people[?!tags]",
        "missing || a.c",
        "missing && a.c",
        "!missing",
        "!!a",
        "`[1, 2]`",
        "'raw'",
        "a.b == `[1, 2, [3, [4]], null]`",
        "a.c < `1`",
        "a.c != 'text'",
        "missing.[a, b]",
        "missing.{a: b}",
        "sort_by(people, &age)[*].name",
        "sort_by(people, &name)[0].name",
        "sort_by(people, &tags)",
        "sort_by(mixed, &@)",
        "max_by(people, &age).name",
        "min_by(people, &age).name",
        "min_by(`[]`, &age)",
        "max_by(mixed, &@)",
        "map(&age, people)",
        "map(&[name], people)",
        "map(name, people)",
        "map(&age)",
        "sort_by(people)",
        "sort_by(&age, people)",
        "length(people)",
        "length(`1`)",
        "join(', ', people[*].name)",
        "join(', ', mixed)",
        "contains(a.c, 'ex')",
        "contains(a.b, `2`)",
        "keys(a)",
        "values(a.d)",
        "sort(people[*].age)",
        "sort(mixed)",
        "sum(people[*].age)",
        "avg(people[*].age)",
        "abs(n)",
        "ceil(n)",
        "floor(n)",
        "max(people[*].name)",
        "min(`[]`)",
        "merge(a.d, {z: n})",
        "not_null(missing, n)",
        "reverse(a.b)",
        "reverse(a.c)",
        "starts_with(a.c, 't')",
        "ends_with(a.c, 't')",
        "to_array(n)",
        "to_number('12')",
        "to_string(a)",
        "type(n)",
        "nothing(a)",
        "people[?contains(name, 'o')] | [0].name",
        "@",
        "[&a]",
    ] {
        let theirs = jmespath::compile(query)
            .and_then(|compiled| compiled.search(&document))
            .map(|found| serde_json::to_value(&*found).unwrap());
        match (ours(query, &document), theirs) {
            (Ok(ours), Ok(theirs)) => assert_eq!(ours, theirs, "{query}"),
            (Err(_), Err(_)) => {}
            (ours, theirs) => panic!("{query}: {ours:?} and {theirs:?}"),
        }
    }
}

#[test]
fn numbers_at_the_edge_do_no_harm() {
    let document = json!([1, 2, 3]);
    for (query, found) in [
        ("[-2147483647]", json!(null)),
        ("[2147483647]", json!(null)),
        ("[::2147483647]", json!([1])),
        ("[::-2147483647]", json!([3])),
        ("[-2147483647:2147483647]", json!([1, 2, 3])),
    ] {
        assert_eq!(ours(query, &document).unwrap(), found, "{query}");
    }
}
