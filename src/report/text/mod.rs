//! The report for people: the verdict first, the next command last.
//!
//! The first line begins with one of a few phrases: `LEAK`, `GROWING`, `OUT OF MEMORY, NO LEAK`, `NO LEAK`, `TOO SHORT`,
//! `NOT JUDGED`, `KILLED BY THE HOST`, `STRANDLINE MAY HAVE FAILED`. Then what filled the card, what was found and why, how the run went. Of several processes the
//! one that the job is called after is told in full, then those whose findings are others.

mod alert;
mod damage;
mod ended;
mod failed;
mod filled;
mod found;
mod headline;
mod phrase;
mod place;
mod run;
mod series;
mod told;
mod whole;

pub(super) use ended::killed;
pub(super) use found::{rate, why_unknown};
pub(super) use headline::growing;
pub(super) use phrase::clause;
pub use place::stream;
pub(super) use place::{NO_FRAME, in_step, label, place, site};
pub(super) use told::{Told, findings};

pub use alert::{Spread, alert, headline, held, withdrawn};
pub use whole::{failures, write};
