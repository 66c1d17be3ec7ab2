//! Colour, where it was asked for, lines that fit their width, and signs that the reader's locale has.

use crate::event::named;
use std::borrow::Cow;
use std::io::{self, Write};

/// How a report is dressed. Nothing here asks the terminal: the caller says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// ANSI colour.
    pub colour: bool,
    /// Columns a line may have; texts are wrapped at spaces.
    pub width: usize,
    /// Nothing but ASCII: the locale has no other signs.
    pub ascii: bool,
}

impl Default for Style {
    /// 100 columns of UTF-8 without colour.
    fn default() -> Style {
        Style { colour: false, width: 100, ascii: false }
    }
}

named! {
    /// What a piece of text is, for its colour.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Ink {
        /// A leak, a failure.
        Bad = "bad",
        /// A doubt.
        Doubt = "doubt",
        /// All is well.
        Good = "good",
        /// What may be skipped.
        Faint = "soft",
    }
}

impl Style {
    /// The text in its colour. Never changes the text itself.
    pub fn paint(self, ink: Ink, text: &str) -> String {
        if !self.colour || text.is_empty() {
            return text.to_owned();
        }
        let code = match ink {
            Ink::Bad => "1;31",
            Ink::Doubt => "1;33",
            Ink::Good => "1;32",
            Ink::Faint => "2",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// The text in signs that may be shown.
    pub fn shown(self, text: &str) -> Cow<'_, str> {
        if self.ascii { ascii(text) } else { Cow::Borrowed(text) }
    }

    /// Prints lines.
    pub(super) fn print(self, out: &mut impl Write, lines: &[String]) -> io::Result<()> {
        lines.iter().try_for_each(|line| writeln!(out, "{}", self.shown(line)))
    }

    /// Wraps `text` at spaces: the first line begins with `head`, later ones with as many spaces.
    /// Widths are counted in characters. A word longer than the line stays whole, so that paths can be copied.
    pub fn wrap(self, head: &str, text: &str) -> Vec<String> {
        let head = self.shown(head);
        let indent = head.chars().count();
        let mut lines = Vec::new();
        let mut line = head.into_owned();
        let mut used = indent;
        let mut empty = true;
        for word in words(text) {
            let word = self.shown(&word);
            let w = word.chars().count();
            if !empty && used + 1 + w > self.width {
                lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
                used = indent;
                empty = true;
            }
            if !empty {
                line.push(' ');
                used += 1;
            }
            line.push_str(&word);
            used += w;
            empty = false;
        }
        lines.push(line.trim_end().to_owned());
        lines
    }
}

/// A curve from zero to the highest value, of so many points at most; of values that share a point, the last.
pub fn curve(values: &[u64], most: usize) -> String {
    let top = values.iter().copied().max().unwrap_or(0).max(1);
    let n = values.len().min(most);
    let point = |i: usize| values[(i + 1) * values.len() / n - 1];
    let bar = |v: u64| {
        SIGNS[((u128::from(v) * SIGNS.len() as u128).div_ceil(u128::from(top)) as usize).clamp(1, 8) - 1]
    };
    (0..n).map(|i| bar(point(i))).collect()
}

/// A text in ASCII: our own signs as others that read the same, what is foreign by its number.
pub fn ascii(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            c if c.is_ascii() => out.push(c),
            '·' => out.push('-'),
            '…' => out.push_str("..."),
            '←' => out.push_str("<-"),
            '→' => out.push_str("->"),
            '×' => out.push('x'),
            'µ' => out.push('u'),
            GLUE => out.push(' '),
            // As many columns as before.
            '▁'..='█' => out.push(BARS[(u32::from(c) - u32::from('▁')) as usize]),
            c => out.extend(c.escape_unicode()),
        }
    }
    Cow::Owned(out)
}

/// What a curve is drawn with.
pub(super) const SIGNS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// What stands for them in ASCII.
const BARS: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];

/// A space that no line is broken at; printed as a plain one.
pub(super) const GLUE: char = '\u{a0}';

/// The pieces between which a line may be broken: a figure stays with its unit, and the number of a GPU with that word.
fn words(text: &str) -> Vec<String> {
    const UNITS: [&str; 13] =
        ["%", "byte", "bytes", "KiB", "MiB", "GiB", "TiB", "µs", "ms", "s", "min", "h", "d"];
    let mut out: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|w| !w.is_empty()) {
        let bare = word.trim_end_matches([',', '.', ';', ':', ')']);
        let figure = out.last().is_some_and(|l| l.ends_with(|c: char| c.is_ascii_digit()));
        let is_number = !bare.is_empty() && bare.bytes().all(|b| b.is_ascii_digit());
        match out.last_mut() {
            Some(last) if figure && UNITS.contains(&bare) || is_number && last == "GPU" => {
                last.push(' ');
                last.push_str(word);
            }
            _ => out.push(word.to_owned()),
        }
    }
    out.into_iter().map(|w| w.replace(GLUE, " ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_only_where_it_was_asked_for() {
        let plain = Style::default();
        assert_eq!(plain.paint(Ink::Bad, "LEAK"), "LEAK");
        assert_eq!(Style { colour: true, ..plain }.paint(Ink::Bad, "LEAK"), "\x1b[1;31mLEAK\x1b[0m");
    }

    #[test]
    fn every_sign_has_one_in_ascii() {
        assert_eq!(ascii("a.py · 3.1 µs … 4× ← ▁▄█ → é"), "a.py - 3.1 us ... 4x <- _-# -> \\u{e9}");
        let s = Style { colour: false, width: 12, ascii: true };
        assert_eq!(s.wrap("a · ", "one … two"), ["a - one ...", "    two"], "measured as it is shown");
    }

    #[test]
    fn wrapping_keeps_the_indent_and_whole_words() {
        let s = Style { width: 20, ..Style::default() };
        assert_eq!(
            s.wrap("  because  ", "one two three four"),
            ["  because  one two", "           three", "           four"]
        );
        assert_eq!(
            s.wrap("- ", "/a/very/long/path/that/stays.py:1 x"),
            ["- /a/very/long/path/that/stays.py:1", "  x"]
        );
        assert_eq!(s.wrap("x ", ""), ["x"]);
        assert_eq!(
            s.wrap("", "there were about 97 %, or 5 min 3 s"),
            ["there were about", "97 %, or 5 min 3 s"]
        );
    }

    #[test]
    fn a_curve_rises_from_zero() {
        assert_eq!(curve(&[0, 1, 2, 3, 4, 5, 6, 7, 8], 48), "▁▁▂▃▄▅▆▇█");
        assert_eq!(curve(&[5, 5, 5], 48), "███");
        assert_eq!(curve(&[0, 0], 48), "▁▁");
        assert_eq!(curve(&vec![7; 1000], 48).chars().count(), 48);
    }
}
