//! Ticks → nanoseconds since the recording began, by calibration points that both clocks were read at.

use crate::event::Nanos;
use std::collections::VecDeque;

/// Points that are kept: events that are held back for ordering are at most two sweeps old.
const KEPT: usize = 8;

/// A piecewise linear clock: continuous, and never running backwards while points come in order.
#[derive(Clone, Debug)]
pub struct Clock {
    points: VecDeque<(u64, u64)>,
    /// Start, nanoseconds there, nanoseconds per tick of the piece that was asked last.
    from: (u64, u64),
    until: u64,
    slope: f64,
}

impl Clock {
    /// A clock that begins with `ticks` at `ns`, and runs at `guess` nanoseconds per tick until the next point is known.
    pub fn new(ticks: u64, ns: u64, guess: f64) -> Clock {
        Clock { points: VecDeque::from([(ticks, ns)]), from: (ticks, ns), until: 0, slope: guess }
    }

    /// Adds a later point. Points that are not later on both clocks are ignored.
    pub fn point(&mut self, ticks: u64, ns: u64) {
        let last = self.points.back().copied().unwrap_or_default();
        if ticks <= last.0 || ns < last.1 {
            return;
        }
        self.points.push_back((ticks, ns));
        if self.points.len() > KEPT {
            self.points.pop_front();
        }
        self.until = 0;
    }

    /// The last point.
    pub fn last(&self) -> (u64, u64) {
        self.points.back().copied().unwrap_or_default()
    }

    /// Nanoseconds at `ticks`.
    #[inline]
    pub fn at(&mut self, ticks: u64) -> Nanos {
        if ticks < self.from.0 || ticks >= self.until {
            self.seek(ticks);
        }
        let by = ticks.wrapping_sub(self.from.0) as i64;
        let ns = (by as f64 * self.slope) as i64;
        Nanos(self.from.1.saturating_add_signed(ns))
    }

    #[cold]
    fn seek(&mut self, ticks: u64) {
        let pieces = self.points.iter().zip(self.points.iter().skip(1));
        // The last piece that begins at or before the time; the first one for what is earlier than all of them.
        let mut found = None;
        for (a, b) in pieces {
            if found.is_none() || a.0 <= ticks {
                found = Some((*a, *b));
            }
        }
        let Some((a, b)) = found else {
            self.from = self.last();
            return;
        };
        self.from = a;
        self.slope = (b.1 - a.1) as f64 / (b.0 - a.0) as f64;
        // Beyond the last point its piece goes on.
        self.until = if b == self.last() { u64::MAX } else { b.0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_join_and_go_on_at_both_ends() {
        let mut c = Clock::new(1000, 0, 0.5);
        assert_eq!((c.at(1000), c.at(1100)), (Nanos(0), Nanos(50)));
        c.point(2000, 400);
        c.point(1500, 300);
        c.point(3000, 1000);
        assert_eq!([1500, 2000, 2500, 4000, 1000].map(|t| c.at(t).0), [200, 400, 700, 1600, 0]);
        assert_eq!(c.at(900), Nanos(0), "before the beginning: not less than 0");
        let mut last = Nanos(0);
        for t in 1000..5000 {
            let now = c.at(t);
            assert!(now >= last);
            last = now;
        }
    }
}
