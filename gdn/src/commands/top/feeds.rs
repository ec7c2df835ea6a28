//! Data feeds of `gdn top`, each with its own connection.

use std::time::Instant;

use goondan_protocol::control::{
    self, CancelEvent, FollowLogs, InstanceOrder, InstanceTurns, ListInstances, ListProcesses,
    ListWorkspaces, ReadUsage, UsageGrouping, WatchUpdate, WatchWorkspace,
};
use goondan_protocol::ids::{InstanceKey, WorkspaceId};
use tokio::sync::{mpsc, watch};

use super::board::{CONVERSATIONS_MAX, Facts, LOG_LINES_MAX};
use super::input::{Act, FeedQuery, LogSource, PageSubject, TopInput};
use super::view::Scope;
use crate::client::{CallError, Client, Notice, RequestTimeout};
use crate::commands::follow::{self, WorkspaceNotification};
use crate::commands::inbox::{self, CurrentInbox, InboxItem, LiveChanges};
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

/// Watches all workspaces across daemon restarts.
pub(super) async fn watch_all(context: &Context, inputs: &Inputs) {
    loop {
        if let Ok(mut client) = context.connect().await {
            send(inputs, TopInput::Connected);
            let mut take = |notice| {
                let Notice::Change(change) = notice else {
                    return;
                };
                send(
                    inputs,
                    match change.told {
                        WatchUpdate::Snapshot(_) => TopInput::Connected,
                        WatchUpdate::Event(_) => TopInput::Told(change),
                    },
                );
            };
            let all = WatchWorkspace::default();
            drop(client.watch(all, RequestTimeout::Endless, &mut take).await);
        }
        send(inputs, TopInput::Lost);
        follow::rest().await;
    }
}

/// Reads the inbox, and again after each change.
pub(super) async fn follow_inbox(
    context: &Context,
    scope: Scope,
    live: &LiveChanges,
    inputs: &Inputs,
) {
    let watched = live.follow(context);
    let read = async {
        loop {
            // The feed that watches the project reports a missing daemon.
            drop(read_inbox(context, scope, live, inputs).await);
            follow::rest().await;
        }
    };
    tokio::join!(watched, read);
}

async fn read_inbox(
    context: &Context,
    scope: Scope,
    live: &LiveChanges,
    inputs: &Inputs,
) -> Result<(), Failure> {
    let (client, only) = context.open_scope(scope == Scope::All).await?;
    drop(client);
    let mut begun = Instant::now();
    let mut current = CurrentInbox::read(only.as_ref(), live, context).await?;
    loop {
        send(inputs, TopInput::Inbox(Box::new(current.inbox.clone())));
        // Most of the time is left to the daemon.
        tokio::time::sleep(begun.elapsed() * 3).await;
        live.changed.notified().await;
        begun = Instant::now();
        current.refresh().await?;
    }
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
    (context, scope): (&Context, Scope),
    live: &LiveChanges,
    mut requests: mpsc::UnboundedReceiver<FeedRequest>,
    inputs: &Inputs,
) {
    let mut connection: Option<(Client, Option<WorkspaceId>)> = None;
    while let Some(request) = requests.recv().await {
        let open = match connection.take() {
            Some(open) => Ok(open),
            None => context.open_scope(scope == Scope::All).await,
        };
        let (client, workspace_id) = match open {
            Ok(open) => open,
            Err(failure) => {
                fail(inputs, request, &failure);
                continue;
            }
        };
        let mut asker = FeedClient {
            context,
            live,
            client,
            workspace_id,
            inputs,
        };
        let ended = match &request {
            FeedRequest::Load(wanted) => asker.load(wanted).await,
            FeedRequest::Act(act) => asker.act(act).await,
        };
        match ended {
            Ok(()) => connection = Some((asker.client, asker.workspace_id)),
            // The connection may be lost.
            Err(failure) => fail(inputs, request, &failure),
        }
    }
}

fn fail(inputs: &Inputs, request: FeedRequest, failure: &Failure) {
    let why = failure.message.clone();
    send(
        inputs,
        match request {
            FeedRequest::Load(wanted) => TopInput::Failed(wanted, why),
            FeedRequest::Act(Act::Decide(decision)) => {
                TopInput::Decided(Box::new(decision.item), Err(why))
            }
            FeedRequest::Act(_) => TopInput::Acted(Err(why)),
        },
    );
}

struct FeedClient<'a> {
    context: &'a Context,
    live: &'a LiveChanges,
    client: Client,
    /// The project; none if all workspaces are shown.
    workspace_id: Option<WorkspaceId>,
    inputs: &'a Inputs,
}

