//! Values that are given directly or taken from elsewhere.

use super::{Content, Field, Rule, Shape};
use crate::kind::Kind;

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

/// Sources of a value.
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
        Field::optional(
            "oauth",
            Content::Mapping(&OAUTH_TOKEN),
            "A token of an authorization server, which is renewed by itself.",
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
            "Whose, if the OAuthApp has `subjectMode: user`.",
        ),
    ],
);

static SECRET_REF: Shape = Shape::of(
    "SecretRef",
    "An entry of the secret store.",
    &[
        Field::required("ref", Content::Text, "The secret: `Secret/name`."),
        Field::required("key", Content::Text, "Which of its entries."),
    ],
);

/// A value among settings that is taken from elsewhere: `{valueFrom: …}` and nothing else.
pub(crate) static TAKEN: Shape = Shape::of(
    "TakenValue",
    "A value taken from elsewhere.",
    &[Field::required(
        "valueFrom",
        Content::Mapping(&VALUE_FROM),
        "Where the value is taken from.",
    )],
);
