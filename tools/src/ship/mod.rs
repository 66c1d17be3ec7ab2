//! Recordings that are sent to an object store while their job runs, by whoever watches it and never by the job: what `strandline report`
//! reads from there is what is on this machine, but for the last seconds.

mod options;
mod recording;
mod shipper;
#[cfg(test)]
mod tests;

pub(crate) use options::{Options, Settings};
pub(crate) use shipper::Shipper;
