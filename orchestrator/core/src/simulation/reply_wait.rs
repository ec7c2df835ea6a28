//! A connection that waits for a reply while a user changes the event (`MSG-13`, `STEER-2`).

use super::config::{ENTRY_AGENT, key_of};
use super::oracle::SimulatedRequest;
use super::world::{PostedEvent, World};
use super::{Call, CancelEvent, EventId, expiring_world, queue_control, run_for, workspace_id};

/// A world whose connection waits for the reply to a paused event.
fn waiting_for_a_paused_event() -> (World, EventId) {
    let mut world = expiring_world();
    let key = key_of(ENTRY_AGENT, "ann");
    let ids = [(); 2].map(|()| world.new_post(&key));
    for event_id in ids.clone() {
        world.posts.push(PostedEvent {
            event_id,
            key: key.clone(),
            is_in_flight: false,
        });
    }
    let [_, second] = ids;
    while !world.oracle.unanswered().any(|(id, _)| id == second) {
        world.post();
        world.step();
    }
    queue_control::pause(&mut world, second.clone(), key.clone());
    world.replies.want(second.clone(), key);
    world.await_replies();
    run_for(&mut world, 10_000);
    assert!(!world.replies.are_told(), "it is paused, and has no reply");
    (world, second)
}

#[test]
fn msg_13_reply_waiter_is_notified_when_the_event_is_canceled() {
    let (mut world, event_id) = waiting_for_a_paused_event();
    let call = Call::CancelEvent(CancelEvent {
        workspace_id: workspace_id(&world),
        instance_key: key_of(ENTRY_AGENT, "ann"),
        event_id: Some(event_id.clone()),
    });
    world.ask(SimulatedRequest::Cancel(event_id), call);
    run_for(&mut world, 10_000);
    assert!(
        world.replies.are_told(),
        "no reply reports that it has ended"
    );
    assert_eq!(world.replies.counts["reply: ended by a person"], 1);
}

#[test]
fn msg_13_reply_waiter_gets_the_reply_after_the_event_resumes() {
    let (mut world, _) = waiting_for_a_paused_event();
    let before = world.replies.counts.get("reply: over").copied();
    queue_control::resume_all(&mut world);
    run_for(&mut world, 10_000);
    assert!(world.replies.are_told(), "no reply arrived");
    let after = world.replies.counts["reply: over"];
    assert!(after > before.unwrap_or_default());
}

#[test]
fn msg_13_reply_waiter_is_notified_of_a_deleted_conversation() {
    let (mut world, _) = waiting_for_a_paused_event();
    super::delete(&mut world, &key_of(ENTRY_AGENT, "ann"));
    run_for(&mut world, 10_000);
    // During the deletion there was nothing to wait for.
    world.await_replies();
    run_for(&mut world, 10_000);
    assert!(world.replies.are_told(), "no reply reports that it is gone");
    assert!(world.replies.counts["reply: gone"] >= 1);
}
