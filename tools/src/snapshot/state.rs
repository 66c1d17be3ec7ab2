//! The replay of a recording at a moment.

use super::wanted::Aged;
use crate::analyze::{Judged, Place};
use crate::error::Error;
use strandline::event::Event;
use strandline::replay::Replay;

type Births =
    rustc_hash::FxHashSet<(strandline::event::DeviceId, strandline::event::Addr, strandline::event::Nanos)>;

/// The replay at a moment.
///
/// # Errors
/// The recording cannot be read again.
pub(crate) fn replay_at(judged: &Judged, place: &Place) -> Result<Replay, Error> {
    state(judged, place, None).map(|(replay, _)| replay)
}

/// The replay at a moment, and the blocks that are or were old enough by then.
pub(super) fn state(
    judged: &Judged,
    place: &Place,
    mut aged: Option<Aged>,
) -> Result<(Replay, Option<Births>), Error> {
    let see = |e: &Event, replay: &Replay| aged.iter_mut().for_each(|a| a.see(e, replay));
    let replay = judged.again()?.replay_until(place.events, see);
    let born = aged.map(|a| a.finish(&replay));
    Ok((replay, born))
}
