//! Frames of any thread, read carefully: what the holder probe looks at, with the GIL held. The walk is that of [`super::python`].

use super::memory::{At, Memory};
use super::object::Code;
use super::offsets::Offsets;
use super::python::{self, Chain};
use crate::platform::memory::{self, Plain};
use core::cell::Cell;

/// A frame whose code was checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunningFrame {
    /// Where it lies.
    pub(crate) at: u64,
    /// Its code object.
    pub(crate) code: u64,
    /// Where its first local variable lies.
    pub(crate) locals: u64,
}

/// Longest chain that is followed.
const DEEPEST: usize = 4096;
/// Words that are copied at once: all that is read of a frame.
const WORDS: usize = 9;

/// Copies by the kernel, a frame's head at a time.
struct Careful(Cell<Option<(u64, [u64; WORDS])>>);

impl Memory for Careful {
    fn read<T: Plain>(&self, base: At, offset: usize) -> Option<T> {
        let address = base.address().wrapping_add(offset as u64);
        // From where, so that what is read lies within the copy.
        let fits = offset + size_of::<T>() <= WORDS * 8;
        let from = if fits { base.address() } else { address & !7 };
        let words = match self.0.get() {
            Some((at, words)) if at == from => words,
            _ => memory::at::<WORDS>(from)?,
        };
        self.0.set(Some((from, words)));
        let skipped = (address - from) as usize;
        let bytes = words.as_ptr().cast::<u8>();
        // SAFETY: the copy is ours, and `T` lies within it: at `offset` where that fits, else within its first two words. Any bytes are a `T`.
        (skipped + size_of::<T>() <= WORDS * 8)
            .then(|| unsafe { bytes.add(skipped).cast::<T>().read_unaligned() })
    }
}

/// Hands out the frames that run of the thread with this state, innermost first; none while the layout is not proved. Whoever holds the
/// GIL finds them whole.
///
/// On 3.11 and 3.12 a chain begins on its thread's own stack, which is gone where C code has ended the thread in a call of Python's, and may be
/// another thread's by now: what lies there is a frame only where it has code.
pub(crate) fn frames_of(state: u64, each: &mut dyn FnMut(RunningFrame)) {
    let Some((o, code_type)) = python::proved() else { return };
    let memory = Careful(Cell::new(None));
    let Some(mut chain) = At::new(state).and_then(|state| Chain::of(o, &memory, state)) else { return };
    let mut known = None;
    for _ in 0..DEEPEST {
        let link =
            if o.owner != 0 { chain.link::<_, true>(o, &memory) } else { chain.link::<_, false>(o, &memory) };
        let Some(Some((at, is_pythons))) = link else { break };
        if !is_pythons {
            continue;
        }
        // Where a function calls itself its code comes again and again.
        let Some(frame) =
            checked(o, &memory, at, |code| Some(code) == known || is_code(&memory, code, code_type))
        else {
            break;
        };
        known = Some(frame.code);
        each(frame);
    }
}

/// The frame of a generator, or of a frame that is an object, which may have ended. `None`: there is no frame with code.
pub(crate) fn frame_at(address: u64) -> Option<RunningFrame> {
    let (o, code_type) = python::proved()?;
    let memory = Careful(Cell::new(None));
    checked(o, &memory, At::new(address)?, |code| is_code(&memory, code, code_type))
}

fn is_code(memory: &Careful, address: u64, code_type: u64) -> bool {
    memory::is_address(address) && Code::checked(memory, address, code_type).is_some()
}

fn checked(o: &Offsets, memory: &Careful, at: At, is_code: impl Fn(u64) -> bool) -> Option<RunningFrame> {
    let code = memory.read::<u64>(at, o.code)? & !o.tag;
    let at = at.address();
    is_code(code).then(|| RunningFrame { at, code, locals: at + o.locals as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_lies_there() {
        let words: [u64; 16] = core::array::from_fn(|i| 0x0101_0101_0101_0101 * i as u64);
        let memory = Careful(Cell::new(None));
        let base = At::new(words.as_ptr() as u64).expect("not null");
        for offset in [0, 8, 64, 72, 120, 56] {
            assert_eq!(memory.read::<u64>(base, offset), words.get(offset / 8).copied(), "{offset}");
        }
        assert_eq!((memory.read::<u8>(base, 70), memory.read::<u8>(base, 75)), (Some(8), Some(9)));
        assert_eq!(memory.read::<u32>(base, 68), Some(0x0808_0808));
        let nowhere = At::new(0xdead_beef_0000).expect("not null");
        assert_eq!(memory.read::<u64>(nowhere, 8), None);
        assert_eq!(memory.read::<u64>(base, 16), Some(words[2]), "it goes on after a failure");
    }
}
