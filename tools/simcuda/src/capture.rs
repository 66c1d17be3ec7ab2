//! Capture: streams whose work becomes a graph instead of being run.
//!
//! Each stream of a capture has a [`Point`]: how far into the graph's time it is and how much of every stream's
//! work lies before it. Waiting for an event merges points; at the end the first stream's point must have seen
//! all work of all others ("unjoined" otherwise), and its time is how long a replay takes.

use crate::code::{Code, Outcome};
use crate::stream::Key;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};

/// `cudaStreamCaptureMode`: what else the process may do meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// No thread may make a potentially unsafe call.
    Global,
    /// The capturing thread may not.
    ThreadLocal,
    /// Anything goes.
    Relaxed,
}

impl Mode {
    /// The mode of that number.
    pub fn of(number: i32) -> Outcome<Mode> {
        match number {
            0 => Ok(Mode::Global),
            1 => Ok(Mode::ThreadLocal),
            2 => Ok(Mode::Relaxed),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// CUDA's number for it.
    pub fn number(self) -> i32 {
        self as i32
    }
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// A number for the calling thread.
pub fn thread() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(0);
    let known = THREAD.try_with(Cell::get).unwrap_or(0);
    if known != 0 {
        return known;
    }
    let number = THREADS.fetch_add(1, Ordering::Relaxed) + 1;
    let _ = THREAD.try_with(|thread| thread.set(number));
    number
}

/// Exchanges the calling thread's mode, as `cudaThreadExchangeStreamCaptureMode` does.
pub fn exchange_mode(mode: Mode) -> Mode {
    MODE.try_with(|current| current.replace(mode)).unwrap_or(Mode::Global)
}

/// A place in a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// Nanoseconds since the graph's start.
    pub at: u64,
    /// How many operations of each stream lie before it.
    seen: BTreeMap<Key, u64>,
}

impl Point {
    fn merge(&mut self, other: &Point) {
        self.at = self.at.max(other.at);
        for (&stream, &count) in &other.seen {
            let mine = self.seen.entry(stream).or_insert(0);
            *mine = count.max(*mine);
        }
    }
}

/// A capture in progress.
pub struct Capture {
    /// The graph that is being made.
    pub graph: usize,
    /// Operations so far.
    pub nodes: usize,
    /// Whether an error has spoilt it.
    pub invalid: bool,
    /// Events that a replay records, with their times.
    pub external: Vec<(usize, u64)>,
    origin: Key,
    mode: Mode,
    thread: u64,
    members: HashMap<Key, Point>,
}

/// All captures in progress.
#[derive(Default)]
pub struct Captures {
    begun: u64,
    live: HashMap<u64, Capture>,
}

impl Captures {
    /// Begins a capture on a stream.
    pub fn begin(&mut self, origin: Key, mode: Mode, graph: usize) -> u64 {
        self.begun += 1;
        let members = HashMap::from([(origin, Point::default())]);
        let thread = thread();
        let capture =
            Capture { graph, nodes: 0, invalid: false, external: Vec::new(), origin, mode, thread, members };
        self.live.insert(self.begun, capture);
        self.begun
    }

    /// A capture that is still in progress.
    pub fn get(&self, id: u64) -> Option<&Capture> {
        self.live.get(&id)
    }

    /// A capture that is still in progress and sound.
    pub fn sound(&mut self, id: u64) -> Outcome<&mut Capture> {
        match self.live.get_mut(&id) {
            Some(capture) if !capture.invalid => Ok(capture),
            _ => Err(Code::CAPTURE_INVALIDATED),
        }
    }

    /// Spoils a capture, and returns why.
    pub fn spoil(&mut self, id: u64, why: Code) -> Code {
        if let Some(capture) = self.live.get_mut(&id) {
            capture.invalid = true;
        }
        why
    }

    /// Adds an operation that takes `cost` nanoseconds; returns the place behind it.
    pub fn operation(&mut self, id: u64, stream: Key, cost: u64) -> Outcome<u64> {
        let capture = self.sound(id)?;
        capture.nodes += 1;
        let point = capture.members.entry(stream).or_default();
        point.at = point.at.saturating_add(cost);
        *point.seen.entry(stream).or_insert(0) += 1;
        Ok(point.at)
    }

    /// The place of a stream, which an event recorded now stands for.
    pub fn point(&mut self, id: u64, stream: Key) -> Outcome<Point> {
        Ok(self.sound(id)?.members.get(&stream).cloned().unwrap_or_default())
    }

    /// Puts a stream behind a place; a stream that was not of the capture joins it.
    pub fn join(&mut self, id: u64, stream: Key, place: &Point) -> Outcome {
        self.sound(id)?.members.entry(stream).or_default().merge(place);
        Ok(())
    }

