//! The final content of the store, read independently of the daemon.

use std::collections::BTreeMap;
use std::sync::Arc;

use goondan_durable::disk::Crash;
use goondan_protocol::ids::{InstanceKey, InstanceRef};
use goondan_store::ledger::{self, LedgerContent};
use goondan_store::workspace;
use goondan_store::writer::operation::ReadPage;
use goondan_store::writer::{Report, StoreJob, Worker};
use serde::Deserialize;

use super::World;

impl World {
    pub(in crate::simulation) fn ledger(&self) -> LedgerContent {
        let disk = self.disk.after_crash(Crash::ProcessOnly);
        let record = workspace::list(&disk, &self.layout).unwrap().0.remove(0);
        ledger::read(&disk, &self.layout, &record.workspace_id).unwrap()
    }

    /// The conversations in the store, read by a separate worker.
    pub(in crate::simulation) fn conversations(&self) -> BTreeMap<InstanceKey, Vec<String>> {
        #[derive(Deserialize)]
        struct MessageIdField {
            id: String,
        }
        // A fault that is still pending must not affect the reader.
        let disk = self.disk.after_crash(Crash::ProcessOnly);
        let mut worker = Worker::new(Arc::new(disk.clone()), self.layout.clone());
        let record = workspace::list(&disk, &self.layout).unwrap().0.remove(0);
        let instances = self.layout.instances(&record.workspace_id);
        let (listed, unusable) = workspace::list_instances(&disk, &instances).unwrap();
        assert!(unusable.is_empty(), "{unusable:?}");
        let mut conversations = BTreeMap::new();
        for metadata in listed {
            let instance = InstanceRef {
                workspace_id: record.workspace_id.clone(),
                instance_key: metadata.instance_key.clone(),
            };
            let mut messages: Vec<String> = Vec::new();
            let mut next = Some(0);
            while let Some(offset) = next {
                let instance = instance.clone();
                let read = ReadPage {
                    instance,
                    offset,
                    states_of: Vec::new(),
                };
                let op = read.into();
                let completion = worker.work(&mut vec![StoreJob { token: 0, op }]).remove(0);
                let Report::ReadPage(Ok(page)) = completion.report else {
                    panic!("{completion:?}");
                };
                assert!(
                    page.events.is_empty(),
                    "an open turn was left in {metadata:?}"
                );
                assert!(page.damage.is_empty(), "{:?}", page.damage);
                messages.extend(page.messages.iter().map(|raw| {
                    let message: MessageIdField = serde_json::from_slice(raw).unwrap();
                    message.id
                }));
                next = page.next;
            }
            conversations.insert(metadata.instance_key, messages);
        }
        conversations
    }
}
