//! Values that are given directly or taken from elsewhere.

use super::{Field, FieldConstraint, FieldType, Shape};
use crate::kind::ResourceKind;

/// A value that is never shown.
pub(crate) static VALUE: Shape = Shape::of(
    "Value",
    "A literal value, or a reference to its source.",
    &[
        Field::optional(
            "value",
            FieldType::Text,
            "The literal value, in plain text in the file.",
        ),
        Field::optional(
            "valueFrom",
            FieldType::Mapping(&VALUE_FROM),
            "Source of the value.",
        ),
    ],
)
.with(&[
    FieldConstraint::NotBoth("value", "valueFrom"),
    FieldConstraint::AnyOf(&["value", "valueFrom"], "write `valueFrom: {env: NAME}`"),
]);

/// Sources of a value.
pub(crate) static VALUE_FROM: Shape = Shape::of(
    "ValueFrom",
    "Source of a value.",
    &[
        Field::optional(
            "env",
            FieldType::Text,
            "An environment variable of the daemon, or one set in `.env.local` or `.env`.",
        ),
        Field::optional(
            "secretRef",
            FieldType::Mapping(&SECRET_REF),
            "An entry of the secret store.",
        ),
        Field::optional(
            "oauth",
            FieldType::Mapping(&OAUTH_TOKEN),
            "A token of an authorization server, renewed automatically.",
        ),
    ],
)
.with(&[
    FieldConstraint::NotBoth("env", "secretRef"),
    FieldConstraint::NotBoth("env", "oauth"),
    FieldConstraint::NotBoth("secretRef", "oauth"),
    FieldConstraint::AnyOf(
        &["env", "secretRef", "oauth"],
        "write `valueFrom: {env: NAME}`",
    ),
]);

static OAUTH_TOKEN: Shape = Shape::of(
    "OAuthToken",
    "A token of an authorization server.",
    &[
        Field::required(
            "app",
            FieldType::Reference(ResourceKind::OAUTH_APP),
            "The OAuthApp.",
        ),
        Field::optional(
            "subject",
            FieldType::Text,
            "The token's subject, if the OAuthApp has `subjectMode: user`.",
        ),
    ],
);

static SECRET_REF: Shape = Shape::of(
    "SecretRef",
    "An entry of the secret store.",
    &[
        Field::required("ref", FieldType::Text, "The secret: `Secret/name`."),
        Field::required("key", FieldType::Text, "Name of the secret's entry."),
    ],
);

/// A value among settings that is taken from elsewhere: `{valueFrom: …}` and nothing else.
pub(crate) static TAKEN: Shape = Shape::of(
    "TakenValue",
    "A value from another source.",
    &[Field::required(
        "valueFrom",
        FieldType::Mapping(&VALUE_FROM),
        "Source of the value.",
    )],
);
