//! Configuration that runs while the project's own is invalid.

use goondan_protocol::control::{WorkspaceInfo, WorkspaceProblem, WorkspaceReload};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::time::Timestamp;

use crate::context::Context;
use crate::output::{style, text};

/// Length of a digest in text output, in characters; `--json` prints it in full.
pub(super) const SHORT_DIGEST_CHARS: usize = 8;

/// Configuration that runs instead of the project's own.
pub(super) struct ActiveConfig<'w> {
    digest: Option<&'w str>,
    since: Option<Timestamp>,
    is_last_known_good: bool,
}

impl<'w> ActiveConfig<'w> {
    pub(super) fn of(info: &'w WorkspaceInfo) -> Self {
        Self {
            digest: info.config_digest.as_deref(),
            since: info.config_since,
            is_last_known_good: info.last_known_good,
        }
    }

    pub(super) fn of_reload(reload: &'w WorkspaceReload) -> Self {
        Self {
            digest: reload.config_digest.as_deref(),
            since: reload.config_since,
            is_last_known_good: reload.last_known_good,
        }
    }

    /// Describes what runs, in one sentence.
    pub(super) fn description(&self) -> String {
        let Some(digest) = self.digest else {
            return "The workspace does not run".to_owned();
        };
        let digest = short(digest);
        let since = self.since.map_or_else(String::new, text::clock);
        if self.is_last_known_good {
            format!("The last known good configuration runs instead: {digest}, of {since}")
        } else {
            format!("The previous configuration continues to run: {digest}, since {since}")
        }
    }

    /// Advice for preventing a fallback configuration from running, if the daemon fell back to one.
    pub(super) fn refusal(&self, context: &Context) -> Option<String> {
        self.is_last_known_good
            .then(|| format!("to stop it instead: `{}`", context.command("run --strict")))
    }
}

/// Prints a warning about the problem with a workspace's configuration and what runs instead.
pub(super) fn warn(
    workspace_id: &WorkspaceId,
    problem: &WorkspaceProblem,
    running: &ActiveConfig<'_>,
    context: &Context,
) {
    let output = context.output;
    let hints = [Some(problem.suggestion.clone()), running.refusal(context)];
    output.note(format!(
        "{} {workspace_id}: {}\n\n{}\n{} {}",
        output.err.paint(style::WARN, "warning:"),
        text::printable(&problem.message),
        running.description(),
        output.err.paint(style::HINT, "hint:"),
        text::printable(&hints.into_iter().flatten().collect::<Vec<_>>().join("; ")),
    ));
}

/// Digest prefix, long enough to distinguish digests.
pub(super) fn short(digest: &str) -> String {
    digest.chars().take(SHORT_DIGEST_CHARS).collect()
}
