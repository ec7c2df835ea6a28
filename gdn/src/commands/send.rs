//! `gdn send`.

use clap::Args;
use goondan_protocol::ids::EventId;
use std::io::Read as _;
use std::time::Duration;

use goondan_protocol::control::SendResult;
use goondan_protocol::limits::MAX_INPUT_BYTES;

use super::ask::{AgentInput, RecipientArgs, is_shown, reply_of};
use super::images;
use crate::client::Client;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::progress::{StreamMode, TurnView};
use crate::schemas;

/// Send a message to an agent and print its reply
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn send \"How many copies of Dune were sold?\"
  gdn send --agent clerk --conversation order-17 \"Where is it?\"
  git diff | gdn send -                  the message from stdin
  gdn send --no-wait \"Tidy up\"           print the event's id and return
  gdn send --event-id ID \"…\"             resend under the same id: no second turn, the same answer

An accepted message is answered even if gdn, the agent or the daemon is killed.")]
pub(crate) struct SendArgs {
    /// The message; `-` reads it from stdin
    #[arg(value_name = "TEXT")]
    text: String,
    #[command(flatten)]
    to: RecipientArgs,
    /// Image for the agent: a file or URL (can be repeated)
    #[arg(long, value_name = "FILE|URL")]
    image: Vec<String>,
    /// Event id; the same id twice is one turn [default: a new one]
    #[arg(long, value_name = "ID")]
    event_id: Option<EventId>,
    /// Return as soon as the message is accepted
    #[arg(long, conflicts_with = "timeout")]
    no_wait: bool,
    /// Print the reply as it arrives, even without a terminal
    #[arg(long, conflicts_with = "no_wait")]
    stream: bool,
    /// Maximum time to wait for the reply
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
}

impl SendArgs {
    /// Sends a text to the entry agent in the default conversation.
    pub(crate) fn usual(text: String) -> Self {
        Self {
            text,
            to: RecipientArgs::default(),
            image: Vec::new(),
            event_id: None,
            no_wait: false,
            stream: false,
            timeout: None,
        }
    }
}

pub(crate) async fn run(args: SendArgs, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    let text = match args.text.as_str() {
        "-" => stdin_text()?,
        _ => args.text,
    };
    let images = images::read(&args.image)?;
    let (mut client, workspace) = context.open().await?;
    let question = AgentInput::new(
        &workspace,
        args.to.agent,
        args.to.instance,
        text,
        args.event_id,
    )?
    .with_images(args.image, images);
    if args.no_wait {
        let sent = question
            .hand_in(&mut client)
            .await
            .map_err(|error| question.failed(error, context))?;
        output.object(schemas::SEND, &sent)?;
        output.data(format!(
            "Accepted for {}, conversation {}, as event {}",
            sent.agent, sent.instance_key, sent.event_id
        ))?;
        output.note(format!("Get the answer: {}", question.again(context)));
        return Ok(());
    }
    let limit = args.timeout.map(Duration::from_secs);
    let quiet = output.is_quiet() || output.is_json();
    let streaming = match StreamMode::usual(output) {
        _ if args.stream && output.is_json() => StreamMode::Objects,
        _ if args.stream => StreamMode::Text,
        usual => usual,
    };
    let view = TurnView::start(context, quiet, streaming);
    let sent = wait(&mut client, &question, limit, &view, context).await?;
    let is_shown = is_shown(&view, &sent);
    drop(view);
    output.object(schemas::SEND, &sent)?;
    if sent.duplicate && !quiet {
        output.note("This event was already accepted; this is its answer.");
    }
    let reply = reply_of(&sent, context)?;
    if is_shown {
        return Ok(());
    }
    output.reply(reply)
}

/// Sends the event and waits for the reply, the timeout, or Ctrl-C.
async fn wait(
    client: &mut Client,
    question: &AgentInput,
    limit: Option<Duration>,
    view: &TurnView,
    context: &Context,
) -> Result<SendResult, Failure> {
    let time_is_up = async {
        match limit {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        // The order matters: the Ctrl-C handler is installed before the event is sent, and the event is sent before the
        // timeout can expire.
        biased;
        _ = tokio::signal::ctrl_c() => {
            Err(question.left(Exit::Interrupted, "interrupted while waiting for the answer", context))
        }
        sent = question.ask(client, view) => {
            sent.map_err(|error| question.failed(error, context))
        }
        () = time_is_up => {
            let message = format!("no answer within {} s", limit.unwrap_or_default().as_secs());
            Err(question.left(Exit::TimedOut, &message, context))
        }
    }
}

/// Reads the message from stdin, without its last newline.
/// Reads a message from stdin, without a newline at its end.
pub(super) fn stdin_text() -> Result<String, Failure> {
    let most = u64::try_from(MAX_INPUT_BYTES).unwrap_or(u64::MAX);
    let mut text = String::new();
    // One byte more than allowed, to detect a text that is too long.
    let read = std::io::stdin()
        .lock()
        .take(most.saturating_add(2))
        .read_to_string(&mut text);
    read.map_err(|error| {
        Failure::new(
            Exit::Usage,
            "cannot read the message from stdin",
            "pass UTF-8 text, such as `git diff | gdn send -`",
        )
        .caused_by(Some(&error))
    })?;
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(text)
}
