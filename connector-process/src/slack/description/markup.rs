//! Slack's markup as people read it. Pure.

/// The text without Slack's markup of mentions and links: `<@U1|ann>` is `@ann (U1)`, a link its
/// label and address. A mention without a name stays, because agents can repeat it.
pub(in crate::slack) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        let (before, from) = rest.split_at(at);
        out.push_str(&unescaped(before));
        let inner = from.get(1..).unwrap_or_default();
        let Some((token, after)) = inner.split_once('>').filter(|(token, _)| is_token(token))
        else {
            out.push('<');
            rest = inner;
            continue;
        };
        out.push_str(&unescaped(&token_words(token)));
        rest = after;
    }
    out.push_str(&unescaped(rest));
    out
}

/// True for the content of `<…>` that Slack writes; all other `<` are escaped there.
fn is_token(token: &str) -> bool {
    !token.is_empty() && !token.contains(['<', '\n'])
}

fn token_words(token: &str) -> String {
    let (target, label) = match token.split_once('|') {
        Some((target, label)) => (target, Some(label).filter(|label| !label.is_empty())),
        None => (token, None),
    };
    let named = |sign: &str, id: &str| match label {
        Some(label) => format!("{sign}{} ({id})", label.trim_start_matches(sign)),
        None => format!("<{target}>"),
    };
    if let Some(user) = target.strip_prefix('@') {
        return named("@", user);
    }
    if let Some(channel) = target.strip_prefix('#') {
        return named("#", channel);
    }
    if let Some(group) = target.strip_prefix("!subteam^") {
        return named("@", group);
    }
    if let Some(date) = target.strip_prefix("!date^") {
        return label.unwrap_or(date).to_owned();
    }
    if let Some(special) = target.strip_prefix('!') {
        let name = label.unwrap_or(special).trim_start_matches('@');
        return format!("@{name}");
    }
    let address = target.strip_prefix("mailto:").unwrap_or(target);
    match label {
        Some(label) if !address.contains(label) => format!("{label} ({address})"),
        _ => address.to_owned(),
    }
}

pub(super) fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn conn_1_mentions_and_links_keep_their_names() {
        for (written, words) in [
            ("a &lt;b&gt; &amp;amp; c", "a <b> &amp; c"),
            ("<@U1> and <@U2|ann>", "<@U1> and @ann (U2)"),
            ("in <#C1|general> or <#C2>", "in #general (C1) or <#C2>"),
            (
                "<!subteam^S1|@devs> <!subteam^S2>",
                "@devs (S1) <!subteam^S2>",
            ),
            (
                "<!here> <!channel|channel> <!everyone>",
                "@here @channel @everyone",
            ),
            ("<!date^1392734382^{date}|Feb 18>", "Feb 18"),
            (
                "<https://x.org/?a=1&amp;b|the page>",
                "the page (https://x.org/?a=1&b)",
            ),
            (
                "<https://x.org> <http://x.org|x.org>",
                "https://x.org http://x.org",
            ),
            ("<mailto:ann@x.org|ann@x.org>", "ann@x.org"),
            ("&lt;@U1&gt; is text", "<@U1> is text"),
            ("a < b", "a < b"),
            ("<", "<"),
            ("<>", "<>"),
        ] {
            assert_eq!(plain(written), words, "{written}");
        }
    }
}
