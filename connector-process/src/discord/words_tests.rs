use serde_json::json;

use super::*;

fn shape(kind: &str, body: &Value) -> InteractionText {
    match kind {
        "command" => command(body),
        "component" => component(body),
        _ => form(body),
    }
    .unwrap()
}

/// Shapes of Discord's documentation, each with its words.
fn shapes() -> Vec<(&'static str, Value, &'static str)> {
    let resolved = json!({
        "users": {"1": {"id": "1", "username": "ann", "global_name": "Ann Lee"},
            "2": {"id": "2", "username": "bob", "global_name": null}},
        "members": {"2": {"nick": "Bobby", "roles": []}},
        "roles": {"3": {"id": "3", "name": "Mods"}},
        "channels": {"4": {"id": "4", "name": "general", "type": 0}},
        "attachments": {"5": {"id": "5", "filename": "a b.pdf", "size": 12,
            "content_type": "application/pdf", "url": "https://cdn.discordapp.com/5/a.pdf"}},
        "messages": {"6": {"id": "6", "content": "It is **late**.",
            "author": {"id": "1", "username": "ann", "global_name": "Ann Lee"},
            "attachments": [{"id": "7", "filename": "p.png", "url": "https://cdn.discordapp.com/7/p.png"}],
            "sticker_items": [{"id": "8", "name": "Wave", "format_type": 1}],
            "embeds": [{"title": "Build failed", "description": "step 3", "url": "https://ci.example",
                "fields": [{"name": "branch", "value": "main"}]}],
            "referenced_message": {"content": "When?", "author": {"username": "bob"}}}},
    });
    let option =
        |name: &str, kind: u64, value: Value| json!({"name": name, "type": kind, "value": value});
    let command = |name: &str, options: Value| {
        json!({"data": {"id": "9", "type": 1, "name": name,
        "options": options, "resolved": resolved}})
    };
    let button = |label: &str| {
        json!({"data": {"custom_id": "ok", "component_type": 2},
        "message": {"id": "6", "content": "Deploy now?", "components": [
            {"type": 1, "components": [{"type": 2, "custom_id": "ok", "label": label, "style": 1}]}]}})
    };
    vec![
        ("command", command("status", json!([])), "/status"),
        ("command", json!({"data": {"name": "old"}}), "/old"),
        (
            "command",
            command("ask", json!([option("prompt", 3, json!("why?"))])),
            "why?",
        ),
        (
            "command",
            command(
                "ask",
                json!([
                    option("prompt", 3, json!("why?")),
                    option("model", 3, json!("big")),
                    option("file", 11, json!("5"))
                ]),
            ),
            "why?\n[/ask model: big, file: a b.pdf]\n[File: a b.pdf, application/pdf, 12 bytes, \
             URL https://cdn.discordapp.com/5/a.pdf]",
        ),
        (
            "command",
            command(
                "deploy",
                json!([{"name": "to", "type": 1, "options": [
                option("where", 3, json!("prod")), option("force", 5, json!(true)),
                option("count", 4, json!(3)), option("share", 10, json!(0.5))]}]),
            ),
            "/deploy to where: prod, force: true, count: 3, share: 0.5",
        ),
        (
            "command",
            command(
                "admin",
                json!([{"name": "user", "type": 2, "options": [
                {"name": "ban", "type": 1, "options": [option("who", 6, json!("2"))]}]}]),
            ),
            "/admin user ban who: Bobby (user 2)",
        ),
        (
            "command",
            command(
                "admin",
                json!([{"name": "ask", "type": 1, "options": [
                option("text", 3, json!("hello"))]}]),
            ),
            "hello\n[/admin ask]",
        ),
        (
            "command",
            command(
                "tell",
                json!([
                    option("whom", 9, json!("3")),
                    option("where", 7, json!("4")),
                    option("who", 6, json!("1"))
                ]),
            ),
            "/tell whom: Mods (role 3), where: #general (channel 4), who: Ann Lee (user 1)",
        ),
        (
            "command",
            json!({"data": {"type": 2, "name": "High five", "target_id": "1", "resolved": resolved}}),
            "[Command High five about Ann Lee (user 1)]",
        ),
        (
            "command",
            json!({"data": {"type": 3, "name": "Summarize", "target_id": "6", "resolved": resolved}}),
            "[Command Summarize about message 6 of Ann Lee]\n[Reply to bob: \"When?\"]\nIt is **late**.\n\
             [File: p.png, URL https://cdn.discordapp.com/7/p.png]\n[Sticker Wave]\n\
             [Card: Build failed – step 3 – branch: main – https://ci.example]",
        ),
        (
            "command",
            json!({"data": {"type": 3, "name": "Keep", "target_id": "6", "resolved": {"messages": {
                "6": {"content": "", "author": {"username": "ann"}, "message_snapshots": [
                    {"message": {"content": "news", "attachments": []}}],
                    "poll": {"question": {"text": "Tea?"}, "answers": [
                        {"poll_media": {"text": "yes"}}, {"poll_media": {"text": "no"}}]}}}}}}),
            "[Command Keep about message 6 of ann]\n[Forwarded message]\nnews\n[Poll: Tea? – yes / no]",
        ),
        (
            "component",
            button("Approve"),
            "Approve (ok)\n[Below the message \"Deploy now?\"]",
        ),
        ("component", json!({"data": {"custom_id": "ok"}}), "ok"),
        (
            "component",
            json!({"data": {"custom_id": "size", "values": ["s", "m"]}, "message": {"content": "",
                "components": [{"type": 1, "components": [{"type": 3, "custom_id": "size",
                    "options": [{"label": "Small", "value": "s"}, {"label": "m", "value": "m"}]}]}]}}),
            "size: Small (s), m",
        ),
        (
            "component",
            json!({"data": {"custom_id": "who", "component_type": 7, "values": ["1", "3"],
                "resolved": resolved}}),
            "who: Ann Lee (user 1), Mods (role 3)",
        ),
        (
            "component",
            json!({"data": {"custom_id": "where", "component_type": 8, "values": ["4"],
                "resolved": resolved}}),
            "where: #general (channel 4)",
        ),
        (
            "component",
            json!({"data": {"custom_id": "more", "component_type": 2}, "message": {"components": [
                {"type": 17, "components": [{"type": 9, "components": [{"type": 10, "content": "x"}],
                    "accessory": {"type": 2, "custom_id": "more", "label": "More"}}]}]}}),
            "More (more)",
        ),
        (
            "form",
            json!({"data": {"custom_id": "f", "components": [
                {"type": 1, "components": [{"type": 4, "custom_id": "a", "value": "1"}]},
                {"type": 1, "components": [{"type": 4, "custom_id": "b", "value": "two\nlines"}]}]}}),
            "f\na: 1\nb: two\nlines",
        ),
        (
            "form",
            json!({"data": {"custom_id": "f", "resolved": resolved, "components": [
                {"type": 18, "id": 1, "component": {"type": 3, "custom_id": "bug", "values": ["ant", "bee"]}},
                {"type": 18, "component": {"type": 5, "custom_id": "who", "values": ["2"]}},
                {"type": 18, "component": {"type": 19, "custom_id": "proof", "values": ["5"]}},
                {"type": 18, "component": {"type": 23, "custom_id": "sure", "value": true}},
                {"type": 10, "id": 2}]}}),
            "f\nbug: ant, bee\nwho: Bobby (user 2)\nproof: a b.pdf\n[File: a b.pdf, application/pdf, \
             12 bytes, URL https://cdn.discordapp.com/5/a.pdf]\nsure: true",
        ),
        (
            "form",
            json!({"data": {"custom_id": "empty", "components": []}}),
            "empty",
        ),
    ]
}

#[test]
fn conn_1_every_discord_interaction_is_in_words() {
    for (kind, body, expected) in shapes() {
        assert_eq!(shape(kind, &body).text, expected, "{body}");
    }
}

#[test]
fn conn_2_files_of_a_discord_command_are_listed() {
    let body = json!({"data": {"name": "ask", "options": [{"name": "file", "type": 11, "value": "5"}],
        "resolved": {"attachments": {"5": {"filename": "a.pdf", "size": 12,
            "content_type": "application/pdf", "url": "https://cdn.discordapp.com/a.pdf"}}}}});
    let expected = json!([{"name": "a.pdf", "url": "https://cdn.discordapp.com/a.pdf",
        "mimeType": "application/pdf", "bytes": 12}]);
    assert_eq!(Value::from(shape("command", &body).files), expected);
}
