//! Reads the end of a conversation without owning it, for rehearsals (`BUNDLE-7`). Never an input
//! of state.

use std::path::Path;

use goondan_durable::IoContext as _;
use goondan_durable::disk::{Disk, read_full};
use goondan_protocol::message::Message;

use super::MESSAGES;
use super::base::BASE;
use crate::error::StoreError;

/// The latest confirmed messages of a conversation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConversationTail {
    /// The messages, oldest first.
    pub messages: Vec<Message>,
    /// Number of unreadable lines, which are skipped.
    pub unreadable: u64,
    /// True if there were earlier messages.
    pub is_partial: bool,
}

/// Reads the confirmed messages in the last `bytes_max` bytes of the base of the instance in `dir`,
/// whole lines only. Safe while a writer thread appends: a line that is still being written is
/// excluded.
///
/// # Errors
///
/// [`StoreError::File`].
pub fn read_tail(
    disk: &dyn Disk,
    dir: &Path,
    bytes_max: usize,
) -> Result<ConversationTail, StoreError> {
    let path = dir.join(MESSAGES).join(BASE);
    if disk.stat(&path).during("inspect", &path)?.is_none() {
        return Ok(ConversationTail::default());
    }
    let mut file = disk.open_read(&path).during("open", &path)?;
    let len = file.len().during("inspect", &path)?;
    let from = len.saturating_sub(bytes_max as u64);
    let mut text = vec![0; usize::try_from(len - from).unwrap_or(bytes_max)];
    let read = read_full(file.as_mut(), &mut text, from).during("read", &path)?;
    text.truncate(read);
    let is_partial = from > 0;
    // The first line is cut, so its rest is skipped.
    let first = match text.iter().position(|byte| *byte == b'\n') {
        Some(at) if is_partial => at + 1,
        None if is_partial => text.len(),
        _ => 0,
    };
    let end = text.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    let mut recent = ConversationTail {
        is_partial,
        ..ConversationTail::default()
    };
    for line in text
        .get(first..end)
        .unwrap_or_default()
        .split(|byte| *byte == b'\n')
    {
        match serde_json::from_slice(line) {
            Ok(message) => recent.messages.push(message),
            Err(_) if line.trim_ascii().is_empty() => {}
            Err(_) => recent.unreadable += 1,
        }
    }
    Ok(recent)
}

#[cfg(test)]
mod tests {
    use goondan_durable::disk::SimulatedDisk;
    use goondan_protocol::ids::MessageId;
    use goondan_protocol::time::Timestamp;

    use super::*;

    fn line(id: &str) -> String {
        let at = Timestamp::from_unix_millis(0);
        let message = Message::user(MessageId::new(id).unwrap(), at, "hello");
        format!("{}\n", serde_json::to_string(&message).unwrap())
    }

    fn read(base: Option<&str>, bytes_max: usize) -> (Vec<String>, u64, bool) {
        let disk = SimulatedDisk::new();
        for dir in ["/i", "/i/messages"] {
            disk.create_dir(Path::new(dir)).unwrap();
        }
        if let Some(base) = base {
            let path = Path::new("/i/messages").join(BASE);
            disk.plant(&path, base.as_bytes()).unwrap();
        }
        let recent = read_tail(&disk, Path::new("/i"), bytes_max).unwrap();
        let ids = recent.messages.iter().map(|it| it.id.to_string());
        (ids.collect(), recent.unreadable, recent.is_partial)
    }

    fn ids(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    #[test]
    fn bundle_7_the_end_of_a_conversation_is_read_in_whole_lines() {
        let (a, b, c) = (line("a"), line("b"), line("c"));
        let all = [&*a, &b, &c].concat();
        assert_eq!(read(None, 100), (Vec::new(), 0, false));
        assert_eq!(read(Some(""), 100), (Vec::new(), 0, false));
        assert_eq!(
            read(Some(&all), all.len()),
            (ids(&["a", "b", "c"]), 0, false)
        );
        assert_eq!(read(Some(&all), all.len() - 1), (ids(&["b", "c"]), 0, true));
        assert_eq!(read(Some(&all), c.len() + 1), (ids(&["c"]), 0, true));
        assert_eq!(read(Some(&all), 5), (Vec::new(), 0, true));
    }

    #[test]
    fn bundle_7_damaged_or_partial_lines_are_not_messages() {
        let text = [&*line("a"), "garbage\n", &line("b"), "{\"id\":\"c\""].concat();
        assert_eq!(read(Some(&text), text.len()), (ids(&["a", "b"]), 1, false));
    }
}
