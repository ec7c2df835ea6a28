//! Checks that the JSON Schemas and the loader agree.
//!
//! Each document of a corpus that contains every field is damaged in every place, one at a time: a
//! field is removed, misspelled, duplicated under another name, given a value of every other type,
//! or combined with one that excludes it. Then
//!
//! * the loader rejects what the schema rejects;
//! * the schema rejects what the loader reports about fields and types (but not their
//!   consequences).

use std::collections::BTreeSet;

use goondan_config::{schema, schema_names};
use jsonschema::Validator;
use serde_json::{Map, Value, json};

use crate::support::{Project, problem_lines, schema_without_connectors};

/// Problems that a schema can detect, too.
const SHAPE_CODES: [&str; 6] = [
    "E_CONFIG_UNKNOWN_FIELD",
    "E_CONFIG_MISSING_FIELD",
    "E_CONFIG_WRONG_TYPE",
    "E_CONFIG_CONFLICTING_FIELDS",
    "E_CONFIG_UNKNOWN_KIND",
    "E_CONFIG_WRONG_KIND",
];

/// Text fields that exclude another field wherever they occur.
const EXCLUDING: [&str; 11] = [
    "value",
    "env",
    "system",
    "systemRef",
    "script",
    "builtin",
    "entry",
    "say",
    "fail",
    "instanceKey",
    "instanceKeyProperty",
];

fn document(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "goondan.ai/v1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    })
}

