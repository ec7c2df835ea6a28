//! Repairs of a request that a provider rejects with a 400 (pure).
//!
//! Requests are normalized before they are sent, but each provider and model rejects something
//! else. One rejected tool, parameter or old message must not end a conversation, so the smallest
//! part that the error names is changed, and the request is sent again. The stored conversation
//! stays unchanged.

use std::collections::BTreeSet;

use goondan_protocol::definition::HostedModel;
use goondan_protocol::message::MessageRole;
use serde_json::Value;

use super::message::{ChatMessage, MessagePart};
use super::question::{ChatRequest, arguments, result_text};

/// Text in place of an image that the model does not accept.
const NO_IMAGE: &str = "[image left out: the model does not accept images]";

/// Fields that can be left out, in all protocols.
const FIELDS: &[&str] = &[
    "temperature",
    "top_p",
    "topP",
    "seed",
    "stop",
    "stop_sequences",
    "stopSequences",
    "stream_options",
    "reasoning_effort",
    "reasoning.summary",
    "reasoning.effort",
    "thinking",
    "output_config",
    "thinkingConfig",
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
];

/// Rejections in lower case that do not name the field, or name one that is also a word, with the
/// field.
const UNNAMED_FIELDS: &[(&str, &str)] = &[
    ("encrypted content is not supported", "include"),
    ("parameter: 'include'", "include"),
    ("parameter: 'reasoning'", "reasoning"),
    ("thinking is not supported", "thinkingConfig"),
    ("thinking level", "thinkingConfig"),
    ("thinking_level", "thinkingConfig"),
    ("thinking budget", "thinkingConfig"),
    ("thinking_budget", "thinkingConfig"),
    (
        "must be verified to generate reasoning summaries",
        "reasoning.summary",
    ),
];

/// Words by which a provider says that it does not know a field, in lower case.
const UNSUPPORTED: &[&str] = &[
    "unsupported",
    "not supported",
    "not support",
    "unrecognized",
    "unknown",
    "not permitted",
    "not allowed",
    "extra inputs",
    "unexpected",
    "deprecated",
    "cannot find field",
    "cannot both be specified",
    "is allowed for this model",
    "must be one of",
];

/// Changes of a Model's requests that its provider made necessary.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Repairs {
    fields: BTreeSet<&'static str>,
    tools: BTreeSet<String>,
    tools_max: Option<usize>,
    /// Most characters of a tool's description.
    description_max: Option<usize>,
    has_no_images: bool,
    has_no_thoughts: bool,
    has_no_old_calls: bool,
    has_no_system: bool,
    shows_thoughts: bool,
    signs_calls: bool,
}

/// Rejections of chat templates that allow only the user's and the model's messages in turn, in
/// lower case.
const ONLY_TURNS: &[&str] = &[
    "must alternate",
    "system role",
    "system message must be",
    "system messages must be",
    "only user and assistant roles",
    "only user, assistant and tool roles",
];

/// Words by which a server demands the thoughts of earlier messages, in lower case.
const DEMANDS: &[&str] = &["must be passed back", "missing", "required", "must contain"];

