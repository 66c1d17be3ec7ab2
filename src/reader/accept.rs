//! Pages and tails → the merge: nothing twice, nothing missing unnoticed.

use super::pages::Next;
use super::state::{Reader, Ring, Stage, Then};
use super::summary::TailState;
use super::tail::{Stand, Tail};
use crate::event::{Dropped, Item, Nanos, ThreadId, ThreadInfo, make_json_printable, printable};
use crate::format::checkpoint;
use crate::format::clock::Clock;
use crate::format::marks::{Mark, Skipped};
use crate::format::page::{Frame, Tag};
use crate::format::raw::{Kind, Record, flag};
use crate::format::wire::Cursor;
use std::mem::take;

/// Guess of a TSC tick's length in nanoseconds, until the first calibration.
const TSC_GUESS: f64 = 0.4;
/// Number that losses without a ring are told under: no region has so many rings.
const NO_RING: u32 = 256;
/// Records that wait for the end of their sweep; several times what all rings of a job hold.
const MOST_WAITING: usize = 1 << 22;

/// What became of a look at the tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// There are pages that hold what the tail no longer does.
    PagesFirst,
    /// Everything there was has been taken: so many records.
    Taken(u64),
}

impl Reader {
    pub(super) fn read_page(&mut self) {
        let Some(mut pages) = self.pages.take() else { return };
        match pages.next(&*self.source) {
            Err(e) => {
                self.damage.add(Some(pages.at()), format!("the file cannot be read: {e}"), None);
                self.stage = Stage::Tail;
            }
            Ok(Next::Page { at, frame, payload }) => {
                self.cut_at = None;
                self.page(at, &frame, payload);
            }
            Ok(Next::Bad { at, frame, why }) => self.bad_page(at, &frame, why),
            Ok(Next::End) => self.stage = Stage::Tail,
            Ok(Next::Cut(at)) => {
                self.cut_at = Some(at);
                self.stage = Stage::Tail;
            }
            Ok(Next::Lost(_)) if self.live && self.has_patience() => self.stage = Stage::Tail,
            Ok(Next::Lost(at)) => match pages.resync(&*self.source, at) {
                Ok(to) => {
                    self.damage.add(
                        Some(at),
                        format!("{} bytes are not valid recording data", to - at),
                        None,
                    );
                    self.wants_state = true;
                }
                Err(e) => {
                    self.damage.add(Some(at), format!("the file cannot be read: {e}"), None);
                    self.stage = Stage::Tail;
                }
            },
        }
        self.pages = Some(pages);
    }

    fn bad_page(&mut self, at: u64, frame: &Frame, why: &str) {
        // Of a newer version: passed over.
        let Some(tag) = Tag::from_u16(frame.tag) else { return };
        self.damage.add(Some(at), format!("page {} ({tag:?}) is damaged: {why}", frame.sequence), None);
        self.wants_state = true;
        self.definitions.hole |= tag == Tag::Definitions;
    }

    fn page(&mut self, at: u64, frame: &Frame, payload: &[u8]) {
        let Some(tag) = Tag::from_u16(frame.tag) else { return self.bad_page(at, frame, "") };
        let read = match tag {
            Tag::Events => self.events_page(at, payload),
            Tag::Definitions => {
                let mut c = Cursor::new(payload);
                c.number("position").and_then(|start| {
                    let rest = payload.get(c.at()..).unwrap_or_default();
                    self.definitions.take(start, rest, &mut self.items)
                })
            }
            Tag::Sweep => Mark::decode(payload).map(|m| self.sweep(&m)),
            Tag::Chunk => Mark::decode(payload).map(|m| self.chunk(m)),
            Tag::Checkpoint if self.takes_state => checkpoint::decode(payload).map(|c| {
                self.takes_state = false;
                self.summary.restored += 1;
                self.items.push_back(Item::Checkpoint(Box::new(c)));
            }),
            Tag::Checkpoint => Ok(()),
            Tag::Meta => {
                match serde_json::from_slice(payload) {
                    Ok(facts @ serde_json::Value::Object(_)) => self.facts(facts),
                    _ => self.damage.add(Some(at), "facts that are not a JSON object", None),
                }
                Ok(())
            }
            Tag::Skip => Skipped::decode(payload).map(|s| self.skip(&s)),
            Tag::End => Mark::decode(payload).map(|m| self.end(&m)),
        };
        if let Err(e) = read {
            self.damage.add(Some(at), format!("page {} ({tag:?}) is damaged: {e}", frame.sequence), None);
            self.wants_state = true;
        }
    }

