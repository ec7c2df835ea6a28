//! Modules of the project among the extensions around a turn.
//!
//! A module runs in a separate process. Its middlewares are entered one by one, and each stays open
//! until everything inside it is done.

use goondan_protocol::ids::ExtensionStates;
use goondan_protocol::limits::MAX_EXTENSION_STATE_BYTES;
use goondan_protocol::message::MessageEvent;
use serde_json::Value;

use super::Extensions;
use crate::middleware::{InvocationId, Middleware, Notes};

impl Extensions {
    /// True if the extensions include modules.
    #[must_use]
    pub(crate) fn has_modules(&self) -> bool {
        self.loaded.iter().any(|loaded| loaded.is_module)
    }

    /// Sorts all layers once the modules are ready. Modules without a registered middleware have no
    /// layer.
    pub(crate) fn assemble(&mut self, middlewares: &[Middleware]) {
        self.stack.assemble(&self.loaded, middlewares);
    }

    /// A unique number for the next invocation.
    pub(crate) fn next_invocation(&mut self) -> InvocationId {
        self.stack.next_invocation()
    }

    /// Applies a module's state and returns its events, without those that the turn recorded before
    /// a crash.
    ///
    /// # Errors
    ///
    /// A description, if the states of the agent's extensions become too large.
    pub(crate) fn take_notes(
        &mut self,
        place: usize,
        notes: Notes,
    ) -> Result<Vec<MessageEvent>, String> {
        if let Some(state) = notes.state {
            self.remember(place, state)?;
        }
        let stack = &mut self.stack;
        let events = notes.events.into_iter();
        Ok(events.filter(|event| stack.is_new(event)).collect())
    }

    fn remember(&mut self, place: usize, state: Value) -> Result<(), String> {
        let of_others = self.loaded.iter().enumerate();
        let of_others = of_others.filter(|(at, _)| *at != place);
        let of_others = of_others.filter_map(|(_, loaded)| loaded.state.as_ref());
        let of_all: usize = of_others
            .chain([&state])
            .map(|state| state.to_string().len() + 1)
            .sum();
        if of_all > MAX_EXTENSION_STATE_BYTES {
            return Err(format!(
                "the states of the agent's extensions would take {of_all} bytes; at most \
                 {MAX_EXTENSION_STATE_BYTES} are allowed in total"
            ));
        }
        if let Some(loaded) = self.loaded.get_mut(place) {
            loaded.state = Some(state);
        }
        Ok(())
    }

    pub(crate) fn states_of_modules(&self) -> ExtensionStates {
        let modules = self.loaded.iter().filter(|loaded| loaded.is_module);
        modules
            .filter_map(|loaded| Some((loaded.name.clone(), loaded.state.clone()?)))
            .collect()
    }

    /// Restores the states of the modules after the turn has failed.
    pub(crate) fn forget_turn(&mut self) {
        for loaded in self.loaded.iter_mut().filter(|loaded| loaded.is_module) {
            loaded.state.clone_from(&loaded.committed);
        }
    }
}

#[cfg(test)]
mod tests {
    use goondan_protocol::JsonObject;
    use goondan_protocol::definition::{ExtensionDefinition, ExtensionSource};

    use super::*;
    use crate::extensions::middleware_stack::Layer;
    use crate::middleware::MiddlewareScope;

    /// `log`, `module`, `integrity`: a module between two built-in extensions.
    fn extensions() -> Extensions {
        let builtin = |name: &str, builtin: &str| ExtensionDefinition {
            name: name.parse().unwrap(),
            source: ExtensionSource::Builtin {
                package: "@goondan/base".to_owned(),
                name: builtin.parse().unwrap(),
            },
            config: JsonObject::new(),
        };
        let module = ExtensionDefinition {
            source: ExtensionSource::Module {
                entry: "module.mjs".into(),
                digest: String::new(),
                timeout_ms: 1,
            },
            ..builtin("module", "logging")
        };
        let definitions = [
            builtin("log", "logging"),
            module,
            builtin("integrity", "message-integrity"),
        ];
        let (agent, key) = ("clerk".parse().unwrap(), "ann".parse().unwrap());
        Extensions::new(agent, key, &definitions, ExtensionStates::new()).unwrap()
    }

    fn layers(extensions: &Extensions, scope: MiddlewareScope) -> Vec<String> {
        let layers = (0..extensions.depth(scope)).filter_map(|at| extensions.layer(scope, at));
        let named = layers.map(|layer| match layer {
            Layer::Builtin { place } => extensions.name_at(place).unwrap().to_string(),
            Layer::Module { place, number } => {
                format!("{} {number}", extensions.name_at(place).unwrap())
            }
        });
        named.collect()
    }

    #[test]
    fn a_lower_priority_is_further_out_and_equals_keep_their_order() {
        let mut extensions = extensions();
        let priorities = [0, 5, -5, 0];
        let middlewares = priorities
            .iter()
            .zip(0..)
            .map(|(priority, number)| Middleware {
                extension: "module".parse().unwrap(),
                scope: MiddlewareScope::Step,
                number,
                priority: *priority,
            });
        let middlewares: Vec<Middleware> = middlewares.collect();
        extensions.assemble(&middlewares);
        assert_eq!(
            layers(&extensions, MiddlewareScope::Step),
            [
                "module 2",
                "log",
                "module 0",
                "module 3",
                "integrity",
                "module 1"
            ]
        );
        assert_eq!(
            layers(&extensions, MiddlewareScope::Turn),
            ["log", "integrity"]
        );
    }
}
