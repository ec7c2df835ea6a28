//! What runs of a project whose configuration is not valid.

use goondan_protocol::control::{WorkspaceInfo, WorkspaceProblem, WorkspaceReload};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::time::Timestamp;

use crate::context::Context;
use crate::output::{style, text};

/// How much of a configuration's digest is shown to people, in characters; `--json` shows it whole.
pub(super) const SHORT_DIGEST_CHARS: usize = 8;

/// The configuration that runs in place of the project's own.
pub(super) struct Running<'w> {
    digest: Option<&'w str>,
    since: Option<Timestamp>,
    is_last_known_good: bool,
}

impl<'w> Running<'w> {
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

    /// What runs, as one sentence.
    pub(super) fn told(&self) -> String {
        let Some(digest) = self.digest else {
            return "Nothing runs in its place".to_owned();
        };
        let digest = short(digest);
        let since = self.since.map_or_else(String::new, text::clock);
        if self.is_last_known_good {
            format!(
                "The last known good configuration runs in its place: {digest}, that of {since}"
            )
        } else {
            format!("What ran before goes on: configuration {digest}, since {since}")
        }
    }

    /// How to have nothing run in place of the project's own configuration, if something does that the
    /// daemon fell back to.
    pub(super) fn refusal(&self, context: &Context) -> Option<String> {
        self.is_last_known_good.then(|| {
            format!(
                "to run nothing in its place: `{}`",
                context.command("run --strict")
            )
        })
    }
}

/// Warns on stderr of what is wrong with a workspace's configuration, and says what runs in its place.
pub(super) fn warn(
    workspace_id: &WorkspaceId,
    problem: &WorkspaceProblem,
    running: &Running<'_>,
    context: &Context,
) {
    let output = context.output;
    let hints = [Some(problem.suggestion.clone()), running.refusal(context)];
    output.note(format!(
        "{} {workspace_id}: {}\n\n{}\n{} {}",
        output.err.paint(style::WARN, "warning:"),
        text::printable(&problem.message),
        running.told(),
        output.err.paint(style::HINT, "hint:"),
        text::printable(&hints.into_iter().flatten().collect::<Vec<_>>().join("; ")),
    ));
}

/// The head of a digest, enough to tell it from others.
pub(super) fn short(digest: &str) -> String {
    digest.chars().take(SHORT_DIGEST_CHARS).collect()
}