impl Repairs {
    /// Adds the smallest change that the rejection suggests; returns its description, or `None`
    /// without one.
    pub(super) fn add(
        &mut self,
        model: &HostedModel,
        question: &ChatRequest,
        rejection: &str,
    ) -> Option<String> {
        let lower = rejection.to_lowercase();
        let mentions = |words: &[&str]| words.iter().any(|word| lower.contains(word));
        if mentions(UNSUPPORTED)
            && let Some(field) = self.named_field(model, rejection)
        {
            self.fields.insert(field);
            return Some(format!("left out the field `{field}`"));
        }
        let unnamed = UNNAMED_FIELDS
            .iter()
            .find(|(words, _)| lower.contains(words));
        if let Some((_, field)) = unnamed.filter(|(_, field)| !self.fields.contains(field)) {
            self.fields.insert(field);
            return Some(format!("left out the field `{field}`"));
        }
        if mentions(ONLY_TURNS) && !self.has_no_system {
            self.has_no_system = true;
            return Some("showed system messages as the user's, and joined messages".to_owned());
        }
        if lower.contains("thought_signature") && !question.signs_calls {
            self.signs_calls = true;
            return Some("signed earlier calls".to_owned());
        }
        if lower.contains("reasoning_content") && mentions(DEMANDS) && !self.shows_thoughts {
            self.shows_thoughts = true;
            return Some("sent earlier thoughts".to_owned());
        }
        let most =
            number_after(&lower, "maximum length ").filter(|_| lower.contains("description"));
        if let Some(most) = most.filter(|most| self.description_max.is_none_or(|held| *most < held))
        {
            self.description_max = Some(most);
            return Some(format!(
                "shortened the descriptions of tools to {most} characters"
            ));
        }
        if let Some(most) = most_tools(&lower).filter(|most| *most < question.tools.len()) {
            self.tools_max = Some(most);
            let left_out = question.tools.iter().skip(most);
            let names: Vec<&str> = left_out.map(|tool| tool.name.as_str()).collect();
            return Some(format!(
                "left out the tools after the first {most} ({}); use the extension `tool-search`",
                names.join(", ")
            ));
        }
        if let Some(tool) = named_tool(question, rejection) {
            self.tools.insert(tool.to_owned());
            return Some(format!("left out the tool `{tool}`"));
        }
        let has_images = question.messages.iter().any(has_image);
        if has_images && !self.has_no_images && mentions(&["image", "vision", "multimodal"]) {
            self.has_no_images = true;
            return Some("left out images".to_owned());
        }
        let has_thoughts = question.messages.iter().any(|said| said.thoughts.is_some());
        let is_about_thoughts = mentions(&["thinking", "signature", "thought", "reasoning"]);
        if has_thoughts && !self.has_no_thoughts && is_about_thoughts {
            self.has_no_thoughts = true;
            return Some("left out earlier thoughts".to_owned());
        }
        let place = question.place_of_steps();
        let mut old = question.messages.iter().take(place);
        let has_old_calls = old.any(|said| !said.calls.is_empty());
        let is_about_calls = mentions(&["tool", "function", "messages", "role", "contents"]);
        if has_old_calls && !self.has_no_old_calls && is_about_calls {
            self.has_no_old_calls = true;
            return Some("showed earlier tool calls as text".to_owned());
        }
        None
    }

    fn named_field(&self, model: &HostedModel, rejection: &str) -> Option<&'static str> {
        let mut fields = FIELDS.iter().copied();
        fields.find(|field| {
            let is_known = self.fields.contains(field) || model.options.contains_key(*field);
            // "Use 'max_completion_tokens' instead" names the field to use.
            let is_advice =
                *field == "max_completion_tokens" && contains_word(rejection, "max_tokens");
            contains_word(rejection, field) && !is_known && !is_advice
        })
    }

    /// Changes a request.
    pub(super) fn apply(&self, question: &mut ChatRequest) {
        question
            .tools
            .retain(|tool| !self.tools.contains(&tool.name));
        question
            .tools
            .truncate(self.tools_max.unwrap_or(usize::MAX));
        if let Some(most) = self.description_max {
            for tool in &mut question.tools {
                tool.description = tool.description.chars().take(most).collect();
            }
        }
        question.shows_thoughts |= self.shows_thoughts;
        question.signs_calls |= self.signs_calls;
        if self.has_no_system {
            show_system_as_user(question);
        }
        let place = question.place_of_steps();
        for (at, said) in question.messages.iter_mut().enumerate() {
            if self.has_no_images {
                leave_out_images(said);
            }
            if self.has_no_thoughts {
                said.thoughts = None;
            }
            if self.has_no_old_calls && at < place {
                show_calls_as_text(said);
            }
        }
    }

    /// Changes a request's body.
    pub(super) fn apply_to_body(&self, body: &mut Value) {
        let renamed = body.get("max_tokens").cloned();
        remove(body, &self.fields);
        if let Some(config) = body.get_mut("generationConfig") {
            remove(config, &self.fields);
        }
        // Newer models of OpenAI's protocol have another name for it.
        if let (true, Some(tokens), Some(fields)) = (
            self.fields.contains("max_tokens"),
            renamed,
            body.as_object_mut(),
        ) {
            fields.insert("max_completion_tokens".to_owned(), tokens);
        }
    }
}