    fn facts(&mut self, mut facts: serde_json::Value) {
        make_json_printable(&mut facts);
        // A chunk repeats all facts: those that are known already are no news.
        if self.summary.merge_facts(&facts) {
            self.items.push_back(Item::Meta(facts));
        }
    }

    fn events_page(&mut self, at: u64, payload: &[u8]) -> Result<(), crate::format::wire::Malformed> {
        use crate::format::events::EventsHead;
        let head = EventsHead::read(&mut Cursor::new(payload))?;
        let seen = self.ring(head.ring).seen;
        if head.first.saturating_add(u64::from(head.count)) <= seen {
            return Ok(());
        }
        let mut records = self.merge.lend(head.ring);
        let before = records.len();
        let done = self.decoder.decode(payload, &mut records);
        let scan = self.decoder.saw(Kind::Gap) || self.decoder.saw(Kind::Thread);
        self.accept((head.ring, head.thread, head.first), (records, before), scan, Some(at));
        done.map(|_| ())
    }

    fn ring(&mut self, ring: u32) -> &mut Ring {
        let i = ring as usize;
        if i >= self.rings.len() {
            self.rings.resize(i + 1, Ring::default());
        }
        // In bounds: just made so. Ring numbers are bounded by whoever decoded them.
        &mut self.rings[i]
    }

    /// Takes the records of a ring from index `first` on, less those that are known. `queue`: what the merge lent, and how much of it is
    /// not new.
    fn accept(
        &mut self,
        (ring, thread, first): (u32, u32, u64),
        queue: (Vec<Record>, usize),
        scan: bool,
        at: Option<u64>,
    ) {
        let (mut records, before) = queue;
        let known = *self.ring(ring);
        let read = records.len() - before;
        let skip = known.seen.saturating_sub(first).min(read as u64) as usize;
        records.drain(before..before + skip);
        if skip == read {
            return self.merge.give(ring, known.thread, records, before);
        }
        let begins = if skip > 0 || thread == 0 { known.thread } else { thread };
        let mut told = known.told;
        let mut owner = begins;
        for r in records.iter_mut().skip(before).filter(|_| scan) {
            if r.kind == Kind::Gap as u8 {
                let so_far = r.a;
                r.a = so_far.saturating_sub(told);
                r.c = 0;
                self.summary.lost = self.summary.lost.saturating_add(r.a);
                told = told.max(so_far);
            } else if r.kind == Kind::Thread as u8 {
                owner = r.stack;
                self.items.push_back(Item::Thread(thread_info(r)));
            }
        }
        if first > known.seen {
            let n = first - known.seen;
            self.damage.add(at, format!("a hole in the events of ring {ring}"), Some(n));
            self.missing = self.missing.saturating_add(n);
            self.wants_state = true;
            let ticks = records.get(before).map_or(0, |r| r.ticks);
            records.insert(before, gap(begins, ticks, n));
        }
        self.merge.give(ring, begins, records, before);
        if self.merge.waiting() > MOST_WAITING {
            // No writer holds back so much: the sweeps' ends are missing.
            self.merge.end_sweep(self.merge.newest());
        }
        let news = (read - skip) as u64;
        self.summary.records = self.summary.records.saturating_add(news);
        let seen = first.saturating_add(read as u64);
        *self.ring(ring) = Ring { seen, told, thread: owner };
    }

    /// Puts a loss where it was noticed.
    fn gap(&mut self, ring: u32, thread: u32, ticks: u64, lost: u64) {
        self.merge.extend(ring, thread, &[gap(thread, ticks, lost)]);
    }

