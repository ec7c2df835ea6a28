//! Models on cloud platforms and with the Responses API: the documented examples load, and mistakes
//! are reported (PROV-1).

use std::path::PathBuf;

use goondan_protocol::cloud::CloudPlatform;
use goondan_protocol::definition::{HostedModel, HostedProvider, OpenAiApi};

use crate::support::Project;

const KEY_FILE: &str =
    r#"{"type": "service_account", "client_email": "bot@shop", "private_key": "k"}"#;

/// An agent for each of the models, since a project loads only those that agents use, and a swarm of
/// them.
fn agents(models: &[&str]) -> String {
    let agent = |model: &&str| {
        format!(
            "---\napiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {{name: of-{model}}}\nspec: {{modelConfig: {{modelRef: Model/{model}}}}}\n"
        )
    };
    let members: String = models
        .iter()
        .map(|model| format!(", Agent/of-{model}"))
        .collect();
    let swarm = format!(
        "---\napiVersion: goondan.ai/v1\nkind: Swarm\nmetadata: {{name: all}}\nspec: {{entryAgent: Agent/helper, agents: [Agent/helper{members}]}}\n"
    );
    models.iter().map(agent).collect::<String>() + &swarm
}

fn models(project: &Project) -> Vec<HostedModel> {
    project.load().models.into_values().collect()
}

/// A project with one model that has these fields.
fn project(fields: &str) -> Project {
    Project::with(&format!(
        "apiVersion: goondan.ai/v1\nkind: Model\nmetadata: {{name: big}}\nspec:\n  model: m\n{fields}{}",
        agents(&["big"])
    ))
    .variable("KEY", "k")
    .variable("KEY_FILE", KEY_FILE)
}

#[test]
fn prov_1_documented_examples_of_platforms_load() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/models.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (_, sections) = page.split_once("\n## Responses API\n").unwrap();
    let (sections, _) = sections.split_once("\n## Metadata of a reply\n").unwrap();
    let fences = sections.split("```yaml\n").skip(1);
    let documents: Vec<&str> = fences
        .map(|fence| fence.split("```").next().unwrap())
        .collect();
    assert_eq!(documents.len(), 4);
    let names = ["gpt", "azure", "vertex-claude", "vertex-gemini", "bedrock"];
    let documents = documents.join("---\n") + &agents(&names);
    let project = Project::with(&documents)
        .variable("OPENAI_API_KEY", "sk")
        .variable("VERTEX_ACCESS_TOKEN", "ya29")
        .variable("AWS_ACCESS_KEY_ID", "AKID")
        .variable("AWS_SECRET_ACCESS_KEY", "hush")
        .secret("azure", "apiKey", "azure-key")
        .secret("vertex", "serviceAccount", KEY_FILE);
    let models = models(&project);
    let find = |name: &str| {
        models
            .iter()
            .find(|model| model.name.as_str() == name)
            .unwrap()
    };
    assert_eq!(find("gpt").api, OpenAiApi::Responses);
    assert_eq!(find("gpt").platform, None);
    assert!(matches!(
        &find("azure").platform,
        Some(CloudPlatform::Azure(azure)) if azure.api_version.is_none()
    ));
    let Some(CloudPlatform::Vertex(vertex)) = &find("vertex-claude").platform else {
        panic!("{models:?}");
    };
    assert_eq!(vertex.key().unwrap().unwrap().client_email, "bot@shop");
    assert_eq!(find("vertex-gemini").provider, HostedProvider::Google);
    let Some(CloudPlatform::Bedrock(bedrock)) = &find("bedrock").platform else {
        panic!("{models:?}");
    };
    assert_eq!(bedrock.access_key.as_ref().unwrap().secret, "hush");
}

#[test]
fn prov_1_mistakes_in_platforms_are_reported() {
    let bedrock = "  provider: anthropic\n  bedrock: ";
    let vertex = "  provider: google\n  vertex: ";
    let from = "{valueFrom: {env: KEY}}";
    for (fields, expected) in [
        (
            format!("{bedrock}{{region: us-east-1}}\n"),
            "the platform needs credentials",
        ),
        (
            format!("{bedrock}{{region: us-east-1, accessKeyId: {from}}}\n"),
            "both `accessKeyId` and `secretAccessKey`",
        ),
        (
            format!("{bedrock}{{region: us-east-1, sessionToken: {from}}}\n  apiKey: {from}\n"),
            "both `accessKeyId` and `secretAccessKey`",
        ),
        (
            format!("{bedrock}{{region: evil.example/x}}\n  apiKey: {from}\n"),
            "must consist of letters",
        ),
        (
            format!(
                "{bedrock}{{region: us-east-1, accessKeyId: {from}, secretAccessKey: {from}}}\n  apiKey: {from}\n"
            ),
            "two credentials",
        ),
        (
            format!("{vertex}{{project: p}}\n  apiKey: {from}\n"),
            "location",
        ),
        (
            format!("{vertex}{{project: p, location: global, serviceAccount: {from}}}\n"),
            "must be the key file of a service account",
        ),
        (
            "  provider: openai\n  azure: {}\n  apiKey: {valueFrom: {env: KEY}}\n".to_owned(),
            "needs the `endpoint`",
        ),
        (
            format!(
                "  provider: openai\n  vertex: {{project: p, location: global}}\n  apiKey: {from}\n"
            ),
            "`vertex` does not serve models with the protocol",
        ),
        (
            format!(
                "{bedrock}{{region: us-east-1}}\n  apiKey: {from}\n  vertex: {{project: p, location: global}}\n"
            ),
            "`vertex`",
        ),
    ] {
        let problems = project(&fields).problems();
        assert!(
            problems.iter().any(|problem| problem.contains(expected)),
            "{expected}: {problems:?}"
        );
    }
    let key_file = "{valueFrom: {env: KEY_FILE}}";
    let fields = format!("{vertex}{{project: p, location: global, serviceAccount: {key_file}}}\n");
    assert_eq!(models(&project(&fields)).len(), 1);
}

#[test]
fn prov_1_settings_without_effect_on_an_api_are_reported() {
    let endpoint = "  endpoint: http://127.0.0.1:1/v1\n";
    let warned = |fields: &str| {
        project(&format!("{fields}{endpoint}"))
            .warnings()
            .join("\n")
    };
    let stop = warned("  provider: openai\n  api: responses\n  params: {stop: [x], seed: 1}\n");
    assert!(stop.contains("`stop` has no effect"), "{stop}");
    assert!(stop.contains("`seed` has no effect"), "{stop}");
    let api = warned("  provider: anthropic\n  api: responses\n");
    assert!(api.contains("`api` has no effect"), "{api}");
    let chat = warned("  provider: openai\n  params: {stop: [x]}\n");
    assert!(!chat.contains("no effect"), "{chat}");
}
