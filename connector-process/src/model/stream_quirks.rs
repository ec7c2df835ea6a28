//! Goal: a reply means the same in every form in which servers send it (PROV-1). Method: random
//! replies are written in each protocol with random combinations of the habits of known servers, in
//! random chunks, and read back. The seeds are fixed.

use goondan_protocol::definition::HostedModel;
use goondan_protocol::message::MessageContent;
use serde_json::{Map, Value, json};

use super::dialect::Dialect;
use super::reply::read_parts;

/// Combinations per protocol.
const COMBINATIONS: u64 = 1_000;

/// A generator of random numbers (`SplitMix64`).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    /// True in `one_in`th of all cases.
    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// Cuts a text into pieces between characters.
    fn pieces(&mut self, text: &str) -> Vec<String> {
        let mut pieces = vec![String::new()];
        for c in text.chars() {
            if self.chance(4) {
                pieces.push(String::new());
            }
            pieces.last_mut().unwrap().push(c);
        }
        pieces
    }

    /// Orders the fields of all objects at random.
    fn shuffled(&mut self, value: Value) -> Value {
        match value {
            Value::Object(fields) => {
                let mut fields: Vec<(String, Value)> = fields.into_iter().collect();
                for at in (1..fields.len()).rev() {
                    let other = self.below(at + 1);
                    fields.swap(at, other);
                }
                let fields = fields.into_iter();
                let fields: Map<String, Value> = fields
                    .map(|(name, value)| (name, self.shuffled(value)))
                    .collect();
                Value::Object(fields)
            }
            Value::Array(items) => items.into_iter().map(|item| self.shuffled(item)).collect(),
            other => other,
        }
    }
}

/// The meaning of a reply.
#[derive(Debug, Clone, PartialEq)]
struct Reply {
    thought: String,
    text: String,
    /// Names and arguments.
    calls: Vec<(String, Value)>,
    /// Tokens of input that is not cached, cached input, and output.
    usage: (u64, u64, u64),
}

impl Reply {
    fn random(random: &mut Random) -> Self {
        const WORDS: &[&str] = &[
            "hello",
            " ",
            "데이터",
            "\n\n",
            "data: x",
            "{\"a\":1}",
            "[DONE]",
            "🦆",
            "\\",
            "\"",
            "`</think>`",
        ];
        let words = |random: &mut Random, most: usize| {
            let count = random.below(most + 1);
            (0..count)
                .map(|_| random.pick(WORDS))
                .collect::<Vec<_>>()
                .concat()
        };
        let call_count = random.below(4);
        let calls = (0..call_count).map(|place| {
            let input = match random.below(4) {
                0 => json!({}),
                1 => json!({"text": words(random, 3)}),
                2 => json!({"n": 1, "nested": {"list": [1, {"x": words(random, 2)}]}}),
                _ => json!({"text": "{}", "flag": false, "none": null}),
            };
            (format!("tool{place}"), input)
        });
        let calls: Vec<(String, Value)> = calls.collect();
        let mut text = words(random, 6);
        if calls.is_empty() {
            text.insert_str(0, "I say ");
        } else if text.trim().is_empty() {
            text.clear();
        }
        Self {
            thought: words(random, 3),
            text,
            calls,
            usage: (
                random.next() % 10_000,
                random.next() % 100,
                random.next() % 1_000,
            ),
        }
    }
}

/// One event of a stream before it is written.
struct StreamedEvent {
    name: Option<String>,
    data: Value,
}

impl From<Value> for StreamedEvent {
    fn from(data: Value) -> Self {
        Self { name: None, data }
    }
}

