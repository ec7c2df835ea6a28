//! Format version of the System Root (`REL-1`), which determines the programs that can read and
//! write its files.
//!
//! `system/format.json` contains the version. A System Root without that file has format 1, which
//! is older than the file. A change gets a new format if an older program would misread or destroy
//! its data; an additional field does not. Format 2 changed the names of the directories in which
//! programs work.

use serde::{Deserialize, Serialize};

use crate::version::GOONDAN_VERSION;

/// The format that this build writes.
pub const STATE_FORMAT: u32 = 2;

/// The oldest format whose programs can read and write the files of this build.
pub const STATE_FORMAT_READABLE_FROM: u32 = 2;

/// Name of the file with the state format, in `system/` of the System Root.
pub const STATE_FORMAT_FILE: &str = "format.json";

// A build can read its own files.
const _: () = assert!(STATE_FORMAT_READABLE_FROM <= STATE_FORMAT);

/// Content of `system/format.json`. Unknown fields of later versions are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StateFormat {
    /// The newest format that was written here.
    pub wrote: u32,
    /// The oldest format whose programs can read these files.
    pub readable_from: u32,
    /// The version of goondan that wrote this file.
    pub goondan: String,
}

/// The System Root has a format that this build does not support.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "goondan {} wrote it in format {}, which is readable from format {} on; this is goondan {GOONDAN_VERSION}, and reads \
     formats up to {STATE_FORMAT}",
    .0.goondan, .0.wrote, .0.readable_from
)]
pub struct NewerFormat(pub StateFormat);

impl NewerFormat {
    /// Suggested fix.
    #[must_use]
    pub fn hint(&self) -> String {
        format!(
            "install goondan {} or newer (see `gdn --version`), or pass another state directory: \
             `gdn --state-root DIR …`",
            self.0.goondan
        )
    }
}

impl StateFormat {
    /// Format that this build writes.
    #[must_use]
    pub fn current() -> Self {
        Self {
            wrote: STATE_FORMAT,
            readable_from: STATE_FORMAT_READABLE_FROM,
            goondan: GOONDAN_VERSION.to_owned(),
        }
    }

    /// Parses the file.
    ///
    /// # Errors
    ///
    /// The error of `serde_json`, also if a field is missing.
    pub fn parse(text: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(text)
    }

    /// The file's text: one line.
    ///
    /// # Errors
    ///
    /// None that is known of: as `serde_json`.
    pub fn render(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self).map(|line| line + "\n")
    }

    /// Checks that this build can read and write the state.
    ///
    /// # Errors
    ///
    /// [`NewerFormat`].
    pub fn check(&self) -> Result<(), NewerFormat> {
        if self.readable_from > STATE_FORMAT {
            return Err(NewerFormat(self.clone()));
        }
        Ok(())
    }

    /// New content of the file before this build writes here; `None` if it can stay unchanged. A
    /// readable entry of a newer build stays, because its files still exist.
    #[must_use]
    pub fn brought_up(found: Option<&Self>) -> Option<Self> {
        let ours = Self::current();
        match found {
            Some(found) if *found == ours || found.wrote > ours.wrote => None,
            Some(_) | None => Some(ours),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format_file(wrote: u32, readable_from: u32, goondan: &str) -> StateFormat {
        StateFormat {
            wrote,
            readable_from,
            goondan: goondan.to_owned(),
        }
    }

    #[test]
    fn rel_1_unreadable_newer_format_is_refused_naming_its_writer() {
        assert_eq!(StateFormat::current().check(), Ok(()));
        assert_eq!(
            format_file(STATE_FORMAT + 1, STATE_FORMAT, "9.9.9").check(),
            Ok(())
        );
        let newer = format_file(STATE_FORMAT + 2, STATE_FORMAT + 1, "9.9.9");
        let refused = newer.check().unwrap_err();
        let text = format!("{refused} {}", refused.hint());
        assert!(
            text.contains("goondan 9.9.9") && text.contains("`gdn --version`"),
            "{text}"
        );
    }

    #[test]
    fn rel_1_an_older_file_is_brought_up_and_a_newer_one_is_left() {
        let ours = StateFormat::current();
        assert_eq!(StateFormat::brought_up(None), Some(ours.clone()));
        let older = format_file(0, 0, "0.0.9");
        assert_eq!(StateFormat::brought_up(Some(&older)), Some(ours.clone()));
        let same_format = format_file(STATE_FORMAT, STATE_FORMAT_READABLE_FROM, "0.0.9");
        assert_eq!(
            StateFormat::brought_up(Some(&same_format)),
            Some(ours.clone())
        );
        assert_eq!(StateFormat::brought_up(Some(&ours)), None);
        let newer = format_file(STATE_FORMAT + 1, STATE_FORMAT, "9.9.9");
        assert_eq!(StateFormat::brought_up(Some(&newer)), None);
    }

    #[test]
    fn unknown_fields_of_a_later_version_are_ignored() {
        let text = br#"{"wrote":7,"readableFrom":1,"goondan":"9.9.9","more":[]}"#;
        assert_eq!(
            StateFormat::parse(text).unwrap(),
            format_file(7, 1, "9.9.9")
        );
        assert!(StateFormat::parse(b"{\"wrote\":7}").is_err());
        let ours = StateFormat::current();
        let text = ours.render().unwrap();
        assert_eq!(StateFormat::parse(text.as_bytes()).unwrap(), ours);
    }
}
