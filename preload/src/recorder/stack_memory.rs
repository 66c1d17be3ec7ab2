//! What a thread keeps for its stacks: those that it has seen, and how places in the code are unwound. Zeroed memory is empty.

pub(crate) use strandline_core::format::definition::MAX_FRAMES;

/// Entries of [`Cache`].
pub(crate) const STACKS: usize = 1 << 12;
/// Entries of [`Rules`].
pub(crate) const PLACES: usize = 1 << 12;
/// Native frames that are kept; deeper ones are left out.
pub(crate) const NATIVE_FRAMES: usize = 256;

/// A frame as the walk sees it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Frame {
    /// Address of the code object.
    pub(crate) code: u64,
    /// Address or index of the instruction, as the version keeps it.
    pub(crate) instruction: u64,
}

/// Stacks that a thread has seen: 64 KiB, open addressing, zeroed memory is empty.
#[repr(C)]
pub(crate) struct Cache {
    /// By hash.
    pub(crate) entries: [KnownStack; STACKS],
    /// Where a miss stores the frames.
    pub(crate) frames: [Frame; MAX_FRAMES],
}

/// A stack that a thread has seen.
#[derive(Clone, Copy)]
pub(crate) struct KnownStack {
    /// Of its frames; 0: empty.
    pub(crate) hash: u64,
    /// Its number in the recording.
    pub(crate) id: u32,
    /// Of the code objects that it was read with.
    pub(crate) epoch: u32,
}

/// What a thread knows about places in the code: open addressing, zeroed memory is empty.
#[repr(C)]
pub(crate) struct Rules {
    /// By place.
    pub(crate) entries: [KnownPlace; PLACES],
    /// Where a miss stores the frames.
    pub(crate) frames: [u64; NATIVE_FRAMES],
    /// Of the modules' table that the rules were read with.
    pub(crate) generation: u32,
    /// Where the thread's stack begins, and behind its last byte; 0: not asked yet.
    pub(crate) stack: (usize, usize),
}

/// A place in the code that a thread has unwound.
#[derive(Clone, Copy)]
pub(crate) struct KnownPlace {
    /// The return address; 0: empty.
    pub(crate) place: u64,
    /// How its caller is found.
    pub(crate) rule: Rule,
}

/// A step from a frame to its caller. `rbp` and the return address lie below the canonical frame address (CFA).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Rule {
    /// Where the CFA is counted from.
    pub(crate) base: Base,
    /// Added to that register.
    pub(crate) offset: i32,
    /// Where `rbp` was saved.
    pub(crate) rbp: Saved,
}

/// What a CFA is counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Base {
    /// There is no caller: this frame is the outermost.
    #[default]
    None,
    /// There is one, and how to find it is not said or not understood.
    Unknown,
    /// `rsp + offset`.
    Rsp,
    /// `rbp + offset`.
    Rbp,
    /// The word at `rbp + offset`: a frame whose stack pointer was aligned.
    AtRbp,
}

/// Where the caller's `rbp` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Saved {
    /// Still in `rbp`.
    #[default]
    Same,
    /// At the CFA plus this.
    Cfa(i16),
    /// At `rbp` plus this.
    Rbp(i16),
}
