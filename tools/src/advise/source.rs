//! Lines of Python as they lie on this machine, where they have not changed since the job ran.

use crate::analyze::Judged;
use crate::kept::{is_of_this_machine, unchanged};
use std::cell::RefCell;
use std::collections::HashMap;
use strandline::event::Frame;
use strandline::report::Facts;

/// The sources of a job, each read once.
pub(super) struct Sources<'a> {
    cwd: Option<&'a str>,
    began: u64,
    /// It ran here.
    is_here: bool,
    texts: RefCell<HashMap<String, Option<String>>>,
}

impl<'a> Sources<'a> {
    /// Those of a judged recording.
    pub(super) fn of(judged: &'a Judged) -> Sources<'a> {
        Sources {
            cwd: Facts::of(&judged.replay).text("cwd"),
            began: judged.epoch_ns(),
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
            .or_insert_with(|| unchanged(&frame.file, self.cwd, self.began))
            .as_ref()?;
        text.lines().nth(frame.line.checked_sub(1)? as usize).map(str::to_owned)
    }
}
