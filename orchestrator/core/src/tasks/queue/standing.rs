//! Place of a task's proposal in the merge queue, for the views of tasks.

/// Place of a task's proposal in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::tasks) enum QueueStanding {
    None,
    /// No person must do something about it.
    Queued,
    /// A person decides, because of this.
    Held(String),
    /// A person may have to remove the cause of this.
    Unknown(String),
}
