//! A local package registry, with faults on demand.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goondan_protocol::time::Timestamp;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};

use crate::provider::{Provider, ProviderResponse, ReceivedRequest, ResponseEnd};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RegistryFault {
    #[default]
    None,
    /// Half of a package's metadata is sent, then nothing more.
    StallsWithMetadata,
    /// Half of an archive is sent, then nothing more.
    StallsWithArchive,
    /// A package's metadata is truncated.
    CutsMetadata,
    CutsArchive,
    /// An archive does not match its checksum.
    OtherArchive,
    /// An archive differs from before, and so does its checksum.
    OtherPromise,
    /// The metadata belongs to a different package.
    OtherName,
    /// The archive contains a different package.
    OtherContent,
    /// It understates the packages' requirements.
    HidesRequirements,
    Fails,
    Declines,
    /// A package's metadata is endless.
    Endless,
    /// It offers only weak checksums.
    WeakPromise,
    /// Its archive URLs point to another server.
    Elsewhere,
    /// Its archive URLs redirect to a local address.
    LeadsHere,
    /// A package's metadata is nested too deeply.
    Nested,
    HidesSignatures,
    /// It returns the signature of a different version.
    OtherSignature,
    /// It publishes a key other than its signing key.
    OtherKey,
}

#[derive(Debug)]
pub struct Signer {
    id: String,
    key: EcdsaKeyPair,
}

impl Signer {
    /// One with a new key of that name.
    #[must_use]
    pub fn new(id: &str) -> Self {
        let (scheme, random) = (&ECDSA_P256_SHA256_ASN1_SIGNING, SystemRandom::new());
        let key = EcdsaKeyPair::generate_pkcs8(scheme, &random).unwrap();
        Self {
            id: id.to_owned(),
            key: EcdsaKeyPair::from_pkcs8(scheme, key.as_ref(), &random).unwrap(),
        }
    }

    /// Its key, as in a registry's key list.
    #[must_use]
    pub fn key(&self, expires: Option<&str>) -> Value {
        // DER prefix of a P-256 public key.
        let head = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgA=";
        let der = [
            &STANDARD.decode(head).unwrap(),
            self.key.public_key().as_ref(),
        ]
        .concat();
        json!({
            "keyid": self.id, "expires": expires, "keytype": "ecdsa-sha2-nistp256",
            "scheme": "ecdsa-sha2-nistp256", "key": STANDARD.encode(der),
        })
    }

    /// A signature, as in a registry's version metadata.
    #[must_use]
    pub fn signature(&self, message: &str) -> Value {
        let signature = self.key.sign(&SystemRandom::new(), message.as_bytes());
        json!({"keyid": self.id, "sig": STANDARD.encode(signature.unwrap())})
    }
}

struct PublishedPackage {
    archive: Vec<u8>,
    requires: Value,
    more: Value,
    time: String,
}

#[derive(Default)]
struct RegistryContent {
    packages: BTreeMap<String, BTreeMap<String, PublishedPackage>>,
    tags: BTreeMap<String, Value>,
    lie: RegistryFault,
    signer: Option<Signer>,
    advisories: Value,
    put: Vec<Value>,
}

/// The registry. Its threads end with the test's process.
pub struct Registry {
    http: Provider,
    shelf: Arc<Mutex<RegistryContent>>,
}

/// Age in days of a package of [`Registry::publish`].
const USUAL_AGE_DAYS: u64 = 10;

impl Registry {
    /// An empty one.
    #[must_use]
    pub fn start() -> Self {
        let shelf = Arc::new(Mutex::new(RegistryContent::default()));
        let shared = Arc::clone(&shelf);
        let http = Provider::start(move |received| {
            let mut shelf = shared.lock().unwrap_or_else(PoisonError::into_inner);
            shelf.answer(received)
        });
        Self { http, shelf }
    }

    fn shelf(&self) -> MutexGuard<'_, RegistryContent> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[must_use]
    pub fn url(&self) -> String {
        self.http.endpoint()
    }

