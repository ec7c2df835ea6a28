//! Input for a program: its prompt, the requests of `acp`, and answers. Pure.

use std::collections::BTreeMap;

use goondan_cli_agents::reply::{
    self, ACP_INITIALIZE, ACP_MODE, ACP_MODEL, ACP_PROBE, ACP_SESSION, PermissionDecision,
};
use goondan_cli_agents::tools::ToolServer;
use goondan_cli_agents::{CliEvent, PermissionRequest};
use goondan_protocol::task::{AgentFormat, PromptChannel, TaskAssignment, TaskPermission};

use super::launch::is_resumed;

/// The first request of `acp`.
pub(super) const INITIALIZE: &str = "initialize";

/// Maximum pending permission requests; further ones are refused.
const PERMISSIONS_MAX: usize = 64;

/// Consecutive probes without a replayed message after which the replay of a loaded session counts
/// as complete.
const QUIET_PROBES: u32 = 2;

/// Maximum probes: an agent that never becomes quiet gets its prompt anyway.
const PROBES_MAX: i64 = 100_000;

/// Action on the program's standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StdinAction {
    Write(String),
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DialogueStage {
    /// Of `acp`: the connection is being opened.
    Opening,
    /// `acp`: the session is being created or loaded.
    InSession,
    /// `acp`: the loaded session may still be replaying.
    PlayedBack {
        /// Probe that awaits its answer.
        probe: i64,
        /// Messages replayed when it was sent.
        messages: u64,
        /// Earlier consecutive probes without new messages.
        quiet: u32,
    },
    /// `acp`: the session is being set to its mode.
    InMode,
    /// `acp`: the session is being set to its model.
    WithModel,
    /// The prompt is sent; answers may follow.
    Prompted,
    Ended,
}

/// The dialogue with the program of one run.
#[derive(Debug)]
pub(super) struct Dialogue {
    format: AgentFormat,
    prompt_by: PromptChannel,
    prompt: String,
    work_area: String,
    /// Session to resume, or the created one.
    session: Option<String>,
    is_resumed: bool,
    mode: Option<String>,
    model: Option<String>,
    stage: DialogueStage,
    permissions: BTreeMap<String, PermissionRequest>,
    /// The server of goondan's tools, if the program is given it by its session.
    server: Option<ToolServer>,
}

fn line(text: String) -> StdinAction {
    StdinAction::Write(text + "\n")
}

impl Dialogue {
    pub(super) fn of(assignment: &TaskAssignment, server: Option<ToolServer>) -> Self {
        let session = assignment.session.clone();
        Self {
            format: assignment.agent.format,
            prompt_by: assignment.agent.prompt,
            prompt: assignment.prompt.clone(),
            work_area: assignment
                .copy_of_project()
                .unwrap_or_else(|| assignment.work_area.clone())
                .to_string_lossy()
                .into_owned(),
            session: session.filter(|_| is_resumed(assignment)),
            is_resumed: is_resumed(assignment),
            mode: assignment.agent.session_mode.clone(),
            model: assignment.agent.session_model.clone(),
            stage: DialogueStage::Opening,
            permissions: BTreeMap::new(),
            server,
        }
    }

    /// Returns the program's first input.
    pub(super) fn begin(&mut self) -> Vec<StdinAction> {
        match (self.format, self.prompt_by) {
            (AgentFormat::Acp, _) => vec![line(reply::acp_initialize())],
            (AgentFormat::ClaudeStreamJson, PromptChannel::Stdin) => {
                self.stage = DialogueStage::Prompted;
                vec![line(reply::claude_prompt(&self.prompt))]
            }
            (_, PromptChannel::Argument) => self.end(),
            (_, PromptChannel::Stdin) => {
                let mut prompt = self.prompt.clone();
                if !prompt.ends_with('\n') {
                    prompt.push('\n');
                }
                let mut steps = vec![StdinAction::Write(prompt)];
                steps.extend(self.end());
                steps
            }
        }
    }

