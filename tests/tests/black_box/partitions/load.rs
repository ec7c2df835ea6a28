//! Load: clients that send events continuously through any node that accepts them, and record the
//! acknowledged ones.
//!
//! An event that was not acknowledged is sent again with the same id, through any node, until it
//! is. Each must be answered exactly once, whichever node accepted it first.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use goondan_tests::home::CommandOutput;
use goondan_tests::node::ClusterNode;
use goondan_tests::wait::{PATIENCE, wait_for, within};

/// Client timeout, because a daemon may be stopped.
const CLIENT_DEADLINE: Duration = Duration::from_secs(8);

const SENDERS: usize = 2;

/// Pause of a sender after a refusal.
const PAUSE: Duration = Duration::from_millis(200);

const EVENTS_OF_A_CONVERSATION: u64 = 60;

/// A task is created before one of this many events.
const EVENTS_OF_A_TASK: u64 = 15;

const CONVERSATIONS: u64 = 3;

#[derive(Debug, Clone)]
pub(super) struct Event {
    number: u64,
}

impl Event {
    /// Its id, which is also in the text.
    pub(super) fn id(&self) -> String {
        format!("e{}", self.number)
    }

    pub(super) fn key(&self) -> String {
        let round = self.number / (CONVERSATIONS * EVENTS_OF_A_CONVERSATION);
        format!("k{round}-{}", self.number % CONVERSATIONS)
    }

    /// True if a tool records the event in a file.
    pub(super) fn has_a_tool(&self) -> bool {
        self.number.is_multiple_of(4)
    }

    /// Task that is created before the event, if any.
    pub(super) fn task(&self) -> Option<String> {
        let makes = self.number.is_multiple_of(EVENTS_OF_A_TASK);
        makes.then(|| format!("t{}", self.number))
    }

    pub(super) fn text(&self) -> String {
        let verb = if self.has_a_tool() { "tally" } else { "echo" };
        format!("{verb} {}", self.id())
    }

    pub(super) fn answer(&self) -> String {
        format!("answer {}", self.id())
    }

    /// True if its sender waits for the answer.
    fn is_waited_for(&self) -> bool {
        self.number % 3 != 1
    }
}

/// An event that a node has acknowledged.
#[derive(Debug, Clone)]
pub(super) struct AcknowledgedEvent {
    pub(super) event: Event,
    pub(super) by: usize,
    pub(super) at: Instant,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    waiting: VecDeque<Event>,
    under_way: usize,
    /// Last refusal of each pending event, and its node.
    refusals: BTreeMap<u64, (usize, String)>,
    acknowledged: Vec<AcknowledgedEvent>,
    /// Nodes that claimed ownership, by epoch.
    owners: BTreeMap<u64, BTreeSet<usize>>,
    wrong: Vec<String>,
    is_over: bool,
}

/// State shared by the senders, and its change notification.
type SharedState = Arc<(Mutex<State>, Condvar)>;

#[derive(Debug)]
pub(super) struct Load {
    state: SharedState,
    senders: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
pub(super) struct Sent {
    pub(super) acknowledged: Vec<AcknowledgedEvent>,
    pub(super) owners: BTreeMap<u64, BTreeSet<usize>>,
    pub(super) wrong: Vec<String>,
}

impl Load {
    /// Starts senders at each node.
    pub(super) fn on(nodes: &[Arc<ClusterNode>]) -> Self {
        let state = SharedState::default();
        let places = nodes.iter().enumerate().cycle();
        let senders = places.take(nodes.len() * SENDERS).map(|(at, node)| {
            let sender = Sender {
                at,
                node: Arc::clone(node),
                state: Arc::clone(&state),
                is_refused: true,
            };
            std::thread::spawn(move || sender.run())
        });
        Self {
            senders: senders.collect(),
            state,
        }
    }

    /// Waits for the first event acknowledged after a moment, by a node other than this one.
    pub(super) fn acknowledged_after(
        &self,
        moment: Instant,
        but: Option<usize>,
    ) -> AcknowledgedEvent {
        wait_for("an event is acknowledged", || {
            let state = self.state.0.lock().unwrap();
            let fits = |it: &&AcknowledgedEvent| it.at > moment && Some(it.by) != but;
            // Searched from the end, because there are many.
            let late = state.acknowledged.iter().rev();
            let late = late.take_while(|it| it.at > moment);
            late.filter(fits).last().cloned()
        })
    }

    /// Returns the node that acknowledged last.
    pub(super) fn owner(&self) -> usize {
        self.acknowledged_after(Instant::now() - CLIENT_DEADLINE, None);
        let state = self.state.0.lock().unwrap();
        state.acknowledged.last().unwrap().by
    }

