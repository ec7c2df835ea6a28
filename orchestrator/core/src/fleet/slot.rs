//! Slot of one child process: its state, and the earliest next start (`SUP-2`, `SUP-4`).

use goondan_protocol::control::ProcessState;
use goondan_protocol::ipc::ConfinementReport;
use goondan_protocol::limits::HANDSHAKE_TIMEOUT_MS;
use goondan_protocol::observe::detail_of;
use goondan_protocol::time::Timestamp;

use super::back_off;
use crate::limits::{HEARTBEAT_INTERVAL_MS, HEARTBEAT_TIMEOUT_MS};
use crate::{ClockTime, ProcessId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessStage {
    /// The handshake is not complete.
    Spawning,
    Ready,
    /// The process was asked to stop, and is killed at this time.
    Draining {
        kill_at_ms: u64,
    },
    /// The process was killed; its exit is awaited.
    Dying {
        is_wanted: bool,
    },
}

/// A process that runs or whose exit is awaited.
#[derive(Debug, Clone)]
pub(crate) struct LiveProcess {
    pub(crate) process: ProcessId,
    pub(crate) pid: Option<u32>,
    pub(crate) started_at: Timestamp,
    pub(crate) stage: ProcessStage,
    /// Confinement reported by the process; `None` before its report.
    pub(crate) own: Option<ConfinementReport>,
    started_ms: u64,
    heard_ms: u64,
    pinged_ms: u64,
}

#[derive(Debug, Clone)]
enum State {
    Down { has_crashed: bool },
    Up(LiveProcess),
    BackOff { until_ms: u64 },
}

/// Action due as time passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotAction {
    /// None.
    Nothing,
    /// Check that the process responds.
    Ping(ProcessId),
    /// Kill the process: its handshake timed out, it did not respond, or its grace period ended.
    Kill(ProcessId, &'static str),
    /// The back-off is over.
    Start,
}

/// End of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotExit {
    Stopped,
    /// Unexpected; the next start is allowed after `delay_ms`.
    Crashed {
        delay_ms: u64,
    },
}

/// The slot of one child process.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    state: State,
    pub(crate) crashes: u32,
    /// Status reported by the process, or how the last one ended.
    pub(crate) detail: Option<String>,
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            state: State::Down { has_crashed: false },
            crashes: 0,
            detail: None,
        }
    }
}

impl Slot {
    /// The process, if any.
    pub(crate) fn up(&self) -> Option<&LiveProcess> {
        match &self.state {
            State::Up(up) => Some(up),
            State::Down { .. } | State::BackOff { .. } => None,
        }
    }

    fn up_mut(&mut self) -> Option<&mut LiveProcess> {
        match &mut self.state {
            State::Up(up) => Some(up),
            State::Down { .. } | State::BackOff { .. } => None,
        }
    }

    /// The process, if it is ready.
    pub(crate) fn ready(&self) -> Option<ProcessId> {
        self.up()
            .filter(|up| up.stage == ProcessStage::Ready)
            .map(|up| up.process)
    }

    /// True if a process may start now.
    pub(crate) fn may_start(&self, now: ClockTime) -> bool {
        match &self.state {
            State::Down { .. } => true,
            State::Up(_) => false,
            State::BackOff { until_ms } => *until_ms <= now.mono_ms,
        }
    }

    pub(crate) fn start(&mut self, process: ProcessId, now: ClockTime) {
        debug_assert!(self.up().is_none(), "never two processes in one slot");
        self.state = State::Up(LiveProcess {
            process,
            pid: None,
            started_at: now.wall,
            stage: ProcessStage::Spawning,
            own: None,
            started_ms: now.mono_ms,
            heard_ms: now.mono_ms,
            pinged_ms: now.mono_ms,
        });
    }

    pub(crate) fn spawned(&mut self, pid: u32) {
        if let Some(up) = self.up_mut() {
            up.pid = Some(pid);
        }
    }

