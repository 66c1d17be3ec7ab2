//! Two ways to read this process's own memory: at once, where the layout is proved, and carefully, where it is a claim.
//!
//! Both read from an [`At`] alone: an address that was found not to be null. A thread may have a Python state and no frame, and
//! torch calls CUDA on such threads: there is no way to read from what such a state does not have.

use crate::platform::memory::{Pipe, Plain};
use core::num::NonZeroU64;

/// An address that was found not to be null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At(NonZeroU64);

impl At {
    /// `None` for null.
    #[inline(always)]
    pub(super) const fn new(address: u64) -> Option<At> {
        match NonZeroU64::new(address) {
            Some(address) => Some(At(address)),
            None => None,
        }
    }

    /// The address.
    #[inline(always)]
    pub(super) const fn address(self) -> u64 {
        self.0.get()
    }
}

/// Something to read from.
pub(super) trait Memory {
    /// Nothing is asked before it is read: what hooks do.
    const IS_DIRECT: bool = false;
    /// The number at `base` + `offset`. `None`: nothing can be read there.
    fn read<T: Plain>(&self, base: At, offset: usize) -> Option<T>;
    /// The address that lies there. `None`: nothing can be read; `Some(None)`: it is null.
    #[inline(always)]
    fn pointer(&self, base: At, offset: usize) -> Option<Option<At>> {
        self.read::<u64>(base, offset).map(At::new)
    }
}

/// Reads without asking.
pub(super) struct Direct(());

impl Direct {
    /// # Safety
    /// Whatever is read through it must be readable.
    #[inline(always)]
    pub(super) const unsafe fn new() -> Direct {
        Direct(())
    }
}

impl Memory for Direct {
    const IS_DIRECT: bool = true;
    #[inline(always)]
    fn read<T: Plain>(&self, base: At, offset: usize) -> Option<T> {
        // SAFETY: promised to `new`.
        Some(unsafe { ((base.address() as usize).wrapping_add(offset) as *const T).read_unaligned() })
    }
}

impl Memory for Pipe {
    fn read<T: Plain>(&self, base: At, offset: usize) -> Option<T> {
        self.copy(base.address().wrapping_add(offset as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_none() {
        let memory = Pipe::new().expect("a pipe");
        let value = [7u64, 0x0102_0304_0506_0708];
        let at = At::new(value.as_ptr() as u64).expect("not null");
        let nowhere = |address| At::new(address).expect("not null");
        assert_eq!(memory.read::<u64>(at, 8), Some(value[1]));
        assert_eq!(memory.read::<u8>(at, 8), Some(8));
        assert_eq!(memory.read::<u32>(nowhere(8), 0), None);
        assert_eq!(memory.read::<u64>(nowhere(0xdead_beef_0000_0000), 0), None);
        assert_eq!(At::new(0), None);
        assert_eq!(memory.read::<u32>(at, 8), Some(0x0506_0708), "it goes on after a failure");
    }
}
