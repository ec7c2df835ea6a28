//! Requirements of a project on the machine.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use goondan_config::LocalMachine;
use goondan_protocol::sandbox::Right;

use crate::support::Project;

const DOCUMENTS: &str = "\
apiVersion: goondan.ai/v1
kind: Tool
metadata: {name: slug}
spec: {entry: slug.ts, exports: [{name: of, description: A slug., parameters: {type: object}}]}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: one}
spec:
  connectorRef: {kind: Connector, name: mcp, package: \"@goondan/base\"}
  config: {command: [servers/one]}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: two}
spec:
  connectorRef: {kind: Connector, name: mcp, package: \"@goondan/base\"}
  config: {command: [two], env: {PATH: /elsewhere}}
---
apiVersion: goondan.ai/v1
kind: Connector
metadata: {name: issues}
spec: {builtin: mcp}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: three}
spec:
  connectorRef: Connector/issues
  config: {command: [three]}
";

/// Problems of the project on a machine with these programs, each a name and its output.
fn problems(project: &Project, programs: &[(&str, &str)]) -> Vec<String> {
    let mut of_them = Project::empty();
    for (name, prints) in programs {
        of_them = of_them.file(name, format!("#!/bin/sh\necho {prints}\n"));
        let executable = Permissions::from_mode(0o755);
        fs::set_permissions(of_them.root().join(name), executable).unwrap();
    }
    let machine = LocalMachine::new(of_them.root().join("state"), || Right::ALL.into())
        .with_path(of_them.root().into_os_string());
    let loader = project.loader().with_machine(&machine);
    let Err(found) = loader.load(&project.root()).bundle else {
        return Vec::new();
    };
    let found = found.as_slice().iter();
    found
        .map(|it| format!("{} {}", it.code, it.message))
        .collect()
}

#[test]
fn module_without_runtime_and_missing_server_are_problems() {
    let project = Project::with(DOCUMENTS).file("slug.ts", "");
    let server = "E_CONFIG_NO_RUNTIME the program `servers/one` is not executable".to_owned();
    let servers = [
        server,
        "E_CONFIG_NO_RUNTIME no program `three` in PATH".to_owned(),
    ];
    let and_servers = |problem: String| [&[problem], &servers[..]].concat();
    let slug = |why: &str| format!("E_CONFIG_NO_RUNTIME `slug.ts` is TypeScript, {why}");
    let nothing = slug("and nothing that runs it is in PATH");
    assert_eq!(problems(&project, &[]), and_servers(nothing));
    let old = slug("which the node 22.5 in PATH is too old for");
    assert_eq!(problems(&project, &[("node", "v22.5.0")]), and_servers(old));
    let silent = slug("and the node in PATH does not say its version");
    assert_eq!(
        problems(&project, &[("node", "hello")]),
        and_servers(silent)
    );
    for programs in [[("node", "v22.6.0")], [("bun", "")], [("deno", "")]] {
        assert_eq!(problems(&project, &programs), servers);
    }
    // An unused requirement is not a problem.
    assert!(project.try_load().is_ok());
}

