//! Data feeds of `gdn top`, each with its own connection.

use goondan_protocol::approval::{ApprovalDecision, ApprovalScope};
use goondan_protocol::control::{
    self, CancelEvent, DecideApproval, FollowLogs, InstanceOrder, InstanceTurns, ListApprovals,
    ListInstances, ListProcesses, ListWorkspaces, ReadUsage, ShowApproval, UsageGrouping,
};
use goondan_protocol::ids::{InstanceKey, WorkspaceId};
use tokio::sync::{mpsc, watch};

use super::board::{CONVERSATIONS_MAX, Facts, LOG_LINES_MAX};
use super::input::{Act, FeedQuery, LogSource, PageSubject, PendingDecision, TopInput};
use crate::client::{CallError, Client, Notice, RequestTimeout};
use crate::commands::approval::FIRST_OF_TWO;
use crate::commands::follow::{self, WorkspaceNotification};
use crate::commands::{trace, transcript};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::style::Palette;
use crate::output::table::Canvas;
use crate::output::text;

/// Maximum number of messages shown of a conversation.
const MESSAGES_SHOWN: usize = 200;

pub(super) type Inputs = mpsc::UnboundedSender<TopInput>;

fn send(inputs: &Inputs, input: TopInput) {
    // A send fails only after the screen is closed, which also ends this feed.
    drop(inputs.send(input));
}

/// Watches the project across daemon restarts.
pub(super) async fn watch_project(context: &Context, inputs: &Inputs) {
    let take = |followed| {
        let input = match followed {
            WorkspaceNotification::Change(change) => TopInput::Told(change),
            WorkspaceNotification::Stopped => TopInput::Stopped,
            WorkspaceNotification::Lost => TopInput::Lost,
        };
        send(inputs, input);
    };
    follow::follow(context, take).await;
}