    /// Losses that no record tells (yet).
    fn losses(&mut self, ticks: u64, rings: impl Iterator<Item = (u32, u64)>, unowned: u64) {
        for (ring, lost) in rings {
            let r = *self.ring(ring);
            if lost > r.told {
                self.gap(ring, r.thread, ticks, lost - r.told);
                self.summary.lost = self.summary.lost.saturating_add(lost - r.told);
                self.ring(ring).told = lost;
            }
        }
        if unowned > self.told_unowned {
            let lost = unowned - self.told_unowned;
            self.gap(NO_RING, 0, ticks, lost);
            self.summary.lost = self.summary.lost.saturating_add(lost);
            self.told_unowned = unowned;
        }
    }

    fn clock_point(&mut self, ticks: u64, ns: u64, tsc: bool) {
        if self.clock.last() == (0, 0) {
            self.clock = Clock::new(ticks, ns, if tsc { TSC_GUESS } else { 1.0 });
        } else {
            self.clock.point(ticks, ns);
        }
    }

    /// What a mark says of the clock and of records that were lost.
    fn clock_and_losses(&mut self, m: &Mark) {
        self.clock_point(m.ticks, m.ns, m.tsc);
        self.losses(m.ticks, m.rings.iter().map(|r| (r.ring, r.lost)), m.lost_unowned);
    }

    fn sweep(&mut self, m: &Mark) {
        self.clock_and_losses(m);
        self.summary.lost_definitions = m.lost_definitions;
        self.summary.sweeps += 1;
        self.merge.end_sweep(self.sweep_newest);
        self.sweep_newest = self.merge.newest();
    }

    fn chunk(&mut self, m: Mark) {
        self.clock_point(m.ticks, m.ns, m.tsc);
        // The first chunk's state is empty: there is nothing to go on from.
        if !take(&mut self.wants_state) || m.number <= 1 {
            return;
        }
        // What waits here and is in the chunk again comes from there. If some of it has been handed out, the chunk's state
        // would count it twice: then the recording is gone on with as it is.
        let again = |r: &Reader, ring: u32, next: u64| {
            let seen = r.rings.get(ring as usize).map_or(0, |k| k.seen);
            seen.saturating_sub(next)
        };
        if m.rings.iter().any(|k| again(self, k.ring, k.next) > self.merge.waiting_in(k.ring)) {
            return;
        }
        for k in &m.rings {
            let n = again(self, k.ring, k.next);
            self.merge.drop_last(k.ring, n);
            self.summary.records = self.summary.records.saturating_sub(n);
        }
        self.merge.end();
        self.then.push_back(Then::Rebase(m));
    }

    pub(super) fn rebase(&mut self, m: &Mark) {
        self.new_merge();
        for k in &m.rings {
            let told = self.ring(k.ring).told.max(k.lost);
            *self.ring(k.ring) = Ring { seen: k.next, told, thread: k.thread };
        }
        self.summary.lost =
            self.summary.lost.max(m.rings.iter().map(|k| k.lost).sum::<u64>() + m.lost_unowned);
        self.told_unowned = self.told_unowned.max(m.lost_unowned);
        self.takes_state = true;
    }

    fn skip(&mut self, s: &Skipped) {
        self.wants_state = true;
        self.merge.end();
        self.definitions.hole = true;
        self.then.push_back(Then::Skip(Dropped {
            records: s.records,
            from: Nanos(s.from_ns),
            to: Nanos(s.to_ns),
            first_step: s.first_step,
            last_step: s.last_step,
        }));
    }

    fn end(&mut self, m: &Mark) {
        self.clock_and_losses(m);
        self.summary.complete = true;
        self.merge.end();
        self.then.push_back(Then::Item(Item::End(Nanos(m.ns))));
        self.then.push_back(Then::Finish);
    }

    /// After the last page: what the region holds beyond it.
    pub(super) fn read_tail(&mut self) {
        let Some(mut tail) = self.tail.take() else { return self.no_more() };
        // Even a reader that does not follow may look at a live recording: pages may have come since it read the last.
        let patient = self.has_patience();
        let look = tail.stand().and_then(|stand| self.look(&mut tail, &stand, patient || self.live));
        self.tail = Some(tail);
        match look {
            Ok(Look::PagesFirst) => self.stage = if patient { Stage::Pages } else { Stage::Waiting },
            Ok(Look::Taken(n)) => {
                self.summary.tail = TailState::Read(n);
                self.no_more();
            }
            Err(e) => {
                self.damage.add(None, format!("it cannot be read: {e}"), None);
                self.no_more();
            }
        }
    }

