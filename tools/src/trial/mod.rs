//! A job tried on a simulated GPU: run until its memory has settled, and what it needed. `predict` tries it once, and again with changes;
//! `fit` with several values.

mod aside;
mod buckets;
mod cards;
mod needs;
mod peak;
mod place;
mod settled;
mod tries;
mod vary;

pub(crate) use aside::{RunsFolder, aside};
pub(crate) use cards::{Card, Fits, all as all_cards};
pub(crate) use needs::{Attempt, Needs, Tried, attempt};
pub(crate) use peak::Peak;
pub(crate) use place::{Place, find as find_place};
pub(crate) use settled::Why;
pub(crate) use tries::{Made, Try};
pub(crate) use vary::Vary;
