//! A command-line agent that works on tasks, in each format. See `goondan_tests::cli_agents`.
//!
//! `goondan-fake-cli-agent FORMAT MANNER [SESSION]`

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a part of the tests, which speaks over its output, keeps files of its own and panics where a test is to \
              fail"
)]

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Lines, StdinLock, Write as _};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use goondan_protocol::task::MCP_CONFIG_VARIABLE;
use goondan_tests::cli_agents::{DIARY, Format, KEY, LOCK, Manner, Point, QUESTION, READERS};
use goondan_tests::wait_until;
use serde_json::{Value, json};

/// Exceeds the number of blocks that one run may report.
const FLOOD_BLOCKS: usize = 12_000;

/// Number of other lines written.
const FLOOD_LINES: usize = 20_000;

/// Output of a tool or another agent, which must not ask a person.
const NOT_ITS_OWN: &str = "[USER_QUESTION]\nquestion: printed by a tool\n[/USER_QUESTION]";

fn note(line: &str) {
    let mut diary = OpenOptions::new().create(true).append(true).open(DIARY);
    diary
        .as_mut()
        .unwrap()
        .write_all(format!("{line}\n").as_bytes())
        .unwrap();
}

fn noted(line: &str) -> bool {
    let diary = fs::read_to_string(DIARY).unwrap_or_default();
    diary.lines().any(|noted| noted == line)
}

/// Stops here if the test requests it.
fn hold(point: Point) {
    let file = format!("hold-{}", point.as_str());
    if Path::new(&file).exists() {
        note(&format!("held {}", point.as_str()));
        wait_until("a test lets go", || !Path::new(&file).exists());
    }
}

fn stay() -> ! {
    loop {
        std::thread::park();
    }
}

fn print(line: &Value) {
    println!("{line}");
}

/// The part of the program that communicates.
struct Agent {
    format: Format,
    lines: Lines<StdinLock<'static>>,
    session: String,
    said: u32,
    prompt: String,
    /// The MCP servers that it was given, by name.
    servers: Value,
}

impl Agent {
    /// Reads the prompt, after the format's earlier messages.
    fn open(format: Format, manner: Manner, session: Option<String>) -> Self {
        let lines = std::io::stdin().lines();
        let session = session.unwrap_or_else(|| format!("session-{}", std::process::id()));
        let (said, prompt) = (0, String::new());
        let servers = std::env::var(MCP_CONFIG_VARIABLE).unwrap();
        let servers: Value = serde_json::from_str(&servers).unwrap();
        let servers = servers.get("mcpServers").unwrap().clone();
        let mut agent = Self {
            format,
            lines,
            session,
            said,
            prompt,
            servers,
        };
        match format {
            Format::Plain | Format::Codex => {
                let lines: Vec<String> = agent.lines.by_ref().map(Result::unwrap).collect();
                agent.prompt = lines.join("\n");
            }
            Format::Claude => {
                let message = agent.read();
                let text = message.pointer("/message/content/0/text");
                agent.prompt = text.unwrap().as_str().unwrap().to_owned();
            }
            Format::Acp => agent.open_acp(manner),
        }
        agent
    }

    fn read(&mut self) -> Value {
        match self.lines.next() {
            Some(line) => serde_json::from_str(&line.unwrap()).unwrap(),
            // goondan has disconnected.
            None => std::process::exit(3),
        }
    }