/// Writes events as a body: in random line ends, with comments, empty events and keep-alives.
fn body_of(random: &mut Random, events: Vec<StreamedEvent>, end: Option<&str>) -> Vec<u8> {
    let line_end = random.pick(&["\n", "\r\n", "\n", "\r"]);
    let mut lines: Vec<String> = Vec::new();
    let noise = |random: &mut Random, lines: &mut Vec<String>| {
        let noise: &[&[&str]] = &[
            &[": keep-alive", ""],
            &[": OPENROUTER PROCESSING", ""],
            &["", ""],
            &["data: ", ""],
            &["data: ping", ""],
            &["retry: 3000", ""],
            &["event: ping", "data:", ""],
        ];
        if random.chance(4) {
            lines.extend(random.pick(noise).iter().map(|line| (*line).to_owned()));
        }
    };
    let names_events = random.chance(2);
    let data_mark = random.pick(&["data: ", "data:"]);
    let is_pretty = random.chance(8);
    for event in events {
        noise(random, &mut lines);
        if let Some(name) = event.name.filter(|_| names_events) {
            lines.push(format!("event: {name}"));
        }
        if random.chance(9) {
            lines.push(format!("id: {}", random.below(100)));
        }
        let data = random.shuffled(event.data);
        match is_pretty {
            true => {
                let text = serde_json::to_string_pretty(&data).unwrap();
                lines.extend(text.lines().map(|line| format!("{data_mark}{line}")));
            }
            false => lines.push(format!("{data_mark}{data}")),
        }
        lines.push(String::new());
    }
    noise(random, &mut lines);
    if let Some(end) = end {
        lines.push(format!("{data_mark}{end}"));
        lines.push(String::new());
    }
    let mut body = lines.join(line_end);
    body.push_str(line_end);
    if random.chance(5) {
        body.insert(0, '\u{feff}');
    }
    body.into_bytes()
}

fn parts_of(random: &mut Random, body: &[u8]) -> Vec<Vec<u8>> {
    let longest = random.pick(&[1, 3, 17, 200, 100_000]);
    let mut rest = body;
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let at = (random.below(longest) + 1).min(rest.len());
        let (part, behind) = rest.split_at(at);
        parts.push(part.to_vec());
        rest = behind;
    }
    parts
}

/// Reads a body and returns its meaning.
fn read(
    provider: &str,
    content_type: &str,
    dialect: Box<dyn Dialect>,
    parts: &[Vec<u8>],
) -> Result<Reply, String> {
    let model: HostedModel =
        serde_json::from_value(json!({"name": "m", "provider": provider, "model": "m"})).unwrap();
    let answer =
        read_parts(&model, dialect, content_type, parts).map_err(|error| format!("{error:?}"))?;
    let content: Value = serde_json::from_str(answer.content.get()).unwrap();
    let content = MessageContent::from(content);
    let calls = content.tool_calls().into_iter();
    let usage = answer.metadata.get("usage").cloned().unwrap_or_default();
    let tokens = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
    let thought = answer.metadata.get("reasoning");
    let thought = thought.and_then(|thought| thought.get("text")?.as_str());
    Ok(Reply {
        thought: thought.unwrap_or_default().to_owned(),
        text: content.to_text(),
        calls: calls.map(|call| (call.tool_name, call.input)).collect(),
        usage: (
            tokens("inputTokens"),
            tokens("cacheReadTokens"),
            tokens("outputTokens"),
        ),
    })
}

fn check(
    provider: &str,
    new: impl Fn() -> Box<dyn Dialect>,
    write: impl Fn(&mut Random, &Reply) -> Vec<u8>,
) {
    check_encoded(provider, "text/event-stream", new, write);
}

fn check_encoded(
    provider: &str,
    content_type: &str,
    new: impl Fn() -> Box<dyn Dialect>,
    write: impl Fn(&mut Random, &Reply) -> Vec<u8>,
) {
    for seed in 0..COMBINATIONS {
        let mut random = Random(seed);
        let reply = Reply::random(&mut random);
        let body = write(&mut random, &reply);
        let parts = parts_of(&mut random, &body);
        let found = read(provider, content_type, new(), &parts);
        let shown = String::from_utf8_lossy(&body);
        assert_eq!(
            found.as_ref(),
            Ok(&reply),
            "seed {seed}: {found:?}\n{shown}"
        );
    }
}

mod bedrock;
mod field_reports;
mod responses;

/// Unknown fields that servers add.
fn decorate(random: &mut Random, value: &mut Value) {
    let fields = value.as_object_mut().unwrap();
    for (name, extra) in [
        ("system_fingerprint", json!("fp")),
        ("service_tier", json!(null)),
        ("x_extra", json!({"usage": 7})),
        ("error", json!(null)),
    ] {
        if random.chance(4) {
            fields.insert(name.to_owned(), extra);
        }
    }
}

mod openai {
    use serde_json::{Value, json};

    use super::super::openai::OpenAiReader;
    use super::{Random, Reply, StreamedEvent, body_of, check, decorate};

    struct Habits {
        thought_field: &'static str,
        /// Writes the thoughts into the text, with or without the opening tag.
        thought_tag: Option<&'static str>,
        usage_place: usize,
        index: usize,
        repeats_head: bool,
        has_ids: bool,
        fresh_arguments: bool,
        is_object: bool,
        finish: &'static str,
        finishes_alone: bool,
        text_parts: bool,
        null_calls: bool,
    }

