//! Where recordings are sent, and how often.

use crate::error::Error;
use crate::store::{Address, Store};
use clap::Args;
use std::time::Duration;

/// Where recordings are sent while the job runs, and how often.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Send the recordings to this place while the job runs: s3://bucket/run-17, gs://bucket/run-17 or az://container/run-17
    #[arg(long, value_name = "PLACE", value_parser = Address::parse)]
    ship: Option<Address>,
    /// How often recordings are sent; if a node dies, the last SECONDS + 1 s of the recording are lost
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    ship_every: u64,
}

/// What was asked for.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(super) store: Store,
    pub(super) every: Duration,
}

/// A request that fails is tried so many times more at once; the next round comes anyway.
const RETRIES: usize = 1;

impl Settings {
    /// What the options say; `None`: nothing is sent.
    ///
    /// # Errors
    /// The settings of the store cannot be meant.
    pub(crate) fn new(options: &Options) -> Result<Option<Settings>, Error> {
        let Some(address) = options.ship.clone() else { return Ok(None) };
        let store = Store::that_retries(address, RETRIES)?;
        Ok(Some(Settings { store, every: Duration::from_secs(options.ship_every) }))
    }

    /// What leaves this machine, in words.
    pub(crate) fn sends(&self) -> String {
        format!("recordings to {}", self.store.address)
    }
}
