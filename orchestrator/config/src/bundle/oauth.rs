//! Tokens that resources request from applications, and the implicit connection that obtains them
//! (`SYS-4`).

use std::collections::{BTreeMap, BTreeSet};

use goondan_protocol::JsonObject;
use goondan_protocol::ids::{ConnectionName, OAuthSubject, ResourceName};
use goondan_protocol::oauth::{ClientAuth, Endpoints, OAUTH, OAuthApp, OAuthNeed};
use goondan_protocol::process_limits::ProcessLimits;
use goondan_protocol::sandbox::SandboxPolicy;
use serde_json::Value;

use crate::ConnectionDefinition;
use crate::asked_token::TokenRequest;
use crate::codes;
use crate::fields::LocatedValue;
use crate::kinds::Resources;
use crate::kinds::connection::{ConnectionSpec, MCP};
use crate::kinds::oauth_app::{check_url, is_same_address};
use crate::report::{Problem, ProblemReport};

/// The applications, by name.
pub(super) fn apps_of(resources: &Resources) -> BTreeMap<ResourceName, OAuthApp> {
    let apps = resources.oauth_apps.values();
    apps.map(|app| (app.name.clone(), app.clone())).collect()
}

/// The requested tokens. Reports requests to missing applications, and requests with a missing or
/// unnecessary subject.
pub(super) fn resolve_needs(
    resources: &Resources,
    report: &mut ProblemReport,
) -> BTreeSet<OAuthNeed> {
    let asked = resources.asked_tokens.iter();
    asked
        .filter_map(|asked| resolve_need(asked, resources, report))
        .collect()
}

fn resolve_need(
    asked: &TokenRequest,
    resources: &Resources,
    report: &mut ProblemReport,
) -> Option<OAuthNeed> {
    resources.names.check(&asked.app, report)?;
    let app = resources.oauth_apps.get(asked.app.name.as_str())?;
    match (&asked.subject, app.per_user) {
        (None, true) => {
            let message = format!("OAuthApp `{}` has one token per subject", app.name);
            let problem = Problem::new(codes::MISSING_FIELD, asked.app.place, message);
            report.add(problem.help("choose a subject: `subject: NAME`"));
            None
        }
        (Some(subject), false) => {
            let message = format!("OAuthApp `{}` has one shared token", app.name);
            let problem = Problem::new(codes::INVALID_VALUE, subject.place, message);
            report.add(
                problem.help("remove `subject`, or write `subjectMode: user` in the OAuthApp"),
            );
            None
        }
        (subject, _) => Some(OAuthNeed {
            app: app.name.clone(),
            subject: subject
                .as_ref()
                .map_or_else(OAuthSubject::global, |subject| subject.value.clone()),
        }),
    }
}

/// Adds a token to connections with `auth: oauth`: from the application of the same name, whose
/// tokens must be valid for the server at `url`, or from an application created for it.
pub(super) fn authorize(
    connections: &mut BTreeMap<ConnectionName, ConnectionDefinition>,
    apps: &mut BTreeMap<ResourceName, OAuthApp>,
    needs: &mut BTreeSet<OAuthNeed>,
    resources: &Resources,
    report: &mut ProblemReport,
) {
    for written in &resources.connections {
        let Some(definition) = connections.get_mut(&written.value.name) else {
            continue;
        };
        let is_mcp = definition.entry.is_none() && definition.connector.as_str() == MCP;
        let says = definition.config.get(AUTH).and_then(Value::as_str);
        if !is_mcp || says != Some(OAUTH) {
            continue;
        }
        let Some(app) = app_for(written, apps, report) else {
            continue;
        };
        let need = OAuthNeed {
            app: app.name.clone(),
            subject: OAuthSubject::global(),
        };
        let token = need.placeholder();
        definition.secrets.insert(TOKEN.to_owned(), token);
        apps.insert(app.name.clone(), app);
        needs.insert(need);
    }
}

/// Setting of an MCP server that selects its login.
const AUTH: &str = "auth";
/// Secret that contains the token of such a server.
const TOKEN: &str = "token";

