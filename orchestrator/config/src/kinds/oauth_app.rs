//! `kind: OAuthApp`: an application at an authorization server, whose tokens other resources
//! request by `valueFrom: {oauth: {app: OAuthApp/name}}` (`SYS-4`).

use std::collections::BTreeMap;

use goondan_protocol::ids::ResourceName;
use goondan_protocol::oauth::{ClientAuth, Endpoints, OAuthApp};
use goondan_protocol::secret::SecretValue;

use super::{Context, id, value};
use crate::codes;
use crate::document::Document;
use crate::fields::{Fields, LocatedValue};
use crate::kind::ResourceKind;
use crate::report::{Problem, ProblemReport};
use crate::shape::{Field, FieldConstraint, FieldDefault, FieldType, Shape};

impl ResourceKind {
    pub(crate) const OAUTH_APP: Self = Self::named("OAuthApp");
}

/// One shared token.
const GLOBAL: &str = "global";
/// One token per person.
const USER: &str = "user";

/// Parameters that every authorization request already contains.
const OWN_PARAMS: [&str; 8] = [
    "resource",
    "response_type",
    "client_id",
    "redirect_uri",
    "scope",
    "state",
    "code_challenge",
    "code_challenge_method",
];

/// Shape of an `OAuthApp`'s `spec`.
pub(crate) static SPEC: Shape = Shape::of(
    "OAuthAppSpec",
    "An application at an authorization server. People log in with `gdn secret oauth login`; tokens are \
     renewed automatically.",
    &[
        Field::optional(
            "issuer",
            FieldType::Text,
            "The authorization server, which publishes its endpoints (RFC 8414).",
        ),
        Field::optional(
            "authorizationEndpoint",
            FieldType::Text,
            "Authorization endpoint, if the server does not publish it.",
        ),
        Field::optional(
            "tokenEndpoint",
            FieldType::Text,
            "Token endpoint, if the server does not publish it.",
        ),
        Field::optional(
            "revocationEndpoint",
            FieldType::Text,
            "Revocation endpoint, if the server does not publish it.",
        ),
        Field::optional(
            "deviceAuthorizationEndpoint",
            FieldType::Text,
            "Device authorization endpoint, if the server does not publish it.",
        ),
        Field::optional(
            "resource",
            FieldType::Text,
            "The server that accepts the tokens (RFC 8707), such as an MCP server. Without \
             `issuer`, this server names its authorization server (RFC 9728).",
        ),
        Field::optional(
            "clientId",
            FieldType::Text,
            "The application's id from the server, or the URL of the application's metadata document.",
        )
        .or(FieldDefault::Meaning("with `resource`, the application is registered automatically (RFC 7591)")),
        Field::optional(
            "clientSecret",
            FieldType::Secret,
            "The application's secret, if the server issued one.",
        ),
        Field::optional(
            "clientAuth",
            FieldType::Word(&ClientAuth::WORDS),
            "The way the application authenticates: with the header `Authorization`, with form \
             fields, or with its id only.",
        )
        .or(FieldDefault::Meaning("`basic` with a secret, `none` without")),
        Field::optional("scopes", FieldType::List(&FieldType::Text), "The scopes it requests."),
        Field::optional(
            "widerScopes",
            FieldType::List(&FieldType::Text),
            "Additional scopes that a person may be asked for when a server rejects a token because of missing scopes.",
        )
        .or(FieldDefault::Meaning("none if `scopes` is set, else the scopes that the server names")),
        Field::optional(
            "redirectUri",
            FieldType::Text,
            "Redirect URL, exactly as registered at the server.",
        )
        .or(FieldDefault::Meaning("a free port of this machine: `http://127.0.0.1:PORT/callback`")),
        Field::optional(
            "subjectMode",
            FieldType::Word(&[GLOBAL, USER]),
            "One shared token, or one token per named subject.",
        )
        .or(FieldDefault::Text(GLOBAL)),
        Field::optional(
            "params",
            FieldType::Entries(&FieldType::Text),
            "Additional fields of the authorization request, such as `access_type: offline`.",
        ),
    ],
)
.with(&[
    FieldConstraint::AnyOf(
        &["issuer", "tokenEndpoint", "resource"],
        "set the server: `issuer: https://login.example.org`",
    ),
    FieldConstraint::AnyOf(
        &["clientId", "resource"],
        "set the application's id from the server: `clientId: ID`",
    ),
]);

/// Suggestion for a client secret without a client id.
const SECRET_HELP: &str = "write the `clientId` that belongs to it, or remove it";

