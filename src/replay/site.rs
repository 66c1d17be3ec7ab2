//! Call sites: which line allocated.

use crate::event::{Frame, SiteId, StackId};

/// Why blocks are grouped under a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SiteKind {
    /// The innermost frame outside PyTorch's own files is [`Site::frame`].
    Line,
    /// Allocated by an autograd thread without a Python frame: [`Site::frame`] is the line that called backward.
    Backward,
    /// No Python frame is known. [`Site::frame`] is empty.
    Unknown,
}

/// A call site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its number.
    pub id: SiteId,
    /// What its frame means.
    pub kind: SiteKind,
    /// The line (see [`SiteKind`]).
    pub frame: Frame,
    /// The first frame outside of `site-packages` and the standard library, from innermost outwards.
    pub your_line: Option<Frame>,
    /// One whole stack that leads here (of the call of backward, for [`SiteKind::Backward`]); 0 where there is none.
    /// `Names::frames` gives its frames, innermost first.
    pub stack: StackId,
}
