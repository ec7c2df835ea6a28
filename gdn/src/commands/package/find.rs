//! Resolves the argument of `gdn package add`.

use std::path::Path;

use goondan_packages::{PackageName, Packument, Requirement, Version};

use super::choose::{ResolutionRules, passed_over};
use super::fetch::{FetchExpectation, Fetcher, required_as};
use super::plan::{self, ProjectPackages};
use crate::exit::Exit;
use crate::failure::Failure;

/// Resolves the package and its requirement. A path is relative to the current directory and written relative to the
/// project.
pub(super) async fn find(
    written: &str,
    plan: &ProjectPackages,
    fetcher: &mut Fetcher<'_>,
    rules: &ResolutionRules,
) -> Result<(PackageName, Requirement), Failure> {
    match meant(written)? {
        PackageArgument::Path(path) => by_path(path, plan, fetcher).await,
        PackageArgument::Place(requirement) => {
            if let Some(address) = requirement.archive_url() {
                fetcher.registry.name(address);
            }
            let (name, _) = fetcher
                .check(&requirement, &FetchExpectation::default())
                .await?;
            Ok((name, requirement))
        }
        PackageArgument::Name(name, wanted) => by_name(name, wanted, fetcher, rules).await,
    }
}

enum PackageArgument<'w> {
    Path(&'w str),
    Place(Requirement),
    /// Package of a registry, with an optional range or tag.
    Name(PackageName, Option<&'w str>),
}

fn meant(written: &str) -> Result<PackageArgument<'_>, Failure> {
    let invalid = |error: &dyn std::fmt::Display| {
        Failure::new(
            Exit::Usage,
            error.to_string(),
            "pass a package (`NAME` or `NAME@RANGE`), or the path of a folder or an archive",
        )
    };
    if let Some(path) = written.strip_prefix("file:") {
        return Ok(PackageArgument::Path(path));
    }
    if written.contains("://") {
        let place = written.parse::<Requirement>();
        return place
            .map(PackageArgument::Place)
            .map_err(|error| invalid(&error));
    }
    let is_path = written.starts_with(['.', '/', '~'])
        || !written.starts_with('@') && written.contains('/')
        || [".tgz", ".tar.gz", ".tar"]
            .iter()
            .any(|end| written.ends_with(end));
    if is_path {
        return Ok(PackageArgument::Path(written));
    }
    let split = written
        .char_indices()
        .find(|(index, c)| *index > 0 && *c == '@');
    let (name, wanted) = match split {
        Some((index, _)) => {
            let (name, rest) = written.split_at(index);
            (name, rest.strip_prefix('@'))
        }
        None => (written, None),
    };
    let parsed = name.parse().map_err(|error| invalid(&error))?;
    if wanted.is_none() && Path::new(name).exists() {
        return Err(Failure::new(
            Exit::Usage,
            format!("`{name}` is ambiguous: a path in this directory, or a package in a registry"),
            format!("write `./{name}` or `{name}@latest`"),
        ));
    }
    Ok(PackageArgument::Name(parsed, wanted))
}

async fn by_path(
    path: &str,
    plan: &ProjectPackages,
    fetcher: &mut Fetcher<'_>,
) -> Result<(PackageName, Requirement), Failure> {
    let full = std::path::absolute(path)?;
    let Ok(full) = full.canonicalize() else {
        return Err(Failure::new(
            Exit::NotFound,
            format!("neither a folder nor an archive exists at `{path}`"),
            "pass an existing path",
        ));
    };
    let requirement = required_as(&full, &plan.root)?;
    let name = if requirement.folder().is_some() {
        plan::read_named_folder(&full, None)?.0
    } else {
        fetcher
            .check(&requirement, &FetchExpectation::default())
            .await?
            .0
    };
    Ok((name, requirement))
}

/// Keeps a range as written; for a tag or nothing, requires versions compatible with the selected one.
async fn by_name(
    name: PackageName,
    wanted: Option<&str>,
    fetcher: &Fetcher<'_>,
    rules: &ResolutionRules,
) -> Result<(PackageName, Requirement), Failure> {
    let range = wanted.and_then(|it| it.parse::<Requirement>().ok());
    if let Some(range) = range.filter(|it| it.range().is_some()) {
        return Ok((name, range));
    }
    let packument = rules.offered(&name, None, fetcher).await?;
    let version = match wanted {
        None | Some("latest") => latest(&packument),
        Some(tag) => packument.tags.get(tag),
    };
    let Some(version) = version else {
        let what = wanted.map_or_else(String::new, |tag| format!("@{tag}"));
        let registry = fetcher.registry.of(&name)?;
        let mut failure = Failure::new(
            Exit::NotFound,
            format!("{registry} has no suitable version of `{name}{what}`"),
            "check the name; for a version that is too young, `--min-release-age 0`",
        );
        failure.causes = passed_over(&name, &packument);
        return Err(failure);
    };
    let range = format!("^{version}");
    let range = range.parse().map_err(|error| {
        let hint = format!("pass a range: `gdn package add {name}@RANGE`");
        Failure::new(Exit::Usage, format!("{error}"), hint)
    })?;
    Ok((name, range))
}

/// Returns the version tagged `latest`, otherwise the newest version that is not a pre-release.
fn latest(packument: &Packument) -> Option<&Version> {
    let tagged = packument.tags.get("latest");
    let tagged = tagged.filter(|it| packument.offers.contains_key(*it));
    let mut newest = packument.offers.keys().rev();
    tagged.or_else(|| newest.find(|version| !version.is_prerelease()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pkg_1_names_paths_and_urls_are_distinguished() {
        let shown = |written: &str| match meant(written) {
            Ok(PackageArgument::Path(path)) => format!("path {path}"),
            Ok(PackageArgument::Place(place)) => format!("place {place}"),
            Ok(PackageArgument::Name(name, wanted)) => format!("name {name} {wanted:?}"),
            Err(failure) => format!("error {}", failure.message),
        };
        for (written, expected) in [
            ("../tools", "path ../tools"),
            ("vendor/a.tgz", "path vendor/a.tgz"),
            ("a.tgz", "path a.tgz"),
            ("file:a", "path a"),
            ("/srv/a", "path /srv/a"),
            ("https://h/a.tgz", "place https://h/a.tgz"),
            ("git+https://h/a#v1", "place git+https://h/a#v1"),
            ("words", "name words None"),
            ("words@^1 || 3", "name words Some(\"^1 || 3\")"),
            ("@acme/words", "name @acme/words None"),
            ("@acme/words@next", "name @acme/words Some(\"next\")"),
        ] {
            assert_eq!(shown(written), expected);
        }
        for wrong in ["", "@", "@acme", "a b", "ftp://h/a", "@acme/a/b"] {
            assert!(shown(wrong).starts_with("error"), "{wrong}");
        }
        // The name of an existing directory may be meant as a path.
        assert!(shown("src").contains("or a package in a registry"));
        assert_eq!(shown("src@latest"), "name src Some(\"latest\")");
    }
}
