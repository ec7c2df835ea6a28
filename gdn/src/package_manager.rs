//! The package manager that installed this program, by the path of its file.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::output::text::shell_quoted;

/// Package of the client on npm.
const NPM_PACKAGE: &str = "@goondan/gdn";

/// Scope of the packages on npm.
const NPM_SCOPE: &str = "@goondan";

/// Package on `PyPI`.
const PYPI_PACKAGE: &str = "goondan";

/// File that dpkg keeps for the installed package.
const DPKG_LIST: &str = "/var/lib/dpkg/info/goondan.list";

/// Directories of rpm's database.
const RPM_DATABASES: [&str; 3] = ["/var/lib/rpm", "/usr/lib/sysimage/rpm", "/usr/share/rpm"];

/// Directory of programs of packages of a distribution.
const SYSTEM_PROGRAMS: &str = "/usr/bin";

/// Method of an installation, other than an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PackageManager {
    Npm,
    Pip,
    Pipx,
    Uv,
    Deb,
    Rpm,
}

impl PackageManager {
    /// Name for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::Pip => "pip",
            Self::Pipx => "pipx",
            Self::Uv => "uv",
            Self::Deb => "a .deb package",
            Self::Rpm => "an .rpm package",
        }
    }
}

/// A package manager, and its command that upgrades goondan.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InstalledPackage {
    pub(crate) manager: PackageManager,
    pub(crate) command: String,
}

impl InstalledPackage {
    /// Detects the package that this program belongs to. `None` for an archive or a build.
    pub(crate) fn of_this_program() -> Option<Self> {
        let program = std::env::current_exe().ok()?.canonicalize().ok()?;
        Self::of(&program, Path::exists)
    }

    /// Detects the package of a program's real path.
    fn of(program: &Path, exists: impl Fn(&Path) -> bool) -> Option<Self> {
        let has_name =
            |directory: &Path, name: &str| directory.file_name().is_some_and(|it| it == name);
        let npm = program.ancestors().find(|directory| {
            has_name(directory, NPM_SCOPE)
                && directory
                    .parent()
                    .is_some_and(|it| has_name(it, "node_modules"))
        });
        if npm.is_some() {
            return Some(Self {
                manager: PackageManager::Npm,
                command: npm_command(program, exists),
            });
        }
        let packages = program.ancestors().find(|directory| {
            has_name(directory, "site-packages") || has_name(directory, "dist-packages")
        });
        if let Some(packages) = packages
            && program.starts_with(packages.join(PYPI_PACKAGE))
        {
            return Some(of_python(packages, exists));
        }
        if program.parent() != Some(Path::new(SYSTEM_PROGRAMS)) {
            return None;
        }
        let (manager, command) = if exists(Path::new(DPKG_LIST)) {
            (
                PackageManager::Deb,
                "sudo apt-get install ./goondan_VERSION_ARCH.deb",
            )
        } else if RPM_DATABASES.iter().any(|path| exists(Path::new(path))) {
            (
                PackageManager::Rpm,
                "sudo rpm --upgrade goondan-VERSION-1.ARCH.rpm",
            )
        } else {
            return None;
        };
        Some(Self {
            manager,
            command: command.to_owned(),
        })
    }
}

/// The command for the outermost `node_modules` of a program: of a project if a `package.json` is beside it, otherwise
/// a global one, below its prefix.
fn npm_command(program: &Path, exists: impl Fn(&Path) -> bool) -> String {
    let outermost = program
        .ancestors()
        .filter(|it| it.file_name().is_some_and(|name| name == "node_modules"))
        .last();
    let root = outermost.and_then(Path::parent).unwrap_or(Path::new("/"));
    if exists(&root.join("package.json")) {
        return format!(
            "cd {} && npm install {NPM_PACKAGE}@latest",
            quoted_path(root)
        );
    }
    let prefix = if root.file_name().is_some_and(|name| name == "lib") {
        root.parent().unwrap_or(root)
    } else {
        root
    };
    let prefix = quoted_path(prefix);
    format!("npm install --global --prefix {prefix} {NPM_PACKAGE}@latest")
}

