//! The raw region of a process, read from outside: what is published and not yet (or no longer) in pages.
//!
//! The process may be alive. A record is overwritten only after the drain has given it back and the ring went once round;
//! so what was copied is right if the ring's head, read again afterwards, is less than a whole ring beyond its first index.

use super::source::{Source, fill};
use crate::event::{AtWork, Waited};
use crate::format::raw::{self, Record};
use crate::format::region::{Geometry, Identity, MAGIC, PART, VERSION, at, died, flag, ring_at};
use std::io;

/// A region's file.
pub(super) struct Tail {
    pub(super) source: Box<dyn Source>,
    pub(super) geometry: Geometry,
    bytes: Vec<u8>,
}

/// How the region stands.
pub(super) struct Stand {
    pub(super) tsc: bool,
    pub(super) began: (u64, u64),
    /// Latest calibration: ticks, and nanoseconds since the beginning.
    pub(super) now: Option<(u64, u64)>,
    pub(super) lost_unowned: u64,
    pub(super) lost_definitions: u64,
    /// The writer has given up: the job went on, and nothing of it was recorded any more.
    pub(super) stopped: bool,
    /// The writer has written its last page: nothing here is news.
    pub(super) ended: bool,
    pub(super) rings: Vec<RingStand>,
    /// What `waitpid(2)` said of the process, where somebody saw it.
    pub(super) died: Option<Waited>,
    /// What of strandline threads are in.
    pub(super) at_work: Vec<AtWork>,
}

/// How a ring stands.
#[derive(Clone, Copy)]
pub(super) struct RingStand {
    pub(super) ring: u32,
    pub(super) head: u64,
    pub(super) tail: u64,
    pub(super) lost: u64,
    pub(super) thread: u32,
}

pub(super) fn word(b: &[u8], at: usize) -> u64 {
    let bytes = b.get(at..at + 8).and_then(|w| w.try_into().ok());
    bytes.map_or(0, u64::from_le_bytes)
}