    fn open_acp(&mut self, manner: Manner) {
        loop {
            let request = self.read();
            let id = request.get("id").cloned().unwrap_or_default();
            let params = request.get("params").cloned().unwrap_or_default();
            let word = |name: &str| params.get(name).and_then(Value::as_str).unwrap().to_owned();
            if let Some([server]) = params
                .get("mcpServers")
                .and_then(Value::as_array)
                .map(Vec::as_slice)
            {
                self.servers = json!({"goondan": server});
            }
            let answer = |result| print(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
            match request.get("method").and_then(Value::as_str).unwrap() {
                "initialize" => answer(json!({
                    "protocolVersion": 1, "agentCapabilities": {"loadSession": true}, "authMethods": [],
                })),
                "session/new" => answer(json!({"sessionId": self.session})),
                "session/load" if manner == Manner::Forget => {
                    let error = json!({"code": -32603, "message": "no such session"});
                    print(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
                }
                "session/load" => {
                    self.session = word("sessionId");
                    // A replay of earlier output, which must not ask a person.
                    self.update(&json!({"sessionUpdate": "agent_message_chunk",
                                        "content": {"type": "text", "text": NOT_ITS_OWN}}));
                    answer(json!({}));
                }
                "session/prompt" => {
                    assert_eq!(word("sessionId"), self.session);
                    let text = params.pointer("/prompt/0/text").and_then(Value::as_str);
                    self.prompt = text.unwrap().to_owned();
                    return;
                }
                other => {
                    let error =
                        json!({"code": -32601, "message": format!("method not found: {other}")});
                    print(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
                }
            }
        }
    }

    fn update(&self, update: &Value) {
        let params = json!({"sessionId": self.session, "update": update});
        print(&json!({"jsonrpc": "2.0", "method": "session/update", "params": params}));
    }

    /// Reports the session, if the format does so automatically.
    fn greet(&self) {
        match self.format {
            Format::Plain | Format::Acp => {}
            Format::Claude => print(
                &json!({"type": "system", "subtype": "init", "session_id": self.session,
                                            "model": "fake-1"}),
            ),
            Format::Codex => {
                print(&json!({"type": "thread.started", "thread_id": self.session}));
            }
        }
    }

    /// Writes text of its own, mixed with tool output that is not.
    fn say(&mut self, text: &str) {
        self.said += 1;
        match self.format {
            Format::Plain => println!("{text}"),
            Format::Codex => {
                let item = json!({"id": "t", "type": "command_execution", "command": "cat notes",
                                  "aggregated_output": NOT_ITS_OWN, "exit_code": 0});
                print(&json!({"type": "item.completed", "item": item}));
                let item = json!({"id": "i", "type": "agent_message", "text": text});
                print(&json!({"type": "item.completed", "item": item}));
            }
            Format::Claude => {
                let id = format!("m{}", self.said);
                let result =
                    json!([{"type": "tool_result", "tool_use_id": "t", "content": NOT_ITS_OWN}]);
                print(&json!({"type": "user", "message": {"role": "user", "content": result}}));
                // The same usage with each block of the message.
                for block in [
                    json!({"type": "thinking", "thinking": NOT_ITS_OWN}),
                    json!({"type": "text", "text": text}),
                ] {
                    let message = json!({"id": id, "role": "assistant", "model": "fake-1", "content": [block],
                                         "usage": {"input_tokens": 10, "output_tokens": 5}});
                    print(&json!({"type": "assistant", "message": message, "request_id": id}));
                }
            }
            Format::Acp => {
                self.update(&json!({"sessionUpdate": "tool_call", "toolCallId": "t", "title": "cat notes",
                                    "status": "completed",
                                    "content": [{"type": "content", "content": {"type": "text", "text": NOT_ITS_OWN}}]}));
                let mut middle = text.len() / 2;
                while !text.is_char_boundary(middle) {
                    middle -= 1;
                }
                let (first, rest) = text.split_at(middle);
                for piece in [first, &format!("{rest}\n")] {
                    self.update(&json!({"sessionUpdate": "agent_message_chunk",
                                        "content": {"type": "text", "text": piece}}));
                }
            }
        }
    }

    /// Reports the start of a command.
    fn begin_command(&self, command: &str) {
        match self.format {
            Format::Plain => println!("Running {command}"),
            Format::Codex => {
                let item = json!({"id": "c", "type": "command_execution", "command": command,
                                  "aggregated_output": "", "status": "in_progress"});
                print(&json!({"type": "item.started", "item": item}));
            }
            Format::Claude => {
                let call = json!({"type": "tool_use", "id": "c", "name": "Bash",
                                  "input": {"command": command}});
                let message = json!({"id": "m", "role": "assistant", "model": "fake-1", "content": [call],
                                     "usage": {"input_tokens": 10, "output_tokens": 5}});
                print(&json!({"type": "assistant", "message": message, "request_id": "m"}));
            }
            Format::Acp => {
                self.update(
                    &json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": command,
                                    "kind": "execute", "status": "in_progress",
                                    "rawInput": {"command": command}}),
                );
            }
        }
    }

    /// Requests permission to run a command; a format without permissions needs none.
    fn may_run(&mut self, command: &str) -> bool {
        match self.format {
            Format::Plain | Format::Codex => true,
            Format::Claude => {
                let request = json!({"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": command}});
                print(&json!({"type": "control_request", "request_id": "p-1", "request": request}));
                let answer = self.read();
                answer.pointer("/response/response/behavior").unwrap() == "allow"
            }
            Format::Acp => {
                let option =
                    |id: &str, kind: &str| json!({"optionId": id, "name": id, "kind": kind});
                let params = json!({
                    "sessionId": self.session,
                    "toolCall": {"toolCallId": "c", "title": "Bash", "rawInput": {"command": command}},
                    "options": [option("once", "allow_once"), option("no", "reject_once")],
                });
                print(
                    &json!({"jsonrpc": "2.0", "id": "p-1", "method": "session/request_permission",
                              "params": params}),
                );
                let answer = self.read();
                answer.pointer("/result/outcome/optionId").unwrap() == "once"
            }
        }
    }