/// Reads an `OAuthApp` document.
pub(crate) fn read(document: &Document<'_>, cx: &mut Context<'_>) -> Option<OAuthApp> {
    let name = read_name(&document.name, &mut cx.report);
    let mut spec = document.spec(&mut cx.report)?;
    let mut url = |name: &'static str, cx: &mut Context<'_>| {
        let written = spec.text(name, &mut cx.report)?;
        check_url(name, &written, &mut cx.report).then(|| written.value.to_owned())
    };
    let issuer = url("issuer", cx);
    let resource = url("resource", cx);
    let endpoints = Endpoints {
        authorization: url("authorizationEndpoint", cx),
        token: url("tokenEndpoint", cx),
        revocation: url("revocationEndpoint", cx),
        device_authorization: url("deviceAuthorizationEndpoint", cx),
    };
    let redirect_uri = url("redirectUri", cx);
    let client_id = spec.text("clientId", &mut cx.report);
    let has_secret = spec.has("clientSecret");
    let secret_place = spec.place_of("clientSecret");
    let client_secret = value::read_secret(&mut spec, "clientSecret", cx);
    if let (Some(place), None) = (secret_place, &client_id) {
        let message = "`clientSecret` requires a `clientId`";
        let problem = Problem::new(codes::INVALID_VALUE, place, message);
        cx.report.add(problem.help(SECRET_HELP));
    }
    let client_auth = read_auth(&mut spec, has_secret, cx);
    let scopes = spec.texts("scopes", &mut cx.report);
    let wider_scopes = spec.texts("widerScopes", &mut cx.report);
    let subject_mode = spec.word("subjectMode", &mut cx.report);
    let params = read_params(&mut spec, cx);
    spec.close();
    Some(OAuthApp {
        name: name?,
        issuer,
        endpoints,
        resource,
        client_id: client_id.map(|id| id.value.to_owned()),
        client_secret: client_secret.map(SecretValue::new),
        client_auth,
        scopes: scopes.iter().map(|scope| scope.value.to_owned()).collect(),
        wider_scopes: wider_scopes
            .iter()
            .map(|scope| scope.value.to_owned())
            .collect(),
        redirect_uri,
        per_user: subject_mode.is_some_and(|mode| mode.value == USER),
        params,
    })
}

/// Checks the name, which is also used as a directory name.
fn read_name(name: &LocatedValue<&str>, report: &mut ProblemReport) -> Option<ResourceName> {
    let read = id::<ResourceName>(name, report)?;
    if read
        .as_str()
        .starts_with(|c: char| c.is_ascii_alphanumeric())
    {
        return Some(read);
    }
    let message = "the name of an OAuthApp must begin with a letter or a digit";
    let problem = Problem::new(codes::INVALID_VALUE, name.place, message);
    report.add(problem.help("choose another name"));
    None
}

/// Checks that tokens may be sent to a URL: it uses TLS or a loopback address.
pub(crate) fn check_url(
    name: &str,
    written: &LocatedValue<&str>,
    report: &mut ProblemReport,
) -> bool {
    let (scheme, rest) = written.value.split_once("://").unwrap_or(("", ""));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let is_here = matches!(host, "127.0.0.1" | "localhost" | "::1");
    let is_written_well = !host.is_empty()
        && !written
            .value
            .contains(|c: char| c.is_whitespace() || c.is_control())
        && !written.value.contains('#')
        && !authority.contains('@');
    let is_safe = match scheme {
        "https" => true,
        "http" => is_here,
        // A local program may receive the callback.
        _ => name == "redirectUri" && !scheme.is_empty(),
    };
    if is_written_well && is_safe {
        return true;
    }
    let message = format!("`{name}` must be an `https` URL, or a URL of this machine");
    let problem = Problem::new(codes::INVALID_VALUE, written.place, message);
    report.add(
        problem.help(
            "write it like `https://login.example.org/path`, without a fragment or a password",
        ),
    );
    false
}

/// True if two URLs are equivalent, regardless of how scheme, host, port and trailing slash are
/// written.
pub(crate) fn is_same_address(one: &str, other: &str) -> bool {
    parts(one) == parts(other)
}

/// Scheme, host and port, path and query of a URL.
fn parts(address: &str) -> (String, String, &str, Option<&str>) {
    let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
    let (rest, query) = match rest.split_once('?') {
        Some((rest, query)) => (rest, Some(query)),
        None => (rest, None),
    };
    let end = rest.find('/').unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    let (scheme, host) = (scheme.to_ascii_lowercase(), host.to_ascii_lowercase());
    let port = match scheme.as_str() {
        "https" => ":443",
        _ => ":80",
    };
    let host = host.strip_suffix(port).unwrap_or(&host).to_owned();
    (scheme, host, path.trim_end_matches('/'), query)
}

fn read_auth(spec: &mut Fields<'_>, has_secret: bool, cx: &mut Context<'_>) -> ClientAuth {
    let Some(written) = spec.word("clientAuth", &mut cx.report) else {
        return if has_secret {
            ClientAuth::Basic
        } else {
            ClientAuth::None
        };
    };
    let auth = ClientAuth::of_word(written.value).unwrap_or_default();
    if (auth != ClientAuth::None) != has_secret {
        let (message, help) = if has_secret {
            (
                "`clientAuth: none` sends no `clientSecret`",
                "remove one of the two",
            )
        } else {
            (
                "this `clientAuth` requires a `clientSecret`",
                "add it, or write `clientAuth: none`",
            )
        };
        let problem = Problem::new(codes::INVALID_VALUE, written.place, message);
        cx.report.add(problem.help(help));
    }
    auth
}

fn read_params(spec: &mut Fields<'_>, cx: &mut Context<'_>) -> BTreeMap<String, String> {
    let label = spec.label.field("params");
    let mut params = BTreeMap::new();
    for entry in spec.entries("params", &mut cx.report) {
        let value = crate::fields::text(&entry.node, &label.field(&entry.key), &mut cx.report);
        // An empty `resource` leaves the field out of all requests.
        let leaves_out =
            entry.key == "resource" && value.as_ref().is_some_and(|it| it.value.is_empty());
        if OWN_PARAMS.contains(&entry.key.as_str()) && !leaves_out {
            let message = format!("`{}` is reserved: goondan sets it", entry.key);
            let problem = Problem::new(codes::INVALID_VALUE, entry.key_place, message);
            let help = match entry.key.as_str() {
                "resource" => "write it beside `params`, as `resource:` of the OAuthApp",
                _ => "remove it",
            };
            cx.report.add(problem.help(help));
        } else if let Some(value) = value {
            params.insert(entry.key.clone(), value.value.to_owned());
        }
    }
    params
}
