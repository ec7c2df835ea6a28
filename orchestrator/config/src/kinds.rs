//! One reader for each kind of resource: what its `spec` may hold.
//!
//! A reader takes a document to a typed value and reports everything that is wrong within it. What
//! needs other resources is left as a [`crate::reference::Reference`] for [`crate::resolve`].

pub(crate) mod agent;
mod captures;
pub(crate) mod connection;
pub(crate) mod connector;
pub(crate) mod model;
pub(crate) mod package;
pub(crate) mod script;
pub(crate) mod swarm;
pub(crate) mod tool;

use std::str::FromStr;

use goondan_protocol::ids::InvalidId;

use crate::Environment;
use crate::codes;
use crate::document::Document;
use crate::fields::{Fields, Located};
use crate::project_files::ProjectFiles;
use crate::report::{Problem, Report};

/// What readers work with.
pub(crate) struct Context<'a> {
    pub(crate) files: &'a ProjectFiles,
    pub(crate) env: &'a dyn Environment,
    pub(crate) report: Report,
}

/// Turns text into a checked id, or reports why it is none.
pub(crate) fn id<T: FromStr<Err = InvalidId>>(
    text: &Located<&str>,
    report: &mut Report,
) -> Option<T> {
    match text.value.parse() {
        Ok(id) => Some(id),
        Err(error) => {
            report.add(Problem::new(
                codes::INVALID_VALUE,
                text.place,
                error.to_string(),
            ));
            None
        }
    }
}

/// Reads a text file that a field names by its path within the project. Also gives the path.
pub(crate) fn read_named_file(
    path: &Located<&str>,
    limit: usize,
    cx: &mut Context<'_>,
) -> Option<(std::path::PathBuf, String)> {
    let read = ProjectFiles::check_text(path.value)
        .and_then(|clean| Ok((cx.files.read(&clean, limit)?, clean)));
    match read {
        Ok((text, clean)) => Some((clean, text)),
        Err(failure) => {
            cx.report.add(failure.at(path.place));
            None
        }
    }
}

/// Reports an `entry` field, which names a module of the project: this version runs none.
///
/// A path that leaves the project is reported as such first; later versions refuse it too.
pub(crate) fn refuse_entry(document: &Document<'_>, spec: &mut Fields<'_>, report: &mut Report) {
    let Some(field) = spec.get("entry") else {
        return;
    };
    let label = spec.label.field("entry");
    let Some(entry) = crate::fields::text(&field.node, &label, report) else {
        return;
    };
    report.add(match ProjectFiles::check_text(entry.value) {
        Err(failure) => failure.at(entry.place),
        Ok(_) => Problem::new(
            codes::UNSUPPORTED,
            field.key_place,
            format!(
                "modules of the project (`entry`) are not supported by this version; {} cannot be \
                 loaded",
                document.label
            ),
        )
        .help("name a built-in with `builtin`"),
    });
}