    /// Records the confinement reported by the process. Informational only.
    pub(crate) fn confined(&mut self, own: ConfinementReport) {
        if let Some(up) = self.up_mut() {
            up.own = Some(ConfinementReport {
                lacks: own.lacks.as_deref().map(detail_of),
                ..own
            });
        }
    }

    /// Marks the handshake as complete. A process that was asked to stop keeps stopping.
    pub(crate) fn greeted(&mut self) {
        if let Some(up) = self.up_mut()
            && up.stage == ProcessStage::Spawning
        {
            up.stage = ProcessStage::Ready;
        }
    }

    /// Records that the process sent a message.
    ///
    /// # Errors
    ///
    /// A message that is not allowed at this point of the protocol.
    pub(crate) fn heard(&mut self, now: ClockTime, is_hello: bool) -> Result<(), &'static str> {
        let Some(up) = self.up_mut() else {
            return Ok(());
        };
        up.heard_ms = now.mono_ms;
        match up.stage {
            ProcessStage::Spawning if !is_hello => Err("it sent a message before the greeting"),
            ProcessStage::Ready | ProcessStage::Draining { .. } if is_hello => {
                Err("it sent a second greeting")
            }
            ProcessStage::Spawning
            | ProcessStage::Ready
            | ProcessStage::Draining { .. }
            | ProcessStage::Dying { .. } => Ok(()),
        }
    }

    /// Begins stopping within `grace_period_ms`. Returns the process if it must be notified; a
    /// process that is not ready for messages must be killed instead.
    pub(crate) fn drain(&mut self, now: ClockTime, grace_period_ms: u64) -> Option<ProcessId> {
        let up = self.up_mut()?;
        let kill_at_ms = now.mono_ms.saturating_add(grace_period_ms);
        match up.stage {
            ProcessStage::Ready => {
                up.stage = ProcessStage::Draining { kill_at_ms };
                Some(up.process)
            }
            ProcessStage::Draining {
                kill_at_ms: earlier,
            } => {
                up.stage = ProcessStage::Draining {
                    kill_at_ms: kill_at_ms.min(earlier),
                };
                None
            }
            ProcessStage::Spawning | ProcessStage::Dying { .. } => None,
        }
    }

    /// Marks the process as killed. Returns the process if a signal must be sent. With `is_wanted`,
    /// its exit is not a crash.
    pub(crate) fn kill(&mut self, is_wanted: bool) -> Option<ProcessId> {
        let up = self.up_mut()?;
        let was_asked = matches!(
            up.stage,
            ProcessStage::Draining { .. } | ProcessStage::Dying { is_wanted: true }
        );
        up.stage = ProcessStage::Dying {
            is_wanted: is_wanted || was_asked,
        };
        Some(up.process)
    }

    /// True if its process is being killed.
    pub(crate) fn is_dying(&self) -> bool {
        let stage = self.up().map(|up| &up.stage);
        matches!(stage, Some(ProcessStage::Dying { .. }))
    }

    /// Handles the exit of its process.
    pub(crate) fn exited(&mut self, now: ClockTime, how: String) -> SlotExit {
        let was_asked = self.up().is_some_and(|up| {
            matches!(
                up.stage,
                ProcessStage::Draining { .. } | ProcessStage::Dying { is_wanted: true }
            )
        });
        self.detail = Some(how);
        if was_asked {
            self.state = State::Down { has_crashed: false };
            return SlotExit::Stopped;
        }
        SlotExit::Crashed {
            delay_ms: self.back_off(now),
        }
    }

    /// Handles a start that failed for lack of resources, which is not counted as a crash.
    pub(crate) fn not_started(&mut self, why: String) {
        self.detail = Some(why);
        self.state = State::Down { has_crashed: false };
    }

    /// Handles work that failed without a process, such as a failed restore. Counts as a crash.
    pub(crate) fn failed(&mut self, now: ClockTime, why: String) {
        debug_assert!(self.up().is_none(), "its end would be missed");
        self.detail = Some(why);
        self.back_off(now);
    }

    /// Counts a crash and returns the delay before the next start, in milliseconds.
    fn back_off(&mut self, now: ClockTime) -> u64 {
        self.crashes = self.crashes.saturating_add(1);
        let delay_ms = back_off::delay_ms(self.crashes);
        self.state = if delay_ms == 0 {
            State::Down { has_crashed: true }
        } else {
            State::BackOff {
                until_ms: now.mono_ms.saturating_add(delay_ms),
            }
        };
        delay_ms
    }

    /// Resets the crash count and the back-off, because a user requested a restart.
    pub(crate) fn forgive(&mut self) {
        self.crashes = 0;
        if let State::BackOff { .. } = self.state {
            self.state = State::Down { has_crashed: true };
        }
    }

    /// Uptime of the process, in milliseconds.
    pub(crate) fn uptime_ms(&self, now: ClockTime) -> u64 {
        self.up()
            .map_or(0, |up| now.mono_ms.saturating_sub(up.started_ms))
    }

    pub(crate) fn due(&mut self, now: ClockTime) -> SlotAction {
        if let State::BackOff { until_ms } = self.state {
            return if until_ms <= now.mono_ms {
                SlotAction::Start
            } else {
                SlotAction::Nothing
            };
        }
        let Some(up) = self.up_mut() else {
            return SlotAction::Nothing;
        };
        let since = |ms: u64| now.mono_ms.saturating_sub(ms);
        match up.stage {
            ProcessStage::Spawning if since(up.started_ms) >= HANDSHAKE_TIMEOUT_MS => {
                SlotAction::Kill(up.process, "it sent no greeting in time")
            }
            ProcessStage::Draining { kill_at_ms } if now.mono_ms >= kill_at_ms => {
                SlotAction::Kill(up.process, "its grace period is over")
            }
            ProcessStage::Ready | ProcessStage::Draining { .. }
                if since(up.heard_ms) >= HEARTBEAT_TIMEOUT_MS =>
            {
                SlotAction::Kill(up.process, "it does not answer")
            }
            ProcessStage::Ready | ProcessStage::Draining { .. }
                if since(up.pinged_ms) >= HEARTBEAT_INTERVAL_MS =>
            {
                up.pinged_ms = now.mono_ms;
                SlotAction::Ping(up.process)
            }
            _ => SlotAction::Nothing,
        }
    }

    /// The displayed state. `is_working` is true if the process is in a turn or executes a call.
    pub(crate) fn shown(&self, is_working: bool) -> ProcessState {
        match &self.state {
            State::Down { has_crashed: true } => ProcessState::Crashed,
            State::Down { has_crashed: false } => ProcessState::Terminated,
            State::BackOff { .. } => ProcessState::CrashLoopBackOff,
            State::Up(up) => match up.stage {
                ProcessStage::Spawning => ProcessState::Spawning,
                ProcessStage::Ready if is_working => ProcessState::Processing,
                ProcessStage::Ready => ProcessState::Idle,
                ProcessStage::Draining { .. } | ProcessStage::Dying { .. } => {
                    ProcessState::Draining
                }
            },
        }
    }

    /// Time of the next start during back-off, on the clock of [`ClockTime::mono_ms`].
    pub(crate) fn next_start_ms(&self) -> Option<u64> {
        match &self.state {
            State::BackOff { until_ms } => Some(*until_ms),
            State::Down { .. } | State::Up(_) => None,
        }
    }

    /// Wall-clock time of the next start during back-off. A suspended daemon delays it.
    pub(crate) fn next_start_at(&self, now: ClockTime) -> Option<Timestamp> {
        let wait_ms = self.next_start_ms()?.saturating_sub(now.mono_ms);
        let wait_ms = i64::try_from(wait_ms).unwrap_or(i64::MAX);
        let at_ms = now.wall.as_unix_millis().saturating_add(wait_ms);
        Some(Timestamp::from_unix_millis(at_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(ms: u64) -> ClockTime {
        let wall = Timestamp::from_unix_millis(i64::try_from(ms).unwrap());
        ClockTime { mono_ms: ms, wall }
    }

    #[test]
    fn sup_4_sixth_crash_in_a_row_backs_off_and_shows_the_restart() {
        let mut slot = Slot::default();
        for n in 1..=5 {
            slot.start(ProcessId(n), now(n));
            assert_eq!(
                slot.exited(now(n), "died".into()),
                SlotExit::Crashed { delay_ms: 0 }
            );
            assert!(slot.may_start(now(n)));
        }
        slot.start(ProcessId(6), now(10));
        assert_eq!(
            slot.exited(now(10), "died".into()),
            SlotExit::Crashed { delay_ms: 1_000 }
        );
        assert_eq!(slot.shown(false), ProcessState::CrashLoopBackOff);
        assert_eq!(slot.next_start_at(now(10)), Some(now(1_010).wall));
        // The daemon was suspended for an hour.
        let after_pause = ClockTime {
            mono_ms: 510,
            wall: now(3_600_510).wall,
        };
        assert_eq!(slot.next_start_at(after_pause), Some(now(3_601_010).wall));
        assert!(!slot.may_start(now(1_009)));
        assert_eq!(slot.due(now(1_010)), SlotAction::Start);
    }

    #[test]
    fn sup_2_a_slot_is_seen_in_each_of_the_seven_states() {
        let mut slot = Slot::default();
        let mut seen = vec![slot.shown(false)];
        slot.start(ProcessId(1), now(0));
        seen.push(slot.shown(false));
        slot.greeted();
        seen.push(slot.shown(false));
        seen.push(slot.shown(true));
        slot.drain(now(0), 500);
        seen.push(slot.shown(true));
        slot.exited(now(1), "exit code 0".into());
        for n in 2..=7 {
            slot.start(ProcessId(n), now(n));
            slot.exited(now(n), "died".into());
            seen.push(slot.shown(false));
        }
        use ProcessState as S;
        let expected = [
            S::Terminated,
            S::Spawning,
            S::Idle,
            S::Processing,
            S::Draining,
            S::Crashed,
            S::Crashed,
            S::Crashed,
            S::Crashed,
            S::Crashed,
            S::CrashLoopBackOff,
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn sup_6_drained_process_killed_after_grace_period_is_no_crash() {
        let mut slot = Slot::default();
        slot.start(ProcessId(1), now(0));
        slot.greeted();
        assert_eq!(slot.drain(now(0), 500), Some(ProcessId(1)));
        assert_eq!(
            slot.drain(now(10), 9_000),
            None,
            "a later stop does not add time"
        );
        assert_eq!(slot.due(now(499)), SlotAction::Nothing);
        assert!(matches!(slot.due(now(500)), SlotAction::Kill(..)));
        slot.kill(false);
        assert_eq!(slot.exited(now(501), "killed".into()), SlotExit::Stopped);
        assert_eq!(
            (slot.crashes, slot.shown(false)),
            (0, ProcessState::Terminated)
        );
    }

    #[test]
    fn sup_9_silence_is_noticed_and_an_answer_is_enough() {
        let mut slot = Slot::default();
        slot.start(ProcessId(1), now(0));
        slot.greeted();
        assert_eq!(
            slot.due(now(HEARTBEAT_INTERVAL_MS)),
            SlotAction::Ping(ProcessId(1))
        );
        assert_eq!(slot.heard(now(HEARTBEAT_INTERVAL_MS), false), Ok(()));
        assert_eq!(
            slot.due(now(HEARTBEAT_TIMEOUT_MS)),
            SlotAction::Ping(ProcessId(1))
        );
        let late = HEARTBEAT_INTERVAL_MS + HEARTBEAT_TIMEOUT_MS;
        assert!(matches!(slot.due(now(late)), SlotAction::Kill(..)));
    }

    #[test]
    fn a_process_that_never_greets_is_killed() {
        let mut slot = Slot::default();
        slot.start(ProcessId(1), now(0));
        assert_eq!(slot.due(now(HANDSHAKE_TIMEOUT_MS - 1)), SlotAction::Nothing);
        assert!(matches!(
            slot.due(now(HANDSHAKE_TIMEOUT_MS)),
            SlotAction::Kill(..)
        ));
    }
}
