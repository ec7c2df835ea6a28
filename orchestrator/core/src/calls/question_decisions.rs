//! Questions of tool servers in chats (`NEED-2`): converts a question's form to buttons or a text
//! reply, and a person's answer to the form.

use goondan_config::{ApprovalChat, DecisionClass, DecisionKind};
use goondan_protocol::JsonObject;
use goondan_protocol::decision::{
    DecisionAnswer, DecisionButton, DecisionChoice, DecisionDefault, DecisionForm, DecisionShow,
    DecisionSubject, DecisionText, DecisionVerdict,
};
use goondan_protocol::ids::{DecisionId, WorkspaceId};
use goondan_protocol::limits::MAX_DECISION_CHOICES;
use goondan_protocol::question::{FieldKind, FormField, QuestionForm};
use goondan_protocol::time::Timestamp;
use serde_json::{Value, json};

use super::Calls;
use super::open_questions::OpenQuestion;
use super::questions::QuestionOutcome;
use crate::fleet::Fleet;

/// Options of a form that one button answers, as labels with values; `None` if it needs a text.
fn options_of(form: &QuestionForm) -> Option<(&FormField, Vec<(String, Value)>)> {
    let [field] = form.fields() else {
        return None;
    };
    let options: Vec<(String, Value)> = match &field.takes {
        FieldKind::Boolean {} => vec![
            ("Yes".to_owned(), Value::Bool(true)),
            ("No".to_owned(), Value::Bool(false)),
        ],
        FieldKind::Choice { choices } => {
            let choices = choices.iter().map(|choice| {
                let label = choice.title.as_ref().unwrap_or(&choice.value);
                (label.clone(), json!(choice.value))
            });
            choices.collect()
        }
        FieldKind::String { .. }
        | FieldKind::Choices { .. }
        | FieldKind::Number { .. }
        | FieldKind::Integer { .. } => return None,
    };
    let are_labels = options
        .iter()
        .all(|(label, _)| DecisionChoice::is_label(label));
    // One button is for declining.
    (options.len() < MAX_DECISION_CHOICES && are_labels).then_some((field, options))
}

fn form_of(form: &QuestionForm) -> DecisionForm {
    let choice = |answer, label: &str| DecisionChoice {
        answer,
        label: label.to_owned(),
    };
    let mut choices = Vec::new();
    let mut reply = None;
    match (form.fields(), options_of(form)) {
        ([], _) => choices.push(choice(DecisionButton::Approve, "Accept")),
        (_, Some((_, options))) => {
            let options = (0..).zip(&options);
            choices.extend(
                options.map(|(number, (label, _))| choice(DecisionButton::Option(number), label)),
            );
        }
        ([_], None) => reply = Some("answer".to_owned()),
        (_, None) => reply = Some("answer with a line `NAME: VALUE` for each field".to_owned()),
    }
    choices.push(choice(DecisionButton::Deny, "Decline"));
    DecisionForm { choices, reply }
}

fn shown(question: &OpenQuestion) -> DecisionShow {
    let info = &question.info;
    let mut text = format!("{} asks: {}", info.source.in_words(), info.message);
    let options = options_of(&question.form);
    for field in question.form.fields() {
        text.push_str(&format!("\n- {}", field.name));
        let described = field.description.as_ref().or(field.title.as_ref());
        if let Some(described) = described {
            text.push_str(&format!(": {described}"));
        }
        if let (FieldKind::Choice { choices } | FieldKind::Choices { choices, .. }, None) =
            (&field.takes, &options)
        {
            let values: Vec<&str> = choices.iter().map(|it| it.value.as_str()).collect();
            text.push_str(&format!(" (options: {})", values.join(", ")));
        }
    }
    DecisionShow {
        decision_id: (&info.question_id).into(),
        about: DecisionSubject::Question(DecisionText {
            agent_name: info.agent_name.clone(),
            of: format!("conversation {}", info.instance_key),
            text,
            command: format!("inbox question show {}", info.question_id),
        }),
        form: form_of(&question.form),
        expires: Some(DecisionDefault {
            at: info.expires_at,
            outcome: "the call continues without an answer".to_owned(),
        }),
    }
}

/// The outcome of an answer, or the reason why it does not fit.
fn read_answer(form: &QuestionForm, answer: &DecisionAnswer) -> Result<QuestionOutcome, String> {
    let mut content = JsonObject::new();
    match (answer, form.fields()) {
        (DecisionAnswer::Button(DecisionButton::Deny), _) => return Ok(QuestionOutcome::Declined),
        (DecisionAnswer::Button(DecisionButton::Approve), []) => {}
        (DecisionAnswer::Button(DecisionButton::Approve), _) => {
            return Err("it needs an answer".to_owned());
        }
        (DecisionAnswer::Button(DecisionButton::Option(number)), _) => {
            let (field, options) = options_of(form).ok_or("it has no options")?;
            let option = options.into_iter().nth(usize::from(*number));
            let (_, value) = option.ok_or("it has no such option")?;
            content.insert(field.name.clone(), value);
        }
        (DecisionAnswer::Text(text), [field]) => {
            let value = field.read(text.trim());
            let value = value.map_err(|problem| format!("`{}` {problem}", field.name))?;
            content.insert(field.name.clone(), value);
        }
        (DecisionAnswer::Text(text), _) => {
            for line in text.lines().filter(|line| !line.trim().is_empty()) {
                let (name, value) = line.split_once(':').ok_or_else(|| {
                    format!("expected a line `NAME: VALUE`, found `{}`", line.trim())
                })?;
                let field = form.field(name.trim());
                let field = field.ok_or_else(|| format!("it has no field `{}`", name.trim()))?;
                let value = field.read(value.trim());
                let value = value.map_err(|problem| format!("`{}` {problem}", field.name))?;
                content.insert(field.name.clone(), value);
            }
        }
    }
    form.check(&content)?;
    Ok(QuestionOutcome::Answered(content))
}

