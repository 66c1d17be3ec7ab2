//! Autograd's graphs: what is kept by the graph of a tensor that Python holds.
//!
//! First all nodes are walked by their edges, then what each keeps is looked for (`node.rs`). Nothing is unpacked, no hook runs, no
//! object of Python's is made. The GIL does not keep a graph as it is: between slices, and while torch runs without the GIL, it may
//! change or go. What was found is a lead; [`Walk::proves`] goes the whole way again, before it is told.

use super::budget::Budget;
use super::node::{self, Keeps, Node, Saved};
use super::objects::{Class, Map};
use super::tensors::{Autograd, Nodes};
use super::types::Types;
use super::world::World;
use crate::platform::pages::Pages;
use std::collections::HashSet;

/// Nodes that are copied at once.
const SOME: usize = 64;
/// Most nodes that are walked.
pub(super) const NODES: usize = 50_000;
/// Longest way down a graph that is proved.
const LONGEST: usize = 20_000;
/// Most ways that are found to the same thing, and in all.
const WAYS: u32 = 8;
const FOUND: usize = 4_096;
/// Objects of Python's that are noted, wanted or not.
const OBJECTS: usize = 16_384;

/// What a graph keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kept {
    /// The tensor at its top, an object of Python's.
    pub(super) by: u64,
    /// A block's address, or an object of Python's.
    pub(super) what: u64,
    /// The node that keeps it.
    node: u64,
}

/// A walk over graphs, slice by slice.
#[derive(Default)]
pub(super) struct Walk {
    wanted: HashSet<u64>,
    /// Every node that was met, with the one whose edge leads to it; 0: a tensor of Python's does.
    from: Map<u64>,
    /// The nodes, each with the tensor at the top of its graph, the nearest to the tops first; how many of them were asked for
    /// their edges, and how many for what they keep.
    nodes: Vec<(u64, u64)>,
    walked: usize,
    searched: usize,
    /// Nodes that are met, but not walked on from.
    ends: HashSet<u64>,
    /// Tensors by the node that made them; and which of them stand in the graph of another: whose that is, and below which node.
    tops: Map<u64>,
    below: Map<(u64, u64)>,
    /// The outermost of those, where it was looked for.
    outermost: Map<u64>,
    /// Where members begin in a node, once learned; two answers are none.
    members: Option<usize>,
    is_contradicted: bool,
    /// Objects of Python's that nodes keep, wanted or not, and how often each was met.
    objects: Vec<Kept>,
    times: Map<u32>,
    asked: usize,
    /// What was found, and how often each.
    pub(super) found: Vec<Kept>,
    known: HashSet<Kept>,
    ways: Map<u32>,
    /// Autograd refuses to go back through a node that was met: what it saved was changed in place since.
    pub(super) is_outdated: bool,
}

impl Walk {
    /// Begins at tensors (object, node that made it).
    pub(super) fn new(tops: Vec<(u64, u64)>, wanted: HashSet<u64>) -> Walk {
        Walk {
            wanted,
            from: tops.iter().map(|t| (t.1, 0)).collect(),
            tops: tops.iter().map(|t| (t.1, t.0)).collect(),
            nodes: tops,
            ..Walk::default()
        }
    }

    /// The same, which ends at these nodes: others walk on from there.
    pub(super) fn ending_at(self, ends: HashSet<u64>) -> Walk {
        Walk { ends, ..self }
    }

    /// Whether edges were seen to lead to a node, or it is a tensor's own.
    pub(super) fn reaches(&self, node: u64) -> bool {
        self.from.contains_key(&node)
    }

    /// The tensor whose graph this one is the innermost part of: an object of Python's may outlive every reference that Python
    /// has to it, as long as a graph keeps the tensor.
    pub(super) fn top(&self, tensor: u64) -> u64 {
        self.outermost.get(&tensor).copied().unwrap_or(tensor)
    }

    /// Looks for the tensor that [`Walk::top`] is to tell; each way is gone once for all that stand on it.
    pub(super) fn settle_top(&mut self, tensor: u64) {
        let (mut way, mut top) = (Vec::new(), tensor);
        while way.len() < NODES {
            match (self.outermost.get(&top), self.below.get(&top)) {
                (Some(&known), _) => {
                    top = known;
                    break;
                }
                (None, Some(&(above, _))) => {
                    way.push(top);
                    top = above;
                }
                (None, None) => break,
            }
        }
        self.outermost.extend(way.into_iter().map(|t| (t, top)));
    }