/// Follows the currently requested log across daemon restarts.
pub(super) async fn follow_logs(
    context: &Context,
    mut of: watch::Receiver<LogSource>,
    inputs: &Inputs,
) {
    loop {
        let wanted = of.borrow_and_update().clone();
        tokio::select! {
            () = follow_log(context, wanted, inputs) => follow::rest().await,
            changed = of.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

async fn follow_log(context: &Context, of: LogSource, inputs: &Inputs) {
    // The feed that watches the project reports if no daemon runs it.
    let Ok((mut client, workspace)) = context.open().await else {
        return;
    };
    let follow = FollowLogs {
        tail: LOG_LINES_MAX,
        follow: true,
        workspace_id: Some(workspace.workspace_id),
        instance_key: match of {
            LogSource::Project => None,
            LogSource::Conversation(key) => Some(key),
        },
        ..FollowLogs::default()
    };
    send(inputs, TopInput::LogBegins);
    let mut take = |notice| {
        if let Notice::Line(line) = notice {
            send(inputs, TopInput::LogLine(line.get().to_owned()));
        }
    };
    drop(
        client
            .watch(follow, RequestTimeout::Endless, &mut take)
            .await,
    );
}

/// A query or an action.
#[derive(Debug)]
pub(super) enum FeedRequest {
    Load(FeedQuery),
    Act(Act),
}

/// Handles requests one after another.
pub(super) async fn answer(
    context: &Context,
    mut requests: mpsc::UnboundedReceiver<FeedRequest>,
    inputs: &Inputs,
) {
    let mut connection: Option<(Client, WorkspaceId)> = None;
    while let Some(request) = requests.recv().await {
        let open = match connection.take() {
            Some(open) => Ok(open),
            None => context
                .open()
                .await
                .map(|(client, workspace)| (client, workspace.workspace_id)),
        };
        let mut asker = match open {
            Ok((client, workspace_id)) => FeedClient {
                client,
                workspace_id,
                inputs,
            },
            Err(failure) => {
                fail(inputs, request, &failure);
                continue;
            }
        };
        let ended = match &request {
            FeedRequest::Load(wanted) => asker.load(wanted).await,
            FeedRequest::Act(act) => asker.act(act).await,
        };
        match ended {
            Ok(()) => connection = Some((asker.client, asker.workspace_id)),
            Err(error) => {
                let is_refused = matches!(error, CallError::Refused(_));
                if is_refused {
                    connection = Some((asker.client, asker.workspace_id));
                }
                fail(inputs, request, &error.into());
            }
        }
    }
}

fn fail(inputs: &Inputs, request: FeedRequest, failure: &Failure) {
    let why = failure.message.clone();
    send(
        inputs,
        match request {
            FeedRequest::Load(wanted) => TopInput::Failed(wanted, why),
            FeedRequest::Act(_) => TopInput::Acted(Err(why)),
        },
    );
}

struct FeedClient<'a> {
    client: Client,
    workspace_id: WorkspaceId,
    inputs: &'a Inputs,
}

impl FeedClient<'_> {
    async fn load(&mut self, wanted: &FeedQuery) -> Result<(), CallError> {
        match wanted {
            FeedQuery::Facts => {
                if let Some(facts) = facts(&mut self.client, &self.workspace_id).await? {
                    send(self.inputs, TopInput::Facts(Box::new(facts)));
                }
            }
            FeedQuery::Conversations => self.conversations().await?,
            FeedQuery::Usage => {
                let usage = self.client.query(usage_of(&self.workspace_id)).await?;
                send(self.inputs, TopInput::Usage(Box::new(usage)));
            }
            FeedQuery::Approval(key, is_approved) => {
                let pending = self.pending(key, *is_approved).await?;
                send(self.inputs, TopInput::Approval(pending.map(Box::new)));
            }
            FeedQuery::Page(about, columns) => {
                let text = match about {
                    PageSubject::Transcript(key) => self.transcript(key).await?,
                    PageSubject::Trace(key) => self.trace(key, *columns).await?,
                };
                send(self.inputs, TopInput::Page(about.clone(), text));
            }
            // Handled by the log feed.
            FeedQuery::Logs(_) => {}
        }
        Ok(())
    }

    /// Oldest tool call of a conversation that waits for approval, with all its arguments.
    async fn pending(
        &mut self,
        key: &InstanceKey,
        is_approved: bool,
    ) -> Result<Option<PendingDecision>, CallError> {
        let list = ListApprovals {
            workspace_id: Some(self.workspace_id.clone()),
            instance_key: Some(key.clone()),
            after: None,
            limit: Some(1),
        };
        let Some(info) = self.client.query(list).await?.approvals.pop() else {
            return Ok(None);
        };
        let show = ShowApproval {
            workspace_id: self.workspace_id.clone(),
            approval_id: info.approval_id.clone(),
        };
        let detail = self.client.query(show).await?;
        Ok(Some(PendingDecision {
            approval_id: info.approval_id,
            key: key.clone(),
            is_approved,
            is_always: false,
            changed: None,
            detail,
        }))
    }

    async fn conversations(&mut self) -> Result<(), CallError> {
        let mut list = conversations_of(&self.workspace_id);
        let mut listed = 0;
        loop {
            let page = self.client.query(list.clone()).await?;
            list.after.clone_from(&page.next);
            listed += page.instances.len();
            send(self.inputs, TopInput::Conversations(Box::new(page)));
            if list.after.is_none() || listed >= CONVERSATIONS_MAX {
                return Ok(());
            }
        }
    }

    async fn transcript(&mut self, key: &InstanceKey) -> Result<String, CallError> {
        let (client, workspace_id) = (&mut self.client, &self.workspace_id);
        let read = transcript::read(client, workspace_id, key, Some(MESSAGES_SHOWN)).await?;
        let shown = read.render(Palette::new(false));
        Ok(text::printable(&shown))
    }

    async fn trace(&mut self, key: &InstanceKey, columns: u16) -> Result<String, CallError> {
        let Some(trace_id) = self.latest_trace(key).await? else {
            return Ok("no turn yet".to_owned());
        };
        let workspace_id = self.workspace_id.clone();
        let trace = self.client.trace(workspace_id, Some(trace_id)).await?;
        let canvas = Canvas {
            palette: Palette::new(false),
            columns: Some(columns.into()),
        };
        Ok(text::printable(&trace::as_text(&trace, canvas)))
    }

    /// Trace of the conversation's latest turn.
    async fn latest_trace(&mut self, key: &InstanceKey) -> Result<Option<String>, CallError> {
        let (mut offset, mut latest) = (0, None);
        loop {
            let turns = InstanceTurns {
                workspace_id: self.workspace_id.clone(),
                instance_key: key.clone(),
                offset,
            };
            let page = self.client.query(turns).await?;
            let last = page.events.last();
            latest = last.map(|event| event.trace_id.to_string()).or(latest);
            match page.next {
                Some(next) if next > offset => offset = next,
                _ => return Ok(latest),
            }
        }
    }

    async fn act(&mut self, act: &Act) -> Result<(), CallError> {
        let workspace_id = self.workspace_id.clone();
        let done = match act {
            Act::Cancel(key) => {
                let cancel = CancelEvent {
                    workspace_id,
                    instance_key: key.clone(),
                    event_id: None,
                };
                self.client.change(cancel).await?;
                format!("Canceled the turn of {key}.")
            }
            Act::Restart(key) => {
                let restart = control::Restart {
                    workspace_id,
                    agent: None,
                    instance_key: Some(key.clone()),
                    fresh: false,
                };
                let restarted = self.client.change(restart).await?;
                match restarted.processes {
                    0 => format!("No process runs for {key}."),
                    _ => format!("Restarting the process of {key}, after its turn in progress."),
                }
            }
            Act::Decide(pending) => {
                let decision = match pending.is_approved {
                    true => ApprovalDecision::Approved,
                    false => ApprovalDecision::Denied,
                };
                let decide = DecideApproval {
                    workspace_id,
                    approval_id: pending.approval_id.clone(),
                    decision,
                    reason: None,
                    input: pending.changed.clone(),
                    always: pending.is_always.then_some(ApprovalScope::Conversation),
                };
                let decided = self.client.change(decide).await?;
                let verb = if pending.is_approved {
                    "Approved"
                } else {
                    "Denied"
                };
                let about = format!("{verb} {} of {}", decided.tool_name, decided.instance_key);
                match decided.always {
                    None if decided.needs_another => format!("{about}. {FIRST_OF_TWO}."),
                    Some(_) => format!("{about} from now on. Revoke that: gdn inbox standing"),
                    None => format!("{about}."),
                }
            }
        };
        send(self.inputs, TopInput::Acted(Ok(done)));
        Ok(())
    }
}

/// State of the project; none if it is no longer registered.
pub(super) async fn facts(
    client: &mut Client,
    workspace_id: &WorkspaceId,
) -> Result<Option<Facts>, CallError> {
    let list = ListProcesses {
        workspace_id: Some(workspace_id.clone()),
        ..ListProcesses::default()
    };
    let processes = client.all(list).await?;
    let own = ListWorkspaces {
        workspace_id: Some(workspace_id.clone()),
        ..ListWorkspaces::default()
    };
    let own = client.query(own).await?.workspaces.pop();
    Ok(own.map(|workspace| Facts {
        workspace,
        processes,
    }))
}

pub(super) fn usage_of(workspace_id: &WorkspaceId) -> ReadUsage {
    ReadUsage {
        workspace_id: Some(workspace_id.clone()),
        by: UsageGrouping::Agent,
        since: None,
        after: None,
        limit: None,
    }
}

/// Request for the first page of conversations, most recently updated first.
pub(super) fn conversations_of(workspace_id: &WorkspaceId) -> ListInstances {
    ListInstances {
        workspace_id: Some(workspace_id.clone()),
        order: InstanceOrder::Changed,
        ..ListInstances::default()
    }
}