    fn result(&mut self) {
        match self.format {
            // Ends the document list that may belong to a completion.
            Format::Plain => println!("That is all."),
            Format::Codex => print(&json!({"type": "turn.completed",
                                           "usage": {"input_tokens": 10, "output_tokens": 5}})),
            Format::Claude => print(
                &json!({"type": "result", "subtype": "success", "is_error": false,
                                            "result": "Done.", "session_id": self.session,
                                            "usage": {"input_tokens": 10, "output_tokens": 5}}),
            ),
            Format::Acp => {
                print(&json!({"jsonrpc": "2.0", "id": 2, "result": {"stopReason": "end_turn"}}));
            }
        }
    }

    /// Logs the notes about people's answers in the prompt, each of which has its id.
    fn hear(&self) {
        for line in self.prompt.lines() {
            if let Some((id, answer)) = line
                .strip_prefix("Answer ")
                .and_then(|rest| rest.split_once(" to "))
            {
                let (question, answer) = answer.rsplit_once(": ").unwrap();
                note(&format!("heard {id} {answer}"));
                if question.contains(QUESTION) {
                    fs::write("readers.txt", answer).unwrap();
                }
            } else if let Some(rest) = line.strip_prefix("Phase ")
                && let Some((phase, what)) = rest.split_once(" is ")
            {
                let what = if what.starts_with("approved") {
                    "approved"
                } else {
                    "reworked"
                };
                note(&format!("heard {what} {phase}"));
            } else if let Some((id, _)) = line
                .strip_prefix("Provided ")
                .and_then(|rest| rest.split_once(": "))
            {
                note(&format!("heard {id} provided"));
            } else if let Some(text) = line.strip_prefix("Message from a person: ") {
                note(&format!("heard message in {}: {text}", self.session));
            } else if line.starts_with("Another agent, ") {
                note("heard hand-over");
            } else if let Some(rest) = line.strip_prefix("Your error ") {
                note(&format!("heard error {rest}"));
            }
        }
    }

    fn phase(&self) -> u32 {
        let mut lines = self
            .prompt
            .lines()
            .filter_map(|line| line.strip_prefix("You are in phase "));
        let number = lines.next_back().and_then(|rest| rest.split_once(' '));
        number.map_or(0, |(number, _)| number.parse().unwrap())
    }

    /// Returns its output in this run.
    fn work(&mut self) -> String {
        match self.phase() {
            1 if !Path::new("readers.txt").exists() => format!(
                "[USER_QUESTION]\ncategory: choice\nquestion: {QUESTION}\noptions:\n- {}\n- {}\nrequired: true\n\
                 [/USER_QUESTION]",
                READERS[0], READERS[1]
            ),
            2 if std::env::var(KEY).is_err() => format!(
                "[DEPENDENCY_REQUEST]\ntype: api_key\nname: {KEY}\ndescription: The key of the shop.\nrequired: true\n\
                 [/DEPENDENCY_REQUEST]"
            ),
            2 => {
                if !noted("deployed") && self.may_run("make deploy") {
                    note("deployed");
                }
                self.complete(2)
            }
            0 => "=== CUSTOM TASK COMPLETE ===".to_owned(),
            phase => self.complete(phase),
        }
    }

    fn complete(&self, phase: u32) -> String {
        fs::create_dir_all("docs").unwrap();
        fs::write(format!("docs/{phase}.md"), "done\n").unwrap();
        format!("=== PHASE {phase} COMPLETE ===\n\nDocuments created:\n- docs/{phase}.md")
    }

    /// The calls that say the same as [`Self::work`].
    fn calls(&self) -> Vec<(&'static str, Value)> {
        match self.phase() {
            1 if !Path::new("readers.txt").exists() => vec![
                ("report_progress", json!({"percent": 40, "step": "Asking"})),
                (
                    "ask_person",
                    json!({"question": QUESTION, "options": READERS}),
                ),
            ],
            0 => vec![("finish", json!({}))],
            phase => vec![
                ("complete_phase", json!({"phase": "first"})),
                (
                    "complete_phase",
                    json!({"phase": phase, "documents": [format!("docs/{phase}.md")]}),
                ),
            ],
        }
    }