    /// Goes on for a slice, with the GIL held; whether it is at its end. `pages`: memory as of this slice.
    pub(super) fn go_on(&mut self, w: &World, pages: &Pages, budget: &Budget) -> bool {
        let mut known = Nodes::default();
        while self.walked < self.nodes.len() && self.walked < NODES {
            if budget.is_over() {
                return false;
            }
            self.walk(w, pages, &mut known, budget);
        }
        let Some(members) = self.members.filter(|_| !self.is_contradicted) else { return true };
        while self.searched < self.walked {
            if budget.is_over() {
                return false;
            }
            self.search(w, pages, &mut known, members);
        }
        true
    }

    /// Some nodes as they are now, each with the tensor at the top of its graph.
    fn some(
        &self,
        w: &World,
        pages: &Pages,
        known: &mut Nodes,
        (from, end): (usize, usize),
    ) -> Vec<(u64, Option<Node>)> {
        let some = self.nodes.get(from..end.min(from + SOME)).unwrap_or_default();
        let at: Vec<u64> = some.iter().map(|n| n.1).collect();
        some.iter().map(|n| n.0).zip(node::nodes(&w.torch, pages, known, &at)).collect()
    }

    /// Follows the edges of some nodes.
    fn walk(&mut self, w: &World, pages: &Pages, known: &mut Nodes, budget: &Budget) {
        let some = self.some(w, pages, known, (self.walked, self.nodes.len()));
        let edges =
            node::edges(&w.torch, pages, &some.iter().map(|(_, node)| node.as_ref()).collect::<Vec<_>>());
        for ((by, node), edges) in some.into_iter().zip(edges) {
            if budget.is_over() {
                break;
            }
            self.walked += 1;
            let Some(node) = node else { continue };
            // A leaf's node and those of functions in Python tell where members begin.
            if self.members.is_none() || edges.is_empty() {
                let told = node.members(w, pages);
                self.is_contradicted |= told.is_some() && self.members.is_some() && told != self.members;
                self.members = self.members.or(told);
            }
            for (inner, _) in edges.into_iter().filter(|e| e.0 != node.at) {
                if let Some(tensor) = self.tops.get(&inner).filter(|t| **t != by) {
                    self.below.entry(*tensor).or_insert((by, node.at));
                }
                if let std::collections::hash_map::Entry::Vacant(new) = self.from.entry(inner) {
                    new.insert(node.at);
                    if !self.ends.contains(&inner) {
                        self.nodes.push((by, inner));
                    }
                }
            }
        }
    }

    /// Looks at what some nodes keep.
    fn search(&mut self, w: &World, pages: &Pages, known: &mut Nodes, members: usize) {
        let some = self.some(w, pages, known, (self.searched, self.walked));
        self.searched += some.len();
        let some: Vec<(u64, Node)> = some.into_iter().filter_map(|(by, node)| Some((by, node?))).collect();
        let nodes: Vec<&Node> = some.iter().map(|(_, node)| node).collect();
        let keeps = node::keeps(w, pages, known, &nodes, members);
        if !self.is_outdated {
            let of = |(node, kept): (&&Node, &Keeps)| vec![node.at; kept.saved.len()];
            let at: Vec<u64> = nodes.iter().zip(&keeps).flat_map(of).collect();
            let saved: Vec<Saved> = keeps.iter().flat_map(|kept| &kept.saved).copied().collect();
            let mut lead = node::changed(w, pages, &saved).into_iter().filter_map(|i| at.get(i));
            self.is_outdated = lead.any(|at| node::is_outdated(w, *at, members));
        }
        for ((by, node), kept) in some.iter().zip(&keeps) {
            for &what in &kept.objects {
                let times = self.times.entry(what).or_default();
                *times += 1;
                if *times <= WAYS && self.objects.len() < OBJECTS {
                    self.objects.push(Kept { by: *by, what, node: node.at });
                }
            }
        }
        for ((by, node), kept) in some.iter().zip(blocks(w, pages, keeps)) {
            for what in kept.into_iter().filter(|what| self.wanted.contains(what)).collect::<Vec<u64>>() {
                self.find(Kept { by: *by, what, node: node.at });
            }
        }
    }

