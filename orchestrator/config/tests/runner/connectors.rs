//! Every example on the connectors' pages is a valid project.

use serde_json::{Value, json};

use crate::support::Project;

const PAGES: [&str; 12] = [
    include_str!("../../../../docs/connectors.md"),
    include_str!("../../../../docs/connectors/cron.md"),
    include_str!("../../../../docs/connectors/telegram.md"),
    include_str!("../../../../docs/connectors/slack.md"),
    include_str!("../../../../docs/connectors/github.md"),
    include_str!("../../../../docs/connectors/gitlab.md"),
    include_str!("../../../../docs/connectors/discord.md"),
    include_str!("../../../../docs/connectors/email.md"),
    include_str!("../../../../docs/connectors/matrix.md"),
    include_str!("../../../../docs/connectors/otlp.md"),
    include_str!("../../../../docs/connectors/program.md"),
    include_str!("../../../../docs/connectors/relay.md"),
];

#[test]
fn every_example_of_a_connectors_page_loads() {
    for page in PAGES {
        let examples: Vec<&str> = page
            .split("```yaml\n")
            .skip(1)
            .filter_map(|rest| rest.split("```").next())
            .collect();
        assert!(!examples.is_empty());
        for example in examples {
            let mut project = Project::with(example).file("connectors/tail.py", "");
            for variable in [
                "HOOK_SECRET",
                "SLACK_SIGNING_SECRET",
                "SLACK_TOKEN",
                "GITHUB_WEBHOOK_SECRET",
                "GITLAB_WEBHOOK_SECRET",
                "GITLAB_TOKEN",
                "TELEGRAM_TOKEN",
                "OTLP_AUTHORIZATION",
                "RELAY_KEY",
                "MAIL_PASSWORD",
                "MATRIX_TOKEN",
            ] {
                project = project.variable(variable, "s");
            }
            check_by_schema(example);
            let bundle = project.load();
            assert!(!bundle.connections.is_empty() || bundle.local.is_some());
        }
    }
}

fn validator() -> jsonschema::Validator {
    jsonschema::validator_for(&goondan_config::schema(Some("Connection")).unwrap()).unwrap()
}

/// The schema of Connections accepts the example and refuses other forms.
fn check_by_schema(example: &str) {
    let validator = validator();
    for document in example.split("\n---\n") {
        let connection: Value = serde_saphyr::from_str(document).unwrap();
        if connection["kind"] != "Connection" {
            continue;
        }
        let errors: Vec<String> = validator
            .iter_errors(&connection)
            .map(|error| format!("{error} at {}", error.instance_path()))
            .collect();
        assert_eq!(errors, Vec::<String>::new(), "{document}");
        let is_builtin = connection["spec"]["connectorRef"]["package"] == "@goondan/base";
        let mut misnamed = connection.clone();
        misnamed["spec"]["config"]["surplus"] = json!(1);
        let name = connection["spec"]["connectorRef"]["name"].as_str();
        let is_known =
            is_builtin && name.is_some_and(|name| goondan_connectors::find(name).is_some());
        assert_eq!(validator.is_valid(&misnamed), !is_known, "{misnamed}");
    }
}

#[test]
fn schema_has_the_settings_of_each_connector() {
    let validator = validator();
    for connector in goondan_connectors::BUILTINS {
        let connection = |config: &Value, secrets: &Value| {
            let reference =
                json!({"kind": "Connector", "name": connector.name, "package": "@goondan/base"});
            json!({
                "apiVersion": "goondan.ai/v1", "kind": "Connection", "metadata": {"name": "c"},
                "spec": {"connectorRef": reference, "config": config, "secrets": secrets},
            })
        };
        let needs_something = connector.one_of.is_some()
            || connector.settings.iter().any(|setting| setting.is_required)
            || connector.secrets.iter().any(|secret| secret.is_required);
        let bare = connection(&json!({}), &json!({}));
        assert_eq!(
            validator.is_valid(&bare),
            !needs_something,
            "{}",
            connector.name
        );
        for secret in connector.secrets {
            let misplaced = connection(&json!({secret.name: "s"}), &json!({}));
            assert!(!validator.is_valid(&misplaced), "{}", connector.name);
        }
    }
}
