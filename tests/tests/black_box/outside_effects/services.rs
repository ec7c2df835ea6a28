//! Doubles of services that count effects.
//!
//! `slack` lists messages with their metadata, `github` lists comments, `orders` finds an order by
//! its key, and `payments` and `discord` recognize a repeated key. Each is as strict as the real
//! one: a second request with the same content is a second effect, except with a recognized key.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use goondan_tests::provider::{Provider, ProviderResponse, ReceivedRequest, ResponseEnd};
use serde_json::{Value, json};

/// Connections to the doubles, which have their names.
pub(super) const SERVICES: [&str; 5] = ["slack", "github", "orders", "payments", "discord"];

const COMMENTS: &str = "/github/repos/acme/shop/issues/7/comments";

/// Number of the first effect, so that no number is a part of another.
const FIRST_NUMBER: usize = 100_000;

/// Handling of the first request for an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// It is lost before it takes effect.
    Before,
    /// It takes effect and is never answered.
    Unanswered,
    /// It takes effect and is answered.
    Answered,
    /// It takes effect when the test says so, as a request in transit, and is never answered.
    Late,
}

impl Moment {
    pub(super) const ALL: [Self; 4] = [Self::Before, Self::Unanswered, Self::Answered, Self::Late];
}

/// An effect at a service.
#[derive(Debug, Clone)]
pub(super) struct Effect {
    /// Id that the test chose.
    pub(super) id: String,
    /// Identifies it at the service.
    pub(super) name: String,
    number: usize,
    key: String,
    body: Value,
}

/// A request to a service, before its effect.
#[derive(Debug, Clone)]
struct Order {
    service: &'static str,
    id: String,
    key: String,
    body: Value,
}

#[derive(Debug, Default)]
struct State {
    /// Handling of first requests that have not arrived yet, by id of the effect.
    expected: BTreeMap<String, Moment>,
    /// Requests that take effect late.
    in_transit: Vec<Order>,
    effects: BTreeMap<&'static str, Vec<Effect>>,
}

/// All doubles, at one address.
pub(super) struct Services {
    provider: Provider,
    state: Arc<Mutex<State>>,
}

impl Services {
    pub(super) fn start() -> Self {
        let state = Arc::<Mutex<State>>::default();
        let shared = Arc::clone(&state);
        let provider = Provider::start(move |request| shared.lock().unwrap().answer(request));
        Self { provider, state }
    }

    pub(super) fn root(&self) -> String {
        self.provider.root()
    }

    /// Determines the handling of the first request for an effect.
    pub(super) fn expect(&self, id: &str, moment: Moment) {
        let mut state = self.state.lock().unwrap();
        state.expected.insert(id.to_owned(), moment);
    }

    /// True if the first request for an effect has arrived.
    pub(super) fn has_arrived(&self, id: &str) -> bool {
        !self.state.lock().unwrap().expected.contains_key(id)
    }

    /// Lets requests in transit take effect.
    pub(super) fn deliver(&self) {
        let mut state = self.state.lock().unwrap();
        for order in std::mem::take(&mut state.in_transit) {
            state.perform(order);
        }
    }

    /// Effects with an id, of all services.
    pub(super) fn effects(&self, id: &str) -> Vec<Effect> {
        let state = self.state.lock().unwrap();
        let all = state.effects.values().flatten();
        all.filter(|effect| effect.id == id).cloned().collect()
    }

    /// Number of effects of a service.
    pub(super) fn count(&self, service: &str) -> usize {
        let state = self.state.lock().unwrap();
        state.effects.get(service).map_or(0, Vec::len)
    }
}

impl State {
    fn answer(&mut self, request: &ReceivedRequest) -> ProviderResponse {
        let path = request.path.split('?').next().unwrap();
        let body = &request.body;
        let key = |key: &Value| key.as_str().unwrap().to_owned();
        let header = || request.header("idempotency-key").unwrap().to_owned();
        match (request.method.as_str(), path) {
            ("POST", "/slack/auth.test") => {
                ProviderResponse::json(&json!({"ok": true, "user": "clerk", "team": "Acme"}))
            }
            ("GET", "/github/rate_limit") => ProviderResponse::json(&json!({})),
            ("GET", "/discord/users/@me") => ProviderResponse::json(&json!({"username": "clerk"})),
            ("GET", "/slack/conversations.history") => self.slack_history(request),
            ("GET", COMMENTS) => self.github_comments(request),
            ("POST", "/slack/chat.postMessage") => {
                let marked = key(&body["metadata"]["event_payload"]["key"]);
                self.receive("slack", &body["text"], marked, body)
            }
            ("POST", COMMENTS) => self.receive("github", &body["body"], String::new(), body),
            ("POST", "/discord/channels/12/messages") => {
                assert_eq!(body["enforce_nonce"], true);
                self.receive("discord", &body["content"], key(&body["nonce"]), body)
            }
            ("POST", "/orders") => self.receive("orders", &body["text"], header(), body),
            ("POST", "/payments") => self.receive("payments", &body["text"], header(), body),
            ("GET", path) => match path.strip_prefix("/orders/") {
                Some(key) => self.order_of(key),
                None => nothing(),
            },
            _ => nothing(),
        }
    }