/// The package in a directory `site-packages`.
fn of_python(packages: &Path, exists: impl Fn(&Path) -> bool) -> InstalledPackage {
    let environment = packages.ancestors().nth(3);
    let is_below = |parent: &str, name: &str| {
        environment.is_some_and(|environment| {
            environment.ends_with(PathBuf::from(parent).join(name).join(PYPI_PACKAGE))
        })
    };
    let (manager, command) = if is_below("pipx", "venvs") {
        (PackageManager::Pipx, format!("pipx upgrade {PYPI_PACKAGE}"))
    } else if is_below("uv", "tools") {
        (
            PackageManager::Uv,
            format!("uv tool upgrade {PYPI_PACKAGE}"),
        )
    } else {
        let python = environment.map(|environment| environment.join("bin/python3"));
        let python = python.filter(|python| exists(python));
        let python = python.map_or_else(|| "python3".to_owned(), |it| quoted_path(&it));
        (
            PackageManager::Pip,
            format!("{python} -m pip install --upgrade {PYPI_PACKAGE}"),
        )
    };
    InstalledPackage { manager, command }
}

fn quoted_path(path: &Path) -> String {
    let path = path.to_string_lossy();
    shell_quoted(&path).unwrap_or_else(|| path.clone().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(program: &str, existing: &[&str]) -> Option<(PackageManager, String)> {
        let exists = |path: &Path| existing.iter().any(|it| Path::new(it) == path);
        let found = InstalledPackage::of(Path::new(program), exists)?;
        Some((found.manager, found.command))
    }

    #[test]
    fn the_package_manager_is_known_by_the_path() {
        let npm = |command: &str| Some((PackageManager::Npm, command.to_owned()));
        for below in [
            "@goondan/gdn-linux-x64/bin/gdn",
            "@goondan/gdn/node_modules/@goondan/gdn-linux-x64/bin/gdn",
        ] {
            assert_eq!(
                of(&format!("/home/a/.local/lib/node_modules/{below}"), &[]),
                npm("npm install --global --prefix /home/a/.local @goondan/gdn@latest")
            );
            assert_eq!(
                of(
                    &format!("/srv/my shop/node_modules/{below}"),
                    &["/srv/my shop/package.json"]
                ),
                npm("cd '/srv/my shop' && npm install @goondan/gdn@latest")
            );
        }
        let python = |manager, command: &str| Some((manager, command.to_owned()));
        let below = "lib/python3.11/site-packages/goondan/bin/gdn";
        assert_eq!(
            of(
                &format!("/home/a/venv/{below}"),
                &["/home/a/venv/bin/python3"]
            ),
            python(
                PackageManager::Pip,
                "/home/a/venv/bin/python3 -m pip install --upgrade goondan"
            )
        );
        assert_eq!(
            of(&format!("/home/a/.local/{below}"), &[]),
            python(
                PackageManager::Pip,
                "python3 -m pip install --upgrade goondan"
            )
        );
        assert_eq!(
            of(
                &format!("/home/a/.local/share/pipx/venvs/goondan/{below}"),
                &[]
            ),
            python(PackageManager::Pipx, "pipx upgrade goondan")
        );
        assert_eq!(
            of(
                &format!("/home/a/.local/share/uv/tools/goondan/{below}"),
                &[]
            ),
            python(PackageManager::Uv, "uv tool upgrade goondan")
        );
        let manager = |existing: &[&str]| of("/usr/bin/gdn", existing).map(|it| it.0);
        assert_eq!(manager(&[DPKG_LIST]), Some(PackageManager::Deb));
        assert_eq!(manager(&["/var/lib/rpm"]), Some(PackageManager::Rpm));
        assert_eq!(manager(&[]), None);
    }

    #[test]
    fn archives_and_builds_belong_to_no_package_manager() {
        let all = [DPKG_LIST, "/var/lib/rpm"];
        for program in [
            "/home/a/.local/lib/goondan/versions/0.1.0-0123456789ab/gdn",
            "/home/a/.cargo/bin/gdn",
            "/home/a/goondan/target/debug/gdn",
            "/srv/node_modules/other/bin/gdn",
            "/srv/lib/python3.11/site-packages/other/bin/gdn",
        ] {
            assert_eq!(of(program, &all), None, "{program}");
        }
    }
}
