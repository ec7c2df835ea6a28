//! Joins the fragments of tool calls in a stream of the Chat Completions protocol (pure).
//!
//! In the protocol each call has an `index`; its first fragment carries id and name, and the others
//! carry arguments. Servers deviate in every field: they number all calls 0 or none of them, number
//! the head and the arguments of one call differently, repeat id and name in each fragment, or
//! generate an id for each fragment.
//!
//! The call that a fragment belongs to, first match wins:
//!
//! 1. A known id continues its call, unless the index belongs to another call.
//! 2. An unknown id with a name begins a call, unless the call at that index still lacks its id.
//! 3. An unknown id without a name continues the call at its index, else the latest one if its
//!    arguments are incomplete.
//! 4. Without an id, a name begins a call, unless the call at that index (the latest, without an
//!    index) has the same name or none.
//! 5. Without id and name, arguments continue the call at that index, else the latest one.
//!
//! A fragment that starts another object never continues a call whose arguments are complete JSON.
//! It begins a call, unless it repeats these arguments, or they are the empty object that some
//! gateways send before the true ones.

use serde_json::Value;

use super::dialect::text_at;
use super::draft::{Draft, Excess};

/// One element of `delta.tool_calls`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fragment<'v> {
    index: Option<u64>,
    id: &'v str,
    name: &'v str,
    arguments: Option<&'v Value>,
    /// Signature of the thoughts before the call, from Google's compatible API.
    signature: Option<&'v str>,
}

impl<'v> Fragment<'v> {
    /// Reads an element of `delta.tool_calls`, or of `message.tool_calls`.
    pub(super) fn read(call: &'v Value) -> Self {
        Self {
            index: call.get("index").and_then(Value::as_u64),
            id: text_at(call, "/id").unwrap_or_default(),
            name: text_at(call, "/function/name").unwrap_or_default(),
            arguments: call.pointer("/function/arguments"),
            signature: text_at(call, "/extra_content/google/thought_signature"),
        }
    }

    /// Reads `delta.function_call`, the predecessor of `tool_calls`.
    pub(super) fn read_function_call(call: &'v Value) -> Self {
        Self {
            index: None,
            id: "",
            name: text_at(call, "/name").unwrap_or_default(),
            arguments: call.get("arguments"),
            signature: None,
        }
    }

    fn has_arguments(&self) -> bool {
        match self.arguments {
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Object(_)) => true,
            _ => false,
        }
    }

    fn begins_object(&self) -> bool {
        match self.arguments {
            Some(Value::String(text)) => text.trim_start().starts_with('{'),
            Some(Value::Object(_)) => true,
            _ => false,
        }
    }
}

/// Meaning of a fragment that starts an object after the complete arguments of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Restart {
    OtherCall,
    /// The same arguments again.
    Repetition,
    /// The arguments so far were only a placeholder.
    Replacement,
}

impl Restart {
    fn of(fragment: &Fragment<'_>, call: CallNumber, held: &Value, draft: &Draft) -> Self {
        let is_bare = fragment.id.is_empty() && fragment.name.is_empty();
        let has_id = !fragment.id.is_empty() && draft.call_id(call) == Some(fragment.id);
        let has_name = fragment.name.is_empty() || draft.call_name(call) == Some(fragment.name);
        if !(is_bare || has_id && has_name) {
            return Self::OtherCall;
        }
        let is_same = match fragment.arguments {
            Some(Value::String(text)) => {
                serde_json::from_str(text).is_ok_and(|said: Value| said == *held)
            }
            said => said == Some(held),
        };
        if is_same {
            Self::Repetition
        } else if held.as_object().is_some_and(serde_json::Map::is_empty) {
            Self::Replacement
        } else {
            Self::OtherCall
        }
    }
}

/// Number of a call within its reply, in order of appearance.
type CallNumber = u64;

/// Assigns fragments to calls.
#[derive(Debug, Default)]
pub(super) struct CallJoiner {
    begun: CallNumber,
    /// The latest call of each index.
    by_index: Vec<(u64, CallNumber)>,
}

