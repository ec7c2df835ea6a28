//! Reports parameters that Anthropic refuses in combination with thinking, and those that the
//! Responses API lacks.

use goondan_connectors::thinking::{ThinkingParams, anthropic_reply_tokens};
use goondan_protocol::definition::{HostedModel, HostedProvider, ModelParams, OpenAiApi};

use crate::codes;
use crate::report::{Problem, ProblemReport, SourceLocation};

/// True if reasoning leaves tokens for a reply.
pub(crate) fn leaves_room(model: &HostedModel, params: &ModelParams) -> bool {
    if model.provider != HostedProvider::Anthropic {
        return true;
    }
    let effort = params.reasoning_effort.as_deref();
    let thinking = ThinkingParams::of_anthropic(&model.model, effort);
    let tokens = params.max_tokens;
    let tokens = tokens.unwrap_or_else(|| anthropic_reply_tokens(&model.model));
    thinking
        .budget_tokens()
        .is_none_or(|budget| budget < tokens)
}

/// Checks the effective parameters: the agent's own, with the Model's as defaults.
pub(crate) fn check(
    model: &HostedModel,
    params: &ModelParams,
    place: SourceLocation,
    report: &mut ProblemReport,
) {
    check_responses(model, params, place, report);
    if model.provider != HostedProvider::Anthropic {
        return;
    }
    let effort = params.reasoning_effort.as_deref();
    let thinking = ThinkingParams::of_anthropic(&model.model, effort);
    let reply_tokens = params.max_tokens;
    let reply_tokens = reply_tokens.unwrap_or_else(|| anthropic_reply_tokens(&model.model));
    let budget = thinking.budget_tokens();
    if let (Some(effort), Some(budget)) = (effort, budget.filter(|it| *it >= reply_tokens)) {
        let message = format!(
            "`maxTokens: {reply_tokens}` leaves no tokens for a reply: with `reasoningEffort: \
             {effort}`, `{}` may spend {budget} tokens on reasoning",
            model.model
        );
        report.add(
            Problem::new(codes::INVALID_VALUE, place, message).help(format!(
                "set `maxTokens` to more than {budget}, or lower `reasoningEffort`"
            )),
        );
    }
    if thinking.is_on() && params.temperature.is_some() {
        let message = "`temperature` has no effect on a reasoning model";
        report.add(
            Problem::warning(codes::NO_EFFECT, place, message)
                .help("remove it, or write `reasoningEffort: none`"),
        );
    }
}

/// Reports parameters that the Responses API does not have.
fn check_responses(
    model: &HostedModel,
    params: &ModelParams,
    place: SourceLocation,
    report: &mut ProblemReport,
) {
    if model.provider != HostedProvider::OpenAi || model.api != OpenAiApi::Responses {
        return;
    }
    let absent = [
        ("stop", !params.stop.is_empty()),
        ("seed", params.seed.is_some()),
    ];
    for (name, is_set) in absent {
        if is_set {
            let message = format!("`{name}` has no effect: the Responses API does not have it");
            report.add(
                Problem::warning(codes::NO_EFFECT, place, message)
                    .help("remove it, or write `api: chat`"),
            );
        }
    }
}