fn narrow(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

impl Tail {
    /// The region in `source`, if it is `who`'s. What is wrong with it, else.
    pub(super) fn open(source: Box<dyn Source>, who: &Identity) -> Result<Tail, String> {
        let mut head = Vec::new();
        let read = fill(&*source, 0, PART, &mut head).map_err(|e| e.to_string())?;
        if read < PART || word(&head, at::MAGIC) != MAGIC {
            return Err("it is not a strandline region".into());
        }
        if word(&head, at::VERSION) != u64::from(VERSION) {
            return Err(format!("its layout has version {}", word(&head, at::VERSION)));
        }
        let is = Identity {
            pid: narrow(word(&head, at::PID)),
            start: word(&head, at::START),
            id: [word(&head, at::ID_LOW), word(&head, at::ID_HIGH)],
        };
        if is != *who {
            return Err(format!("it belongs to another recording (of pid {})", is.pid));
        }
        let geometry = Geometry {
            lanes: narrow(word(&head, at::LANES)),
            records: narrow(word(&head, at::RECORDS)),
            overflow: narrow(word(&head, at::OVERFLOW)),
            definitions: narrow(word(&head, at::DEFINITIONS)),
        };
        let len = source.len().map_err(|e| e.to_string())?;
        if !geometry.is_valid() || (geometry.bytes() as u64) > len {
            return Err("its geometry does not fit its length".into());
        }
        Ok(Tail { source, geometry, bytes: Vec::new() })
    }

    /// How it stands now.
    pub(super) fn stand(&mut self) -> io::Result<Stand> {
        let n = self.geometry.definitions_start();
        fill(&*self.source, 0, n, &mut self.bytes)?;
        let b = &self.bytes;
        let began = (word(b, at::TICKS0), word(b, at::MONO0));
        let calibrated = word(b, at::CALIBRATION);
        let now = (calibrated > 0 && calibrated.is_multiple_of(2))
            .then(|| (word(b, at::TICKS1), word(b, at::MONO1).saturating_sub(began.1)));
        let rings = (0..=self.geometry.lanes).map(|ring| {
            let r = self.geometry.ring_head(ring);
            RingStand {
                ring,
                head: word(b, r + ring_at::HEAD),
                tail: word(b, r + ring_at::TAIL),
                lost: word(b, r + ring_at::LOST),
                thread: narrow(word(b, r + ring_at::THREAD)),
            }
        });
        let hooks = (0..=self.geometry.lanes).map(|i| word(b, self.geometry.ring_head(i) + ring_at::HOOK));
        Ok(Stand {
            died: died::read(word(b, at::DIED)),
            at_work: AtWork::all(hooks, word(b, at::ROOMS)),
            tsc: word(b, at::CLOCK) == 1,
            began,
            now,
            lost_unowned: word(b, at::LOST_UNOWNED),
            lost_definitions: word(b, at::LOST_DEFINITIONS),
            stopped: word(b, at::FLAGS) & flag::WRITER_STOPPED != 0,
            ended: word(b, at::FLAGS) & flag::CLEAN_END != 0,
            rings: rings.collect(),
        })
    }

    /// Copies records `from..to` of a ring. `false`: some of them were overwritten meanwhile, nothing was copied.
    pub(super) fn records(
        &mut self,
        ring: u32,
        from: u64,
        to: u64,
        out: &mut Vec<Record>,
    ) -> io::Result<bool> {
        let capacity = u64::from(self.geometry.ring_records(ring));
        if to < from || to - from > capacity {
            return Ok(false);
        }
        let start = out.len();
        let mut at = from;
        while at < to {
            let slot = at & (capacity - 1);
            let n = (to - at).min(capacity - slot);
            let place = self.geometry.ring_slots(ring) as u64 + slot * raw::BYTES as u64;
            let bytes = n as usize * raw::BYTES;
            if fill(&*self.source, place, bytes, &mut self.bytes)? < bytes {
                out.truncate(start);
                return Ok(false);
            }
            out.extend(self.bytes.chunks_exact(raw::BYTES).map(record));
            at += n;
        }
        let r = self.geometry.ring_head(ring);
        let (head, tail) = (self.word_at(r + ring_at::HEAD)?, self.word_at(r + ring_at::TAIL)?);
        // The slot of index `head` may be open and half written; but an owner writes only into what the drain has given
        // back, so a full ring whose drain is no further than `from` holds what it held.
        if tail > from && head >= from.saturating_add(capacity) {
            out.truncate(start);
            return Ok(false);
        }
        Ok(true)
    }

    /// Copies the definitions from byte `from` on. `None`: some were overwritten meanwhile.
    pub(super) fn definitions(&mut self, from: u64) -> io::Result<Option<Vec<u8>>> {
        let capacity = u64::from(self.geometry.definitions);
        let (head, tail) = (self.word_at(at::DEF_HEAD)?, self.word_at(at::DEF_TAIL)?);
        if from < tail || head < from || head - from > capacity {
            return Ok(None);
        }
        let mut out = Vec::new();
        let mut at = from;
        while at < head {
            let slot = at & (capacity - 1);
            let n = (head - at).min(capacity - slot);
            let place = self.geometry.definitions_start() as u64 + slot;
            if fill(&*self.source, place, n as usize, &mut self.bytes)? < n as usize {
                return Ok(None);
            }
            out.extend_from_slice(&self.bytes);
            at += n;
        }
        // Producers write only into what the drain has given back.
        Ok((self.word_at(at::DEF_TAIL)? <= from).then_some(out))
    }

    /// Where the definitions that are still there begin.
    pub(super) fn first_definition(&mut self) -> io::Result<u64> {
        self.word_at(at::DEF_TAIL)
    }

    fn word_at(&mut self, place: usize) -> io::Result<u64> {
        fill(&*self.source, place as u64, 8, &mut self.bytes)?;
        Ok(word(&self.bytes, 0))
    }
}

fn record(b: &[u8]) -> Record {
    let last = word(b, 56);
    let [.., kind, device, flags, phase] = last.to_le_bytes();
    Record {
        ticks: word(b, 0),
        a: word(b, 8),
        b: word(b, 16),
        c: word(b, 24),
        rounded_seq: word(b, 32),
        allocated: word(b, 40),
        reserved: word(b, 48),
        stack: last as u32,
        kind,
        device,
        flags,
        phase,
    }
}
