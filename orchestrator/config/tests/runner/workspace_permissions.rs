//! Permissions that a person gives a project of the older contract (`COMPAT-2`, `SEC-3`), or for
//! servers that are downloaded (`PROV-1`).

use std::path::PathBuf;

use goondan_config::{LoadResult, PermissionState};
use goondan_protocol::control::{PermissionDecision, WorkspacePermission};
use goondan_protocol::sandbox::Network;
use serde_json::json;

use crate::support::Project;

const BUNDLE: &str = r#"
apiVersion: goondan.ai/v1
kind: Package
metadata: {name: "@acme/desk"}
spec:
  dependencies: [{name: "@goondan/base", version: "^0.0.3-alpha29"}]
---
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec: {provider: scripted, options: {rules: [{say: Hello}]}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: clerk}
spec:
  modelConfig: {modelRef: Model/main}
  tools: [{ref: Tool/file-system}, {ref: Tool/bash}]
---
apiVersion: goondan.ai/v1
kind: Connector
metadata: {name: bell}
spec:
  entry: ./connectors/bell.mjs
  events: [{name: rang}]
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: bell}
spec:
  connectorRef: Connector/bell
  ingress:
    rules: [{match: {event: rang}, route: {agentRef: Agent/clerk}}]
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: desk}
spec: {entryAgent: Agent/clerk, agents: [{ref: Agent/clerk}]}
"#;

fn project() -> Project {
    Project::new(BUNDLE).file("connectors/bell.mjs", "import './lib/x.mjs';\n")
}

fn decision(permission: &str, allowed: bool, covers: &[&str]) -> PermissionDecision {
    serde_json::from_value(json!({
        "permission": permission, "workspaceId": "w-1", "projectRoot": "/p", "allowed": allowed,
        "covers": covers, "decidedAt": "2026-11-22T21:00:00.000Z",
    }))
    .unwrap()
}

fn load(project: &Project, decisions: &[PermissionDecision]) -> LoadResult {
    let loader = project.loader().with_decisions(decisions);
    loader.load(&project.root())
}

fn state(found: &LoadResult, permission: WorkspacePermission) -> Option<PermissionState> {
    let mut all = found.permissions.iter();
    let found = all.find(|request| request.permission == permission);
    found.map(|request| request.state)
}

const FILES: [&str; 2] = ["connectors/bell.mjs", "goondan.yaml"];

#[test]
fn compat_2_nothing_is_granted_without_a_persons_decision() {
    for decisions in [
        vec![],
        vec![
            decision("project", false, &FILES),
            decision("network", false, &["bell"]),
        ],
    ] {
        let found = load(&project(), &decisions);
        let config = found.bundle.as_ref().unwrap();
        let clerk = config.agents.values().next().unwrap();
        assert_eq!(clerk.project_work, None);
        let bell = config.connections.values().next().unwrap();
        assert_eq!(bell.sandbox.network, Network::None);
        let expected = match decisions.is_empty() {
            true => (PermissionState::Undecided, 2),
            false => (PermissionState::Denied, 0),
        };
        for permission in [WorkspacePermission::Project, WorkspacePermission::Network] {
            assert_eq!(state(&found, permission), Some(expected.0), "{permission}");
        }
        assert_eq!(config.undecided_permissions.len(), expected.1);
    }
}

#[test]
fn compat_2_allowed_permissions_are_granted_to_what_they_cover() {
    let decisions = [
        decision("project", true, &FILES),
        decision("network", true, &["bell"]),
    ];
    let config = load(&project(), &decisions).bundle.unwrap();
    let clerk = config.agents.values().next().unwrap();
    let work = clerk.project_work.as_ref().unwrap();
    assert_eq!(work.protected, FILES.map(PathBuf::from));
    let bell = config.connections.values().next().unwrap();
    assert_eq!(bell.sandbox.network, Network::Any);
    assert_eq!(config.undecided_permissions, []);

    // Another connection needs another decision.
    let config = load(&project(), &[decision("network", true, &["other"])]);
    assert_eq!(
        state(&config, WorkspacePermission::Network),
        Some(PermissionState::Undecided)
    );
    let config = config.bundle.unwrap();
    let bell = config.connections.values().next().unwrap();
    assert_eq!(bell.sandbox.network, Network::None);
}

