//! Tokens of authorization servers used by processes (`SYS-4`).
//!
//! Placeholders in a configuration are replaced with tokens when a process is started. A process
//! without its token is not started, and a process whose token was renewed is restarted after its
//! work in progress.

use std::collections::BTreeSet;

use goondan_config::ConnectionDefinition;
use goondan_protocol::call::CallTarget;
use goondan_protocol::definition::HostedModel;
use goondan_protocol::ids::ConnectionName;
use goondan_protocol::oauth::OAuthNeed;
use goondan_protocol::secret::SecretValue;
use serde_json::Value;

use super::Workspace;
use crate::bus::context::Cx;
use crate::exchange::oauth_calls::Tokens;

fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(fields) => fields.values().flat_map(texts).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

pub(super) fn needs_of_connection(definition: &ConnectionDefinition) -> BTreeSet<OAuthNeed> {
    let secrets = definition.secrets.values().map(String::as_str);
    let config = definition.config.values().flat_map(texts);
    secrets
        .chain(config)
        .filter_map(OAuthNeed::of_placeholder)
        .collect()
}

pub(super) fn needs_of_model(model: &HostedModel) -> BTreeSet<OAuthNeed> {
    let key = model.api_key.as_deref();
    key.and_then(OAuthNeed::of_placeholder)
        .into_iter()
        .collect()
}

fn put_text(text: &mut String, tokens: &Tokens) {
    let token = OAuthNeed::of_placeholder(text).and_then(|need| tokens.get(&need));
    if let Some(token) = token {
        token.expose().clone_into(text);
    }
}

fn put_value(value: &mut Value, tokens: &Tokens) {
    match value {
        Value::String(text) => put_text(text, tokens),
        Value::Array(items) => items.iter_mut().for_each(|item| put_value(item, tokens)),
        Value::Object(fields) => fields
            .values_mut()
            .for_each(|field| put_value(field, tokens)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Replaces the placeholders of a connection.
pub(super) fn connection_with(
    mut definition: ConnectionDefinition,
    tokens: &Tokens,
) -> ConnectionDefinition {
    for secret in definition.secrets.values_mut() {
        put_text(secret, tokens);
    }
    for (_, value) in &mut definition.config {
        put_value(value, tokens);
    }
    definition
}

/// Replaces the placeholders of a model.
pub(super) fn model_with(mut model: HostedModel, tokens: &Tokens) -> HostedModel {
    if let Some(key) = &mut model.api_key {
        put_text(key, tokens);
    }
    model
}

/// Reason a process without its token is not started.
pub(super) fn lacks(need: &OAuthNeed) -> String {
    format!(
        "it waits for a login for {need}: `gdn secret oauth login {}`",
        need.arguments()
    )
}

/// Valid tokens of a workspace, by need.
#[derive(Debug, Default)]
pub(crate) struct TokenStore(Tokens);

impl TokenStore {
    /// The tokens for these needs.
    ///
    /// # Errors
    ///
    /// The first need without a token.
    pub(super) fn for_needs(&self, needs: &BTreeSet<OAuthNeed>) -> Result<Tokens, OAuthNeed> {
        let found = needs.iter().map(|need| {
            let token = self.0.get(need).ok_or_else(|| need.clone())?;
            Ok((need.clone(), token.clone()))
        });
        found.collect()
    }

    /// True if these are the current tokens.
    pub(crate) fn has(&self, tokens: &Tokens) -> bool {
        let needs = tokens.keys().cloned().collect();
        self.for_needs(&needs).ok().as_ref() == Some(tokens)
    }

    /// True if a process with these needs, started with these tokens, would get others now.
    pub(super) fn differ(&self, needs: &BTreeSet<OAuthNeed>, tokens: &Tokens) -> bool {
        !needs.is_empty() && self.for_needs(needs).ok().as_ref() != Some(tokens)
    }

    fn is_missing(&self, need: &OAuthNeed) -> bool {
        !self.0.contains_key(need)
    }

    fn set(&mut self, need: &OAuthNeed, token: Option<SecretValue>) {
        match token {
            Some(token) => drop(self.0.insert(need.clone(), token)),
            None => drop(self.0.remove(need)),
        }
    }
}

impl Workspace {
    /// The login that a call to this target waits for, if any.
    pub(crate) fn lacking(&self, target: &CallTarget) -> Option<OAuthNeed> {
        let (slot, needs) = match target {
            CallTarget::Model { name } => {
                let model = self.models.get(name)?;
                (model.slot(), needs_of_model(model.wanted()?))
            }
            CallTarget::Connection { name } => {
                let connector = self.connectors.get(name)?;
                (connector.slot(), needs_of_connection(connector.wanted()?))
            }
        };
        if needs.is_empty() || slot.up().is_some() {
            return None;
        }
        self.tokens.for_needs(&needs).err()
    }

    /// The logins that a conversation's calls wait for.
    pub(super) fn consents_of(
        &self,
        targets: Vec<CallTarget>,
        wider: Vec<OAuthNeed>,
    ) -> Vec<String> {
        let targets = targets.into_iter();
        let needs = targets.filter_map(|target| self.lacking(&target));
        let needs: BTreeSet<OAuthNeed> = needs.chain(wider).collect();
        needs.iter().map(ToString::to_string).collect()
    }

    /// The logins that it waits for.
    pub(super) fn consents(&self) -> Vec<String> {
        let needs = self.bundle.iter().flat_map(|bundle| &bundle.oauth_needs);
        needs
            .filter(|need| self.tokens.is_missing(need))
            .map(ToString::to_string)
            .collect()
    }

    /// Sets or removes a token. Processes that use another one are restarted.
    pub(crate) fn set_token(&mut self, cx: &mut Cx, need: &OAuthNeed, token: Option<SecretValue>) {
        self.tokens.set(need, token);
        let connectors = self.connectors.iter();
        let connectors = connectors.filter(|(_, connector)| {
            let wanted = connector.wanted();
            wanted.is_some_and(|wanted| needs_of_connection(wanted).contains(need))
        });
        let connectors: Vec<ConnectionName> = connectors.map(|(name, _)| name.clone()).collect();
        for name in connectors {
            self.advance_connector(cx, &name);
        }
    }
}
