//! Review and application of a worker's proposal by a coordinating agent (`PROP-8`).
//!
//! A policy of the project names the agents and the paths. An agent applies a proposal as a whole or
//! not at all, and never its own, a stale one, or one that changes the project's configuration.

use std::fmt;
use std::path::Path;

use goondan_protocol::control::{
    ApplyProposal, CommentState, ProposalApplied, ProposalRefusal, ProposalReview, ProposalState,
    RefusalKind, SandboxRef,
};
use goondan_protocol::path_patterns::PathPatterns;
use goondan_protocol::secret_file::holds_secrets;
use goondan_trees::{PathChange, RelativePath, TreeEntry};

use crate::comments::comments;
use crate::error::ProposalError;
use crate::review::{about, changes_of};
use crate::sandboxes::{OpenSandbox, Sandboxes, StoredProposal};

/// Names, in any directory, that belong to the configuration of a project or to its repository.
const RESERVED: [&str; 5] = [
    "goondan.yaml",
    "goondan.lock",
    ".git",
    ".gitattributes",
    ".gitmodules",
];
/// Beginning of such names.
const RESERVED_PREFIX: &str = ".goondan";
/// Directory of a project that contains parts of its configuration.
const RESOURCES: &str = "resources";

/// An agent that reviews or applies a proposal.
pub struct AgentReviewer<'a> {
    /// Name of the agent.
    pub agent: &'a str,
    /// Its conversation.
    pub conversation: &'a str,
    /// Patterns of the paths that it may change; empty if a person must apply.
    pub paths: &'a [String],
    /// True if a path of the project is part of its configuration.
    pub is_configuration: &'a dyn Fn(&Path) -> bool,
}

impl fmt::Display for AgentReviewer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "agent `{}` in `{}`", self.agent, self.conversation)
    }
}

impl Sandboxes<'_> {
    /// Checks a proposal for an agent, and records the verdict with the agent's name.
    ///
    /// # Errors
    ///
    /// As [`Self::check`].
    pub fn review_by_agent(
        &mut self,
        at: &SandboxRef,
        reviewer: &AgentReviewer<'_>,
    ) -> Result<ProposalReview, ProposalError> {
        let open = self.open(at)?;
        let kept = self.kept(&open)?;
        let forbidden = self.forbidden(&open, &kept, reviewer)?;
        self.examine_and_record(&open, &kept, forbidden, Some(&reviewer.to_string()))
    }

    /// Applies a proposal for an agent, unless that was done before.
    ///
    /// # Errors
    ///
    /// [`ProposalError::Refused`] with every reason, and [`ProposalError::Invalid`] for another
    /// proposal than the reviewed one.
    pub fn apply_by_agent(
        &mut self,
        request: &ApplyProposal,
        reviewer: &AgentReviewer<'_>,
    ) -> Result<ProposalApplied, ProposalError> {
        let open = self.open(&request.at)?;
        let kept = self.kept(&open)?;
        // An agent applies what it has read.
        let reviewed = request.digest.as_deref().unwrap_or_default();
        Self::check_digest(Some(reviewed), &kept)?;
        if kept.standing.state == ProposalState::Applied {
            return Ok(self.applied_before(&open, &kept));
        }
        let by = reviewer.to_string();
        let forbidden = self.forbidden(&open, &kept, reviewer)?;
        let review = self.examine_and_record(&open, &kept, forbidden, Some(&by))?;
        self.apply_reviewed(&open, &kept, review.refusals, Some(&by))
    }

    /// Reasons why this agent must not apply this proposal.
    fn forbidden(
        &self,
        open: &OpenSandbox,
        kept: &StoredProposal,
        reviewer: &AgentReviewer<'_>,
    ) -> Result<Vec<ProposalRefusal>, ProposalError> {
        let mut refusals = not_permitted(open, kept, reviewer);
        let comments = comments(&self.events(&open.at.run_id)?, &open.at.agent_id);
        if comments.iter().any(|it| it.state == CommentState::Open) {
            let reason = "a person has commented on it, so that a person must decide";
            refusals.push(about(RefusalKind::NotAllowed, None, reason));
        }
        Ok(refusals)
    }
}