    impl Habits {
        fn random(random: &mut Random, reply: &Reply) -> Self {
            let finish = match reply.calls.is_empty() {
                true => random.pick(&["stop", "eos", "end_turn"]),
                false => random.pick(&["tool_calls", "stop", "function_call"]),
            };
            Self {
                thought_field: random.pick(&["reasoning_content", "reasoning"]),
                thought_tag: thought_tag(random, reply),
                usage_place: random.below(7),
                index: random.below(3),
                repeats_head: random.chance(3),
                has_ids: !random.chance(4),
                fresh_arguments: random.chance(2),
                is_object: random.chance(6),
                finish,
                finishes_alone: random.chance(2),
                text_parts: random.chance(6),
                null_calls: random.chance(4),
            }
        }
    }

    /// The opening tag of thoughts in the text. White space around them and before the answer belongs
    /// to the template.
    fn thought_tag(random: &mut Random, reply: &Reply) -> Option<&'static str> {
        let is_distinct =
            reply.thought.trim() == reply.thought && reply.text.trim_start() == reply.text;
        let has_thought = !reply.thought.is_empty() && !reply.thought.ends_with(['`', '"']);
        let tag = random.pick(&["<think>", "<think>\n", "\n<think>", ""]);
        (has_thought && is_distinct && random.chance(2)).then_some(tag)
    }

    /// The content of the message: the answer, perhaps after the thoughts.
    fn content_of(random: &mut Random, habits: &Habits, reply: &Reply) -> String {
        match habits.thought_tag {
            Some(tag) => {
                let end = random.pick(&["\n</think>\n\n", "</think>", "</think>\n"]);
                format!("{tag}{}{end}{}", reply.thought, reply.text)
            }
            None => reply.text.clone(),
        }
    }

    fn usage_of(random: &mut Random, reply: &Reply) -> Value {
        let (fresh, cached, output) = reply.usage;
        let mut usage = json!({"prompt_tokens": fresh + cached, "completion_tokens": output,
            "total_tokens": fresh + cached + output});
        match random.below(3) {
            _ if cached == 0 => usage["prompt_tokens_details"] = json!(null),
            0 => usage["prompt_tokens_details"] = json!({"cached_tokens": cached}),
            1 => usage["prompt_cache_hit_tokens"] = json!(cached),
            _ => usage["cached_tokens"] = json!(cached),
        }
        if random.chance(5) {
            usage["prompt_tokens"] = json!(f64::from(u32::try_from(fresh + cached).unwrap()));
        }
        usage
    }

    fn content(random: &mut Random, habits: &Habits, text: &str) -> Value {
        match habits.text_parts && random.chance(2) {
            true => json!([{"type": "text", "text": text}]),
            false => json!(text),
        }
    }

    fn deltas(random: &mut Random, habits: &Habits, reply: &Reply) -> Vec<Value> {
        let mut deltas = Vec::new();
        if random.chance(2) {
            deltas.push(
                json!({"role": "assistant", "content": random.pick(&[json!(""), json!(null)])}),
            );
        }
        let thought = match habits.thought_tag {
            Some(_) => "",
            None => reply.thought.as_str(),
        };
        for piece in random.pieces(thought) {
            let mut delta = json!({"content": random.pick(&[json!(null), json!("")])});
            delta[habits.thought_field] = json!(piece);
            deltas.push(delta);
        }
        let text = content_of(random, habits, reply);
        for piece in random.pieces(&text) {
            let mut delta = json!({"content": content(random, habits, &piece)});
            if habits.null_calls {
                delta["tool_calls"] = random.pick(&[json!(null), json!([])]);
            }
            deltas.push(delta);
        }
        for (place, (name, input)) in reply.calls.iter().enumerate() {
            let mut pieces = random.pieces(&input.to_string());
            if habits.is_object {
                pieces = vec![input.to_string()];
            }
            if habits.fresh_arguments && !habits.is_object {
                pieces.insert(0, String::new());
            }
            for (number, piece) in pieces.iter().enumerate() {
                let is_head = number == 0;
                let arguments = match habits.is_object {
                    true => input.clone(),
                    false => json!(piece),
                };
                let mut call = json!({"type": "function", "function": {"arguments": arguments}});
                match habits.index {
                    0 => call["index"] = json!(place),
                    1 => call["index"] = json!(0),
                    _ => {}
                }
                if is_head || habits.repeats_head {
                    call["function"]["name"] = json!(name);
                    if habits.has_ids {
                        call["id"] = json!(format!("call-{place}"));
                    }
                } else if random.chance(3) {
                    call["function"]["name"] = json!(null);
                    call["id"] = json!("");
                }
                deltas.push(json!({"tool_calls": [call]}));
            }
        }
        deltas
    }

    fn stream(random: &mut Random, reply: &Reply) -> Vec<u8> {
        let habits = Habits::random(random, reply);
        let deltas = deltas(random, &habits, reply);
        let usage = usage_of(random, reply);
        let mut events: Vec<StreamedEvent> = Vec::new();
        if random.chance(4) {
            events.push(json!({"choices": [], "prompt_filter_results": [{}]}).into());
        }
        let last = deltas.len().saturating_sub(1);
        for (place, delta) in deltas.into_iter().enumerate() {
            let mut choice = json!({"index": 0, "delta": delta});
            match random.below(3) {
                0 => choice["finish_reason"] = json!(null),
                1 => choice["finish_reason"] = json!(""),
                _ => {}
            }
            if place == last && !habits.finishes_alone {
                choice["finish_reason"] = json!(habits.finish);
            }
            let mut chunk = json!({"id": "r", "object": "chat.completion.chunk", "model": "m",
                "choices": [choice]});
            match habits.usage_place {
                0 => chunk["usage"] = json!({"prompt_tokens": 1, "completion_tokens": place}),
                1 => chunk["usage"] = json!(null),
                _ => {}
            }
            decorate(random, &mut chunk);
            events.push(chunk.into());
        }
        let mut end = json!({"id": "r", "choices": [{"index": 0, "finish_reason": habits.finish}]});
        match random.below(3) {
            0 => end["choices"][0]["delta"] = json!({}),
            1 => end["choices"][0]["delta"] = json!(null),
            _ => {}
        }
        match habits.usage_place {
            2 => end["usage"] = usage.clone(),
            3 => end["choices"][0]["usage"] = usage.clone(),
            4 => end["x_groq"] = json!({"id": "x", "usage": usage}),
            _ => {}
        }
        if habits.finishes_alone || matches!(habits.usage_place, 2..=4) {
            events.push(end.into());
        }
        if !matches!(habits.usage_place, 2..=4) {
            let mut last = json!({"id": "r", "usage": usage});
            match random.below(3) {
                0 => last["choices"] = json!([]),
                1 => last["choices"] = json!(null),
                _ => {}
            }
            events.push(last.into());
        }
        for event in &mut events {
            event.name = Some("message".to_owned());
        }
        let done = random.pick(&[Some("[DONE]"), Some("[DONE]"), Some("[done]"), None]);
        body_of(random, events, done)
    }

    fn whole(random: &mut Random, reply: &Reply) -> Vec<u8> {
        let habits = Habits::random(random, reply);
        let text = content_of(random, &habits, reply);
        let mut message = json!({"role": "assistant", "content": text});
        if habits.thought_tag.is_none() && !reply.thought.is_empty() {
            message[habits.thought_field] = json!(reply.thought);
        }
        let calls = reply
            .calls
            .iter()
            .enumerate()
            .map(|(place, (name, input))| {
                let arguments = match habits.is_object {
                    true => input.clone(),
                    false => json!(input.to_string()),
                };
                let mut call = json!({"function": {"name": name, "arguments": arguments}});
                if habits.has_ids {
                    call["id"] = json!(format!("call-{place}"));
                }
                call
            });
        let calls: Vec<Value> = calls.collect();
        if !calls.is_empty() || habits.null_calls {
            message["tool_calls"] = json!(calls);
        }
        let mut body = json!({"id": "r", "choices": [{"index": 0, "message": message,
            "finish_reason": habits.finish}], "usage": usage_of(random, reply)});
        decorate(random, &mut body);
        let body = random.shuffled(body);
        match random.chance(2) {
            true => serde_json::to_vec_pretty(&body).unwrap(),
            false => serde_json::to_vec(&body).unwrap(),
        }
    }

    #[test]
    fn prov_1_openai_replies_mean_the_same_in_all_forms() {
        check(
            "openai",
            || Box::<OpenAiReader>::default(),
            |random, reply| match random.chance(8) {
                true => whole(random, reply),
                false => stream(random, reply),
            },
        );
    }
}

