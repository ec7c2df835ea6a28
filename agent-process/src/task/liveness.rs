//! Liveness of a program that writes nothing. Pure.

/// Signs of life of a program.
#[derive(Debug, Default)]
pub(super) struct Liveness {
    has_written: bool,
    cpu_ticks: Option<u64>,
}

impl Liveness {
    /// Records that the program has written something, which is a sign of life.
    pub(super) fn wrote(&mut self) {
        self.has_written = true;
    }

    /// True if the program wrote nothing since the last call and must be checked.
    pub(super) fn is_to_be_looked_at(&mut self) -> bool {
        !std::mem::take(&mut self.has_written)
    }

    /// Processes a check; returns true if processor time since the last check, or a child, is a
    /// sign of life.
    pub(super) fn looked(&mut self, cpu_ticks: u64, children: usize) -> bool {
        let before = self.cpu_ticks.replace(cpu_ticks);
        children > 0 || before != Some(cpu_ticks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_8_silence_alone_is_no_stall() {
        let mut it = Liveness::default();
        assert!(it.is_to_be_looked_at());
        assert!(it.looked(5, 0), "it has taken time since it was started");
        assert!(!it.looked(5, 0));
        assert!(it.looked(5, 1), "a child works");
        assert!(it.looked(6, 0));
        it.wrote();
        assert!(!it.is_to_be_looked_at());
        assert!(it.is_to_be_looked_at());
    }
}
