//! What a registry says of a package, read with suspicion: whoever answers may be wrong, or may lie.

use std::collections::BTreeMap;

use nodejs_semver::Version;
use serde::Deserialize;
use serde_json::Value;

use crate::integrity::Integrity;
use crate::limits::{SIGNATURES_MAX, VERSIONS_MAX};
use crate::name::PackageName;
use crate::requirement::{Requirement, Requires};

/// What a registry says of one package.
#[derive(Debug, Clone)]
pub struct Packument {
    /// Names for versions: `latest` and others.
    pub tags: BTreeMap<String, Version>,
    /// The versions that can be taken.
    pub offers: BTreeMap<Version, Offer>,
    /// Those that cannot, and why.
    pub passed_over: BTreeMap<Version, String>,
}

/// A version in a registry.
#[derive(Debug, Clone)]
pub struct Offer {
    /// What it requires, without what is built in and without what it brings along.
    pub requires: Requires,
    /// The address of its archive.
    pub archive: String,
    /// The archive's SHA-512.
    pub integrity: Integrity,
    /// Why it is not to be used any more, in its makers' words.
    pub deprecated: Option<String>,
    /// When it was published, in ISO 8601, if the registry says so.
    pub published: Option<String>,
    /// What the registry promises of the archive, in its own words: what its signatures are over.
    pub promised: String,
    /// What the registry has signed that with. At most [`SIGNATURES_MAX`].
    pub signatures: Vec<RegistrySignature>,
}

/// A registry's signature, unchecked.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RegistrySignature {
    /// The key.
    #[serde(rename = "keyid")]
    pub key_id: String,
    /// In base64.
    #[serde(rename = "sig")]
    pub signature: String,
}

/// Why an answer says nothing of a package.
#[derive(Debug, thiserror::Error)]
pub enum InvalidPackument {
    /// It is something else.
    #[error("the answer is not what registries say of a package")]
    Form(#[from] serde_json::Error),
    /// It tells of another package.
    #[error("the answer tells of the package `{0}`")]
    Other(String),
    /// It is too much.
    #[error("the answer tells of more than {VERSIONS_MAX} versions")]
    TooMany,
}

#[derive(Deserialize)]
struct Wire {
    name: String,
    #[serde(default, rename = "dist-tags")]
    tags: BTreeMap<String, Value>,
    #[serde(default)]
    versions: BTreeMap<String, WireVersion>,
    #[serde(default)]
    time: BTreeMap<String, Value>,
}

/// Every field may be anything: registries have kept what people published for fifteen years.
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
    /// Reads the answer to the question for `name`. `built_in` is a package that everybody has.
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
            // What is no semantic version is no version that a range could mean.
            let Some(version) = exactly(&text) else {
                continue;
            };
            let published = wire.time.get(&text).and_then(Value::as_str);
            match offer(name, &text, it, built_in) {
                Ok(offer) => {
                    let published = published.map(str::to_owned);
                    found.offers.insert(version, Offer { published, ..offer });
                }
                Err(why) => {
                    found.passed_over.insert(version, why);
                }
            }
        }
        Ok(found)
    }

    /// Takes the versions out that `why_not` has something to say against.
    pub fn pass_over(&mut self, why_not: impl Fn(&Version, &Offer) -> Option<String>) {
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

/// A version, written the one way there is.
fn exactly(text: &str) -> Option<Version> {
    let version = Version::parse(text).ok()?;
    (version.to_string() == text).then_some(version)
}

fn offer(
    name: &PackageName,
    version: &str,
    it: WireVersion,
    built_in: &str,
) -> Result<Offer, String> {
    if it.name.as_str() != Some(name.as_str()) || it.version.as_str() != Some(version) {
        return Err("the registry tells of another package there".to_owned());
    }
    let promised = it.dist.integrity.as_str().unwrap_or_default().to_owned();
    let Ok(integrity) = promised.parse() else {
        return Err("the registry has no SHA-512 of it".to_owned());
    };
    let signatures = it.dist.signatures.as_array().into_iter().flatten();
    let signatures = signatures.take(SIGNATURES_MAX);
    let signatures: Vec<_> = signatures
        .filter_map(|it| RegistrySignature::deserialize(it).ok())
        .collect();
    let Some(archive) = it.dist.tarball.as_str() else {
        return Err("the registry has no archive of it".to_owned());
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
                    "it requires `{inner}` {range}, which is no range of versions"
                ));
            }
        }
    }
    let deprecated = match it.deprecated {
        Value::String(why) if !why.is_empty() => Some(why),
        Value::Bool(true) => Some("its makers say no more".to_owned()),
        _ => None,
    };
    Ok(Offer {
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
    fn pkg_3_what_a_registry_says_is_read_and_what_cannot_be_checked_is_passed_over() {
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
        assert_eq!(found.passed_over.len(), 5, "{:?}", found.passed_over);
        assert_eq!(found.tags.len(), 1);
    }

    #[test]
    fn pkg_3_an_answer_about_something_else_says_nothing() {
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
        // Nested without an end: passed over where nobody asks for it, and no answer where somebody does.
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let name = "@acme/a".parse().unwrap();
        let within =
            |field: &str| format!("{{\"name\":\"@acme/a\",\"{field}\":{{\"1.0.0\":{deep}}}}}");
        let read = |text: &str| Packument::read(&name, text.as_bytes(), "");
        assert!(read(&within("x")).unwrap().offers.is_empty());
        assert!(read(&within("time")).is_err());
    }
}
