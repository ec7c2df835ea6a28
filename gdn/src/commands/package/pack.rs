//! `gdn package pack`: builds a reproducible package archive.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use flate2::{Compression, GzBuilder};
use goondan_config::{Package, package_of};
use goondan_packages::limits::{ARCHIVE_BYTES_MAX, PACKAGE_BYTES_MAX};
use goondan_packages::{Integrity, PackageName, Version};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::contents::{self, PackageFile};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text;
use crate::project::PROJECT_FILE;
use crate::schemas;

/// Package manifest for npm's tools.
const NPM_FILE: &str = "package.json";

/// Top-level directory in the archive, as in npm's archives.
const DIRECTORY: &str = "package";

/// gzip header value for an unknown operating system.
const UNKNOWN_SYSTEM: u8 = 255;

pub(super) struct PackageArchive {
    pub(super) name: PackageName,
    pub(super) version: Version,
    pub(super) is_public: bool,
    pub(super) described: Map<String, Value>,
    pub(super) archive: Vec<u8>,
    pub(super) integrity: Integrity,
    /// Size of each file in bytes, by path.
    pub(super) files: BTreeMap<String, usize>,
    pub(super) notes: Vec<String>,
}

/// Output of `gdn package pack`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PackOutput<'t> {
    name: &'t PackageName,
    version: String,
    /// Path of the archive; none if it was not written.
    file: Option<&'t Path>,
    integrity: &'t Integrity,
    bytes: usize,
    files: Vec<PackOutputFile<'t>>,
}

#[derive(Debug, Serialize)]
struct PackOutputFile<'t> {
    path: &'t str,
    bytes: usize,
}

/// Packs the project, and writes the archive unless it is a dry run.
pub(super) fn pack(
    output: Option<&Path>,
    is_dry_run: bool,
    context: &Context,
) -> Result<(), Failure> {
    let packed = packed(&context.project()?, context)?;
    let file = match output {
        Some(file) => std::path::absolute(file)?,
        None => std::env::current_dir()?.join(packed.file_name()),
    };
    if !is_dry_run {
        write(&file, &packed.archive)?;
    }
    packed.tell((!is_dry_run).then_some(file.as_path()), context)
}

fn write(file: &Path, archive: &[u8]) -> Result<(), Failure> {
    let failed = |error: &std::io::Error| {
        let message = format!("cannot write {}", file.display());
        let hint = "choose another file: `gdn package pack --output FILE`";
        let mut failure = Failure::new(Exit::Internal, message, hint);
        failure.causes.push(error.to_string());
        failure
    };
    let directory = file.parent().unwrap_or(Path::new("/"));
    let mut new = tempfile::NamedTempFile::new_in(directory).map_err(|error| failed(&error))?;
    let mode = fs::Permissions::from_mode(0o644);
    new.write_all(archive)
        .and_then(|()| new.as_file().set_permissions(mode))
        .map_err(|error| failed(&error))?;
    new.persist(file).map_err(|error| failed(&error.error))?;
    Ok(())
}

impl PackageArchive {
    /// Name of the archive: `acme-words-1.0.0.tgz`.
    pub(super) fn file_name(&self) -> String {
        let name = match self.name.parts() {
            (Some(scope), name) => format!("{scope}-{name}"),
            (None, name) => name.to_owned(),
        };
        format!("{name}-{}.tgz", self.version)
    }

    /// Prints the contents.
    pub(super) fn tell(&self, file: Option<&Path>, context: &Context) -> Result<(), Failure> {
        let output = context.output;
        for note in &self.notes {
            output.note(note);
        }
        let files = self.files.iter();
        output.object(
            schemas::PACKAGE_PACK,
            &PackOutput {
                name: &self.name,
                version: self.version.to_string(),
                file,
                integrity: &self.integrity,
                bytes: self.archive.len(),
                files: files
                    .map(|(path, bytes)| PackOutputFile {
                        path,
                        bytes: *bytes,
                    })
                    .collect(),
            },
        )?;
        output.data(self.lines(file).join("\n"))
    }

    pub(super) fn lines(&self, file: Option<&Path>) -> Vec<String> {
        let files = self.files.iter();
        let mut lines: Vec<String> = files
            .map(|(path, bytes)| {
                format!(
                    "{:>10}  {}",
                    text::bytes(*bytes as u64),
                    text::printable(path)
                )
            })
            .collect();
        let size = text::bytes(self.archive.len() as u64);
        let count = text::count(self.files.len() as u64, "file");
        lines.push(format!("{} {}: {count}, {size}", self.name, self.version));
        lines.push(self.integrity.to_string());
        lines.extend(file.map(|file| file.display().to_string()));
        lines
    }
}