/// Reasons that follow from its author, its paths and the policy.
fn not_permitted(
    open: &OpenSandbox,
    kept: &StoredProposal,
    reviewer: &AgentReviewer<'_>,
) -> Vec<ProposalRefusal> {
    let agent = reviewer.agent;
    if open.at.agent_id.as_str() == agent {
        let reason = "an agent must not apply its own proposal; a person or another agent must";
        return vec![about(RefusalKind::NotAllowed, None, reason)];
    }
    let patterns = PathPatterns::new(reviewer.paths).ok();
    let Some(patterns) = patterns.filter(|_| !reviewer.paths.is_empty()) else {
        let reason = format!(
            "a person must apply it: `policy.proposals.apply` in goondan.yaml does not name agent \
             `{agent}`"
        );
        return vec![about(RefusalKind::NotAllowed, None, reason)];
    };
    let changes = changes_of(open, kept);
    let is_needed = |directory: &RelativePath| {
        let mut leaves = changes.iter().filter(|change| !is_directory(change));
        leaves.any(|change| change.path.is_below(directory))
    };
    let reasons = changes.iter().filter_map(|change| {
        let path = &change.path;
        let is_allowed =
            patterns.matches(path.as_path()) || (is_directory(change) && is_needed(path));
        let reason = if is_reserved(path) || (reviewer.is_configuration)(path.as_path()) {
            "only a person changes the project's configuration".to_owned()
        } else if holds_secrets(path.as_path()) {
            "it looks like a file with secrets, which only a person changes".to_owned()
        } else if !is_allowed {
            format!("`policy.proposals.apply` does not let agent `{agent}` change it")
        } else if matches!(change.new, Some(TreeEntry::Link { .. })) {
            "it becomes a link, which only a person creates".to_owned()
        } else {
            return None;
        };
        Some(about(
            RefusalKind::NotAllowed,
            Some(path.to_string()),
            reason,
        ))
    });
    reasons.collect()
}

/// True if neither side of a change is a file or a link.
fn is_directory(change: &PathChange) -> bool {
    let is_leaf = |entry: &Option<TreeEntry>| {
        entry
            .as_ref()
            .is_some_and(|entry| !TreeEntry::is_directory(entry))
    };
    !is_leaf(&change.old) && !is_leaf(&change.new)
}

/// True if a path belongs to a configuration or a repository by its names, in any case.
fn is_reserved(path: &RelativePath) -> bool {
    let lower = path.as_bytes().to_ascii_lowercase();
    let mut names = lower.split(|byte| *byte == b'/');
    let is_resource = lower.split(|byte| *byte == b'/').next() == Some(RESOURCES.as_bytes());
    is_resource
        || names.any(|name| {
            RESERVED.iter().any(|reserved| name == reserved.as_bytes())
                || name.starts_with(RESERVED_PREFIX.as_bytes())
        })
}

#[cfg(test)]
mod tests {
    use goondan_protocol::control::{CommentProposal, RunEventKind};

    use super::*;
    use crate::NoGit;
    use crate::world::{PROJECT, WORK, World, apply, at, create, prepare, refusals, workspace};

    fn chief<'a>(paths: &'a [String], prompt: &'a dyn Fn(&Path) -> bool) -> AgentReviewer<'a> {
        AgentReviewer {
            agent: "chief",
            conversation: "main",
            paths,
            is_configuration: prompt,
        }
    }

    fn digest(world: &World) -> String {
        world.sandboxes().show(&at()).unwrap().info.digest
    }

    /// Applies the current proposal as an agent with these paths.
    fn applied(world: &World, paths: &[&str]) -> Result<ProposalApplied, ProposalError> {
        let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        let request = ApplyProposal {
            digest: Some(digest(world)),
            ..apply()
        };
        let prompt = |path: &Path| path == Path::new("src/prompt.md");
        world
            .sandboxes()
            .apply_by_agent(&request, &chief(&paths, &prompt))
    }

    fn refused(world: &World, paths: &[&str]) -> Vec<String> {
        let before = world.tree(PROJECT);
        let refused = refusals(applied(world, paths)).into_iter();
        let named = refused.map(|(path, kind)| {
            assert_eq!(kind, RefusalKind::NotAllowed, "{path:?}");
            path.unwrap_or_default()
        });
        let named = named.collect();
        assert_eq!(world.tree(PROJECT), before, "nothing is applied");
        named
    }

    /// A worker with a copy of everything, guarded files included.
    fn free() -> World {
        let world = World::new();
        world.write(PROJECT, "goondan.yaml", "kind: Agent\n");
        world.write(PROJECT, "src/prompt.md", "Be brief.\n");
        let mut all = prepare(&["src", "README.md", "goondan.yaml"]);
        all.may_create = vec![".".to_owned()];
        world.sandboxes().prepare(&all).unwrap();
        world
    }

    #[test]
    fn prop_8_an_agent_applies_only_within_its_paths() {
        let world = World::with_proposal();
        assert_eq!(refused(&world, &[]), [""], "nothing is allowed by default");
        let outside = ["src/a.rs", "src/deep/c.rs"];
        assert_eq!(refused(&world, &["src/new.rs"]), outside);
        assert_eq!(refused(&world, &["src"]).len(), 3);
        let files = applied(&world, &["src/*.rs", "src/deep/**"]).unwrap().files;
        assert_eq!(files, ["src/a.rs", "src/deep/c.rs", "src/new.rs"]);
        // A repeated call, after a crash of the agent, has no further effect.
        let again = applied(&world, &["src/**"]).unwrap();
        assert_eq!(again.files, files);
        let detail = world.sandboxes().show(&at()).unwrap();
        let by = detail.history.iter().filter(|event| {
            event.kind == RunEventKind::ProposalApplied
                && event.detail.ends_with("by agent `chief` in `main`")
        });
        assert_eq!(by.count(), 1, "{:?}", detail.history);
    }

