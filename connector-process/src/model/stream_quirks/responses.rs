//! Replies of the Responses API: of `OpenAI` and Azure, and of servers and gateways that leave out
//! events, indexes or ids, send other ids in each event, or send the contents only at the end.

use serde_json::{Value, json};

use super::super::responses::ResponsesReader;
use super::{Random, Reply, StreamedEvent, body_of, check, decorate};

struct Habits {
    /// 0: the same id in all events of an item; 1: another one in each; 2: none.
    ids: usize,
    /// 0: the item's own number; 1: none.
    indexes: usize,
    begins_items: bool,
    /// 0: in pieces and at the end; 1: only at the end of a part; 2: only at the end of an item;
    /// 3: only in the complete response.
    contents: usize,
    ends_parts: bool,
    ends_items: bool,
    repeats_output: bool,
    raw_thoughts: bool,
    arguments_as_object: bool,
}

impl Habits {
    fn random(random: &mut Random) -> Self {
        let contents = random.pick(&[0, 0, 0, 0, 1, 2, 3]);
        let mut habits = Self {
            ids: random.below(3),
            indexes: random.pick(&[0, 0, 1]),
            begins_items: !random.chance(6),
            contents,
            ends_parts: contents == 1 || random.chance(2),
            ends_items: contents == 2 || !random.chance(6),
            repeats_output: contents == 3 || !random.chance(4),
            raw_thoughts: random.chance(3),
            arguments_as_object: random.chance(8),
        };
        // Without numbers, only the end of an item or its id distinguishes two calls.
        if habits.indexes == 1 {
            habits.begins_items = true;
            habits.ends_items = true;
        }
        // The call's name comes with the item.
        habits.ends_items |= !habits.begins_items;
        // An object has no pieces.
        habits.ends_items |= habits.arguments_as_object;
        habits
    }
}

fn usage_of(random: &mut Random, reply: &Reply) -> Value {
    let (fresh, cached, output) = reply.usage;
    let mut usage = json!({"input_tokens": fresh + cached, "output_tokens": output,
        "total_tokens": fresh + cached + output});
    if cached > 0 || random.chance(2) {
        usage["input_tokens_details"] = json!({"cached_tokens": cached});
    }
    if random.chance(2) {
        usage["output_tokens_details"] = json!({"reasoning_tokens": random.next() % (output + 1)});
    }
    usage
}

/// The complete items of a reply.
fn items(habits: &Habits, reply: &Reply) -> Vec<Value> {
    let mut items = Vec::new();
    if !reply.thought.is_empty() {
        let mut item = json!({"type": "reasoning", "id": "rs_0", "summary": [],
            "encrypted_content": "c2VjcmV0"});
        match habits.raw_thoughts {
            true => item["content"] = json!([{"type": "reasoning_text", "text": reply.thought}]),
            false => item["summary"] = json!([{"type": "summary_text", "text": reply.thought}]),
        }
        items.push(item);
    }
    if !reply.text.is_empty() {
        items.push(
            json!({"type": "message", "id": "msg_0", "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": reply.text, "annotations": []}]}),
        );
    }
    for (place, (name, input)) in reply.calls.iter().enumerate() {
        let arguments = match habits.arguments_as_object {
            true => input.clone(),
            false => json!(input.to_string()),
        };
        items.push(json!({"type": "function_call", "id": format!("fc_{place}"),
            "call_id": format!("call_{place}"), "name": name, "arguments": arguments,
            "status": "completed"}));
    }
    items
}

/// Marks an event as that of an item.
fn mark(random: &mut Random, habits: &Habits, index: usize, id: &str, event: &mut Value) {
    if habits.indexes == 0 {
        event["output_index"] = json!(index);
    }
    match habits.ids {
        0 => event["item_id"] = json!(id),
        1 => event["item_id"] = json!(format!("id_{}", random.next())),
        _ => {}
    }
}

