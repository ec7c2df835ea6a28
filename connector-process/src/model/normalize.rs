//! Rewrites names, ids and tool results into forms that a provider accepts (pure).
//!
//! A conversation outlives the model that wrote it: another provider may continue it, and input
//! that one server accepts makes another reject each later request with a 400. The stored
//! conversation stays unchanged; only the request is rewritten.
//!
//! * Tool names become `[A-Za-z0-9_-]{1,64}` and begin with a letter or `_`; replies are mapped
//!   back.
//! * Ids of tool calls become unique within the conversation and match the provider's pattern. The
//!   same conversation gets the same ids in each request, so that the provider's cache stays valid.
//! * Each call is immediately followed by exactly one result. A result without a call becomes a
//!   user message.

use std::collections::{BTreeMap, BTreeSet};

use goondan_protocol::definition::{HostedModel, HostedProvider};
use goondan_protocol::ids::ToolCallId;
use goondan_protocol::message::{MessageRole, ToolCall, ToolResult};
use sha2::{Digest as _, Sha256};

use super::message::{ChatMessage, MessagePart};
use super::thoughts::Thoughts;

/// Longest tool name that all providers accept, in bytes.
const TOOL_NAME_BYTES_MAX: usize = 64;

/// Longest call id that all providers accept, in bytes.
const CALL_ID_BYTES_MAX: usize = 40;

/// Mistral accepts ids of exactly this many letters and digits.
const MISTRAL_ID_BYTES: usize = 9;

/// Hexadecimal digits of a digest that distinguish two rewritten names.
const DIGEST_DIGITS: usize = 8;

/// Result of a call whose own result was removed or lost.
const NO_RESULT: &str = "no result of this call is recorded";

/// Tool names of a request, with their mapping back.
#[derive(Debug, Default)]
pub(super) struct ToolNames {
    /// The original of each rewritten name.
    originals: BTreeMap<String, String>,
    /// Names that rewritten ones must not use.
    unchanged: BTreeSet<String>,
}

impl ToolNames {
    /// Reserves the acceptable names of a request's tools, so that a rewritten name never collides
    /// with one.
    pub(super) fn reserving(names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let names = names.into_iter();
        let unchanged = names.filter(|name| is_tool_name(name.as_ref()));
        Self {
            originals: BTreeMap::new(),
            unchanged: unchanged.map(|name| name.as_ref().to_owned()).collect(),
        }
    }

    /// The name in the request. The same name always gives the same result.
    pub(super) fn rewrite(&mut self, name: &str) -> String {
        if is_tool_name(name) {
            return name.to_owned();
        }
        let digest = hex_digest(name, DIGEST_DIGITS);
        let room = TOOL_NAME_BYTES_MAX - DIGEST_DIGITS - 1;
        let mut readable: String = name
            .chars()
            .map(|c| if is_name_char(c) { c } else { '_' })
            .take(room)
            .collect();
        if !readable.starts_with(is_first_name_char) {
            readable.insert(0, '_');
            readable.truncate(room);
        }
        let mut rewritten = format!("{readable}_{digest}");
        while self.unchanged.contains(&rewritten) {
            let digest = hex_digest(&rewritten, DIGEST_DIGITS);
            rewritten = format!("{readable}_{digest}");
        }
        self.originals.insert(rewritten.clone(), name.to_owned());
        rewritten
    }

    /// The original of a name that a model used.
    pub(super) fn original<'n>(&'n self, name: &'n str) -> &'n str {
        let known = self.known(name).or_else(|| {
            let plain = without_decoration(name);
            self.known(plain).or_else(|| self.in_other_case(plain))
        });
        known.unwrap_or(name)
    }

    /// True for the name of a tool of the request.
    pub(super) fn offers(&self, name: &str) -> bool {
        self.known(self.original(name)).is_some() || self.known(name).is_some()
    }

    fn known(&self, name: &str) -> Option<&str> {
        let original = self.originals.get(name).map(String::as_str);
        original.or_else(|| self.unchanged.get(name).map(String::as_str))
    }

    /// The original name, if exactly one name differs only in case.
    fn in_other_case(&self, name: &str) -> Option<&str> {
        let names = self.originals.keys().chain(&self.unchanged);
        let mut found = names.filter(|known| known.eq_ignore_ascii_case(name));
        let only = found.next().filter(|_| found.next().is_none())?;
        self.known(only)
    }
}