/// Documents that hold, together, every field of every kind.
fn corpus() -> Vec<Value> {
    let webhook = json!({"kind": "Connector", "name": "webhook", "package": "@goondan/base"});
    let parameters = json!({"type": "object"});
    vec![
        json!({
            "apiVersion": "goondan.ai/v1", "kind": "Package",
            "metadata": {"name": "@goondan/corpus", "labels": {"a": "b"}, "annotations": {"c": "d"}},
            "spec": {
                "version": "1.0.0", "description": "d", "access": "public",
                "dependencies": [{"name": "@goondan/base", "version": "*"}],
                "registries": [{"url": "https://npm.example.org", "scope": "@acme"}],
                "permissions": {
                    "hosts": ["api.example.org"], "read": ["~/r"], "write": ["~/w"], "secrets": ["s"],
                    "tools": ["bash"], "connections": ["telegram"],
                },
            },
        }),
        document(
            "Model",
            "main",
            &json!({
                "provider": "scripted", "model": "m",
                "options": {"rules": [{
                    "when": {"user": "(?P<a>x)", "tool": "bash__exec", "result": "r", "error": true,
                             "system": "s", "history": "h", "step": 1},
                    "say": "${a}", "call": [{"tool": "bash__exec", "args": {"command": "ls"}}],
                    "delayMs": 1,
                }, {"fail": "no"}]},
                "capabilities": {"toolCalling": true, "streaming": false, "images": false},
            }),
        ),
        document(
            "OAuthApp",
            "idp",
            &json!({
                "issuer": "https://as.example",
                "authorizationEndpoint": "https://as.example/authorize",
                "tokenEndpoint": "https://as.example/token",
                "revocationEndpoint": "https://as.example/revoke",
                "deviceAuthorizationEndpoint": "https://as.example/device",
                "resource": "https://mcp.example/mcp",
                "clientId": "c", "clientSecret": {"valueFrom": {"env": "KEY"}}, "clientAuth": "post",
                "scopes": ["a"], "widerScopes": ["b"], "redirectUri": "https://example.org/cb", "subjectMode": "user",
                "params": {"access_type": "offline"},
            }),
        ),
        document(
            "Connection",
            "with-token",
            &json!({
                "connectorRef": webhook,
                "secrets": {"hmac": {"valueFrom": {"oauth": {"app": "OAuthApp/idp", "subject": "ada"}}}},
            }),
        ),
        document(
            "Model",
            "by-file",
            &json!({"provider": "scripted", "options": {"script": "s.yaml"}}),
        ),
        document(
            "Model",
            "other",
            &json!({
                "provider": "anthropic", "model": "m", "endpoint": "https://x",
                "apiKey": {"valueFrom": {"env": "KEY"}},
                "prices": [{"input": 3, "output": 15}],
            }),
        ),
        document(
            "Model",
            "hosted",
            &json!({
                "provider": "anthropic", "model": "m", "endpoint": "https://x", "options": {"a": 1},
                "apiKey": {"valueFrom": {"env": "KEY"}},
                "params": {"temperature": 0.5, "topP": 1, "maxTokens": 9_000, "stop": ["."],
                           "reasoningEffort": "low", "seed": 1},
                "timeouts": {"connectMs": 1, "firstByteMs": 2, "stallMs": 3, "totalMs": 4},
                "promptCaching": false, "sendReasoning": false,
                "prices": [{"since": "2026-01-31", "input": 3, "output": "15.5", "cacheRead": 0.3,
                            "cacheWrite": "3.75"}],
                "limits": {"openFiles": 64},
            }),
        ),
        document(
            "Model",
            "on-azure",
            &json!({
                "provider": "openai", "model": "m", "endpoint": "https://x", "api": "responses",
                "apiKey": {"valueFrom": {"env": "KEY"}}, "azure": {"apiVersion": "2024-10-21"},
            }),
        ),
        document(
            "Model",
            "on-vertex",
            &json!({
                "provider": "google", "model": "m", "endpoint": "https://x",
                "vertex": {"project": "p", "location": "global",
                           "serviceAccount": {"valueFrom": {"env": "KEY_FILE"}}},
            }),
        ),
        document(
            "Model",
            "on-bedrock",
            &json!({
                "provider": "anthropic", "model": "m", "endpoint": "https://x",
                "bedrock": {"region": "us-east-1", "accessKeyId": {"valueFrom": {"env": "KEY"}},
                            "secretAccessKey": {"valueFrom": {"env": "KEY"}},
                            "sessionToken": {"valueFrom": {"env": "KEY"}}},
            }),
        ),
        document(
            "Agent",
            "helper",
            &json!({
                "notify": [{"connection": "Connection/bot", "action": "send", "args": {"chat": 1, "text": "${need}"}}],
                "modelConfig": {
                    "modelRef": "Model/hosted", "params": {"temperature": 1},
                    "fallbacks": [{"modelRef": "Model/other", "params": {"seed": 1}, "on": ["refused"]}],
                },
                "prompt": {"system": "s"},
                "tools": ["Tool/files", {"ref": "Tool/module", "approve": {
                    "rules": [{"export": "a", "when": {"a": "b.*"}, "approve": "always"}],
                    "otherwise": "never"}}, {"kind": "Tool", "name": "bash",
                          "package": "@goondan/base"}],
                "extensions": [
                    "Extension/log", {"ref": "Extension/window", "config": {"maxMessages": 9}},
                    {"ref": {"kind": "Extension", "name": "context-message",
                             "package": "@goondan/base"}, "config": {"text": "t"}},
                    {"kind": "Extension", "name": "message-integrity", "package": "@goondan/base"},
                ],
                "runtime": {"kind": "llm", "cwdMode": "workspace", "limits": {"memoryMiB": 64, "openFiles": 128, "processes": 32}},
                "requiredTools": ["bash__exec"],
                "sandbox": {"require": "landlock", "read": ["/usr"], "write": ["/usr"], "network": "any"},
                "budgets": [{"for": "agent", "per": "day", "tokens": 5, "cost": 1}],
            }),
        ),
        document(
            "Agent",
            "second",
            &json!({
                "modelConfig": {"modelRef": {"kind": "Model", "name": "by-file"}},
                "prompt": {"systemRef": "p.md"}, "runtime": {"kind": "llm"},
            }),
        ),
        document(
            "Agent",
            "third",
            &json!({
                "inherit": "Agent/pattern", "modelConfig": {"modelRef": "Model/by-file"},
            }),
        ),
        document(
            "Agent",
            "pattern",
            &json!({
                "template": true,
                "modelConfig": {"modelRef": "Model/by-file"}, "prompt": {"system": "s"},
            }),
        ),
        document(
            "Swarm",
            "team",
            &json!({
                "entryAgent": "Agent/helper", "agents": ["Agent/helper", {"ref": "Agent/second"}, "Agent/third"],
                "instanceKey": "k",
                "policy": {
                    "maxStepsPerTurn": 3,
                    "loopBreaker": {"sameCallsMax": 3, "noProgressStepsMax": 4},
                    "lifecycle": {"ttlSeconds": 1, "gcGraceSeconds": 1, "idleSeconds": 1},
                    "shutdown": {"gracePeriodSeconds": 1},
                    "observation": {"maxMiB": 1, "maxDays": 1},
                    "tasks": {"keepDays": 1, "drillHours": 1, "checkpointSeconds": 1},
                    "approvals": {"timeoutSeconds": 1},
                    "changesets": {"prompts": "approval", "tools": "never", "models": "never"},
                    "proposals": {"apply": [{"agent": "Agent/helper", "paths": ["docs/**"]}]},
                    "sandbox": {"require": "full", "read": ["/usr"], "write": ["/usr"], "network": {"allow": ["example.org"]}},
                },
            }),
        ),
        document(
            "Tool",
            "files",
            &json!({
                "builtin": "file-system", "config": {"secretFiles": ["a.pem"]}, "errorMessageLimit": 5,
                "exports": [{"name": "read", "description": "d", "idempotent": true}],
            }),
        ),
        document(
            "Tool",
            "module",
            &json!({
                "entry": "tools/x.ts", "config": {"a": [1]}, "errorMessageLimit": 5, "timeoutSeconds": 9,
                "limits": {"memoryMiB": 64, "openFiles": 64},
                "exports": [{"name": "a", "description": "d", "parameters": parameters,
                             "idempotent": false}],
            }),
        ),
        document(
            "Agent",
            "known-program",
            &json!({
                "description": "d",
                "runtime": {
                    "kind": "cli", "preset": "claude", "mode": "plan", "login": "tools", "preamble": "p.md",
                    "environment": {"A": "b"}, "guide": "tools",
                    "limits": {"memoryMiB": 64}, "diskMiB": 512, "source": "project", "deliver": "proposal",
                    "setup": ["sh"], "verify": ["sh", "test.sh"],
                },
                "sandbox": {"require": "off"},
                "notify": [
                    {"connection": "Connection/bot", "action": "send", "args": {"chat": 1, "text": "${message}"},
                     "on": ["question", "failed"]},
                ],
            }),
        ),
        document(
            "Agent",
            "any-program",
            &json!({
                "runtime": {
                    "kind": "cli", "command": ["x", "{prompt}"], "resume": ["x", "{session}", "{prompt}"],
                    "format": "codex-json", "prompt": "argument", "fallbacks": ["Agent/known-program"],
                    "source": {"repository": "https://h/a/b", "ref": "main", "username": "u",
                               "token": {"valueFrom": {"env": "KEY"}}},
                },
            }),
        ),
        document(
            "Extension",
            "log",
            &json!({"entry": "tools/x.ts", "timeoutSeconds": 9, "config": {"a": 1}}),
        ),
        document(
            "Extension",
            "window",
            &json!({"builtin": "message-window", "config": {"maxMessages": 40}}),
        ),
        document(
            "Tool",
            "voice",
            &json!({"builtin": "telegram", "config": {"connection": "Connection/bot"}}),
        ),
        document(
            "Tool",
            "colleague",
            &json!({"builtin": "agent", "config": {
                "agent": "Agent/helper", "description": "d", "parameters": parameters,
                "timeoutMs": 5,
            }}),
        ),
        document(
            "Extension",
            "said",
            &json!({"builtin": "context-message", "config": {"text": "t"}}),
        ),
        document(
            "Extension",
            "asked",
            &json!({"builtin": "inter-agent-response-format", "config": {"instructions": "t"}}),
        ),
        document(
            "Extension",
            "noted",
            &json!({"builtin": "logging", "config": {"content": true}}),
        ),
        document(
            "Extension",
            "guard",
            &json!({"builtin": "required-tools-guard",
                    "config": {"tools": ["bash__exec"], "maxReminders": 1, "anyOf": true,
                               "message": "t"}}),
        ),
        document(
            "Extension",
            "compaction",
            &json!({"builtin": "message-compaction",
                    "config": {"maxMessages": 40, "maxCharacters": 5000, "maxTokens": 9000,
                               "keepMessages": 0, "instructions": "t"}}),
        ),
        document(
            "Extension",
            "search",
            &json!({"builtin": "tool-search",
                    "config": {"maxResults": 3, "alwaysOffered": ["bash__exec"],
                               "toolName": "look__for", "minQueryLength": 2,
                               "persistSelection": false}}),
        ),
        document(
            "Connector",
            "hook",
            &json!({
                "builtin": "webhook",
                "events": [{"name": "e", "properties": {"p": {"type": "string"}}}],
            }),
        ),
        document("Connector", "module", &json!({"entry": "tools/x.ts"})),
        document(
            "Connection",
            "in",
            &json!({
                "connectorRef": "Connector/hook", "swarmRef": "Swarm/team",
                "config": {"path": {"valueFrom": {"env": "KEY"}}, "list": [{"a": 1}]},
                "secrets": {"hmac": {"value": "v"}, "token": {"valueFrom": {"secretRef":
                    {"ref": "Secret/x", "key": "k"}}}},
                "ingress": {"rules": [
                    {"match": {"event": "e", "properties": {"p": 1}},
                     "route": {"agentRef": "Agent/second", "instanceKeyProperty": "p",
                               "instanceKeyPrefix": "x:"}},
                    {"route": {"instanceKey": "k"}},
                    {"join": {"name": "both", "part": "a", "keyProperty": "p"}},
                    {"join": {"name": "both", "part": "b", "keyProperty": "p"}},
                ], "joins": [{"name": "both", "timeoutSeconds": 9, "onTimeout": "drop"}]},
                "limits": {"processes": 16},
            }),
        ),
        document("Connection", "direct", &json!({"connectorRef": webhook})),
        document(
            "Connection",
            "topics",
            &json!({
                "connectorRef": webhook,
                "config": {"signature": {"preset": "sns", "topics": ["arn:aws:sns:eu-west-1:1:t"]}},
            }),
        ),
        document(
            "Connection",
            "rotated",
            &json!({
                "connectorRef": webhook,
                "config": {"idHeader": "x-id", "typeHeader": "x-type",
                           "signature": {"preset": "stripe", "toleranceSeconds": 60}},
                "secrets": {"hmac": {"valueFrom": {"env": "KEY"}},
                            "previousHmac": {"valueFrom": {"env": "KEY"}}},
            }),
        ),
        document(
            "Connection",
            "signed",
            &json!({
                "connectorRef": webhook,
                "config": {"port": "8080", "path": "/in", "host": {"valueFrom": {"env": "KEY"}},
                           "signature": {"header": "x-signature", "algorithm": "sha256"}},
                "secrets": {"hmac": {"valueFrom": {"env": "KEY"}}},
            }),
        ),
        document(
            "Connection",
            "clock",
            &json!({
                "connectorRef": {"kind": "Connector", "name": "cron", "package": "@goondan/base"},
                "config": {"schedules": [{"name": "morning", "cron": "0 9 * * *", "input": "Hello.",
                                          "timeZone": "Europe/Berlin", "catchUpMax": 3}]},
            }),
        ),
        document(
            "Connection",
            "bot",
            &json!({
                "connectorRef": {"kind": "Connector", "name": "telegram", "package": "@goondan/base"},
                "config": {"chats": [1, "2"], "endpoint": "https://x"},
                "header": "Chat {chatId}[ by {fromUsername}]", "payload": "none",
                "secrets": {"botToken": {"valueFrom": {"env": "KEY"}}},
            }),
        ),
    ]
}

