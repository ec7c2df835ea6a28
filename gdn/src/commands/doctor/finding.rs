//! What a check found.

use serde::Serialize;

/// How good that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// As it should be.
    Ok,
    /// It works, and will not in some case.
    Warn,
    /// It has to be mended.
    Bad,
    /// It could not be found out.
    Unknown,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Finding {
    /// What was looked at.
    pub(super) check: &'static str,
    pub(super) verdict: Verdict,
    pub(super) found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hint: Option<String>,
}

impl Finding {
    fn new(check: &'static str, verdict: Verdict, found: impl Into<String>) -> Self {
        Self {
            check,
            verdict,
            found: found.into(),
            hint: None,
        }
    }

    pub(super) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Verdict::Ok, found)
    }

    pub(super) fn warn(
        check: &'static str,
        found: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::new(check, Verdict::Warn, found).hint(hint)
    }

    pub(super) fn bad(
        check: &'static str,
        found: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::new(check, Verdict::Bad, found).hint(hint)
    }

    pub(super) fn unknown(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Verdict::Unknown, found)
    }

    /// What to do about it.
    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }
}
