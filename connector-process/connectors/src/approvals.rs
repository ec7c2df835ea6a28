//! Chats in which people are asked for decisions, which decisions each shows and when, and the
//! people who may decide (`STEER-3`, `NEED-1`).
//!
//! The orchestrator's decisions and the connector's questions share this parser of the settings.

use goondan_protocol::JsonObject;
use goondan_protocol::decision::DecisionSubject;
use goondan_protocol::ids::AgentName;
use goondan_protocol::time::Timestamp;
use jiff::tz::TimeZone;

use crate::check::minute_of_day;
use crate::values::Values;

const MINUTE_MS: u64 = 60_000;

/// The name of the setting.
const APPROVALS: &str = "approvals";

/// Tool calls, in the setting `kinds`.
const CALL: &str = "call";

/// Connectors that support approvals, with their word for a chat.
const ASKING: [(&str, &str); 4] = [
    ("telegram", "chat"),
    ("slack", "channel"),
    ("discord", "channel"),
    ("matrix", "room"),
];

/// A connection's chat for decisions, and the people who may decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalChat {
    pub place: String,
    /// People who may decide, by the service's ids.
    users: Vec<String>,
    /// The only agents whose decisions are shown; `None` for all.
    agents: Option<Vec<String>>,
    /// The only kinds of decision that are shown; `None` for all.
    kinds: Option<Vec<String>>,
    /// The only tools whose calls are shown; `None` for all.
    tools: Option<Vec<String>>,
    /// Time that a decision waits before it is shown, in milliseconds.
    after_ms: u64,
    quiet_hours: Option<QuietHours>,
}

/// A decision, as far as the settings distinguish decisions.
#[derive(Debug, Clone, Copy)]
pub struct DecisionClass<'d> {
    /// The agent that waits; `None` if the decision belongs to the project.
    pub agent: Option<&'d AgentName>,
    pub kind: DecisionKind<'d>,
}

#[derive(Debug, Clone, Copy)]
pub enum DecisionKind<'d> {
    /// A call of this tool, by its full name.
    Call(&'d str),
    Question,
    Review,
    /// A proposal without a task.
    Proposal,
    Login,
}

impl DecisionKind<'_> {
    /// Its word in the settings.
    fn word(self) -> &'static str {
        match self {
            Self::Call(_) => CALL,
            Self::Question => "question",
            Self::Review => "review",
            Self::Proposal => "proposal",
            Self::Login => "login",
        }
    }
}

impl<'d> DecisionClass<'d> {
    #[must_use]
    pub fn of(about: &'d DecisionSubject) -> Self {
        let (agent, kind) = match about {
            DecisionSubject::Call {
                agent_name,
                tool_name,
                ..
            } => (Some(agent_name), DecisionKind::Call(tool_name)),
            DecisionSubject::Question(text) => (Some(&text.agent_name), DecisionKind::Question),
            DecisionSubject::Review(text) => (Some(&text.agent_name), DecisionKind::Review),
            DecisionSubject::Proposal(_) => (None, DecisionKind::Proposal),
            DecisionSubject::Login(_) => (None, DecisionKind::Login),
        };
        Self { agent, kind }
    }
}

/// Hours of each day in which nothing new is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
struct QuietHours {
    /// The first minute of the day.
    from: u16,
    /// The first minute after them, on the next day if it is before `from`.
    until: u16,
    zone: TimeZone,
}

impl QuietHours {
    /// Parses validated settings; `None` if they are not set.
    fn of(values: &Values<'_>) -> Option<Self> {
        Some(Self {
            from: minute_of_day(values.text("from")?)?,
            until: minute_of_day(values.text("until")?)?,
            zone: TimeZone::get(values.text("timeZone")?).ok()?,
        })
    }

    fn contain(&self, now: Timestamp) -> bool {
        let Ok(now) = jiff::Timestamp::from_millisecond(now.as_unix_millis()) else {
            return false;
        };
        let now = self.zone.to_datetime(now);
        let (hour, minute) = (now.hour().unsigned_abs(), now.minute().unsigned_abs());
        let minute = u16::from(hour) * 60 + u16::from(minute);
        match self.from <= self.until {
            true => (self.from..self.until).contains(&minute),
            false => minute >= self.from || minute < self.until,
        }
    }
}

impl ApprovalChat {
    /// Parses the validated settings of a built-in connector; `None` if approvals are not
    /// configured.
    #[must_use]
    pub fn of(connector: &str, config: &JsonObject) -> Option<Self> {
        let (_, place) = ASKING.iter().find(|(name, _)| *name == connector)?;
        let values = Values::of(connector, config).map(APPROVALS);
        Some(Self {
            place: values.id(place)?,
            users: values.names("users")?,
            agents: values.names("agents"),
            kinds: values.texts("kinds"),
            tools: values.names("tools"),
            after_ms: values.number("afterMinutes").unwrap_or_default() * MINUTE_MS,
            quiet_hours: QuietHours::of(&values.map("quietHours")),
        })
    }

