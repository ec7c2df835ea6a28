//! The text of a body: its byte order mark, and the `charset` of its content type.

use std::borrow::Cow;

use encoding_rs::{Encoding, UTF_8};

use crate::listener::MalformedRequest;

/// Decodes a text: by its byte order mark, else by its `charset`, else as UTF-8. An unknown charset
/// counts as none.
///
/// # Errors
///
/// [`MalformedRequest`] if the body is not valid in that encoding.
pub(super) fn text<'b>(
    content_type: &str,
    body: &'b [u8],
) -> Result<Cow<'b, str>, MalformedRequest> {
    if let Some((encoding, mark)) = Encoding::for_bom(body) {
        return decoded(encoding, body.get(mark..).unwrap_or_default());
    }
    decoded(named(content_type).unwrap_or(UTF_8), body)
}

/// Decodes JSON, which is UTF-8 despite its `charset` (RFC 8259), unless it is not valid UTF-8.
///
/// # Errors
///
/// [`MalformedRequest`] if the body is not text.
pub(super) fn json_text<'b>(
    content_type: &str,
    body: &'b [u8],
) -> Result<Cow<'b, str>, MalformedRequest> {
    match std::str::from_utf8(body) {
        Ok(text) => Ok(Cow::Borrowed(text.strip_prefix('\u{feff}').unwrap_or(text))),
        Err(_) => text(content_type, body),
    }
}

fn decoded<'b>(
    encoding: &'static Encoding,
    body: &'b [u8],
) -> Result<Cow<'b, str>, MalformedRequest> {
    if encoding == UTF_8 {
        let text = std::str::from_utf8(body).map_err(MalformedRequest::NotText)?;
        return Ok(Cow::Borrowed(text));
    }
    let text = encoding.decode_without_bom_handling_and_without_replacement(body);
    text.ok_or(MalformedRequest::NotInCharset {
        charset: encoding.name(),
    })
}

/// The encoding that the parameter `charset` of a content type names.
fn named(content_type: &str) -> Option<&'static Encoding> {
    let mut parameters = content_type.split(';').skip(1);
    let charset = parameters.find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let is_charset = name.trim().eq_ignore_ascii_case("charset");
        is_charset.then(|| value.trim().trim_matches('"'))
    })?;
    Encoding::for_label(charset.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content_type: &str, body: &[u8]) -> Result<String, &'static str> {
        let text = text(content_type, body);
        text.map(Cow::into_owned).map_err(|error| error.code())
    }

    #[test]
    fn conn_3_text_is_read_in_its_charset() {
        for (content_type, body) in [
            ("text/plain", "h\u{e9}".as_bytes()),
            ("text/plain", b"\xef\xbb\xbfh\xc3\xa9"),
            ("text/plain; charset=iso-8859-1", b"h\xe9"),
            (
                "text/plain; format=flowed; Charset=\"Windows-1252\"",
                b"h\xe9",
            ),
            ("text/plain;charset=utf-16le", b"h\0\xe9\0"),
            ("text/plain; charset=iso-8859-1", b"\xff\xfeh\0\xe9\0"),
            ("text/plain; charset=nothing", "h\u{e9}".as_bytes()),
        ] {
            assert_eq!(
                read(content_type, body).as_deref(),
                Ok("h\u{e9}"),
                "{content_type}"
            );
        }
        let japanese = b"\x82\xb1\x82\xf1";
        let read_japanese = read("text/plain; charset=shift_jis", japanese);
        assert_eq!(read_japanese.as_deref(), Ok("\u{3053}\u{3093}"));
        for (content_type, body) in [
            ("text/plain", &b"h\xe9"[..]),
            ("text/plain; charset=utf-8", b"h\xe9"),
            ("text/plain; charset=shift_jis", b"\x82"),
        ] {
            assert_eq!(
                read(content_type, body),
                Err("bad_encoding"),
                "{content_type}"
            );
        }
    }

    #[test]
    fn conn_3_json_is_utf_8_if_it_can_be() {
        let read = |content_type, body| json_text(content_type, body).map(Cow::into_owned);
        let latin = "application/json; charset=iso-8859-1";
        assert_eq!(read(latin, "\"\u{e9}\"".as_bytes()).unwrap(), "\"\u{e9}\"");
        assert_eq!(read(latin, b"\"\xe9\"").unwrap(), "\"\u{e9}\"");
        assert_eq!(read("", b"\xfe\xff\0\"\0\"").unwrap(), "\"\"");
        assert!(read("application/json", b"\"\xe9\"").is_err());
    }
}
