//! Alerts: when a finding is worth waking somebody, and what is done then.
//!
//! `Rules` decide over findings, [`Cases`] remember what was said and put the ranks of a job together, and
//! [`Keeper`] does what was asked for, on threads of its own: nothing here holds up whoever watches.

mod abort;
mod action;
mod attempt;
mod bundle;
mod cases;
mod keeper;
mod options;
mod rules;
mod settings;

pub(crate) use bundle::Why;
pub(crate) use cases::{Cases, News};
pub(crate) use keeper::Keeper;
pub(crate) use options::Alerts;
pub(crate) use settings::Settings;
