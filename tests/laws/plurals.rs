//! Laws about plurals: one function makes them (`strandline::report::plural`), so that no text says "1 steps" or "2 microbatchs".

use super::{code, none, read, sources};
use crate::support::root;

/// Where plurals are made.
const MAKES_PLURALS: [&str; 2] = ["src/detect/amounts.rs", "src/report/html/page/base.js"];

/// What tells of one thing, and what tells of several, differ in how a noun ends.
fn is_plural_of(many: &str, one: &str) -> bool {
    let words =
        |text: &str| text.split(|c: char| !c.is_alphanumeric()).map(str::to_string).collect::<Vec<_>>();
    let (one, many) = (words(one), words(many));
    let ends = |(one, many): (&String, &String)| {
        *many == format!("{one}s")
            || *many == format!("{one}es")
            || one.strip_suffix('y').is_some_and(|stem| *many == format!("{stem}ies"))
    };
    one.len() == many.len() && one.iter().zip(&many).any(ends)
}

/// Pairs of texts of which code chooses one: `if n == 1 { "a" } else { "b" }`, `n === 1 ? "a" : "b"`, `1 => "a", _ => "b"`.
fn choices(code: &str) -> Vec<(String, String)> {
    let flat = code.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut found = Vec::new();
    for between in ["\" } else { \"", "\" : \"", "\" if n == 1 else \"", "\", _ => \"", "\", n => \""] {
        for (at, _) in flat.match_indices(between) {
            let first = flat[..at].rsplit('"').next().unwrap_or_default();
            let second = flat[at + between.len()..].split('"').next().unwrap_or_default();
            found.push((first.to_owned(), second.to_owned()));
        }
    }
    found
}

/// Whether code chooses between a noun and its plural.
fn by_hand(code: &str) -> Vec<String> {
    let is_bare_ending = |(a, b): &(String, String)| {
        a.is_empty() && ["s", "es"].contains(&b.as_str()) || b.is_empty() && ["s", "es"].contains(&a.as_str())
    };
    let is_one = |pair: &&(String, String)| is_bare_ending(pair) || is_plural_of(&pair.1, &pair.0);
    choices(code).iter().filter(is_one).map(|(a, b)| format!("\"{a}\" or \"{b}\"")).collect()
}

#[test]
fn plurals_are_made_by_one_function() {
    let mut broken = Vec::new();
    for source in sources(&["src", "tools/src"]).iter().filter(|s| !MAKES_PLURALS.contains(&s.path.as_str()))
    {
        let lines: String = code(&source.product).map(|(_, line)| format!("{line}\n")).collect();
        broken.extend(by_hand(&lines).iter().map(|pair| format!("{}: {pair}", source.path)));
    }
    for folder in ["src/report/html/page", "tools/python/strandline"] {
        for path in texts(folder).iter().filter(|p| !MAKES_PLURALS.contains(&p.as_str())) {
            let text = read(path);
            broken.extend(by_hand(&text).iter().map(|pair| format!("{path}: {pair}")));
            let added = ["() + \"s\"", "()}s ", "noun}s "].into_iter().filter(|w| text.contains(*w));
            broken.extend(added.map(|w| format!("{path}: {w}")));
        }
    }
    none("a plural is made by hand (strandline::report::plural, or `many` of the page)", broken);
}

/// Scripts below a folder.
fn texts(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(root().join(folder)).expect("a folder of scripts");
    let names = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    let found: Vec<String> =
        names.filter(|n| n.ends_with(".js") || n.ends_with(".py")).map(|n| format!("{folder}/{n}")).collect();
    assert!(found.len() > 3, "the law finds scripts: {found:?}");
    found
}

/// Nouns that are counted with `plural`.
fn nouns() -> Vec<String> {
    let mut nouns = Vec::new();
    for source in sources(&["src", "tools/src"]) {
        for call in source.product.split("plural(").skip(1) {
            let line = call.lines().next().unwrap_or_default();
            let noun = line.split(", \"").nth(1).and_then(|rest| rest.split_once("\")"));
            nouns.extend(noun.map(|(noun, _)| noun.rsplit(' ').next().unwrap_or_default().to_owned()));
        }
    }
    nouns.sort();
    nouns.dedup();
    assert!(nouns.contains(&"block".to_owned()) && nouns.len() > 8, "the law finds nouns: {nouns:?}");
    nouns
}

/// A number before its noun in a text: `{} blocks`, and what stands before the number.
fn counted(line: &str, nouns: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices("} ") {
        let word: String = line[at + 2..].chars().take_while(|c| c.is_ascii_lowercase()).collect();
        let before = line[..at].rsplit_once('{').map_or("", |(before, _)| before).trim_end();
        // One of several: their number is never 1.
        // A factor is no number of things.
        let is_factor = word == "times" && before.ends_with("largest");
        let is_of_several = ["of", "last", "all", "than"].iter().any(|w| before.ends_with(w));
        if !is_of_several && !is_factor && nouns.iter().any(|noun| is_plural_of(&word, noun)) {
            found.push(word);
        }
    }
    found
}

#[test]
fn a_number_before_a_noun_asks_for_its_plural() {
    let nouns = nouns();
    let mut broken = Vec::new();
    for source in sources(&["src/detect", "src/report", "src/advise", "tools/src"]) {
        let mut is_several = false;
        for (number, line) in code(&source.product) {
            let words = counted(line, &nouns);
            // The arm of a `match` that is left when there is not one, or no option's value of one.
            is_several = line.trim_start().starts_with("1 =>")
                || line.trim_start().starts_with("(Unit::")
                || is_several && line.contains("=>");
            if !is_several {
                broken.extend(words.iter().map(|word| format!("{}:{number}: {word}", source.path)));
            }
        }
    }
    none("a number may be 1: strandline::report::plural", broken);
}

#[test]
fn the_laws_of_plurals_can_read() {
    let made =
        r#"let w = if n == 1 { "line" } else { "lines" }; 1 => "entry", _ => "entries"; n === 1 ? "" : "s""#;
    assert_eq!(by_hand(made), ["\"line\" or \"lines\"", "\"\" or \"s\"", "\"entry\" or \"entries\""]);
    let ranks = "if self.restarted == 1 {\n    \"rank was\"\n} else {\n    \"ranks were\"\n}";
    assert_eq!(by_hand(ranks).len(), 1);
    let verbs = r#"if all.len() == 1 { "differs" } else { "differ" }; if grew { ", each" } else { "" }"#;
    assert!(by_hand(verbs).is_empty());
    let nouns = ["block".to_owned(), "process".to_owned()];
    assert_eq!(counted("\"{} blocks\"", &nouns), ["blocks"]);
    assert!(counted("\"1 of {n} processes, {} in blocks\"", &nouns).is_empty());
}
