//! Each problem is found, named, and reveals no secret.

use serde_json::json;

use super::*;
use crate::find;

fn problems(connector: &str, config: &Value, secrets: &[(&str, &str)]) -> Vec<String> {
    let secrets = secrets
        .iter()
        .map(|(name, secret)| ((*name).to_owned(), (*secret).to_owned()))
        .collect();
    let config = config.as_object().unwrap();
    check(find(connector).unwrap(), config, &secrets)
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn each_wrong_value_is_named() {
    for (config, said) in [
        (
            json!({"prot": 1}),
            "unknown setting `prot`; available: `host`, `port`",
        ),
        (
            json!({"signature": {"key": "x"}}),
            "unknown setting `signature.key`",
        ),
        (
            json!({"port": 65536}),
            "`port` must be a whole number from 0 to 65535, found 65536",
        ),
        (json!({"port": "http"}), "found \"http\""),
        (
            json!({"host": ""}),
            "`host` must be a text that is not empty, found empty",
        ),
        (json!({"path": "hook"}), "`path` must be a URL path"),
        (json!({"path": "/a b"}), "`path` must be a URL path"),
        (json!({"path": "/{x}"}), "`path` must be a URL path"),
        (json!({"path": "/a?b"}), "`path` must be a URL path"),
        (json!({"maxBodyBytes": 0}), "from 1 to 1048576"),
        (json!({"maxBodyBytes": 1_048_577}), "from 1 to 1048576"),
        (json!({"inputField": 1}), "`inputField`"),
        (
            json!({"signature": "sha256"}),
            "`signature` must be a map, found another text",
        ),
        (
            json!({"signature": {"algorithm": "md5"}}),
            "must be `sha256`, `sha1`, `sha512`, found \"md5\"",
        ),
        (
            json!({"signature": {"encoding": "base32"}}),
            "must be `hex`, `base64`",
        ),
        (
            json!({"signature": {"preset": "strip"}}),
            "`signature.preset` must be `basic`, `github`, `gitlab`",
        ),
        (
            json!({"signature": {"header": "a b"}}),
            "the name of an HTTP header",
        ),
    ] {
        let found = problems("webhook", &config, &[("hmac", "s")]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(said), "{found:?}");
    }
}

#[test]
fn every_problem_is_found_and_not_only_the_first() {
    let schedule =
        json!({"name": "a", "cron": "61 * * * *", "timeZone": "Mars/Olympus", "inptu": "x"});
    let twice = json!({"name": "a", "cron": "* * * * *", "input": "x", "catchUp": "some"});
    let found = problems(
        "cron",
        &json!({"schedules": [schedule, twice, 5]}),
        &[("key", "s")],
    );
    let expected = [
        "`schedules[0].cron` must be a cron expression",
        "`schedules[0].timeZone` must be the IANA name of a time zone",
        "unknown setting `schedules[0].inptu`",
        "`schedules[0]` needs the setting `input`",
        "`schedules[1].catchUp` must be `none`, `latest`, `all`",
        "`schedules[1]`: duplicate name `a`",
        "`schedules[2]` must be a map, found a number",
        "unknown secret `key`; none exist",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}");
    }
    assert_eq!(
        problems("cron", &json!({}), &[]),
        ["the setting `schedules` is missing"]
    );
    let empty = problems("cron", &json!({"schedules": []}), &[]);
    assert!(empty[0].contains("not empty"), "{empty:?}");
}

#[test]
fn missing_or_misspelled_check_secrets_are_problems() {
    let found = |config: Value, secrets: &[(&str, &str)]| problems("webhook", &config, secrets);
    let no_secret = found(json!({"signature": {}}), &[]);
    assert_eq!(
        no_secret,
        ["`signature` is set, but the secret `hmac` is missing"]
    );
    assert!(found(json!({}), &[("hmac", "")])[0].contains("is empty"));
    let misspelt = found(json!({}), &[("hmca", "swordfish")]);
    assert_eq!(
        misspelt,
        ["unknown secret `hmca`; available: `hmac`, `previousHmac`, `callbackHmac`"]
    );
    assert_eq!(
        problems("telegram", &json!({}), &[]),
        ["the secret `botToken` is missing"]
    );
}

