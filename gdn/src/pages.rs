//! Lists that the daemon gives in pages (`OBS-1`).

use goondan_protocol::control::{
    EventInfo, InstanceSummary, ListEvents, ListInstances, ListProcesses, ListTasks, Method,
    ProcessInfo, TaskInfo,
};

use crate::client::{CallError, Client};

/// A request for one page of a list.
pub(crate) trait Paged: Method + Clone {
    /// What is listed.
    type Item;

    /// Takes what is on the page that was asked for, and asks for the next one from now on. Whether there is one.
    fn turn(&mut self, page: Self::Output, listed: &mut Vec<Self::Item>) -> bool;
}

impl Paged for ListInstances {
    type Item = InstanceSummary;

    fn turn(&mut self, page: Self::Output, listed: &mut Vec<InstanceSummary>) -> bool {
        listed.extend(page.instances);
        self.after = page.next;
        self.after.is_some()
    }
}

impl Paged for ListProcesses {
    type Item = ProcessInfo;

    fn turn(&mut self, page: Self::Output, listed: &mut Vec<ProcessInfo>) -> bool {
        listed.extend(page.processes);
        self.after = page.next;
        self.after.is_some()
    }
}

impl Paged for ListEvents {
    type Item = EventInfo;

    fn turn(&mut self, page: Self::Output, listed: &mut Vec<EventInfo>) -> bool {
        listed.extend(page.events);
        self.after = page.next;
        self.after.is_some()
    }
}

impl Paged for ListTasks {
    type Item = TaskInfo;

    fn turn(&mut self, page: Self::Output, listed: &mut Vec<TaskInfo>) -> bool {
        listed.extend(page.tasks);
        self.after = page.next;
        self.after.is_some()
    }
}

impl Client {
    /// All that is on the pages of a list, from the one that is asked for to the last.
    pub(crate) async fn all<L: Paged>(&mut self, mut list: L) -> Result<Vec<L::Item>, CallError> {
        let mut listed = Vec::new();
        loop {
            let page = self.query(list.clone()).await?;
            if !list.turn(page, &mut listed) {
                return Ok(listed);
            }
        }
    }
}
