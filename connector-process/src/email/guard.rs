//! Refuses messages whose structure could exhaust the parser, before they are parsed. Pure.
//!
//! The parser keeps nested messages in one another, and they are freed recursively. Every level
//! needs a `Content-Type`, so their number bounds the depth. It also decodes nested messages with a
//! transfer encoding, which the standard forbids and which would hide their number.

use crate::limits::EMAIL_PARTS_MAX;

const CONTENT_TYPE: &[u8] = b"content-type";
const TRANSFER_ENCODING: &[u8] = b"content-transfer-encoding";

/// Reason why a message is not parsed, if there is one.
pub(super) fn hostile(raw: &[u8]) -> Option<&'static str> {
    let lower = raw.to_ascii_lowercase();
    let types = count(&lower, CONTENT_TYPE);
    if types > EMAIL_PARTS_MAX {
        return Some("it has too many parts");
    }
    // Headers end at the first empty line.
    let mut lines = lower.split(|byte| *byte == b'\n').peekable();
    let (mut nests, mut encodes) = (false, false);
    while let Some(line) = lines.next() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            (nests, encodes) = (false, false);
            continue;
        }
        let mut header = line.to_vec();
        if !is_header(line, CONTENT_TYPE) && !is_header(line, TRANSFER_ENCODING) {
            continue;
        }
        while let Some(next) =
            lines.next_if(|next| next.starts_with(b" ") || next.starts_with(b"\t"))
        {
            header.extend_from_slice(next);
        }
        if is_header(line, TRANSFER_ENCODING) {
            encodes |= has(&header, b"base64") || has(&header, b"quoted-printable");
        } else {
            // A comment can hide where the parameters begin.
            let has_comment = header.contains(&b'(');
            let value = header.split(|byte| *byte == b';' && !has_comment).next();
            let value = value.unwrap_or_default();
            if has(value, b"digest") {
                return Some("it is a digest");
            }
            nests |= has(value, b"message");
        }
        if nests && encodes {
            return Some("it contains an encoded message");
        }
    }
    None
}

/// True for a line that begins with this name of a header.
fn is_header(line: &[u8], name: &[u8]) -> bool {
    line.trim_ascii_start().starts_with(name)
}

fn has(text: &[u8], word: &[u8]) -> bool {
    count(text, word) > 0
}

fn count(text: &[u8], word: &[u8]) -> usize {
    text.windows(word.len())
        .filter(|part| *part == word)
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conn_1_structure_that_could_exhaust_the_parser_is_refused() {
        let nested = "Content-Type: message/rfc822\r\n\r\n".repeat(EMAIL_PARTS_MAX + 1);
        for bad in [
            nested.as_str(),
            "Subject: x\r\nContent-Type: message/rfc822\r\nContent-Transfer-Encoding: base64\r\n\r\n",
            "content-transfer-encoding:\n quoted-printable\nContent-type:\n\tMESSAGE/global\n\n",
            "Content-Type: (;) message/rfc822\nContent-Transfer-Encoding: base64\n\n",
            "Content-Type: multipart/digest; boundary=x\r\n\r\n",
        ] {
            assert!(hostile(bad.as_bytes()).is_some(), "{bad}");
        }
        let part = "--x\r\nContent-Type: image/png\r\n\r\nx\r\n".repeat(EMAIL_PARTS_MAX - 1);
        for good in [
            "",
            "Subject: x\r\n\r\nhi",
            "Message-ID: <1@x>\r\nContent-Type: text/plain; name=\"message.txt\"\r\n\
             Content-Transfer-Encoding: base64\r\n\r\naGk=",
            "Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: message/rfc822\r\n\r\n\
             Subject: y\r\n\r\nhi\r\n--b\r\nContent-Transfer-Encoding: base64\r\n\r\naGk=\r\n--b--",
            part.as_str(),
        ] {
            assert_eq!(hostile(good.as_bytes()), None, "{good}");
        }
    }
}
