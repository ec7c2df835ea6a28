//! Exports conversations to archives in parts, and imports them.

use goondan_durable::FileError;
use goondan_protocol::control::{
    ControlError, ErrorCode, ExportInstance, ExportPart, ImportInstance, ImportResult,
};
use goondan_protocol::ids::{AgentName, InstanceRef};
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_store::StoreError;
use goondan_store::writer::operation::{Export, Import};
use serde_json::json;

use crate::fleet::bundle_of;
use crate::jobs::continuation;
use crate::refusals::no_workspace;
use crate::{Core, RequestToken, control_error, router};

continuation! {
    /// Exports a part of an archive for a client.
    Exporting { token: RequestToken } after Export => &core.on_exported
}

continuation! {
    /// Imports a conversation from a client's archive.
    Importing { agent: AgentName, token: RequestToken } after Import => &core.on_imported
}

impl Core {
    pub(super) fn export(&mut self, token: RequestToken, request: ExportInstance) {
        if let Err(error) = self.fleet.workspace(&request.workspace_id) {
            return self.fleet.respond_error(token, error);
        }
        let instance = InstanceRef {
            workspace_id: request.workspace_id,
            instance_key: request.instance_key,
        };
        let export = Export {
            instance: instance.clone(),
            position: request.position,
            skip_damaged: request.skip_damaged,
            at: self.fleet.now().wall,
        };
        self.fleet.cx().store(export, Exporting { instance, token });
    }

    fn on_exported(&mut self, exporting: &Exporting, result: Result<Box<ExportPart>, StoreError>) {
        let (at, token) = (&exporting.instance, exporting.token);
        let part = match result {
            Ok(part) => part,
            Err(error @ StoreError::File(FileError::Damaged { .. })) => {
                let error = control_error(&error).suggest(
                    "list all damage with `gdn daemon verify`; `--skip-damaged` exports the rest",
                );
                return self.fleet.respond_error(token, error);
            }
            Err(error) => return self.fleet.respond_error(token, control_error(&error)),
        };
        if part.next.is_none() {
            let details = json!({"messages": part.messages, "damaged": part.damaged});
            self.fleet.audit(at, "exported", details);
        }
        self.fleet.respond(token, &part);
    }

    pub(super) fn import(&mut self, token: RequestToken, request: ImportInstance) {
        let instance = InstanceRef {
            workspace_id: request.workspace_id,
            instance_key: request.instance_key,
        };
        let checked = self.check_import(&instance, &request.agent);
        let checked = checked.and_then(|()| {
            if request.path.is_absolute() {
                return Ok(());
            }
            let message = format!("the path `{}` is not absolute", request.path.display());
            Err(ControlError::new(ErrorCode::InvalidRequest, message))
        });
        if let Err(error) = checked {
            return self.fleet.respond_error(token, error);
        }
        let import = Import {
            instance: instance.clone(),
            agent: request.agent.clone(),
            archive: request.path,
            at: self.fleet.now().wall,
        };
        let agent = request.agent;
        let importing = Importing {
            instance,
            agent,
            token,
        };
        self.fleet.cx().store(import, importing);
    }

    fn check_import(&self, at: &InstanceRef, agent: &AgentName) -> Result<(), ControlError> {
        let workspace = self.fleet.workspace(&at.workspace_id)?;
        if workspace.closing.is_some() {
            return Err(no_workspace(&at.workspace_id));
        }
        let bundle = bundle_of(workspace)?;
        if !bundle.agents.contains_key(agent) {
            let message = format!("agent `{agent}` does not exist");
            let error = ControlError::new(ErrorCode::AgentNotFound, message);
            return Err(error.suggest(format!(
                "choose one with `--agent NAME`; the agents are: {}",
                router::agents_of(bundle)
            )));
        }
        if workspace.is_deleting(&at.instance_key) {
            let message = format!("conversation `{}` is being deleted", at.instance_key);
            return Err(ControlError::new(ErrorCode::Storage, message).suggest("try again later"));
        }
        Ok(())
    }

    fn on_imported(&mut self, importing: &Importing, result: Result<ImportResult, StoreError>) {
        let (at, token, agent) = (&importing.instance, importing.token, &importing.agent);
        match result {
            Ok(imported) => {
                let messages = imported.messages;
                let event = LifecycleEvent::InstanceImported {
                    instance_key: at.instance_key.clone(),
                    agent_name: agent.clone(),
                    messages,
                };
                self.fleet.announce(&at.workspace_id, event, None);
                self.fleet.respond(token, &imported);
            }
            Err(error) => self.fleet.respond_error(token, import_error(&error)),
        }
    }
}

fn import_error(error: &StoreError) -> ControlError {
    let told = control_error(error);
    match error {
        StoreError::KeyTaken { key, .. } => {
            let message = format!("conversation `{key}` already exists");
            ControlError::new(ErrorCode::InstanceKeyTaken, message)
                .suggest("import it under another key: `--conversation KEY`")
        }
        StoreError::BadArchive { .. } => {
            told.suggest("nothing was changed; use another copy of the archive, or export it again")
        }
        StoreError::File(FileError::Io { operation, .. })
            if matches!(*operation, "inspect" | "open" | "read") =>
        {
            told.suggest(
                "the daemon reads the archive: move it to a path that the daemon can read; a \
                 service does not share `/tmp`",
            )
        }
        _ => told,
    }
}
