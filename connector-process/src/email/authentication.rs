//! Results of the own server's checks of a sender (RFC 8601). Pure.
//!
//! Anyone can write any `From`, and add any header. Only the first `Authentication-Results` of the
//! named server counts, because that server adds its own above those of others.

use super::thread::domain;

/// True if the server with the name `trusted` has verified that a message is from the domain of
/// `from`: by DMARC, or by DKIM of this domain or one above it.
pub(super) fn is_verified(results: &[&str], trusted: &str, from: &str) -> bool {
    let verified = results.iter().find_map(|header| {
        let mut statements = statements(header).into_iter();
        let server = statements.next()?;
        let server = server.split_ascii_whitespace().next()?;
        server
            .eq_ignore_ascii_case(trusted)
            .then(|| statements.any(|statement| verifies(&statement, domain(from))))
    });
    verified.unwrap_or(false)
}

/// True if a statement such as `dmarc=pass header.from=example.com` verifies a domain.
fn verifies(statement: &str, from: &str) -> bool {
    let statement = statement.to_ascii_lowercase();
    let mut words = statement.split_ascii_whitespace();
    let method = words.next().unwrap_or_default();
    let (method, result) = method.split_once('=').unwrap_or_default();
    // A method can have a version: `dkim/1`.
    let method = method.split('/').next().unwrap_or_default();
    if result != "pass" {
        return false;
    }
    let mut properties = words.filter_map(|word| word.split_once('='));
    match method {
        "dmarc" => properties
            .find(|(name, _)| *name == "header.from")
            .is_none_or(|(_, of)| of.trim_matches('"').eq_ignore_ascii_case(from)),
        "dkim" => properties.any(|(name, of)| {
            let of = of.trim_matches('"');
            match name {
                "header.d" => is_aligned(of, from),
                "header.i" => is_aligned(domain(of), from),
                _ => false,
            }
        }),
        _ => false,
    }
}

/// True if a signing domain is that of the sender, or above it.
fn is_aligned(signer: &str, from: &str) -> bool {
    let from = from.to_ascii_lowercase();
    let below = from.strip_suffix(signer);
    signer.contains('.') && below.is_some_and(|below| below.is_empty() || below.ends_with('.'))
}

/// The parts of a header between semicolons, without comments. Quoted strings stay whole, because
/// they can contain text of the sender.
fn statements(header: &str) -> Vec<String> {
    let mut statements = vec![String::new()];
    let (mut depth, mut is_quoted, mut is_escaped) = (0_u32, false, false);
    for c in header.chars() {
        let is_literal = std::mem::take(&mut is_escaped);
        match c {
            '\\' if !is_literal && (is_quoted || depth > 0) => {
                is_escaped = true;
                continue;
            }
            '"' if !is_literal && depth == 0 => is_quoted = !is_quoted,
            '(' if !is_literal && !is_quoted => {
                depth = depth.saturating_add(1);
                continue;
            }
            ')' if !is_literal && depth > 0 => {
                depth -= 1;
                continue;
            }
            ';' if !is_quoted && depth == 0 => {
                statements.push(String::new());
                continue;
            }
            _ => {}
        }
        if depth > 0 {
            continue;
        }
        if let Some(last) = statements.last_mut() {
            // A space in a quoted string does not begin another word.
            last.push(if is_quoted && c.is_whitespace() {
                '_'
            } else {
                c
            });
        }
    }
    statements
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verified(headers: &[&str]) -> bool {
        is_verified(headers, "mx.example.org", "ada@sub.example.com")
    }

    #[test]
    fn conn_1_only_the_named_server_verifies_a_sender() {
        for good in [
            "mx.example.org; dmarc=pass header.from=sub.example.com",
            "MX.example.org 1; spf=fail; dmarc=PASS (p=none; sp=none) header.from=sub.example.com",
            "mx.example.org; dkim=pass header.d=example.com header.s=a",
            "mx.example.org; dkim=fail header.d=example.com; dkim=pass header.i=@sub.example.com",
            "mx.example.org;\r\n\tdkim=pass (2048-bit key)\r\n\theader.d=example.com",
        ] {
            assert!(verified(&[good]), "{good}");
        }
        for bad in [
            "",
            "mx.example.org; none",
            "mx.example.com; dmarc=pass header.from=sub.example.com",
            "mx.example.org; dmarc=fail header.from=sub.example.com",
            "mx.example.org; dmarc=pass header.from=evil.com",
            "mx.example.org; dkim=pass header.d=evil.com",
            "mx.example.org; dkim=pass header.d=ple.com",
            "mx.example.org; dkim=pass header.d=com",
            "mx.example.org; spf=pass smtp.mailfrom=sub.example.com",
            "mx.example.org; dkim=pass",
            // Senders choose the text in quotes and comments.
            "mx.example.org; spf=fail smtp.mailfrom=\"a; dmarc=pass\"@evil.com",
            "mx.example.org; spf=fail smtp.mailfrom=\"a\\\"; dmarc=pass\"@evil.com",
            "mx.example.org; spf=fail (sender is (x) ; dmarc=pass) smtp.mailfrom=evil.com",
        ] {
            assert!(!verified(&[bad]), "{bad}");
        }
    }

    #[test]
    fn conn_1_later_header_of_the_same_server_does_not_count() {
        let forged = "mx.example.org; dmarc=pass header.from=sub.example.com";
        assert!(verified(&["relay.example.org; dmarc=fail", forged]));
        assert!(!verified(&["mx.example.org; dmarc=fail", forged]));
    }
}
