//! Texts that somebody else chose, made fit to be shown: names of functions, files, marks and threads, commands, hosts.
//!
//! Whoever writes such a text may mean a terminal, a log or a page by it. So a character that is not seen but does something (moves
//! the cursor, ends a line, turns the direction of writing, takes no room) becomes an escape that is seen and does nothing. This is the
//! only place that knows which these are; every door (text, diff, dump, top, alerts, page, metrics) gets its names through here.

use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Write;

/// Whether a character does something but is not seen.
///
/// - C0 and C1 controls, DEL: escape sequences, new lines;
/// - line and paragraph separators;
/// - marks, embeddings, overrides and isolates of the direction of writing;
/// - what takes no room: zero-width spaces and joiners, soft hyphens, fillers, tags.
///
/// Variation selectors are let through: they belong to the character before them.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// The text with every hidden character as an escape: `\n`, `\x1b`, `\u{202e}`. A text without any is borrowed as it is. What comes
/// out has none, so that making it printable again changes nothing.
///
/// ```
/// use strandline::event::printable;
/// assert_eq!(printable("train.py"), "train.py");
/// assert_eq!(printable("\x1b[31mred\n"), "\\x1b[31mred\\n");
/// assert_eq!(printable("\u{202e}gnp.exe"), "\\u{202e}gnp.exe");
/// ```
pub fn printable(text: &str) -> Cow<'_, str> {
    // Nearly every name is plain ASCII, and looked at byte by byte.
    if text.bytes().all(|b| (0x20..0x7f).contains(&b)) || !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_hidden(c) && u32::from(c) < 0x100 => drop(write!(out, "\\x{:02x}", u32::from(c))),
            c if is_hidden(c) => drop(write!(out, "\\u{{{:x}}}", u32::from(c))),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// The same for a text of one's own that is already laid out in lines and columns: its line ends and tabs stay.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    let is_laid_out = |c: char| !is_hidden(c) || matches!(c, '\n' | '\t');
    if text.chars().all(is_laid_out) {
        return Cow::Borrowed(text);
    }
    let piece = |piece: &str| -> String {
        let end = piece.find(['\n', '\t']).unwrap_or(piece.len());
        let (words, end) = piece.split_at(end);
        format!("{}{end}", printable(words))
    };
    Cow::Owned(text.split_inclusive(['\n', '\t']).map(piece).collect())
}

/// The same, in place, for text that is owned.
pub fn make_printable(text: &mut String) {
    if let Cow::Owned(printable) = printable(text) {
        *text = printable;
    }
}

/// The same for every text and key of a JSON value.
pub fn make_json_printable(value: &mut Value) {
    match value {
        Value::String(text) => make_printable(text),
        Value::Array(items) => items.iter_mut().for_each(make_json_printable),
        Value::Object(fields) => {
            fields.values_mut().for_each(make_json_printable);
            if fields.keys().any(|key| key.contains(is_hidden)) {
                let all = std::mem::take(fields);
                fields.extend(all.into_iter().map(|(key, value)| (printable(&key).into_owned(), value)));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_without_being_seen_is_seen_and_does_not_act() {
        for (text, shown) in [
            ("\x1b]0;PWNED\x07\x1b[2J", "\\x1b]0;PWNED\\x07\\x1b[2J"),
            ("\u{9b}31mC1", "\\x9b31mC1"),
            ("a\u{2028}b\u{2029}c", "a\\u{2028}b\\u{2029}c"),
            ("\u{202e}gnp.exe", "\\u{202e}gnp.exe"),
            ("\n  LEAK 9  forged line", "\\n  LEAK 9  forged line"),
            ("zero\u{200b}width\u{feff}", "zero\\u{200b}width\\u{feff}"),
            ("\u{2066}isolated\u{2069}", "\\u{2066}isolated\\u{2069}"),
            ("del\x7f\0", "del\\x7f\\x00"),
        ] {
            assert_eq!(printable(text), shown);
            assert_eq!(printable(shown), shown, "making it printable again changes nothing");
        }
    }

    #[test]
    fn what_is_seen_stays_as_it_is() {
        for text in ["", "train.py", "<script>alert(1)</script>", "größe_模型_ζ", "C:\\x", "☂\u{fe0f}"]
        {
            assert!(matches!(printable(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn lines_of_ones_own_keep_their_ends() {
        assert_eq!(printable_lines("one\n\ttwo\x1b[2J\n"), "one\n\ttwo\\x1b[2J\n");
        assert!(matches!(printable_lines("one\ntwo"), Cow::Borrowed(_)));
    }

    #[test]
    fn json_is_made_printable_at_every_depth() {
        let mut value = serde_json::json!({ "a\n": [{ "b": "c\x1b" }], "n": 1 });
        make_json_printable(&mut value);
        assert_eq!(value, serde_json::json!({ "n": 1, "a\\n": [{ "b": "c\\x1b" }] }));
    }
}
