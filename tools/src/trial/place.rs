//! Where a value goes: a placeholder in the command, an option's value, or an environment variable.

use crate::error::{Error, status};
use crate::job::Variable;
use std::ffi::OsString;

/// The place of one name that is varied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Wherever this text stands.
    Text(String),
    /// The word with this number, behind what it begins with. `was`: the number that stood there.
    Word { at: usize, head: String, option: String, was: String },
    /// An environment variable.
    Variable { name: String, was: Option<String> },
}

/// Names of options are the same with dashes and with underscores.
fn plain(option: &str) -> String {
    option.trim_start_matches(['-', '+']).replace('-', "_")
}

/// Finds the place of a name. `alone`: nothing else is varied, so that `{}` can mean only this.
///
/// # Errors
/// There is none; with the status of bad usage.
pub(crate) fn find(command: &[OsString], name: &str, alone: bool) -> Result<Place, Error> {
    let nameless = || command.iter().any(|w| w.to_str().is_some_and(|w| w.contains(NAMELESS)));
    match named(command, name) {
        Some(place) => Ok(place),
        None if nameless() && alone => Ok(Place::Text(NAMELESS.to_owned())),
        None if nameless() => {
            let what = "{} may mean any of the names that are varied";
            Err(Error::usage(what, format!("write {{{name}}} instead")))
        }
        None => variable(name).ok_or_else(|| {
            nowhere(name).hint(format!("write {{{name}}} in the command where the value goes"))
        }),
    }
}

/// The same for a name that the command has already: an option, or an environment variable.
///
/// # Errors
/// As [`find`].
pub(crate) fn find_given(command: &[OsString], name: &str) -> Result<Place, Error> {
    named(command, name)
        .or_else(|| variable(name))
        .ok_or_else(|| nowhere(name).hint(format!("to add a new option: --try \"--{name} …\"")))
}

/// What may stand for the only name.
const NAMELESS: &str = "{}";

/// A placeholder with the name, or an option that is called so and has a value.
fn named(command: &[OsString], name: &str) -> Option<Place> {
    let words: Vec<&str> = command.iter().map(|w| w.to_str().unwrap_or_default()).collect();
    let placeholder = format!("{{{name}}}");
    if words.iter().any(|w| w.contains(&placeholder)) {
        return Some(Place::Text(placeholder));
    }
    // Of an option that is given twice the last one counts.
    let (at, head, option, was) = words.iter().enumerate().rev().find_map(|(at, word)| {
        if let Some((key, value)) = word.split_once('=').filter(|(key, _)| plain(key) == plain(name)) {
            return Some((at, format!("{key}="), key.to_owned(), value));
        }
        let is_it = word.starts_with('-') && plain(word) == plain(name);
        let value = words.get(at + 1).filter(|next| is_it && is_value(next))?;
        Some((at + 1, String::new(), (*word).to_owned(), *value))
    })?;
    (was != NAMELESS).then(|| Place::Word { at, head, option, was: was.to_owned() })
}

/// Whether the word behind an option is its value: another option is none, a negative number is one.
fn is_value(word: &str) -> bool {
    !word.starts_with('-') || word.parse::<f64>().is_ok()
}

/// An environment variable that is set, or whose name is that of one.
fn variable(name: &str) -> Option<Place> {
    let is_constant = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let was = std::env::var(name).ok();
    (was.is_some() || name.chars().all(is_constant)).then(|| Place::Variable { name: name.to_owned(), was })
}

fn nowhere(name: &str) -> Error {
    let what = format!(
        "nowhere to put {name}: the command has neither {{{name}}} nor an option --{name} with a value, and no environment variable {name} is set"
    );
    Error::new(what).status(status::USAGE)
}

impl Place {
    /// Puts a value there.
    pub(crate) fn put(&self, value: &str, command: &mut [OsString], variables: &mut Vec<Variable>) {
        match self {
            Place::Text(text) => {
                for word in command {
                    if let Some(with) = word.to_str().filter(|w| w.contains(text)) {
                        *word = with.replace(text, value).into();
                    }
                }
            }
            Place::Word { at, head, .. } => {
                if let Some(word) = command.get_mut(*at) {
                    *word = format!("{head}{value}").into();
                }
            }
            Place::Variable { name, .. } => variables.push((name.clone(), value.into())),
        }
    }

    /// Whether the job can run with nothing put there.
    pub(crate) fn may_stay(&self) -> bool {
        !matches!(self, Place::Text(_))
    }

    /// What is put where, in words.
    pub(crate) fn describe(&self) -> String {
        match self {
            Place::Text(text) => format!("{text} in the command"),
            Place::Word { option, was, .. } => format!("the value of {option} (it was {was})"),
            Place::Variable { name, was: Some(was) } => {
                format!("the environment variable {name} (it was {was})")
            }
            Place::Variable { name, was: None } => {
                format!("the environment variable {name} (it was not set)")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(line: &str, name: &str, alone: bool) -> Result<(String, Vec<Variable>), Error> {
        let mut words: Vec<OsString> = line.split(' ').map(Into::into).collect();
        let mut variables = Vec::new();
        find(&words, name, alone)?.put("7", &mut words, &mut variables);
        Ok((crate::words::quoted(&words), variables))
    }

    #[test]
    fn a_value_goes_to_a_placeholder_an_option_or_a_variable() {
        let line = |text: &str, name: &str| put(text, name, true).expect("a place").0;
        assert_eq!(line("t.py --bs {}", "batch"), "t.py --bs 7");
        assert_eq!(
            line("t.py --bs {} --note bs{bs}", "bs"),
            "t.py --bs '{}' --note bs7",
            "the name goes first"
        );
        assert_eq!(line("t.py --batch-size {}", "batch_size"), "t.py --batch-size 7");
        assert_eq!(line("t.py --batch-size 4 --x 1", "batch_size"), "t.py --batch-size 7 --x 1");
        assert_eq!(line("t.py --bs 4 --bs=5", "bs"), "t.py --bs 4 --bs=7", "the last one counts");
        assert_eq!(line("t.py --seed -1 --x", "seed"), "t.py --seed 7 --x", "a negative number is a value");
        assert_eq!(line("t.py train.bs=4 +model.x=2", "model.x"), "t.py train.bs=4 +model.x=7");
        let (text, variables) = put("t.py", "BATCH", true).expect("a place");
        assert_eq!((text.as_str(), variables), ("t.py", vec![("BATCH".to_owned(), OsString::from("7"))]));
    }

    #[test]
    fn what_has_no_place_is_bad_usage() {
        for (line, alone) in
            [("t.py --other 4", true), ("t.py {} {}", false), ("t.py --bs", true), ("t.py --bs --x 4", true)]
        {
            let error = put(line, "bs", alone).expect_err(line);
            assert!(error.exit_status() == 2 && error.to_string().contains("{bs}"), "{error}");
        }
    }
}
