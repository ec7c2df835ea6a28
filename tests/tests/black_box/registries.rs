//! Packages from registries, with and without faults (`PKG-1`, `PKG-3`).

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use goondan_tests::home::{GDN, RunningProgram};
use goondan_tests::registry::{Registry, RegistryFault};
use goondan_tests::tree::{FileEntry, snapshot};
use goondan_tests::{CommandOutput, Home};
use serde_json::json;

/// An agent that answers with the output of a package's tool.
const PROJECT: &str = r#"apiVersion: goondan.ai/v1
kind: Package
metadata: {name: shop}
spec:
  version: 1.0.0
  registries:
    - url: "REGISTRY"
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: main}
spec:
  modelConfig: {modelRef: Model/scripted}
  tools: []
---
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: scripted}
spec:
  provider: scripted
  options:
    rules:
      - when: {user: "say it", step: 1}
        call: [{tool: words__say, args: {}}]
      - {when: {result: "(?P<word>.*)"}, say: "${word}"}
"#;

fn home(registry: &Registry) -> Home {
    Home::new(&PROJECT.replace("REGISTRY", &registry.url()))
}

fn lock(home: &Home) -> String {
    fs::read_to_string(home.project().join("goondan.lock")).unwrap()
}

fn manifest(home: &Home) -> String {
    fs::read_to_string(home.project().join("goondan.yaml")).unwrap()
}

/// Requires a version range in `goondan.yaml`, as with an editor.
fn require(home: &Home, from: &str, to: &str) {
    let yaml = manifest(home);
    assert!(yaml.contains(from), "{yaml}");
    home.write("project/goondan.yaml", &yaml.replace(from, to));
}

/// Snapshot of the project and the store, to detect changes.
fn all(home: &Home) -> [BTreeMap<PathBuf, FileEntry>; 2] {
    let packages = home.state_root().join("packages");
    fs::create_dir_all(packages.join(".trees")).unwrap();
    let keeps_times = |path: &std::path::Path| path.file_name().is_none_or(|it| it != ".trees");
    let trees = fs::read_dir(packages.join(".trees")).unwrap();
    let trees: Vec<String> = trees
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(!trees.contains(&"incoming".to_owned()), "{trees:?}");
    let mut kept = snapshot(&packages.join(".trees"), |_| true);
    kept.extend(snapshot(&packages, keeps_times));
    [snapshot(&home.project(), |_| true), kept]
}

fn with_env(home: &Home, args: &[&str], env: &[(&str, &str)]) -> CommandOutput {
    let mut command = home.command(&goondan_tests::binaries::bin(GDN), args);
    command.envs(env.iter().copied());
    RunningProgram::start(command).wait()
}

#[test]
fn pkg_1_added_registry_package_later_works_without_registry() {
    let registry = Registry::start();
    registry.publish("@acme/words", "1.0.0", &[], "one");
    registry.publish("@acme/words", "1.1.0", &[], "two");
    registry.publish("@acme/words", "2.0.0-rc.1", &[], "three");
    registry.publish("tools", "1.2.0", &[("@acme/words", "^1.0")], "tools");
    let home = home(&registry);
    home.gdn(&["package", "add", "tools"]).exits(0).prints(&[
        "+ @acme/words 1.1.0",
        "+ tools 1.2.0",
        "2 packages, 2 installed now",
    ]);
    assert!(manifest(&home).contains("- name: \"tools\"\n      version: \"^1.2.0\"\n"));
    assert!(lock(&home).contains(&format!("{}/@acme/words/-/1.1.0.tgz", registry.url())));
    let stored = home
        .state_root()
        .join("packages/@acme/words@1.1.0/goondan.yaml");
    assert!(stored.exists());

    home.gdn(&["package", "why", "@acme/words"])
        .exits(0)
        .prints(&[
            "@acme/words 1.1.0",
            "  the project requires `tools` ^1.2.0",
            "    `tools` 1.2.0 requires `@acme/words` ^1.0",
        ]);
    home.gdn(&["package", "why", "nobody"]).exits(5);

    // A new machine: only the archives are fetched, and then nothing at all.
    fs::remove_dir_all(home.state_root().join("packages")).unwrap();
    let asked = registry.asked().len();
    home.gdn(&["package", "install", "--frozen-lockfile"])
        .exits(0)
        .prints(&["2 installed now"]);
    let archives = registry.asked().split_off(asked);
    assert!(
        archives.len() == 2 && archives.iter().all(|it| it.contains("/-/")),
        "{archives:?}"
    );
    registry.lie(RegistryFault::Fails);
    for args in [
        ["package", "install"],
        ["package", "list"],
        ["validate", "."],
    ] {
        home.gdn(&args).exits(0);
    }
    assert_eq!(registry.asked().len(), asked + 2);

    require(
        &home,
        "tools: []",
        "tools: [{kind: Tool, name: words, package: \"@acme/words\"}]",
    );
    home.gdn(&["run"]).exits(0);
    assert_eq!(home.ask("main", "say it"), "two");
}

