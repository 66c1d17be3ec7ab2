//! What a recording says about its process, as it is written, found without reading its events.

use super::pages::{Next, Pages};
use super::source::{Source, fill};
use super::state::Reader;
use crate::format::page::{FRAME, Frame, Tag};
use serde_json::Value;

/// Follows the facts of a recording: a look at each page's frame, and at nothing else but the pages of facts.
pub struct FactsFollower {
    source: Box<dyn Source>,
    at: u64,
    frame: Vec<u8>,
}

impl FactsFollower {
    /// Follows the file that a reader, which has not been used yet, was opened on.
    pub fn from_reader(reader: Reader) -> FactsFollower {
        FactsFollower {
            at: reader.pages.as_ref().map_or(0, Pages::at),
            source: reader.source,
            frame: Vec::new(),
        }
    }

    /// What has been said since: JSON objects in order. A page that is not whole yet is looked at again the next time.
    pub fn poll(&mut self) -> Vec<Value> {
        let mut said = Vec::new();
        let s = &*self.source;
        while fill(s, self.at, FRAME, &mut self.frame).is_ok_and(|n| n == FRAME) {
            let Some(frame) = Frame::decode(&self.frame) else { break };
            let after = self.at.saturating_add(FRAME as u64).saturating_add(frame.length);
            if s.len().is_ok_and(|len| len < after) {
                break;
            }
            if frame.tag == Tag::Meta as u16 {
                let mut page = Pages::new(self.at);
                if let Ok(Next::Page { payload, .. }) = page.next(s) {
                    said.extend(serde_json::from_slice(payload).ok());
                }
            }
            self.at = after;
        }
        said
    }
}
