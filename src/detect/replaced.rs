//! Blocks that take the place of other lines' blocks: images of a pool that are made anew one by one, layers that are quantized in turn.
//! Seen alone, the line keeps more and more; together there is not more.

use super::case::Place;
use super::growth::{Member, Rule, track};
use crate::event::total;
use crate::replay::{Cohort, GRACE, Replay, Track};

/// Parts of the time since it began to grow: as many as marks left blocks, within these.
const PARTS: (u32, u32) = (4, 8);
/// That others lost one in so many bytes of what came pays for it; of each part of the time no more counts than comes in one on average, for
/// what goes at once is another matter.
const SHARE: u64 = 2;
/// In no part of the time may others gain one in so many bytes of that: what rises and falls by itself pays for nothing.
const GAIN: u64 = 4;

/// Whether what a line keeps took the places of what other lines of its device lost.
pub(super) fn takes_places(replay: &Replay, place: Place, m: &Member) -> bool {
    let Rule::Kept { marks, .. } = m.growth.rule else { return false };
    let Some(mine) = replay.cohorts().get(m.id.0 as usize) else { return false };
    let is_other = |c: &&Cohort| c.key.device == place.device && c.key != mine.key;
    let others: Vec<&Track> =
        replay.cohorts().iter().filter(is_other).map(|c| track(c, place.grain)).collect();
    is_paid_for(track(mine, place.grain), &others, (m.growth.onset, place.mark(replay), marks))
}

/// Whether old blocks of `others` went as those of `track` came, since mark `onset` and up to `mark`, of which `marks` different ones left
/// blocks.
fn is_paid_for(track: &Track, others: &[&Track], (onset, mark, marks): (u32, u32, u32)) -> bool {
    let first = onset.saturating_sub(1);
    let (span, parts) = (mark.saturating_sub(first), marks.clamp(PARTS.0, PARTS.1));
    if span < parts {
        return false;
    }
    let end = |i: u32| first + (u64::from(span) * u64::from(i) / u64::from(parts)) as u32;
    let at = |t: &Track, mark: u32| t.series.floor(mark, mark.saturating_add(1)).bytes;
    let came = at(track, mark).saturating_sub(at(track, first));
    let each = came / u64::from(parts);
    // What begins later has lost nothing before.
    let before = |t: &Track, mark: u32| at(t, mark.max(t.series.first_mark()));
    let sum = |mark: u32| total(others.iter().map(|t| before(t, mark)));
    let mut lost = 0u64;
    for (from, to) in (0..parts).map(|i| (end(i), end(i + 1))) {
        if sum(to).saturating_sub(sum(from)) > each / GAIN {
            return false;
        }
        // What comes is old, and seen, so much later than what goes.
        let [from, to] = [from, to].map(|mark| sum(mark.saturating_sub(GRACE + 1)));
        lost += from.saturating_sub(to).min(each);
    }
    came > 0 && lost.saturating_mul(SHARE) >= came
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::Point;

    const SIZE: u64 = 1 << 20;

    /// Old blocks at marks 1 to 60.
    fn series(blocks: impl Fn(u32) -> u64) -> Track {
        let mut t = Track::default();
        for mark in 1..=60 {
            let blocks = blocks(mark);
            t.series.push(mark, Point { blocks, bytes: blocks * SIZE });
        }
        t
    }

    #[test]
    fn what_others_lose_one_by_one_pays_for_what_comes() {
        let comes = series(|m| u64::from(m.saturating_sub(10) / 5));
        let over = |others: &[&Track]| is_paid_for(&comes, others, (15, 60, 10));
        let goes = series(|m| 40 - u64::from(m.saturating_sub(7) / 5));
        assert!(over(&[&goes]));
        assert!(over(&[&goes, &series(|_| 7)]), "beside what stays");
        assert!(!over(&[&series(|_| 40)]), "nothing goes");
        assert!(!over(&[]));
        assert!(!over(&[&series(|m| if m < 30 { 40 } else { 3 })]), "at once, which is another matter");
        assert!(!over(&[&series(|m| 40 - u64::from(m.saturating_sub(7) / 20))]), "a quarter of it");
        assert!(
            !over(&[&series(|m| 40 - u64::from(m.saturating_sub(7) / 5) + 9 * u64::from(m % 2))]),
            "of itself"
        );
        let both = series(|m| 40 + u64::from(m.saturating_sub(7) / 5));
        assert!(!over(&[&goes, &both]), "what goes comes back elsewhere");
    }

    #[test]
    fn a_few_blocks_are_paid_for_each() {
        let comes = series(|m| u64::from(m.saturating_sub(30) / 5).min(4));
        let goes = series(|m| 9 - u64::from(m.saturating_sub(27) / 5).min(4));
        assert!(is_paid_for(&comes, &[&goes], (35, 51, 4)));
        let late = series(|m| 9 - u64::from(m > 47));
        assert!(!is_paid_for(&comes, &[&late], (35, 51, 4)), "one went, of four that came");
    }
}