#[test]
fn pkg_3_lockfile_does_not_depend_on_the_order_of_additions() {
    let registry = Registry::start();
    for version in ["1.0.0", "1.1.0", "2.0.0"] {
        registry.publish("base", version, &[], "base");
    }
    registry.publish("a", "1.0.0", &[("base", ">=1")], "a");
    registry.publish("b", "1.0.0", &[("base", "^1")], "b");
    registry.publish("c", "1.0.0", &[("a", "1"), ("b", "1")], "c");
    let locked = |order: &[&str]| {
        let home = home(&registry);
        for name in order {
            home.gdn(&["package", "add", name]).exits(0);
        }
        lock(&home)
    };
    let first = locked(&["a", "b", "c"]);
    assert!(first.contains("base/-/1.1.0.tgz"), "{first}");
    assert_eq!(locked(&["c", "b", "a"]), first);
    assert_eq!(locked(&["b", "a", "c"]), first);
}

#[test]
fn pkg_3_lying_stalling_or_unreachable_registry_changes_nothing() {
    let registry = Registry::start();
    registry.publish("there", "1.0.0", &[], "there");
    registry.publish("inner", "1.0.0", &[], "inner");
    registry.publish("words", "1.0.0", &[("inner", "^1")], "words");
    let home = home(&registry);
    home.gdn(&["package", "add", "there"]).exits(0);
    let before = all(&home);
    for (lie, exit, says) in [
        (RegistryFault::Fails, 8, "answered 500: out of order"),
        (
            RegistryFault::Declines,
            10,
            "gdn secret set registry 127.0.0.1-",
        ),
        (RegistryFault::CutsMetadata, 10, "is not package metadata"),
        (
            RegistryFault::CutsArchive,
            10,
            "does not match the registry: expected the SHA-512",
        ),
        (
            RegistryFault::OtherArchive,
            10,
            "does not match the registry: expected the SHA-512",
        ),
        (
            RegistryFault::OtherName,
            10,
            "describes the package `other`",
        ),
        (RegistryFault::OtherContent, 10, "found `another`"),
        (
            RegistryFault::HidesRequirements,
            10,
            "its registry entry lists nothing",
        ),
        (
            RegistryFault::WeakPromise,
            5,
            "the registry has no SHA-512 for it",
        ),
        (
            RegistryFault::Elsewhere,
            5,
            "its archive is not on its registry",
        ),
        (
            RegistryFault::LeadsHere,
            10,
            "which is not on the public internet",
        ),
        (RegistryFault::Endless, 10, "sent more than 67108864 bytes"),
        (RegistryFault::Nested, 10, "is not package metadata"),
        (RegistryFault::StallsWithMetadata, 8, "stopped responding"),
        (RegistryFault::StallsWithArchive, 8, "stopped responding"),
    ] {
        registry.lie(lie);
        let wanted = if exit == 5 { "words" } else { "words@1.0.0" };
        home.gdn(&["package", "add", wanted])
            .exits(exit)
            .tells(&[says]);
        assert_eq!(all(&home), before, "{lie:?}");
    }
    registry.lie(RegistryFault::None);
    home.gdn(&["package", "add", "words"]).exits(0);
}

#[test]
fn pkg_1_a_registry_that_signs_is_held_to_its_signatures() {
    let registry = Registry::start();
    registry.publish("words", "1.0.0", &[], "one");
    registry.sign();
    let home = home(&registry);
    let before = all(&home);
    for (lie, said) in [
        (
            RegistryFault::HidesSignatures,
            "is not signed, although its registry signs",
        ),
        (RegistryFault::OtherSignature, "has an invalid signature"),
        (RegistryFault::OtherKey, "has an invalid signature"),
    ] {
        registry.lie(lie);
        home.gdn(&["package", "add", "words"]).exits(10).tells(&[
            "`words` 1.0.0",
            said,
            "nothing was changed",
        ]);
        assert!(!registry.asked().iter().any(|it| it.contains("/-/1.0.0")));
        assert_eq!(all(&home), before, "{lie:?}");
    }
    registry.lie(RegistryFault::None);
    home.gdn(&["package", "add", "words"])
        .exits(0)
        .prints(&["+ words 1.0.0"]);
}