    #[test]
    fn prop_8_an_agent_applies_what_it_has_reviewed() {
        let world = World::with_proposal();
        let paths = ["src/**".to_owned()];
        let never = |_: &Path| false;
        let mut sandboxes = world.sandboxes();
        let review = sandboxes.review_by_agent(&at(), &chief(&paths, &never));
        let review = review.unwrap();
        assert!(review.can_apply, "{review:?}");
        let request = ApplyProposal {
            digest: Some(review.proposal.digest),
            allow_moved_base: true,
            ..apply()
        };
        // The worker submits another one, or the project changes.
        world.write(WORK, "src/a.rs", "fn a() { 2 }\n");
        world.created().unwrap();
        let error = sandboxes.apply_by_agent(&request, &chief(&paths, &never));
        assert!(error.unwrap_err().to_string().contains("newer proposal"));
        sandboxes
            .comment(&CommentProposal {
                workspace_id: workspace(),
                at: at(),
                path: "src/a.rs".to_owned(),
                line: Some(1),
                old: false,
                text: "Why?".to_owned(),
                digest: None,
                comment_id: None,
            })
            .unwrap();
        let review = sandboxes.review_by_agent(&at(), &chief(&paths, &never));
        let review = review.unwrap().refusals;
        assert!(review[0].reason.contains("commented"), "{review:?}");
        sandboxes.take_comments(&at(), 1).unwrap();
        let none = apply();
        sandboxes
            .apply_by_agent(&none, &chief(&paths, &never))
            .unwrap_err();
        world.write(PROJECT, "src/b.rs", "a person's\n");
        let request = ApplyProposal {
            digest: Some(digest(&world)),
            ..request
        };
        let stale = sandboxes.apply_by_agent(&request, &chief(&paths, &never));
        let stale = refusals(stale);
        assert_eq!(
            stale,
            [(Some("src/b.rs".to_owned()), RefusalKind::BaseChanged)],
            "an agent overrides no changed base"
        );
    }

    #[test]
    fn prop_8_an_agent_never_applies_its_own_proposal() {
        let world = World::with_proposal();
        let paths = ["**".to_owned()];
        let never = |_: &Path| false;
        let own = AgentReviewer {
            agent: "coder",
            ..chief(&paths, &never)
        };
        let request = ApplyProposal {
            digest: Some(digest(&world)),
            ..apply()
        };
        let error = world.sandboxes().apply_by_agent(&request, &own);
        assert!(error.unwrap_err().to_string().contains("its own proposal"));
    }

    #[test]
    fn prop_8_an_agent_changes_no_configuration_or_links() {
        for (path, text) in [
            ("goondan.yaml", "kind: Swarm\n"),
            ("src/prompt.md", "Obey.\n"),
            ("resources/x.yaml", "kind: Agent\n"),
            ("packages/p/Goondan.YAML", "kind: Package\n"),
            ("goondan.lock", "x\n"),
            (".gitattributes", "* filter=x\n"),
        ] {
            let world = free();
            world.write(WORK, path, text);
            world.write(WORK, "src/a.rs", "fn a() { 1 }\n");
            world.sandboxes().create(&create(), &NoGit).unwrap();
            let named = refused(&world, &["**"]);
            assert!(named.contains(&path.to_owned()), "{path}: {named:?}");
            assert!(!named.contains(&"src/a.rs".to_owned()), "{named:?}");
        }
        let world = free();
        let folder = world.disk().folder(Path::new(WORK));
        let (link, target) = (Path::new("src/link"), Path::new("../goondan.yaml"));
        folder.create_link(link, target).unwrap();
        world.sandboxes().create(&create(), &NoGit).unwrap();
        assert_eq!(refused(&world, &["**"]), ["src/link"]);
    }

    #[test]
    fn prop_8_a_rename_needs_both_paths() {
        let world = free();
        world.remove(WORK, "README.md");
        world.write(WORK, "docs/readme.md", "read me\n");
        world.sandboxes().create(&create(), &NoGit).unwrap();
        assert_eq!(refused(&world, &["docs/**"]), ["README.md"]);
        assert_eq!(refused(&world, &["*.md"]), ["docs/readme.md"]);
        applied(&world, &["docs/**", "README.md"]).unwrap();
        assert_eq!(world.read(PROJECT, "README.md"), None);
    }
}
