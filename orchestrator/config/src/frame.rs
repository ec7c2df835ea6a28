//! Fields of every document.

use crate::shape::{Field, FieldType, Shape};

/// The only supported `apiVersion`.
pub(crate) const API_VERSION: &str = "goondan.ai/v1";

/// Fields of every document. The kind determines the content of `spec`.
pub(crate) static FRAME: Shape = Shape::of(
    "Document",
    "A resource of a goondan project.",
    &[
        Field::required("apiVersion", FieldType::Text, "The version of this format."),
        Field::required(
            "kind",
            FieldType::Text,
            "The kind of resource that the document defines.",
        ),
        Field::required(
            "metadata",
            FieldType::Mapping(&METADATA),
            "Name and labels of the resource.",
        ),
        Field::optional(
            "spec",
            FieldType::Anything,
            "Content of the resource. Optional for a Package.",
        ),
    ],
);

static METADATA: Shape = Shape::of(
    "Metadata",
    "Name and labels of a resource.",
    &[
        Field::required("name", FieldType::Text, "The name, unique within its kind."),
        Field::optional(
            "labels",
            FieldType::Entries(&FieldType::Text),
            "Your own labels, which selectors match.",
        ),
        Field::optional(
            "annotations",
            FieldType::Entries(&FieldType::Anything),
            "Your own notes. Goondan ignores them.",
        ),
    ],
);