    /// True if this person may decide.
    #[must_use]
    pub fn has_user(&self, user: &str) -> bool {
        self.users.iter().any(|known| known == user)
    }

    /// The reason why people in this chat are not asked for this decision; `None` if they are.
    #[must_use]
    pub fn refusal(&self, about: DecisionClass<'_>) -> Option<&'static str> {
        let is_tool = |known: &str, tool: &str| {
            let export = tool.strip_prefix(known);
            export.is_some_and(|export| export.is_empty() || export.starts_with("__"))
        };
        let is_listed = |names: &Option<Vec<String>>, is_meant: &dyn Fn(&str) -> bool| {
            let names = names.as_ref();
            names.is_none_or(|names| names.iter().any(|name| is_meant(name)))
        };
        let is_agent = |known: &str| about.agent.is_some_and(|agent| agent.as_str() == known);
        if !is_listed(&self.agents, &is_agent) {
            return Some("its agent is not in `approvals.agents`");
        }
        if !is_listed(&self.kinds, &|known| known == about.kind.word()) {
            return Some("its kind is not in `approvals.kinds`");
        }
        let is_shown = match about.kind {
            DecisionKind::Call(tool) => is_listed(&self.tools, &|known| is_tool(known, tool)),
            DecisionKind::Question
            | DecisionKind::Review
            | DecisionKind::Proposal
            | DecisionKind::Login => true,
        };
        (!is_shown).then_some("its tool is not in `approvals.tools`")
    }

    /// True if a decision that waits since then is shown now, if it was not shown before.
    #[must_use]
    pub fn is_due(&self, since: Timestamp, now: Timestamp) -> bool {
        let waited = now.as_unix_millis().saturating_sub(since.as_unix_millis());
        let is_quiet = self.quiet_hours.as_ref().is_some_and(|it| it.contain(now));
        let has_waited = u64::try_from(waited).unwrap_or_default() >= self.after_ms;
        has_waited && !is_quiet
    }

    /// True if the time determines what is shown.
    #[must_use]
    pub fn has_times(&self) -> bool {
        self.after_ms > 0 || self.quiet_hours.is_some()
    }

    /// The agents that the settings name.
    pub fn agents(&self) -> impl Iterator<Item = &str> {
        self.agents.iter().flatten().map(String::as_str)
    }

    /// The tools and exports that the settings name.
    pub fn tools(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().flatten().map(String::as_str)
    }

    /// True if it shows tool calls.
    #[must_use]
    pub fn shows_calls(&self) -> bool {
        let kinds = self.kinds.as_ref();
        kinds.is_none_or(|kinds| kinds.iter().any(|kind| kind == CALL))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;

    fn chat(connector: &str, config: &Value) -> Option<ApprovalChat> {
        ApprovalChat::of(connector, config.as_object().unwrap())
    }

    fn problems(connector: &str, config: &Value) -> Vec<String> {
        let described = crate::find(connector).unwrap();
        let secrets: BTreeMap<String, String> = match connector {
            "telegram" => [("botToken", "1:x")].as_slice(),
            _ => [("signingSecret", "s")].as_slice(),
        }
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
        let problems = crate::check(described, config.as_object().unwrap(), &secrets);
        problems.iter().map(ToString::to_string).collect()
    }

    fn call(agent: &str, tool: &str) -> DecisionSubject {
        DecisionSubject::Call {
            instance_key: "a".parse().unwrap(),
            agent_name: agent.parse().unwrap(),
            tool_name: tool.to_owned(),
            input: Value::Null,
            may_have_begun: false,
            needs_two: false,
            first_approval: None,
        }
    }

    fn refusal(chat: &ApprovalChat, about: &DecisionSubject) -> Option<&'static str> {
        chat.refusal(DecisionClass::of(about))
    }

    fn review(agent: &str) -> DecisionSubject {
        DecisionSubject::Review(goondan_protocol::decision::DecisionText {
            agent_name: agent.parse().unwrap(),
            of: "task t".to_owned(),
            text: "done".to_owned(),
            command: "task show t".to_owned(),
        })
    }

    #[test]
    fn need_1_a_chat_shows_only_its_kinds_and_tools() {
        let of = |approvals: Value| {
            let mut settings = json!({"chat": 1, "users": [5]});
            let given = approvals.as_object().unwrap().clone();
            settings.as_object_mut().unwrap().extend(given);
            let config = json!({ "approvals": settings });
            assert_eq!(problems("telegram", &config), Vec::<String>::new());
            chat("telegram", &config).unwrap()
        };
        let reviews = of(json!({"kinds": ["question", "review"], "tools": ["bash"]}));
        assert_eq!(refusal(&reviews, &review("a")), None);
        assert!(refusal(&reviews, &call("a", "bash__exec")).is_some());
        let notice = goondan_protocol::decision::DecisionNotice {
            of: "proposal r/w".to_owned(),
            text: "a.txt (added)".to_owned(),
            command: "proposal show r w".to_owned(),
        };
        let proposal = DecisionSubject::Proposal(notice.clone());
        let login = DecisionSubject::Login(notice);
        let logins = of(json!({"kinds": ["login"]}));
        assert_eq!(refusal(&logins, &login), None);
        assert!(refusal(&logins, &proposal).is_some());
        let proposals = of(json!({"kinds": ["proposal"], "tools": ["bash"]}));
        assert_eq!(refusal(&proposals, &proposal), None);
        assert!(refusal(&proposals, &login).is_some());
        let of_agent = of(json!({"agents": ["a"]}));
        assert!(refusal(&of_agent, &proposal).is_some(), "it is of no agent");
        let calls = of(json!({"tools": ["bash", "web__fetch"]}));
        for shown in ["bash", "bash__exec", "web__fetch"] {
            assert_eq!(refusal(&calls, &call("a", shown)), None, "{shown}");
        }
        for other in ["bashful__exec", "web", "web__search", "web__fetcher"] {
            assert!(refusal(&calls, &call("a", other)).is_some(), "{other}");
        }
        assert_eq!(refusal(&calls, &review("a")), None, "it is no call");
        let wrong = json!({"approvals": {"chat": 1, "users": [5], "kinds": ["calls"]}});
        let problems = problems("telegram", &wrong).join("; ");
        assert!(problems.contains("`call`, `question`"), "{problems}");
    }

    #[test]
    fn need_1_a_decision_is_shown_after_its_wait_and_outside_of_quiet_hours() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let settings = json!({"chat": 1, "users": [5], "afterMinutes": 15,
            "quietHours": {"from": "22:00", "until": "07:30", "timeZone": "Asia/Seoul"}});
        let config = json!({ "approvals": settings });
        assert_eq!(problems("telegram", &config), Vec::<String>::new());
        let chat = chat("telegram", &config).unwrap();
        assert!(chat.has_times());
        // Seoul is nine hours ahead.
        let asked = at("2026-03-01T12:40:00.000Z");
        let is_due = |now: &str| chat.is_due(asked, at(now));
        assert!(!is_due("2026-03-01T12:54:59.999Z"));
        assert!(is_due("2026-03-01T12:55:00.000Z"));
        assert!(!is_due("2026-03-01T13:00:00.000Z"), "22:00");
        assert!(!is_due("2026-03-01T22:29:59.999Z"), "07:29");
        assert!(is_due("2026-03-01T22:30:00.000Z"), "07:30");
        // A clock that was set back shows nothing early.
        assert!(!is_due("2026-03-01T11:00:00.000Z"));
        for wrong in ["24:00", "7:30", "07:60", "noon", "07:3", "+7:30"] {
            let quiet = json!({"from": wrong, "until": "08:00"});
            let config = json!({"approvals": {"chat": 1, "users": [5], "quietHours": quiet}});
            let problems = problems("telegram", &config).join("; ");
            assert!(problems.contains("hour and minute"), "{wrong}: {problems}");
        }
        // All hours or none: the meaning is undefined.
        let quiet = json!({"from": "08:00", "until": "08:00"});
        let config = json!({"approvals": {"chat": 1, "users": [5], "quietHours": quiet}});
        assert_eq!(
            problems("telegram", &config),
            ["`approvals.quietHours.until` must be another time than `from`, found \"08:00\""]
        );
    }

