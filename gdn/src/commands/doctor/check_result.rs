//! Result of a check.

use serde::Serialize;

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CheckStatus {
    Ok,
    /// Works, but fails in some case.
    Warn,
    /// Must be fixed.
    Bad,
    /// Could not be determined.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CheckResult {
    pub(super) check: &'static str,
    pub(super) verdict: CheckStatus,
    pub(super) found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hint: Option<String>,
}

impl CheckResult {
    fn new(check: &'static str, verdict: CheckStatus, found: impl Into<String>) -> Self {
        Self {
            check,
            verdict,
            found: found.into(),
            hint: None,
        }
    }

    pub(super) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, CheckStatus::Ok, found)
    }

    pub(super) fn warn(
        check: &'static str,
        found: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::new(check, CheckStatus::Warn, found).hint(hint)
    }

    pub(super) fn bad(
        check: &'static str,
        found: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::new(check, CheckStatus::Bad, found).hint(hint)
    }

    pub(super) fn unknown(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, CheckStatus::Unknown, found)
    }

    /// Adds a hint on how to fix it.
    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }
}
