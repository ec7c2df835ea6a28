//! Checks which documents listed as created by an agent exist (`PROTO-4`).

use std::path::{Component, Path, PathBuf};

use goondan_durable::disk::Folder as _;
use goondan_trees::RealFolder;

/// Returns the documents that do not exist in the work area. A path that leads out of the work
/// area, or that cannot be read, counts as missing.
pub(super) fn missing(work_area: &Path, documents: Vec<String>) -> Vec<String> {
    let folder = RealFolder::open(work_area);
    let exists = |document: &String| {
        let path = below(work_area, document)?;
        folder.as_ref().ok()?.look(&path).ok()?
    };
    documents
        .into_iter()
        .filter(|document| exists(document).is_none())
        .collect()
}

/// Returns the path relative to the work area. Agents use relative or absolute paths.
fn below(work_area: &Path, document: &str) -> Option<PathBuf> {
    let path = Path::new(document);
    let path = path.strip_prefix(work_area).unwrap_or(path);
    let mut below = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => below.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    (!below.as_os_str().is_empty()).then_some(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "creates files for a test")]
    fn proto_4_documents_that_do_not_exist_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("task");
        std::fs::create_dir_all(root.join("docs/planning")).unwrap();
        std::fs::write(root.join("docs/planning/01_idea.md"), "idea").unwrap();
        std::fs::write(dir.path().join("outside.md"), "out").unwrap();
        std::os::unix::fs::symlink(dir.path(), root.join("away")).unwrap();
        let absolute = root.join("docs/planning/01_idea.md").display().to_string();
        let existing = [
            "docs/planning/01_idea.md",
            "./docs/planning/01_idea.md",
            &absolute,
        ];
        let wrong = [
            "docs/planning/02_market.md",
            "docs/planning/01_idea.md/x",
            "../outside.md",
            "away/outside.md",
            "/etc/passwd",
            "",
        ];
        let all = existing.iter().chain(&wrong).map(|path| (*path).to_owned());
        assert_eq!(missing(&root, all.collect()), wrong);
    }
}
