//! Changes of a job that a person wants to see tried: a switch with another value, or one that is added.

use super::place;
use crate::error::Error;
use crate::job::Variable;
use std::ffi::OsString;
use std::str::FromStr;

/// A change, as `--try` takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Try {
    /// As it was given.
    pub(crate) given: String,
    how: How,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum How {
    /// An option, or an environment variable, gets this value.
    Set(String, String),
    /// These words are added to the command.
    Add(Vec<OsString>),
}

impl FromStr for Try {
    type Err = String;

    /// Reads `NAME=VALUE`, or words for the end of the command (`--fp16`, `--optim adafactor`).
    fn from_str(text: &str) -> Result<Try, String> {
        let how = match text
            .split_once('=')
            .filter(|(name, _)| !name.is_empty() && !name.starts_with(['-', '+']))
        {
            Some((name, value)) => How::Set(name.to_owned(), value.to_owned()),
            None if text.starts_with(['-', '+']) => {
                How::Add(text.split_whitespace().map(Into::into).collect())
            }
            None => {
                return Err(format!(
                    "\"{text}\" is not a change: write NAME=VALUE for an option of the command, or a new option such as --fp16"
                ));
            }
        };
        Ok(Try { given: text.to_owned(), how })
    }
}

/// What of a command was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// What this names, in words, has another value.
    Replaced(String),
    /// Words were added at its end.
    Added,
}

impl Made {
    /// In words, after what came of it: `instead of the value of --optim, which was adamw`.
    pub(crate) fn instead(&self) -> String {
        match self {
            Made::Replaced(_) => format!("instead of {}", self.place()),
            Made::Added => self.place().to_owned(),
        }
    }

    /// What was changed.
    pub(crate) fn place(&self) -> &str {
        match self {
            Made::Replaced(what) => what,
            Made::Added => "added to the command",
        }
    }
}

impl Try {
    /// Changes the job; what was changed.
    ///
    /// # Errors
    /// The command has no such option, with the status of bad usage.
    pub(crate) fn make(
        &self,
        command: &mut Vec<OsString>,
        variables: &mut Vec<Variable>,
    ) -> Result<Made, Error> {
        match &self.how {
            How::Set(name, value) => {
                let place = place::find_given(command, name)?;
                place.put(value, command, variables);
                Ok(Made::Replaced(place.describe()))
            }
            How::Add(words) => {
                command.extend(words.iter().cloned());
                Ok(Made::Added)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_gets_another_value_or_is_added() {
        let made = |text: &str| {
            let mut command: Vec<OsString> = ["t.py", "--optim", "adamw", "-x"].map(Into::into).to_vec();
            let told = text.parse::<Try>().expect("a change").make(&mut command, &mut Vec::new());
            told.map(|told| (crate::words::quoted(&command), told))
        };
        let (line, told) = made("optim=sgd").expect("it is there");
        assert_eq!(
            (line.as_str(), told.place()),
            ("t.py --optim sgd -x", "the value of --optim (it was adamw)")
        );
        let added = ("t.py --optim adamw -x --bf16 --lr=1".to_owned(), Made::Added);
        assert_eq!(made("--bf16 --lr=1").expect("it is added"), added);
        assert_eq!(made("other=1").expect_err("it is not there").exit_status(), 2);
        assert!("fp16".parse::<Try>().is_err());
    }
}
