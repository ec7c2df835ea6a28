//! Parameters of the calls to a model, in a Model or an Agent.

use goondan_protocol::definition::ModelParams;

use super::Context;
use crate::codes;
use crate::fields::Fields;
use crate::report::Problem;
use crate::shape::{Field, FieldType, Shape};
use crate::tree::YamlValue;

/// Largest number of tokens that can be requested.
const TOKENS_MAX: u64 = 10_000_000;

/// Levels of reasoning effort.
const EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// Parameters of each call.
pub(crate) static PARAMS: Shape = Shape::of(
    "ModelParams",
    "Parameters of each call to a model. The provider chooses defaults for missing ones.",
    &[
        Field::optional(
            "temperature",
            FieldType::Anything,
            "Sampling temperature, from 0 to 2.",
        ),
        Field::optional(
            "topP",
            FieldType::Anything,
            "Nucleus sampling probability, from 0 to 1.",
        ),
        Field::optional(
            "maxTokens",
            FieldType::Number(1, TOKENS_MAX),
            "The longest reply, in tokens.",
        ),
        Field::optional("stop", FieldType::List(&FieldType::Text), "Stop sequences."),
        Field::optional(
            "reasoningEffort",
            FieldType::Word(EFFORTS),
            "Reasoning effort, for models that support it.",
        ),
        Field::optional(
            "seed",
            FieldType::Number(0, i64::MAX as u64),
            "Seed for reproducible replies, as far as the provider supports it.",
        ),
    ],
);

/// Reads the field `params`.
pub(crate) fn read(fields: &mut Fields<'_>, cx: &mut Context<'_>) -> ModelParams {
    let Some(mut params) = fields.nested("params", &mut cx.report) else {
        return ModelParams::default();
    };
    let stop = params.texts("stop", &mut cx.report);
    let read = ModelParams {
        temperature: fraction(&mut params, "temperature", 2.0, cx),
        top_p: fraction(&mut params, "topP", 1.0, cx),
        max_tokens: params
            .number("maxTokens", &mut cx.report)
            .and_then(|tokens| u32::try_from(tokens).ok()),
        stop: stop.iter().map(|text| text.value.to_owned()).collect(),
        reasoning_effort: params
            .word("reasoningEffort", &mut cx.report)
            .map(|word| word.value.to_owned()),
        seed: params.number("seed", &mut cx.report),
    };
    params.close();
    read
}

/// Reads a number from 0 to `most`.
fn fraction(
    params: &mut Fields<'_>,
    name: &'static str,
    most: f64,
    cx: &mut Context<'_>,
) -> Option<f64> {
    let entry = params.get(name)?;
    let number = match &entry.node.value {
        YamlValue::Number(number) => number.as_f64(),
        _ => None,
    };
    let number = number.filter(|number| (0.0..=most).contains(number));
    if number.is_none() {
        let message = format!("`{name}` must be a number from 0 to {most}");
        let problem = Problem::new(codes::INVALID_VALUE, entry.node.place, message);
        cx.report.add(problem);
    }
    number
}
