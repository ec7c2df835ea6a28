//! Values that are given directly or taken from elsewhere: `value`, or `valueFrom` with an
//! environment variable, a secret, or a token of an authorization server.

use goondan_protocol::ids::OAuthSubject;
use goondan_protocol::oauth::OAuthNeed;
use goondan_protocol::secret::{SECRET_PREFIX, SecretProblem};

use super::{Context, id};
use crate::advice;
use crate::asked_token::TokenRequest;
use crate::codes;
use crate::fields::{Fields, Label, LocatedValue};
use crate::report::Problem;
use crate::shape::FieldType;
use crate::shape::value::TAKEN;
use crate::similar::nearest;
use crate::tree::{MappingEntry, YamlNode, YamlValue};

/// Reads the field `valueFrom` and resolves the value. `None` if a problem was reported or the
/// field is absent.
fn read_value_from(fields: &mut Fields<'_>, cx: &mut Context<'_>) -> Option<LocatedValue<String>> {
    let source = fields.nested("valueFrom", &mut cx.report)?;
    read_source(source, cx)
}

/// Reads a field that contains a secret.
pub(super) fn read_secret(
    fields: &mut Fields<'_>,
    name: &'static str,
    cx: &mut Context<'_>,
) -> Option<String> {
    let label = fields.label.field(name);
    read_named_secret(fields.get(name)?, label, cx)
}

/// Reads a secret under a custom name.
pub(super) fn read_named_secret(
    entry: &MappingEntry,
    label: Label,
    cx: &mut Context<'_>,
) -> Option<String> {
    if refuse_text(&entry.node, &label, cx) {
        return None;
    }
    let content = FieldType::Secret;
    let fields = Fields::open(&entry.node, entry.key_place, label, content, &mut cx.report)?;
    read_secret_fields(fields, cx)
}

/// Refuses a secret given as a string: written out, or in shell syntax. The value is never shown.
fn refuse_text(node: &YamlNode, label: &Label, cx: &mut Context<'_>) -> bool {
    let YamlValue::Text(written) = &node.value else {
        return false;
    };
    let owner = label.resource_name().unwrap_or("NAME");
    let help = advice::secret_as_text(label.last(), owner, written);
    let message = if advice::variable(written).is_some() {
        format!("{label} uses the shell syntax for variables")
    } else {
        cx.report.hide_line(node.place.file, node.place.line);
        cx.secrets.write_out(written);
        format!("{label} must not be literal; it must have a `valueFrom`")
    };
    cx.report
        .add(Problem::new(codes::WRONG_TYPE, node.place, message).help(help));
    true
}

/// Reads a secret. An empty one is refused, because it would protect nothing but appear to. One
/// that is written out causes a warning, because it will end up in the repository.
fn read_secret_fields(mut fields: Fields<'_>, cx: &mut Context<'_>) -> Option<String> {
    let written = fields.text("value", &mut cx.report);
    let taken = read_value_from(&mut fields, cx);
    let label = fields.label.clone();
    fields.close();
    if let Some(written) = &written {
        cx.report.add(
            Problem::warning(
                codes::PLAIN_SECRET,
                written.place,
                format!("{label} is literal and visible to everyone who can read the project"),
            )
            .help(
                "use an environment variable, `valueFrom: {env: NAME}`, or a secret, `valueFrom: \
                 {secretRef: {ref: Secret/name, key: KEY}}`",
            ),
        );
    }
    if let Some(written) = &written {
        cx.secrets.write_out(written.value);
    }
    let secret = taken.or(written.map(|written| LocatedValue {
        value: written.value.to_owned(),
        place: written.place,
    }))?;
    if secret.value.is_empty() {
        cx.report.add(Problem::new(
            codes::INVALID_VALUE,
            secret.place,
            format!("{label} must not be empty"),
        ));
        return None;
    }
    Some(secret.value)
}

/// Resolves a mapping with `valueFrom` among settings.
pub(super) fn read_setting(node: &YamlNode, label: Label, cx: &mut Context<'_>) -> Option<String> {
    let content = FieldType::Mapping(&TAKEN);
    let mut fields = Fields::open(node, node.place, label, content, &mut cx.report)?;
    let found = read_value_from(&mut fields, cx);
    fields.close();
    found.map(|found| found.value)
}

fn read_source(mut source: Fields<'_>, cx: &mut Context<'_>) -> Option<LocatedValue<String>> {
    let named = ["env", "secretRef", "oauth"];
    let is_ambiguous = named.iter().filter(|name| source.has(name)).count() > 1;
    let variable = source.text("env", &mut cx.report);
    let entry = source.nested("secretRef", &mut cx.report);
    let entry = entry.and_then(|mut secret| {
        let entry = read_entry(&mut secret, cx);
        secret.close();
        entry
    });
    let token = source.nested("oauth", &mut cx.report);
    let token = token.and_then(|token| read_token(token, cx));
    source.close();
    if is_ambiguous {
        return None;
    }
    if let Some(token) = token {
        // The value is only known when a process is started with it.
        return Some(token);
    }
    let found = match (variable, entry) {
        (Some(variable), _) => find_variable(&variable, cx),
        (None, Some(entry)) => find_secret(&entry, cx),
        (None, None) => None,
    }?;
    cx.secrets.take(&found.value);
    Some(found)
}