    /// A request that has an effect. Its text is `effect` and the id.
    fn receive(
        &mut self,
        service: &'static str,
        text: &Value,
        key: String,
        body: &Value,
    ) -> ProviderResponse {
        let id = text.as_str().unwrap().split_whitespace().nth(1).unwrap();
        let order = Order {
            service,
            id: id.to_owned(),
            key,
            body: body.clone(),
        };
        match self.expected.remove(id) {
            Some(Moment::Before) => silence(),
            Some(Moment::Late) => {
                self.in_transit.push(order);
                silence()
            }
            Some(Moment::Unanswered) => {
                self.perform(order);
                silence()
            }
            Some(Moment::Answered) | None => self.perform(order),
        }
    }

    fn perform(&mut self, order: Order) -> ProviderResponse {
        let number = FIRST_NUMBER + self.effects.values().map(Vec::len).sum::<usize>();
        let effects = self.effects.entry(order.service).or_default();
        let recognizes_keys = matches!(order.service, "payments" | "discord");
        let earlier = effects.iter().find(|effect| effect.key == order.key);
        if let Some(earlier) = earlier.filter(|_| recognizes_keys) {
            return shown(order.service, earlier);
        }
        let name = match order.service {
            "slack" => format!("{}.{number}", now_s()),
            _ => number.to_string(),
        };
        let effect = Effect {
            id: order.id,
            name,
            number,
            key: order.key,
            body: order.body,
        };
        let answer = shown(order.service, &effect);
        effects.push(effect);
        answer
    }

    fn of(&self, service: &str) -> &[Effect] {
        self.effects.get(service).map_or(&[], Vec::as_slice)
    }

    /// Messages since `oldest`, the latest first.
    fn slack_history(&self, request: &ReceivedRequest) -> ProviderResponse {
        let oldest: f64 = parameter(request, "oldest").parse().unwrap();
        let limit: usize = parameter(request, "limit").parse().unwrap();
        let has_metadata = parameter(request, "include_all_metadata") == "true";
        let since = self.of("slack").iter().rev();
        let since = since.filter(|effect| effect.name.parse::<f64>().unwrap() >= oldest);
        let message = |effect: &Effect| {
            let mut message = json!({"type": "message", "bot_id": "B1", "ts": effect.name,
                "text": effect.body["text"]});
            if has_metadata {
                message["metadata"] = effect.body["metadata"].clone();
            }
            message
        };
        let messages: Vec<Value> = since.take(limit).map(message).collect();
        let next = json!({"next_cursor": ""});
        ProviderResponse::json(
            &json!({"ok": true, "messages": messages, "response_metadata": next}),
        )
    }

    /// A page of comments, the earliest first.
    fn github_comments(&self, request: &ReceivedRequest) -> ProviderResponse {
        let number = |name| parameter(request, name).parse::<usize>().unwrap();
        let comments = self.of("github").iter();
        let page = comments.skip((number("page") - 1) * number("per_page"));
        let comment = |effect: &Effect| json!({"id": effect.number, "body": effect.body["body"]});
        let page: Value = page.take(number("per_page")).map(comment).collect();
        ProviderResponse::json(&page)
    }

    fn order_of(&self, key: &str) -> ProviderResponse {
        let mut orders = self.of("orders").iter();
        let order = orders.find(|effect| effect.key == key);
        order.map_or_else(nothing, |order| shown("orders", order))
    }
}

/// A service's answer to the request with this effect.
fn shown(service: &str, effect: &Effect) -> ProviderResponse {
    match service {
        "slack" => ProviderResponse::json(&json!({"ok": true, "ts": effect.name})),
        "github" => ProviderResponse::error(201, &json!({"id": effect.number})),
        "discord" => ProviderResponse::json(&json!({"id": effect.name})),
        _ => ProviderResponse::json(&json!({"number": effect.number})),
    }
}

/// An answer that never ends.
fn silence() -> ProviderResponse {
    let mut silence = ProviderResponse::json(&Value::Null).ending(ResponseEnd::Silent);
    silence.chunks.clear();
    silence
}

fn nothing() -> ProviderResponse {
    ProviderResponse::error(404, &json!({"message": "Not Found"}))
}

/// A parameter of the request's URL.
fn parameter<'r>(request: &'r ReceivedRequest, name: &str) -> &'r str {
    let (_, query) = request.path.split_once('?').unwrap();
    let mut parameters = query.split('&').filter_map(|it| it.split_once('='));
    let found = parameters.find(|(found, _)| *found == name);
    found.unwrap_or_else(|| panic!("no {name} in {query}")).1
}

fn now_s() -> u64 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_secs()
}