/// Removes fields; `a.b` is the field `b` within `a`.
fn remove(object: &mut Value, names: &BTreeSet<&'static str>) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    fields.retain(|name, _| !names.contains(name.as_str()));
    for (outer, inner) in names.iter().filter_map(|name| name.split_once('.')) {
        if let Some(Value::Object(within)) = fields.get_mut(outer) {
            within.remove(inner);
            if within.is_empty() {
                fields.remove(outer);
            }
        }
    }
}

/// True if a text contains a word, not as a part of a longer one.
fn contains_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let before = text.get(..at).and_then(|text| text.chars().next_back());
        let behind = text
            .get(at + word.len()..)
            .and_then(|text| text.chars().next());
        !before.is_some_and(is_part) && !behind.is_some_and(is_part)
    })
}

/// The tool that a rejection names, or gives the position of: `tools[3]`, `tools.3.custom`.
fn named_tool<'q>(question: &'q ChatRequest, rejection: &str) -> Option<&'q str> {
    let mut tools = question.tools.iter().map(|tool| tool.name.as_str());
    let by_name = tools.find(|name| contains_word(rejection, name));
    by_name.or_else(|| {
        let marks = ["tools[", "tools.", "function_declarations[", "functions["];
        let place = marks
            .iter()
            .find_map(|mark| number_after(rejection, mark))?;
        // Google's errors name the list of tools first: `tools[0].function_declarations[3]`.
        let inner = number_after(rejection, "function_declarations[");
        let tool = question.tools.get(inner.unwrap_or(place))?;
        Some(tool.name.as_str())
    })
}

/// The number of tools that a provider accepts.
fn most_tools(lower: &str) -> Option<usize> {
    if !lower.contains("tool") && !lower.contains("function") {
        return None;
    }
    let marks = [
        "maximum length ",
        "at most ",
        "maximum of ",
        "limit of ",
        "limit is ",
        "exceeds ",
    ];
    marks.iter().find_map(|mark| number_after(lower, mark))
}

fn number_after(text: &str, mark: &str) -> Option<usize> {
    let (_, rest) = text.split_once(mark)?;
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    rest.get(..end)?.parse().ok()
}

fn has_image(said: &ChatMessage) -> bool {
    !said.is_text() || said.results.iter().any(|result| !result.images.is_empty())
}

fn leave_out_images(said: &mut ChatMessage) {
    for part in &mut said.parts {
        if matches!(part, MessagePart::Image(_)) {
            *part = MessagePart::Text(NO_IMAGE.to_owned());
        }
    }
    for result in &mut said.results {
        if !std::mem::take(&mut result.images).is_empty() {
            result.text.push('\n');
            result.text.push_str(NO_IMAGE);
        }
    }
}

/// Turns the system prompt and system messages into text of the user, and joins messages of the
/// same side.
fn show_system_as_user(question: &mut ChatRequest) {
    let of_user = |parts: Vec<MessagePart>| ChatMessage {
        role: MessageRole::User,
        parts,
        calls: Vec::new(),
        results: Vec::new(),
        thoughts: None,
    };
    let marked = |text: &str| MessagePart::Text(format!("<system>\n{text}\n</system>\n\n"));
    let mut turns: Vec<ChatMessage> = Vec::new();
    let prompt = question.system.take();
    turns.extend(prompt.map(|system| of_user(vec![marked(&system)])));
    for said in std::mem::take(&mut question.messages) {
        let said = match said.role {
            MessageRole::System => of_user(vec![marked(&said.text())]),
            MessageRole::User | MessageRole::Assistant | MessageRole::Tool => said,
        };
        match turns.last_mut() {
            Some(last) if last.role == said.role && is_joinable(last) && is_joinable(&said) => {
                last.parts.extend(said.parts);
            }
            Some(_) | None => turns.push(said),
        }
    }
    question.messages = turns;
}

/// True if a message consists of texts and images only.
fn is_joinable(said: &ChatMessage) -> bool {
    said.calls.is_empty() && said.results.is_empty() && said.thoughts.is_none()
}