    /// Handles an event of the program.
    pub(super) fn hear(&mut self, event: &CliEvent) -> Vec<StdinAction> {
        match event {
            CliEvent::Session { id, .. } | CliEvent::PassingSession { id } => {
                self.session = Some(id.clone());
                Vec::new()
            }
            CliEvent::Permission(request) if self.permissions.len() >= PERMISSIONS_MAX => {
                let words = format!("{PERMISSIONS_MAX} other requests wait for an answer");
                self.answer(request, &PermissionDecision::Refuse(words))
            }
            CliEvent::Permission(request) => {
                self.permissions.insert(request.id.clone(), request.clone());
                Vec::new()
            }
            CliEvent::PermissionWithdrawn { id } => {
                self.permissions.remove(id);
                Vec::new()
            }
            CliEvent::Unsupported { reply, .. } if self.stage != DialogueStage::Ended => {
                vec![line(reply.clone())]
            }
            // A program that reads messages until the end of its input does not exit before.
            CliEvent::Result(_) | CliEvent::SessionRefused(_) => self.end(),
            _ => Vec::new(),
        }
    }

    /// True if the program has nothing to do after its turn. Others may work on in the background and report a
    /// second result.
    pub(super) fn ends_with_turn(&self) -> bool {
        self.format == AgentFormat::Acp
    }

    /// Returns true once the program has its prompt.
    pub(super) fn is_prompted(&self) -> bool {
        matches!(self.stage, DialogueStage::Prompted | DialogueStage::Ended)
    }

    /// Handles the answer to an `acp` request, given the number of replayed messages.
    pub(super) fn answered(&mut self, request: Option<i64>, played_back: u64) -> Vec<StdinAction> {
        match (self.stage, request) {
            (DialogueStage::Opening, Some(ACP_INITIALIZE)) => {
                self.stage = DialogueStage::InSession;
                let session = self.session.as_deref();
                let server = self.server.as_ref();
                vec![line(reply::acp_session(&self.work_area, session, server))]
            }
            (DialogueStage::InSession, Some(ACP_SESSION)) if self.is_resumed => {
                self.probe(ACP_PROBE, played_back, 0)
            }
            (DialogueStage::InSession, Some(ACP_SESSION))
            | (DialogueStage::InMode, Some(ACP_MODE))
            | (DialogueStage::WithModel, Some(ACP_MODEL)) => self.hand_over(),
            (
                DialogueStage::PlayedBack {
                    probe,
                    messages,
                    quiet,
                },
                Some(answered),
            ) if answered == probe => {
                let quiet = if played_back == messages {
                    quiet + 1
                } else {
                    0
                };
                if quiet >= QUIET_PROBES || probe - ACP_PROBE >= PROBES_MAX {
                    self.hand_over()
                } else {
                    self.probe(probe + 1, played_back, quiet)
                }
            }
            _ => Vec::new(),
        }
    }

    /// The request whose answer the prompt waits for, other than a probe.
    pub(super) fn awaited(&self) -> Option<&'static str> {
        match self.stage {
            DialogueStage::Opening if self.format == AgentFormat::Acp => Some(INITIALIZE),
            DialogueStage::InSession if self.is_resumed => Some("session/load"),
            DialogueStage::InSession => Some("session/new"),
            DialogueStage::InMode => Some("session/set_mode"),
            DialogueStage::WithModel => Some("session/set_model"),
            DialogueStage::Opening
            | DialogueStage::PlayedBack { .. }
            | DialogueStage::Prompted
            | DialogueStage::Ended => None,
        }
    }

    /// Returns true while an answer to a probe is awaited.
    pub(super) fn awaits_probe(&self) -> bool {
        matches!(self.stage, DialogueStage::PlayedBack { .. })
    }

    /// Handles a probe that was not answered in time: the agent ignores requests that it does not know.
    pub(super) fn probe_unanswered(&mut self) -> Vec<StdinAction> {
        match self.stage {
            DialogueStage::PlayedBack { .. } => self.hand_over(),
            _ => Vec::new(),
        }
    }

    fn probe(&mut self, probe: i64, messages: u64, quiet: u32) -> Vec<StdinAction> {
        self.stage = DialogueStage::PlayedBack {
            probe,
            messages,
            quiet,
        };
        vec![line(reply::acp_probe(probe))]
    }

    /// Sets the mode and the model of the session, one by one, then sends the prompt.
    fn hand_over(&mut self) -> Vec<StdinAction> {
        match &self.session {
            Some(session) => {
                if let Some(mode) = self.mode.take() {
                    self.stage = DialogueStage::InMode;
                    return vec![line(reply::acp_mode(session, &mode))];
                }
                if let Some(model) = self.model.take() {
                    self.stage = DialogueStage::WithModel;
                    return vec![line(reply::acp_model(session, &model))];
                }
                self.stage = DialogueStage::Prompted;
                vec![line(reply::acp_prompt(session, &self.prompt))]
            }
            // The answer contains no session, so no prompt can be sent.
            None => self.end(),
        }
    }

    /// Returns the input after a permission was decided. Empty if the program does not wait for it.
    pub(super) fn permission(&mut self, decided: TaskPermission) -> Vec<StdinAction> {
        let Some(request) = self.permissions.remove(&decided.request) else {
            return Vec::new();
        };
        let decision = match decided.refusal {
            Some(why) => PermissionDecision::Refuse(why),
            None if decided.is_for_task => PermissionDecision::AllowForTask,
            None if decided.answers.is_empty() => PermissionDecision::Allow,
            None => PermissionDecision::Answers(decided.answers),
        };
        self.answer(&request, &decision)
    }

    /// Allows a call of goondan's own tool. No person needs to decide it.
    pub(super) fn allow_own(&self, request: &PermissionRequest) -> Vec<StdinAction> {
        self.answer(request, &PermissionDecision::Allow)
    }

    fn answer(
        &self,
        request: &PermissionRequest,
        decision: &PermissionDecision,
    ) -> Vec<StdinAction> {
        let is_open = self.stage != DialogueStage::Ended;
        let answer = reply::permission(self.format, request, decision).filter(|_| is_open);
        answer.into_iter().map(line).collect()
    }

    fn end(&mut self) -> Vec<StdinAction> {
        if self.stage == DialogueStage::Ended {
            return Vec::new();
        }
        self.stage = DialogueStage::Ended;
        vec![StdinAction::End]
    }
}