fn project(documents: &[Value]) -> Project {
    let texts: Vec<String> = documents.iter().map(Value::to_string).collect();
    Project::new(&texts.join("\n---\n"))
        .file("s.yaml", "rules: [{say: a}]")
        .file("p.md", "p")
        .file("tools/x.ts", "")
        .variable("KEY", "key")
        .variable("KEY_FILE", r#"{"client_email": "e", "private_key": "k"}"#)
}

/// Calls `visit` with every way to damage the value in one place, and what was done.
fn damage(value: &Value, path: &str, visit: &mut dyn FnMut(Value, String)) {
    for other in [
        json!(null),
        json!(true),
        json!(7),
        json!("text"),
        json!([]),
        json!({}),
    ] {
        if std::mem::discriminant(&other) != std::mem::discriminant(value) || value.is_string() {
            let what = format!("{path} is {other}");
            visit(other, what);
        }
    }
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                damage(item, &format!("{path}[{index}]"), &mut |item, what| {
                    let mut items = items.clone();
                    items[index] = item;
                    visit(Value::Array(items), what);
                });
            }
        }
        Value::Object(fields) => {
            for name in EXCLUDING {
                if !fields.contains_key(name) {
                    let mut fields = fields.clone();
                    fields.insert(name.to_owned(), json!("text"));
                    visit(Value::Object(fields), format!("{path} has a `{name}` too"));
                }
            }
            for (name, field) in fields {
                let path = format!("{path}.{name}");
                let with = |changed: Vec<(String, Value)>| -> Value {
                    let others = fields.iter().filter(|(other, _)| *other != name);
                    let others = others.map(|(name, field)| (name.clone(), field.clone()));
                    Value::Object(others.chain(changed).collect::<Map<_, _>>())
                };
                visit(with(Vec::new()), format!("{path} is gone"));
                let misnamed = vec![(format!("{name}x"), field.clone())];
                visit(with(misnamed), format!("{path} is misnamed"));
                let doubled = vec![
                    (name.clone(), field.clone()),
                    ("surplus".to_owned(), field.clone()),
                ];
                visit(with(doubled), format!("{path} has a surplus brother"));
                damage(field, &path, &mut |field, what| {
                    visit(with(vec![(name.clone(), field)]), what);
                });
            }
        }
        _ => {}
    }
}