    #[test]
    fn steer_3_only_listed_users_may_decide_approvals() {
        let config = json!({"approvals": {"chat": -100, "users": [5, "6"], "agents": ["careful"]}});
        assert_eq!(problems("telegram", &config), Vec::<String>::new());
        let found = chat("telegram", &config).unwrap();
        assert_eq!(found.place, "-100");
        assert!(found.has_user("5") && found.has_user("6") && !found.has_user("7"));
        assert_eq!(refusal(&found, &call("careful", "bash__exec")), None);
        assert!(refusal(&found, &call("other", "bash__exec")).is_some());
        let all = chat(
            "slack",
            &json!({"approvals": {"channel": "C1", "users": ["U1"]}}),
        );
        assert_eq!(refusal(&all.unwrap(), &call("other", "wait")), None);
        for none in [json!({}), json!({"approvals": {"chat": 1}})] {
            assert_eq!(chat("telegram", &none), None);
        }
        // Other connectors ignore the setting.
        assert_eq!(chat("webhook", &config), None);
    }

    #[test]
    fn steer_3_approval_settings_without_users_or_chat_are_rejected() {
        let refused = |connector, approvals: Value| {
            let problems = problems(connector, &json!({ "approvals": approvals }));
            problems.join("; ")
        };
        let empty = refused("telegram", json!({"chat": 1, "users": []}));
        assert!(
            empty.contains("`approvals.users` must be a list, not empty"),
            "{empty}"
        );
        let nobody = refused("telegram", json!({"chat": 1}));
        assert!(nobody.contains("needs the setting `users`"), "{nobody}");
        let nowhere = refused("telegram", json!({"users": [1]}));
        assert!(nowhere.contains("needs the setting `chat`"), "{nowhere}");
        let tokenless = refused("slack", json!({"channel": "C1", "users": ["U1"]}));
        assert!(
            tokenless.contains("the secret `botToken` is missing"),
            "{tokenless}"
        );
    }
}
