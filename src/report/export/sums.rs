//! One more pass over a recording: bytes and blocks by stack, held at moments that were asked for and allocated in all.

use crate::event::{Body, DeviceId, Event, Item, Names, SiteId, StackId, StreamId, add};
use crate::replay::{Held, Point, Replay};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// What blocks are summed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) device: DeviceId,
    pub(super) stream: StreamId,
    pub(super) site: SiteId,
    pub(super) stack: StackId,
}

impl Key {
    pub(super) fn of(h: &Held) -> Key {
        Key { device: h.block.device, stream: h.stream, site: h.site, stack: h.block.stack }
    }
}

/// What was held at a moment.
#[derive(Debug, Default)]
pub(super) struct Picture {
    pub(super) stacks: FxHashMap<Key, Point>,
    /// Bytes of which no block is known, since they were there before the recording began.
    pub(super) early: BTreeMap<DeviceId, u64>,
}

/// The pass.
#[derive(Debug)]
pub struct Sums {
    replay: Replay,
    /// Numbers of events that are before each moment, and what was held then.
    pub(super) moments: Vec<(u64, Option<Picture>)>,
    pub(super) allocated: FxHashMap<Key, Point>,
}

impl Sums {
    /// A pass that looks at these moments: after so many events each.
    pub fn at(moments: impl IntoIterator<Item = u64>) -> Sums {
        let moments = moments.into_iter().map(|events| (events, None)).collect();
        Sums { replay: Replay::new(), moments, allocated: FxHashMap::default() }
    }

    /// Takes the next item.
    pub fn apply(&mut self, item: &Item, names: &Names) {
        if matches!(item, Item::Event(_)) {
            self.look();
        }
        self.replay.apply(item, names);
        if let Item::Event(Event { body: Body::Alloc(b), .. }) = item
            && let Some(h) = self.replay.block(b.device, b.addr)
        {
            self.allocated.entry(Key::of(h)).or_default().add(Point::block(h.block.rounded.0));
        }
    }

    /// Nothing more comes.
    pub fn end(&mut self) {
        self.look();
    }

    /// Stacks that something was allocated from, or held.
    pub fn stacks(&self) -> impl Iterator<Item = StackId> {
        let pictures = self.moments.iter().filter_map(|(_, p)| p.as_ref());
        let held = pictures.flat_map(|p| p.stacks.keys());
        held.chain(self.allocated.keys()).map(|k| k.stack)
    }

    /// The lines that hold most at the first of the moments, the largest first.
    pub fn lines(&self, most: usize) -> Vec<SiteId> {
        let mut sites: BTreeMap<SiteId, u64> = BTreeMap::new();
        let picture = self.moments.first().and_then(|(_, p)| p.as_ref());
        for (key, sum) in picture.iter().flat_map(|p| &p.stacks) {
            add(sites.entry(key.site).or_default(), sum.bytes);
        }
        let mut sites: Vec<(SiteId, u64)> = sites.into_iter().collect();
        sites.sort_by_key(|(site, bytes)| (std::cmp::Reverse(*bytes), *site));
        sites.into_iter().take(most).map(|(site, _)| site).collect()
    }

    fn look(&mut self) {
        let now = self.replay.events();
        for (events, picture) in self.moments.iter_mut().filter(|(_, p)| p.is_none()) {
            if *events == now {
                *picture = Some(taken(&self.replay));
            }
        }
    }
}

fn taken(replay: &Replay) -> Picture {
    let mut picture = Picture::default();
    for d in replay.devices() {
        for h in replay.blocks(d.id).filter(|h| !h.pending && !h.unverified) {
            picture.stacks.entry(Key::of(h)).or_default().add(Point::block(h.block.rounded.0));
        }
        if d.before_recording.0 > 0 {
            picture.early.insert(d.id, d.before_recording.0);
        }
    }
    picture
}
