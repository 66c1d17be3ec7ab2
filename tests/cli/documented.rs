//! Commands of the README and of docs/ that only read recordings are run as they are written, on a frozen recording under the names that the
//! pages use. That all others are taken by the command line is tested in tools/src/cli/tests/documented.rs; what they do, where their subject is.

#[path = "../../tools/src/cli/tests/code.rs"]
mod code;

use crate::support::{Folder, root};
use std::path::Path;

const READING: [&str; 10] =
    ["report", "snapshot", "export", "diff", "dump", "left", "advise", "man", "completions", "env"];

/// Folders and files that pages speak of.
const NAMES: [&str; 16] = [
    "strandline/run-1",
    "demo",
    "gpu",
    "REC",
    "DIR",
    "BASE",
    "NEW",
    "BEFORE",
    "AFTER",
    "SNAPSHOT",
    "runs/base",
    "runs/patch-1",
    "runs/patch-2",
    "out/a",
    "out/b",
    "out/c",
];

/// A word as it is in the folder: the recording has 20 steps, and nothing of the machine's root is touched.
fn here(folder: &Folder, word: &str) -> String {
    let word = ["step:40", "step:200"].iter().fold(word.to_owned(), |w, step| w.replace(step, "step:12"));
    match word.split_once("/shared/") {
        Some(("", _)) => folder.path().join("gpu").display().to_string(),
        _ => word
            .replace("$(git rev-parse HEAD)", "0123abc")
            .replace("$RUNNER_TEMP/before", "BEFORE")
            .replace("$RUNNER_TEMP/after", "AFTER"),
    }
}

#[test]
fn commands_of_the_docs_that_read_recordings_are_run() {
    let folder = Folder::new("documented");
    for name in NAMES {
        let place = folder.path().join(name);
        std::fs::create_dir_all(&place).expect("a folder");
        std::fs::copy(root().join("tests/recordings/v2-plain.strand"), place.join("job.strand"))
            .expect("a copy");
    }
    let docs = std::fs::read_dir(root().join("docs")).expect("docs").map(|e| e.expect("an entry").path());
    let pages = docs.filter(|p| p.extension().is_some_and(|e| e == "md")).chain([root().join("README.md")]);
    let (mut count, mut wrong) = (0, Vec::new());
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a page");
        let all = code::code(&text);
        let commands = all.iter().flat_map(|c| code::ours(c, &|word| READING.contains(&word)));
        // A name alone is no command; a pid is that of a job which runs; an object store is elsewhere.
        for words in commands
            .filter(|w| w.len() > 2 && !w[2].starts_with("47") && !w.iter().any(|w| w.contains("://")))
        {
            let words: Vec<String> = words[1..].iter().map(|w| here(&folder, w)).collect();
            let (status, _, stderr) =
                super::run(&folder, &words.iter().map(String::as_str).collect::<Vec<_>>());
            // The recording has neither marks nor a failed allocation: that is said of it, and is no misuse.
            let told = ["mark", "region", "memory did not run out"].iter().any(|w| stderr.contains(w));
            let absent = words.iter().any(|w| ["mark:", "oom", "epoch 2"].iter().any(|m| w.contains(m)));
            if status != 0 && !(status == 2 && absent && told && !stderr.contains("Usage:")) {
                wrong.push(format!("{}: {}: {status}: {stderr}", name(&page), words.join(" ")));
            }
            count += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 30, "{count} commands");
}

fn name(page: &Path) -> String {
    page.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}
