//! Every command of the README and of docs/ is taken by the command line as it is written. This parses them and runs none: those that only
//! read recordings are run by tests/cli/documented.rs, a job's by the tests of its subject.

use super::{Cli, normalize};
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use std::path::Path;

mod code;

fn is_command(word: &str) -> bool {
    Cli::command().get_subcommands().any(|c| c.get_name() == word)
}

#[test]
fn commands_are_found_in_text() {
    let found = code::ours(
        "source <(strandline completions bash)   # strandline no\nA=1 strandline run x | strandline man",
        &is_command,
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
        for words in code::code(&text).iter().flat_map(|code| code::ours(code, &is_command)) {
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
                wrong.push(format!("{page:?}: {}: {e}", words.join(" ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 100, "{count} commands");
}