impl FeedClient<'_> {
    async fn load(&mut self, wanted: &FeedQuery) -> Result<(), Failure> {
        match (wanted, self.workspace_id.clone()) {
            (FeedQuery::Facts, only) => {
                if let Some(facts) = facts(&mut self.client, only.as_ref()).await? {
                    send(self.inputs, TopInput::Facts(Box::new(facts)));
                }
            }
            (FeedQuery::Page(PageSubject::Item(item), columns), _) => {
                self.item(item, *columns).await?;
            }
            (FeedQuery::Conversations, Some(id)) => self.conversations(&id).await?,
            (FeedQuery::Usage, Some(id)) => {
                let usage = self.client.query(usage_of(&id)).await?;
                send(self.inputs, TopInput::Usage(Box::new(usage)));
            }
            (FeedQuery::Page(about, columns), Some(id)) => {
                let text = match about {
                    PageSubject::Transcript(key) => self.transcript(&id, key).await?,
                    PageSubject::Trace(key) => self.trace(&id, key, *columns).await?,
                    PageSubject::Item(_) => return Ok(()),
                };
                send(self.inputs, TopInput::Page(about.clone(), text));
            }
            // Handled by the log feed, or not shown.
            (FeedQuery::Logs(_), _)
            | (FeedQuery::Conversations | FeedQuery::Usage | FeedQuery::Page(..), None) => {}
        }
        Ok(())
    }

    /// Reads what is decided about. An item that cannot be read is shown with the reason.
    async fn item(&mut self, item: &InboxItem, columns: u16) -> Result<(), Failure> {
        let palette = Palette::new(false);
        let canvas = Canvas {
            palette,
            columns: Some(columns.into()),
        };
        let read = inbox::details::read(&mut self.client, item, canvas, self.context).await?;
        let text = inbox::shown::item(item, Some(&read.text), None, palette, self.context);
        let subject = Box::new(read.subject);
        let input = TopInput::Item(Box::new(item.clone()), text, subject);
        send(self.inputs, input);
        Ok(())
    }

    async fn conversations(&mut self, id: &WorkspaceId) -> Result<(), CallError> {
        let mut list = conversations_of(id);
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

    async fn transcript(
        &mut self,
        id: &WorkspaceId,
        key: &InstanceKey,
    ) -> Result<String, CallError> {
        let read = transcript::read(&mut self.client, id, key, Some(MESSAGES_SHOWN)).await?;
        let shown = read.render(Palette::new(false));
        Ok(text::printable(&shown))
    }

    async fn trace(
        &mut self,
        id: &WorkspaceId,
        key: &InstanceKey,
        columns: u16,
    ) -> Result<String, CallError> {
        let Some(trace_id) = self.latest_trace(id, key).await? else {
            return Ok("no turn yet".to_owned());
        };
        let trace = self.client.trace(id.clone(), Some(trace_id)).await?;
        let canvas = Canvas {
            palette: Palette::new(false),
            columns: Some(columns.into()),
        };
        Ok(text::printable(&trace::as_text(&trace, canvas)))
    }

    /// Trace of the conversation's latest turn.
    async fn latest_trace(
        &mut self,
        id: &WorkspaceId,
        key: &InstanceKey,
    ) -> Result<Option<String>, CallError> {
        let mut before = InstanceTurns::END;
        loop {
            let turns = InstanceTurns {
                workspace_id: id.clone(),
                instance_key: key.clone(),
                offset: 0,
                before: Some(before),
            };
            let page = self.client.query(turns).await?;
            match (page.events.last(), page.previous) {
                (Some(last), _) => return Ok(Some(last.trace_id.to_string())),
                (None, Some(previous)) if previous < before => before = previous,
                (None, _) => return Ok(None),
            }
        }
    }

    async fn act(&mut self, act: &Act) -> Result<(), Failure> {
        let done = match (act, self.workspace_id.clone()) {
            (Act::Decide(decision), _) => {
                let item = &decision.item;
                let decided = inbox::decisions::decide(
                    &mut self.client,
                    item,
                    &decision.subject,
                    decision.choice,
                    decision.entered.clone(),
                    self.context,
                )
                .await;
                // Also after a failure, because another person may have decided it.
                self.live.mark_workspace(&item.workspace_id);
                self.live.changed.notify_one();
                let result = TopInput::Decided(Box::new(item.clone()), Ok(decided?));
                send(self.inputs, result);
                return Ok(());
            }
            (Act::Cancel(key), Some(workspace_id)) => {
                let cancel = CancelEvent {
                    workspace_id,
                    instance_key: key.clone(),
                    event_id: None,
                };
                self.client.change(cancel).await?;
                format!("Canceled the turn of {key}.")
            }
            (Act::Restart(key), Some(workspace_id)) => {
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
            // Rows of all workspaces have no conversation.
            (Act::Cancel(_) | Act::Restart(_), None) => return Ok(()),
        };
        send(self.inputs, TopInput::Acted(Ok(done)));
        Ok(())
    }
}

/// State of the project, or of all workspaces; none if the project is no longer registered.
pub(super) async fn facts(
    client: &mut Client,
    only: Option<&WorkspaceId>,
) -> Result<Option<Facts>, CallError> {
    let list = ListProcesses {
        workspace_id: only.cloned(),
        ..ListProcesses::default()
    };
    let processes = client.all(list).await?;
    let list = ListWorkspaces {
        workspace_id: only.cloned(),
        ..ListWorkspaces::default()
    };
    let workspaces = client.all(list).await?;
    let is_there = only.is_none() || !workspaces.is_empty();
    Ok(is_there.then_some(Facts {
        workspaces,
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