impl CallJoiner {
    /// Adds a fragment to its call.
    ///
    /// # Errors
    ///
    /// [`Excess`] if the reply has too many calls or bytes.
    pub(super) fn add(&mut self, fragment: Fragment<'_>, draft: &mut Draft) -> Result<(), Excess> {
        let mut continued = self.continued(&fragment, draft);
        if let Some(call) = continued
            && fragment.begins_object()
            && let Some(held) = draft.complete_arguments(call)
        {
            match Restart::of(&fragment, call, &held, draft) {
                Restart::Repetition => return Ok(()),
                Restart::Replacement => draft.clear_arguments(call),
                Restart::OtherCall => continued = None,
            }
        }
        let call = match continued {
            Some(call) => {
                draft.identify_call(call, fragment.id)?;
                draft.name_call(call, fragment.name)?;
                call
            }
            None => {
                let call = self.begun;
                self.begun += 1;
                draft.begin_call(call, fragment.id, fragment.name)?;
                call
            }
        };
        if let Some(index) = fragment.index {
            self.by_index.retain(|(at, _)| *at != index);
            self.by_index.push((index, call));
        }
        if let Some(signature) = fragment.signature {
            draft.sign_call(call, signature)?;
        }
        match fragment.arguments {
            Some(Value::String(text)) => draft.add_arguments(call, text),
            Some(input @ Value::Object(_)) => draft.set_arguments(call, input.clone()),
            _ => Ok(()),
        }
    }

    fn at(&self, index: u64) -> Option<CallNumber> {
        let mut found = self.by_index.iter().filter(|(at, _)| *at == index);
        found.next().map(|(_, call)| *call)
    }

    /// The call that a fragment continues; `None` if it starts one.
    fn continued(&self, fragment: &Fragment<'_>, draft: &Draft) -> Option<CallNumber> {
        let latest = draft.latest_index();
        let at_index = fragment.index.and_then(|index| self.at(index));
        let candidate = if fragment.index.is_some() {
            at_index
        } else {
            latest
        };
        let id_of = |call| draft.call_id(call).unwrap_or_default();
        if fragment.id.is_empty() {
            if fragment.name.is_empty() {
                return candidate.or(latest);
            }
            let is_same = |call: &CallNumber| {
                let name = draft.call_name(*call).unwrap_or_default();
                name.is_empty() || name == fragment.name
            };
            return candidate.filter(is_same);
        }
        if let Some(call) = at_index.filter(|call| id_of(*call) == fragment.id) {
            return Some(call);
        }
        if let Some(call) = draft.call_with_id(fragment.id) {
            // A server that gives all calls the same id distinguishes them by index.
            let is_other = fragment.index.is_some()
                && !fragment.name.is_empty()
                && draft.has_complete_arguments(call);
            return (!is_other).then_some(call);
        }
        match candidate {
            Some(call) if id_of(call).is_empty() => {
                let name = draft.call_name(call).unwrap_or_default();
                (fragment.name.is_empty() || name.is_empty() || name == fragment.name)
                    .then_some(call)
            }
            _ if !fragment.name.is_empty() => None,
            Some(call) if fragment.index.is_some() => Some(call),
            Some(_) | None => latest
                .filter(|call| !fragment.has_arguments() || !draft.has_complete_arguments(*call)),
        }
    }
}

#[cfg(test)]
mod tests {
    use goondan_protocol::call::ModelAnswer;
    use goondan_protocol::definition::HostedModel;
    use goondan_protocol::message::{MessageContent, ToolCall};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::model::argument_types::ArgumentTypes;
    use crate::model::normalize::ToolNames;

    fn finished(draft: Draft) -> ModelAnswer {
        let model: HostedModel =
            serde_json::from_value(json!({"name": "m", "provider": "openai", "model": "m"}))
                .unwrap();
        draft
            .finish(&model, &ToolNames::default(), &ArgumentTypes::default())
            .unwrap()
    }

    /// Calls joined from these elements of `delta.tool_calls`, one per chunk.
    fn joined(fragments: &[Value]) -> Vec<ToolCall> {
        let (mut joiner, mut draft) = (CallJoiner::default(), Draft::default());
        for fragment in fragments {
            joiner.add(Fragment::read(fragment), &mut draft).unwrap();
        }
        let answer = finished(draft);
        let content: Value = serde_json::from_str(answer.content.get()).unwrap();
        MessageContent::from(content).tool_calls()
    }

    fn names_and_inputs(calls: &[ToolCall]) -> Vec<(String, Value)> {
        let calls = calls.iter();
        calls
            .map(|call| (call.tool_name.clone(), call.input.clone()))
            .collect()
    }

    fn head(index: Option<u64>, id: &str, name: &str, arguments: &str) -> Value {
        let mut call = json!({"function": {"arguments": arguments}});
        if let Some(index) = index {
            call["index"] = json!(index);
        }
        if !id.is_empty() {
            call["id"] = json!(id);
        }
        if !name.is_empty() {
            call["function"]["name"] = json!(name);
        }
        call
    }

