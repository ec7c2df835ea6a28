//! A user who pauses, resumes and moves queued events.

use goondan_protocol::control::{Call, EventPlace, MoveEvent, PauseEvent, ResumeEvent};
use goondan_protocol::ids::{EventId, InstanceKey};

use super::oracle::SimulatedRequest;
use super::workspace_id;
use super::world::World;

/// Applies a random operation to an event that may still be queued.
pub(super) fn arrange(world: &mut World) {
    let known: Vec<_> = world.oracle.unanswered().collect();
    let Some((event_id, instance_key)) = world.rng.choice(&known).cloned() else {
        return;
    };
    match world.rng.u64(0..4) {
        0 => pause(world, event_id, instance_key),
        1 => resume(world, event_id, instance_key),
        place => {
            let others = known.into_iter().filter(|(_, key)| *key == instance_key);
            let others: Vec<EventId> = others.map(|(id, _)| id).collect();
            let place = match (place, world.rng.choice(&others)) {
                (2, _) => EventPlace::First,
                (_, Some(other)) if world.rng.bool() => EventPlace::Before(other.clone()),
                _ => EventPlace::Last,
            };
            let call = Call::MoveEvent(MoveEvent {
                workspace_id: workspace_id(world),
                instance_key,
                event_id: event_id.clone(),
                place,
            });
            world.ask(SimulatedRequest::Move(event_id), call);
        }
    }
}

pub(super) fn pause(world: &mut World, event_id: EventId, instance_key: InstanceKey) {
    let call = Call::PauseEvent(PauseEvent {
        workspace_id: workspace_id(world),
        instance_key: instance_key.clone(),
        event_id: event_id.clone(),
    });
    world.ask(SimulatedRequest::Pause(event_id, instance_key), call);
}

fn resume(world: &mut World, event_id: EventId, instance_key: InstanceKey) {
    let call = Call::ResumeEvent(ResumeEvent {
        workspace_id: workspace_id(world),
        instance_key,
        event_id,
    });
    world.ask(SimulatedRequest::Other, call);
}

/// Resumes all events that may be paused.
pub(super) fn resume_all(world: &mut World) {
    for (event_id, key) in world.oracle.perhaps_paused.clone() {
        resume(world, event_id, key);
    }
}
