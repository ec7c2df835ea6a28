use serde_json::{Value, json};

use super::{file_words, message_words};

/// Messages as Slack documents them, and their words.
fn shapes() -> Vec<(&'static str, Value, &'static str)> {
    let of_user = shapes_of_users();
    of_user.into_iter().chain(shapes_of_apps()).collect()
}

fn rich(elements: &Value) -> Value {
    json!([{"type": "rich_text", "block_id": "x", "elements": elements}])
}

fn shapes_of_users() -> Vec<(&'static str, Value, &'static str)> {
    let line =
        |elements: &Value| rich(&json!([{"type": "rich_text_section", "elements": elements}]));
    vec![
        (
            "a text with its block",
            json!({"text": "hi *there*", "blocks": line(&json!([{"type": "text", "text": "hi "},
                {"type": "text", "text": "there", "style": {"bold": true}}]))}),
            "hi *there*",
        ),
        (
            "a block without a text",
            json!({"text": "", "blocks": line(&json!([{"type": "text", "text": "hi & "},
                {"type": "text", "text": "there ", "style": {"bold": true, "italic": true}},
                {"type": "text", "text": "a < b", "style": {"code": true}},
                {"type": "text", "text": " no", "style": {"strike": true}}]))}),
            "hi & *_there_* `a < b` ~no~",
        ),
        (
            "mentions, an emoji and a date",
            json!({"blocks": line(&json!([{"type": "user", "user_id": "U1"}, {"type": "text", "text": " "},
                {"type": "channel", "channel_id": "C1"}, {"type": "text", "text": " "},
                {"type": "usergroup", "usergroup_id": "S1"}, {"type": "text", "text": " "},
                {"type": "broadcast", "range": "here"}, {"type": "text", "text": " "},
                {"type": "emoji", "name": "wave", "unicode": "1f44b"}, {"type": "text", "text": " "},
                {"type": "date", "timestamp": 1_720_710_212, "format": "{date}", "fallback": "July 11"},
                {"type": "text", "text": " "}, {"type": "color", "value": "#F405B3"}]))}),
            "<@U1> <#C1> <!subteam^S1> @here :wave: July 11 #F405B3",
        ),
        (
            "links",
            json!({"blocks": line(&json!([{"type": "link", "url": "https://x.org/a", "text": "the page"},
                {"type": "text", "text": ", "}, {"type": "link", "url": "https://x.org"},
                {"type": "text", "text": ", "},
                {"type": "link", "url": "mailto:ann@x.org", "text": "ann@x.org"}]))}),
            "the page (https://x.org/a), https://x.org, ann@x.org",
        ),
        (
            "lists within lists",
            json!({"blocks": rich(&json!([
                {"type": "rich_text_section", "elements": [{"type": "text", "text": "To do:\n"}]},
                {"type": "rich_text_list", "style": "ordered", "indent": 0, "elements": [
                    {"type": "rich_text_section", "elements": [{"type": "text", "text": "one"}]}]},
                {"type": "rich_text_list", "style": "bullet", "indent": 1, "elements": [
                    {"type": "rich_text_section", "elements": [{"type": "text", "text": "a"}]},
                    {"type": "rich_text_section", "elements": [{"type": "text", "text": "b"}]}]},
                {"type": "rich_text_list", "style": "ordered", "indent": 0, "offset": 1, "elements": [
                    {"type": "rich_text_section", "elements": [{"type": "text", "text": "two"}]}]}]))}),
            "To do:\n1. one\n    • a\n    • b\n2. two",
        ),
        (
            "a quote and code",
            json!({"blocks": rich(&json!([
                {"type": "rich_text_quote", "elements": [{"type": "text", "text": "so\nthey said"}]},
                {"type": "rich_text_preformatted", "language": "rust", "elements": [
                    {"type": "text", "text": "fn main() {\n", "style": {"bold": true}},
                    {"type": "link", "url": "https://x.org"}, {"type": "text", "text": "\n}\n"}]}]))}),
            "> so\n> they said\n```rust\nfn main() {\nhttps://x.org\n}\n```",
        ),
        (
            "a file without a text",
            json!({"text": "", "files": [{"id": "F1", "name": "a.png", "title": "a.png", "mimetype": "image/png",
                "filetype": "png", "size": 1234, "mode": "hosted", "url_private": "https://files.slack.com/F1/a.png",
                "url_private_download": "https://files.slack.com/F1/download/a.png",
                "permalink": "https://x.slack.com/files/U1/F1/a.png"}]}),
            "[File: a.png, image/png, 1234 bytes, ID F1, URL https://files.slack.com/F1/download/a.png]",
        ),
        (
            "files with a text",
            json!({"text": "both:", "files": [{"id": "F1", "name": "a.txt", "title": "Notes", "filetype": "text",
                "size": 2}, {"id": "F2", "mode": "tombstone"}]}),
            "both:\n[File: a.txt, text, 2 bytes, ID F1]\nNotes\n[File: ID F2, deleted]",
        ),
        (
            "a spoken message",
            json!({"text": "", "files": [{"id": "F1", "name": "audio_message.m4a", "mimetype": "audio/mp4",
                "subtype": "slack_audio", "size": 9, "transcription": {"status": "complete", "locale": "en-US",
                "preview": {"content": "Please call me.", "has_more": false}}}]}),
            "[File: audio_message.m4a, audio/mp4, 9 bytes, ID F1]\nPlease call me.",
        ),
        (
            "a file of another workspace",
            json!({"text": "", "files": [{"id": "F1", "file_access": "check_file_info", "created": 0}]}),
            "[File: ID F1]",
        ),
        (
            "a mail",
            json!({"text": "", "files": [{"id": "F1", "mode": "email", "filetype": "email", "name": "Order",
                "subject": "Your order", "plain_text": "It is late."}]}),
            "[File: Order, email, ID F1]\nYour order\nIt is late.",
        ),
        (
            "a shared message",
            json!({"text": "see", "attachments": [{"is_share": true, "is_msg_unfurl": true, "channel_id": "C2",
                "author_id": "U2", "author_name": "Ann", "author_subname": "Ann", "ts": "1.5",
                "from_url": "https://x.slack.com/archives/C2/p15", "text": "it &lt;breaks&gt;",
                "fallback": "[July 11] Ann: it breaks", "footer": "Posted in #ops",
                "message_blocks": [{"team": "T1", "channel": "C2", "ts": "1.5", "message": {"blocks":
                    [{"type": "rich_text", "elements": [{"type": "rich_text_section", "elements":
                        [{"type": "text", "text": "it <breaks>"}]}]}]}}]}]}),
            "see\n[shared message: Ann, https://x.slack.com/archives/C2/p15] it <breaks>\nPosted in #ops",
        ),
        (
            "a preview of a link",
            json!({"text": "<https://x.org>", "attachments": [{"from_url": "https://x.org",
                "original_url": "https://x.org", "service_name": "X", "title": "The page",
                "title_link": "https://x.org", "text": "All of it.", "fallback": "X: The page", "id": 1}]}),
            "https://x.org\n[link preview: X, https://x.org] The page (https://x.org)\nAll of it.",
        ),
        (
            "nothing",
            json!({"text": " ", "blocks": [], "files": []}),
            "",
        ),
    ]
}

