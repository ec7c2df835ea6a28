//! The conversations in which agents of `runtime.kind: llm` work for tasks (`TASK-8`).
//!
//! Each session of such a task is a conversation of its own, named after the task and the run that began it:
//! `task:shop.1`. Nobody else begins one by such a name.

use super::TaskId;
use crate::ids::{EventId, InstanceKey, InvalidId};

/// How the keys of these conversations begin, and the names under which tasks are counted.
pub const TASK_KEY_PREFIX: &str = "task:";

/// The conversation that a run of a task begins.
///
/// # Errors
///
/// None for any task there can be: ids of tasks are shorter than keys.
pub fn conversation_of(task: &TaskId, run: u64) -> Result<InstanceKey, InvalidId> {
    InstanceKey::new(format!("{TASK_KEY_PREFIX}{task}.{run}"))
}

/// The event by which a run is asked for in its conversation.
///
/// # Errors
///
/// None for any task there can be.
pub fn event_of(task: &TaskId, run: u64) -> Result<EventId, InvalidId> {
    EventId::new(format!("{TASK_KEY_PREFIX}{task}.run-{run}"))
}

/// Whether a key is of those that tasks alone use.
#[must_use]
pub fn is_of_task(key: &InstanceKey) -> bool {
    key.as_str().starts_with(TASK_KEY_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_8_the_conversation_of_a_task_is_named_after_it() {
        let longest = "x".repeat(super::super::TASK_ID_CHARS_MAX);
        for id in ["shop", &longest] {
            let task = TaskId::try_from(id.to_owned()).unwrap();
            let key = conversation_of(&task, u64::MAX).unwrap();
            assert!(is_of_task(&key), "{key}");
            assert!(event_of(&task, u64::MAX).is_ok());
        }
        assert!(!is_of_task(&InstanceKey::main()));
    }
}