/// Namespaces in which models were trained to call tools.
const NAMESPACES: &[&str] = &["functions", "default_api", "tools"];

/// A name without parts of the model's template: a namespace (`functions.t`, `default_api:t`),
/// control tokens (`t<|channel|>json`), and the number of the call (`t:0`).
fn without_decoration(name: &str) -> &str {
    let mut plain = name.trim();
    if let Some((before, _)) = plain.split_once("<|") {
        plain = before.trim_end();
    }
    for namespace in NAMESPACES {
        let rest = plain.strip_prefix(namespace);
        if let Some(rest) = rest.and_then(|rest| rest.strip_prefix(['.', ':'])) {
            plain = rest;
        }
    }
    match plain.rsplit_once(':') {
        Some((before, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => before,
        Some(_) | None => plain,
    }
}

fn is_first_name_char(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn is_tool_name(name: &str) -> bool {
    name.len() <= TOOL_NAME_BYTES_MAX
        && name.starts_with(is_first_name_char)
        && name.chars().all(is_name_char)
}

/// The form that a provider demands of a call's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IdForm {
    /// `[A-Za-z0-9_-]`, at most [`CALL_ID_BYTES_MAX`].
    Usual,
    /// Exactly [`MISTRAL_ID_BYTES`] letters and digits.
    Mistral,
}

impl IdForm {
    fn of(model: &HostedModel) -> Self {
        let names_mistral = |text: &str| text.contains("mistral");
        let is_mistral = model.provider == HostedProvider::OpenAi
            && (model.endpoint.as_deref().is_some_and(names_mistral)
                || names_mistral(&model.model.to_lowercase()));
        if is_mistral {
            Self::Mistral
        } else {
            Self::Usual
        }
    }

    fn accepts(self, id: &str) -> bool {
        match self {
            Self::Usual => {
                !id.is_empty() && id.len() <= CALL_ID_BYTES_MAX && id.chars().all(is_name_char)
            }
            Self::Mistral => {
                id.len() == MISTRAL_ID_BYTES && id.chars().all(|c| c.is_ascii_alphanumeric())
            }
        }
    }

    /// An acceptable id for the `nth` call made under this id.
    fn derive(self, id: &str, nth: usize) -> String {
        let seed = format!("{id}\n{nth}");
        match self {
            Self::Usual => format!("call_{}", hex_digest(&seed, 24)),
            Self::Mistral => hex_digest(&seed, MISTRAL_ID_BYTES),
        }
    }
}

fn hex_digest(text: &str, digits: usize) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    hex.chars().take(digits).collect()
}

/// Rewrites a conversation for a model.
pub(super) fn conversation(
    model: &HostedModel,
    mut messages: Vec<ChatMessage>,
    names: &mut ToolNames,
) -> Vec<ChatMessage> {
    rename_calls(IdForm::of(model), &mut messages, names);
    pair_results(messages)
}

/// Gives each call an acceptable, unique id, and its result the same id.
fn rename_calls(form: IdForm, messages: &mut [ChatMessage], names: &mut ToolNames) {
    let mut uses: BTreeMap<String, usize> = BTreeMap::new();
    let mut taken: BTreeSet<String> = BTreeSet::new();
    // Request id of the latest call, by stored id.
    let mut current: BTreeMap<String, ToolCallId> = BTreeMap::new();
    for message in messages {
        let mut renamed = Vec::with_capacity(message.calls.len());
        for call in &mut message.calls {
            let nth = uses.entry(call.id.as_str().to_owned()).or_default();
            let mut id = if form.accepts(call.id.as_str()) && !taken.contains(call.id.as_str()) {
                call.id.as_str().to_owned()
            } else {
                form.derive(call.id.as_str(), *nth)
            };
            while taken.contains(&id) {
                *nth += 1;
                id = form.derive(call.id.as_str(), *nth);
            }
            *nth += 1;
            taken.insert(id.clone());
            // A derived id is always valid.
            let id = ToolCallId::new(id).unwrap_or_else(|_| call.id.clone());
            current.insert(call.id.as_str().to_owned(), id.clone());
            renamed.push((call.id.clone(), id.clone()));
            call.id = id;
            call.tool_name = names.rewrite(&call.tool_name);
        }
        if let Some(thoughts) = &mut message.thoughts {
            rename_signatures(thoughts, &renamed);
        }
        for result in &mut message.results {
            if let Some(id) = current.get(result.tool_call_id.as_str()) {
                result.tool_call_id = id.clone();
            }
            result.tool_name = names.rewrite(&result.tool_name);
        }
    }
}

fn rename_signatures(thoughts: &mut Thoughts, renamed: &[(ToolCallId, ToolCallId)]) {
    for (stored, sent) in renamed {
        if stored != sent
            && let Some(signature) = thoughts.signatures.remove(stored.as_str())
        {
            thoughts
                .signatures
                .insert(sent.as_str().to_owned(), signature);
        }
    }
}

/// Moves the result of each call directly behind it, in the order of the calls. Providers reject a
/// call without a result, and some match results by position only.
fn pair_results(messages: Vec<ChatMessage>) -> Vec<ChatMessage> {
    let calls = messages.iter().flat_map(|message| &message.calls);
    let called: BTreeSet<ToolCallId> = calls.map(|call| call.id.clone()).collect();
    let mut results: BTreeMap<ToolCallId, ToolResult> = BTreeMap::new();
    let mut rest = Vec::with_capacity(messages.len());
    for mut message in messages {
        if message.results.is_empty() {
            rest.push(message);
            continue;
        }
        let mut orphans = Vec::new();
        for result in std::mem::take(&mut message.results) {
            if called.contains(&result.tool_call_id) {
                results.entry(result.tool_call_id.clone()).or_insert(result);
            } else {
                orphans.push(MessagePart::Text(format!(
                    "Result of an earlier call of `{}`: {}",
                    result.tool_name, result.text
                )));
            }
        }
        message.parts.extend(orphans);
        if !message.parts.is_empty() {
            message.role = MessageRole::User;
            rest.push(message);
        }
    }
    let mut paired = Vec::with_capacity(rest.len());
    for message in rest {
        let calls = message.calls.clone();
        paired.push(message);
        for call in calls {
            let result = results.remove(&call.id);
            paired.push(ChatMessage {
                role: MessageRole::Tool,
                parts: Vec::new(),
                calls: Vec::new(),
                results: vec![result.unwrap_or_else(|| no_result(call))],
                thoughts: None,
            });
        }
    }
    paired
}

fn no_result(call: ToolCall) -> ToolResult {
    ToolResult {
        tool_call_id: call.id,
        tool_name: call.tool_name,
        text: NO_RESULT.to_owned(),
        is_error: true,
        images: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use goondan_protocol::call::CompletionRequest;
    use serde_json::{Value, json};

    use super::*;
    use crate::model::question::ChatRequest;

    fn model(provider: &str, name: &str) -> HostedModel {
        serde_json::from_value(json!({"name": "m", "provider": provider, "model": name})).unwrap()
    }

    fn call(id: &str, tool: &str) -> Value {
        json!({"type": "tool-call", "toolCallId": id, "toolName": tool, "input": {}})
    }

    fn result(id: &str, tool: &str) -> Value {
        json!({"role": "tool", "content": [{"type": "tool-result", "toolCallId": id, "toolName": tool,
            "output": {"type": "text", "value": id}}]})
    }

    fn ask(model: &HostedModel, messages: &Value) -> ChatRequest {
        let completion: CompletionRequest =
            serde_json::from_value(json!({"messages": messages})).unwrap();
        ChatRequest::of(model, completion)
    }

    fn ids(question: &ChatRequest) -> (Vec<String>, Vec<String>) {
        let calls = question.messages.iter().flat_map(|said| &said.calls);
        let results = question.messages.iter().flat_map(|said| &said.results);
        (
            calls.map(|call| call.id.to_string()).collect(),
            results
                .map(|result| result.tool_call_id.to_string())
                .collect(),
        )
    }

    #[test]
    fn prov_1_call_ids_fit_each_provider_and_stay_the_same() {
        let messages = json!([
            {"role": "user", "content": "Go."},
            {"role": "assistant", "content": [call("functions.count:0", "t"), call("k1", "t")]},
            result("functions.count:0", "t"), result("k1", "t"),
            {"role": "assistant", "content": [call("functions.count:0", "t")]},
            result("functions.count:0", "t"),
        ]);
        for (provider, name, form) in [
            ("openai", "gpt-5", IdForm::Usual),
            ("anthropic", "claude", IdForm::Usual),
            ("openai", "mistral-large", IdForm::Mistral),
        ] {
            let model = model(provider, name);
            let (calls, results) = ids(&ask(&model, &messages));
            assert_eq!(calls, results, "{name}");
            assert!(calls.iter().all(|id| form.accepts(id)), "{calls:?}");
            let distinct: BTreeSet<_> = calls.iter().collect();
            assert_eq!(distinct.len(), 3, "{calls:?}");
            assert_eq!(ids(&ask(&model, &messages)).0, calls, "{name}");
        }
        assert_eq!(
            ids(&ask(&model("anthropic", "claude"), &messages)).0[1],
            "k1"
        );
    }

    #[test]
    fn prov_1_every_call_has_one_result_behind_it() {
        let question = ask(
            &model("openai", "gpt-5"),
            &json!([
                {"role": "user", "content": "Go."},
                result("lost", "t"),
                {"role": "assistant", "content": [call("a", "t"), call("b", "t")]},
                result("b", "t"), result("b", "t"),
                {"role": "user", "content": "Well?"},
                result("a", "t"),
                {"role": "assistant", "content": [call("c", "t")]},
            ]),
        );
        let (calls, results) = ids(&question);
        assert_eq!((calls, results.len()), (results.clone(), 3));
        let roles: Vec<MessageRole> = question.messages.iter().map(|said| said.role).collect();
        let (user, assistant, tool) =
            (MessageRole::User, MessageRole::Assistant, MessageRole::Tool);
        assert_eq!(
            roles,
            [user, user, assistant, tool, tool, user, assistant, tool]
        );
        assert!(question.messages[1].text().contains("`t`: lost"));
        assert_eq!(question.messages[7].results[0].text, NO_RESULT);
    }

    #[test]
    fn prov_1_tool_names_are_rewritten_and_mapped_back() {
        let long = "n".repeat(95);
        let mut names = ToolNames::reserving(["box__fine", long.as_str()]);
        let mut seen = BTreeSet::new();
        for name in ["", "9lives", "a b", "a.b", "a_b", "고양이", &long] {
            let rewritten = names.rewrite(name);
            assert!(is_tool_name(&rewritten), "{rewritten}");
            assert_eq!(names.rewrite(name), rewritten);
            assert_eq!(names.original(&rewritten), name);
            assert!(seen.insert(rewritten), "{name}");
        }
        assert_eq!(names.rewrite("box__fine"), "box__fine");
        assert_eq!(names.original("unknown"), "unknown");
    }

    #[test]
    fn prov_1_decorated_tool_names_mean_the_offered_tool() {
        let mut names = ToolNames::reserving(["read_file", "bash", "Case", "case", "tools"]);
        names.rewrite("a.b");
        for (said, expected) in [
            ("functions.read_file", "read_file"),
            ("functions.read_file:0", "read_file"),
            ("default_api:bash", "bash"),
            ("default_api.bash", "bash"),
            ("read_file<|channel|>commentary", "read_file"),
            ("bash <|constrain|>json", "bash"),
            (" bash\n", "bash"),
            ("Read_File", "read_file"),
            ("tools", "tools"),
            ("case", "case"),
            // Ambiguous.
            ("CASE", "CASE"),
            (
                "assistant<|channel|>analysis",
                "assistant<|channel|>analysis",
            ),
            ("functions.", "functions."),
            ("other", "other"),
            ("", ""),
        ] {
            assert_eq!(names.original(said), expected, "{said}");
        }
    }

    #[test]
    fn prov_1_rewritten_tool_name_never_collides_with_a_real_one() {
        let rewritten = ToolNames::default().rewrite("a b");
        let mut names = ToolNames::reserving([rewritten.as_str()]);
        let other = names.rewrite("a b");
        assert_ne!(other, rewritten);
        assert_eq!(names.original(&rewritten), rewritten);
        assert_eq!(names.original(&other), "a b");
    }
}