fn show_calls_as_text(said: &mut ChatMessage) {
    for call in std::mem::take(&mut said.calls) {
        let text = format!("[called {} with {}]", call.tool_name, arguments(&call));
        said.parts.push(MessagePart::Text(text));
    }
    for result in std::mem::take(&mut said.results) {
        let text = format!("[{} returned: {}]", result.tool_name, result_text(&result));
        said.parts.push(MessagePart::Text(text));
        said.role = MessageRole::User;
    }
    said.thoughts = None;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn model() -> HostedModel {
        serde_json::from_value(json!({"name": "m", "provider": "openai", "model": "m",
            "options": {"seed": 1}}))
        .unwrap()
    }

    fn question() -> ChatRequest {
        let image = json!({"type": "image", "image": "AAAA", "mediaType": "image/png"});
        let call = json!({"type": "tool-call", "toolCallId": "k", "toolName": "t", "input": {}});
        let result = json!({"type": "tool-result", "toolCallId": "k", "toolName": "t",
            "output": {"type": "text", "value": "done"}});
        let completion = json!({
            "messages": [
                {"role": "user", "content": [image, {"type": "text", "text": "Go."}]},
                {"role": "assistant", "content": [call]},
                {"role": "tool", "content": [result]},
                {"role": "assistant", "content": "Done."},
                {"role": "user", "content": "Again."},
            ],
            "tools": (0..5).map(|n| json!({"name": format!("tool{n}"), "description": "d",
                "parameters": {}})).collect::<Vec<_>>(),
        });
        ChatRequest::of(&model(), serde_json::from_value(completion).unwrap())
    }

    #[test]
    fn prov_1_a_rejection_leads_to_the_smallest_repair() {
        for (rejection, expected) in [
            (
                "Unsupported parameter: 'temperature' is not supported with this model.",
                "left out the field `temperature`",
            ),
            (
                "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
                "left out the field `max_tokens`",
            ),
            (
                "Unknown name \"thinkingConfig\" at 'generation_config': Cannot find field.",
                "left out the field `thinkingConfig`",
            ),
            (
                "Invalid 'tools': array too long. Expected an array with maximum length 3, but got 5",
                "left out the tools after the first 3 (tool3, tool4); use the extension `tool-search`",
            ),
            (
                "Invalid 'tools[0].function.description': string too long. Expected a string with \
                 maximum length 1024, but got a string with length 1301 instead.",
                "shortened the descriptions of tools to 1024 characters",
            ),
            (
                "Invalid schema for function 'tool2': None is not of type 'object'",
                "left out the tool `tool2`",
            ),
            (
                "tools.4.custom.input_schema: JSON schema is invalid",
                "left out the tool `tool4`",
            ),
            (
                "* GenerateContentRequest.tools[0].function_declarations[1].parameters: bad type",
                "left out the tool `tool1`",
            ),
            (
                "Your organization must be verified to generate reasoning summaries.",
                "left out the field `reasoning.summary`",
            ),
            (
                "Encrypted content is not supported with this model.",
                "left out the field `include`",
            ),
            (
                "Unsupported parameter: 'reasoning.effort' is not supported with this model.",
                "left out the field `reasoning.effort`",
            ),
            (
                "`temperature` and `top_p` cannot both be specified for this model. Please use only \
                 one.",
                "left out the field `temperature`",
            ),
            (
                "invalid temperature: only 1 is allowed for this model",
                "left out the field `temperature`",
            ),
            (
                "`reasoning_effort` must be one of `none` or `default`",
                "left out the field `reasoning_effort`",
            ),
            (
                "Thinking level is not supported for this model.",
                "left out the field `thinkingConfig`",
            ),
            ("This model does not accept image input", "left out images"),
            (
                "Function call is missing a thought_signature in functionCall parts. Additional \
                 data, function call `default_api:tool2` , position 2.",
                "signed earlier calls",
            ),
            (
                "messages.1: tool_calls without a result",
                "showed earlier tool calls as text",
            ),
        ] {
            let mut repairs = Repairs::default();
            let found = repairs.add(&model(), &question(), rejection);
            assert_eq!(found.as_deref(), Some(expected), "{rejection}");
        }
        for rejection in [
            "temperature must be at most 2",
            "Unsupported parameter: 'seed'",
            "your request is invalid",
        ] {
            let found = Repairs::default().add(&model(), &question(), rejection);
            assert_eq!(found, None, "{rejection}");
        }
    }

    #[test]
    fn prov_1_a_template_without_system_messages_gets_none() {
        for rejection in [
            "Conversation roles must alternate user/assistant/user/assistant/...",
            "System role not supported",
            "System message must be at the beginning.",
            "Only user and assistant roles are supported!",
        ] {
            let completion = json!({"system": "Be brief.", "messages": [
                {"role": "user", "content": "One."},
                {"role": "system", "content": "It is Monday."},
                {"role": "user", "content": "Two."},
                {"role": "assistant", "content": "Three."},
                {"role": "user", "content": "Four."},
            ]});
            let completion = serde_json::from_value(completion).unwrap();
            let mut question = ChatRequest::of(&model(), completion);
            let mut repairs = Repairs::default();
            assert!(repairs.add(&model(), &question, rejection).is_some());
            repairs.apply(&mut question);
            assert_eq!(question.system, None);
            let said = question
                .messages
                .iter()
                .map(|said| (said.role, said.text()));
            let said: Vec<(MessageRole, String)> = said.collect();
            let first = "<system>\nBe brief.\n</system>\n\nOne.<system>\nIt is Monday.\n</system>\n\n\
                         Two.";
            assert_eq!(
                said,
                [
                    (MessageRole::User, first.to_owned()),
                    (MessageRole::Assistant, "Three.".to_owned()),
                    (MessageRole::User, "Four.".to_owned()),
                ],
                "{rejection}"
            );
        }
    }

    #[test]
    fn prov_1_a_server_that_demands_thoughts_gets_them() {
        for rejection in [
            "The `reasoning_content` in the thinking mode must be passed back to the API.",
            "Missing `reasoning_content` field in the assistant message at message index 2.",
        ] {
            let mut repairs = Repairs::default();
            let repair = repairs.add(&model(), &question(), rejection);
            assert_eq!(repair.as_deref(), Some("sent earlier thoughts"));
            let mut repaired = question();
            repairs.apply(&mut repaired);
            assert!(repaired.shows_thoughts);
            let body = crate::model::openai::request(&model(), &repaired);
            assert_eq!(body["messages"][1]["reasoning_content"], "", "{body}");
        }
    }

    #[test]
    fn prov_1_repairs_change_the_request_only_where_needed() {
        let mut repairs = Repairs::default();
        for rejection in [
            "unsupported: max_tokens",
            "bad schema of tool2",
            "no image please",
            "role `tool` is unexpected",
        ] {
            assert!(
                repairs.add(&model(), &question(), rejection).is_some(),
                "{rejection}"
            );
        }
        let mut repaired = question();
        repairs.apply(&mut repaired);
        assert_eq!(repaired.tools.len(), 4);
        assert!(
            repaired
                .messages
                .iter()
                .all(|said| !has_image(said) && said.calls.is_empty() && said.results.is_empty())
        );
        assert!(repaired.messages[1].text().contains("[called t with {}]"));
        assert!(repaired.messages[2].text().contains("[t returned: done]"));
        let mut body = json!({"model": "m", "max_tokens": 5, "temperature": 1,
            "generationConfig": {"max_tokens": 1, "topP": 1}});
        repairs.apply_to_body(&mut body);
        assert_eq!(
            body,
            json!({"model": "m", "temperature": 1, "generationConfig": {"topP": 1},
                "max_completion_tokens": 5})
        );
        let mut repairs = Repairs::default();
        let unverified = "must be verified to generate reasoning summaries";
        assert!(repairs.add(&model(), &question(), unverified).is_some());
        let mut body = json!({"reasoning": {"effort": "low", "summary": "auto"}});
        repairs.apply_to_body(&mut body);
        assert_eq!(body, json!({"reasoning": {"effort": "low"}}));
    }
}