#[test]
fn pkg_3_an_archive_that_its_registry_exchanges_is_not_taken() {
    let registry = Registry::start();
    registry.publish("words", "1.0.0", &[], "good");
    registry.publish("more", "1.0.0", &[], "more");
    let home = home(&registry);
    home.gdn(&["package", "add", "words"]).exits(0);
    registry.lie(RegistryFault::OtherPromise);
    let before = all(&home);
    home.gdn(&["package", "add", "more"]).exits(10).tells(&[
        "`words` 1.0.0 does not match the lockfile: its registry now lists another archive",
    ]);
    home.gdn(&["package", "update"]).exits(10);
    assert_eq!(all(&home), before);

    // On a machine without the package, the lockfile decides.
    fs::remove_dir_all(home.state_root().join("packages")).unwrap();
    home.gdn(&["package", "install"])
        .exits(10)
        .tells(&["does not match the registry"]);
    registry.lie(RegistryFault::None);
    home.gdn(&["package", "install"]).exits(0);
    assert_eq!(all(&home)[0], before[0]);
}

#[test]
fn pkg_3_updates_stay_within_requirements_and_skip_new_versions() {
    let registry = Registry::start();
    for name in ["a", "b"] {
        registry.publish(name, "1.0.0", &[], "one");
    }
    let home = home(&registry);
    home.gdn(&["package", "add", "a", "b"]).exits(0);
    for name in ["a", "b"] {
        registry.publish(name, "1.1.0", &[], "two");
        registry.publish(name, "2.0.0", &[], "too much");
        registry.publish_aged(name, "1.2.0", &[], "young", 2);
    }
    registry.say("a", "1.1.0", "deprecated", json!("use \u{1b}[31mb"));
    let young = home.gdn(&["package", "update", "a"]).exits(0);
    assert!(!young.stdout.contains("~ b") && !young.stderr.contains('\u{1b}'));
    young
        .prints(&["~ a 1.0.0 → 1.1.0"])
        .tells(&["`a` 1.1.0 is deprecated: use"]);
    home.gdn(&["package", "update", "--min-release-age", "1"])
        .exits(0)
        .prints(&["~ a 1.1.0 → 1.2.0", "~ b 1.0.0 → 1.2.0"]);
    // A locked version is kept, even if it is recent.
    home.gdn(&["package", "update"])
        .exits(0)
        .prints(&["everything is installed"]);
    home.gdn(&["package", "update", "nobody"]).exits(5);

    // A version that is too recent is reported.
    registry.publish_aged("new", "1.0.0", &[], "new", 0);
    let before = all(&home);
    home.gdn(&["package", "add", "new"]).exits(5).tells(&[
        "skipped `new` 1.0.0: it was published",
        "--min-release-age 0",
    ]);
    home.gdn(&["package", "add", "new@^1"])
        .exits(10)
        .tells(&["the project requires `new` ^1", "skipped `new` 1.0.0"]);
    assert_eq!(all(&home), before);
    home.gdn(&["package", "add", "new", "--min-release-age", "0"])
        .exits(0);
}

#[test]
fn pkg_3_unsatisfiable_requirement_is_explained_without_guesses() {
    let registry = Registry::start();
    registry.publish("d", "1.2.5", &[], "d");
    registry.publish("d", "1.4.0", &[], "d");
    registry.publish("a", "1.0.0", &[("b", "^1")], "a");
    registry.publish("b", "1.0.0", &[("d", "^1.4"), ("a", "*")], "b");
    registry.publish("c", "3.0.0", &[("d", "~1.2.0")], "c");
    registry.tag("d", "old", "1.2.5");
    let home = home(&registry);
    // They require each other.
    home.gdn(&["package", "add", "a"]).exits(0);
    let before = all(&home);
    home.gdn(&["package", "add", "c"]).exits(10).tells(&[
        "the project requires `a` ^1.0.0",
        "the project requires `c` ^3.0.0",
        "`a` 1.0.0 requires `b` ^1",
        "`c` 3.0.0 requires `d` ~1.2.0",
        "`b` 1.0.0 requires `d` ^1.4",
    ]);
    home.gdn(&["package", "add", "nobody"])
        .exits(5)
        .tells(&["has no suitable version of `nobody`"]);
    home.gdn(&["package", "add", "nobody@^1"])
        .exits(10)
        .tells(&["`nobody` does not exist"]);
    home.gdn(&["package", "add", "d@none"])
        .exits(5)
        .tells(&["has no suitable version of `d@none`"]);
    assert_eq!(all(&home), before);
    home.write("project/e/goondan.yaml", "");
    home.gdn(&["package", "add", "e"])
        .exits(2)
        .tells(&["write `./e` or `e@latest`"]);
    home.gdn(&["package", "remove", "a"]).exits(0);
    home.gdn(&["package", "add", "d@old"]).exits(0);
    assert!(manifest(&home).contains("version: \"^1.2.5\""));
}