impl Calls {
    /// Open questions of a workspace, as chats show them, with the time of each.
    pub(crate) fn questions_to_show(&self, id: &WorkspaceId) -> Vec<(Timestamp, DecisionShow)> {
        let open = self.questions.all(Some(id));
        open.map(|open| (open.info.asked_at, shown(open))).collect()
    }

    /// Outcome of a question that was closed lately, for people to read.
    pub(crate) fn outcome_of_question(&self, decision_id: &DecisionId) -> Option<String> {
        let how = self.questions.outcome_of(&decision_id.to_question());
        how.map(str::to_owned)
    }

    /// Carries out the decision of an authorized person in a chat; `None` if no open question has this
    /// id.
    pub(crate) fn decide_in_chat(
        &mut self,
        fleet: &mut Fleet,
        (id, decision_id): (&WorkspaceId, &DecisionId),
        (by, answer): &(String, &DecisionAnswer),
        chat: &ApprovalChat,
    ) -> Option<DecisionVerdict> {
        let question_id = decision_id.to_question();
        let open = self.questions.get(id, &question_id)?;
        let class = DecisionClass {
            agent: Some(&open.info.agent_name),
            kind: DecisionKind::Question,
        };
        if let Some(reason) = chat.refusal(class) {
            let message = reason.to_owned();
            return Some(DecisionVerdict::NotAllowed { message });
        }
        let end = match read_answer(&open.form, answer) {
            Ok(end) => end,
            Err(message) => return Some(DecisionVerdict::NotAllowed { message }),
        };
        let details = match &end {
            QuestionOutcome::Answered(content) => {
                json!({"fields": content.keys().collect::<Vec<_>>()})
            }
            _ => json!({}),
        };
        let about = (id, &question_id);
        Some(
            match self.record_decision(fleet, about, details, end, Some(by.as_str())) {
                Some(_) => {
                    let how = self.outcome_of_question(decision_id);
                    let how = how.unwrap_or_else(|| "decided".to_owned());
                    DecisionVerdict::Decided { how }
                }
                None => DecisionVerdict::Over {},
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(schema: &Value) -> QuestionForm {
        QuestionForm::of_schema(schema).unwrap()
    }

    fn read(form: &QuestionForm, answer: &DecisionAnswer) -> Result<Value, String> {
        match read_answer(form, answer)? {
            QuestionOutcome::Answered(content) => Ok(Value::Object(content)),
            other => Ok(json!(format!("{other:?}"))),
        }
    }

    #[test]
    fn need_2_a_question_with_one_choice_has_a_button_for_each() {
        let color = json!({"type": "object", "required": ["color"],
            "properties": {"color": {"type": "string", "enum": ["red", "blue"]}}});
        let color = form(&color);
        let shown = form_of(&color);
        let labels: Vec<&str> = shown.choices.iter().map(|it| it.label.as_str()).collect();
        assert_eq!(
            (labels, shown.reply),
            (vec!["red", "blue", "Decline"], None)
        );
        let button = |button| DecisionAnswer::Button(button);
        assert_eq!(
            read(&color, &button(DecisionButton::Option(1))),
            Ok(json!({"color": "blue"}))
        );
        assert_eq!(
            read(&color, &button(DecisionButton::Deny)),
            Ok(json!("Declined"))
        );
        read(&color, &button(DecisionButton::Option(2))).unwrap_err();
        read(&color, &button(DecisionButton::Approve)).unwrap_err();
        let yes = form(&json!({"type": "object", "properties": {"ok": {"type": "boolean"}}}));
        assert_eq!(
            read(&yes, &button(DecisionButton::Option(0))),
            Ok(json!({"ok": true}))
        );
        let confirm = form(&json!({"type": "object", "properties": {}}));
        assert_eq!(
            read(&confirm, &button(DecisionButton::Approve)),
            Ok(json!({}))
        );
    }

    #[test]
    fn need_2_a_question_with_fields_is_answered_by_a_reply() {
        let age = json!({"type": "object", "required": ["age"], "properties": {
            "age": {"type": "integer", "minimum": 1}, "name": {"type": "string"}}});
        let (age, text) = (form(&age), |text: &str| {
            DecisionAnswer::Text(text.to_owned())
        });
        assert!(form_of(&age).reply.unwrap().contains("NAME: VALUE"));
        assert_eq!(
            read(&age, &text("name: Ada\n\nage: 36")),
            Ok(json!({"name": "Ada", "age": 36}))
        );
        for wrong in ["Ada", "age: none", "name: Ada", "size: 3"] {
            read(&age, &text(wrong)).unwrap_err();
        }
        let name = form(&json!({"type": "object", "properties": {"name": {"type": "string"}}}));
        assert_eq!(read(&name, &text(" Ada ")), Ok(json!({"name": "Ada"})));
    }
}