fn shapes_of_apps() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        (
            "an attachment without a text",
            json!({"text": "", "attachments": [{"fallback": "disk full"}]}),
            "[attachment] disk full",
        ),
        (
            "an attachment of an older app",
            json!({"attachments": [{"color": "danger", "pretext": "New alert", "author_name": "Monitor",
                "title": "Disk full", "title_link": "https://x.org/1", "text": "on *db1*", "fallback": "Disk full",
                "fields": [{"title": "Used", "value": "99 %", "short": true}, {"value": "since noon"}],
                "image_url": "https://x.org/a.png", "footer": "from db1", "ts": 123,
                "actions": [{"name": "a", "text": "Silence", "type": "button", "value": "1"}]}]}),
            "[attachment: Monitor] New alert\nDisk full (https://x.org/1)\non *db1*\nUsed: 99 %\nsince noon\n\
             [Silence]\n[image: https://x.org/a.png]\nfrom db1",
        ),
        (
            "an attachment of blocks",
            json!({"attachments": [{"color": "#f00", "fallback": "[no preview available]",
                "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "cpu high"}}]}]}),
            "[attachment] cpu high",
        ),
        (
            "a section with fields and a button",
            json!({"text": "", "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "cpu &gt; 90"},
                "fields": [{"type": "plain_text", "text": "db1"}, {"type": "mrkdwn", "text": "*now*"}],
                "accessory": {"type": "button", "action_id": "a", "text": {"type": "plain_text", "text": "Open"},
                    "url": "https://x.org"}}]}),
            "cpu > 90\ndb1\n*now*\n[Open (https://x.org)]",
        ),
        (
            "a text that only announces its blocks",
            json!({"text": "Deploy done", "blocks": [{"type": "header", "text": {"type": "plain_text",
                "text": "Deploy"}}, {"type": "divider"}, {"type": "context", "elements": [
                {"type": "image", "image_url": "https://x.org/i.png", "alt_text": "ok"},
                {"type": "mrkdwn", "text": "by <@U1|ann>"}]}]}),
            "Deploy done\nDeploy\n[image: ok, https://x.org/i.png] by @ann (U1)",
        ),
        (
            "a text that repeats its blocks",
            json!({"text": "Deploy\ndone", "blocks": [{"type": "section", "text": {"type": "mrkdwn",
                "text": "Deploy done"}}]}),
            "Deploy done",
        ),
        (
            "an image, a video and a file",
            json!({"blocks": [{"type": "image", "title": {"type": "plain_text", "text": "A cat"},
                "image_url": "https://x.org/c.png", "alt_text": "cat"},
                {"type": "video", "title": {"type": "plain_text", "text": "How to"}, "title_url": "https://x.org/v",
                    "alt_text": "How to", "video_url": "https://x.org/e", "thumbnail_url": "https://x.org/t"},
                {"type": "file", "external_id": "ABCD1", "source": "remote"}]}),
            "[image: A cat, https://x.org/c.png]\n[video: https://x.org/v] How to\n[File: ID ABCD1]",
        ),
        (
            "a table",
            json!({"blocks": [{"type": "table", "rows": [
                [{"type": "raw_text", "text": "Host"}, {"type": "raw_text", "text": "CPU"}],
                [{"type": "rich_text", "elements": [{"type": "rich_text_section", "elements":
                    [{"type": "text", "text": "db1"}]}]}, {"type": "raw_text", "text": "99"}]]}]}),
            "Host | CPU\ndb1 | 99",
        ),
        (
            "buttons, a list and an input",
            json!({"blocks": [{"type": "actions", "elements": [
                {"type": "button", "text": {"type": "plain_text", "text": "Yes"}, "value": "y"},
                {"type": "static_select", "placeholder": {"type": "plain_text", "text": "Which?"}, "options": []}]},
                {"type": "input", "label": {"type": "plain_text", "text": "Why"},
                    "element": {"type": "plain_text_input"}}]}),
            "[Yes] [Which?]\n[input: Why]",
        ),
        (
            "Markdown",
            json!({"blocks": [{"type": "markdown", "text": "# A\n**b**"}]}),
            "# A\n**b**",
        ),
        (
            "a block of the future",
            json!({"blocks": [{"type": "hologram", "title": {"type": "plain_text", "text": "Hello"},
                "secret": "x", "body": [{"text": "there"}]}]}),
            "Hello\nthere",
        ),
    ]
}

#[test]
fn conn_1_slack_messages_of_all_shapes_are_told_in_words() {
    for (shape, message, words) in shapes() {
        assert_eq!(message_words(&message), words, "{shape}");
    }
}

#[test]
fn conn_1_deep_and_strange_messages_have_bounded_words() {
    let mut message = json!({"text": "innermost"});
    for _ in 0..50 {
        message = json!({"text": "outer", "attachments": [message]});
    }
    let words = message_words(&message);
    assert!(
        words.contains("outer") && !words.contains("innermost"),
        "{words}"
    );
    for strange in [
        json!(null),
        json!([1]),
        json!({"text": 5, "blocks": {"a": 1}, "attachments": [null, 3], "files": "x"}),
        json!({"blocks": [{"type": "rich_text", "elements": [{"type": "rich_text_list", "indent": u64::MAX,
            "offset": u64::MAX, "style": "ordered", "elements": [{}]}]}]}),
    ] {
        drop(message_words(&strange));
    }
    assert_eq!(file_words(&json!({})), "[File: ]");
}
