//! The rules of a `scripted` model.

use goondan_protocol::ids::ToolName;
use goondan_protocol::script::{self as protocol, RuleConditions, Script, ScriptedCall};

use super::captures::Captures;
use super::id;
use crate::codes;
use crate::fields::Fields;
use crate::limits::MAX_SCRIPT_DELAY_MS;
use crate::report::{Problem, ProblemReport};
use crate::shape::{Field, FieldConstraint, FieldType, Shape};
use crate::tree::entries_to_json;

/// Shape of a script file.
pub(crate) static SCRIPT: Shape = Shape::of(
    "Script",
    "A script of the built-in model.",
    &[Field::required(
        "rules",
        FieldType::List(&FieldType::Mapping(&RULE)),
        "Rules, tried in order at every step. The first rule with all conditions met is played.",
    )],
);

/// A rule of a script.
pub(crate) static RULE: Shape = Shape::of(
    "Rule",
    "Conditions and the model's response.",
    &[
        Field::optional(
            "when",
            FieldType::Mapping(&WHEN),
            "The conditions. Without any, the rule always matches.",
        ),
        Field::optional(
            "say",
            FieldType::Text,
            "The model's text. `${name}` is replaced by the capture of that name.",
        ),
        Field::optional(
            "call",
            FieldType::List(&FieldType::Mapping(&CALL)),
            "Tools that the model calls.",
        ),
        Field::optional(
            "fail",
            FieldType::Text,
            "The model call fails with this text.",
        ),
        Field::optional(
            "delayMs",
            FieldType::Number(0, MAX_SCRIPT_DELAY_MS),
            "Delay of the answer, in milliseconds.",
        ),
    ],
)
.with(&[
    FieldConstraint::NotBoth("say", "fail"),
    FieldConstraint::NotBoth("call", "fail"),
    FieldConstraint::AnyOf(&["say", "call", "fail"], "add the model's response"),
]);

static WHEN: Shape = Shape::of(
    "When",
    "Conditions that must all hold. Patterns are regular expressions.",
    &[
        Field::optional(
            "user",
            FieldType::Text,
            "Pattern of the latest user message.",
        ),
        Field::optional(
            "tool",
            FieldType::Text,
            "The latest message is the result of this tool: its full name, such as `bash__exec`.",
        ),
        Field::optional("result", FieldType::Text, "Pattern of that result's text."),
        Field::optional(
            "error",
            FieldType::Boolean,
            "True if that result must be an error.",
        ),
        Field::optional("system", FieldType::Text, "Pattern of the system prompt."),
        Field::optional(
            "history",
            FieldType::Text,
            "Pattern of any earlier message, the newest first.",
        ),
        Field::optional(
            "step",
            FieldType::Number(1, u32::MAX as u64),
            "The number of the step within its turn, from 1.",
        ),
    ],
);

static CALL: Shape = Shape::of(
    "Call",
    "A tool call of the model.",
    &[
        Field::required(
            "tool",
            FieldType::Text,
            "Its full name, such as `bash__exec`.",
        ),
        Field::optional(
            "args",
            FieldType::Entries(&FieldType::Anything),
            "Its arguments. Captures are replaced in texts.",
        ),
    ],
);

/// Reads the field `rules` of a script file or of a Model's options.
pub(crate) fn read_rules(fields: &mut Fields<'_>, report: &mut ProblemReport) -> Option<Script> {
    let rules = fields.mappings("rules", report);
    let place = fields.place_of("rules")?;
    if rules.is_empty() && fields.is_list("rules") {
        report.add(
            Problem::new(
                codes::INVALID_VALUE,
                place,
                format!("{} needs at least one rule", fields.label),
            )
            .help("add `- say: Hello` below `rules:`"),
        );
        return None;
    }
    let count = rules.len();
    let rules: Vec<protocol::ScriptRule> = rules
        .into_iter()
        .filter_map(|fields| Some(read_rule(fields?, report)))
        .collect();
    (count > 0 && rules.len() == count).then_some(Script { rules })
}

fn read_rule(mut fields: Fields<'_>, report: &mut ProblemReport) -> protocol::ScriptRule {
    let mut captures = Captures::default();
    let when = fields
        .nested("when", report)
        .map(|when| read_when(when, &mut captures, report));
    let say = read_template(&mut fields, "say", &captures, report);
    let call: Vec<ScriptedCall> = fields
        .mappings("call", report)
        .into_iter()
        .filter_map(|fields| read_call(fields?, &captures, report))
        .collect();
    let fail = read_template(&mut fields, "fail", &captures, report);
    let delay_ms = fields.number("delayMs", report);
    fields.close();
    protocol::ScriptRule {
        when: when.unwrap_or_default(),
        say,
        call,
        fail,
        delay_ms,
    }
}

fn read_when(
    mut fields: Fields<'_>,
    captures: &mut Captures,
    report: &mut ProblemReport,
) -> RuleConditions {
    let when = RuleConditions {
        user: read_pattern(&mut fields, "user", captures, report),
        tool: read_tool(&mut fields, report).map(|name| name.as_str().to_owned()),
        result: read_pattern(&mut fields, "result", captures, report),
        error: fields.boolean("error", report),
        system: read_pattern(&mut fields, "system", captures, report),
        history: read_pattern(&mut fields, "history", captures, report),
        step: fields
            .number("step", report)
            .and_then(|step| u32::try_from(step).ok()),
    };
    fields.close();
    when
}

fn read_pattern(
    fields: &mut Fields<'_>,
    name: &'static str,
    captures: &mut Captures,
    report: &mut ProblemReport,
) -> Option<String> {
    let pattern = fields.text(name, report)?;
    captures.add(&pattern, &fields.label.field(name), report);
    Some(pattern.value.to_owned())
}

fn read_template(
    fields: &mut Fields<'_>,
    name: &'static str,
    captures: &Captures,
    report: &mut ProblemReport,
) -> Option<String> {
    let text = fields.text(name, report)?;
    captures.check_text(text.value, text.place, &fields.label.field(name), report);
    Some(text.value.to_owned())
}

fn read_tool(fields: &mut Fields<'_>, report: &mut ProblemReport) -> Option<ToolName> {
    let tool = fields.text("tool", report)?;
    id(&tool, report)
}

fn read_call(
    mut fields: Fields<'_>,
    captures: &Captures,
    report: &mut ProblemReport,
) -> Option<ScriptedCall> {
    let tool = read_tool(&mut fields, report);
    let args = fields.entries("args", report);
    let label = fields.label.field("args");
    for entry in args {
        captures.check_node(&entry.node, &label.field(&entry.key), report);
    }
    fields.close();
    Some(ScriptedCall {
        tool: tool?.as_str().to_owned(),
        args: entries_to_json(args).into_iter().collect(),
    })
}