#[test]
fn sec_1_token_goes_only_to_its_own_registry_and_is_not_stored() {
    const TOKEN: &str = "npm_never_shown_anywhere";
    let (own, other) = (Registry::start(), Registry::start());
    own.lie(RegistryFault::Declines);
    own.publish("@own/words", "1.0.0", &[], "own");
    other.publish("words", "1.0.0", &[("@own/words", "1")], "other");
    let home = Home::new(&PROJECT.replace(
        "- url: \"REGISTRY\"",
        &format!(
            "- {{scope: \"@own\", url: \"{}\"}}\n    - url: \"{}\"",
            own.url(),
            other.url()
        ),
    ));
    // The token is only for the registry in the variable.
    let add = ["package", "add", "words"];
    let ran = with_env(&home, &add, &[("GOONDAN_REGISTRY_TOKEN", TOKEN)]);
    ran.exits(10)
        .tells(&["answered 401", "gdn secret set registry 127.0.0.1-"]);
    let token_sent = |registry: &Registry| {
        let mut all = registry.received().into_iter();
        all.any(|it| {
            it.header("authorization")
                .is_some_and(|it| it.contains(TOKEN))
        })
    };
    assert!(!token_sent(&own) && !token_sent(&other));

    let port = own.url().replace("http://127.0.0.1:", "");
    let key = format!("127.0.0.1-{}", port.trim_end_matches("/v1"));
    let mut command = home.command(
        &goondan_tests::binaries::bin(GDN),
        &["secret", "set", "registry", &key],
    );
    let mut setting = RunningProgram::start({
        command.stdin(std::process::Stdio::piped());
        command
    });
    setting.say(TOKEN);
    setting.wait().exits(0);
    let ran = home.gdn(&add).exits(0);
    assert!(token_sent(&own) && !token_sent(&other));
    assert!(!format!("{ran:?}{}{}", lock(&home), manifest(&home)).contains(TOKEN));

    // The registry in the variable.
    let plain = Home::new(
        &PROJECT
            .replace("    - url: \"REGISTRY\"\n", "")
            .replace("  registries:\n", ""),
    );
    // No registry is configured for the scope: no other is queried.
    let add = ["package", "add", "@own/words"];
    plain.gdn(&add).exits(5).tells(&[
        "no registry is configured for `@own/words`",
        "or set `$GOONDAN_REGISTRY`",
    ]);
    let env = [
        ("GOONDAN_REGISTRY", &*own.url()),
        ("GOONDAN_REGISTRY_TOKEN", TOKEN),
    ];
    with_env(&plain, &add, &env).exits(0);
}

#[test]
fn pkg_3_needed_manual_edit_is_reported_before_storing_anything() {
    let registry = Registry::start();
    registry.publish("words", "1.0.0", &[], "one");
    let home = home(&registry);
    let yaml = manifest(&home);
    let flow = yaml.replace(
        &format!(
            "spec:\n  version: 1.0.0\n  registries:\n    - url: \"{}\"\n",
            registry.url()
        ),
        &format!("spec: {{registries: [{{url: \"{}\"}}]}}\n", registry.url()),
    );
    home.write(
        "project/goondan.yaml",
        &flow.replace("spec: {", "spec: &shop {"),
    );
    let before = all(&home);
    home.gdn(&["package", "add", "words"])
        .exits(10)
        .tells(&["cannot edit"]);
    assert_eq!(all(&home), before);
    home.write("project/goondan.yaml", &flow);
    home.gdn(&["package", "add", "words"]).exits(0);
    let added = manifest(&home);
    assert!(
        added.contains("}], dependencies: [{name: \"words\", version: "),
        "{added}"
    );
}
