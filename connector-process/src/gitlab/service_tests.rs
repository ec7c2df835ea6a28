//! Deliveries as the connector reads them, without HTTP.

use super::*;

fn gitlab(config: &Value) -> GitLab {
    let secrets = BTreeMap::from([("webhookSecret".to_owned(), "s".to_owned())]);
    GitLab::new(config.as_object().unwrap(), &secrets).unwrap()
}

fn read_with(config: &Value, headers: &[(&'static str, &str)], body: &Value) -> InboundRequest {
    let pairs = headers.iter();
    let headers: HeaderMap = pairs
        .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
        .collect();
    let body = body.to_string();
    let received = RawRequest {
        method: "POST",
        path: "/",
        remote: "127.0.0.1:5".parse().unwrap(),
        headers: &headers,
        body: body.as_bytes(),
        now_s: 0,
    };
    gitlab(config).read(&received).unwrap()
}

fn event(body: &Value) -> ConnectorEvent {
    match read_with(&json!({}), &[("idempotency-key", "d-1")], body) {
        InboundRequest::Event(event) => *event,
        other => panic!("{other:?}"),
    }
}

/// A comment in a thread of merge request 7 of acme/shop.
fn comment(said: &str) -> Value {
    json!({"object_kind": "note", "event_type": "note", "user": {"id": 9, "username": "ada"},
        "project": {"id": 15, "path_with_namespace": "acme/shop", "default_branch": "main"},
        "object_attributes": {"id": 5, "note": said, "noteable_type": "MergeRequest",
            "discussion_id": "6a9c", "action": "create",
            "url": "https://example.com/acme/shop/-/merge_requests/7#note_5",
            "position": {"new_path": "src/cart.rs", "new_line": 12}},
        "merge_request": {"iid": 7, "title": "Sell books", "source_branch": "books",
            "target_branch": "main", "state": "opened",
            "last_commit": {"id": "da1560886d4f094c3e6c9ef40349f7d38b5d27d7"}}})
}

#[test]
fn conn_1_comment_belongs_to_the_conversation_of_its_merge_request() {
    let mut body = comment("Why a float?");
    body["project"]["path_with_namespace"] = json!("Acme/Shop");
    let found = event(&body);
    assert_eq!(found.id.unwrap().as_str(), "d-1");
    assert_eq!(found.name, "note");
    assert_eq!(found.instance_key.unwrap().as_str(), "gitlab:acme/shop!7");
    for (name, value) in [
        ("event", json!("note")),
        ("action", json!("create")),
        ("project", json!("Acme/Shop")),
        ("projectId", json!(15)),
        ("sender", json!("ada")),
        ("reference", json!("!7")),
        ("number", json!(7)),
        ("isMergeRequest", json!(true)),
        ("noteType", json!("MergeRequest")),
        ("state", json!("opened")),
        ("branch", json!("books")),
        ("base", json!("main")),
    ] {
        assert_eq!(found.properties[name], value, "{name}");
    }
    for (name, value) in [
        ("project", "Acme/Shop"),
        ("reference", "!7"),
        ("discussion", "6a9c"),
        ("commit", "da1560886d4f094c3e6c9ef40349f7d38b5d27d7"),
        ("defaultBranch", "main"),
    ] {
        assert_eq!(found.metadata[name], value, "{name}");
    }
    assert_eq!(found.metadata["payload"], body);
    assert_eq!(
        found.input,
        "ada commented on merge request !7 \"Sell books\" in Acme/Shop at `src/cart.rs` line 12\n\
         https://example.com/acme/shop/-/merge_requests/7#note_5\n\nWhy a float?"
    );
    assert_eq!(Value::from(found.auth.unwrap())["user"], "ada");
}

#[test]
fn conn_1_gitlab_delivery_is_identified_by_what_only_repetitions_share() {
    let id =
        |headers: &[(&'static str, &str)], body: &Value| match read_with(&json!({}), headers, body)
        {
            InboundRequest::Event(event) => event.id.unwrap().as_str().to_owned(),
            other => panic!("{other:?}"),
        };
    let uuid = ("x-gitlab-event-uuid", "u-1");
    let (one, other) = (comment("one"), comment("other"));
    assert_eq!(id(&[uuid, ("idempotency-key", "k-1")], &one), "k-1");
    assert_eq!(id(&[uuid, ("webhook-id", "w-1")], &one), "w-1");
    let first = id(&[uuid], &one);
    assert!(first.starts_with("u-1-"), "{first}");
    assert_eq!(id(&[uuid], &one), first);
    // One push can cause several events with one UUID.
    assert_ne!(id(&[uuid], &other), first);
}

#[test]
fn conn_1_gitlab_deliveries_without_an_event_are_answered() {
    let reason =
        |config: Value, body: &Value| match read_with(&config, &[("idempotency-key", "d-1")], body)
        {
            InboundRequest::Answer(answer) => answer.ignored,
            InboundRequest::Event(_) => None,
            other => panic!("{other:?}"),
        };
    let unknown = json!({"object_kind": "weather", "project": {"path_with_namespace": "a/b"}});
    let plain = || json!({});
    assert_eq!(reason(plain(), &unknown), Some(IgnoreReason::Unsupported));
    assert_eq!(reason(plain(), &json!({})), Some(IgnoreReason::Unsupported));
    let own = comment(&format!("Done.\n\n{OWN_MARK}"));
    assert_eq!(reason(plain(), &own), Some(IgnoreReason::Own));
    let mut opened = json!({"object_kind": "issue", "project": {"path_with_namespace": "a/b"},
        "object_attributes": {"iid": 3, "action": "open", "description": OWN_MARK}});
    assert_eq!(reason(plain(), &opened), Some(IgnoreReason::Own));
    // A person closes what an agent opened.
    opened["object_attributes"]["action"] = json!("close");
    assert_eq!(reason(plain(), &opened), None);
    let listed = || json!({"projects": ["Acme/SHOP"]});
    assert_eq!(reason(listed(), &comment("x")), None);
    assert_eq!(reason(listed(), &opened), Some(IgnoreReason::OtherPlace));
    let member = json!({"event_name": "user_add_to_group", "group_path": "acme"});
    assert_eq!(reason(listed(), &member), Some(IgnoreReason::OtherPlace));
    assert_eq!(reason(plain(), &member), None);
}

#[test]
fn conn_1_update_names_its_most_important_change() {
    let update = |attributes: Value, changes: Value| {
        let mut body = json!({"object_kind": "merge_request", "user": {"username": "ada"},
            "project": {"path_with_namespace": "a/b"},
            "object_attributes": {"iid": 1, "title": "T", "action": "update"}, "changes": changes});
        let own = body["object_attributes"].as_object_mut().unwrap();
        own.extend(attributes.as_object().unwrap().clone());
        let found = event(&body);
        let sentence = found.input.lines().next().unwrap().to_owned();
        (found.properties, sentence)
    };
    let (properties, sentence) = update(json!({"oldrev": "0123"}), json!({}));
    assert_eq!(properties["change"], "commits");
    assert_eq!(
        sentence,
        "ada pushed commits to merge request !1 \"T\" in a/b"
    );
    let labels = json!({"updated_at": {"previous": "1", "current": "2"},
        "labels": {"previous": [{"title": "old"}, {"title": "kept"}],
            "current": [{"title": "kept"}, {"title": "bug"}]}});
    let (properties, sentence) = update(json!({}), labels);
    assert_eq!(
        (&properties["change"], &properties["label"]),
        (&json!("labels"), &json!("bug"))
    );
    assert_eq!(
        sentence,
        "ada edited merge request !1 \"T\" in a/b: added label bug, removed label old"
    );
    let (properties, sentence) = update(
        json!({}),
        json!({"draft": {"previous": true, "current": false}}),
    );
    assert_eq!(properties["change"], "ready");
    assert_eq!(
        sentence,
        "ada marked merge request !1 \"T\" in a/b as ready"
    );
    let (properties, sentence) = update(
        json!({}),
        json!({"reviewers": {"previous": [], "current": [{"username": "bob"}]},
            "title": {"previous": "S", "current": "T"}}),
    );
    assert_eq!(properties["change"], "reviewers");
    assert_eq!(
        sentence,
        "ada edited merge request !1 \"T\" in a/b: review by bob, the title was \"S\""
    );
    let (properties, _) = update(json!({}), json!({"updated_at": {"current": "2"}}));
    assert_eq!(properties.get("change"), None);
}

#[test]
fn conn_3_signing_token_of_gitlab_needs_base64() {
    assert!(verifier("any text").is_ok());
    assert!(verifier("whsec_AQID").is_ok());
    for wrong in ["", "whsec_", "whsec_???"] {
        assert!(verifier(wrong).is_err(), "{wrong}");
    }
}
