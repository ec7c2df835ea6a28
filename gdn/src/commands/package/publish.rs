//! `gdn package publish`: uploads a package to its registry.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goondan_packages::RegistryUrl;
use reqwest::Method;
use serde_json::{Value, json};

use super::super::confirm::confirm;
use super::pack::{PackageArchive, packed};
use super::registry::{ANSWER_BYTES_MAX, Registry, RegistryError, address};
use super::web::{WebError, host_key};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::schemas;

/// Packs the project and uploads it to its registry after confirmation.
pub(super) async fn publish(
    tag: &str,
    is_dry_run: bool,
    is_agreed: bool,
    context: &Context,
) -> Result<(), Failure> {
    let root = context.project()?;
    let packed = packed(&root, context)?;
    if is_dry_run {
        return packed.tell(None, context);
    }
    let plan = super::plan::ProjectPackages::read(root)?;
    let registry = Registry::new(context, plan.registries.clone())?;
    let to = registry.of(&packed.name)?.clone();
    let url = address(&to.of_package(&packed.name))?;
    if registry.token(&url)?.is_none() {
        let host = host_key(&url).unwrap_or_else(|| "HOST".to_owned());
        return Err(Failure::new(
            Exit::Conflict,
            format!("no token for {to}"),
            format!("store one: `gdn secret set registry {host}`; or set $GOONDAN_REGISTRY_TOKEN"),
        ));
    }
    if !is_agreed {
        for line in packed.lines(None) {
            context.output.note(line);
        }
        let who = if packed.is_public {
            "everybody"
        } else {
            "authorized users"
        };
        let question = format!(
            "Publish {} {} for {who} at {to}? This cannot be undone.",
            packed.name, packed.version
        );
        confirm(context, &question, "package publish --yes")?;
    }
    let body = serde_json::to_vec(&document(&packed, &to, tag)).map_err(std::io::Error::other)?;
    let mut answer = Vec::new();
    let asked = registry.ask(Method::PUT, url, Some(body), ANSWER_BYTES_MAX, &mut answer);
    asked.await.map_err(|asked| refused(asked, &packed, &to))?;
    let output = context.output;
    for note in &packed.notes {
        output.note(note);
    }
    output.object(
        schemas::PACKAGE_PUBLISH,
        &json!({
            "name": packed.name, "version": packed.version.to_string(), "tag": tag,
            "registry": to.as_str(), "integrity": packed.integrity,
        }),
    )?;
    output.data(format!("+ {} {} at {to}", packed.name, packed.version))
}

/// Request body of the npm registry protocol.
fn document(packed: &PackageArchive, registry: &RegistryUrl, tag: &str) -> Value {
    let (name, version) = (packed.name.to_string(), packed.version.to_string());
    let (_, own) = packed.name.parts();
    let file = format!("{name}-{version}.tgz");
    let mut described = packed.described.clone();
    described.insert("_id".to_owned(), json!(format!("{name}@{version}")));
    described.insert(
        "dist".to_owned(),
        json!({
            "integrity": packed.integrity,
            "tarball": format!("{registry}/{name}/-/{own}-{version}.tgz"),
        }),
    );
    json!({
        "_id": name,
        "name": name,
        "access": if packed.is_public { "public" } else { "restricted" },
        "dist-tags": {tag: version},
        "versions": {version: described},
        "_attachments": {file: {
            "content_type": "application/octet-stream",
            "data": STANDARD.encode(&packed.archive),
            "length": packed.archive.len(),
        }},
    })
}

fn refused(asked: RegistryError, packed: &PackageArchive, registry: &RegistryUrl) -> Failure {
    match &asked {
        RegistryError::Web(WebError::Status { status: 409, .. }) => Failure::new(
            Exit::Conflict,
            format!("{registry} already has {} {}", packed.name, packed.version),
            "change `spec.version` in goondan.yaml",
        ),
        _ => asked.into(),
    }
}