mod anthropic {
    use serde_json::{Value, json};

    use super::super::anthropic::AnthropicReader;
    use super::{Random, Reply, StreamedEvent, body_of, check};

    fn usage_of(reply: &Reply) -> Value {
        let (fresh, cached, output) = reply.usage;
        json!({"input_tokens": fresh, "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": 0, "output_tokens": output})
    }

    fn stop_of(random: &mut Random, reply: &Reply) -> &'static str {
        match reply.calls.is_empty() {
            true => random.pick(&["end_turn", "stop_sequence"]),
            false => "tool_use",
        }
    }

    fn blocks(reply: &Reply) -> Vec<Value> {
        let mut blocks = Vec::new();
        if !reply.thought.is_empty() {
            blocks.push(json!({"type": "thinking", "thinking": reply.thought, "signature": "s"}));
        }
        if !reply.text.is_empty() {
            blocks.push(json!({"type": "text", "text": reply.text}));
        }
        for (place, (name, input)) in reply.calls.iter().enumerate() {
            blocks.push(
                json!({"type": "tool_use", "id": format!("t{place}"), "name": name, "input": input}),
            );
        }
        blocks
    }

    /// Writes one block as events: as a whole at its start, or in pieces.
    fn block_events(random: &mut Random, index: usize, block: &Value, out: &mut Vec<Value>) {
        let is_whole = random.chance(5);
        let kind = block["type"].as_str().unwrap().to_owned();
        let start = match (is_whole, kind.as_str()) {
            (true, _) => block.clone(),
            (_, "thinking") => json!({"type": "thinking", "thinking": "", "signature": ""}),
            (_, "text") => json!({"type": "text", "text": ""}),
            _ => {
                json!({"type": "tool_use", "id": block["id"], "name": block["name"], "input": {}})
            }
        };
        out.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        let delta =
            |delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
        if !is_whole {
            let (field, tag, text) = match kind.as_str() {
                "thinking" => ("thinking", "thinking_delta", block["thinking"].as_str()),
                "text" => ("text", "text_delta", block["text"].as_str()),
                _ => ("partial_json", "input_json_delta", None),
            };
            let text = match text {
                Some(text) => text.to_owned(),
                None if block["input"] == json!({}) => String::new(),
                None => block["input"].to_string(),
            };
            for piece in random.pieces(&text) {
                let mut said = json!({"type": tag});
                said[field] = json!(piece);
                out.push(delta(said));
                if random.chance(9) {
                    out.push(json!({"type": "ping"}));
                }
            }
            if kind == "thinking" {
                out.push(delta(json!({"type": "signature_delta", "signature": "s"})));
            }
        }
        if !random.chance(6) {
            out.push(json!({"type": "content_block_stop", "index": index}));
        }
    }

    /// The events of a reply.
    pub(super) fn events(random: &mut Random, reply: &Reply) -> Vec<Value> {
        let usage = usage_of(reply);
        let counts_at_start = random.chance(2);
        let mut begin = usage.clone();
        begin["output_tokens"] = json!(1);
        let mut message = json!({"id": "m", "type": "message", "role": "assistant", "content": [],
            "model": "m", "stop_reason": null});
        if counts_at_start {
            message["usage"] = begin;
        }
        let mut events = vec![json!({"type": "message_start", "message": message})];
        for (index, block) in blocks(reply).iter().enumerate() {
            block_events(random, index, block, &mut events);
        }
        if random.chance(5) {
            events.push(json!({"type": "vendor_event", "x": 1}));
        }
        let usage = match counts_at_start && random.chance(2) {
            true => json!({"output_tokens": reply.usage.2, "input_tokens": null}),
            false => usage,
        };
        events.push(json!({"type": "message_delta",
            "delta": {"stop_reason": stop_of(random, reply), "stop_sequence": null}, "usage": usage}));
        events.push(json!({"type": "message_stop"}));
        events
    }

    fn stream(random: &mut Random, reply: &Reply) -> Vec<u8> {
        let events = events(random, reply);
        let events = events.into_iter().map(|data| StreamedEvent {
            name: data["type"].as_str().map(str::to_owned),
            data,
        });
        let events = events.collect();
        body_of(random, events, None)
    }

    fn whole(random: &mut Random, reply: &Reply) -> Vec<u8> {
        let body = json!({"id": "m", "type": "message", "role": "assistant", "model": "m",
            "content": blocks(reply), "stop_reason": stop_of(random, reply),
            "usage": usage_of(reply)});
        serde_json::to_vec(&random.shuffled(body)).unwrap()
    }

    #[test]
    fn prov_1_anthropic_replies_mean_the_same_in_all_forms() {
        check(
            "anthropic",
            || Box::<AnthropicReader>::default(),
            |random, reply| match random.chance(8) {
                true => whole(random, reply),
                false => stream(random, reply),
            },
        );
    }
}

