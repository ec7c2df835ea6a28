//! Sends an event to an agent and waits for its reply; shared by `send`, `chat` and `demo`.

use clap::Args;
use goondan_protocol::control::{SendEvent, SendResult, WorkspaceInfo};
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::{AgentName, EventId, InstanceKey, WorkspaceId};
use goondan_protocol::images::Image;
use goondan_protocol::limits::MAX_INPUT_BYTES;

use crate::client::{CallError, Client, Notice, RequestTimeout};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::progress::TurnView;
use crate::output::text::shell_quoted;

/// Recipient of a message.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RecipientArgs {
    /// The agent [default: the swarm's entry agent]
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<AgentName>,
    /// The conversation [default: the swarm's `instanceKey`, or `main`]
    #[arg(long = "conversation", alias = "instance", value_name = "KEY")]
    pub(crate) instance: Option<InstanceKey>,
}

/// An event for an agent. The client generates its event id, so that after a crash the same event can be sent again
/// and is still answered once (`MSG-13`).
#[derive(Debug, Clone)]
pub(crate) struct AgentInput {
    workspace_id: WorkspaceId,
    agent: Option<AgentName>,
    instance: InstanceKey,
    /// Conversation to use if none is named.
    usual: InstanceKey,
    text: String,
    /// Images as named on the command line, and their contents.
    named_images: Vec<String>,
    images: Vec<Image>,
    event_id: EventId,
}

impl AgentInput {
    /// Creates an event for the conversation `instance`, or for the workspace's default one, with the event id
    /// `event_id` or a new one.
    pub(crate) fn new(
        workspace: &WorkspaceInfo,
        agent: Option<AgentName>,
        instance: Option<InstanceKey>,
        text: String,
        event_id: Option<EventId>,
    ) -> Result<Self, Failure> {
        let problem = if text.trim().is_empty() {
            "the message is empty".to_owned()
        } else if text.len() > MAX_INPUT_BYTES {
            format!(
                "the message is {} bytes long; at most {MAX_INPUT_BYTES} are allowed",
                text.len()
            )
        } else {
            return Ok(Self {
                workspace_id: workspace.workspace_id.clone(),
                agent,
                instance: workspace.conversation(instance),
                usual: workspace.conversation(None),
                text,
                named_images: Vec::new(),
                images: Vec::new(),
                event_id: event_id.unwrap_or_else(|| uuid::Uuid::now_v7().into()),
            });
        };
        Err(Failure::new(
            Exit::Usage,
            problem,
            "pass a message, such as `gdn send \"Hello\"`",
        ))
    }

    /// Adds images. `named_images` are their names on the command line.
    pub(crate) fn with_images(self, named_images: Vec<String>, images: Vec<Image>) -> Self {
        Self {
            named_images,
            images,
            ..self
        }
    }

    fn request(&self, wait: bool) -> SendEvent {
        SendEvent {
            workspace_id: self.workspace_id.clone(),
            agent: self.agent.clone(),
            conversation_key: self.instance.clone(),
            input: self.text.clone(),
            images: self.images.clone(),
            event_id: Some(self.event_id.clone()),
            traceparent: None,
            wait,
        }
    }

    /// Sends the event and returns once it is accepted.
    pub(crate) async fn hand_in(&self, client: &mut Client) -> Result<SendResult, CallError> {
        client.query(self.request(false)).await
    }

    /// Sends the event, shows progress, and waits for the reply.
    pub(crate) async fn ask(
        &self,
        client: &mut Client,
        view: &TurnView,
    ) -> Result<SendResult, CallError> {
        client
            .watch(
                self.request(true),
                RequestTimeout::Endless,
                &mut |notice| match notice {
                    Notice::Progress(event) => view.show(&event),
                    Notice::Piece(piece) => view.piece(&piece),
                    Notice::Line(_) | Notice::Change(_) | Notice::Processes(_) => {}
                },
            )
            .await
    }

    pub(crate) fn event_id(&self) -> &EventId {
        &self.event_id
    }

    /// Command that gets the reply to this event.
    pub(crate) fn again(&self, context: &Context) -> String {
        let mut command = format!("send --event-id {}", self.event_id);
        if let Some(agent) = &self.agent {
            command.push_str(&format!(" --agent {agent}"));
        }
        if self.instance != self.usual {
            let key = shell_quoted(self.instance.as_str());
            command.push_str(&format!(
                " --conversation {}",
                key.as_deref().unwrap_or("KEY")
            ));
        }
        for name in &self.named_images {
            let name = shell_quoted(name);
            command.push_str(&format!(" --image {}", name.as_deref().unwrap_or("FILE")));
        }
        let text = shell_quoted(&self.text);
        command.push(' ');
        command.push_str(text.as_deref().unwrap_or("\"the same message\""));
        context.command(&command)
    }

    /// Failure when the client stops waiting for the reply.
    pub(crate) fn left(&self, exit: Exit, message: &str, context: &Context) -> Failure {
        Failure::new(
            exit,
            message,
            format!(
                "accepted events are answered exactly once; get the answer: `{}`",
                self.again(context)
            ),
        )
    }

    /// Failure when the connection is lost during the request.
    pub(crate) fn lost(&self, error: &CallError, context: &Context) -> Failure {
        use std::error::Error as _;
        Failure::new(
            Exit::ConnectionLost,
            "the connection to the daemon was lost before the answer arrived",
            match context.remote() {
                Some(_) => format!(
                    "accepted events are answered exactly once; resend under the same id: `{}`",
                    self.again(context)
                ),
                None => format!(
                    "accepted events are answered exactly once; start the daemon and resend under the same id: `{} && {}`",
                    context.command("run"),
                    self.again(context)
                ),
            },
        )
        .caused_by(error.source())
    }

    /// Converts `error` to a failure of this event.
    pub(crate) fn failed(&self, error: CallError, context: &Context) -> Failure {
        match error {
            CallError::Lost { .. } => self.lost(&error, context),
            _ => error.into(),
        }
    }
}

/// Ends the view of a turn. True if the whole reply has been streamed to the terminal.
pub(crate) fn is_shown(view: &TurnView, sent: &SendResult) -> bool {
    match &sent.outcome {
        Some(TurnOutcome::Completed { reply }) => view.end(reply),
        Some(TurnOutcome::Failed { .. }) | None => view.end(""),
    }
}

/// Returns the reply, or the failure of the turn.
pub(crate) fn reply_of<'a>(sent: &'a SendResult, context: &Context) -> Result<&'a str, Failure> {
    match &sent.outcome {
        Some(TurnOutcome::Completed { reply }) => Ok(reply),
        Some(TurnOutcome::Failed { code, message }) => Err(Failure::new(
            Exit::TurnFailed,
            format!("the turn failed ({code}): {message}"),
            format!(
                "for details: `{}`",
                context.command(&format!("logs --trace {}", sent.trace_id))
            ),
        )),
        None => Err(Failure::new(
            Exit::Internal,
            "the daemon answered without the outcome of the turn",
            "this is a bug in goondan; for details: `gdn logs --all`",
        )),
    }
}
