//! Autograd's graphs: what is kept by the graph of a tensor that Python holds.
//!
//! Nodes are walked by their edges, and their memory is searched for what they saved: a word that points to a tensor of C++
//! (by its vtable) is a saved tensor, whatever the node's class and wherever it keeps it. Nothing is unpacked, no hook runs, no
//! object of Python's is made. A graph cannot change or go while Python holds the tensor at its top and we hold the GIL.

use super::Budget;
use super::memory::{self, is_address, words};
use super::tensors::{Nodes, Torch};
use std::collections::{HashMap, HashSet};

/// Words of a node that are looked at, beside the one before it.
const WORDS: usize = 320;
/// Words that every node begins with, before anything is saved: up to its edges.
const BASE: usize = 12;
/// Most words of a list of saved tensors.
const LIST: usize = 4096;
/// Nodes that are looked at between two looks at the clock.
const SOME: usize = 16;
/// Most nodes that are walked.
pub(super) const NODES: usize = 50_000;

/// What a graph keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    /// The tensor at its top, an object of Python's.
    pub(super) by: u64,
    /// A block's address, or an autograd function that is an object of Python's.
    pub(super) what: u64,
}

/// A walk over graphs, slice by slice. Between slices a node may go: what stands at its address is then no node by its vtable, or
/// one that keeps something else, and what was named because of it does not stand the verification.
pub(super) struct Walk {
    wanted: HashSet<u64>,
    seen: HashSet<u64>,
    /// Nodes to be looked at, each with the tensor at the top of its graph.
    wave: Vec<(u64, u64)>,
    /// Tensors by the node that made them; and which of them stand in the graph of another, and whose that is.
    tops: HashMap<u64, u64>,
    below: HashMap<u64, u64>,
    /// Nodes that were looked at.
    looked: usize,
    /// What was found.
    pub(super) found: Vec<Kept>,
}

impl Walk {
    /// Begins at tensors (object, node that made it).
    pub(super) fn new(tops: Vec<(u64, u64)>, wanted: HashSet<u64>) -> Walk {
        let seen = tops.iter().map(|t| t.1).collect();
        let by_node = tops.iter().map(|t| (t.1, t.0)).collect();
        Walk { wanted, seen, wave: tops, tops: by_node, below: HashMap::new(), looked: 0, found: Vec::new() }
    }

    /// The tensor whose graph this one is the innermost part of: an object of Python's may outlive every reference that Python
    /// has to it, as long as a graph keeps the tensor.
    pub(super) fn top(&self, tensor: u64) -> u64 {
        let mut top = tensor;
        for _ in 0..NODES {
            match self.below.get(&top) {
                Some(&above) => top = above,
                None => break,
            }
        }
        top
    }

    /// Goes on for a slice; whether it is at its end.
    pub(super) fn go_on(&mut self, torch: &Torch, budget: &Budget) -> bool {
        let mut nodes = Nodes::default();
        // The nearest to the tops come first, so that a node is its nearest tensor's.
        while !self.wave.is_empty() && self.looked < NODES {
            if budget.is_over() {
                return false;
            }
            let some: Vec<(u64, u64)> = self.wave.drain(..self.wave.len().min(SOME)).collect();
            self.looked += some.len();
            self.look(torch, &mut nodes, &some);
        }
        true
    }

    fn look(&mut self, torch: &Torch, nodes: &mut Nodes, some: &[(u64, u64)]) {
        let mut saved: Vec<(u64, u64)> = Vec::new();
        for (&(by, node), words) in some.iter().zip(read(some)) {
            if !words.first().is_some_and(|vtable| nodes.is_node(torch, *vtable)) {
                continue;
            }
            let own = |what: &u64| self.wanted.contains(what).then_some(Kept { by, what: *what });
            self.found.extend(words.iter().filter_map(own));
            let edges = list(&words, BASE, 3).unwrap_or_default();
            let functions: Vec<u64> = edges.chunks(3).filter_map(|e| e.first().copied()).collect();
            for inner in functions.iter().filter_map(|f| self.tops.get(f)).filter(|t| **t != by) {
                self.below.entry(*inner).or_insert(by);
            }
            let seen = &mut self.seen;
            let new = functions.into_iter().filter(|f| is_address(*f) && *f != node && seen.insert(*f));
            self.wave.extend(new.map(|f| (by, f)));
            let rest = words.get(BASE + 3..).unwrap_or_default();
            saved.extend(rest.iter().filter(|w| is_address(**w)).map(|w| (by, *w)));
            for i in BASE + 3..words.len() {
                let all = list(&words, i, 1).unwrap_or_default();
                saved.extend(all.into_iter().filter(|w| is_address(*w)).map(|w| (by, w)));
            }
        }
        blocks(torch, &saved, &self.wanted, &mut self.found);
    }
}

/// Blocks of `wanted` that these words are tensors in, or whose gradients.
fn blocks(torch: &Torch, words: &[(u64, u64)], wanted: &HashSet<u64>, found: &mut Vec<Kept>) {
    let mut by: HashMap<u64, u64> = HashMap::new();
    words.iter().for_each(|(top, word)| {
        by.entry(*word).or_insert(*top);
    });
    let all: Vec<u64> = by.keys().copied().collect();
    let tensors = torch.implementations(&all);
    let gradients: Vec<u64> = torch.autograd(&tensors).into_iter().map(|a| a.grad).collect();
    let gradients = torch.implementations(&gradients);
    for ((word, tensor), gradient) in all.iter().zip(&tensors).zip(&gradients) {
        for data in [tensor.data, gradient.data] {
            if let Some(&by) = by.get(word).filter(|_| wanted.contains(&data)) {
                found.push(Kept { by, what: data });
            }
        }
    }
}

/// The words of nodes: as many as the heap says that each has, where that makes sense.
fn read(nodes: &[(u64, u64)]) -> Vec<Vec<u64>> {
    const USUAL: usize = 224;
    let places: Vec<u64> = nodes.iter().map(|n| n.1.wrapping_sub(8)).collect();
    let whole = words::<{ WORDS + 1 }>(&places);
    whole
        .into_iter()
        .zip(&places)
        .map(|(w, place)| {
            let w = w.map_or_else(|| memory::range(*place, WORDS + 1), |w| w.to_vec());
            // The word before a block of the heap is its size and three flags.
            let size = w.first().map_or(0, |s| (s & !7) as usize / 8);
            let count = if (BASE + 3..=WORDS).contains(&size) { size - 1 } else { USUAL };
            w.get(1..).unwrap_or_default().iter().copied().take(count).collect()
        })
        .collect()
}

/// The words of a `std::vector` whose three pointers begin at word `at`, where it is one of elements of `width` words.
fn list(words: &[u64], at: usize, width: usize) -> Option<Vec<u64>> {
    let &[begin, end, most] = words.get(at..at + 3)? else { return None };
    let fits = is_address(begin) && begin < end && end <= most && end.is_multiple_of(8);
    let count = if fits { (end - begin) as usize / 8 } else { return None };
    let whole = count.is_multiple_of(width) && (most - begin) as usize / 8 <= LIST;
    whole.then(|| memory::range(begin, count))
}