fn validator(name: Option<&str>) -> Validator {
    jsonschema::validator_for(&schema(name).unwrap()).unwrap()
}

#[test]
fn the_corpus_is_good_but_for_a_secret_and_holds_every_field() {
    let documents = corpus();
    let any = validator(None);
    let mut written = BTreeSet::new();
    for document in &documents {
        let kind = document["kind"].as_str().unwrap();
        for validator in [&any, &validator(Some(kind))] {
            let errors: Vec<String> = validator
                .iter_errors(document)
                .map(|error| format!("{} at {}", error, error.instance_path()))
                .collect();
            assert_eq!(errors, Vec::<String>::new(), "{document}");
        }
        names(document, &mut written);
    }
    // The short form has fields of its own.
    let short = json!({
        "apiVersion": "goondan.ai/v1", "connectors": {}, "oauthApps": {},
        "models": {"m": {"apiKey": {"secret": "keys/m"}}}, "connections": {"c": {"connector": "cron"}},
    });
    assert!(any.is_valid(&short));
    names(&short, &mut written);
    let codes: BTreeSet<String> = project(&documents)
        .problems()
        .iter()
        .map(|problem| problem.split(' ').next().unwrap().to_owned())
        .collect();
    // The secret it names is not there, so that what its connector would make of the settings is left open.
    let expected = ["E_CONFIG_MISSING_SECRET"];
    assert_eq!(codes, BTreeSet::from(expected.map(str::to_owned)));

    let mut known = BTreeSet::new();
    properties(&schema_without_connectors(), &mut known);
    known.extend(["script".to_owned(), "rules".to_owned()]);
    let forgotten: Vec<_> = known.difference(&written).collect();
    assert_eq!(forgotten, Vec::<&String>::new(), "not in the corpus");
}

