//! How the source of a job has the places that call backward: told to a replay before it comes to the second of two places.

use crate::kept::{Parsed, Texts};
use serde_json::{Value, json};
use std::collections::HashMap;
use strandline::event::steps::InPass;
use strandline::event::{Body, Event, Frame, Item, Names, StackId};
use strandline::reader::Summary;
use strandline::replay::PASSES;

/// Most places that are compared.
const MOST: usize = 32;

/// The places that have called backward, and the sources that they are in.
#[derive(Default)]
pub(super) struct Passes {
    places: Vec<StackId>,
    /// Those of which it was looked up in how many loops they are.
    looked_up: usize,
    optimizer: Option<u64>,
    has_several: bool,
    sources: HashMap<String, Option<Parsed>>,
}

impl Passes {
    /// What is to be told before these events.
    pub(super) fn before(&mut self, events: &[Event], names: &Names, of: &Summary) -> Option<Item> {
        let mut told: Vec<Value> = Vec::new();
        for e in events {
            match e.body {
                Body::OptimizerBegin(id) => self.has_several |= *self.optimizer.get_or_insert(id) != id,
                Body::BackwardBegin { nested: false, stack } if self.is_new(stack) => {
                    told.extend(self.beside_others(stack, names, of));
                    self.places.push(stack);
                }
                _ => {}
            }
        }
        // One optimizer takes no turns.
        while self.has_several && self.looked_up < self.places.len() {
            let place = self.places[self.looked_up];
            self.looked_up += 1;
            let frames: Vec<&Frame> = names.frames(place).collect();
            if self.loops(&frames, of) == Some(1) {
                told.push(json!([place.0, place.0, InPass::Either.name()]));
            }
        }
        (!told.is_empty()).then(|| Item::Meta(json!({ PASSES: told })))
    }

    fn is_new(&self, place: StackId) -> bool {
        place != StackId::default() && self.places.len() < MOST && !self.places.contains(&place)
    }

    /// How a pass comes to a place and those before it.
    fn beside_others(&mut self, place: StackId, names: &Names, of: &Summary) -> Vec<Value> {
        let mut told = Vec::new();
        for other in self.places.clone() {
            let [first, second] = [other, place].map(|s| names.frames(s).collect::<Vec<_>>());
            if let Some((how, is_second)) = self.in_pass(&first, &second, of) {
                let [a, b] = if is_second { [place, other] } else { [other, place] };
                told.push(json!([a.0, b.0, how.name()]));
            }
        }
        told
    }

    /// How a pass comes to the lines at which two stacks part, if no function that they call repeats what it does.
    fn in_pass(&mut self, first: &[&Frame], second: &[&Frame], of: &Summary) -> Option<(InPass, bool)> {
        if first == second {
            // Two calls in one line.
            let mut chooses = |f: &Frame| self.source(&f.file, of).is_some_and(|s| s.chooses(f.line));
            return first.iter().any(|f| !is_backward(f) && chooses(f)).then_some((InPass::Either, false));
        }
        let common = first.iter().rev().zip(second.iter().rev()).take_while(|(a, b)| a == b).count();
        let below = |stack: &[&Frame]| stack.len().checked_sub(common + 1);
        let (i, j) = (below(first)?, below(second)?);
        let (a, b) = (first[i], second[j]);
        if (&a.file, &a.function) != (&b.file, &b.function) {
            return None;
        }
        let told = self.source(&a.file, of)?.in_pass(&a.function, [a.line, b.line])?;
        let mut once = |frames: &[&Frame]| self.loops(frames, of) == Some(0);
        (told.0 == InPass::Either || once(&first[..i]) && once(&second[..j])).then_some(told)
    }

    /// How many loops that step these frames are in, the innermost first; `None` where that cannot be told.
    fn loops(&mut self, frames: &[&Frame], of: &Summary) -> Option<usize> {
        let own = frames.iter().skip(frames.iter().rposition(|f| is_backward(f)).map_or(0, |n| n + 1));
        let (mut loops, mut is_stepping) = (0, false);
        for f in own.filter(|f| !f.file.starts_with("<frozen ")) {
            loops += self.source(&f.file, of)?.loops(&f.function, f.line, &mut is_stepping)?;
        }
        Some(loops)
    }

    fn source(&mut self, file: &str, of: &Summary) -> Option<&Parsed> {
        if !self.sources.contains_key(file) {
            let text = Texts::of_facts(&of.facts, of.unix_ns).and_then(|t| t.unchanged(file).ok());
            self.sources.insert(file.to_owned(), text.and_then(Parsed::of));
        }
        self.sources.get(file)?.as_ref()
    }
}

/// Whether a frame is PyTorch's own `backward`.
fn is_backward(f: &Frame) -> bool {
    ["torch/_tensor.py", "torch/autograd/__init__.py"].iter().any(|file| f.file.ends_with(file))
}
