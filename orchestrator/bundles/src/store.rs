//! Files of one bundle: `swarm-bundle/` of a conversation (`BUNDLE-1` to `BUNDLE-5`).
//!
//! ```text
//! swarm-bundle/
//!   base.ref  head.ref            the revisions, for users and other programs
//!   cursor.yaml                   the state of the bundle; the only authoritative file
//!   logs/changesets.jsonl  logs/changeset-status.jsonl
//!   changesets/<id>/workdir/  changesets/<id>/diff.patch
//!   effective/effective-<revision>.yaml
//!   store/blobs/<sha256>  store/revisions/<revision>.json
//! ```
//!
//! # Invariants
//!
//! * References in `cursor.yaml` are durable before it: files before their revision, a revision
//!   before the cursor.
//! * The cursor has the records that may be missing in the logs. The next reader writes them there,
//!   each once. So a crash never loses or duplicates a record.
//! * A register outside `swarm-bundle/` lists its content too ([`Register`]): cursor, revisions and
//!   logs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use goondan_durable::IoContext as _;
use goondan_durable::disk::{Disk, EntryKind, read_all};
use goondan_durable::files::{ensure_dir, replace};
use goondan_durable::journal::Journal;
use goondan_durable::register::Register;
use goondan_protocol::bundle::BUNDLE_RECORDS_MAX;
use goondan_protocol::ids::{ChangesetId, RevisionId};
use goondan_trees::FileAccess;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::BundleError;
use crate::limits::{CURSOR_BYTES_MAX, FILES_MAX, TREE_BYTES_MAX};
use crate::machine::{STATE_VERSION, State, UnloggedRecords};
use crate::tree::{Manifest, Tree, digest_of, manifest_of, revision_of, too_large};
use crate::working_copies::{CHANGESETS, WorkingCopies, workdir_in};

/// Directory of a bundle in its conversation's directory.
pub const BUNDLE_DIR: &str = "swarm-bundle";
const CURSOR: &str = "cursor.yaml";
const CHANGESETS_LOG: &str = "changesets.jsonl";
/// Name part of files that were moved aside.
const ASIDE: &str = ".damaged";
const STATUS_LOG: &str = "changeset-status.jsonl";
const LOGS: &str = "logs";
const REVISIONS: &str = "store/revisions";

/// Returns the path of a bundle file, relative to the conversation's directory.
fn below(name: &str) -> String {
    format!("{BUNDLE_DIR}/{name}")
}

fn below_logs(name: &str) -> String {
    below(&format!("{LOGS}/{name}"))
}

fn below_revisions(name: &str) -> String {
    below(&format!("{REVISIONS}/{name}"))
}

#[derive(Debug, Serialize, Deserialize)]
struct Revision {
    files: Manifest,
}

/// Position of a record in its log.
#[derive(Deserialize)]
struct NumberedRecord {
    seq: u64,
}

/// The files of one bundle.
#[derive(Debug, Clone)]
pub(crate) struct Store<'d> {
    files: &'d dyn FileAccess,
    disk: &'d dyn Disk,
    instance: PathBuf,
    dir: PathBuf,
}

impl<'d> Store<'d> {
    pub(crate) fn new(files: &'d dyn FileAccess, instance: &Path) -> Self {
        Self {
            files,
            disk: files.disk(),
            instance: instance.to_owned(),
            dir: instance.join(BUNDLE_DIR),
        }
    }

