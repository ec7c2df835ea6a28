//! One reader for each kind of resource: what its `spec` may hold.
//!
//! A reader takes a document to a typed value and reports everything that is wrong within it. What
//! needs other resources is left as a [`crate::reference::Reference`] for [`crate::resolve`].

pub(crate) mod agent;
pub(crate) mod budgets;
pub(crate) mod builtin_settings;
mod captures;
pub(crate) mod connection;
pub(crate) mod connector;
pub(crate) mod extension;
pub(crate) mod model;
pub(crate) mod package;
pub(crate) mod params;
pub(crate) mod prices;
pub(crate) mod process_limits;
pub(crate) mod script;
pub(crate) mod settings;
pub(crate) mod swarm;
pub(crate) mod thinking;
pub(crate) mod tool;
pub(crate) mod value;
mod written;

use std::str::FromStr;

use goondan_protocol::ids::InvalidId;
use goondan_protocol::secret::SecretStore;

use crate::codes;
use crate::environment::Variables;
use crate::fields::Located;
use crate::kind::Kind;
use crate::machine::Machine;
use crate::project_files::ProjectFiles;
use crate::report::{Problem, Report};
use crate::secrets::Secrets;
use crate::shape::Content;

/// What readers work with.
pub(crate) struct Context<'a> {
    pub(crate) files: &'a ProjectFiles,
    pub(crate) variables: &'a Variables<'a>,
    pub(crate) store: &'a dyn SecretStore,
    pub(crate) machine: &'a dyn Machine,
    pub(crate) secrets: Secrets,
    /// The resource that is being read, such as `Connection/hook`.
    pub(crate) resource: String,
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

/// Finds the file of an `entry` (`ROOT-5`), and what runs it on this machine.
pub(crate) fn read_entry(
    entry: &Located<&str>,
    cx: &mut Context<'_>,
) -> Option<std::path::PathBuf> {
    let found = ProjectFiles::check_text(entry.value)
        .and_then(|path| cx.files.check_is_file(&path).map(|()| path));
    match found {
        Ok(path) => {
            if let Some(why) = cx.machine.lacks_runtime(&cx.files.place_of(&path)) {
                let message = format!("`{}` {why}", path.display());
                let problem = Problem::new(codes::NO_RUNTIME, entry.place, message);
                cx.report.add(problem.help(why.kind.choices()));
            }
            Some(path)
        }
        Err(failure) => {
            cx.report.add(failure.at(entry.place));
            None
        }
    }
}

/// What the `spec` of a kind holds.
pub(crate) fn spec_of(kind: Kind) -> Content {
    match kind {
        Kind::Package => Content::Mapping(&package::SPEC),
        Kind::Model => Content::Choice(&model::SPEC),
        Kind::Agent => Content::Mapping(&agent::SPEC),
        Kind::Swarm => Content::Mapping(&swarm::SPEC),
        Kind::Tool => Content::Choice(&tool::SPEC),
        Kind::Extension => Content::Choice(&extension::SPEC),
        Kind::Connector => Content::Choice(&connector::SPEC),
        Kind::Connection => Content::Mapping(&connection::SPEC),
    }
}