    /// Waits until each event is acknowledged, and ends.
    pub(super) fn ends(self) -> Sent {
        let (state, changed) = &*self.state;
        let mut locked = state.lock().unwrap();
        locked.is_over = true;
        changed.notify_all();
        let is_left = |state: &mut State| !state.waiting.is_empty() || state.under_way > 0;
        let ended = changed.wait_timeout_while(locked, PATIENCE, is_left);
        let (locked, timeout) = ended.unwrap();
        let refusals = locked.refusals.clone();
        drop(locked);
        assert!(
            !timeout.timed_out(),
            "events that nobody acknowledges: {refusals:#?}"
        );
        for sender in self.senders {
            sender.join().unwrap();
        }
        let state = std::mem::take(&mut *state.lock().unwrap());
        Sent {
            acknowledged: state.acknowledged,
            owners: state.owners,
            wrong: state.wrong,
        }
    }
}

/// A client of one node.
struct Sender {
    at: usize,
    node: Arc<ClusterNode>,
    state: SharedState,
    is_refused: bool,
}

impl Sender {
    fn run(mut self) {
        while let Some(event) = self.next() {
            let ran = self.sends(&event);
            let was_refused = self.is_refused;
            self.is_refused = ran.as_ref().is_none_or(|ran| ran.code != 0);
            {
                let (state, changed) = &*self.state;
                let mut state = state.lock().unwrap();
                state.under_way -= 1;
                changed.notify_all();
                match ran {
                    Some(ran) if ran.code == 0 => state.take(self.at, event, &ran),
                    ran => state.refuse(self.at, event, ran),
                }
            }
            if self.is_refused {
                std::thread::sleep(PAUSE);
            } else if was_refused {
                self.notes_owner();
            }
        }
    }

    /// Returns the next event; none at the end.
    fn next(&self) -> Option<Event> {
        let (state, changed) = &*self.state;
        let has_none =
            |state: &mut State| state.is_over && state.waiting.is_empty() && state.under_way > 0;
        let state = changed.wait_while(state.lock().unwrap(), has_none);
        let mut state = state.unwrap();
        let event = state.waiting.pop_front().or_else(|| {
            let number = state.next;
            (!state.is_over).then(|| {
                state.next += 1;
                Event { number }
            })
        });
        state.under_way += usize::from(event.is_some());
        event
    }

    fn sends(&self, event: &Event) -> Option<CommandOutput> {
        if let Some(task) = event.task() {
            let args = ["task", "new", "A task", "--id", &task, "--agent", "worker"];
            let made = self.gdn(&[&args[..], &["--description", "Wait."]].concat())?;
            // An earlier attempt may have created it without a reply.
            if made.code != 0 && !made.stderr.contains("already exists") {
                return Some(made);
            }
        }
        let (id, key, text) = (event.id(), event.key(), event.text());
        let mut args = vec!["send", "--event-id", &id, "--instance", &key, &text];
        if !event.is_waited_for() {
            args.push("--no-wait");
        }
        self.gdn(&args)
    }

    /// When the owner changes, records the epoch that the new owner reports.
    fn notes_owner(&self) {
        let listed = self.gdn(&["--json", "node", "list"]);
        let Some(listed) = listed.filter(|ran| ran.code == 0) else {
            return;
        };
        for workspace in listed.json()["workspaces"].as_array().unwrap() {
            if workspace["isHere"] == true {
                let epoch = workspace["epoch"].as_u64().unwrap();
                let mut state = self.state.0.lock().unwrap();
                state.owners.entry(epoch).or_default().insert(self.at);
            }
        }
    }

    /// Result of `gdn`; none after a timeout.
    fn gdn(&self, args: &[&str]) -> Option<CommandOutput> {
        let args = [&["--project", &self.node.project], args].concat();
        let mut running = self.node.home.start_gdn(&args);
        within(CLIENT_DEADLINE, || running.has_ended().then_some(()))?;
        Some(running.wait())
    }
}

impl State {
    fn take(&mut self, by: usize, event: Event, ran: &CommandOutput) {
        let output = ran.stdout.trim_end();
        if event.is_waited_for() && output != event.answer() {
            self.wrong.push(format!("{}: {output}", event.id()));
        }
        let at = Instant::now();
        self.refusals.remove(&event.number);
        self.acknowledged.push(AcknowledgedEvent { event, by, at });
    }

    fn refuse(&mut self, by: usize, event: Event, ran: Option<CommandOutput>) {
        let output = ran.map_or_else(|| "no answer".to_owned(), |ran| ran.stderr);
        self.refusals.insert(event.number, (by, output));
        self.waiting.push_front(event);
    }
}