    /// A stream was destroyed.
    pub fn forget(&mut self, id: u64, stream: Key) {
        if let Some(capture) = self.live.get_mut(&id) {
            capture.members.remove(&stream);
            capture.invalid = true;
        }
    }

    /// Ends a capture; returns it with how long a replay takes.
    pub fn end(&mut self, id: u64, stream: Key) -> (Option<Capture>, Outcome<u64>) {
        let Some(capture) = self.live.get(&id) else { return (None, Err(Code::CAPTURE_UNMATCHED)) };
        if capture.origin != stream {
            return (None, Err(self.spoil(id, Code::CAPTURE_UNMATCHED)));
        }
        if capture.mode != Mode::Relaxed && capture.thread != thread() {
            return (None, Err(self.spoil(id, Code::CAPTURE_WRONG_THREAD)));
        }
        let Some(capture) = self.live.remove(&id) else { return (None, Err(Code::CAPTURE_UNMATCHED)) };
        let end = capture.members.get(&stream).cloned().unwrap_or_default();
        let all_seen = capture
            .members
            .values()
            .flat_map(|point| &point.seen)
            .all(|(stream, count)| end.seen.get(stream).is_some_and(|seen| seen >= count));
        let outcome = if capture.invalid {
            Err(Code::CAPTURE_INVALIDATED)
        } else if all_seen {
            Ok(end.at)
        } else {
            Err(Code::CAPTURE_UNJOINED)
        };
        (Some(capture), outcome)
    }

    /// A call that could disturb a capture is about to be made: refused, and the capture spoilt, unless the modes of
    /// the capture and of the calling thread allow it.
    pub fn potentially_unsafe(&mut self) -> Outcome {
        if self.live.is_empty() {
            return Ok(());
        }
        let me = thread();
        let current = MODE.try_with(Cell::get).unwrap_or(Mode::Global);
        let disturbed = |capture: &Capture| match current {
            Mode::Relaxed => false,
            Mode::ThreadLocal => capture.mode != Mode::Relaxed && capture.thread == me,
            Mode::Global => {
                capture.mode == Mode::Global || (capture.mode == Mode::ThreadLocal && capture.thread == me)
            }
        };
        let mut outcome = Ok(());
        for capture in self.live.values_mut().filter(|capture| disturbed(capture)) {
            capture.invalid = true;
            outcome = Err(Code::CAPTURE_UNSUPPORTED);
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(handle: usize) -> Key {
        Key::of(handle, 0)
    }

    #[test]
    fn a_forked_stream_must_come_back() {
        for joins in [true, false] {
            let mut captures = Captures::default();
            let (origin, side) = (key(100), key(200));
            let id = captures.begin(origin, Mode::Global, 1);
            captures.operation(id, origin, 10).unwrap();
            let fork = captures.point(id, origin).unwrap();
            captures.join(id, side, &fork).unwrap();
            captures.operation(id, side, 100).unwrap();
            captures.operation(id, origin, 10).unwrap();
            if joins {
                let back = captures.point(id, side).unwrap();
                captures.join(id, origin, &back).unwrap();
            }
            let (capture, outcome) = captures.end(id, origin);
            assert_eq!(outcome, if joins { Ok(110) } else { Err(Code::CAPTURE_UNJOINED) });
            assert_eq!(capture.map(|c| c.nodes), Some(3));
        }
    }

    #[test]
    fn only_the_first_stream_ends_a_capture() {
        let mut captures = Captures::default();
        let id = captures.begin(key(100), Mode::Relaxed, 1);
        assert_eq!(captures.end(id, key(200)).1, Err(Code::CAPTURE_UNMATCHED));
        assert_eq!(captures.end(id, key(100)).1, Err(Code::CAPTURE_INVALIDATED));
        assert_eq!(captures.end(id, key(100)).1, Err(Code::CAPTURE_UNMATCHED));
    }

    #[test]
    fn modes_say_what_a_capture_forbids() {
        let mut captures = Captures::default();
        let id = captures.begin(key(100), Mode::Global, 1);
        let outer = exchange_mode(Mode::Relaxed);
        assert_eq!(captures.potentially_unsafe(), Ok(()));
        exchange_mode(outer);
        assert!(captures.get(id).is_some_and(|capture| !capture.invalid));
        assert_eq!(captures.potentially_unsafe(), Err(Code::CAPTURE_UNSUPPORTED));
        assert_eq!(captures.operation(id, key(100), 1), Err(Code::CAPTURE_INVALIDATED));

        let mut captures = Captures::default();
        captures.begin(key(100), Mode::ThreadLocal, 1);
        std::thread::scope(|scope| {
            let elsewhere = scope.spawn(|| captures.potentially_unsafe());
            assert_eq!(elsewhere.join().unwrap(), Ok(()));
        });
    }
}