fn app_for(
    written: &LocatedValue<ConnectionSpec>,
    apps: &BTreeMap<ResourceName, OAuthApp>,
    report: &mut ProblemReport,
) -> Option<OAuthApp> {
    let spec = &written.value;
    let mut refuse = |message: String, help: &str| {
        let problem = Problem::new(codes::INVALID_VALUE, spec.written.place_of(AUTH), message);
        report.add(problem.help(help));
    };
    if spec.secrets.contains_key(TOKEN) {
        let message = "`auth: oauth` conflicts with `secrets.token`".to_owned();
        refuse(message, "remove one of the two");
        return None;
    }
    let Some(url) = spec.config.get("url").and_then(Value::as_str) else {
        let message = "`auth: oauth` requires a server with a `url`".to_owned();
        refuse(message, "remove it; pass credentials to a program in `env`");
        return None;
    };
    let starts_well = |c: char| c.is_ascii_alphanumeric();
    let name = spec.name.as_str().parse::<ResourceName>().ok();
    let name = name.filter(|name| name.as_str().starts_with(starts_well));
    let Some(name) = name else {
        let message = format!("`{}` is not a valid OAuthApp name", spec.name);
        refuse(
            message,
            "give the Connection a name that begins with a letter or a digit",
        );
        return None;
    };
    if let Some(app) = apps.get(&name) {
        return match why_not_for(app, url) {
            None => Some(app.clone()),
            Some((message, help)) => {
                refuse(message, &help);
                None
            }
        };
    }
    let url = LocatedValue {
        value: url,
        place: spec.written.place_of("url"),
    };
    check_url("url", &url, report).then(|| OAuthApp {
        name,
        issuer: None,
        endpoints: Endpoints::default(),
        resource: Some(url.value.to_owned()),
        client_id: None,
        client_secret: None,
        client_auth: ClientAuth::None,
        scopes: Vec::new(),
        wider_scopes: Vec::new(),
        redirect_uri: None,
        per_user: false,
        params: BTreeMap::new(),
    })
}

/// Reason why the tokens of a configured application cannot be used for the server at `url`, with a
/// suggestion; `None` if they can.
fn why_not_for(app: &OAuthApp, url: &str) -> Option<(String, String)> {
    let name = &app.name;
    if app.per_user {
        let message = format!("OAuthApp `{name}` has one token per subject");
        let help =
            "choose a subject: `secrets: {token: {valueFrom: {oauth: {app: …, subject: …}}}}`";
        return Some((message, help.to_owned()));
    }
    let resource = app.resource.as_ref();
    if resource.is_some_and(|resource| is_same_address(resource, url)) {
        return None;
    }
    let message =
        format!("OAuthApp `{name}` does not declare this server as the `resource` of its tokens");
    let help =
        format!("write `resource: {url}` in that OAuthApp, or give the Connection another name");
    Some((message, help))
}

/// Adds the connection to authorization servers if there is an application.
pub(super) fn add(
    apps: &BTreeMap<ResourceName, OAuthApp>,
    connections: &mut BTreeMap<ConnectionName, ConnectionDefinition>,
    resources: &Resources,
    report: &mut ProblemReport,
) {
    let (Ok(name), Ok(connector)) = (OAUTH.parse::<ConnectionName>(), OAUTH.parse()) else {
        return;
    };
    if apps.is_empty() {
        return;
    }
    let taken = resources
        .connections
        .iter()
        .find(|it| it.value.name == name);
    if let Some(taken) = taken {
        let message = format!(
            "the name of Connection `{name}` is reserved for the process that connects to authorization servers"
        );
        let problem = Problem::new(codes::DUPLICATE_RESOURCE, taken.place, message);
        report.add(problem.help("give it another name"));
        return;
    }
    let oauth = ConnectionDefinition {
        name: name.clone(),
        connector,
        entry: None,
        entry_digest: None,
        config: JsonObject::new(),
        secrets: BTreeMap::new(),
        rules: Vec::new(),
        header: None,
        keeps_payload: true,
        limits: ProcessLimits::default(),
        sandbox: SandboxPolicy::default(),
        egress: Vec::new(),
    };
    connections.insert(name, oauth);
}
