//! Prompt of an agent whose task resumes on another node of its workspace.

use super::*;

#[test]
fn rep_1_agent_is_notified_when_its_task_moves_to_a_new_node() {
    let mut driven = TaskDriver::running(2);
    for (node, facts) in [("a", 1), ("a", 0), ("b", 1), ("b", 0)] {
        let at = Timestamp::from_unix_millis(driven.now);
        let output = driven.task.handle(TaskInput::OnNode(node.to_owned()), at);
        assert_eq!(output.unwrap().facts.len(), facts, "{node}");
    }
    let effects = driven.exits(None);
    let prompt = started(&effects);
    assert!(
        prompt.contains("on another machine until now, `a`"),
        "{prompt}"
    );
    // A move does not restart the task.
    let mut driven = TaskDriver::running(0);
    driven.does(TaskInput::OnNode("a".to_owned()));
    driven.tells(complete(0));
    driven.ends_well();
    let before = driven.status();
    assert!(driven.does(TaskInput::OnNode("b".to_owned())).is_empty());
    assert_eq!(driven.status(), before);
}
