//! MCP servers that require a login, configured in one line.

use goondan_protocol::ids::OAuthSubject;
use goondan_protocol::oauth::OAuthNeed;

use crate::support::Project;

fn connection(name: &str, config: &str) -> String {
    format!(
        "apiVersion: goondan.ai/v1\nkind: Connection\nmetadata: {{name: {name}}}\nspec:\n  connectorRef: {{kind: \
         Connector, name: mcp, package: \"@goondan/base\"}}\n  config: {config}\n"
    )
}

#[test]
fn sys_4_one_auth_line_gives_a_server_its_application_and_token() {
    let one = connection("one", "{url: \"https://one.example/mcp\", auth: oauth}");
    let two = connection("two", "{url: \"https://two.example/mcp\", auth: oauth}");
    let written = "apiVersion: goondan.ai/v1\nkind: OAuthApp\nmetadata: {name: two}\nspec: {resource: \
                   \"https://two.example/mcp\", clientId: mine}\n";
    let bundle = Project::with(&format!("{one}---\n{two}---\n{written}")).load();
    for (name, client_id) in [("one", None), ("two", Some("mine"))] {
        let app = &bundle.oauth_apps[&name.parse().unwrap()];
        assert_eq!(app.resource, Some(format!("https://{name}.example/mcp")));
        assert_eq!(app.client_id.as_deref(), client_id);
        let need = OAuthNeed {
            app: app.name.clone(),
            subject: OAuthSubject::global(),
        };
        assert_eq!(
            bundle.connections[&name.parse().unwrap()].secrets["token"],
            need.placeholder()
        );
        assert!(bundle.oauth_needs.contains(&need));
    }
    assert!(bundle.connections.contains_key(&"oauth".parse().unwrap()));
}

#[test]
fn sys_4_a_login_at_a_server_that_cannot_have_one_is_a_problem() {
    let problem = |document: &str| {
        let problems = Project::with(document).problems();
        assert_eq!(problems.len(), 1, "{problems:?}");
        problems.concat()
    };
    for (config, expected) in [
        (
            "{command: [/bin/true], auth: oauth}",
            "requires a server with a `url`",
        ),
        (
            "{url: \"http://one.example/mcp\", auth: oauth}",
            "`url` must be an `https` URL",
        ),
        (
            "{url: \"https://one.example/mcp\", auth: basic}",
            "config.auth",
        ),
    ] {
        let found = problem(&connection("one", config));
        assert!(found.contains(expected), "{found}");
    }
    let both = connection("one", "{url: \"https://one.example/mcp\", auth: oauth}")
        + "  secrets: {token: {valueFrom: {env: KEY}}}\n";
    let found = Project::with(&both)
        .variable("KEY", "value-of-it")
        .problems();
    assert!(
        found.concat().contains("conflicts with `secrets.token`"),
        "{found:?}"
    );
    let per_user = "apiVersion: goondan.ai/v1\nkind: OAuthApp\nmetadata: {name: one}\nspec: {resource: \
                    \"https://one.example/mcp\", subjectMode: user}\n";
    let one = connection("one", "{url: \"https://one.example/mcp\", auth: oauth}");
    let found = problem(&format!("{one}---\n{per_user}"));
    assert!(found.contains("has one token per subject"), "{found}");
    let nobody = "apiVersion: goondan.ai/v1\nkind: OAuthApp\nmetadata: {name: one}\nspec: {issuer: \
                  \"https://as.example\"}\n";
    let found = problem(nobody);
    assert!(found.contains("clientId"), "{found}");
}

#[test]
fn sys_4_login_uses_a_same_named_app_only_for_its_own_server() {
    let with = |app: &str| {
        let one = connection("one", "{url: \"https://one.example/mcp\", auth: oauth}");
        let app = format!(
            "apiVersion: goondan.ai/v1\nkind: OAuthApp\nmetadata: {{name: one}}\nspec: {{clientId: mine, {app}}}\n"
        );
        Project::with(&format!("{one}---\n{app}"))
    };
    for good in [
        "https://one.example/mcp",
        "https://one.example/mcp/",
        "https://ONE.example:443/mcp",
    ] {
        let bundle = with(&format!("resource: \"{good}\"")).load();
        assert_eq!(bundle.oauth_needs.len(), 1, "{good}");
    }
    for other in [
        "issuer: \"https://as.example\"",
        "resource: \"https://two.example/mcp\"",
        "resource: \"https://one.example/\"",
        "resource: \"https://one.example/mcp?tenant=2\"",
        "resource: \"https://one.example:8443/mcp\"",
    ] {
        let problems = with(other).problems();
        assert_eq!(problems.len(), 1, "{problems:?}");
        let found = problems.concat();
        assert!(found.contains("does not declare this server"), "{found}");
    }
}

#[test]
fn sys_4_secret_needs_an_application_and_resource_has_own_field() {
    let problem = |spec: &str| {
        let app = format!(
            "apiVersion: goondan.ai/v1\nkind: OAuthApp\nmetadata: {{name: one}}\nspec: {{resource: \
             \"https://one.example/mcp\", {spec}}}\n"
        );
        let problems = Project::with(&app)
            .variable("KEY", "value-of-it")
            .problems();
        assert_eq!(problems.len(), 1, "{problems:?}");
        problems.concat()
    };
    let found = problem("clientSecret: {valueFrom: {env: KEY}}");
    assert!(found.contains("requires a `clientId`"), "{found}");
    let found = problem("params: {resource: \"https://one.example/mcp\"}");
    assert!(
        found.contains("`resource` is reserved: goondan sets it"),
        "{found}"
    );
}
