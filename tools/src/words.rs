//! Command lines as text that can be pasted into a shell.

use std::ffi::OsString;

/// The words, quoted where a shell needs it.
pub(crate) fn quoted(words: &[OsString]) -> String {
    words.iter().map(|w| quote(&w.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_string();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_can_be_pasted() {
        let words = ["python", "-c", "print('a b')", ""].map(OsString::from);
        assert_eq!(quoted(&words), r#"python -c 'print('\''a b'\'')' ''"#);
    }
}
