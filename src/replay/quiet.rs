//! How far the host knows streams to be done: vector clocks over the calls that were seen.
//!
//! Component *s* of a clock counts exits from the scope of stream *s*. A stream's clock says which work must
//! be done before work queued there now is; an event takes the clock of its stream when it is recorded; a
//! waiting stream takes the event's; the host takes the clock of whatever it learns to be complete. Work
//! queued inside a scope lies before its exit, so an event recorded after the exit, known complete, proves
//! that work done.

use super::stream::Quiet;
use crate::event::{EventHandle, StreamId, ThreadId};
use rustc_hash::FxHashMap;

/// Sparse: (stream, exits), sorted by stream.
type Clock = Vec<(u32, u64)>;

fn get(c: &Clock, s: u32) -> u64 {
    c.binary_search_by_key(&s, |e| e.0).map_or(0, |i| c[i].1)
}

fn raise(c: &mut Clock, s: u32, n: u64) {
    match c.binary_search_by_key(&s, |e| e.0) {
        Ok(i) => c[i].1 = c[i].1.max(n),
        Err(i) => c.insert(i, (s, n)),
    }
}

fn join(into: &mut Clock, from: &Clock) {
    for &(s, n) in from {
        raise(into, s, n);
    }
}

/// One stream.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Threads whose current stream it is.
    inside: Vec<ThreadId>,
    /// How often it was left with no thread in it any more.
    exits: u64,
    entered: u64,
    /// A block was allocated on it with no thread inside: its exit cannot be seen.
    blind: bool,
    clock: Clock,
    /// (exits, somebody was inside) at the ends of the last three steps, oldest first.
    marks: [(u64, bool); 3],
}

/// What is known of all streams.
#[derive(Clone, Debug, Default)]
pub(super) struct Quiescence {
    streams: Vec<Known>,
    events: FxHashMap<u64, Clock>,
    host: Clock,
}

/// Events that are remembered at most; a job that never destroys any loses proofs, not truth.
const MAX_EVENTS: usize = 1 << 16;

impl Quiescence {
    fn at(&mut self, s: StreamId) -> &mut Known {
        let i = s.0 as usize;
        if self.streams.len() <= i {
            self.streams.resize_with(i + 1, Known::default);
        }
        &mut self.streams[i]
    }

    /// A thread made this its current stream.
    pub(super) fn enter(&mut self, thread: ThreadId, to: StreamId) {
        let k = self.at(to);
        k.entered += 1;
        if !k.inside.contains(&thread) {
            k.inside.push(thread);
        }
    }

    /// A thread left this stream. True where nobody is in its scope any more.
    pub(super) fn leave(&mut self, thread: ThreadId, from: StreamId) -> bool {
        let k = self.at(from);
        k.inside.retain(|t| *t != thread);
        let left = k.inside.is_empty();
        k.exits += u64::from(left);
        left
    }

    #[inline]
    pub(super) fn alloc(&mut self, s: StreamId) {
        let k = self.at(s);
        k.blind |= k.inside.is_empty();
    }

    pub(super) fn record(&mut self, e: EventHandle, s: StreamId) {
        if self.events.len() >= MAX_EVENTS && !self.events.contains_key(&e.0) {
            self.events.clear();
        }
        self.at(s);
        let (k, c) = (&self.streams[s.0 as usize], self.events.entry(e.0).or_default());
        c.clone_from(&k.clock);
        raise(c, s.0, k.exits);
    }

    pub(super) fn forget(&mut self, e: EventHandle) {
        self.events.remove(&e.0);
    }

    /// Records were lost: what an event handle stands for now is not known any more.
    pub(super) fn forget_events(&mut self) {
        self.events.clear();
    }

    pub(super) fn wait(&mut self, s: StreamId, e: EventHandle) {
        self.at(s);
        if let Some(c) = self.events.get(&e.0) {
            join(&mut self.streams[s.0 as usize].clock, c);
        }
    }

    pub(super) fn event_done(&mut self, e: EventHandle) {
        if let Some(c) = self.events.get(&e.0) {
            join(&mut self.host, c);
        }
    }

    pub(super) fn stream_done(&mut self, s: StreamId) {
        self.at(s);
        let k = &self.streams[s.0 as usize];
        join(&mut self.host, &k.clock);
        raise(&mut self.host, s.0, k.exits);
    }