fn item_events(
    random: &mut Random,
    habits: &Habits,
    index: usize,
    item: &Value,
    out: &mut Vec<Value>,
) {
    let kind = item["type"].as_str().unwrap();
    let id = item["id"].as_str().unwrap();
    let shown = |random: &mut Random, item: &Value| {
        let mut item = item.clone();
        match habits.ids {
            0 => {}
            1 => item["id"] = json!(format!("id_{}", random.next())),
            _ => drop(item.as_object_mut().unwrap().remove("id")),
        }
        item
    };
    if habits.begins_items {
        let mut begun = shown(random, item);
        match kind {
            "message" => begun["content"] = json!([]),
            "reasoning" => {
                begun["summary"] = json!([]);
                begun.as_object_mut().unwrap().remove("content");
            }
            _ => begun["arguments"] = json!(""),
        }
        begun["status"] = json!("in_progress");
        let mut event = json!({"type": "response.output_item.added", "item": begun});
        if habits.indexes == 0 {
            event["output_index"] = json!(index);
        }
        out.push(event);
    }
    let (name, field, number, text) = match kind {
        "message" => (
            "output_text",
            "text",
            "content_index",
            item["content"][0]["text"].clone(),
        ),
        "reasoning" if habits.raw_thoughts => (
            "reasoning_text",
            "text",
            "content_index",
            item["content"][0]["text"].clone(),
        ),
        "reasoning" => (
            "reasoning_summary_text",
            "text",
            "summary_index",
            item["summary"][0]["text"].clone(),
        ),
        _ => (
            "function_call_arguments",
            "arguments",
            "",
            item["arguments"].clone(),
        ),
    };
    let has_number = !number.is_empty() && random.chance(2);
    let numbered = |event: &mut Value| {
        if has_number {
            event[number] = json!(0);
        }
    };
    if habits.contents == 0
        && let Some(text) = text.as_str()
    {
        for piece in random.pieces(text) {
            let mut event = json!({"type": format!("response.{name}.delta"), "delta": piece});
            numbered(&mut event);
            mark(random, habits, index, id, &mut event);
            if random.chance(3) {
                event["obfuscation"] = json!("abc");
            }
            out.push(event);
        }
    }
    if habits.ends_parts && habits.contents < 2 {
        let mut event = json!({"type": format!("response.{name}.done")});
        event[field] = text;
        numbered(&mut event);
        mark(random, habits, index, id, &mut event);
        out.push(event);
        if random.chance(2) {
            out.push(json!({"type": "response.content_part.done", "part": {"text": "again"}}));
        }
    }
    if habits.ends_items {
        let mut event = json!({"type": "response.output_item.done", "item": shown(random, item)});
        if habits.indexes == 0 {
            event["output_index"] = json!(index);
        }
        out.push(event);
    }
}

fn response(random: &mut Random, items: &[Value], status: &str) -> Value {
    let mut response = json!({"id": "resp_0", "object": "response", "model": "m",
        "status": status, "output": items, "incomplete_details": null, "tools": []});
    decorate(random, &mut response);
    response
}

fn stream(random: &mut Random, reply: &Reply) -> Vec<u8> {
    let habits = Habits::random(random);
    let items = items(&habits, reply);
    let mut events = Vec::new();
    for kind in ["created", "in_progress"] {
        if random.chance(2) {
            let response = response(random, &[], "in_progress");
            events.push(json!({"type": format!("response.{kind}"), "response": response}));
        }
    }
    if habits.contents != 3 {
        for (index, item) in items.iter().enumerate() {
            item_events(random, &habits, index, item, &mut events);
            if random.chance(6) {
                events.push(json!({"type": "keepalive"}));
            }
            if random.chance(9) {
                events.push(json!({"type": "response.web_search_call.searching"}));
            }
        }
    }
    let output: &[Value] = if habits.repeats_output { &items } else { &[] };
    let mut end = response(random, output, "completed");
    end["usage"] = usage_of(random, reply);
    events.push(json!({"type": "response.completed", "response": end}));
    let events = (0..).zip(events).map(|(number, mut data): (u64, Value)| {
        data["sequence_number"] = json!(number);
        StreamedEvent {
            name: data["type"].as_str().map(str::to_owned),
            data,
        }
    });
    let events = events.collect();
    let done = random.pick(&[None, None, Some("[DONE]")]);
    body_of(random, events, done)
}

fn whole(random: &mut Random, reply: &Reply) -> Vec<u8> {
    let habits = Habits::random(random);
    let mut body = response(random, &items(&habits, reply), "completed");
    body["usage"] = usage_of(random, reply);
    serde_json::to_vec(&random.shuffled(body)).unwrap()
}

#[test]
fn prov_1_responses_mean_the_same_in_all_forms() {
    check(
        "openai",
        || Box::<ResponsesReader>::default(),
        |random, reply| match random.chance(8) {
            true => whole(random, reply),
            false => stream(random, reply),
        },
    );
}
