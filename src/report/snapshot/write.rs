//! A snapshot that is written as its items come: the history first, then the state that it leads to.

use super::entry::{Entry, Labels, Marked, Standing};
use super::out::Out;
use super::source::Source;
use super::track::Tracker;
use super::{segments, settings};
use crate::event::{DeviceId, Item, Nanos};
use crate::replay::Held;
use std::io::{self, Write};

/// Entries that wait at most for what completes them.
const HELD_BACK: usize = 4096;

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Entries of the history.
    pub entries: u64,
    /// How many of them were told from what followed, because the recording lost what happened.
    pub repaired: u64,
    /// Segments at the end.
    pub segments: u64,
    /// Blocks in use at the end, pending ones included.
    pub blocks: u64,
}

/// A snapshot that is being written.
pub struct Snapshot<'a, W: Write> {
    source: Source<'a>,
    out: Out<W>,
    labels: Labels<'a>,
    tracker: Tracker,
    /// The device whose history goes out as it comes; those above it wait.
    first: DeviceId,
    waiting: Vec<Vec<Entry>>,
    fresh: Vec<Entry>,
    events: u64,
    time: Nanos,
    written: Written,
}

impl<'a, W: Write> Snapshot<'a, W> {
    /// Begins. `standing` says of a block that is in use at the moment of the snapshot, or was at the last mark, what is to
    /// stand out about it.
    ///
    /// # Errors
    /// What the sink says: so it is with all that follows.
    pub fn begin(
        out: W,
        source: Source<'a>,
        standing: &dyn Fn(&Held) -> Option<Standing>,
    ) -> io::Result<Self> {
        let used: Vec<DeviceId> = source.replay.devices().map(|d| d.id).collect();
        let first = used.iter().copied().min().unwrap_or_default();
        let marked: Marked = used
            .iter()
            .flat_map(|&d| source.replay.blocks(d))
            .chain(&source.steps.left)
            .filter_map(|h| Some(((h.block.device, h.block.addr, h.born), standing(h)?)))
            .collect();
        let mut out = Out::new(out, source.language);
        out.dict()?;
        out.key("device_traces")?.list()?;
        for _ in 0..first.0 {
            out.list()?;
            out.close()?;
        }
        out.list()?;
        Ok(Snapshot {
            source,
            out,
            labels: Labels::new(source, marked),
            tracker: Tracker::new(source.filter.clone()),
            first,
            waiting: Vec::new(),
            fresh: Vec::new(),
            events: 0,
            time: Nanos(0),
            written: Written::default(),
        })
    }

    /// Takes the next item: the same ones in the same order as the first pass, up to the moment of the snapshot.
    pub fn apply(&mut self, item: &Item) -> io::Result<()> {
        match item {
            Item::Event(e) => {
                self.time = e.time;
                // The lists of the devices below the first are closed: the first pass saw nothing on them.
                if e.body.allocator_device().is_none_or(|d| d >= self.first) {
                    let before = self.fresh.len();
                    self.tracker.event(e, &mut self.fresh);
                    self.fresh[before..].iter_mut().for_each(|e| e.event = self.events);
                }
                if !self.tracker.is_waiting() || self.fresh.len() > HELD_BACK {
                    self.send()?;
                }
                self.events += 1;
            }
            Item::Checkpoint(c) => {
                let before = self.fresh.len();
                self.tracker.checkpoint(c, self.events == 0, &mut self.fresh);
                self.fresh[before..].iter_mut().for_each(|e| e.event = self.events);
                self.send()?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Entries of the history so far.
    pub fn entries(&self) -> u64 {
        self.written.entries
    }

    /// Ends the snapshot: everything after the history.
    pub fn finish(mut self) -> io::Result<(W, Written)> {
        self.send()?;
        self.labels.close(&mut self.out, self.time)?;
        self.out.close()?;
        for entries in std::mem::take(&mut self.waiting) {
            self.out.list()?;
            for e in entries {
                self.labels.write(&mut self.out, &e)?;
            }
            self.labels.close(&mut self.out, self.time)?;
            self.out.close()?;
        }
        self.out.close()?;
        self.out.text("segments")?;
        let (segments, blocks) = segments::write(&mut self.out, &self.source, &self.tracker)?;
        self.out.text("allocator_settings")?;
        settings::write(&mut self.out, self.source.alloc_conf)?;
        self.out.text("external_annotations")?;
        self.source.steps.write(&mut self.out, &self.source, self.time)?;
        self.out.close()?;
        let written = Written { segments, blocks, ..self.written };
        Ok((self.out.finish()?, written))
    }

    fn send(&mut self) -> io::Result<()> {
        for e in self.fresh.drain(..) {
            if e.event < self.source.from || e.device < self.first {
                continue;
            }
            self.written.entries += 1;
            self.written.repaired += u64::from(e.repaired);
            match usize::from(e.device.0.saturating_sub(self.first.0)) {
                0 => self.labels.write(&mut self.out, &e)?,
                n => {
                    if self.waiting.len() < n {
                        self.waiting.resize(n, Vec::new());
                    }
                    self.waiting[n - 1].push(e);
                }
            }
        }
        Ok(())
    }
}