#[test]
fn sec_3_later_files_are_refused_until_a_person_reviews_them() {
    let allowed = [decision("project", true, &FILES)];
    let model = "apiVersion: goondan.ai/v1\nkind: Model\nmetadata: {name: evil}\n\
                 spec: {provider: scripted, options: {rules: [{say: evil}]}}\n";
    for (path, text) in [
        ("out/model.yaml", model),
        (".env", "A=b\n"),
        ("connectors/lib/x.mjs", "export {};\n"),
    ] {
        let found = load(&project().file(path, text), &allowed);
        let problems = found.bundle.unwrap_err();
        let codes: Vec<&str> = problems.as_slice().iter().map(|it| it.code).collect();
        assert_eq!(codes, ["E_CONFIG_PERMISSION_OUTGROWN"], "{path}");
        assert!(problems.to_string().contains(path), "{problems}");
        let request = &found.permissions[0];
        assert_eq!(request.state, PermissionState::Undecided);
        assert_eq!(request.added, [path.to_owned()].into());
        let covers: Vec<&str> = request.covers.iter().map(String::as_str).collect();
        let again = [decision("project", true, &covers)];
        assert!(load(&project().file(path, text), &again).bundle.is_ok());
    }
    // A link cannot be protected.
    let linked = project()
        .file("real.yaml", model)
        .link("out/model.yaml", "../real.yaml");
    assert!(load(&linked, &allowed).bundle.is_err());
    assert!(
        load(&linked, &[])
            .permissions
            .iter()
            .all(|request| { request.permission != WorkspacePermission::Project })
    );
}

#[test]
fn compat_2_projects_of_the_current_contract_request_nothing() {
    let modern = "apiVersion: goondan.ai/v1\nkind: Connector\nmetadata: {name: http}\nspec: {entry: connectors/http.py}\n";
    let project = Project::with(modern).file("connectors/http.py", "");
    assert_eq!(load(&project, &[]).permissions, []);
}

const SERVER: &str = r#"
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: files}
spec:
  connectorRef: {kind: Connector, name: mcp, package: "@goondan/base"}
  config: {command: [npx, -y, '@a/b', docs]}
"#;

fn network_of_server(found: &LoadResult) -> Network {
    let connections = found.bundle.as_ref().unwrap().connections.values();
    let mut servers = connections.filter(|it| it.name.as_str() == "files");
    servers.next().unwrap().sandbox.network.clone()
}

fn reaching(hosts: &[&str]) -> Network {
    Network::Allow(hosts.iter().map(|host| host.parse().unwrap()).collect())
}

#[test]
fn prov_1_servers_reach_their_registry_once_a_person_allows_it() {
    let project = Project::with(SERVER);
    let undecided = load(&project, &[]);
    let request = &undecided.permissions[0];
    assert_eq!(request.permission, WorkspacePermission::Packages);
    assert_eq!(request.state, PermissionState::Undecided);
    let cover = request.covers.first().unwrap().clone();
    assert!(cover.starts_with("files: npx -y @a/b #"), "{cover}");
    assert_eq!(network_of_server(&undecided), Network::None);
    let config = undecided.bundle.as_ref().unwrap();
    assert_eq!(
        config.undecided_permissions,
        [WorkspacePermission::Packages]
    );

    let allowed = [decision("packages", true, &[&cover])];
    let found = load(&project, &allowed);
    assert_eq!(network_of_server(&found), reaching(&["registry.npmjs.org"]));
    let config = found.bundle.as_ref().unwrap();
    assert_eq!(config.undecided_permissions, []);
    // The sandbox reaches it through the egress.
    assert!(config.connections.values().any(|it| !it.egress.is_empty()));

    let denied = load(&project, &[decision("packages", false, &[&cover])]);
    assert_eq!(network_of_server(&denied), Network::None);
    assert_eq!(denied.permissions[0].state, PermissionState::Denied);

    // A changed argument is another command, which no person has seen.
    let changed = load(&Project::with(&SERVER.replace("docs", "/")), &allowed);
    assert_eq!(network_of_server(&changed), Network::None);
    let request = &changed.permissions[0];
    assert_eq!(request.state, PermissionState::Undecided);
    assert_eq!(request.added, request.covers);
}

#[test]
fn prov_1_only_servers_that_lack_their_registry_request_it() {
    let with = |settings: &str| Project::with(&SERVER.replace("  config:", settings));
    let listed = with("  sandbox: {network: {allow: [api.example.org]}}\n  config:");
    let undecided = load(&listed, &[]);
    assert_eq!(
        network_of_server(&undecided),
        reaching(&["api.example.org"])
    );
    let cover = undecided.permissions[0].covers.first().unwrap().clone();
    let found = load(&listed, &[decision("packages", true, &[&cover])]);
    let both = reaching(&["api.example.org", "registry.npmjs.org"]);
    assert_eq!(network_of_server(&found), both);

    let other = SERVER.replace("docs]", "docs], env: {npm_config_registry: 'https://h'}");
    for project in [
        with("  sandbox: {network: any}\n  config:"),
        with("  sandbox: {network: {allow: [registry.npmjs.org]}}\n  config:"),
        with("  sandbox: {require: landlock}\n  config:"),
        with("  sandbox: {require: 'off'}\n  config:"),
        Project::with(SERVER).file("node_modules/@a/b/package.json", "{}"),
        Project::with(&SERVER.replace("npx", "node")),
        Project::with(&other),
    ] {
        assert_eq!(load(&project, &[]).permissions, []);
    }
}