mod google {
    use serde_json::{Value, json};

    use super::super::google::GoogleReader;
    use super::{Random, Reply, StreamedEvent, body_of, check, decorate};

    fn usage_of(random: &mut Random, reply: &Reply) -> Value {
        let (fresh, cached, output) = reply.usage;
        let thoughts = random.next() % (output + 1);
        let mut usage = json!({"promptTokenCount": fresh + cached,
            "candidatesTokenCount": output - thoughts, "totalTokenCount": fresh + cached + output});
        if cached > 0 {
            usage["cachedContentTokenCount"] = json!(cached);
        }
        if thoughts > 0 {
            usage["thoughtsTokenCount"] = json!(thoughts);
        }
        usage
    }

    fn parts(random: &mut Random, reply: &Reply) -> Vec<Value> {
        let mut parts = Vec::new();
        for piece in random.pieces(&reply.thought) {
            parts.push(json!({"text": piece, "thought": true}));
        }
        for piece in random.pieces(&reply.text) {
            parts.push(match random.chance(5) {
                true => json!({"text": piece, "thought": false, "thoughtSignature": "s"}),
                false => json!({"text": piece}),
            });
        }
        let has_ids = random.chance(3);
        let is_text = random.chance(6);
        for (name, input) in &reply.calls {
            let mut call = json!({"name": name, "args": input});
            if *input == json!({}) && random.chance(2) {
                match random.chance(2) {
                    true => call["args"] = json!(null),
                    false => drop(call.as_object_mut().unwrap().remove("args")),
                }
            } else if is_text {
                call["args"] = json!(input.to_string());
            }
            if has_ids {
                // The same id for every call.
                call["id"] = json!("fc");
            }
            let mut part = json!({"functionCall": call});
            if random.chance(4) {
                part["thoughtSignature"] = json!("sig");
            }
            parts.push(part);
        }
        parts
    }