#[test]
fn agent_6_a_program_that_its_sandbox_hides_is_a_problem() {
    let programs = Project::empty().file("lib/node_modules/x/agent.js", "#!/bin/sh\n");
    let programs = programs.file("bin/.keep", "");
    let root = programs.root().canonicalize().unwrap();
    let real = root.join("lib/node_modules/x/agent.js");
    fs::set_permissions(&real, Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink(&real, root.join("bin/agent")).unwrap();
    let says = |sandbox: &str| {
        let project = Project::with(&format!(
            "apiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {{name: coder}}\nspec: {{runtime: {{kind: cli, command: \
             [agent]}}, sandbox: {sandbox}}}\n"
        ));
        // Of the machine's own programs those in `bin` are there, as a link in `PATH` is.
        let machine = LocalMachine::new(root.join("state"), || Right::ALL.into())
            .with_path(root.join("bin").into_os_string())
            .with_readable(|policy, project| {
                let listed = policy.read.iter().map(|path| path.as_path().to_owned());
                listed.chain([project.to_owned()]).collect()
            });
        let loader = project.loader().with_machine(&machine);
        let found = loader.load(&project.root()).bundle.err();
        let found = found.map(|found| {
            let problem = &found.as_slice()[0];
            format!(
                "{} {} {}",
                problem.code,
                problem.message,
                problem.suggestion.as_deref().unwrap_or_default()
            )
        });
        found.unwrap_or_default()
    };
    let modules = root.join("lib/node_modules").display().to_string();
    let told = says("{network: any}");
    assert!(told.contains("hides its program `agent`"), "{told}");
    assert!(told.contains(&format!("read: [{modules}]")), "{told}");
    assert_eq!(says(&format!("{{read: [{modules}]}}")), "");
    assert_eq!(says("{require: off}"), "");
}

/// Problems of a project with an agent that runs commands, on a machine with these rights.
fn sandbox_problems(sandbox: &str, rights: &'static [Right]) -> Vec<String> {
    sandbox_problems_with(sandbox, rights, || Ok(()))
}

fn sandbox_problems_with(
    sandbox: &str,
    rights: &'static [Right],
    open_beneath: fn() -> std::io::Result<()>,
) -> Vec<String> {
    let project = Project::with(&format!(
        "apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: other}}
spec:
  modelConfig: {{modelRef: Model/main}}
  tools: [{{kind: Tool, name: bash, package: \"@goondan/base\"}}]
  {sandbox}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {{name: all}}
spec: {{entryAgent: Agent/helper}}
"
    ));
    let state = project.root().join("nowhere");
    let machine = LocalMachine::new(state, || rights.iter().copied().collect())
        .with_open_beneath(open_beneath);
    let loader = project.loader().with_machine(&machine);
    let Err(found) = loader.load(&project.root()).bundle else {
        return Vec::new();
    };
    let found = found.as_slice().iter();
    found
        .map(|it| {
            let help = it.suggestion.as_deref().unwrap_or_default();
            format!("{} {} {help}", it.code, it.message)
        })
        .collect()
}

#[test]
fn sec_3_unavailable_sandbox_problem_names_cause_and_remedy() {
    let of = sandbox_problems;
    assert_eq!(of("", &Right::ALL), Vec::<String>::new());
    let landlock = "sandbox: {require: landlock}";
    assert_eq!(of(landlock, &Right::LANDLOCK), Vec::<String>::new());
    assert_eq!(of("sandbox: {require: off}", &[]), Vec::<String>::new());

    let [problem] = &of("", &Right::LANDLOCK)[..] else {
        panic!("one problem");
    };
    assert!(
        problem.starts_with("E_CONFIG_NO_SANDBOX Agent `other`"),
        "{problem}"
    );
    assert!(problem.contains("user namespaces"), "{problem}");
    assert!(
        problem.contains("`sandbox: {require: landlock}`"),
        "{problem}"
    );
    let [problem] = &of(landlock, &[])[..] else {
        panic!("one problem");
    };
    assert!(problem.contains("seccomp"), "{problem}");
    assert!(problem.contains("`sandbox: {require: off}`"), "{problem}");

    // A unit or a container refuses the system call that mounts need.
    let refused = || Err(std::io::ErrorKind::Unsupported.into());
    let [problem] = &sandbox_problems_with("", &WITHOUT_MOUNTS, refused)[..] else {
        panic!("one problem");
    };
    assert!(problem.contains("`openat2` is refused"), "{problem}");
    assert!(!problem.contains("mount namespaces"), "{problem}");
    assert!(problem.contains("`gdn doctor`"), "{problem}");
}

const WITHOUT_MOUNTS: [Right; 7] = [
    Right::Files,
    Right::Signals,
    Right::AbstractSockets,
    Right::SystemCalls,
    Right::UserNamespaces,
    Right::Processes,
    Right::Network,
];

#[test]
fn sec_3_foreign_sandbox_kind_is_a_problem_naming_the_right_one() {
    const PROFILE: [Right; 1] = [Right::Profile];
    let only = |problems: Vec<String>| {
        let [problem] = &problems[..] else {
            panic!("one problem: {problems:?}");
        };
        problem.clone()
    };
    let seatbelt = "sandbox: {require: seatbelt}";
    assert_eq!(sandbox_problems(seatbelt, &PROFILE), Vec::<String>::new());
    let problem = only(sandbox_problems(seatbelt, &Right::ALL));
    for said in [
        "of level `seatbelt`",
        "available on macOS only",
        "{require: full}",
    ] {
        assert!(problem.contains(said), "{said}: {problem}");
    }
    for level in ["full", "landlock"] {
        let problem = only(sandbox_problems(
            &format!("sandbox: {{require: {level}}}"),
            &PROFILE,
        ));
        for said in ["available on Linux only", "`sandbox: {require: seatbelt}`"] {
            assert!(problem.contains(said), "{said}: {problem}");
        }
    }
    // Nothing there leads to the egress.
    let listed = "sandbox: {require: seatbelt, network: {allow: [a.org]}}";
    let problem = only(sandbox_problems(listed, &PROFILE));
    assert!(
        problem.contains("which the level `seatbelt` cannot enforce"),
        "{problem}"
    );
}

#[test]
fn sec_3_listed_hosts_must_be_exact_and_need_level_full() {
    let of =
        |network: &str| sandbox_problems(&format!("sandbox: {{network: {network}}}"), &Right::ALL);
    let good = "{allow: [packages.example.org, '*.example.org:8443', 10.0.0.7, '[::1]:80']}";
    assert_eq!(of(good), Vec::<String>::new());
    for (network, said) in [
        ("{allow: ['*']}", "a wildcard that matches too much"),
        ("{allow: ['https://a.org']}", "more than a host and a port"),
        ("{allow: [A.org]}", "lower case"),
        ("{allow: [169.254.169.254]}", "programs must not access"),
        ("{allow: ['2130706433']}", "in another notation"),
        ("{allow: []}", "`network: none`"),
        ("some", "`none` or `any`, or a mapping"),
    ] {
        let problems = of(network);
        let [problem] = &problems[..] else {
            panic!("{network}: {problems:?}");
        };
        assert!(problem.contains(said), "{network}: {problem}");
    }
    let landlock = "sandbox: {require: landlock, network: {allow: [a.org]}}";
    let problems = sandbox_problems(landlock, &Right::ALL);
    let [problem] = &problems[..] else {
        panic!("{problems:?}");
    };
    for said in [
        "E_CONFIG_NO_SANDBOX Agent `other`",
        "`require: full`",
        "`http-fetch`",
    ] {
        assert!(problem.contains(said), "{problem}");
    }
}

#[test]
fn sec_3_a_connection_does_not_take_the_name_of_the_egress() {
    let project = |network: &str| {
        Project::with(&format!(
            "apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: other}}
spec:
  modelConfig: {{modelRef: Model/main}}
  tools: [{{kind: Tool, name: bash, package: \"@goondan/base\"}}]
  sandbox: {{network: {network}}}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {{name: all}}
spec: {{entryAgent: Agent/helper}}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: egress}}
spec: {{connectorRef: {{kind: Connector, name: webhook, package: \"@goondan/base\"}}}}
"
        ))
    };
    assert!(project("any").try_load().is_ok());
    let told = project("{allow: [a.org]}").try_load().unwrap_err();
    let told = format!("{told:?}");
    assert!(
        told.contains("the name of Connection `egress` is reserved"),
        "{told}"
    );
}

#[test]
fn sec_3_no_sandbox_for_a_project_that_contains_goondan_state() {
    let project = Project::with(
        "apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: other}
spec:
  modelConfig: {modelRef: Model/main}
  tools: [{kind: Tool, name: bash, package: \"@goondan/base\"}]
  sandbox: {read: [state, missing]}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: all}
spec: {entryAgent: Agent/helper}
",
    )
    .file("state/system/identity.age", "");
    let machine = LocalMachine::new(project.root().join("state"), || Right::ALL.into());
    let loader = project.loader().with_machine(&machine);
    let found = loader.load(&project.root()).bundle.unwrap_err();
    let mut codes: Vec<_> = found.as_slice().iter().map(|it| it.code).collect();
    codes.sort_unstable();
    let (path, holds) = ("E_CONFIG_SANDBOX_PATH", "E_CONFIG_NO_SANDBOX");
    assert_eq!(codes, [holds, path, path]);
}