    #[test]
    fn prov_1_tool_calls_are_separated_by_index_id_or_position() {
        for fragments in [
            [head(Some(0), "a", "t", "{}"), head(Some(1), "b", "t", "{}")],
            [head(Some(0), "a", "t", "{}"), head(Some(0), "b", "t", "{}")],
            [head(Some(0), "a", "t", "{}"), head(Some(1), "a", "t", "{}")],
            [head(None, "a", "t", "{}"), head(None, "b", "t", "{}")],
            [head(None, "", "t", "{}"), head(None, "", "t", "{}")],
            [
                head(Some(4_000_000_000), "a", "t", "{}"),
                head(Some(u64::MAX), "b", "t", "{}"),
            ],
        ] {
            assert_eq!(joined(&fragments).len(), 2, "{fragments:?}");
        }
    }

    #[test]
    fn prov_1_arguments_under_a_foreign_index_join_the_last_head() {
        let calls = joined(&[
            head(Some(0), "k1", "count", r#"{"text":"pear"}"#),
            head(Some(0), "k2", "case", ""),
            head(Some(1), "", "", r#"{"text":"plum","#),
            head(Some(1), "", "", r#""to":"upper"}"#),
        ]);
        assert_eq!(
            names_and_inputs(&calls),
            [
                ("count".to_owned(), json!({"text": "pear"})),
                ("case".to_owned(), json!({"text": "plum", "to": "upper"})),
            ]
        );
    }

    #[test]
    fn prov_1_late_id_or_name_is_assigned_to_its_call() {
        let calls = joined(&[
            head(Some(0), "", "", ""),
            head(Some(0), "k1", "", ""),
            head(Some(0), "", "count", r#"{"text""#),
            head(Some(0), "", "", r#":"pear"}"#),
        ]);
        assert_eq!(calls.len(), 1);
        assert_eq!(calls[0].id.as_str(), "k1");
        assert_eq!(calls[0].input, json!({"text": "pear"}));
    }

    #[test]
    fn prov_1_placeholders_and_repetitions_of_arguments_are_no_calls() {
        let city = r#"{"city":"Zurich"}"#;
        let expected = [("t".to_owned(), json!({"city": "Zurich"}))];
        for fragments in [
            // Gateways to Bedrock send the empty object of the block's start first.
            vec![head(Some(0), "k", "t", "{}"), head(Some(0), "", "", city)],
            vec![
                head(Some(0), "k", "t", "{}"),
                head(Some(0), "", "", r#"{"ci"#),
                head(Some(0), "", "", r#"ty":"Zurich"}"#),
            ],
            vec![head(None, "k", "t", "{}"), head(None, "k", "t", city)],
            vec![head(None, "k", "t", &format!("{{}}{city}"))],
            // Gateways to the Responses API repeat all of the arguments at their end.
            vec![head(Some(0), "k", "t", city), head(Some(0), "", "", city)],
            vec![
                head(Some(0), "k", "t", ""),
                head(Some(0), "", "", city),
                head(Some(0), "", "", city),
            ],
            vec![head(None, "k", "t", city), head(None, "k", "t", city)],
            vec![head(None, "k", "t", &format!("{city}{city}"))],
        ] {
            let found = joined(&fragments);
            assert_eq!(names_and_inputs(&found), expected, "{fragments:?}");
        }
        let others = [
            head(Some(0), "k", "t", city),
            head(Some(0), "", "", r#"{"city":"Bern"}"#),
        ];
        assert_eq!(joined(&others).len(), 2);
    }

    #[test]
    fn prov_1_signature_of_a_call_is_kept() {
        let mut call = head(Some(0), "k", "t", "{}");
        call["extra_content"] = json!({"google": {"thought_signature": "c2ln"}});
        let (mut joiner, mut draft) = (CallJoiner::default(), Draft::default());
        joiner.add(Fragment::read(&call), &mut draft).unwrap();
        let answer = finished(draft);
        let signatures = &answer.metadata["reasoning"]["signatures"];
        assert_eq!(*signatures, json!({"k": ["c2ln"]}));
    }

    #[test]
    fn prov_1_arguments_mean_the_same_in_any_encoding() {
        for (text, expected) in [
            ("null", json!({})),
            ("\"\"", json!({})),
            (r#""{\"a\":1}""#, json!({"a": 1})),
            ("{\"a\":\"one\ntwo\t\"}", json!({"a": "one\ntwo\t"})),
            (r#""{hello world}""#, json!("{hello world}")),
            ("{\"a\":1}{\"a\":2}", json!("{\"a\":1}{\"a\":2}")),
            ("{\"a\":", json!("{\"a\":")),
            ("{\"a\":\"b\\\n\"}", json!("{\"a\":\"b\\\n\"}")),
        ] {
            let found = joined(&[head(Some(0), "k", "t", text)]);
            assert_eq!(found[0].input, expected, "{text}");
        }
    }

    /// A server's way of filling in one field of the fragments.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum FieldHabit {
        InHead,
        InAll,
        Never,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Indexes {
        Own,
        Zero,
        Absent,
        /// Arguments are numbered one higher than their head, whose number equals that of the
        /// previous call.
        Shifted,
    }

    #[derive(Debug, Clone, Copy)]
    struct SimulatedModelServer {
        indexes: Indexes,
        id: FieldHabit,
        name: FieldHabit,
        fresh_ids: bool,
        head_has_arguments: bool,
        whole_object: bool,
        piece: usize,
        empty_tail: bool,
    }

    fn server() -> impl Strategy<Value = SimulatedModelServer> {
        let habit = prop_oneof![Just(FieldHabit::InHead), Just(FieldHabit::InAll)];
        let indexes = prop_oneof![
            Just(Indexes::Own),
            Just(Indexes::Zero),
            Just(Indexes::Absent),
            Just(Indexes::Shifted)
        ];
        let id = prop_oneof![
            Just(FieldHabit::InHead),
            Just(FieldHabit::InAll),
            Just(FieldHabit::Never)
        ];
        (
            indexes,
            id,
            habit,
            any::<bool>(),
            any::<bool>(),
            prop::bool::weighted(0.1),
            1_usize..12,
            any::<bool>(),
        )
            .prop_map(
                |(
                    indexes,
                    id,
                    name,
                    fresh_ids,
                    head_has_arguments,
                    whole_object,
                    piece,
                    empty_tail,
                )| {
                    SimulatedModelServer {
                        indexes,
                        id,
                        // Shifted numbers combined with repeated names are ambiguous.
                        name: if indexes == Indexes::Shifted {
                            FieldHabit::InHead
                        } else {
                            name
                        },
                        // A new id in each fragment carries no information, so the name must
                        // distinguish calls.
                        fresh_ids: fresh_ids
                            && id == FieldHabit::InAll
                            && name == FieldHabit::InHead
                            && indexes != Indexes::Shifted,
                        head_has_arguments: head_has_arguments || whole_object,
                        whole_object,
                        piece,
                        empty_tail,
                    }
                },
            )
    }

    fn stream(server: SimulatedModelServer, calls: &[(String, Value)]) -> Vec<Value> {
        let mut fragments = Vec::new();
        for (place, (name, input)) in calls.iter().enumerate() {
            let text = input.to_string();
            let mut pieces: Vec<String> = text
                .as_bytes()
                .chunks(server.piece)
                .map(|piece| String::from_utf8(piece.to_vec()).unwrap())
                .collect();
            if server.whole_object {
                pieces = vec![text.clone()];
            }
            if !server.head_has_arguments {
                pieces.insert(0, String::new());
            }
            if server.empty_tail {
                pieces.push(String::new());
            }
            for (number, piece) in pieces.iter().enumerate() {
                let is_head = number == 0;
                let is_said =
                    |habit| habit == FieldHabit::InAll || habit == FieldHabit::InHead && is_head;
                let place = place as u64;
                let index = match server.indexes {
                    Indexes::Own => Some(place),
                    Indexes::Zero => Some(0),
                    Indexes::Absent => None,
                    Indexes::Shifted if is_head => Some(place.saturating_sub(1)),
                    Indexes::Shifted => Some(place),
                };
                let id = match is_said(server.id) {
                    true if server.fresh_ids => format!("k{place}-{number}"),
                    true => format!("k{place}"),
                    false => String::new(),
                };
                let name = if is_said(server.name) { name } else { "" };
                let mut fragment = head(index, &id, name, piece);
                if server.whole_object && !piece.is_empty() {
                    fragment["function"]["arguments"] = input.clone();
                }
                fragments.push(fragment);
            }
        }
        fragments
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        #[test]
        fn prov_1_any_mix_of_server_habits_gives_the_same_calls(
            server in server(),
            inputs in prop::collection::vec("[a-z {}:,]{0,12}", 1..4),
        ) {
            // Each call uses a different tool, because without ids and indexes only the name
            // distinguishes two heads.
            let calls: Vec<(String, Value)> = inputs
                .iter()
                .enumerate()
                .map(|(place, text)| (format!("tool{place}"), json!({"text": text})))
                .collect();
            let found = joined(&stream(server, &calls));
            prop_assert_eq!(names_and_inputs(&found), calls, "{:?}", server);
        }
    }
}
