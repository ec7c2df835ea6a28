//! Conversations in which agents of `runtime.kind: llm` run tasks (`TASK-8`).
//!
//! Each session of such a task has its own conversation, named after the task and the run that
//! started it: `task:shop.1`. No other code creates conversations with such names.

use super::TaskId;
use crate::ids::{EventId, InstanceKey, InvalidId};

/// Prefix of the keys of these conversations, and of the names under which the usage of tasks is
/// counted.
pub const TASK_KEY_PREFIX: &str = "task:";

/// The conversation that a run of a task starts.
///
/// # Errors
///
/// None for a valid task, because task ids are shorter than keys.
pub fn conversation_of(task: &TaskId, run: u64) -> Result<InstanceKey, InvalidId> {
    InstanceKey::new(format!("{TASK_KEY_PREFIX}{task}.{run}"))
}

/// The event that starts a run in its conversation.
///
/// # Errors
///
/// None for a valid task.
pub fn event_of(task: &TaskId, run: u64) -> Result<EventId, InvalidId> {
    EventId::new(format!("{TASK_KEY_PREFIX}{task}.run-{run}"))
}

/// True if a key belongs to a task's conversation.
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
