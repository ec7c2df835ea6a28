//! Values that are written out or taken from elsewhere: `value`, or `valueFrom` with an environment
//! variable or a secret.

use super::Context;
use crate::codes;
use crate::fields::{Fields, Label, Located};
use crate::report::Problem;
use crate::shape::{Content, Field, Rule, Shape};
use crate::tree::{Entry, Node};

/// A value that is never shown.
pub(crate) static VALUE: Shape = Shape::of(
    "Value",
    "A value, written out or taken from elsewhere.",
    &[
        Field::optional(
            "value",
            Content::Text,
            "The value itself. It stands in the file in plain text.",
        ),
        Field::optional(
            "valueFrom",
            Content::Mapping(&VALUE_FROM),
            "Where the value is taken from.",
        ),
    ],
)
.with(&[
    Rule::NotBoth("value", "valueFrom"),
    Rule::AnyOf(&["value", "valueFrom"], "write `valueFrom: {env: NAME}`"),
]);

/// Where a value is taken from.
pub(crate) static VALUE_FROM: Shape = Shape::of(
    "ValueFrom",
    "Where a value is taken from.",
    &[
        Field::optional(
            "env",
            Content::Text,
            "An environment variable of the daemon, or one that `.env.local` or `.env` sets.",
        ),
        Field::optional(
            "secretRef",
            Content::Mapping(&SECRET_REF),
            "An entry of the secret store.",
        ),
    ],
)
.with(&[
    Rule::NotBoth("env", "secretRef"),
    Rule::AnyOf(&["env", "secretRef"], "write `valueFrom: {env: NAME}`"),
]);

static SECRET_REF: Shape = Shape::of(
    "SecretRef",
    "An entry of the secret store.",
    &[
        Field::required("ref", Content::Text, "The secret: `Secret/name`."),
        Field::required("key", Content::Text, "Which of its entries."),
    ],
);

/// How a secret's name is written.
const SECRET_PREFIX: &str = "Secret/";

/// Reads the field `valueFrom` and finds the value. Nothing if a problem was reported, or if the field
/// is not there.
fn read_value_from(fields: &mut Fields<'_>, cx: &mut Context<'_>) -> Option<Located<String>> {
    let source = fields.nested("valueFrom", &mut cx.report)?;
    read_source(source, cx)
}

/// Reads a field that holds a secret.
pub(super) fn read_secret(
    fields: &mut Fields<'_>,
    name: &'static str,
    cx: &mut Context<'_>,
) -> Option<String> {
    let fields = fields.nested(name, &mut cx.report)?;
    read_secret_fields(fields, cx)
}

/// Reads a secret under a name of its own.
pub(super) fn read_named_secret(
    entry: &Entry,
    label: Label,
    cx: &mut Context<'_>,
) -> Option<String> {
    let content = Content::Secret;
    let fields = Fields::open(&entry.node, entry.key_place, label, content, &mut cx.report)?;
    read_secret_fields(fields, cx)
}

/// An empty secret is refused: it would protect nothing and look as if it did. One that is written out
/// is warned of: it is in the repository too, sooner or later.
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
                format!("{label} is written out, for everyone who can read the project"),
            )
            .help("take it from the environment: `valueFrom: {env: NAME}`"),
        );
    }
    if let Some(written) = &written {
        cx.secrets.write_out(written.value);
    }
    let secret = taken.or(written.map(|written| Located {
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

/// Among settings, what is taken from elsewhere: `{valueFrom: …}` and nothing else.
pub(crate) static TAKEN: Shape = Shape::of(
    "TakenValue",
    "A value taken from elsewhere.",
    &[Field::required(
        "valueFrom",
        Content::Mapping(&VALUE_FROM),
        "Where the value is taken from.",
    )],
);

/// Finds the value of a mapping with `valueFrom` among settings.
pub(super) fn read_setting(node: &Node, label: Label, cx: &mut Context<'_>) -> Option<String> {
    let content = Content::Mapping(&TAKEN);
    let mut fields = Fields::open(node, node.place, label, content, &mut cx.report)?;
    let found = read_value_from(&mut fields, cx);
    fields.close();
    found.map(|found| found.value)
}

fn read_source(mut source: Fields<'_>, cx: &mut Context<'_>) -> Option<Located<String>> {
    let is_ambiguous = source.has("env") && source.has("secretRef");
    let variable = source.text("env", &mut cx.report);
    if let Some(mut secret) = source.nested("secretRef", &mut cx.report) {
        refuse_secret(&mut secret, is_ambiguous, cx);
        secret.close();
    }
    source.close();
    let variable = variable.filter(|_| !is_ambiguous)?;
    let Some(found) = cx.variables.get(variable.value) else {
        cx.report.add(
            Problem::new(
                codes::MISSING_ENVIRONMENT,
                variable.place,
                format!("the environment variable `{}` is not set", variable.value),
            )
            .help(format!(
                "set it where the daemon is started, or write `{}=…` into `.env.local`",
                variable.value
            )),
        );
        return None;
    };
    cx.secrets.take(&found.value);
    Some(Located {
        value: found.value,
        place: variable.place,
    })
}

fn refuse_secret(secret: &mut Fields<'_>, is_ambiguous: bool, cx: &mut Context<'_>) {
    let name = secret.text("ref", &mut cx.report);
    let key = secret.text("key", &mut cx.report);
    let Some(name) = name else { return };
    let is_reference = name
        .value
        .strip_prefix(SECRET_PREFIX)
        .is_some_and(|name| !name.is_empty());
    if !is_reference {
        cx.report.add(
            Problem::new(
                codes::INVALID_VALUE,
                name.place,
                format!("a secret is referred to as `{SECRET_PREFIX}name`"),
            )
            .help(format!("write `ref: {SECRET_PREFIX}name`")),
        );
    } else if key.is_some() && !is_ambiguous {
        cx.report.add(
            Problem::new(
                codes::UNSUPPORTED,
                name.place,
                format!(
                    "`{}` cannot be read: this version has no secret store yet",
                    name.value
                ),
            )
            .help("take the value from an environment variable: `valueFrom: {env: NAME}`"),
        );
    }
}
