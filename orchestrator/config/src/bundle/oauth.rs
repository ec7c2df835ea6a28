//! Who asks for tokens of which application, and the connection that gets them: one that nobody writes
//! (`SYS-4`).

use std::collections::{BTreeMap, BTreeSet};

use goondan_protocol::JsonObject;
use goondan_protocol::ids::{ConnectionName, OAuthSubject, ResourceName};
use goondan_protocol::oauth::{OAUTH, OAuthApp, OAuthNeed};
use goondan_protocol::process_limits::ProcessLimits;
use goondan_protocol::sandbox::SandboxPolicy;

use crate::ConnectionDefinition;
use crate::asked_token::AskedToken;
use crate::codes;
use crate::kinds::Resources;
use crate::report::{Problem, Report};

/// The applications, by their names.
pub(super) fn apps_of(resources: &Resources) -> BTreeMap<ResourceName, OAuthApp> {
    let apps = resources.oauth_apps.values();
    apps.map(|app| (app.name.clone(), app.clone())).collect()
}

/// The tokens that are asked for. Reports those of applications that are not there or that want to know of
/// whom.
pub(super) fn resolve_needs(resources: &Resources, report: &mut Report) -> BTreeSet<OAuthNeed> {
    let asked = resources.asked_tokens.iter();
    asked
        .filter_map(|asked| resolve_need(asked, resources, report))
        .collect()
}

fn resolve_need(
    asked: &AskedToken,
    resources: &Resources,
    report: &mut Report,
) -> Option<OAuthNeed> {
    resources.names.check(&asked.app, report)?;
    let app = resources.oauth_apps.get(asked.app.name.as_str())?;
    match (&asked.subject, app.per_user) {
        (None, true) => {
            let message = format!("OAuthApp `{}` has a token for each subject", app.name);
            let problem = Problem::new(codes::MISSING_FIELD, asked.app.place, message);
            report.add(problem.help("say whose is meant: `subject: NAME`"));
            None
        }
        (Some(subject), false) => {
            let message = format!("OAuthApp `{}` has one token for all", app.name);
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

/// Adds the connection that asks authorization servers, if there is an application.
pub(super) fn add(
    apps: &BTreeMap<ResourceName, OAuthApp>,
    connections: &mut BTreeMap<ConnectionName, ConnectionDefinition>,
    resources: &Resources,
    report: &mut Report,
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
            "Connection `{name}` has the name of the process that asks authorization servers"
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
        limits: ProcessLimits::default(),
        sandbox: SandboxPolicy::default(),
        egress: Vec::new(),
    };
    connections.insert(name, oauth);
}