    fn register(&self) -> Register<'d> {
        Register::of(self.disk, &self.instance)
    }

    fn blob(&self, digest: &str) -> PathBuf {
        self.dir.join("store").join("blobs").join(digest)
    }

    fn revision(&self, id: &RevisionId) -> PathBuf {
        self.dir.join(REVISIONS).join(format!("{id}.json"))
    }

    /// Returns the path of a changeset's working copy.
    pub(crate) fn workdir(&self, id: &ChangesetId) -> PathBuf {
        workdir_in(&self.dir.join(CHANGESETS), id)
    }

    /// Opens the working copies, and creates their directory if it is missing.
    pub(crate) fn working_copies(&self) -> Result<WorkingCopies, BundleError> {
        self.prepare()?;
        WorkingCopies::open(self.files, self.dir.join(CHANGESETS))
    }

    fn is_file(&self, path: &Path) -> Result<bool, BundleError> {
        let stat = self.disk.stat(path).during("inspect", path)?;
        Ok(stat.is_some_and(|stat| stat.kind == EntryKind::File))
    }

    fn read(&self, path: &Path, max: usize) -> Result<Vec<u8>, BundleError> {
        let mut file = self.disk.open_read(path).during("open", path)?;
        Ok(read_all(file.as_mut(), max).during("read", path)?)
    }

    fn damaged(path: &Path, problem: &dyn std::fmt::Display) -> BundleError {
        BundleError::Damaged {
            path: path.to_owned(),
            problem: problem.to_string(),
        }
    }

    fn ensure(&self, dir: &Path) -> Result<(), BundleError> {
        Ok(ensure_dir(self.disk, &self.instance, dir)?)
    }

    /// Creates the directory of changesets.
    pub(crate) fn prepare(&self) -> Result<(), BundleError> {
        self.ensure(&self.dir.join(CHANGESETS))
    }

    fn put(&self, path: &Path, content: &[u8]) -> Result<(), BundleError> {
        if let Some(above) = path.parent() {
            self.ensure(above)?;
        }
        Ok(replace(self.disk, path, content)?)
    }

    /// Loads the state, if anything was proposed yet, and writes records to the logs that a crash
    /// left out.
    pub(crate) fn load(&self) -> Result<Option<State>, BundleError> {
        let here = self.disk.stat(&self.instance);
        let here = here.during("inspect", &self.instance)?;
        if here.is_none_or(|stat| stat.kind != EntryKind::Directory) {
            return Err(BundleError::NoInstance);
        }
        let Some(mut state) = self.peek()? else {
            return Ok(None);
        };
        self.note_all()?;
        self.finish(&state)?;
        state.unlogged = UnloggedRecords::default();
        Ok(Some(state))
    }

    /// Loads the state, if anything was proposed yet, without writing, so that it is safe during
    /// concurrent operations.
    pub(crate) fn peek(&self) -> Result<Option<State>, BundleError> {
        let path = self.dir.join(CURSOR);
        if !self.is_file(&path)? {
            return Ok(None);
        }
        let text = self.read(&path, CURSOR_BYTES_MAX)?;
        let state: State =
            serde_json::from_slice(&text).map_err(|error| Self::damaged(&path, &error))?;
        if state.version != STATE_VERSION {
            let problem = format!("expected version {STATE_VERSION}, found {}", state.version);
            return Err(Self::damaged(&path, &problem));
        }
        Ok(Some(state))
    }

    /// Makes the state durable, then its log records.
    pub(crate) fn save(&self, state: &mut State) -> Result<(), BundleError> {
        let path = self.dir.join(CURSOR);
        let text = serde_json::to_vec_pretty(state).map_err(|e| Self::damaged(&path, &e))?;
        if text.len() > CURSOR_BYTES_MAX {
            let text = format!("the bundle would take more than {CURSOR_BYTES_MAX} bytes");
            return Err(BundleError::Invalid(text));
        }
        self.ensure(&self.dir)?;
        self.register().replace(&below(CURSOR), &text)?;
        self.finish(state)?;
        state.unlogged = UnloggedRecords::default();
        Ok(())
    }

    /// Registers files of a version without registers.
    fn note_all(&self) -> Result<(), BundleError> {
        let mut names = vec![
            below(CURSOR),
            below_logs(CHANGESETS_LOG),
            below_logs(STATUS_LOG),
        ];
        let revisions = self.dir.join(REVISIONS);
        if self
            .disk
            .stat(&revisions)
            .during("inspect", &revisions)?
            .is_some()
        {
            for entry in self.disk.list(&revisions).during("list", &revisions)? {
                let name = entry.name.to_string_lossy().into_owned();
                if entry.kind == EntryKind::File && name.ends_with(".json") {
                    names.push(below_revisions(&name));
                }
            }
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.register().note_new(&names);
        Ok(())
    }

    /// Brings logs and reference files up to date with the cursor.
    fn finish(&self, state: &State) -> Result<(), BundleError> {
        let unlogged = &state.unlogged;
        self.append(CHANGESETS_LOG, &unlogged.changesets, |it| it.seq)?;
        self.append(STATUS_LOG, &unlogged.statuses, |it| it.seq)?;
        for (name, revision) in [("base.ref", &state.base), ("head.ref", &state.head)] {
            let path = self.dir.join(name);
            let text = format!("{revision}\n");
            let is_so = self.is_file(&path)? && self.read(&path, 1_024)? == text.as_bytes();
            if !is_so {
                self.put(&path, text.as_bytes())?;
            }
        }
        Ok(())
    }

    fn append<R: Serialize>(
        &self,
        name: &str,
        records: &[R],
        seq: impl Fn(&R) -> u64,
    ) -> Result<(), BundleError> {
        if records.is_empty() {
            return Ok(());
        }
        let logs = self.dir.join(LOGS);
        self.ensure(&logs)?;
        let path = logs.join(name);
        let is_new = !self.is_file(&path)?;
        let mut journal = Journal::open(self.disk, &path)?;
        let mut last = 0;
        let good = journal.scan(|_, line| {
            if let Ok(placed) = serde_json::from_slice::<NumberedRecord>(line) {
                last = placed.seq.max(last);
            }
        })?;
        // A torn line is rewritten from the cursor.
        journal.cut(good)?;
        for record in records.iter().filter(|record| seq(record) > last) {
            let mut line =
                serde_json::to_vec(record).map_err(|error| Self::damaged(&path, &error))?;
            line.push(b'\n');
            journal.append(&line)?;
        }
        journal.sync()?;
        if is_new {
            self.disk.sync_dir(&logs).during("sync", &logs)?;
        }
        self.register().note(&[&below_logs(name)]);
        Ok(())
    }

    /// Returns the last records of both logs.
    pub(crate) fn log<C: DeserializeOwned, S: DeserializeOwned>(
        &self,
    ) -> Result<(Vec<C>, Vec<S>), BundleError> {
        Ok((self.tail(CHANGESETS_LOG)?, self.tail(STATUS_LOG)?))
    }

    fn tail<R: DeserializeOwned>(&self, name: &str) -> Result<Vec<R>, BundleError> {
        let path = self.dir.join(LOGS).join(name);
        if !self.is_file(&path)? {
            return Ok(Vec::new());
        }
        let mut found = std::collections::VecDeque::new();
        Journal::open_read(self.disk, &path)?.scan(|_, line| {
            if let Ok(record) = serde_json::from_slice(line) {
                found.push_back(record);
            }
            if found.len() > BUNDLE_RECORDS_MAX {
                found.pop_front();
            }
        })?;
        Ok(found.into())
    }

    /// Stores a tree as a revision, replacing lost or damaged files. Durable when it returns.
    pub(crate) fn keep(&self, tree: &Tree) -> Result<RevisionId, BundleError> {
        check_size(tree)?;
        let files = manifest_of(tree);
        let id = revision_of(&files)?;
        let path = self.revision(&id);
        if self.is_file(&path)? && self.tree(&id).is_ok_and(|kept| kept == *tree) {
            return Ok(id);
        }
        for text in tree.values().flatten() {
            let path = self.blob(&digest_of(text.as_bytes()));
            let is_whole = self.is_file(&path)?
                && self
                    .read(&path, TREE_BYTES_MAX)
                    .is_ok_and(|kept| kept == text.as_bytes());
            if !is_whole {
                self.put(&path, text.as_bytes())?;
            }
        }
        let revision = serde_json::to_vec(&Revision { files })
            .map_err(|error| Self::damaged(&path, &error))?;
        self.put(&path, &revision)?;
        self.register()
            .note(&[&below_revisions(&format!("{id}.json"))]);
        Ok(id)
    }

    /// Reads a revision and verifies its digests.
    pub(crate) fn tree(&self, id: &RevisionId) -> Result<Tree, BundleError> {
        let path = self.revision(id);
        if !self.is_file(&path)? {
            return Err(BundleError::NoRevision { id: id.clone() });
        }
        let text = self.read(&path, TREE_BYTES_MAX)?;
        let revision: Revision =
            serde_json::from_slice(&text).map_err(|error| Self::damaged(&path, &error))?;
        if revision_of(&revision.files)? != *id {
            return Err(Self::damaged(
                &path,
                &"the digest of its file list does not match",
            ));
        }
        let mut tree = Tree::new();
        for (name, digest) in revision.files {
            let text = match digest {
                None => None,
                Some(digest) => {
                    let path = self.blob(&digest);
                    let text = self.read(&path, TREE_BYTES_MAX)?;
                    if digest_of(&text) != digest {
                        return Err(Self::damaged(
                            &path,
                            &"the digest of its content does not match",
                        ));
                    }
                    let text = String::from_utf8(text);
                    Some(text.map_err(|error| Self::damaged(&path, &error))?)
                }
            };
            tree.insert(name, text);
        }
        Ok(tree)
    }

    /// Writes the snapshot of a revision (`BUNDLE-4`): its concatenated resource files.
    pub(crate) fn snapshot(&self, id: &RevisionId, tree: &Tree) -> Result<(), BundleError> {
        let name = format!("effective-{id}.yaml");
        let path = self.dir.join("effective").join(name);
        if self.is_file(&path)? {
            return Ok(());
        }
        let mut text = String::new();
        for (file, content) in tree {
            let content = content.as_ref();
            let is_resource = goondan_config::is_resource_file(file.as_ref());
            let Some(content) = content.filter(|_| is_resource) else {
                continue;
            };
            let rest = content.strip_prefix("---").unwrap_or(content);
            text.push_str(&format!("---\n# {file}\n{}\n", rest.trim_end()));
        }
        self.put(&path, text.as_bytes())
    }

    /// Removes unreferenced data: the working copies of `gone`, and unreferenced
    /// revisions and files.
    pub(crate) fn tidy(&self, state: &State, gone: &[ChangesetId]) -> Result<(), BundleError> {
        if gone.is_empty() {
            return Ok(());
        }
        let copies = self.working_copies()?;
        for id in gone {
            copies.remove(id)?;
        }
        let of_changesets = state.changesets.iter();
        let of_changesets = of_changesets.flat_map(|it| [Some(&it.base), it.revision.as_ref()]);
        let fixed = [&state.base, &state.head, &state.active, &state.promoted];
        let live: BTreeSet<&RevisionId> = of_changesets.flatten().chain(fixed).collect();
        let mut blobs = BTreeSet::new();
        for id in &live {
            match self.tree(id) {
                Ok(tree) => blobs.extend(manifest_of(&tree).into_values().flatten()),
                // A damaged revision is kept for inspection, with all its files.
                Err(_) => return Ok(()),
            }
        }
        let names: BTreeSet<String> = live.iter().map(|id| format!("{id}.json")).collect();
        for (dir, keep) in [("revisions", &names), ("blobs", &blobs)] {
            let is_revisions = dir == "revisions";
            let dir = self.dir.join("store").join(dir);
            for entry in self.disk.list(&dir).during("list", &dir)? {
                let name = entry.name.to_string_lossy();
                // Files moved aside by `gdn daemon verify --repair` are kept for inspection.
                if !keep.contains(&*name) && !name.contains(ASIDE) {
                    let path = dir.join(&entry.name);
                    if is_revisions {
                        self.register().release(&below_revisions(&name))?;
                    }
                    self.disk.remove_file(&path).during("remove", &path)?;
                }
            }
        }
        Ok(())
    }
}

fn check_size(tree: &Tree) -> Result<(), BundleError> {
    let bytes: usize = tree.values().flatten().map(String::len).sum();
    if tree.len() > FILES_MAX || bytes > TREE_BYTES_MAX {
        return Err(too_large());
    }
    Ok(())
}