#[cfg(test)]
mod tests {
    use goondan_cli_agents::RunResult;
    use serde_json::Value;

    use super::super::launch::tests::assignment;
    use super::*;

    fn json(steps: &[StdinAction]) -> Value {
        let [StdinAction::Write(line)] = steps else {
            panic!("{steps:?}");
        };
        serde_json::from_str(line.strip_suffix('\n').unwrap()).unwrap()
    }

    fn result() -> CliEvent {
        CliEvent::Result(RunResult {
            is_ok: true,
            text: String::new(),
            denied: Vec::new(),
        })
    }

    fn asked(id: &str) -> CliEvent {
        CliEvent::Permission(PermissionRequest {
            id: id.to_owned(),
            tool: "Bash".to_owned(),
            input: Value::Null,
            options: Vec::new(),
            ..PermissionRequest::default()
        })
    }

    fn decided(id: &str, refusal: Option<&str>) -> TaskPermission {
        TaskPermission {
            request: id.to_owned(),
            refusal: refusal.map(str::to_owned),
            is_for_task: false,
            answers: Vec::new(),
        }
    }

    #[test]
    fn task_8_a_prompt_is_read_to_its_end_unless_it_is_an_argument() {
        let mut plain = Dialogue::of(&assignment(AgentFormat::Plain, PromptChannel::Stdin), None);
        let prompt = StdinAction::Write("Do {session} it\n".to_owned());
        assert_eq!(plain.begin(), [prompt, StdinAction::End]);
        assert_eq!(plain.hear(&result()), [], "it was ended already");
        let mut codex = Dialogue::of(
            &assignment(AgentFormat::CodexJson, PromptChannel::Argument),
            None,
        );
        assert_eq!(codex.begin(), [StdinAction::End]);
    }

    #[test]
    fn task_8_the_messages_of_claude_end_with_the_result() {
        let mut claude = Dialogue::of(
            &assignment(AgentFormat::ClaudeStreamJson, PromptChannel::Stdin),
            None,
        );
        let prompt = json(&claude.begin());
        assert_eq!(prompt["message"]["content"][0]["text"], "Do {session} it");
        assert_eq!(claude.hear(&asked("p1")), []);
        let answer = json(&claude.permission(decided("p1", None)));
        assert_eq!(answer["response"]["response"]["behavior"], "allow");
        assert_eq!(claude.permission(decided("p1", None)), [], "once");
        claude.hear(&asked("p2"));
        claude.hear(&CliEvent::PermissionWithdrawn {
            id: "p2".to_owned(),
        });
        assert_eq!(claude.permission(decided("p2", Some("no"))), []);
        claude.hear(&asked("p3"));
        assert_eq!(claude.hear(&result()), [StdinAction::End]);
        assert_eq!(claude.permission(decided("p3", None)), [], "it is over");
    }

