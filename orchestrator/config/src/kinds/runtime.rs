//! Runtimes of an Agent: `runtime.kind`.

use crate::shape::{Field, FieldDefault, FieldType};

/// A turn loop with a model and tools.
const LLM: &str = "llm";

/// A program that runs tasks.
pub(super) const CLI: &str = "cli";

pub(super) const RUNTIME_KIND: Field = Field::optional(
    "kind",
    FieldType::Word(&[LLM, CLI]),
    "`llm`: a turn loop with a model and tools. `cli`: a program, such as an external coding \
     agent, that works on tasks.",
)
.or(FieldDefault::Text(LLM));