/// Packs the project in `root`.
pub(super) fn packed(root: &Path, context: &Context) -> Result<PackageArchive, Failure> {
    let package = described(root)?;
    let (name, version) = named(&package)?;
    let mut notes = Vec::new();
    let mut contents = contents::of(root, &mut notes)?;
    contents::check(&contents, &context.vault(), &mut notes)?;
    let own = contents.get(NPM_FILE).map(|it| it.bytes.as_slice());
    let described = for_npm(&package, &name, &version, own)?;
    if own.is_none() {
        let mut bytes = serde_json::to_vec_pretty(&described).map_err(std::io::Error::other)?;
        bytes.push(b'\n');
        let content = PackageFile {
            bytes,
            is_executable: false,
        };
        contents.insert(NPM_FILE.to_owned(), content);
    }
    let archive = archive(&contents)?;
    Ok(PackageArchive {
        integrity: Integrity::of(&archive),
        files: contents
            .iter()
            .map(|(path, it)| (path.clone(), it.bytes.len()))
            .collect(),
        name,
        version,
        is_public: package.is_public,
        described,
        archive,
        notes,
    })
}

fn described(root: &Path) -> Result<Package, Failure> {
    let invalid = |problems: &goondan_config::Diagnostics| {
        Failure::new(
            Exit::InvalidConfiguration,
            format!("{PROJECT_FILE} is not valid:\n{problems}"),
            "list the problems: `gdn validate`",
        )
    };
    package_of(root)
        .map_err(|problems| invalid(&problems))?
        .ok_or_else(|| incomplete("does not begin with a document of `kind: Package`"))
}

fn incomplete(what: &str) -> Failure {
    Failure::new(
        Exit::Conflict,
        format!("{PROJECT_FILE} {what}"),
        "a published package needs a `metadata.name` and a `spec.version`",
    )
}

/// Name and version, if both are valid for a published package.
fn named(package: &Package) -> Result<(PackageName, Version), Failure> {
    let name = package.name.parse();
    let name = name.map_err(|error| incomplete(&format!("has no valid package name: {error}")))?;
    let version = package.version.as_deref();
    let version = version.and_then(|it| Version::parse(it).ok());
    let version = version.ok_or_else(|| incomplete("has no `version`"))?;
    let mut requires = package.requires.iter();
    match requires.find(|(_, it)| it.range().is_none()) {
        None => Ok((name, version)),
        Some((inner, place)) => Err(Failure::new(
            Exit::Conflict,
            format!("the package requires `{inner}` from `{place}`, which others cannot access"),
            format!("require a range of versions of `{inner}`"),
        )),
    }
}

/// Manifest for npm's tools: `package.json` if it exists, without `scripts`, `devDependencies` and `private`, and with
/// the requirements of `goondan.yaml`.
fn for_npm(
    package: &Package,
    name: &PackageName,
    version: &Version,
    own: Option<&[u8]>,
) -> Result<Map<String, Value>, Failure> {
    let wrong = |why: String| {
        let hint =
            format!("fix {NPM_FILE}, or remove it: it is then generated from {PROJECT_FILE}");
        Failure::new(Exit::Conflict, format!("{NPM_FILE} {why}"), hint)
    };
    let mut said: Map<String, Value> = match own {
        None => Map::new(),
        Some(own) => serde_json::from_slice(own)
            .map_err(|error| wrong(format!("cannot be read: {error}")))?,
    };
    for (field, right) in [("name", name.to_string()), ("version", version.to_string())] {
        match said.insert(field.to_owned(), json!(right)) {
            Some(other) if other != json!(right) => {
                return Err(wrong(format!(
                    "has the {field} {other} instead of `{right}`"
                )));
            }
            _ => {}
        }
    }
    for useless in ["scripts", "devDependencies", "private"] {
        said.remove(useless);
    }
    let bundled = said
        .get("bundleDependencies")
        .or_else(|| said.get("bundledDependencies"));
    let bundled = bundled
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let own = said.remove("dependencies");
    let mut requires = own
        .and_then(|it| it.as_object().cloned())
        .unwrap_or_default();
    let is_known =
        |inner: &str| bundled.iter().any(|it| it == inner) || package.requires.contains_key(inner);
    if let Some(loose) = requires.keys().find(|inner| !is_known(inner)) {
        return Err(wrong(format!(
            "depends on `{loose}`, which will not be installed: add it to `bundleDependencies`"
        )));
    }
    for (inner, range) in &package.requires {
        requires.insert(inner.to_string(), json!(range.to_string()));
    }
    said.insert("dependencies".to_owned(), Value::Object(requires));
    Ok(said)
}