    /// Notes what is kept and was wanted; whether that is new.
    pub(super) fn find(&mut self, kept: Kept) -> bool {
        let ways = self.ways.entry(kept.what).or_default();
        let is_new = *ways < WAYS && self.found.len() < FOUND && self.known.insert(kept);
        if is_new {
            *ways += 1;
            self.found.push(kept);
        }
        is_new
    }

    /// Objects of Python's that were seen to be kept.
    pub(super) fn objects(&self) -> Vec<u64> {
        let mut known = HashSet::new();
        self.objects.iter().map(|kept| kept.what).filter(|what| known.insert(*what)).collect()
    }

    /// The same, with what keeps them.
    pub(super) fn kept_objects(&self) -> Vec<Kept> {
        self.objects.clone()
    }

    /// Whether some were seen since it was last made to go further.
    pub(super) fn has_new_objects(&self) -> bool {
        self.objects.len() > self.asked
    }

    /// Wants more, and goes on to the graphs of more tensors.
    pub(super) fn go_further(&mut self, tops: Vec<(u64, u64)>, wanted: HashSet<u64>) {
        let seen = self.objects.iter().filter(|kept| wanted.contains(&kept.what));
        for kept in seen.copied().collect::<Vec<Kept>>() {
            self.find(kept);
        }
        (self.wanted, self.asked) = (wanted, self.objects.len());
        for (tensor, node) in tops {
            if let std::collections::hash_map::Entry::Vacant(new) = self.from.entry(node) {
                new.insert(0);
                self.tops.insert(node, tensor);
                self.nodes.push((tensor, node));
            }
        }
    }

    /// Whether the graph of `top` still keeps what was found: every step of the way is looked at again, at once. `None`: there
    /// was no time.
    ///
    /// # Safety
    /// `top` is an object that is alive, a tensor or a node; with the GIL held.
    pub(super) unsafe fn proves(
        &self,
        w: &World,
        types: &mut Types<'_>,
        top: u64,
        what: &Kept,
        budget: &Budget,
    ) -> Option<bool> {
        let (Some(chain), Some(members)) = (self.chain(top, what), self.members) else { return Some(false) };
        let pages = Pages::default();
        // SAFETY: the caller's promise.
        let (made, gradient) = unsafe {
            if types.of(top).class == Class::Node {
                (Some(w.torch.node_of(top)), None)
            } else {
                let own = w.torch.autograd(&pages, &w.torch.of_python(&[top]));
                let gradient = w.torch.autograd(&pages, &w.torch.gradients(&pages, &own));
                let made = |all: &[Autograd]| all.first().map(|m| (m.node, m.control));
                (made(&own), made(&gradient).filter(|m| m.0 != 0))
            }
        };
        let (mut known, mut before) = (Nodes::default(), None::<Node>);
        for some in chain.chunks(SOME) {
            if budget.is_far_over() {
                return None;
            }
            for node in node::nodes(&w.torch, &pages, &mut known, some) {
                let Some(node) = node else { return Some(false) };
                let leads = match &before {
                    Some(b) => b.edges(&w.torch, &pages).contains(&(node.at, node.control)),
                    None => {
                        let first = (node.at, node.control);
                        let is_gradients = |above| node::is_near(&w.torch, &pages, &mut known, above, first);
                        made == Some(first) || gradient.is_some_and(is_gradients)
                    }
                };
                if !leads {
                    return Some(false);
                }
                before = Some(node);
            }
        }
        let kept =
            before.map(|node| blocks(w, &pages, node::keeps(w, &pages, &mut known, &[&node], members)));
        Some(kept.is_some_and(|kept| kept.iter().flatten().any(|k| *k == what.what)))
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

/// The same of what nodes keep as blocks of tensors and of their gradients, and objects of Python's.
fn blocks(w: &World, pages: &Pages, keeps: Vec<Keeps>) -> Vec<Vec<u64>> {
    let tensors: Vec<u64> = keeps.iter().flat_map(|kept| &kept.saved).map(|s| s.tensor).collect();
    let mut blocks = w.torch.blocks(pages, &w.torch.implementations(pages, &tensors)).into_iter();
    let of = |Keeps { saved, objects }: Keeps| {
        let mine = blocks.by_ref().take(saved.len()).flatten().flatten().filter(|d| *d != 0);
        mine.chain(objects).collect()
    };
    keeps.into_iter().map(of).collect()
}