    #[test]
    fn requests_for_permissions_are_held_up_to_a_bound() {
        let mut claude = Dialogue::of(
            &assignment(AgentFormat::ClaudeStreamJson, PromptChannel::Stdin),
            None,
        );
        claude.begin();
        for number in 0..PERMISSIONS_MAX {
            assert_eq!(claude.hear(&asked(&number.to_string())), []);
        }
        let refused = json(&claude.hear(&asked("more")));
        assert_eq!(refused["response"]["response"]["behavior"], "deny");
    }

    #[test]
    fn acp_is_opened_given_a_session_and_then_the_prompt() {
        let mut acp = Dialogue::of(&assignment(AgentFormat::Acp, PromptChannel::Stdin), None);
        assert_eq!(json(&acp.begin())["method"], "initialize");
        assert_eq!(acp.awaited(), Some("initialize"));
        assert_eq!(acp.answered(None, 0), []);
        assert_eq!(acp.answered(Some(ACP_SESSION), 0), [], "that was not asked");
        assert_eq!(
            json(&acp.answered(Some(ACP_INITIALIZE), 0))["method"],
            "session/new"
        );
        assert_eq!(acp.answered(Some(ACP_INITIALIZE), 0), [], "once");
        assert_eq!(acp.awaited(), Some("session/new"));
        let server = ToolServer {
            program: "/agent".to_owned(),
            arguments: Vec::new(),
        };
        let of_acp = assignment(AgentFormat::Acp, PromptChannel::Stdin);
        let mut given = Dialogue::of(&of_acp, Some(server));
        given.begin();
        let made = json(&given.answered(Some(ACP_INITIALIZE), 0));
        assert_eq!(made["params"]["mcpServers"][0]["command"], "/agent");
        acp.hear(&CliEvent::Session {
            id: "s1".to_owned(),
            model: None,
        });
        let prompt = json(&acp.answered(Some(ACP_SESSION), 0));
        assert_eq!(prompt["params"]["sessionId"], "s1");
        assert_eq!(acp.awaited(), None);
        let reply = CliEvent::Unsupported {
            method: "fs/read_text_file".to_owned(),
            reply: "{}".to_owned(),
        };
        assert_eq!(acp.hear(&reply), [StdinAction::Write("{}\n".to_owned())]);
        assert_eq!(acp.hear(&result()), [StdinAction::End]);
        assert_eq!(acp.hear(&reply), []);
    }

    #[test]
    fn acp_that_has_forgotten_its_session_is_asked_nothing_more() {
        let mut it = assignment(AgentFormat::Acp, PromptChannel::Stdin);
        it.session = Some("old".to_owned());
        let mut acp = Dialogue::of(&it, None);
        acp.begin();
        acp.answered(Some(ACP_INITIALIZE), 0);
        let refused = CliEvent::SessionRefused("not found".to_owned());
        assert_eq!(acp.hear(&refused), [StdinAction::End]);
        assert_eq!(acp.answered(Some(ACP_INITIALIZE), 0), []);
    }

    #[test]
    fn acp_session_is_loaded_and_prompted_after_its_replay() {
        let mut it = assignment(AgentFormat::Acp, PromptChannel::Stdin);
        it.session = Some("old".to_owned());
        let mut acp = Dialogue::of(&it, None);
        acp.begin();
        let loaded = json(&acp.answered(Some(ACP_INITIALIZE), 0));
        assert_eq!(loaded["method"], "session/load");
        assert_eq!(acp.awaited(), Some("session/load"));
        // The agent answers first and replays then: the prompt waits until two probes find nothing
        // new.
        let mut probe = json(&acp.answered(Some(ACP_SESSION), 1));
        for played_back in [4, 9, 9] {
            assert!(!acp.is_prompted());
            let answered = probe["id"].as_i64();
            assert_eq!(acp.answered(answered.map(|id| id - 1), played_back), []);
            probe = json(&acp.answered(answered, played_back));
            assert_eq!(probe["method"], "_goondan/probe");
        }
        let prompt = json(&acp.answered(probe["id"].as_i64(), 9));
        assert_eq!(prompt["method"], "session/prompt");
        assert_eq!(prompt["params"]["sessionId"], "old");
        assert!(acp.is_prompted());
    }
}
