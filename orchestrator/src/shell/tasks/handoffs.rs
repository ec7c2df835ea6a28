//! Validation of the paths in a HANDOFF of a task's program (`PROP-6`).

use std::path::Path;

use goondan_durable::disk::{Folder as _, NodeKind};
use goondan_protocol::handoff::{HANDOFF_MARK, Handoff, HandoffField};
use goondan_trees::RealFolder;

/// Reports the first path of a HANDOFF that does not exist or is outside; `None` if every path is
/// valid. A text without paths is for users and always valid.
pub(super) fn problem_of(text: &str, work_area: &Path, sandboxes: &Path) -> Option<String> {
    let handoff: Handoff = format!("{HANDOFF_MARK}\n{text}").parse().ok()?;
    let named = [
        (
            HandoffField::SandboxWorkDir,
            &*handoff.sandbox_work_dir,
            NodeKind::Directory,
            "directory",
        ),
        (
            HandoffField::ProposalJson,
            &*handoff.proposal_json,
            NodeKind::File,
            "file",
        ),
    ];
    named.into_iter().find_map(|(field, path, kind, what)| {
        let found = kind_of(Path::new(path), work_area, sandboxes);
        let problem = match found {
            Some(Some(found)) if found == kind => return None,
            Some(Some(_)) => format!("which is not a {what}"),
            Some(None) => "which does not exist".to_owned(),
            None => "which is outside the work area".to_owned(),
        };
        Some(format!("`{field}` names `{path}`, {problem}"))
    })
}

/// The kind of a path, if it is in the work area or in a sandbox. Symbolic links are not followed.
fn kind_of(path: &Path, work_area: &Path, sandboxes: &Path) -> Option<Option<NodeKind>> {
    let (root, path) = if path.is_relative() {
        (work_area, path)
    } else {
        [work_area, sandboxes]
            .into_iter()
            .find_map(|root| Some((root, path.strip_prefix(root).ok()?)))?
    };
    let stat = RealFolder::open(root).and_then(|folder| folder.look(path));
    Some(stat.ok().flatten().map(|stat| stat.kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prop_6_handoff_naming_missing_files_is_reported() {
        let temp = tempfile::tempdir().unwrap();
        let (area, sandboxes) = (temp.path().join("area"), temp.path().join("sandboxes"));
        std::fs::create_dir_all(area.join("work")).unwrap();
        std::fs::create_dir_all(sandboxes.join("r/a/proposal")).unwrap();
        std::fs::create_dir_all(sandboxes.join("r/a/work")).unwrap();
        for path in ["area/proposal.json", "sandboxes/r/a/proposal/proposal.json"] {
            std::fs::File::create_new(temp.path().join(path)).unwrap();
        }
        std::os::unix::fs::symlink("/etc", area.join("link")).unwrap();
        let problem = |work: &str, json: &str| {
            let text = format!("Goal: x\nSandboxWorkDir: {work}\nProposalJson: {json}\n");
            problem_of(&text, &area, &sandboxes)
        };
        let own = sandboxes.join("r/a");
        let own = own.display();
        assert_eq!(problem("work", "proposal.json"), None);
        assert_eq!(problem("work/", "proposal.json"), None);
        assert_eq!(
            problem(
                &format!("{own}/work"),
                &format!("{own}/proposal/proposal.json")
            ),
            None
        );
        for (work, json, says) in [
            ("none", "proposal.json", "`none`, which does not exist"),
            ("work", "work/proposal.json", "which does not exist"),
            ("proposal.json", "proposal.json", "which is not a directory"),
            ("/etc", "proposal.json", "outside the work area"),
            ("link/ssl", "proposal.json", "which does not exist"),
            ("work", "/etc/proposal.json", "outside the work area"),
        ] {
            let problem = problem(work, json).unwrap_or_default();
            assert!(problem.contains(says), "{work} {json}: {problem}");
        }
        assert_eq!(problem_of("Over to you.", &area, &sandboxes), None);
    }
}