    /// The paths it was asked for so far.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        let received = self.http.received().into_iter();
        received.map(|it| it.path).collect()
    }

    #[must_use]
    pub fn received(&self) -> Vec<ReceivedRequest> {
        self.http.received()
    }

    /// Sets the fault from now on.
    pub fn lie(&self, lie: RegistryFault) {
        self.shelf().lie = lie;
    }

    /// Signs its packages from now on.
    pub fn sign(&self) {
        self.shelf().signer = Some(Signer::new("SHA256:own"));
    }

    /// Sets its response to advisory requests.
    pub fn advise(&self, advisories: Value) {
        self.shelf().advisories = advisories;
    }

    /// Packages that clients published.
    #[must_use]
    pub fn put(&self) -> Vec<Value> {
        self.shelf().put.clone()
    }

    pub fn tag(&self, name: &str, tag: &str, version: &str) {
        let mut shelf = self.shelf();
        let tags = shelf
            .tags
            .entry(name.to_owned())
            .or_insert_with(|| json!({}));
        tags[tag] = json!(version);
    }

    /// Adds a package whose tool prints `word`, published ten days ago.
    pub fn publish(&self, name: &str, version: &str, requires: &[(&str, &str)], word: &str) {
        self.publish_aged(name, version, requires, word, USUAL_AGE_DAYS);
    }

    /// As [`Self::publish`], with an age in days.
    pub fn publish_aged(
        &self,
        name: &str,
        version: &str,
        requires: &[(&str, &str)],
        word: &str,
        age_days: u64,
    ) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let at = now.as_secs() - age_days * 24 * 3600;
        let at = i64::try_from(at * 1000).unwrap();
        let requires: Vec<(String, Value)> = requires
            .iter()
            .map(|(name, range)| ((*name).to_owned(), json!(range)))
            .collect();
        let published = PublishedPackage {
            archive: archive(name, version, &requires, word),
            requires: Value::Object(requires.into_iter().collect()),
            more: json!({}),
            time: Timestamp::from_unix_millis(at).to_string(),
        };
        let mut shelf = self.shelf();
        let versions = shelf.packages.entry(name.to_owned()).or_default();
        versions.insert(version.to_owned(), published);
    }

    /// Adds a field to a version's metadata.
    pub fn say(&self, name: &str, version: &str, field: &str, value: Value) {
        let mut shelf = self.shelf();
        let published = shelf.packages.get_mut(name).unwrap();
        published.get_mut(version).unwrap().more[field] = value;
    }
}

