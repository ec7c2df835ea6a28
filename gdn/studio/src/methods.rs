//! The only daemon methods that the page may call.
//!
//! Stopping the daemon, opening and closing workspaces, secrets, permissions and packages are
//! reserved for `gdn`.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read-only.
    Reads,
    /// Changes something; requires `gdn studio --write`.
    Writes,
}

/// The page's methods and their effects.
pub(crate) const METHODS: &[(&str, Access)] = &[
    ("daemon.status", Access::Reads),
    ("daemon.processes", Access::Reads),
    ("workspace.list", Access::Reads),
    ("workspace.audit", Access::Reads),
    ("workspace.usage", Access::Reads),
    ("workspace.traffic", Access::Reads),
    ("instance.list", Access::Reads),
    ("instance.show", Access::Reads),
    ("instance.page", Access::Reads),
    ("message.get", Access::Reads),
    ("instance.turns", Access::Reads),
    ("instance.checkpoints", Access::Reads),
    ("instance.export", Access::Reads),
    ("trace.page", Access::Reads),
    ("event.list", Access::Reads),
    ("schedule.list", Access::Reads),
    ("question.list", Access::Reads),
    ("question.show", Access::Reads),
    ("approval.list", Access::Reads),
    ("approval.show", Access::Reads),
    ("call.unknown", Access::Reads),
    ("sandbox.list", Access::Reads),
    ("sandbox.show", Access::Reads),
    ("proposal.list", Access::Reads),
    ("proposal.show", Access::Reads),
    ("proposal.diff", Access::Reads),
    ("proposal.check", Access::Reads),
    ("bundle.status", Access::Reads),
    ("bundle.waiting", Access::Reads),
    ("bundle.log", Access::Reads),
    ("bundle.show", Access::Reads),
    ("task.list", Access::Reads),
    ("task.show", Access::Reads),
    ("task.logs", Access::Reads),
    ("task.checkpoints", Access::Reads),
    ("oauth.list", Access::Reads),
    ("oauth.show", Access::Reads),
    ("event.send", Access::Writes),
    ("event.retry", Access::Writes),
    ("event.drop", Access::Writes),
    ("event.cancel", Access::Writes),
    ("event.pause", Access::Writes),
    ("event.resume", Access::Writes),
    ("event.move", Access::Writes),
    ("schedule.move", Access::Writes),
    ("schedule.remove", Access::Writes),
    ("question.answer", Access::Writes),
    ("question.decline", Access::Writes),
    ("approval.decide", Access::Writes),
    ("call.settle", Access::Writes),
    ("instance.checkpoint", Access::Writes),
    ("instance.rewind", Access::Writes),
    ("instance.delete", Access::Writes),
    ("proposal.apply", Access::Writes),
    ("proposal.reject", Access::Writes),
    ("proposal.revert", Access::Writes),
    ("proposal.merge", Access::Writes),
    ("proposal.comment", Access::Writes),
    ("proposal.uncomment", Access::Writes),
    ("bundle.approve", Access::Writes),
    ("bundle.reject", Access::Writes),
    ("bundle.revert", Access::Writes),
    ("bundle.pin", Access::Writes),
    ("task.start", Access::Writes),
    ("task.pause", Access::Writes),
    ("task.resume", Access::Writes),
    ("task.cancel", Access::Writes),
    ("task.provide", Access::Writes),
    ("task.answer", Access::Writes),
    ("task.approve", Access::Writes),
    ("task.rework", Access::Writes),
    ("task.send", Access::Writes),
    ("task.budget", Access::Writes),
    ("task.checkpoint", Access::Writes),
    ("task.restore", Access::Writes),
];

pub(crate) const STREAMS: &[&str] = &[
    "workspace.watch",
    "process.watch",
    "turn.follow",
    "logs.follow",
    "task.watch",
];

/// A method of the page by its name.
pub(crate) fn method(name: &str) -> Option<(&'static str, Access)> {
    METHODS.iter().copied().find(|(known, _)| *known == name)
}

/// A stream of the page by its name.
pub(crate) fn stream(name: &str) -> Option<&'static str> {
    STREAMS.iter().copied().find(|known| *known == name)
}

#[cfg(test)]
mod tests {
    use goondan_protocol::control::Call;

    use super::*;

    #[test]
    fn every_method_is_one_of_the_daemons_and_named_once() {
        let names = METHODS.iter().map(|(name, _)| *name);
        let mut names: Vec<_> = names.chain(STREAMS.iter().copied()).collect();
        for name in &names {
            assert!(Call::NAMES.contains(name), "{name}");
        }
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn obs_5_studio_excludes_methods_for_shutdown_and_secrets() {
        for name in Call::NAMES {
            let is_left = ["daemon.shutdown", "daemon.connect", "root.verify"].contains(name)
                || ["secret.", "permission.", "package."]
                    .iter()
                    .any(|kind| name.starts_with(kind))
                || ["workspace.open", "workspace.close", "instance.import"].contains(name);
            if is_left {
                assert!(method(name).is_none() && stream(name).is_none(), "{name}");
            }
        }
    }
}
