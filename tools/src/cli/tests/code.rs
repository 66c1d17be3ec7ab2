//! Commands of ours in pages of Markdown, as a shell reads them. tests/cli/documented.rs uses this file, too.

/// Words of a shell up to what ends a command, and the rest.
fn command(text: &str) -> (Vec<String>, &str) {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    let mut ends = text.len();
    for (i, c) in text.char_indices() {
        match (c, quote) {
            ('"' | '\'', None) => quote = Some(c),
            (c, Some(q)) if c == q => quote = None,
            ('|' | ';' | '&' | '<' | '>' | '(' | ')' | '\n', None) => {
                ends = i;
                break;
            }
            ('#', None) if word.is_empty() => {
                ends = text[i..].find('\n').map_or(text.len(), |n| i + n);
                break;
            }
            (c, None) if c.is_whitespace() => words.push(std::mem::take(&mut word)),
            _ => word.push(c),
        }
    }
    words.push(word);
    words.retain(|w| !w.is_empty() && w != "…");
    let rest = &text[ends..];
    (words, rest.get(rest.chars().next().map_or(0, char::len_utf8)..).unwrap_or(""))
}

/// Code of a page: what stands between backticks, and blocks that are a shell's or no language's.
pub(super) fn code(page: &str) -> Vec<String> {
    let mut all = Vec::new();
    for (i, part) in page.split("```").enumerate() {
        let (language, block) = part.split_once('\n').unwrap_or(("", part));
        if i % 2 == 0 {
            all.extend(part.split('`').skip(1).step_by(2).map(|span| span.replace("\\|", "|")));
        } else if ["", "sh", "bash", "console", "yaml", "dockerfile"].contains(&language.trim()) {
            all.push(block.replace("\\\n", " "));
        }
    }
    all
}

/// All commands in a piece of code: the words of each.
pub(super) fn commands(code: &str) -> Vec<Vec<String>> {
    let (mut rest, mut all) = (code, Vec::new());
    while !rest.is_empty() {
        let (words, after) = command(rest);
        rest = after;
        all.push(words);
    }
    all
}

/// Commands of ours in a piece of code, with what stands for something put in. `is_command`: the words that may follow `strandline`.
pub(super) fn ours(code: &str, is_command: &dyn Fn(&str) -> bool) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for words in commands(code) {
        let begins = |(i, word): (usize, &String)| {
            let next = words.get(i + 1).map_or("", String::as_str);
            word == "strandline" && (is_command(next) || i == 0 && next.starts_with('-'))
        };
        if let Some(at) = words.iter().enumerate().position(begins) {
            let filled = |w: &String| match w.trim_matches(['[', ']']) {
                "SIZE" => "1GiB".to_owned(),
                "VERSION" => "2.11.0".to_owned(),
                "webhook:URL" => "webhook:https://chat.invalid/hook".to_owned(),
                w => w.to_owned(),
            };
            found.push(words[at..].iter().map(filled).collect());
        }
    }
    found
}
