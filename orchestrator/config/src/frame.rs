//! Fields of every document.

use crate::shape::{Content, Field, Shape};

/// The only supported `apiVersion`.
pub(crate) const API_VERSION: &str = "goondan.ai/v1";

/// Fields of every document. The kind determines the content of `spec`.
pub(crate) static FRAME: Shape = Shape::of(
    "Document",
    "A resource of a goondan project.",
    &[
        Field::required("apiVersion", Content::Text, "The version of this format."),
        Field::required("kind", Content::Text, "What the document defines."),
        Field::required(
            "metadata",
            Content::Mapping(&METADATA),
            "What the resource is called.",
        ),
        Field::optional(
            "spec",
            Content::Anything,
            "What the resource is. Optional for a Package.",
        ),
    ],
);

static METADATA: Shape = Shape::of(
    "Metadata",
    "What a resource is called.",
    &[
        Field::required("name", Content::Text, "The name, unique within its kind."),
        Field::optional(
            "labels",
            Content::Entries(&Content::Text),
            "Words of your own, by which selectors find it.",
        ),
        Field::optional(
            "annotations",
            Content::Entries(&Content::Anything),
            "What you want to say of it. Nothing is done with it.",
        ),
    ],
);
