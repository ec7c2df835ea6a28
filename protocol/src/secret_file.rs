//! Names of files that usually contain secrets (`SEC-2`, `BOX-2`).

use std::path::Path;

/// Directories in which every file is secret.
const DIRECTORIES: [&str; 6] = [".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker"];

/// Secret files, with their directory if it matters.
const FILES: [(&str, &str); 16] = [
    (".git", "config"),
    (".git", "credentials"),
    (".config", "gh"),
    ("gh", "hosts.yml"),
    ("gcloud", "credentials.db"),
    ("", ".netrc"),
    ("", "_netrc"),
    ("", ".npmrc"),
    ("", ".pypirc"),
    ("", ".pgpass"),
    ("", ".git-credentials"),
    ("", ".htpasswd"),
    ("", ".envrc"),
    ("", ".vault-token"),
    ("", "credentials.json"),
    ("", "identity.age"),
];

/// Extensions of key files.
const ENDINGS: [&str; 8] = [
    ".pem",
    ".key",
    ".p12",
    ".pfx",
    ".jks",
    ".keystore",
    ".ppk",
    ".kdbx",
];

/// Suffixes of environment file templates, which may be read.
const TEMPLATES: [&str; 4] = [".example", ".sample", ".template", ".dist"];

/// True if a path names a file that usually contains secrets.
#[must_use]
pub fn holds_secrets(path: &Path) -> bool {
    let names: Vec<String> = path
        .iter()
        .map(|name| name.to_string_lossy().to_lowercase())
        .collect();
    let Some((name, directories)) = names.split_last() else {
        return false;
    };
    let parent = directories.last().map_or("", String::as_str);
    let is_within = directories.iter().any(|dir| DIRECTORIES.contains(&&**dir));
    let is_listed = FILES
        .iter()
        .any(|(dir, file)| name == file && (dir.is_empty() || parent == *dir));
    is_within || is_listed || is_environment(name) || is_key(name)
}

/// `.env`, `.env.local`, `production.env`; not `.env.example`.
fn is_environment(name: &str) -> bool {
    let is_template = TEMPLATES.iter().any(|ending| name.ends_with(ending));
    let is_env = name == ".env" || name.starts_with(".env.") || name.starts_with(".env-");
    (is_env || name.ends_with(".env")) && !is_template
}

/// `id_ed25519`, `server.pem`; a public key may be read.
fn is_key(name: &str) -> bool {
    let is_ssh = name.starts_with("id_") && !name.contains('.');
    is_ssh || ENDINGS.iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sec_2_secret_files_are_detected_by_name_and_path_in_any_case() {
        for path in [
            ".env",
            ".ENV",
            "a/.env.local",
            "deploy/production.env",
            ".git/config",
            "sub/.Git/Config",
            ".netrc",
            ".npmrc",
            ".pypirc",
            "tls/server.PEM",
            "tls/server.key",
            "id_ed25519",
            ".ssh/known_hosts",
            ".aws/credentials",
            ".gnupg/x/y",
        ] {
            assert!(holds_secrets(Path::new(path)), "{path}");
        }
        for path in [
            "",
            "environment.md",
            ".env.example",
            "src/env.rs",
            "config",
            "git/config",
            ".gitignore",
            "id_ed25519.pub",
            "keys.rs",
            "id_card.txt",
            "src/key",
        ] {
            assert!(!holds_secrets(Path::new(path)), "{path}");
        }
    }
}
