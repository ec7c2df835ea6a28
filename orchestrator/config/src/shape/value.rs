//! Values that are given directly or taken from elsewhere.

use super::{Content, Field, Rule, Shape};
use crate::kind::Kind;

/// A value that is never shown.
pub(crate) static VALUE: Shape = Shape::of(
    "Value",
    "A literal value, or a reference to its source.",
    &[
        Field::optional(
            "value",
            Content::Text,
            "The literal value, in plain text in the file.",
        ),
        Field::optional(
            "valueFrom",
            Content::Mapping(&VALUE_FROM),
            "Source of the value.",
        ),
    ],
)
.with(&[
    Rule::NotBoth("value", "valueFrom"),
    Rule::AnyOf(&["value", "valueFrom"], "write `valueFrom: {env: NAME}`"),
]);

/// Sources of a value.
pub(crate) static VALUE_FROM: Shape = Shape::of(
    "ValueFrom",
    "Source of a value.",
    &[
        Field::optional(
            "env",
            Content::Text,
            "An environment variable of the daemon, or one set in `.env.local` or `.env`.",
        ),
        Field::optional(
            "secretRef",
            Content::Mapping(&SECRET_REF),
            "An entry of the secret store.",
        ),
        Field::optional(
            "oauth",
            Content::Mapping(&OAUTH_TOKEN),
            "A token of an authorization server, renewed automatically.",
        ),
    ],
)
.with(&[
    Rule::NotBoth("env", "secretRef"),
    Rule::NotBoth("env", "oauth"),
    Rule::NotBoth("secretRef", "oauth"),
    Rule::AnyOf(
        &["env", "secretRef", "oauth"],
        "write `valueFrom: {env: NAME}`",
    ),
]);

static OAUTH_TOKEN: Shape = Shape::of(
    "OAuthToken",
    "A token of an authorization server.",
    &[
        Field::required("app", Content::Reference(Kind::OAUTH_APP), "The OAuthApp."),
        Field::optional(
            "subject",
            Content::Text,
            "The token's subject, if the OAuthApp has `subjectMode: user`.",
        ),
    ],
);

static SECRET_REF: Shape = Shape::of(
    "SecretRef",
    "An entry of the secret store.",
    &[
        Field::required("ref", Content::Text, "The secret: `Secret/name`."),
        Field::required("key", Content::Text, "Name of the secret's entry."),
    ],
);

/// A value among settings that is taken from elsewhere: `{valueFrom: …}` and nothing else.
pub(crate) static TAKEN: Shape = Shape::of(
    "TakenValue",
    "A value from another source.",
    &[Field::required(
        "valueFrom",
        Content::Mapping(&VALUE_FROM),
        "Source of the value.",
    )],
);