/// Builds a tar archive of sorted files, without timestamps and owners.
fn archive(contents: &BTreeMap<String, PackageFile>) -> Result<Vec<u8>, Failure> {
    let all: u64 = contents.values().map(|it| it.bytes.len() as u64).sum();
    let gzip = GzBuilder::new().mtime(0).operating_system(UNKNOWN_SYSTEM);
    let mut tar = tar::Builder::new(gzip.write(Vec::new(), Compression::best()));
    for (path, content) in contents {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.bytes.len() as u64);
        header.set_mode(if content.is_executable { 0o755 } else { 0o644 });
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        let path = PathBuf::from(DIRECTORY).join(path);
        tar.append_data(&mut header, path, content.bytes.as_slice())?;
    }
    let archive = tar.into_inner()?.finish()?;
    if all > PACKAGE_BYTES_MAX || archive.len() as u64 > ARCHIVE_BYTES_MAX {
        return Err(Failure::new(
            Exit::Conflict,
            format!(
                "the package has more than {ARCHIVE_BYTES_MAX} bytes, or {PACKAGE_BYTES_MAX} unpacked"
            ),
            "exclude files in `.goondanignore`",
        ));
    }
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(requires: &[(&str, &str)]) -> Package {
        let read = |(name, text): &(&str, &str)| (name.parse().unwrap(), text.parse().unwrap());
        Package {
            name: "@acme/words".to_owned(),
            version: Some("1.0.0".to_owned()),
            requires: requires.iter().map(read).collect(),
            registries: goondan_packages::Registries::default(),
            is_public: false,
            permissions: goondan_protocol::permissions::Permissions::default(),
        }
    }

    fn packed_manifest(package: &Package, own: Option<&Value>) -> Result<Value, Failure> {
        let (name, version) = named(package)?;
        let own = own.map(|it| it.to_string().into_bytes());
        for_npm(package, &name, &version, own.as_deref()).map(Value::Object)
    }

    #[test]
    fn pkg_3_registry_gets_goondan_yaml_requirements_but_no_scripts() {
        let letters = package(&[("letters", "^2")]);
        let plain =
            json!({"name": "@acme/words", "version": "1.0.0", "dependencies": {"letters": "^2"}});
        assert_eq!(packed_manifest(&letters, None).unwrap(), plain);
        let own = json!({
            "name": "@acme/words", "scripts": {"install": "evil"}, "devDependencies": {"x": "1"},
            "dependencies": {"left-pad": "1.3.0"}, "bundleDependencies": ["left-pad"], "license": "MIT",
        });
        let said = packed_manifest(&letters, Some(&own)).unwrap();
        assert_eq!(
            said["dependencies"],
            json!({"letters": "^2", "left-pad": "1.3.0"})
        );
        assert_eq!(said["license"], "MIT");
        assert!(said.get("scripts").is_none() && said.get("devDependencies").is_none());
        for wrong in [
            json!({"name": "other"}),
            json!({"version": "2.0.0"}),
            json!({"dependencies": {"left-pad": "1"}}),
            json!([]),
        ] {
            assert!(packed_manifest(&letters, Some(&wrong)).is_err(), "{wrong}");
        }
        assert!(packed_manifest(&package(&[("letters", "file:../letters")]), None).is_err());
    }

    #[test]
    fn pkg_3_the_same_files_make_the_same_archive() {
        let content = |text: &str, is_executable| PackageFile {
            bytes: text.as_bytes().to_vec(),
            is_executable,
        };
        let contents: BTreeMap<_, _> = [
            ("b/c.txt".to_owned(), content("c", false)),
            ("a".to_owned(), content("a", true)),
        ]
        .into();
        let one = archive(&contents).unwrap();
        assert_eq!(one, archive(&contents).unwrap());
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(one.as_slice()));
        let entries = tar.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            let header = entry.header();
            let path = entry.path().unwrap().display().to_string();
            (path, header.mode().unwrap(), header.mtime().unwrap())
        });
        assert_eq!(
            entries.collect::<Vec<_>>(),
            [
                ("package/a".to_owned(), 0o755, 0),
                ("package/b/c.txt".to_owned(), 0o644, 0)
            ]
        );
    }
}