#[test]
fn conn_3_presets_determine_secrets_and_topics() {
    let found = |preset: &str, secrets: &[(&str, &str)]| {
        problems(
            "webhook",
            &json!({"signature": {"preset": preset}}),
            secrets,
        )
    };
    for preset in signatures::PRESET_NAMES {
        let secret = match preset {
            "basic" => "ada:swordfish",
            "svix" | "standard-webhooks" => "whsec_AQIDBA==",
            _ => "swordfish",
        };
        let expected: &[&str] = match preset {
            "sns" => &[
                "`signature` needs the setting `topics`",
                "`hmac` must be absent, because the preset has none, found another text",
            ],
            _ => &[],
        };
        assert_eq!(found(preset, &[("hmac", secret)]), expected, "{preset}");
        let without = found(preset, &[]);
        assert_eq!(without.len(), 1, "{preset}: {without:?}");
    }
    let topics = json!({"signature": {"preset": "sns", "topics": ["arn:aws:sns:eu-west-1:1:t"]}});
    assert_eq!(problems("webhook", &topics, &[]), [""; 0]);
    for (preset, secret, expected) in [
        (
            "basic",
            "swordfish",
            "`hmac` must be `user:password`, found another text",
        ),
        (
            "svix",
            "sword fish",
            "`hmac` must be base64, after an optional `whsec_`",
        ),
    ] {
        let wrong = found(preset, &[("hmac", secret)]).join("\n");
        assert!(
            wrong.contains(expected) && !wrong.contains(secret),
            "{wrong}"
        );
    }
    assert_eq!(
        problems("webhook", &json!({}), &[("previousHmac", "s")]),
        ["the secret `hmac` is missing"]
    );
}

#[test]
fn a_secret_in_the_wrong_place_is_not_repeated() {
    for (connector, config) in [
        ("webhook", json!({"signature": "swordfish"})),
        ("webhook", json!({"signature": {"header": "sword fish"}})),
        ("discord", json!({"publicKey": "swordfish"})),
        ("telegram", json!({"endpoint": "swordfish"})),
        ("telegram", json!({"chats": "swordfish"})),
    ] {
        let found = problems(connector, &config, &[("hmac", "s")]).join("\n");
        assert!(!found.is_empty() && !found.contains("sword"), "{found}");
    }
}

#[test]
fn good_settings_have_no_problem() {
    for (connector, config, secret) in [
        (
            "webhook",
            json!({"host": "::1", "port": "8080", "path": "/hooks/a%20b", "maxBodyBytes": 10,
                "inputField": "comment", "keyField": "/repo/name", "idField": "id",
                "idHeader": "X-Id", "typeHeader": "X-Type",
                "signature": {"preset": "stripe", "header": "X-Sig", "algorithm": "sha512",
                    "prefix": "", "encoding": "base64", "toleranceSeconds": "60",
                    "url": "https://example.com/hook", "topics": ["t"]}}),
            "hmac",
        ),
        (
            "telegram",
            json!({"chats": [-100_123, "7"], "endpoint": "http://127.0.0.1:9/bot", "pollSeconds": 1}),
            "botToken",
        ),
        ("slack", json!({"channels": ["C1"]}), "signingSecret"),
        ("github", json!({"repositories": ["a/b"]}), "webhookSecret"),
        (
            "gitlab",
            json!({"projects": ["a/b", 77], "endpoint": "https://h/api/v4"}),
            "webhookSecret",
        ),
        ("discord", json!({"publicKey": "0a".repeat(32)}), "botToken"),
    ] {
        let found = problems(connector, &config, &[(secret, "s")]);
        assert_eq!(found, [""; 0], "{connector}");
    }
    let schedule = json!({"name": "a", "cron": "*/5 9-17 * * MON-FRI", "timeZone": "Europe/Berlin",
        "input": "x", "instanceKey": "k", "catchUp": "all", "catchUpMax": 3});
    let found = problems("cron", &json!({"schedules": [schedule]}), &[]);
    assert_eq!(found, [""; 0]);
}
