//! `strandline completions` and `strandline man`: what shells and man know of the command line, made from its definition.

use crate::cli::{self, Cli, Shell};
use crate::error::{Error, status};
use crate::say;
use clap::CommandFactory;
use clap_complete::generate;
use clap_complete::shells::{Bash, Fish, Zsh};

const NAME: &str = "strandline";

/// Prints what a shell completes; the result is the exit status.
///
/// # Errors
/// None.
pub(crate) fn completions(options: &cli::Completions) -> Result<u8, Error> {
    let (mut command, mut out) = (Cli::command(), Vec::new());
    match options.shell {
        Shell::Bash => generate(Bash, &mut command, NAME, &mut out),
        Shell::Zsh => generate(Zsh, &mut command, NAME, &mut out),
        Shell::Fish => generate(Fish, &mut command, NAME, &mut out),
    }
    say::out(&String::from_utf8_lossy(&out));
    Ok(0)
}

/// Prints a page of the manual; the result is the exit status.
///
/// # Errors
/// There is no such command.
pub(crate) fn page(options: &cli::Man) -> Result<u8, Error> {
    let mut command = Cli::command();
    command.build();
    let page = match &options.command {
        None => command,
        Some(name) => {
            let found = command.find_subcommand(name).cloned();
            let none = || {
                Error::new(format!("there is no command {name}"))
                    .hint("for a list of commands: strandline help")
            };
            found.ok_or_else(|| none().status(status::USAGE))?
        }
    };
    let mut out = Vec::new();
    clap_mangen::Man::new(page).render(&mut out).map_err(|e| Error::new(e.to_string()))?;
    say::out(&String::from_utf8_lossy(&out));
    Ok(0)
}
