//! Autograd's graphs: what is kept by the graph of a tensor that Python holds.
//!
//! First all nodes are walked by their edges, then what each keeps is looked for (`node.rs`). Nothing is unpacked, no hook runs, no
//! object of Python's is made. The GIL does not keep a graph as it is: between slices, and while torch runs without the GIL, it may
//! change or go. What was found is a lead; [`Walk::proves`] goes the whole way again, before it is told.

use super::node::{self, Node};
use super::tensors::{Nodes, Torch};
use super::{Budget, World};
use std::collections::{HashMap, HashSet};

/// Nodes that are looked at between two looks at the clock.
const SOME: usize = 16;
/// Most nodes that are walked.
pub(super) const NODES: usize = 50_000;
/// Longest way down a graph that is proved.
const LONGEST: usize = 20_000;
/// Most ways that are found to the same thing.
const WAYS: u32 = 8;

/// What a graph keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    /// The tensor at its top, an object of Python's.
    pub(super) by: u64,
    /// A block's address, or an autograd function that is an object of Python's.
    pub(super) what: u64,
    /// The node that keeps it.
    node: u64,
}

/// A walk over graphs, slice by slice.
pub(super) struct Walk {
    wanted: HashSet<u64>,
    /// Every node that was met, with the one whose edge leads to it; 0: a tensor of Python's does.
    from: HashMap<u64, u64>,
    /// The nodes, each with the tensor at the top of its graph, the nearest to the tops first; how many of them were asked for
    /// their edges, and how many for what they keep.
    nodes: Vec<(u64, u64)>,
    walked: usize,
    searched: usize,
    /// Tensors by the node that made them; and which of them stand in the graph of another: whose that is, and below which node.
    tops: HashMap<u64, u64>,
    below: HashMap<u64, (u64, u64)>,
    /// Where members begin in a node, once learned; two answers are none.
    members: Option<usize>,
    is_contradicted: bool,
    /// What was found, and how often each.
    pub(super) found: Vec<Kept>,
    ways: HashMap<u64, u32>,
}

impl Walk {
    /// Begins at tensors (object, node that made it).
    pub(super) fn new(tops: Vec<(u64, u64)>, wanted: HashSet<u64>) -> Walk {
        Walk {
            wanted,
            from: tops.iter().map(|t| (t.1, 0)).collect(),
            tops: tops.iter().map(|t| (t.1, t.0)).collect(),
            nodes: tops,
            walked: 0,
            searched: 0,
            below: HashMap::new(),
            members: None,
            is_contradicted: false,
            found: Vec::new(),
            ways: HashMap::new(),
        }
    }

    /// The tensor whose graph this one is the innermost part of: an object of Python's may outlive every reference that Python
    /// has to it, as long as a graph keeps the tensor.
    pub(super) fn top(&self, tensor: u64) -> u64 {
        let mut top = tensor;
        for _ in 0..NODES {
            match self.below.get(&top) {
                Some(&(above, _)) => top = above,
                None => break,
            }
        }
        top
    }

    /// Goes on for a slice, with the GIL held; whether it is at its end.
    pub(super) fn go_on(&mut self, w: &World, budget: &Budget) -> bool {
        let mut known = Nodes::default();
        while self.walked < self.nodes.len() && self.walked < NODES {
            if budget.is_over() {
                return false;
            }
            self.walk(w, &mut known);
        }
        let Some(members) = self.members.filter(|_| !self.is_contradicted) else { return true };
        while self.searched < self.walked {
            if budget.is_over() {
                return false;
            }
            self.search(w, &mut known, members);
        }
        true
    }

