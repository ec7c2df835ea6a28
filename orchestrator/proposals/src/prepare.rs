//! Making a sandbox, and removing one (`BOX-1`, `BOX-2`, `BOX-4`).

use std::path::{Path, PathBuf};

use goondan_durable::disk::Folder;
use goondan_durable::files::ensure_dir;
use goondan_durable::names;
use goondan_protocol::control::{
    PrepareSandbox, ProposalBase, ProposalState, RunEventKind, SandboxDetail, SandboxRef,
};
use goondan_protocol::git::RepositoryAddress;
use goondan_protocol::task::TASK_BRANCHES;
use goondan_protocol::time::Timestamp;
use goondan_trees::freeze::{EntryPolicy, Options, freeze, freeze_read_only};
use goondan_trees::{Excludes, RelativePath, TreeError, remove_all};

use crate::entries::not_given;
use crate::error::{IoContext as _, ProposalError};
use crate::git_head::git_head;
use crate::gitignore::{self, IgnoreFile, ignoring};
use crate::guards::{excludes, options, path_of, refuse_guarded};
use crate::place::{
    CHECKOUT, EVENTS, INPUT, KEPT, ORIGIN, PARTIAL, PROPOSAL, REMOVING, SANDBOX, STAGING, WORK,
    run_dir, sandbox_name,
};
use crate::record::{
    ClonedRepository, MayCreate, RECORD_VERSION, SandboxRecord, write_file, written,
};
use crate::repository::{NewRepository, RepositoryClone, RepositoryMaker};
use crate::sandboxes::Sandboxes;

/// A validated request.
struct PrepareParams {
    excludes: Excludes,
    may_create: MayCreate,
    ignored: Vec<IgnoreFile>,
    clone: Option<CloneCheckout>,
}

/// Preparation for a task.
struct ForTask<'t> {
    maker: &'t dyn RepositoryMaker,
    /// The repository to clone, unless the source is the project.
    source: Option<&'t RepositoryClone<'t>>,
}

/// A repository that was checked out.
#[derive(Clone)]
struct CloneCheckout {
    commit: String,
    repository: ClonedRepository,
}