    fn look(&mut self, tail: &mut Tail, stand: &Stand, patient: bool) -> std::io::Result<Look> {
        let mut found = Vec::new();
        for r in &stand.rings {
            let seen = self.ring(r.ring).seen;
            if r.tail > seen && patient {
                return Ok(Look::PagesFirst);
            }
            let from = r.tail.max(seen);
            if r.head <= from {
                continue;
            }
            let mut records = Vec::new();
            if tail.records(r.ring, from, r.head, &mut records)? {
                found.push((*r, from, records));
            } else if patient {
                return Ok(Look::PagesFirst);
            } else {
                self.damage.add(None, format!("ring {} does not make sense", r.ring), None);
            }
        }
        // Heads first, definitions after: these hold whatever those refer to.
        let from = self.definitions.seen;
        let mut defined = tail.definitions(from)?.map(|d| (from, d));
        if defined.is_none() {
            if patient {
                return Ok(Look::PagesFirst);
            }
            let first = tail.first_definition()?;
            defined = tail.definitions(first)?.map(|d| (first, d));
        }
        match defined {
            Some((at, bytes)) => {
                if let Err(e) = self.definitions.take(at, &bytes, &mut self.items) {
                    self.damage.add(None, e.to_string(), None);
                }
            }
            None => self.damage.add(None, "its definitions do not make sense", None),
        }
        if self.clock.last() == (0, 0) {
            self.clock_point(stand.began.0, 0, stand.tsc);
        }
        if let Some((ticks, ns)) = stand.now {
            self.clock.point(ticks, ns);
        }
        let mut taken = 0u64;
        for (r, from, records) in found {
            let owner = self.ring(r.ring).thread;
            let thread = if owner == 0 { r.thread } else { owner };
            taken = taken.saturating_add(records.len() as u64);
            let mut queue = self.merge.lend(r.ring);
            let before = queue.len();
            queue.extend(records);
            self.accept((r.ring, thread, from), (queue, before), true, None);
        }
        let ticks = self.merge.newest();
        self.losses(ticks, stand.rings.iter().map(|r| (r.ring, r.lost)), stand.lost_unowned);
        self.summary.lost_definitions = stand.lost_definitions;
        self.summary.stopped = stand.stopped;
        self.summary.at_work.clone_from(&stand.at_work);
        self.summary.died = stand.died;
        Ok(Look::Taken(taken))
    }

    /// Nothing more can be read at present.
    fn no_more(&mut self) {
        if self.live {
            self.settle();
            self.stage = Stage::Waiting;
        } else {
            // Records and definitions leave the region only after their page is written whole: a kill in the middle of
            // the write costs nothing where the region is at hand. A writer that gave up (a full disk) may owe more.
            let nothing_missing = matches!(self.summary.tail, TailState::Read(_)) && !self.summary.stopped;
            if let Some(at) = self.cut_at.filter(|_| !nothing_missing) {
                self.damage.add(Some(at), "the file is cut off", None);
            }
            match nothing_missing {
                true => self.merge.end(),
                false => self.merge.cut(self.summary.lost.saturating_add(self.missing)),
            }
            self.then.push_back(Then::Finish);
            self.stage = Stage::Done;
        }
    }
}

/// A record of what was lost, owned by `thread`.
fn gap(thread: u32, ticks: u64, lost: u64) -> Record {
    Record { ticks, a: lost, c: u64::from(thread), kind: Kind::Gap as u8, ..Record::default() }
}

fn thread_info(r: &Record) -> ThreadInfo {
    let bytes = [r.b.to_le_bytes(), r.c.to_le_bytes()].concat();
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    ThreadInfo {
        thread: ThreadId::numbered(r.stack),
        tid: r.a as u32,
        name: printable(&String::from_utf8_lossy(bytes.get(..end).unwrap_or_default())).into_owned(),
        autograd: r.flags & flag::AUTOGRAD != 0,
    }
}
