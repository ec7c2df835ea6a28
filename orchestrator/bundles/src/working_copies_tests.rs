//! Links created by an agent in its working copy never redirect the daemon, on a real file system.

use std::fs;
use std::os::unix::fs::symlink;

use goondan_trees::RealFiles;
use tempfile::TempDir;

use super::*;

const SECRET: &str = "AGE-SECRET-KEY-1";

/// A directory of changesets, and another one beside it that agents must not access.
struct CopiesFixture {
    root: TempDir,
    copies: WorkingCopies,
    id: ChangesetId,
}

impl CopiesFixture {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for dir in ["changesets", "system"] {
            fs::create_dir(root.path().join(dir)).unwrap();
        }
        let copies = WorkingCopies::open(&RealFiles, root.path().join("changesets")).unwrap();
        let place = Self {
            root,
            copies,
            id: "t.1-q1".parse().unwrap(),
        };
        place.put_secret();
        let tree = Tree::from([("prompts/a.md".to_owned(), Some("one".to_owned()))]);
        place.copies.stage(&place.id, &tree).unwrap();
        place
    }

    #[expect(clippy::disallowed_methods, reason = "test files need not be durable")]
    fn put_secret(&self) {
        fs::write(self.secret(), SECRET).unwrap();
    }

    fn secret(&self) -> PathBuf {
        self.root.path().join("system/identity.age")
    }

    fn workdir(&self) -> PathBuf {
        workdir_in(&self.root.path().join("changesets"), &self.id)
    }

    fn read(&self) -> Result<Tree, BundleError> {
        self.copies.read(&self.id, &Tree::new())
    }

    fn must_be_untouched(&self) {
        assert_eq!(fs::read_to_string(self.secret()).unwrap(), SECRET);
        let names = fs::read_dir(self.root.path().join("system")).unwrap();
        assert_eq!(names.count(), 1);
    }
}

#[test]
fn bundle_3_a_working_copy_is_written_read_and_removed() {
    let place = CopiesFixture::new();
    let write = |path, text| place.copies.write(&place.id, path, text).unwrap();
    write("prompts/a.md", Some("two"));
    write("deep/er/b.md", Some("new"));
    let expected = [("deep/er/b.md", "new"), ("prompts/a.md", "two")];
    let expected = expected.map(|(path, text)| (path.to_owned(), Some(text.to_owned())));
    assert_eq!(place.read().unwrap(), Tree::from(expected));
    write("prompts/a.md", None);
    write("prompts/a.md", None);
    assert_eq!(place.read().unwrap().len(), 1);
    let error = place.copies.write(&place.id, "deep", Some("x"));
    assert!(matches!(error, Err(BundleError::Invalid(_))), "{error:?}");
    place.copies.remove(&place.id).unwrap();
    assert!(!place.workdir().exists());
}

#[test]
fn sec_3_link_in_place_of_directory_redirects_no_write() {
    let place = CopiesFixture::new();
    let system = place.root.path().join("system");
    symlink(&system, place.workdir().join("d")).unwrap();
    for path in ["d/config.json", "d/identity.age"] {
        place
            .copies
            .write(&place.id, path, Some("mine"))
            .unwrap_err();
        place.copies.write(&place.id, path, None).unwrap_err();
    }
    place.must_be_untouched();
    // The whole changeset is a link.
    fs::remove_dir_all(place.workdir().parent().unwrap()).unwrap();
    symlink(&system, place.workdir().parent().unwrap()).unwrap();
    place
        .copies
        .write(&place.id, "a.md", Some("mine"))
        .unwrap_err();
    place.copies.write_diff(&place.id, "mine").unwrap_err();
    place.copies.stage(&place.id, &Tree::new()).unwrap_err();
    place.read().unwrap_err();
    place.copies.remove(&place.id).unwrap();
    place.must_be_untouched();
}

#[test]
fn sec_3_link_in_place_of_file_is_not_read_but_overwritten() {
    let place = CopiesFixture::new();
    let link = place.workdir().join("prompts/a.md");
    fs::remove_file(&link).unwrap();
    symlink(place.secret(), &link).unwrap();
    let error = place.read().unwrap_err();
    assert!(
        error.to_string().contains("neither a file nor a directory"),
        "{error}"
    );
    place
        .copies
        .write(&place.id, "prompts/a.md", Some("mine"))
        .unwrap();
    place.must_be_untouched();
    assert_eq!(fs::read_to_string(&link).unwrap(), "mine");
    assert_eq!(place.read().unwrap().len(), 1);
}
