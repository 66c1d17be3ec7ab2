//! Lines of Python as they lie on this machine, where they have not changed since the job ran.

use crate::analyze::Judged;
use crate::kept::{Texts, is_of_this_machine};
use std::cell::RefCell;
use std::collections::HashMap;
use strandline::event::Frame;

/// The sources of a job, each read once.
pub(super) struct Sources<'a> {
    files: Texts<'a>,
    /// It ran here.
    is_here: bool,
    texts: RefCell<HashMap<String, Option<String>>>,
}

impl<'a> Sources<'a> {
    /// Those of a judged recording.
    pub(super) fn of(judged: &'a Judged) -> Sources<'a> {
        Sources {
            files: Texts::of(&judged.replay, judged.epoch_ns()),
            is_here: is_of_this_machine(&judged.replay),
            texts: RefCell::new(HashMap::new()),
        }
    }

    /// A line's text.
    pub(super) fn line(&self, frame: &Frame) -> Option<String> {
        if !self.is_here || frame.file.is_empty() {
            return None;
        }
        let mut texts = self.texts.borrow_mut();
        let text = texts
            .entry(frame.file.clone())
            .or_insert_with(|| self.files.unchanged(&frame.file).ok())
            .as_ref()?;
        text.lines().nth(frame.line.checked_sub(1)? as usize).map(str::to_owned)
    }
}
