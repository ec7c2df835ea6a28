//! Parsing of a registry's package metadata, which is not trusted.

use std::collections::BTreeMap;

use nodejs_semver::Version;
use serde::Deserialize;
use serde_json::Value;

use crate::integrity::Integrity;
use crate::limits::{SIGNATURES_MAX, VERSIONS_MAX};
use crate::name::PackageName;
use crate::requirement::{Requirement, Requires};

/// Registry metadata of one package.
#[derive(Debug, Clone)]
pub struct Packument {
    /// Version tags, such as `latest`.
    pub tags: BTreeMap<String, Version>,
    pub offers: BTreeMap<Version, OfferedVersion>,
    /// Unusable versions and the reasons.
    pub passed_over: BTreeMap<Version, String>,
}

#[derive(Debug, Clone)]
pub struct OfferedVersion {
    /// Its requirements, without built-in and bundled packages.
    pub requires: Requires,
    /// The address of its archive.
    pub archive: String,
    /// The archive's SHA-512.
    pub integrity: Integrity,
    /// Deprecation message of its maintainers.
    pub deprecated: Option<String>,
    /// Publication time in ISO 8601, if the registry provides it.
    pub published: Option<String>,
    /// The registry's integrity string for the archive, verbatim: the signed text.
    pub promised: String,
    /// The registry's signatures. At most [`SIGNATURES_MAX`].
    pub signatures: Vec<RegistrySignature>,
}

/// A registry's signature, not verified.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RegistrySignature {
    #[serde(rename = "keyid")]
    pub key_id: String,
    /// Signature in base64.
    #[serde(rename = "sig")]
    pub signature: String,
}

/// Reason why metadata is invalid.
#[derive(Debug, thiserror::Error)]
pub enum InvalidPackument {
    /// The response is not package metadata.
    #[error("the response is not package metadata")]
    Form(#[from] serde_json::Error),
    /// The response describes another package.
    #[error("the response describes the package `{0}`")]
    Other(String),
    /// The response exceeds a limit.
    #[error("the response has more than {VERSIONS_MAX} versions")]
    TooMany,
}

#[derive(Deserialize)]
struct Wire {
    name: String,
    #[serde(default, rename = "dist-tags")]
    tags: BTreeMap<String, Value>,
    #[serde(default)]
    versions: BTreeMap<String, Value>,
    #[serde(default)]
    time: BTreeMap<String, Value>,
}

/// Any field can have any type, because registries keep publications of fifteen years.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireVersion {
    #[serde(default)]
    name: Value,
    #[serde(default)]
    version: Value,
    #[serde(default)]
    deprecated: Value,
    #[serde(default)]
    dependencies: Value,
    #[serde(default)]
    bundle_dependencies: Value,
    #[serde(default)]
    bundled_dependencies: Value,
    #[serde(default)]
    dist: WireDist,
}

#[derive(Deserialize, Default)]
struct WireDist {
    #[serde(default)]
    tarball: Value,
    #[serde(default)]
    integrity: Value,
    #[serde(default)]
    signatures: Value,
}

impl Packument {
    /// Parses the metadata of `name`. `built_in` is a package that every project has.
    ///
    /// # Errors
    ///
    /// [`InvalidPackument`]
    pub fn read(
        name: &PackageName,
        answer: &[u8],
        built_in: &str,
    ) -> Result<Self, InvalidPackument> {
        let wire: Wire = serde_json::from_slice(answer)?;
        if wire.name != name.as_str() {
            return Err(InvalidPackument::Other(wire.name));
        }
        if wire.versions.len() > VERSIONS_MAX {
            return Err(InvalidPackument::TooMany);
        }
        let mut found = Self {
            tags: BTreeMap::new(),
            offers: BTreeMap::new(),
            passed_over: BTreeMap::new(),
        };
        for (tag, version) in wire.tags {
            if let Some(version) = version.as_str().and_then(exactly) {
                found.tags.insert(tag, version);
            }
        }
        for (text, it) in wire.versions {
            // No range can match an invalid semantic version.
            let Some(version) = exactly(&text) else {
                continue;
            };
            let published = wire.time.get(&text).and_then(Value::as_str);
            let read = WireVersion::deserialize(it)
                .map_err(|error| format!("the registry's entry is malformed: {error}"));
            match read.and_then(|it| offer(name, &text, it, built_in)) {
                Ok(offer) => {
                    let published = published.map(str::to_owned);
                    found
                        .offers
                        .insert(version, OfferedVersion { published, ..offer });
                }
                Err(why) => {
                    found.passed_over.insert(version, why);
                }
            }
        }
        Ok(found)
    }

    /// Moves versions for which `why_not` returns a reason to [`Self::passed_over`].
    pub fn pass_over(&mut self, why_not: impl Fn(&Version, &OfferedVersion) -> Option<String>) {
        let offers = std::mem::take(&mut self.offers);
        for (version, offer) in offers {
            match why_not(&version, &offer) {
                None => {
                    self.offers.insert(version, offer);
                }
                Some(why) => {
                    self.passed_over.insert(version, why);
                }
            }
        }
    }
}

/// Parses a version in canonical form only.
fn exactly(text: &str) -> Option<Version> {
    let version = Version::parse(text).ok()?;
    (version.to_string() == text).then_some(version)
}

