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
        Field::required(
            "kind",
            Content::Text,
            "The kind of resource that the document defines.",
        ),
        Field::required(
            "metadata",
            Content::Mapping(&METADATA),
            "Name and labels of the resource.",
        ),
        Field::optional(
            "spec",
            Content::Anything,
            "Content of the resource. Optional for a Package.",
        ),
    ],
);

static METADATA: Shape = Shape::of(
    "Metadata",
    "Name and labels of a resource.",
    &[
        Field::required("name", Content::Text, "The name, unique within its kind."),
        Field::optional(
            "labels",
            Content::Entries(&Content::Text),
            "Your own labels, which selectors match.",
        ),
        Field::optional(
            "annotations",
            Content::Entries(&Content::Anything),
            "Your own notes. Goondan ignores them.",
        ),
    ],
);
