//! The command `strandline`: the door for people. One file (or room) per command; what is true lives in the library.

mod advise;
mod alert;
mod analyze;
mod background;
mod cli;
mod clock;
mod context;
mod demo;
mod diff;
mod doctor;
mod driver;
mod dump;
mod embedded;
mod env;
mod environment;
mod error;
mod export;
mod files;
mod fit;
mod holder;
mod inherited;
mod job;
mod kept;
mod known;
mod left;
mod live;
mod manual;
mod metrics;
mod nvml;
mod post;
mod predict;
mod probe;
mod process;
mod rate;
mod recording;
mod report;
mod run;
mod say;
mod share;
mod ship;
mod signals;
mod simulate;
mod size;
mod snapshot;
mod store;
mod symbols;
mod terminal;
mod top;
mod trial;
mod watch;
mod words;

use clap::Parser;
use cli::{Cli, Command};
use std::process::ExitCode;

fn main() -> ExitCode {
    run::run_as_helper_if_asked();
    inherited::ignore_sigxfsz();
    let cli = Cli::parse_from(cli::normalize(std::env::args_os()));
    let result = known::keep(&cli.known).and_then(|()| match &cli.command {
        Command::Run(options) => run::main(options),
        Command::Watch(options) => watch::main(options),
        Command::Top(options) => top::main(options),
        Command::Report(options) => report::main(options),
        Command::Snapshot(options) => snapshot::main(options),
        Command::Diff(options) => diff::main(options),
        Command::Export(options) => export::main(options),
        Command::Left(options) => left::main(options),
        Command::Dump(options) => dump::main(options),
        Command::Env(options) => env::main(options),
        Command::Doctor(options) => doctor::main(options),
        Command::Predict(options) => predict::main(options),
        Command::Advise(options) => advise::main(options),
        Command::Fit(options) => fit::main(options),
        Command::Demo(options) => demo::main(options),
        Command::Simulate(options) => environment::main(options),
        Command::Completions(options) => manual::completions(options),
        Command::Man(options) => manual::page(options),
    });
    let status = result.unwrap_or_else(|error| {
        say::line(error.to_string());
        error.exit_status()
    });
    if matches!(cli.command, Command::Run(_) | Command::Fit(_) | Command::Predict(_)) {
        job::leave_preloads_silent(status);
    }
    ExitCode::from(status)
}