fn find_variable(
    variable: &LocatedValue<&str>,
    cx: &mut Context<'_>,
) -> Option<LocatedValue<String>> {
    let Some(found) = cx.variables.get(variable.value) else {
        let problem = missing_variable(variable, cx);
        cx.report.add(problem.help(format!(
            "set it in the daemon's environment, or write `{}=…` into `.env.local`",
            variable.value
        )));
        return None;
    };
    Some(LocatedValue {
        value: found.value,
        place: variable.place,
    })
}

/// Problem of a variable that is not set. A Connection of 0.0.3 does not start until its variables
/// are set, but the rest of its project runs.
fn missing_variable(variable: &LocatedValue<&str>, cx: &Context<'_>) -> Problem {
    let LocatedValue { value, place } = *variable;
    let message = format!("the environment variable `{value}` is not set");
    let connection = cx.resource.strip_prefix("Connection/");
    match connection.filter(|_| !cx.contract.is_own()) {
        Some(name) => Problem::warning(
            codes::MISSING_VARIABLE,
            place,
            format!("{message}, so Connection `{name}` does not start"),
        ),
        None => Problem::new(codes::MISSING_ENVIRONMENT, place, message),
    }
}

/// The placeholder of a token. The application is checked later.
fn read_token(mut token: Fields<'_>, cx: &mut Context<'_>) -> Option<LocatedValue<String>> {
    let place = token.place;
    let app = token.reference("app", &mut cx.report);
    let written = token.text("subject", &mut cx.report);
    token.close();
    let subject = match &written {
        Some(written) => Some(LocatedValue {
            value: id::<OAuthSubject>(written, &mut cx.report)?,
            place: written.place,
        }),
        None => None,
    };
    let app = app?;
    let name = LocatedValue {
        value: app.name.as_str(),
        place: app.place,
    };
    let need = OAuthNeed {
        app: id(&name, &mut cx.report)?,
        subject: subject
            .as_ref()
            .map_or_else(OAuthSubject::global, |subject| subject.value.clone()),
    };
    cx.asked_tokens.push(TokenRequest { app, subject });
    Some(LocatedValue {
        value: need.placeholder(),
        place,
    })
}

/// A reference to an entry of a secret.
struct EntryRef<'n> {
    name: LocatedValue<&'n str>,
    key: LocatedValue<&'n str>,
}

fn read_entry<'n>(secret: &mut Fields<'n>, cx: &mut Context<'_>) -> Option<EntryRef<'n>> {
    let written = secret.text("ref", &mut cx.report);
    let key = secret.text("key", &mut cx.report);
    let written = written?;
    let name = written.value.strip_prefix(SECRET_PREFIX);
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        cx.report.add(
            Problem::new(
                codes::INVALID_VALUE,
                written.place,
                format!("expected a secret reference of the form `{SECRET_PREFIX}name`"),
            )
            .help(format!("write `ref: {SECRET_PREFIX}name`")),
        );
        return None;
    };
    cx.secrets.name(name);
    Some(EntryRef {
        name: LocatedValue {
            value: name,
            place: written.place,
        },
        key: key?,
    })
}

/// Quotes the text as one argument of a POSIX shell.
fn shell_quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    if text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

fn find_secret(entry: &EntryRef<'_>, cx: &mut Context<'_>) -> Option<LocatedValue<String>> {
    let EntryRef { name, key } = entry;
    let problem = match cx.store.find(name.value, key.value) {
        Ok(value) => {
            let place = key.place;
            return Some(LocatedValue { value, place });
        }
        Err(problem) => problem,
    };
    let help = |written: &str, known: &[String]| {
        // Without this option, the project could not use the new secret.
        let (name, key) = (name.value, key.value);
        let set = format!("set it: `gdn secret set {name} {key} --for .`");
        // Not fixed automatically, because a person must choose the secret.
        match nearest(written, known.iter().map(String::as_str)) {
            Some(meant) => format!("did you mean `{}`? Otherwise {set}", meant.name),
            None => set,
        }
    };
    let problem = match &problem {
        SecretProblem::InvalidName(why) => {
            Problem::new(codes::INVALID_VALUE, name.place, why.clone())
        }
        SecretProblem::NoSecret { names } => {
            let message = format!("secret `{}` does not exist", name.value);
            let help = help(name.value, names);
            Problem::new(codes::MISSING_SECRET, name.place, message).help(help)
        }
        SecretProblem::NoKey { keys } => {
            let message = format!("secret `{}` has no entry `{}`", name.value, key.value);
            let help = help(key.value, keys);
            Problem::new(codes::MISSING_SECRET, key.place, message).help(help)
        }
        SecretProblem::NotAllowed { project_root } => {
            cx.secrets.refuse(name.value, &cx.resource);
            let project = project_root.display();
            let message = format!(
                "{} needs the secret `{}`, but project `{project}` is not allowed to use it",
                cx.resource, name.value
            );
            let help = format!(
                "if you trust the project with it, run `gdn secret allow {} --project {}`",
                name.value,
                shell_quoted(&project.to_string())
            );
            Problem::new(codes::SECRET_NOT_ALLOWED, name.place, message).help(help)
        }
        SecretProblem::Unreadable { message, help } => {
            Problem::new(codes::UNREADABLE_SECRET, name.place, message.clone()).help(help.clone())
        }
    };
    cx.report.add(problem);
    None
}
