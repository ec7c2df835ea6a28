//! `kind: Connector`: a built-in connector under a name of its own.

use goondan_protocol::ids::ResourceName;

use super::{id, refuse_entry};
use crate::document::{Document, Kind};
use crate::reference::check_builtin;
use crate::report::Report;

/// Reads a Connector document; gives the built-in's name.
pub(crate) fn read(document: &Document<'_>, report: &mut Report) -> Option<ResourceName> {
    let name: Option<ResourceName> = id(&document.name, report);
    let mut spec = document.spec(report)?;
    refuse_entry(document, &mut spec, report);
    let builtin = if spec.get("entry").is_some() {
        spec.exclude("builtin", "entry", report);
        None
    } else {
        spec.require_text("builtin", report)
    };
    spec.close(report);

    let builtin = builtin?;
    check_builtin(Kind::Connector, builtin.value, builtin.place, report)?;
    name?;
    id(&builtin, report)
}
