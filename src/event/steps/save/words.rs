//! The words of a saved machine, as they are written or read: one list of fields serves both. Each is checked as it is read.

use crate::event::steps::machine::StepSource;
use crate::event::{Nanos, ThreadId};
use std::slice::ChunksExact;

/// No thread, no tick.
const NONE: u64 = u64::MAX;

/// Words that are written from the fields that are shown, or that these fields are read from.
pub(in crate::event::steps) enum Words<'a> {
    Written(Vec<u64>),
    Read(ChunksExact<'a, u8>),
}

/// `None`: the words are none of a machine's.
type Checked<T = ()> = Option<T>;

impl Words<'_> {
    fn word(&mut self, value: u64) -> Checked<u64> {
        match self {
            Words::Written(words) => {
                words.push(value);
                Some(value)
            }
            Words::Read(words) => words.next()?.try_into().ok().map(u64::from_le_bytes),
        }
    }

    /// A number in a word of its own.
    pub(in crate::event::steps) fn number<N: Into<u64> + TryFrom<u64> + Copy>(
        &mut self,
        n: &mut N,
    ) -> Checked {
        *n = self.word((*n).into())?.try_into().ok()?;
        Some(())
    }

    /// Numbers of their own.
    pub(in crate::event::steps) fn numbers<const N: usize>(&mut self, all: [&mut u64; N]) -> Checked {
        all.into_iter().try_for_each(|n| self.number(n))
    }

    /// Two numbers in a word.
    pub(in crate::event::steps) fn pair<A, B>(&mut self, low: &mut A, high: &mut B) -> Checked
    where
        A: Into<u32> + TryFrom<u32> + Copy,
        B: Into<u32> + TryFrom<u32> + Copy,
    {
        let word = self.word(u64::from((*low).into()) | u64::from((*high).into()) << 32)?;
        (*low, *high) = ((word as u32).try_into().ok()?, ((word >> 32) as u32).try_into().ok()?);
        Some(())
    }

    /// Flags, the first the lowest bit of a word.
    pub(in crate::event::steps) fn bits<const N: usize>(&mut self, flags: [&mut bool; N]) -> Checked {
        let word = flags.iter().enumerate().fold(0, |word, (i, flag)| word | u64::from(**flag) << i);
        let word = self.word(word)?;
        flags.into_iter().enumerate().for_each(|(i, flag)| *flag = word >> i & 1 != 0);
        Some(())
    }

    /// How many a list has, at most so many: as many are there to be read.
    pub(in crate::event::steps) fn count<T: Clone + Default>(
        &mut self,
        list: &mut Vec<T>,
        most: usize,
    ) -> Checked {
        let count = self.word(list.len() as u64)?;
        list.resize(usize::try_from(count).ok().filter(|n| *n <= most)?, T::default());
        Some(())
    }

    /// A thread that may be missing.
    pub(in crate::event::steps) fn due(&mut self, thread: &mut Option<ThreadId>) -> Checked {
        let word = self.word(thread.map_or(NONE, |t| u64::from(t.0)))?;
        *thread = if word == NONE { None } else { Some(ThreadId(word.try_into().ok()?)) };
        Some(())
    }

    /// A tick that may be missing.
    pub(in crate::event::steps) fn tick(&mut self, tick: &mut Option<Nanos>) -> Checked {
        let word = self.word(tick.map_or(NONE, |t| t.0))?;
        *tick = (word != NONE).then_some(Nanos(word));
        Some(())
    }

    /// What steps are counted by.
    pub(in crate::event::steps) fn source(&mut self, source: &mut StepSource) -> Checked {
        let number = usize::try_from(self.word(*source as u64)?).ok()?;
        *source = *StepSource::ALL.get(number)?;
        Some(())
    }

    /// A number that is read and not kept as it is.
    pub(in crate::event::steps) fn next<N: Default + Into<u64> + TryFrom<u64> + Copy>(
        &mut self,
    ) -> Checked<N> {
        let mut n = N::default();
        self.number(&mut n).map(|()| n)
    }

    /// All words are read.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Words::Read(words) if words.len() == 0)
    }
}
