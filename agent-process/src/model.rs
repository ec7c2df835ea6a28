//! Models, which answer steps.

mod pattern;
mod provider_model;
mod request;
pub mod scripted;
mod template;

use goondan_protocol::definition::{ModelDefinition, ModelProvider};

use crate::outgoing_calls::OutboundCalls;

pub use request::{Model, ModelError, ModelLocation, ModelOutcome, ModelReply, ModelRequest};

pub(crate) fn of_definition(
    definition: &ModelDefinition,
    outgoing: &OutboundCalls,
) -> Box<dyn Model> {
    match &definition.provider {
        ModelProvider::Scripted { script } => Box::new(scripted::ScriptedModel::new(script)),
        ModelProvider::Connector { params, fallbacks } => {
            Box::new(provider_model::HostedModel::new(
                (definition.name.clone(), params.clone()),
                fallbacks.clone(),
                outgoing.clone(),
            ))
        }
    }
}
