//! The replay of a recording at a moment.

use super::wanted::Aged;
use crate::analyze::{Feed, Given, Judged, Place};
use crate::error::Error;
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
    let mut replay = Replay::new();
    let mut feed: Feed = judged.again()?;
    while let Some((given, names)) = feed.next() {
        match given {
            Given::Events(events) => {
                for e in events {
                    if replay.events() == place.events {
                        let born = aged.map(|a| a.finish(&replay));
                        return Ok((replay, born));
                    }
                    if let Some(aged) = &mut aged {
                        aged.see(e, &replay);
                    }
                    replay.apply_event(e);
                }
            }
            Given::Item(item) => drop(replay.apply(&item, names)),
        }
    }
    let born = aged.map(|a| a.finish(&replay));
    Ok((replay, born))
}
