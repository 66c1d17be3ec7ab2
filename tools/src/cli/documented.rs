//! Every command of the README and of docs/ is taken by the command line as it is written. This parses them and runs none: those that only
//! read recordings are run by tests/cli/documented.rs, a job's by the tests of its subject.

use super::{Cli, normalize};
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use std::path::Path;

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
fn code(page: &str) -> Vec<String> {
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

/// Commands of ours in a piece of code, with what stands for something put in.
fn ours(code: &str) -> Vec<Vec<String>> {
    let is_command = |word: &str| Cli::command().get_subcommands().any(|c| c.get_name() == word);
    let (mut rest, mut found) = (code, Vec::new());
    while !rest.is_empty() {
        let (words, after) = command(rest);
        rest = after;
        let begins = |(i, word): (usize, &String)| {
            let next = words.get(i + 1).map_or("", String::as_str);
            word == "strandline" && (is_command(next) || i == 0 && next.starts_with('-'))
        };
        if let Some(at) = words.iter().enumerate().position(begins) {
            let filled = |w: &String| match w.trim_matches(['[', ']']) {
                "SIZE" => "1GiB".to_owned(),
                "VERSION" => "2.11.0".to_owned(),
                w => w.to_owned(),
            };
            found.push(words[at..].iter().map(filled).collect());
        }
    }
    found
}

#[test]
fn commands_are_found_in_text() {
    let found = ours(
        "source <(strandline completions bash)   # strandline no\nA=1 strandline run x | strandline man",
    );
    assert_eq!(
        found,
        [
            vec!["strandline", "completions", "bash"],
            vec!["strandline", "run", "x"],
            vec!["strandline", "man"]
        ]
    );
    assert!(Cli::try_parse_from(["strandline", "report", "--no-such"]).is_err());
}

#[test]
fn every_command_of_the_docs_is_taken_as_it_is_written() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let docs = std::fs::read_dir(root.join("docs")).expect("docs").map(|e| e.expect("an entry").path());
    let pages = docs.filter(|p| p.extension().is_some_and(|e| e == "md"));
    let (mut count, mut wrong) = (0, Vec::new());
    for page in pages.chain([root.join("README.md")]) {
        let text = std::fs::read_to_string(&page).expect("a page");
        for words in code(&text).iter().flat_map(|code| ours(code)) {
            count += 1;
            let taken = Cli::try_parse_from(normalize(words.iter().map(Into::into)));
            // A name alone, such as `strandline run`, is no command yet.
            let is_name = |kind| {
                matches!(
                    kind,
                    ErrorKind::MissingRequiredArgument
                        | ErrorKind::DisplayVersion
                        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                )
            };
            if let Some(e) = taken.err().filter(|e| !is_name(e.kind())) {
                wrong.push(format!("{}: {}: {e}", page.display(), words.join(" ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 100, "{count} commands");
}