    /// Follows the edges of some nodes.
    fn walk(&mut self, w: &World, known: &mut Nodes) {
        let to = self.nodes.len().min(self.walked + SOME);
        let some = self.nodes.get(self.walked..to).unwrap_or_default().to_vec();
        self.walked = to;
        let at: Vec<u64> = some.iter().map(|n| n.1).collect();
        for ((by, _), node) in some.iter().zip(node::nodes(&w.torch, known, &at)) {
            let Some(node) = node else { continue };
            let edges = node.edges();
            // A leaf's node and those of functions in Python tell where members begin.
            if self.members.is_none() || edges.is_empty() {
                let told = node.members(w);
                self.is_contradicted |= told.is_some() && self.members.is_some() && told != self.members;
                self.members = self.members.or(told);
            }
            for (inner, _) in edges.into_iter().filter(|e| e.0 != node.at) {
                if let Some(tensor) = self.tops.get(&inner).filter(|t| *t != by) {
                    self.below.entry(*tensor).or_insert((*by, node.at));
                }
                if let std::collections::hash_map::Entry::Vacant(new) = self.from.entry(inner) {
                    new.insert(node.at);
                    self.nodes.push((*by, inner));
                }
            }
        }
    }

    /// Looks at what some nodes keep.
    fn search(&mut self, w: &World, known: &mut Nodes, members: usize) {
        let to = self.walked.min(self.searched + SOME);
        let some = self.nodes.get(self.searched..to).unwrap_or_default().to_vec();
        self.searched = to;
        let at: Vec<u64> = some.iter().map(|n| n.1).collect();
        for ((by, _), node) in some.iter().zip(node::nodes(&w.torch, known, &at)) {
            let Some(node) = node else { continue };
            for what in kept(w, &node, members) {
                if !self.wanted.contains(&what) {
                    continue;
                }
                let ways = self.ways.entry(what).or_default();
                let kept = Kept { by: *by, what, node: node.at };
                if *ways < WAYS && !self.found.contains(&kept) {
                    *ways += 1;
                    self.found.push(kept);
                }
            }
        }
    }

    /// Whether the graph of the tensor `top` still keeps what was found: every step of the way is looked at again, at once.
    ///
    /// # Safety
    /// `top` is an object that is alive, a tensor; with the GIL held.
    pub(super) unsafe fn proves(&self, w: &World, top: u64, what: &Kept) -> bool {
        let (Some(chain), Some(members)) = (self.chain(top, what), self.members) else { return false };
        let Some(nodes) =
            node::nodes(&w.torch, &mut Nodes::default(), &chain).into_iter().collect::<Option<Vec<Node>>>()
        else {
            return false;
        };
        // SAFETY: the caller's promise.
        let made = w.torch.autograd(&unsafe { w.torch.of_python(&[top]) });
        let first = nodes.first().zip(made.first());
        let begins = first.is_some_and(|(n, made)| (made.node, made.control) == (n.at, n.control));
        let leads = |pair: &[Node]| matches!(pair, [a, b] if a.edges().contains(&(b.at, b.control)));
        let keeps = |node: &Node| kept(w, node, members).contains(&what.what);
        begins && nodes.windows(2).all(leads) && nodes.last().is_some_and(keeps)
    }

    /// The nodes from the one that made `top` to the one that keeps something.
    fn chain(&self, top: u64, what: &Kept) -> Option<Vec<u64>> {
        let (mut nodes, mut tensor, mut node) = (vec![what.node], what.by, what.node);
        loop {
            while let Some(&from) = self.from.get(&node).filter(|f| **f != 0) {
                nodes.push(from);
                node = from;
                (nodes.len() < LONGEST).then_some(())?;
            }
            if tensor == top {
                break;
            }
            (tensor, node) = *self.below.get(&tensor)?;
            nodes.push(node);
            (nodes.len() < LONGEST).then_some(())?;
        }
        nodes.reverse();
        Some(nodes)
    }
}

/// What a node keeps: blocks of tensors and of their gradients, and an object of Python's.
fn kept(w: &World, node: &Node, members: usize) -> Vec<u64> {
    let (tensors, python) = node.keeps(w, members);
    let mut all = blocks(&w.torch, &tensors);
    all.extend(python);
    all
}

/// The blocks that these tensors and their gradients are in.
fn blocks(torch: &Torch, tensors: &[u64]) -> Vec<u64> {
    let tensors = torch.implementations(tensors);
    let gradients: Vec<u64> = torch.autograd(&tensors).into_iter().map(|a| a.grad).collect();
    let gradients = torch.implementations(&gradients);
    tensors.iter().chain(&gradients).map(|t| t.data).filter(|d| *d != 0).collect()
}