    fn chunks(random: &mut Random, reply: &Reply) -> Vec<Value> {
        let parts = parts(random, reply);
        let usage = usage_of(random, reply);
        let mut chunks: Vec<Value> = Vec::new();
        let mut rest = parts.as_slice();
        while !rest.is_empty() {
            let at = (random.below(3) + 1).min(rest.len());
            let (some, behind) = rest.split_at(at);
            rest = behind;
            let mut candidate = json!({"content": {"role": "model", "parts": some}, "index": 0});
            if random.chance(5) {
                candidate["finishReason"] = json!(null);
            }
            let mut chunk = json!({"candidates": [candidate], "modelVersion": "m"});
            if random.chance(2) {
                chunk["usageMetadata"] = json!({"promptTokenCount": 3, "totalTokenCount": 3});
            }
            decorate(random, &mut chunk);
            chunks.push(chunk);
        }
        let mut end = json!({"candidates": [{"finishReason": "STOP", "index": 0}]});
        match random.below(4) {
            0 => end["candidates"][0]["content"] = json!({}),
            1 => end["candidates"][0]["content"] = json!({"parts": [{"text": ""}]}),
            2 => end["candidates"][0]["content"] = json!(null),
            _ => {}
        }
        if random.chance(2) {
            end["usageMetadata"] = usage;
            chunks.push(end);
        } else {
            chunks.push(end);
            let mut last = json!({"usageMetadata": usage, "responseId": "r"});
            if random.chance(2) {
                last["candidates"] = json!([]);
            }
            chunks.push(last);
        }
        chunks
    }

    #[test]
    fn prov_1_google_replies_mean_the_same_in_all_forms() {
        check(
            "google",
            || Box::<GoogleReader>::default(),
            |random, reply| {
                let chunks = chunks(random, reply);
                match random.chance(6) {
                    // Without `alt=sse`, the stream is one list.
                    true => {
                        let list = random.shuffled(Value::Array(chunks));
                        serde_json::to_vec_pretty(&list).unwrap()
                    }
                    false => {
                        let events = chunks.into_iter().map(StreamedEvent::from).collect();
                        let end = random.pick(&[None, None, Some("[DONE]")]);
                        body_of(random, events, end)
                    }
                }
            },
        );
    }
}
