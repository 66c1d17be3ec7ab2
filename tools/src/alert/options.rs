//! Alerts of a command that watches a job: when to alert, and what to do then.

use super::action::Action;
use crate::metrics::Sink;
use crate::rate::Threshold;
use clap::Args;
use std::str::FromStr;

/// A number of steps; the error says what one looks like.
fn steps<T: FromStr>(text: &str) -> Result<T, &'static str> {
    text.parse().map_err(|_| "write a number of steps, such as 50")
}

/// When to alert, and what to do then.
#[derive(Args, Debug)]
pub(crate) struct Alerts {
    /// Alert when memory grows at least this fast: 50MiB/step, 10MiB/microbatch, 50MiB/min, 1%/100steps
    #[arg(long, value_name = "RATE")]
    pub(crate) alert_growth: Option<Threshold>,
    /// Alert on a leak, or growth, that will fill its GPU within this many steps
    #[arg(long, value_name = "STEPS", value_parser = steps::<u64>)]
    pub(crate) alert_oom_within: Option<u64>,
    /// No alert before this step
    #[arg(long, value_name = "STEP", value_parser = steps::<u32>)]
    pub(crate) alert_after: Option<u32>,
    /// What to do on an alert: log, snapshot, exec:CMD, webhook:URL, signal:NAME, abort; may be repeated
    #[arg(long, value_name = "ACTION")]
    pub(crate) on_alert: Vec<Action>,
    /// Metrics for monitoring while it runs: HOST:PORT (Prometheus), file:PATH, or otlp (pushed); may be repeated
    #[arg(long, value_name = "SINK")]
    pub(crate) metrics: Vec<Sink>,
}
