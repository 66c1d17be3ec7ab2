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
    sources: HashMap<String, Option<Parsed>>,
}

impl Passes {
    /// What is to be told before these events.
    pub(super) fn before(&mut self, events: &[Event], names: &Names, of: &Summary) -> Option<Item> {
        let mut told: Vec<Value> = Vec::new();
        for e in events {
            let Body::BackwardBegin { nested: false, stack } = e.body else { continue };
            if stack == StackId::default() || self.places.len() == MOST || self.places.contains(&stack) {
                continue;
            }
            for other in self.places.clone() {
                let [first, second] = [other, stack].map(|s| names.frames(s).collect::<Vec<_>>());
                if let Some((how, is_second)) = self.in_pass(&first, &second, of) {
                    let [a, b] = if is_second { [stack, other] } else { [other, stack] };
                    told.push(json!([a.0, b.0, how.name()]));
                }
            }
            self.places.push(stack);
        }
        (!told.is_empty()).then(|| Item::Meta(json!({ PASSES: told })))
    }

    /// How a pass comes to the lines at which two stacks part, if no function that they call repeats what it does.
    fn in_pass(&mut self, first: &[&Frame], second: &[&Frame], of: &Summary) -> Option<(InPass, bool)> {
        let common = first.iter().rev().zip(second.iter().rev()).take_while(|(a, b)| a == b).count();
        let below = |stack: &[&Frame]| stack.len().checked_sub(common + 1);
        let (i, j) = (below(first)?, below(second)?);
        let (a, b) = (first[i], second[j]);
        if (&a.file, &a.function) != (&b.file, &b.function) {
            return None;
        }
        let told = self.source(&a.file, of)?.in_pass(&a.function, [a.line, b.line])?;
        let mut once = |frames: &[&Frame]| {
            let own = frames.iter().skip(frames.iter().rposition(|f| is_backward(f)).map_or(0, |n| n + 1));
            let mut is_stepping = false;
            own.into_iter().all(|f| {
                let source = self.source(&f.file, of);
                source.and_then(|s| s.repeats_steps(&f.function, f.line, &mut is_stepping)) == Some(false)
            })
        };
        (told.0 == InPass::Either || once(&first[..i]) && once(&second[..j])).then_some(told)
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
