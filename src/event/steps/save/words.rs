//! The words of a saved machine, each checked as it is taken.

use crate::event::ThreadId;
use crate::event::steps::machine::StepSource;

/// No thread, no tick.
pub(super) const NONE: u64 = u64::MAX;

pub(super) const SOURCES: [StepSource; 5] =
    [StepSource::None, StepSource::Time, StepSource::Backward, StepSource::Optimizer, StepSource::Manual];

pub(in crate::event::steps) struct Words<'a>(pub(super) std::slice::ChunksExact<'a, u8>);

impl Words<'_> {
    pub(in crate::event::steps) fn u64(&mut self) -> Option<u64> {
        self.0.next().and_then(|b| b.try_into().ok()).map(u64::from_le_bytes)
    }
    pub(in crate::event::steps) fn u32(&mut self) -> Option<u32> {
        self.u64().and_then(|v| v.try_into().ok())
    }
    pub(in crate::event::steps) fn pair(&mut self) -> Option<(u32, u32)> {
        self.u64().map(|v| (v as u32, (v >> 32) as u32))
    }
    pub(in crate::event::steps) fn bits<const N: usize>(&mut self) -> Option<[bool; N]> {
        self.u64().map(|v| std::array::from_fn(|i| v >> i & 1 != 0))
    }
    pub(in crate::event::steps) fn count(&mut self, max: usize) -> Option<usize> {
        self.u64().and_then(|v| usize::try_from(v).ok()).filter(|n| *n <= max)
    }
    /// A number that may be missing.
    pub(in crate::event::steps) fn optional(&mut self) -> Option<Option<u64>> {
        self.u64().map(|v| (v != NONE).then_some(v))
    }
    pub(in crate::event::steps) fn thread(&mut self) -> Option<ThreadId> {
        self.u64().and_then(|v| v.try_into().ok()).map(ThreadId)
    }
    /// A thread that may be missing.
    pub(in crate::event::steps) fn due(&mut self) -> Option<Option<ThreadId>> {
        Some(match self.optional()? {
            None => None,
            Some(v) => Some(ThreadId(v.try_into().ok()?)),
        })
    }
    pub(in crate::event::steps) fn source(&mut self) -> Option<StepSource> {
        let i = self.count(SOURCES.len())?;
        SOURCES.get(i).copied()
    }
}
