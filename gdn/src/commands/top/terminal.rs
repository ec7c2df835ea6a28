//! Terminal handling of `gdn top`: reads keys, and always restores the terminal.

use std::mem::ManuallyDrop;
use std::thread;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc::UnboundedSender;

use super::input::{KeyPress, Size};

/// Full-screen terminal. Restored on drop and on panic.
///
/// The library's terminal is never dropped, because its destructor uses `eprintln!` if the cursor cannot be shown,
/// which panics on a closed terminal.
#[derive(Debug)]
pub(super) struct Screen(ManuallyDrop<DefaultTerminal>);

impl Screen {
    /// Switches to full screen.
    pub(super) fn take() -> std::io::Result<Self> {
        ratatui::try_init().map(|terminal| Self(ManuallyDrop::new(terminal)))
    }

    pub(super) fn terminal(&mut self) -> &mut DefaultTerminal {
        &mut self.0
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // After a hang-up, the terminal is gone and needs no restore.
        drop(self.0.show_cursor());
        drop(ratatui::try_restore());
    }
}

#[derive(Debug)]
pub(super) enum TerminalEvent {
    Key(KeyPress),
    Resized(Size),
}

/// Reads keys until the receiver or the terminal is gone.
pub(super) fn read_keys(typed: UnboundedSender<TerminalEvent>) {
    // The thread ends with the process, because a blocking read of the terminal cannot be stopped.
    thread::spawn(move || {
        while let Ok(event) = event::read() {
            let told = match event {
                Event::Key(key) => key_of(key).map(TerminalEvent::Key),
                Event::Resize(columns, rows) => {
                    Some(TerminalEvent::Resized(Size { columns, rows }))
                }
                _ => None,
            };
            if told.is_some_and(|told| typed.send(told).is_err()) {
                return;
            }
        }
    });
}

fn key_of(key: KeyEvent) -> Option<KeyPress> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return (key.code == KeyCode::Char('c')).then_some(KeyPress::Interrupt);
    }
    Some(match key.code {
        KeyCode::Char(char) => KeyPress::Char(char),
        KeyCode::Enter => KeyPress::Enter,
        KeyCode::Esc => KeyPress::Escape,
        KeyCode::Backspace => KeyPress::Backspace,
        KeyCode::Up => KeyPress::Up,
        KeyCode::Down => KeyPress::Down,
        KeyCode::PageUp => KeyPress::PageUp,
        KeyCode::PageDown => KeyPress::PageDown,
        KeyCode::Home => KeyPress::Home,
        KeyCode::End => KeyPress::End,
        KeyCode::Tab | KeyCode::Right => KeyPress::NextView,
        KeyCode::BackTab | KeyCode::Left => KeyPress::PreviousView,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::panic;

    use goondan_tests::terminal::given_back_by;

    use super::*;

    #[test]
    fn obs_4_a_panic_gives_the_terminal_back() {
        const ITSELF: &str =
            "commands::top::terminal::tests::obs_4_a_panic_gives_the_terminal_back";
        if let Some(shown) = given_back_by(ITSELF) {
            let (before, after) = shown.split_once("a panic in top").unwrap();
            // The screen was entered, and left before the panic message.
            let taken = before.find("\x1b[?1049h").unwrap();
            let given_back = before.find("\x1b[?1049l").unwrap();
            assert!(taken < given_back, "{shown:?}");
            assert!(!after.contains("\x1b[?1049h"), "{shown:?}");
            return;
        }
        let _screen = Screen::take().unwrap();
        // As in another thread: the restore does not happen by unwinding.
        drop(panic::catch_unwind(|| panic!("a panic in top")));
        std::process::abort();
    }
}