/// An archive in the format of `npm pack`.
fn archive(name: &str, version: &str, requires: &[(String, Value)], word: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let bin = dir.path().join("package/bin");
    fs::create_dir_all(&bin).unwrap();
    let listed: String = requires
        .iter()
        .map(|(name, range)| format!("{{name: \"{name}\", version: {range}}}, "))
        .collect();
    let tool = name.rsplit('/').next().unwrap();
    let yaml = format!(
        "apiVersion: goondan.ai/v1\nkind: Package\nmetadata: {{name: \"{name}\"}}\n\
         spec: {{version: {version}, dependencies: [{listed}]}}\n---\n\
         apiVersion: goondan.ai/v1\nkind: Tool\nmetadata: {{name: {tool}}}\nspec:\n  entry: bin/say\n  exports:\n    \
         - {{name: say, description: Says a word., parameters: {{type: object}}}}\n"
    );
    fs::write(dir.path().join("package/goondan.yaml"), yaml).unwrap();
    let say = format!(
        "#!/bin/sh\nn=0\nwhile read -r line; do n=$((n + 1))\n\
         echo \"{{\\\"type\\\":\\\"result\\\",\\\"id\\\":$n,\\\"output\\\":\\\"{word}\\\"}}\"; done\n"
    );
    fs::write(bin.join("say"), say).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(bin.join("say"), executable).unwrap();
    // The same package results in the same archive, whenever it is packed.
    for path in ["goondan.yaml", "bin/say", "bin", ""] {
        let file = fs::File::open(dir.path().join("package").join(path)).unwrap();
        file.set_modified(UNIX_EPOCH).unwrap();
    }
    let packed = Command::new("tar")
        .args(["-czf", "-", "package"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(packed.status.success());
    packed.stdout
}

fn integrity(bytes: &[u8]) -> String {
    format!("sha512-{}", STANDARD.encode(Sha512::digest(bytes)))
}

fn bytes(status: u16, body: Vec<u8>) -> ProviderResponse {
    ProviderResponse {
        chunks: vec![body],
        ..ProviderResponse::error(status, &Value::Null)
    }
}

fn half(mut body: Vec<u8>, ending: ResponseEnd) -> ProviderResponse {
    body.truncate(body.len() / 2);
    bytes(200, body).ending(ending)
}

impl RegistryContent {
    fn answer(&mut self, received: &ReceivedRequest) -> ProviderResponse {
        let path = received.path.trim_start_matches("/v1/").to_owned();
        match self.lie {
            RegistryFault::Fails => {
                return ProviderResponse::error(500, &json!({"error": "out of order"}));
            }
            RegistryFault::Declines if received.header("authorization").is_none() => {
                return ProviderResponse::error(401, &json!({"error": "who are you?"}));
            }
            _ => {}
        }
        if received.method == "PUT" {
            self.put.push(received.body.clone());
            return ProviderResponse::error(201, &json!({"ok": true}));
        }
        if let ("-/npm/v1/keys", Some(signer)) = (path.as_str(), &self.signer) {
            let key = match self.lie {
                RegistryFault::OtherKey => Signer::new("SHA256:own").key(None),
                _ => signer.key(None),
            };
            return ProviderResponse::json(&json!({ "keys": [key] }));
        }
        if path == "-/npm/v1/security/advisories/bulk" {
            return ProviderResponse::json(&self.advisories);
        }
        let base = format!("http://{}/v1", received.header("host").unwrap_or_default());
        match path.split_once("/-/") {
            Some((name, version)) => self.archive(name, version.trim_end_matches(".tgz")),
            None => self.metadata(&path.replace("%2f", "/"), &base),
        }
    }

    fn archive(&self, name: &str, version: &str) -> ProviderResponse {
        let found = self.packages.get(name);
        let Some(published) = found.and_then(|versions| versions.get(version)) else {
            return ProviderResponse::error(404, &json!({"error": "not found"}));
        };
        let archive = published.archive.clone();
        match self.lie {
            RegistryFault::StallsWithArchive => half(archive, ResponseEnd::Silent),
            RegistryFault::CutsArchive => half(archive, ResponseEnd::Closed),
            RegistryFault::OtherArchive | RegistryFault::OtherPromise => {
                bytes(200, self.other(name, version))
            }
            RegistryFault::OtherContent if name == "words" => bytes(200, another_package(version)),
            RegistryFault::LeadsHere => {
                let to = "https://127.0.0.1:1/a.tgz";
                ProviderResponse::error(302, &Value::Null).with_header("location", to)
            }
            _ => bytes(200, archive),
        }
    }

    /// A different archive of the same package.
    fn other(&self, name: &str, version: &str) -> Vec<u8> {
        let requires = &self.packages[name][version].requires;
        let requires = requires.as_object().unwrap().clone().into_iter();
        archive(name, version, &requires.collect::<Vec<_>>(), "evil")
    }

    fn metadata(&self, name: &str, base: &str) -> ProviderResponse {
        let Some(published) = self.packages.get(name) else {
            return ProviderResponse::error(404, &json!({"error": "not found"}));
        };
        let (mut versions, mut time) = (json!({}), json!({}));
        for (version, it) in published {
            time[version] = json!(it.time);
            versions[version] = self.version(name, version, it, base);
        }
        let said = if self.lie == RegistryFault::OtherName {
            "other"
        } else {
            name
        };
        let tags = self.tags.get(name).cloned().unwrap_or_else(|| json!({}));
        let all = json!({"name": said, "dist-tags": tags, "versions": versions, "time": time});
        let text = all.to_string().into_bytes();
        match self.lie {
            RegistryFault::StallsWithMetadata => half(text, ResponseEnd::Silent),
            RegistryFault::CutsMetadata => half(text, ResponseEnd::Closed),
            RegistryFault::Endless => {
                bytes(200, b"{\"name\":\"".to_vec()).repeating(&[b'x'; 1 << 20])
            }
            RegistryFault::Nested => bytes(
                200,
                format!("{{\"name\":\"{name}\",\"x\":{}", "[".repeat(1 << 20)).into_bytes(),
            ),
            _ => bytes(200, text),
        }
    }

    fn version(&self, name: &str, version: &str, it: &PublishedPackage, base: &str) -> Value {
        let promised = match self.lie {
            RegistryFault::OtherPromise => integrity(&self.other(name, version)),
            RegistryFault::OtherContent if name == "words" => integrity(&another_package(version)),
            _ => integrity(&it.archive),
        };
        let place = match self.lie {
            RegistryFault::Elsewhere => "https://files.example.org",
            _ => base,
        };
        let mut said = json!({
            "name": name, "version": version, "dependencies": it.requires,
            "dist": {"tarball": format!("{place}/{name}/-/{version}.tgz"), "integrity": promised.clone(), "shasum": "00"},
        });
        if let (Some(signer), true) = (&self.signer, self.lie != RegistryFault::HidesSignatures) {
            let of = match self.lie {
                RegistryFault::OtherSignature => "9.9.9",
                _ => version,
            };
            let message = format!("{name}@{of}:{promised}");
            said["dist"]["signatures"] = json!([signer.signature(&message)]);
        }
        match self.lie {
            RegistryFault::HidesRequirements => said["dependencies"] = json!({}),
            RegistryFault::WeakPromise => {
                said["dist"]["integrity"] = json!("sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk=");
            }
            _ => {}
        }
        for (field, value) in it.more.as_object().unwrap() {
            said[field] = value.clone();
        }
        said
    }
}

fn another_package(version: &str) -> Vec<u8> {
    archive("another", version, &[], "other")
}