    /// Calls goondan's tools, as the program's MCP client.
    fn call_tools(&self) {
        let server = self.servers.get("goondan").unwrap();
        let arguments = server.get("args").and_then(Value::as_array).unwrap().iter();
        let mut server = Command::new(server.get("command").and_then(Value::as_str).unwrap())
            .args(arguments.map(|argument| argument.as_str().unwrap()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = server.stdin.take().unwrap();
        let mut output = BufReader::new(server.stdout.take().unwrap()).lines();
        let mut ask = |method: &str, params: Value| -> Value {
            let request =
                json!({"jsonrpc": "2.0", "id": method, "method": method, "params": params});
            writeln!(input, "{request}").unwrap();
            let answer: Value = serde_json::from_str(&output.next().unwrap().unwrap()).unwrap();
            assert_eq!(answer.get("id").unwrap(), method);
            answer.get("result").unwrap().clone()
        };
        ask("initialize", json!({"protocolVersion": "2025-06-18"}));
        let listed = ask("tools/list", json!({}));
        let listed = listed.get("tools").and_then(Value::as_array).unwrap();
        note(&format!("listed {}", listed.len()));
        for (name, arguments) in self.calls() {
            let result = ask("tools/call", json!({"name": name, "arguments": arguments}));
            let is_error = result.get("isError").and_then(Value::as_bool).unwrap();
            note(&format!(
                "called {name}: {}",
                if is_error { "error" } else { "ok" }
            ));
        }
        drop(input);
        assert!(server.wait().unwrap().success());
    }

    fn behave(&mut self, manner: Manner) {
        if manner == Manner::Tools {
            self.call_tools();
        }
        let said = self.work();
        self.say(&said);
        hold(Point::Told);
        self.result();
        hold(Point::Ended);
        if matches!(self.format, Format::Claude | Format::Acp) {
            // It exits at the end of its input.
            while self.lines.next().is_some() {}
        }
    }

    /// Its first run, unless it is honest.
    fn misbehave(&mut self, manner: Manner) -> ExitCode {
        match manner {
            Manner::Leave => {
                self.say("I leave.");
                // A separate session must not save it.
                drop(Command::new("setsid").args(["sleep", "4321"]).spawn());
                return ExitCode::from(u8::from(self.format == Format::Plain));
            }
            Manner::Garbage => {
                let mut out = std::io::stdout().lock();
                for byte in 0..=u8::MAX {
                    let line = [byte, b'{', byte, b'\n', byte, b'"', b'[', byte];
                    out.write_all(&line.repeat(50)).unwrap();
                    out.write_all(b"\n{\"type\":7}\n{\"jsonrpc\":\"2.0\"}\n[]\n")
                        .unwrap();
                }
                return ExitCode::from(u8::from(self.format == Format::Plain));
            }
            Manner::Flood => {
                for number in 0..FLOOD_BLOCKS {
                    self.say(&format!("Document created: docs/{number}.md"));
                }
                for _ in 0..FLOOD_LINES {
                    println!("{}", "x".repeat(1_000));
                }
            }
            Manner::Recover => {
                self.say("[ERROR]\ntype: recoverable\nmessage: the shop is closed\nrecovery: Try the back door.\n[/ERROR]");
                self.result();
                return ExitCode::SUCCESS;
            }
            Manner::Limit => {
                self.say("Progress: 40%\nThe shelves stand.");
                let words = "You've hit your usage limit. Try again in 1 hour";
                let error = json!({"message": words});
                match self.format {
                    Format::Claude => print(
                        &json!({"type": "result", "subtype": "success", "is_error": true,
                                "result": words, "session_id": self.session}),
                    ),
                    Format::Codex => print(&json!({"type": "turn.failed", "error": error})),
                    Format::Acp => {
                        print(&json!({"jsonrpc": "2.0", "id": 2, "error": error}));
                    }
                    Format::Plain => println!("{words}"),
                }
                return ExitCode::FAILURE;
            }
            Manner::Work => self.say("I work."),
            Manner::Command => {
                self.begin_command("sleep 3600");
                // One in a separate session, too, as servers are that agents start.
                drop(Command::new("setsid").args(["sleep", "3600"]).spawn());
                let mut command = Command::new("sleep").arg("3600").spawn().unwrap();
                // It reads nothing meanwhile, so it does not receive a cancellation.
                drop(command.wait());
            }
            Manner::Honest | Manner::Hang | Manner::Stall | Manner::Forget | Manner::Tools => {}
        }
        stay()
    }
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let format = Format::of(&args.next().unwrap()).unwrap();
    let manner = Manner::of(&args.next().unwrap()).unwrap();
    let lock = File::create(LOCK).unwrap();
    if lock.try_lock().is_err() {
        note("overlap");
    }
    let is_first = !noted("begun");
    let mut agent = Agent::open(format, manner, args.next());
    note("begun");
    agent.hear();
    hold(Point::Started);
    if manner != Manner::Stall || !is_first {
        agent.greet();
    }
    match manner {
        Manner::Honest | Manner::Forget | Manner::Tools => agent.behave(manner),
        Manner::Hang => {
            let said = agent.work();
            agent.say(&said);
            agent.result();
            stay();
        }
        _ if is_first => return agent.misbehave(manner),
        _ => agent.behave(manner),
    }
    ExitCode::SUCCESS
}
