//! What was asked for, by options and by variables.

use super::action::Action;
use super::options::Alerts;
use super::rules::Rules;
use crate::analyze::Suppressions;
use crate::error::{Error, status};
use crate::metrics::Sink;
use std::str::FromStr;
use std::sync::Arc;
use strandline::format::env;

/// What was asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// When.
    pub(crate) rules: Rules,
    /// What then.
    pub(crate) actions: Vec<Action>,
    /// Where figures go.
    pub(crate) metrics: Vec<Sink>,
    /// What does not count.
    pub(crate) suppressions: Arc<Suppressions>,
}

impl Settings {
    /// What the options say; what they leave open the variables say.
    ///
    /// # Errors
    /// A variable cannot be understood.
    pub(crate) fn new(options: &Alerts, suppressions: Arc<Suppressions>) -> Result<Settings, Error> {
        let rules = Rules {
            growth: or_variable(options.alert_growth, env::ALERT_GROWTH)?,
            within: or_variable(options.alert_oom_within, env::ALERT_OOM_WITHIN)?,
            after: or_variable(options.alert_after, env::ALERT_AFTER)?.unwrap_or(0),
        };
        let actions = match options.on_alert.is_empty() {
            true => text(env::ALERT_ON).map_or(Ok(Vec::new()), |all| {
                Action::parse_all(&all).map_err(|e| refused(env::ALERT_ON, &e))
            })?,
            false => options.on_alert.clone(),
        };
        Ok(Settings { rules, actions, metrics: Sink::with_environment(&options.metrics), suppressions })
    }

    /// What leaves this machine, in words; `None`: nothing.
    pub(crate) fn sends(&self) -> Option<&'static str> {
        let alerts = self.actions.iter().any(|a| matches!(a, Action::Webhook(_)));
        match (alerts, self.metrics.iter().any(|m| matches!(m, Sink::Otlp(_)))) {
            (false, false) => None,
            (true, false) => Some("alerts to the webhook"),
            (false, true) => Some("metrics to the collector"),
            (true, true) => Some("alerts to the webhook and metrics to the collector"),
        }
    }
}

fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|v| !v.is_empty())
}

fn or_variable<T: FromStr<Err: std::fmt::Display>>(told: Option<T>, name: &str) -> Result<Option<T>, Error> {
    let read = |v: String| v.parse().map_err(|e: T::Err| refused(name, &e.to_string()));
    told.map(Ok).or_else(|| text(name).map(read)).transpose()
}

fn refused(name: &str, why: &str) -> Error {
    Error::new(format!("{name}: {why}")).status(status::USAGE)
}
