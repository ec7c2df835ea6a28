//! Goal: an action at an outside service takes effect exactly once, whichever process is killed
//! between the effect and its record, and almost always without a person (`MSG-13`).
//!
//! Method: an agent acts at doubles of services, one effect per event. When a request arrives, the
//! double loses it, performs it without an answer, answers it, or performs it late, and processes
//! are killed. The double counts effects; the reply of the turn shows the recorded outcome.
//!
//! `GOONDAN_TEST_OUTSIDE_KILLS=500` kills more often.

mod services;

use std::collections::BTreeMap;
use std::time::Duration;

use goondan_tests::processes::{self, Signal};
use goondan_tests::random::Random;
use goondan_tests::{Daemon, Home, wait_for, wait_until};

use services::{Moment, SERVICES, Services};

/// Number of kills; the long form is 500.
const KILLS_VAR: &str = "GOONDAN_TEST_OUTSIDE_KILLS";
const KILLS: usize = 10;

/// Maximum time between an answer and the kill, in milliseconds: the result is recorded within it.
const ANSWERED_MS: u64 = 20;

/// Maximum time between a kill and the effect of a request in transit, in milliseconds. Shorter
/// than the two seconds between two looks.
const LATE_MS: u64 = 500;

/// Minimum share of unknown outcomes that are closed without a person, in percent.
const CLOSED_PERCENT: usize = 95;

/// The agent's reply if the action has a result, and if its outcome is unknown.
const DONE: &str = "done: ";
const UNCLEAR: &str = "unclear: ";

/// An agent with an action for each service. `ROOT` is the address of the doubles.
const PROJECT: &str = r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: main}
spec:
  provider: scripted
  options:
    rules:
      - when: {user: '^slack (?P<id>\w+)$', step: 1}
        call: [{tool: slack__send, args: {channel: C1, text: "effect ${id}"}}]
      - when: {user: '^github (?P<id>\w+)$', step: 1}
        call: [{tool: github__comment, args: {repository: acme/shop, number: 7, body: "effect ${id}"}}]
      - when: {user: '^discord (?P<id>\w+)$', step: 1}
        call: [{tool: discord__send, args: {channel: "12", text: "effect ${id}"}}]
      - when: {user: '^(?P<service>orders|payments) (?P<id>\w+)$', step: 1}
        call:
          - tool: http-fetch__request
            args: {connection: "${service}", url: "ROOT/${service}", body: '{"text": "effect ${id}"}'}
      - when: {error: true}
        say: "unclear: ${result}"
      - say: "done: ${result}"
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: clerk}
spec:
  modelConfig: {modelRef: Model/main}
  tools:
    - {kind: Tool, name: slack, package: "@goondan/base"}
    - {kind: Tool, name: github, package: "@goondan/base"}
    - {kind: Tool, name: discord, package: "@goondan/base"}
    - {kind: Tool, name: http-fetch, package: "@goondan/base"}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: slack}
spec:
  connectorRef: {kind: Connector, name: slack, package: "@goondan/base"}
  config: {endpoint: "ROOT/slack"}
  secrets: {signingSecret: {value: a-shared-secret}, botToken: {value: the-good-token}}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: github}
spec:
  connectorRef: {kind: Connector, name: github, package: "@goondan/base"}
  config: {endpoint: "ROOT/github", repositories: [acme/shop]}
  secrets: {webhookSecret: {value: a-shared-secret}, token: {value: the-good-token}}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: discord}
spec:
  connectorRef: {kind: Connector, name: discord, package: "@goondan/base"}
  config:
    endpoint: "ROOT/discord"
    publicKey: 3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29
  secrets: {botToken: {value: the-good-token}}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: orders}
spec:
  connectorRef: {kind: Connector, name: http, package: "@goondan/base"}
  config: {allow: ["ROOT"], allowPrivate: true, lookBack: "ROOT/orders/{key}"}
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: payments}
spec:
  connectorRef: {kind: Connector, name: http, package: "@goondan/base"}
  config: {allow: ["ROOT"], allowPrivate: true, idempotencyKey: Idempotency-Key}
"#;

/// Processes that a kill hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    /// With which all other processes end.
    Daemon,
    Agent,
    Connector,
    /// All three, in the order agent, connector, daemon.
    All,
}

impl Victim {
    const ALL: [Self; 4] = [Self::Daemon, Self::Agent, Self::Connector, Self::All];

    fn is_daemon(self) -> bool {
        matches!(self, Self::Daemon | Self::All)
    }
}

/// Results of all rounds.
#[derive(Debug, Default)]
struct Tally {
    doubled: Vec<String>,
    lost: Vec<String>,
    /// Kills after which no process can know the outcome.
    unknown: usize,
    /// Effects that wait for a person.
    unclear: Vec<String>,
}

struct Clerk {
    home: Home,
    services: Services,
    daemon: Option<Daemon>,
    random: Random,
    tally: Tally,
}

impl Clerk {
    fn start() -> Self {
        let services = Services::start();
        let home = Home::new(&PROJECT.replace("ROOT", &services.root()));
        let daemon = Some(Daemon::serving(&home));
        Self {
            home,
            services,
            daemon,
            random: Random::announced(),
            tally: Tally::default(),
        }
    }

    fn agent_pid(&self, conversation: &str) -> Option<u32> {
        let pid = self.home.ps_agent(conversation)?["pid"].as_u64()?;
        Some(u32::try_from(pid).unwrap())
    }