impl Sandboxes<'_> {
    /// Copies the chosen files for a worker. The creation of the sandbox is atomic and durable.
    ///
    /// # Errors
    ///
    /// [`ProposalError`] if a path leads outside, is guarded or does not exist, if the sandbox
    /// exists, or if there are too many files.
    pub fn prepare(&mut self, request: &PrepareSandbox) -> Result<SandboxDetail, ProposalError> {
        self.prepare_any(request, None)
    }

    /// For a task, files that the project's `.gitignore` files exclude are neither copied nor
    /// proposed, and the sandbox has a repository if the project has one.
    fn prepare_any(
        &mut self,
        request: &PrepareSandbox,
        for_task: Option<&ForTask<'_>>,
    ) -> Result<SandboxDetail, ProposalError> {
        let at = &request.at;
        // Reserved for the run's log and its copies that were moved aside.
        if sandbox_name(at).starts_with(EVENTS) {
            return Err(ProposalError::invalid(
                format!("an agent's name must not begin with `{EVENTS}`"),
                "choose another `--agent`",
            ));
        }
        let clone = for_task.and_then(|it| Some((it.source?, it.maker)));
        // A request for the project's files is checked before anything is created.
        let copy = match clone {
            Some(_) => None,
            None => {
                let project = self.project()?;
                let wanted = self.wanted(project.as_ref(), request)?;
                Some((project, wanted))
            }
        };
        let disk = self.files.disk();
        let run = run_dir(&self.dir, &at.run_id);
        ensure_dir(disk, &self.dir, &run)?;
        let folder = self.files.folder(&run).during("open", &run)?;
        let name = sandbox_name(at);
        let taken = folder.look(Path::new(&name)).during("inspect", &run)?;
        if taken.is_some() {
            return Err(ProposalError::Taken { at: at.clone() });
        }
        let partial = format!(".{name}{PARTIAL}");
        let checkout = format!(".{name}{CHECKOUT}");
        remove_all(folder.as_ref(), Path::new(&checkout))?;
        let built = match (clone, copy) {
            (Some((source, maker)), _) => {
                let into = (folder.as_ref(), checkout.as_str(), run.join(&checkout));
                self.build_clone(into, &partial, request, source, maker)
            }
            (None, Some((project, wanted))) => {
                let maker = for_task.map(|it| it.maker);
                self.build_copy(
                    folder.as_ref(),
                    &partial,
                    at,
                    project.as_ref(),
                    wanted,
                    maker,
                )
            }
            (None, None) => Ok(()),
        };
        // The checkout is not needed any longer; the next attempt removes remains.
        drop(remove_all(folder.as_ref(), Path::new(&checkout)));
        let placed = built.and_then(|()| {
            let (from, to) = (Path::new(&partial), Path::new(&name));
            folder
                .rename_new(from, to)
                .during("rename", &run.join(to))?;
            folder.sync_dir(Path::new("")).during("sync", &run)
        });
        if let Err(error) = placed {
            // The next attempt removes the remains.
            drop(remove_all(folder.as_ref(), Path::new(&partial)));
            return Err(error);
        }
        let open = self.look(at)?;
        let detail = self.sandbox_detail(&open, None);
        let files = detail.info.files;
        self.note(
            at,
            RunEventKind::SandboxPrepared,
            None,
            format!("{files} files"),
        )?;
        self.note_kept(&open)?;
        Ok(detail)
    }

    /// Builds a sandbox with a copy of the project.
    fn build_copy(
        &self,
        run: &dyn Folder,
        partial: &str,
        at: &SandboxRef,
        project: &dyn Folder,
        mut wanted: PrepareParams,
        for_task: Option<&dyn RepositoryMaker>,
    ) -> Result<(), ProposalError> {
        if for_task.is_some() {
            wanted.ignored = gitignore::read(project, &wanted.excludes)?;
            wanted.excludes = ignoring(wanted.excludes, &wanted.ignored);
        }
        let git_head = self.build(project, run, partial, at, wanted)?;
        let (Some(maker), Some(head)) = (for_task, &git_head) else {
            return Ok(());
        };
        let wanted = NewRepository {
            project: &self.project_root,
            head,
            work: run_dir(&self.dir, &at.run_id).join(partial).join(WORK),
            branch: format!("{TASK_BRANCHES}{}", at.run_id),
            author: at.agent_id.as_str(),
        };
        self.make_repository(project, &wanted, maker)
    }

    /// Builds a sandbox with a clone of another repository. The clone is a bare repository that no
    /// worker can reach, and its files are checked out with its own settings, which are empty.
    fn build_clone(
        &self,
        (run, checkout, path): (&dyn Folder, &str, PathBuf),
        partial: &str,
        request: &PrepareSandbox,
        source: &RepositoryClone<'_>,
        maker: &dyn RepositoryMaker,
    ) -> Result<(), ProposalError> {
        let at = &request.at;
        let failed = |problem: String| {
            ProposalError::invalid(
                format!("failed to clone {}: {problem}", source.source),
                "check the address, `ref`, and the access of the token",
            )
        };
        let address = source.source.address().map_err(failed)?;
        let name = Path::new(checkout);
        run.create_dir(name, 0o700).during("create", name)?;
        let directory = run.below(name).during("open", name)?;
        for name in [ORIGIN, WORK] {
            let name = Path::new(name);
            directory.create_dir(name, 0o700).during("create", name)?;
        }
        let origin = path.join(ORIGIN);
        let fetched = maker
            .fetch(source, &address, &origin, &path.join(WORK))
            .map_err(failed)?;
        let files = directory
            .below(Path::new(WORK))
            .during("open", Path::new(WORK))?;
        let mut wanted = self.wanted(files.as_ref(), request)?;
        // Tracked files are copied even if `.gitignore` lists them.
        wanted.ignored = gitignore::read(files.as_ref(), &wanted.excludes)?;
        let repository = ClonedRepository {
            source: source.source.clone(),
            branch: fetched.branch,
        };
        wanted.clone = Some(CloneCheckout {
            commit: fetched.commit.clone(),
            repository,
        });
        self.build(files.as_ref(), run, partial, at, wanted)?;
        let partial = run_dir(&self.dir, &at.run_id).join(partial);
        let wanted = NewRepository {
            project: &origin,
            head: &fetched.commit,
            work: partial.join(WORK),
            branch: format!("{TASK_BRANCHES}{}", at.run_id),
            author: at.agent_id.as_str(),
        };
        maker.make(&wanted).map_err(failed)?;
        // Branches are pushed from the bare repository. A repository on this machine has the commit
        // itself.
        if matches!(address, RepositoryAddress::Url(_)) {
            let from = name.join(ORIGIN);
            let to = Path::new(partial.file_name().unwrap_or_default()).join(ORIGIN);
            run.rename_new(&from, &to).during("rename", &to)?;
            let above = to.parent().unwrap_or(&to);
            run.sync_dir(above).during("sync", above)?;
        }
        Ok(())
    }

    /// Prepares the sandbox of a task, or returns the existing one of this task. Files that the
    /// project's `.gitignore` files exclude are left out. If the project is a git repository,
    /// `maker` creates a repository in the sandbox. With `source`, it clones that repository
    /// instead of the project.
    ///
    /// # Errors
    ///
    /// As [`Self::prepare`], and [`ProposalError::Invalid`] if there is a sandbox from before the
    /// task was created.
    pub fn prepare_for_task(
        &mut self,
        request: &PrepareSandbox,
        made_at: Timestamp,
        source: Option<&RepositoryClone<'_>>,
        maker: &dyn RepositoryMaker,
    ) -> Result<SandboxDetail, ProposalError> {
        match self.prepare_any(request, Some(&ForTask { maker, source })) {
            Err(ProposalError::Taken { at }) => {
                let open = self.open(&at)?;
                if open.record.created_at < made_at {
                    let SandboxRef { run_id, agent_id } = &at;
                    return Err(ProposalError::invalid(
                        format!(
                            "the sandbox of `{agent_id}` in run `{run_id}` is older than the task"
                        ),
                        format!("remove it: `gdn proposal sandbox remove {run_id} {agent_id}`"),
                    ));
                }
                Ok(self.sandbox_detail(&open, None))
            }
            prepared => prepared,
        }
    }

    fn wanted(
        &self,
        project: &dyn Folder,
        request: &PrepareSandbox,
    ) -> Result<PrepareParams, ProposalError> {
        let paths = |texts: &[String]| -> Result<Vec<RelativePath>, ProposalError> {
            texts.iter().map(|text| path_of(text)).collect()
        };
        let (chosen, allow) = (paths(&request.files)?, paths(&request.allow)?);
        let is_whole = chosen.is_empty();
        let excludes = excludes(&request.exclude, allow)?;
        let mut below = Vec::new();
        for path in &chosen {
            refuse_guarded(&excludes, path)?;
            let found = project.look(path.as_path());
            let found = found.during("inspect", &self.project_root.join(path.as_path()))?;
            match found.map(|stat| stat.kind) {
                None => {
                    return Err(ProposalError::invalid(
                        format!("`{path}` does not exist in the project"),
                        "list existing files; allow new files with `--may-create DIR`",
                    ));
                }
                Some(goondan_durable::disk::NodeKind::Directory) => below.push(path.clone()),
                Some(_) => {}
            }
        }
        let mut is_anywhere = is_whole;
        for text in &request.may_create {
            if text == "." {
                is_anywhere = true;
            } else {
                let path = path_of(text)?;
                refuse_guarded(&excludes, &path)?;
                below.push(path);
            }
        }
        Ok(PrepareParams {
            excludes: if is_whole {
                excludes
            } else {
                excludes.only(chosen)
            },
            ignored: Vec::new(),
            clone: None,
            may_create: if is_anywhere {
                MayCreate::Anywhere
            } else {
                MayCreate::Below(below)
            },
        })
    }

    fn build(
        &self,
        project: &dyn Folder,
        run: &dyn Folder,
        partial: &str,
        at: &SandboxRef,
        wanted: PrepareParams,
    ) -> Result<Option<String>, ProposalError> {
        let path = Path::new(partial);
        remove_all(run, path)?;
        run.create_dir(path, 0o700).during("create", path)?;
        let sandbox = run.below(path).during("open", path)?;
        let copied = options(wanted.excludes, EntryPolicy::LeaveOut);
        let copy = || freeze(project, sandbox.as_ref(), WORK, &copied);
        let (git_head, frozen) = match &wanted.clone {
            Some(clone) => (Some(clone.commit.clone()), copy()?),
            None => self.at_head(copy)?,
        };
        let work = sandbox.below(Path::new(WORK)).during("open", path)?;
        let everything = Options {
            excludes: Excludes::new::<&str>(&[]).map_err(|error| {
                ProposalError::invalid(error.to_string(), "this is a bug in goondan")
            })?,
            ..copied
        };
        let input = freeze_read_only(work.as_ref(), sandbox.as_ref(), INPUT, &everything)?;
        if input.manifest != frozen.manifest {
            return Err(ProposalError::invalid(
                "the copies of the files differ",
                "this is a disk error; try again",
            ));
        }
        for name in [PROPOSAL, KEPT] {
            let name = Path::new(name);
            sandbox.create_dir(name, 0o700).during("create", name)?;
        }
        let record = SandboxRecord {
            version: RECORD_VERSION.to_owned(),
            at: at.clone(),
            created_at: self.now,
            base: ProposalBase {
                git_head: git_head.clone(),
                sha256: frozen.manifest.digest()?.to_string(),
            },
            may_create: wanted.may_create,
            not_given: not_given(frozen.left_out),
            merged_from: None,
            ignored: wanted.ignored,
            repository: wanted.clone.map(|clone| clone.repository),
            rebased_from: None,
            given: frozen.manifest,
        };
        write_file(sandbox.as_ref(), SANDBOX, &written(&record)?)?;
        sandbox.sync_dir(Path::new("")).during("sync", path)?;
        Ok(git_head)
    }

    /// Copies from the Project Root, and returns the git head of the copied files.
    pub(crate) fn at_head<T>(
        &self,
        copy: impl FnOnce() -> Result<T, TreeError>,
    ) -> Result<(Option<String>, T), ProposalError> {
        let root = &self.project_root;
        let head = || git_head(self.files.disk(), root).during("read the git head of", root);
        let before = head()?;
        let copied = copy()?;
        // After a concurrent commit, the recorded head would not match the copied files.
        if head()? != before {
            return Err(ProposalError::invalid(
                "the git HEAD moved while the files were copied",
                "try again",
            ));
        }
        Ok((before, copied))
    }

    /// True if an interrupted swap has left files of the Project Root in a mixed state.
    fn is_swapping(&self) -> Result<bool, ProposalError> {
        let staging = Path::new(STAGING);
        let found = self.project()?.look(staging).during("inspect", staging)?;
        Ok(found.is_some())
    }

    /// Removes a sandbox with its content. An applied proposal can then no longer be reverted.
    ///
    /// # Errors
    ///
    /// [`ProposalError::Standing`] if its proposal waits for a person, and
    /// [`ProposalError::Damaged`] if the sandbox is damaged, unless the removal is forced.
    pub fn remove(&mut self, at: &SandboxRef, force: bool) -> Result<(), ProposalError> {
        match self.open(at) {
            // A swap in progress is finished from the sandbox's content.
            Err(ProposalError::Damaged { .. }) if force && !self.is_swapping()? => {}
            opened => drop(opened?),
        }
        let state = self.standing(at)?.map(|standing| standing.state);
        if state == Some(ProposalState::Open) && !force {
            return Err(ProposalError::Standing {
                at: at.clone(),
                state: ProposalState::Open,
                problem: "it waits for review; reject it first, or remove it with `--force`",
            });
        }
        let run = run_dir(&self.dir, &at.run_id);
        let folder = self.files.folder(&run).during("open", &run)?;
        let removing = format!("{REMOVING}{}", names::encode(&self.now.to_string()));
        let (from, to) = (sandbox_name(at), Path::new(&removing));
        remove_all(folder.as_ref(), to)?;
        self.note(at, RunEventKind::SandboxRemoved, None, "")?;
        self.forget_handed_on(at)?;
        self.forget_kept(at, None)?;
        folder
            .rename_new(Path::new(&from), to)
            .during("rename", &run.join(&from))?;
        folder.sync_dir(Path::new("")).during("sync", &run)?;
        Ok(remove_all(folder.as_ref(), to)?)
    }
}