/// The name of every field in a document.
fn names(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                into.insert(name.clone());
                names(field, into);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| names(item, into)),
        _ => {}
    }
}

/// The name of every property in a schema.
fn properties(schema: &Value, into: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            for (name, field) in fields {
                if name == "properties" {
                    let of = field.as_object().unwrap();
                    into.extend(of.keys().cloned());
                    of.values().for_each(|field| properties(field, into));
                } else {
                    properties(field, into);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| properties(item, into)),
        _ => {}
    }
}

/// Problems of a single document, without their locations. An agent that is a program is a complete
/// project.
fn problems_of(project: Project, document: &Value) -> (Project, BTreeSet<String>) {
    let project = project.file("goondan.yaml", document.to_string());
    let refused = project.try_load().err();
    let found = refused.iter().flat_map(problem_lines);
    let found = found.map(|problem| {
        let mut words = problem.splitn(3, ' ');
        let (code, _place) = (words.next().unwrap(), words.next().unwrap());
        format!("{code} {}", words.next().unwrap())
    });
    let found = found.collect();
    (project, found)
}

/// Damages a document in every place, and returns the number of ways.
fn agree_on_damage(document: &Value, any: &Validator) -> usize {
    let mut damaged = 0;
    let kind = document["kind"].as_str().unwrap();
    let of_kind = validator(Some(kind));
    // A single document has unresolved references. Its directory serves for all damages, because creating files takes
    // longer than loading them.
    let (site, before) = problems_of(project(&[]), document);
    let mut site = Some(site);
    let mut wrong = Vec::new();
    damage(document, kind, &mut |document, what| {
        // A document without content is none.
        if document.is_null() {
            return;
        }
        damaged += 1;
        let fits = any.is_valid(&document);
        if document["kind"] == kind {
            assert_eq!(of_kind.is_valid(&document), fits, "{what}");
        }
        let (used, mut problems) = problems_of(site.take().unwrap(), &document);
        site = Some(used);
        problems.retain(|problem| !before.contains(problem));
        let is_shape = |problem: &String| {
            let code = problem.split(' ').next().unwrap();
            SHAPE_CODES.contains(&code)
        };
        if !fits && problems.is_empty() {
            wrong.push(format!("{what}: only the schema refuses it"));
        }
        if fits && problems.iter().any(is_shape) {
            wrong.push(format!("{what}: only the loader refuses it: {problems:?}"));
        }
    });
    assert!(wrong.is_empty(), "{kind}:\n{}", wrong.join("\n"));
    damaged
}

#[test]
fn schema_and_loader_agree_on_every_damage() {
    let any = validator(None);
    let documents = corpus();
    let damaged: usize = documents
        .iter()
        .map(|document| agree_on_damage(document, &any))
        .sum();
    assert!(damaged > 1_000, "only {damaged} ways to damage the corpus");
}

#[test]
fn there_is_a_schema_of_each_name_and_of_no_other() {
    for name in schema_names() {
        let schema = schema(Some(name)).unwrap();
        assert_eq!(schema["title"], format!("goondan {name}"));
        jsonschema::validator_for(&schema).unwrap();
    }
    assert_eq!(schema(Some("Secret")), None);
    let script = validator(Some("Script"));
    assert!(script.is_valid(&json!({"rules": [{"say": "a"}]})));
    assert!(!script.is_valid(&json!({"rules": [{"say": "a", "fail": "b"}]})));
}
