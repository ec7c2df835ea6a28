//! A model whose calls fail until a person acts is shown, not only in each failed turn (`PROV-1`).

use goondan_tests::provider::{Provider, ProviderResponse, openai_saying};
use goondan_tests::{Daemon, Home};
use serde_json::json;

const WRONG_KEY: &str = "key-that-was-revoked-1234";
const RIGHT_KEY: &str = "key-that-is-accepted-5678";

fn home(provider: &Provider) -> Home {
    let home = Home::new(&format!(
        r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: voice}}
spec: {{provider: openai, model: m, endpoint: "{}", apiKey: {{valueFrom: {{env: VOICE_KEY}}}}}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: clerk}}
spec: {{modelConfig: {{modelRef: Model/voice}}}}
"#,
        provider.endpoint()
    ));
    home.write("project/.env", &format!("VOICE_KEY={WRONG_KEY}\n"));
    home
}

#[test]
fn prov_1_a_key_that_stays_rejected_is_shown_with_what_to_do() {
    let provider = Provider::start(|received| {
        let is_right = received
            .header("authorization")
            .is_some_and(|header| header.ends_with(RIGHT_KEY));
        match is_right {
            true => ProviderResponse::stream(&openai_saying(&["Hello."])),
            false => {
                let message = format!("wrong key {WRONG_KEY}");
                ProviderResponse::error(401, &json!({"error": {"message": message}}))
            }
        }
    });
    let home = home(&provider);
    let daemon = Daemon::serving(&home);
    for _ in 0..3 {
        let turn = home.gdn(&["send", "Hi."]).exits(7);
        turn.tells(&["E_MODEL_UNAUTHORIZED"]);
    }
    // The model, the count, the time, the reason, the credential and the next command.
    let expected = [
        "model voice: 3 calls in a row failed in ",
        "answered 401",
        "check the `apiKey` of Model `voice`",
        "config show",
    ];
    for command in ["status", "ps"] {
        let shown = home.gdn(&[command]).exits(16).tells(&expected);
        assert!(!shown.stderr.contains(WRONG_KEY), "{shown:?}");
    }
    let ps = home.ps();
    let model = ps.iter().find(|process| process["role"] == "model");
    let detail = model.unwrap()["detail"].as_str().unwrap();
    assert!(
        detail.starts_with("3 calls in a row failed since 2"),
        "{detail}"
    );
    let doctor = home.gdn(&["--json", "doctor"]).stdout;
    assert!(doctor.contains(expected[0]), "{doctor}");
    // It is logged once.
    let logged = daemon
        .log()
        .saying("calls to a model fail until a person acts");
    assert_eq!(logged.len(), 1);

    home.write("project/.env", &format!("VOICE_KEY={RIGHT_KEY}\n"));
    home.gdn(&["reload"]).exits(0);
    home.gdn(&["status"]).exits(0);
    assert_eq!(home.ask("main", "Hi."), "Hello.");
    let status = home.gdn(&["status"]).exits(0);
    assert!(!status.stderr.contains("model voice"), "{status:?}");
    daemon.stop();
}