    /// Exits from the scope of `s` whose work the host knows to be done.
    pub(super) fn known_done(&self, s: StreamId) -> u64 {
        get(&self.host, s.0)
    }

    /// A step ended: from now on `old` speaks of blocks two steps older.
    pub(super) fn mark(&mut self) {
        for k in &mut self.streams {
            k.marks.rotate_left(1);
            k.marks[2] = (k.exits, !k.inside.is_empty());
        }
    }

    /// Whether all blocks that are old at the last mark (allocated two marks before it or earlier) are known
    /// to be out of use.
    pub(super) fn old(&self, s: StreamId) -> Quiet {
        let Some(k) = self.streams.get(s.0 as usize) else { return Quiet::NotProven };
        let (exits, inside) = k.marks[0];
        if inside && k.exits == exits {
            return Quiet::Disproven;
        }
        let needed = exits + u64::from(inside);
        if k.entered > 0 && needed > 0 && !k.blind && self.known_done(s) >= needed {
            Quiet::Proven
        } else {
            Quiet::NotProven
        }
    }

    /// Forgets a stream that was destroyed.
    pub(super) fn destroy(&mut self, s: StreamId) {
        let k = self.at(s);
        k.inside.clear();
        k.exits += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const MAIN: StreamId = StreamId(0);
    const SIDE: StreamId = StreamId(1);
    const T: ThreadId = ThreadId(0);

    fn scope(q: &mut Quiescence, t: ThreadId) {
        q.enter(t, SIDE);
        q.alloc(SIDE);
        q.leave(t, SIDE);
    }

    fn marks(q: &mut Quiescence) {
        (0..3).for_each(|_| q.mark());
    }

    #[test]
    fn an_event_after_the_exit_that_is_known_complete_proves_it() {
        for (after_exit, known, want) in
            [(true, true, Quiet::Proven), (true, false, Quiet::NotProven), (false, true, Quiet::NotProven)]
        {
            let mut q = Quiescence::default();
            if !after_exit {
                q.record(EventHandle(5), SIDE);
            }
            scope(&mut q, T);
            if after_exit {
                q.record(EventHandle(5), SIDE);
            }
            if known {
                q.event_done(EventHandle(5));
            }
            marks(&mut q);
            assert_eq!(q.old(SIDE), want, "{after_exit} {known}");
        }
    }

    #[test]
    fn proof_travels_through_waits() {
        let mut q = Quiescence::default();
        scope(&mut q, T);
        q.record(EventHandle(1), SIDE);
        q.wait(MAIN, EventHandle(1));
        marks(&mut q);
        assert_eq!(q.old(SIDE), Quiet::NotProven, "wait_stream alone tells the host nothing");
        q.stream_done(MAIN);
        assert_eq!(q.old(SIDE), Quiet::Proven, "but one sync of what waited for it does");
    }

    #[test]
    fn a_scope_that_was_never_left_is_disproven_and_two_threads_leave_it_together() {
        let mut q = Quiescence::default();
        q.enter(T, SIDE);
        q.alloc(SIDE);
        marks(&mut q);
        assert_eq!(q.old(SIDE), Quiet::Disproven);
        scope(&mut q, ThreadId(1));
        q.stream_done(SIDE);
        assert_eq!(q.old(SIDE), Quiet::Disproven, "the other thread's exit is not an exit");
        q.leave(T, SIDE);
        assert_eq!(q.old(SIDE), Quiet::NotProven);
        q.stream_done(SIDE);
        assert_eq!(q.old(SIDE), Quiet::Proven);
    }

    #[test]
    fn without_scopes_nothing_is_proven() {
        let mut q = Quiescence::default();
        q.alloc(SIDE);
        q.stream_done(SIDE);
        marks(&mut q);
        assert_eq!(q.old(SIDE), Quiet::NotProven);
        let mut q = Quiescence::default();
        scope(&mut q, T);
        q.record(EventHandle(1), SIDE);
        q.forget(EventHandle(1));
        q.event_done(EventHandle(1));
        marks(&mut q);
        assert_eq!(q.old(SIDE), Quiet::NotProven, "a destroyed event's handle proves nothing");
    }

    #[test]
    fn destruction_is_an_exit() {
        let mut q = Quiescence::default();
        q.enter(T, SIDE);
        q.alloc(SIDE);
        q.destroy(SIDE);
        q.stream_done(SIDE);
        marks(&mut q);
        assert_eq!(q.old(SIDE), Quiet::Proven);
    }
}
