//! Blocks by address: a slab, so that the map moves eight bytes and not a block.

use super::held::Held;
use rustc_hash::FxHashMap;

/// Live and pending blocks of one device.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    slots: FxHashMap<u64, u32>,
    slab: Vec<Option<Held>>,
    free: Vec<u32>,
}

impl Table {
    /// Puts a block; what was at its address before.
    #[inline]
    pub(super) fn put(&mut self, h: Held) -> Option<Held> {
        let addr = h.block.addr.0;
        let slot = match self.free.pop() {
            Some(i) => {
                self.slab[i as usize] = Some(h);
                i
            }
            None => {
                self.slab.push(Some(h));
                (self.slab.len() - 1) as u32
            }
        };
        match self.slots.insert(addr, slot) {
            Some(old) => self.replaced(addr, old, slot),
            None => None,
        }
    }

    /// The block in `new` takes the place of the one in `old`, whose address it has.
    #[cold]
    fn replaced(&mut self, addr: u64, old: u32, new: u32) -> Option<Held> {
        self.slots.insert(addr, old);
        self.slab.swap(old as usize, new as usize);
        self.free.push(new);
        self.slab.get_mut(new as usize)?.take()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, addr: u64) -> Option<&mut Held> {
        let i = *self.slots.get(&addr)?;
        self.slab.get_mut(i as usize)?.as_mut()
    }

    #[inline]
    pub(super) fn get(&self, addr: u64) -> Option<&Held> {
        self.slab.get(*self.slots.get(&addr)? as usize)?.as_ref()
    }

    #[inline]
    pub(super) fn take(&mut self, addr: u64) -> Option<Held> {
        let i = self.slots.remove(&addr)?;
        self.free.push(i);
        self.slab.get_mut(i as usize)?.take()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Held> {
        self.slab.iter().flatten()
    }
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Held> {
        self.slab.iter_mut().flatten()
    }
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }
}