    fn connector_pid(&self, connection: &str) -> Option<u32> {
        let mut processes = self.home.ps().into_iter();
        let found = processes.find(|process| process["name"] == connection)?;
        Some(u32::try_from(found["pid"].as_u64()?).unwrap())
    }

    /// Processes to kill besides the daemon, the agent first.
    fn victims(&self, victim: Victim, service: &str) -> Vec<u32> {
        let mut pids = Vec::new();
        if matches!(victim, Victim::Agent | Victim::All) {
            if self.agent_pid(service).is_none() {
                // An agent's process starts with an event.
                assert_eq!(self.home.ask(service, "hello").trim(), DONE.trim());
            }
            pids.push(wait_for("the agent runs", || self.agent_pid(service)));
        }
        if matches!(victim, Victim::Connector | Victim::All) {
            pids.push(wait_for("the connector runs", || {
                self.connector_pid(service)
            }));
        }
        pids
    }

    /// One effect with this id, and one kill.
    fn act(&mut self, service: &str, id: &str, moment: Moment, victim: Victim) {
        let victims = self.victims(victim, service);
        self.services.expect(id, moment);
        let text = format!("{service} {id}");
        let event = ["--conversation", service, "--event-id", id, &text];
        let sent = [&["send", "--no-wait"], &event[..]].concat();
        self.home.gdn(&sent).exits(0);
        wait_until("the request arrives", || self.services.has_arrived(id));
        if moment == Moment::Answered {
            // The moment is random, so the test does not wait for any condition.
            self.random.let_pass(ANSWERED_MS);
        }
        for pid in victims {
            processes::signal(pid, Signal::SIGKILL);
        }
        let late = Duration::from_millis(self.random.below(LATE_MS));
        let reply = std::thread::scope(|scope| {
            let services = &self.services;
            scope.spawn(move || {
                std::thread::sleep(late);
                services.deliver();
            });
            if victim.is_daemon() {
                drop(self.daemon.take().map(Daemon::kill));
                self.daemon = Some(Daemon::start(&self.home));
            }
            let answered = self.home.gdn(&[&["send"], &event[..]].concat());
            answered.exits(0).stdout
        });
        let about = format!("{id}: {service}, {moment:?}, {victim:?} killed");
        self.judge(id, &about, moment, reply.trim());
    }

    /// Compares the agent's reply with the effects.
    fn judge(&mut self, id: &str, about: &str, moment: Moment, reply: &str) {
        let effects = self.services.effects(id);
        let tally = &mut self.tally;
        // After an answer, the result may be on disk already.
        let is_unclear = !reply.starts_with(DONE);
        tally.unknown += usize::from(moment != Moment::Answered || is_unclear);
        if is_unclear {
            assert!(reply.starts_with(UNCLEAR), "{about}: {reply}");
            assert!(reply.contains("E_TOOL_INTERRUPTED"), "{about}: {reply}");
            tally.unclear.push(format!("{about}: {reply}"));
        }
        match effects.as_slice() {
            [effect] => assert!(
                is_unclear || reply.contains(&effect.name),
                "{about}: {reply} is not the result of {effect:?}"
            ),
            [] if is_unclear => {}
            [] => tally.lost.push(format!("{about}: {reply}")),
            effects => tally.doubled.push(format!("{about}: {effects:?}")),
        }
    }

    /// Number of look-backs in the audit log, by their findings.
    fn look_backs(&self) -> BTreeMap<String, usize> {
        let audit = self.home.gdn_json(&["audit", "--lines", "10000"]);
        let mut found = BTreeMap::new();
        for record in audit["records"].as_array().unwrap() {
            let record = &record["record"];
            if record["event"] == "instance.callClosed" {
                let finding = record["found"].as_str().unwrap().to_owned();
                *found.entry(finding).or_default() += 1;
            }
        }
        found
    }
}

#[test]
fn msg_13_outside_effects_happen_once_over_any_kill() {
    let kills = std::env::var(KILLS_VAR).map_or(KILLS, |text| text.parse().unwrap());
    let mut clerk = Clerk::start();
    for number in 0..kills {
        // Each service meets every moment, in turn.
        let service = SERVICES[number % SERVICES.len()];
        let moment = Moment::ALL[(number + number / SERVICES.len()) % Moment::ALL.len()];
        let victim = *clerk.random.choose(&Victim::ALL).unwrap();
        clerk.act(service, &format!("k{number}"), moment, victim);
    }
    let tally = &clerk.tally;
    let effects: usize = SERVICES.iter().map(|name| clerk.services.count(name)).sum();
    let closed = tally.unknown - tally.unclear.len();
    eprintln!(
        "{kills} kills, {effects} outside effects: {} doubled, {} lost; {closed} of {} unknown outcomes \
         closed without a person; look-backs {:?}",
        tally.doubled.len(),
        tally.lost.len(),
        tally.unknown,
        clerk.look_backs()
    );
    assert!(tally.doubled.is_empty(), "{:#?}", tally.doubled);
    assert!(tally.lost.is_empty(), "{:#?}", tally.lost);
    assert!(
        closed * 100 >= tally.unknown * CLOSED_PERCENT,
        "{:#?}",
        tally.unclear
    );
    let waiting = clerk.home.gdn_json(&["inbox", "calls"]);
    let waiting = waiting["calls"].as_array().unwrap();
    assert_eq!(waiting.len(), tally.unclear.len(), "{waiting:#?}");
}