fn offer(
    name: &PackageName,
    version: &str,
    it: WireVersion,
    built_in: &str,
) -> Result<OfferedVersion, String> {
    if it.name.as_str() != Some(name.as_str()) || it.version.as_str() != Some(version) {
        return Err("the registry's entry describes another package".to_owned());
    }
    let promised = it.dist.integrity.as_str().unwrap_or_default().to_owned();
    let Ok(integrity) = promised.parse() else {
        return Err("the registry has no SHA-512 for it".to_owned());
    };
    let signatures = it.dist.signatures.as_array().into_iter().flatten();
    let signatures = signatures.take(SIGNATURES_MAX);
    let signatures: Vec<_> = signatures
        .filter_map(|it| RegistrySignature::deserialize(it).ok())
        .collect();
    let Some(archive) = it.dist.tarball.as_str() else {
        return Err("the registry has no archive for it".to_owned());
    };
    let bundled = [&it.bundle_dependencies, &it.bundled_dependencies];
    let is_bundled = |name: &str| {
        bundled.iter().any(|listed| match listed {
            Value::Bool(all) => *all,
            Value::Array(names) => names.iter().any(|it| it == name),
            _ => false,
        })
    };
    let mut requires = Requires::new();
    let listed = it.dependencies.as_object().into_iter().flatten();
    for (inner, range) in listed.filter(|(inner, _)| *inner != built_in && !is_bundled(inner)) {
        let range = range.as_str().unwrap_or_default();
        let requirement = range.parse::<Requirement>().ok();
        let requirement = requirement.filter(|it| it.range().is_some());
        match (inner.parse(), requirement) {
            (Ok(inner), Some(requirement)) => drop(requires.insert(inner, requirement)),
            _ => {
                return Err(format!(
                    "it requires `{inner}` {range}, which is not a version range"
                ));
            }
        }
    }
    let deprecated = match it.deprecated {
        Value::String(why) if !why.is_empty() => Some(why),
        Value::Bool(true) => Some("its makers say no more".to_owned()),
        _ => None,
    };
    Ok(OfferedVersion {
        requires,
        archive: archive.to_owned(),
        integrity,
        deprecated,
        published: None,
        promised,
        signatures,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(answer: &Value) -> Result<Packument, InvalidPackument> {
        let name = "@acme/a".parse().unwrap();
        Packument::read(&name, answer.to_string().as_bytes(), "@goondan/base")
    }

    fn version(text: &str, more: &Value) -> Value {
        let integrity = Integrity::of(b"x").to_string();
        let mut it = json!({
            "name": "@acme/a", "version": text,
            "dist": {"tarball": "https://h/a.tgz", "integrity": integrity, "shasum": "00"},
        });
        for (field, value) in more.as_object().unwrap() {
            it[field] = value.clone();
        }
        it
    }

    #[test]
    fn pkg_3_packument_parses_and_unverifiable_versions_are_skipped() {
        let whole = json!({
            "name": "@acme/a",
            "dist-tags": {"latest": "1.1.0", "odd": 7, "wrong": "x"},
            "time": {"created": "2020-01-01T00:00:00Z", "1.0.0": "2020-01-02T00:00:00Z", "unpublished": {}},
            "versions": {
                "1.0.0": version("1.0.0", &json!({
                    "dependencies": {"b": "^1", "@goondan/base": "^0.1", "left-pad": "latest"},
                    "bundleDependencies": ["left-pad"],
                    "deprecated": "use 2",
                })),
                "1.1.0": version("1.1.0", &json!({"dist": {"tarball": "https://h/a.tgz", "shasum": "00"}})),
                "1.2.0": version("1.3.0", &json!({})),
                "1.4.0": version("1.4.0", &json!({"dependencies": {"b": "git+https://h/b"}})),
                "1.5.0": version("1.5.0", &json!({"dependencies": {"b": "latest!"}})),
                "1.6.0": version("1.6.0", &json!({"dependencies": {"../b": "1"}})),
                "v2": version("v2", &json!({})),
                "1.7.0": version("1.7.0", &json!({"dependencies": [], "deprecated": false})),
                "1.8.0": version("1.8.0", &json!({"dependencies": {"x": "nonsense!"}, "bundledDependencies": true})),
                "1.9.0": null, "2.0.0": "x", "2.1.0": {"dist": null}, "2.2.0": [],
            },
        });
        let found = read(&whole).unwrap();
        let taken: Vec<String> = found.offers.keys().map(ToString::to_string).collect();
        assert_eq!(taken, ["1.0.0", "1.7.0", "1.8.0"]);
        let first = &found.offers[&Version::parse("1.0.0").unwrap()];
        let requires: Vec<&str> = first.requires.keys().map(PackageName::as_str).collect();
        assert_eq!(requires, ["b"]);
        assert_eq!(first.deprecated.as_deref(), Some("use 2"));
        assert_eq!(first.published.as_deref(), Some("2020-01-02T00:00:00Z"));
        assert_eq!(found.passed_over.len(), 9, "{:?}", found.passed_over);
        assert_eq!(found.tags.len(), 1);
    }

    #[test]
    fn pkg_3_metadata_of_another_package_is_rejected() {
        assert!(matches!(
            read(&json!({"name": "@acme/b", "versions": {}})),
            Err(InvalidPackument::Other(_))
        ));
        for wrong in [
            json!([]),
            json!({}),
            json!({"name": "@acme/a", "versions": []}),
        ] {
            assert!(read(&wrong).is_err(), "{wrong}");
        }
        // Deep nesting in an unrelated field is ignored; in a required field it makes the metadata
        // invalid.
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let name = "@acme/a".parse().unwrap();
        let within =
            |field: &str| format!("{{\"name\":\"@acme/a\",\"{field}\":{{\"1.0.0\":{deep}}}}}");
        let read = |text: &str| Packument::read(&name, text.as_bytes(), "");
        assert!(read(&within("x")).unwrap().offers.is_empty());
        assert!(read(&within("time")).is_err());
    }
}
