//! Files in chats: the connection fetches them, the agent stores them in its work directory.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goondan_protocol::service::DOWNLOAD_BYTES_MAX;
use serde_json::{Value, json};

use super::javascript::is_space;
use super::services::RoutedCall;
use super::{check_file_path, invalid, javascript};
use crate::tools::fault::ToolFault;
use crate::tools::file_system::replace;

/// Default limit of fetched bytes.
const DOWNLOAD_BYTES: u64 = 3_000_000;

/// Highest `maxBytes`. No file larger than [`DOWNLOAD_BYTES_MAX`] is fetched anyway.
const MAX_BYTES_MAX: u64 = 20_000_000;

/// Arguments shared by every call that fetches a file.
pub(super) const FIELDS: &[(&str, &str)] = &[
    ("maxBytes", "number"),
    ("includeBase64", "boolean"),
    ("includeDataUrl", "boolean"),
    ("savePath", "string"),
    ("outputPath", "string"),
];

pub(super) struct Download {
    pub(super) bytes_max: u64,
    /// Destination in the work directory.
    save_as: Option<String>,
    with_base64: bool,
    with_data_url: bool,
}

/// The destination: the first of its arguments that is given, unless it is blank.
fn save_as(site: &RoutedCall) -> Result<Option<String>, ToolFault> {
    let given = ["savePath", "outputPath"].map(|name| site.args.get(name));
    let given = given.into_iter().flatten().next();
    let path = given
        .and_then(Value::as_str)
        .map(|path| path.trim_matches(is_space));
    let path = path.filter(|path| !path.is_empty());
    if let Some(path) = path {
        check_file_path(path)?;
    }
    Ok(path.map(str::to_owned))
}

impl Download {
    pub(super) fn of(site: &RoutedCall) -> Result<Self, ToolFault> {
        let bytes_max = match site.args.get("maxBytes") {
            None => DOWNLOAD_BYTES,
            Some(asked) => {
                let bytes = asked.as_f64().map(javascript::integer);
                let bytes = bytes.and_then(|bytes| u64::try_from(bytes).ok());
                let bytes = bytes.filter(|bytes| (1..=MAX_BYTES_MAX).contains(bytes));
                bytes.ok_or_else(|| {
                    invalid(format!("`maxBytes` is 1 to {MAX_BYTES_MAX}, not {asked}"))
                })?
            }
        };
        Ok(Self {
            bytes_max: bytes_max.min(DOWNLOAD_BYTES_MAX),
            save_as: save_as(site)?,
            with_base64: site.truth("includeBase64").unwrap_or(true),
            with_data_url: site.truth("includeDataUrl").unwrap_or(true),
        })
    }

    /// Stores the file, and reports it together with the fields of its service.
    pub(super) fn finish(
        self,
        site: &RoutedCall,
        fetched: &Value,
        of_file: Value,
    ) -> Result<Value, ToolFault> {
        let told = |name: &str| fetched.get(name).and_then(Value::as_str);
        let base64 = told("base64").unwrap_or_default();
        let unreadable = |error: base64::DecodeError| {
            ToolFault::new("E_TOOL_FAILED", format!("failed to read the file: {error}"))
        };
        let content = STANDARD.decode(base64).map_err(unreadable)?;
        let mut saved = None;
        if let Some(path) = &self.save_as {
            let full = javascript::resolved(site.places.start(), path);
            replace(
                &site.places,
                &javascript::normal(Path::new(&full)),
                &content,
            )?;
            saved = Some(full);
        }
        let kind = told("contentType").filter(|kind| !kind.is_empty());
        let data_url =
            kind.filter(|_| self.with_data_url && self.with_base64 && !content.is_empty());
        let mut result = json!({"ok": true});
        let own = json!({
            "contentType": kind, "sizeBytes": content.len(), "savedPath": saved,
            "base64": self.with_base64.then_some(base64),
            "dataUrl": data_url.map(|kind| format!("data:{kind};base64,{base64}")),
        });
        if let (Value::Object(result), Value::Object(of_file), Value::Object(own)) =
            (&mut result, of_file, own)
        {
            result.extend(of_file);
            result.extend(own);
        }
        Ok(result)
    }
}
