//! One node of an autograd graph, and what it keeps: nothing is believed that is not proved.
//!
//! A word that looks like an address proves nothing: memory behind a node's last member, room for what is not there, and members
//! that were never written hold what earlier owners left. So a node is one whose class descends from `Node`, that
//! knows itself (up to 2.12; later ones count themselves), and whose references are counted; it ends where the heap says; its members begin behind `Node`, whose size is learned
//! from members that point back; and only these are believed: a `SavedVariable` or a vector of those, by all of their
//! fields, and the leaf or the Python object of a node that they in turn name. Layouts as in torch 2.4 to 2.15.

use super::tensors::{Counted, Nodes, Torch};
use super::world::World;
use super::{functions, heap};
use crate::platform::memory::is_address;
use crate::platform::pages::Pages;

/// Words of a node that are looked at.
const WORDS: usize = 320;
/// Words that every node begins with: its vtable, itself and what counts its references (or their count), at the end of these its edges and the
/// object of Python's that stands for it.
const HEAD: usize = 16;
const OBJECT: usize = 14;
/// Where the members of a class begin, at the earliest.
const MEMBERS: usize = 32;
/// Words between a node's last member and the end of its block, at most.
const SLACK: usize = 4;
/// Most words of a list of `SavedVariable`s or of edges.
const LIST: usize = 4096;
/// What counts references to an object that lies in the same block is so much before it.
const COUNTS: u64 = 16;

/// A tensor that a node keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Saved {
    /// Of C++.
    pub(super) tensor: u64,
    /// How often it had been changed in place when it was saved for a backward; `None` where it was not.
    pub(super) version: Option<u32>,
}

/// What a `SavedVariable` keeps, and its hooks.
type Variable = (Option<Saved>, Option<u64>);

/// A node that was alive when it was copied.
#[derive(Debug)]
pub(super) struct Node {
    /// Its address.
    pub(super) at: u64,
    /// What counts the references to it.
    pub(super) control: u64,
    head: [u64; HEAD],
}

impl Counted {
    /// Where the edges of a node are.
    fn edges(self) -> usize {
        10 + self.words()
    }

    /// Words of a `SavedVariable`.
    fn variable(self) -> usize {
        7 + 3 * self.words()
    }
}

/// Most nodes that are looked at below the newest of a gradient.
const NEAR: usize = 256;

/// Whether a node is another one or stands a few edges below it: a backward that creates a graph puts the sum of a gradient on top of what
/// the gradient was before.
pub(super) fn is_near(
    torch: &Torch,
    pages: &Pages,
    known: &mut Nodes,
    above: (u64, u64),
    wanted: (u64, u64),
) -> bool {
    let (mut met, mut at) = (vec![above], 0);
    while let Some(&next) = met.get(at).filter(|_| at < NEAR) {
        if next == wanted {
            return true;
        }
        at += 1;
        let node = nodes(torch, pages, known, &[next.0]).pop().flatten();
        let edges = node.filter(|n| (n.at, n.control) == next).map(|n| n.edges(torch, pages));
        for edge in edges.into_iter().flatten() {
            if met.len() < NEAR && !met.contains(&edge) {
                met.push(edge);
            }
        }
    }
    false
}

/// What stands at these addresses, where it is a node that is alive; in their order.
pub(super) fn nodes(torch: &Torch, pages: &Pages, known: &mut Nodes, at: &[u64]) -> Vec<Option<Node>> {
    let heads = pages.words::<HEAD>(at);
    let apart = torch.counted == Counted::Apart;
    let controls: Vec<u64> =
        heads.iter().zip(at).map(|(h, at)| if apart { h.map_or(0, |h| h[2]) } else { *at }).collect();
    let all = heads.into_iter().zip(at).zip(controls.iter().zip(pages.words::<2>(&controls)));
    all.map(|((head, &at), (&control, counts))| {
        /// Of the count of references from outside: Python has an object of it.
        const HAS_OBJECT: u64 = 1 << 63;
        let (head, [_, counts]) = (head?, counts?);
        let [vtable, own, ..] = head;
        let counts = if apart { counts } else { counts & !HAS_OBJECT };
        let is_counted = counts as u32 as i32 > 0 && (counts >> 32) as i32 > 0;
        let is_one = is_counted && (own == at || !apart) && known.is_node(torch, vtable);
        is_one.then_some(Node { at, control, head })
    })
    .collect()
}

impl Node {
    /// The nodes that its edges lead to, each with what counts the references to it.
    pub(super) fn edges(&self, torch: &Torch, pages: &Pages) -> Vec<(u64, u64)> {
        edges(torch, pages, &[Some(self)]).pop().unwrap_or_default()
    }

    /// Where the members of every class behind `Node` begin, if this one tells: its last member points back to it.
    pub(super) fn members(&self, w: &World, pages: &Pages) -> Option<usize> {
        let all = bodies(pages, &[self]).pop().unwrap_or_default();
        let last = all.len().saturating_sub(SLACK).max(MEMBERS);
        let end = all.get(last..).unwrap_or_default();
        let functions = functions::words(&w.python, pages, end);
        let tells = |(word, function): (&u64, Vec<u64>)| {
            self.is_leaf(&w.torch, pages, *word) || self.is_in(w.torch.counted, &function)
        };
        end.iter().zip(functions).position(tells).map(|i| last + i)
    }

    /// Whether this is the tensor that this node adds up the gradient of.
    fn is_leaf(&self, torch: &Torch, pages: &Pages, word: u64) -> bool {
        let leaf = torch.autograd(pages, &torch.implementations(pages, &[word]));
        leaf.first().is_some_and(|l| (l.accumulator, l.accumulator_control) == (self.at, self.control))
    }

    /// Whether an object of Python's has this node, which these words are of.
    fn is_in(&self, counted: Counted, words: &[u64]) -> bool {
        match counted {
            Counted::Apart => words.windows(2).any(|pair| *pair == [self.at, self.control]),
            Counted::Inside => words.contains(&self.at),
        }
    }
}

/// The nodes that the edges of each lead to, with what counts the references to them.
pub(super) fn edges(torch: &Torch, pages: &Pages, nodes: &[Option<&Node>]) -> Vec<Vec<(u64, u64)>> {
    // An edge is a reference and a number.
    let (place, width) = (torch.counted.edges(), torch.counted.words() + 1);
    let of = |node: &Option<&Node>| node.and_then(|n| vector(&n.head, place, width)).unwrap_or_default();
    let edge = |e: &[u64]| match *e {
        [function, control, _] if is_address(function) && is_address(control) => Some((function, control)),
        [function, _] if is_address(function) => Some((function, function)),
        _ => None,
    };
    let all: Vec<(u64, usize)> = nodes.iter().map(of).collect();
    let is_whole = |(all, (_, count)): (Vec<u64>, &(u64, usize))| {
        let all = if all.len() == *count { all } else { Vec::new() };
        all.chunks(width).filter_map(edge).collect()
    };
    pages.ranges(&all).into_iter().zip(&all).map(is_whole).collect()
}

/// All words of each, as many as the heap says that there are; none where it does not say.
fn bodies(pages: &Pages, nodes: &[&Node]) -> Vec<Vec<u64>> {
    let block = |n: &&Node| if n.control + COUNTS == n.at { n.control } else { n.at };
    let blocks: Vec<u64> = nodes.iter().map(block).collect();
    let words = |(end, n): (Option<u64>, &&Node)| {
        let bytes = end.map_or(0, |end| end.saturating_sub(n.at));
        (n.at, (bytes as usize / 8).min(WORDS))
    };
    let all: Vec<_> = heap::ends_of_blocks(pages, &blocks).into_iter().zip(nodes).map(words).collect();
    pages.ranges(&all)
}

/// Whether autograd refuses to go back through the node at this address: a tensor that it saved was changed in place since. It is looked at
/// before and after the count, so that it has kept the tensor meanwhile.
pub(super) fn is_outdated(w: &World, at: u64, members: usize) -> bool {
    let saved = || {
        let (pages, mut known) = (Pages::default(), Nodes::default());
        let node = nodes(&w.torch, &pages, &mut known, &[at]).pop().flatten();
        node.and_then(|node| keeps(w, &pages, &mut known, &[&node], members).pop()).unwrap_or_default().saved
    };
    let before = saved();
    let any = !changed(w, &Pages::default(), &before).is_empty();
    any && saved() == before
}

/// Which of what nodes saved was changed in place since, by its place.
pub(super) fn changed(w: &World, pages: &Pages, saved: &[Saved]) -> Vec<usize> {
    let tensors: Vec<u64> = saved.iter().map(|s| s.tensor).collect();
    let now = w.torch.versions(pages, &tensors);
    let is_other =
        |(s, now): (&Saved, Option<u32>)| s.version.zip(now).is_some_and(|(then, now)| then != now);
    saved.iter().zip(now).enumerate().filter(|(_, of)| is_other(*of)).map(|(i, _)| i).collect()
}

/// What a node keeps.
#[derive(Default)]
pub(super) struct Keeps {
    /// Tensors of C++.
    pub(super) saved: Vec<Saved>,
    /// Objects of Python's: the one that it runs, its hooks', and what hooks have made of saved tensors.
    pub(super) objects: Vec<u64>,
}

/// What each keeps. `members`: where they begin. With the GIL held, while the collector is not at work.
pub(super) fn keeps(
    w: &World,
    pages: &Pages,
    known: &mut Nodes,
    nodes: &[&Node],
    members: usize,
) -> Vec<Keeps> {
    let (counted, bodies) = (w.torch.counted, bodies(pages, nodes));
    let own: Vec<&[u64]> = bodies.iter().map(|all| all.get(members..).unwrap_or_default()).collect();
    let firsts: Vec<u64> = own.iter().map(|own| own.first().copied().unwrap_or(0)).collect();
    let tensors = w.torch.implementations(pages, &firsts);
    let mut all: Vec<Keeps> = Vec::with_capacity(nodes.len());
    // Their words, in which lists are looked for, and what torch has for objects of Python's; and of which node.
    let mut lists: Vec<(usize, Vec<u64>)> = Vec::new();
    let mut wrapped = hooks(pages, counted, &bodies, members);
    let mut functions = functions(w, pages, nodes, members);
    for (i, ((node, leaf), (&first, tensor))) in
        nodes.iter().zip(w.torch.autograd(pages, &tensors)).zip(firsts.iter().zip(&tensors)).enumerate()
    {
        let own = own.get(i).copied().unwrap_or_default();
        let mut function = || functions.get_mut(i).and_then(Option::take).filter(|_| tensor.at == 0);
        let mut keeps = Keeps::default();
        if (leaf.accumulator, leaf.accumulator_control) == (node.at, node.control) {
            keeps.saved.push(Saved { tensor: first, version: None });
        } else if let Some((function, words)) = function() {
            keeps.objects.push(function);
            lists.push((i, words));
        } else {
            for (saved, hooks) in own.windows(counted.variable()).filter_map(|w| variable(w, counted)) {
                keeps.saved.extend(saved);
                wrapped.extend(hooks.map(|at| (i, at)));
            }
            lists.push((i, own.to_vec()));
        }
        all.push(keeps);
    }
    let words: Vec<&[u64]> = lists.iter().map(|l| l.1.as_slice()).collect();
    for ((i, _), variables) in lists.iter().zip(lists_of_variables(pages, &words, counted)) {
        let Some(keeps) = all.get_mut(*i) else { continue };
        keeps.saved.extend(variables.iter().filter_map(|(saved, _)| *saved));
        wrapped.extend(variables.iter().filter_map(|(_, hooks)| Some((*i, (*hooks)?))));
    }
    let at: Vec<u64> = wrapped.iter().map(|(_, at)| *at).collect();
    for ((i, _), objects) in wrapped.iter().zip(known.wrappers.behind(pages, &at)) {
        all.get_mut(*i).into_iter().for_each(|keeps| keeps.objects.extend(&objects));
    }
    all
}

/// Of each node the object of Python's that it runs, with its words.
fn functions(w: &World, pages: &Pages, nodes: &[&Node], members: usize) -> Vec<Option<(u64, Vec<u64>)>> {
    let counted = w.torch.counted;
    let may: Vec<u64> = match counted {
        Counted::Apart => {
            let places: Vec<u64> = nodes.iter().map(|n| n.at + 8 * members as u64).collect();
            pages.words::<1>(&places).into_iter().map(|word| word.map_or(0, |[word]| word)).collect()
        }
        Counted::Inside => nodes.iter().map(|n| n.head[OBJECT]).collect(),
    };
    let all = functions::words(&w.python, pages, &may).into_iter().zip(&may).zip(nodes);
    all.map(|((words, object), node)| node.is_in(counted, &words).then_some((*object, words))).collect()
}

/// What may stand for hooks of nodes in their words, and for notes of anomaly mode, and of which node.
fn hooks(pages: &Pages, counted: Counted, bodies: &[Vec<u64>], members: usize) -> Vec<(usize, u64)> {
    // Behind its edges a node has the object that stands for it, its notes, and three lists of hooks with a table between them.
    const NOTES: usize = 4;
    let (mut found, mut lists) = (Vec::new(), Vec::new());
    for (i, words) in bodies.iter().enumerate() {
        let words = words.get(counted.edges() + NOTES..members).unwrap_or_default();
        found.extend(words.first().filter(|at| is_address(**at)).map(|at| (i, *at)));
        lists.extend((1..words.len()).filter_map(|at| Some((i, vector(words, at, 1)?))));
    }
    let ranges: Vec<(u64, usize)> = lists.iter().map(|l| l.1).collect();
    for ((i, _), all) in lists.into_iter().zip(pages.ranges(&ranges)) {
        found.extend(all.into_iter().map(|at| (i, at)));
    }
    found
}

/// What a `SavedVariable` of these words keeps, and its hooks, if any; `None` where they are no such thing.
fn variable(words: &[u64], counted: Counted) -> Option<Variable> {
    let width = counted.words();
    // A shared pointer and a weak reference to a node; the numbers, the flags, the hooks; a reference and a weak one; whether it requires a gradient.
    let (&[tensor, _, _, ..], rest) = (words, words.get(3 + width..)?) else { return None };
    let (&[numbers, flags, hooks, ..], &[.., requires]) = (rest, words) else { return None };
    let are_pairs =
        [(1, 2), (3, width), (6 + width, width), (6 + 2 * width, width)].into_iter().all(|(at, width)| {
            let words = words.get(at..at + width).unwrap_or(&[1]);
            words.iter().all(|w| *w == 0) || words.iter().all(|w| is_address(*w))
        });
    let are_flags = flags.to_le_bytes().iter().take(5).all(|f| *f <= 1) && requires as u8 <= 1;
    let are_numbers = numbers >> 32 < 1 << 16 && (hooks == 0 || is_address(hooks));
    // Made without a tensor, or kept by hooks.
    let is_empty = flags & 0xff != 0 || hooks != 0;
    let is_one = is_address(tensor) && are_pairs && are_flags && are_numbers;
    let saved = (!is_empty).then_some(Saved { tensor, version: Some(numbers as u32) });
    is_one.then_some((saved, Some(hooks).filter(|h| *h != 0)))
}

/// Of each of these, all vectors of `SavedVariable` among its words: of those whose elements are all such.
fn lists_of_variables(pages: &Pages, words: &[&[u64]], counted: Counted) -> Vec<Vec<Variable>> {
    let width = counted.variable();
    let mut vectors: Vec<(usize, (u64, usize))> = Vec::new();
    for (i, words) in words.iter().enumerate() {
        vectors.extend((0..words.len()).filter_map(|at| Some((i, vector(words, at, width)?))));
    }
    let ranges: Vec<(u64, usize)> = vectors.iter().map(|v| v.1).collect();
    let mut out = vec![Vec::new(); words.len()];
    for ((i, (_, count)), all) in vectors.into_iter().zip(pages.ranges(&ranges)) {
        let saved: Option<Vec<Variable>> = all.chunks(width).map(|words| variable(words, counted)).collect();
        if let (Some(saved), Some(out)) = (saved.filter(|_| all.len() == count), out.get_mut(i)) {
            out.extend(saved);
        }
    }
    out
}

/// Where the elements lie of a `std::vector` whose three pointers begin at word `at`, and how many words they are, where it is one of elements
/// of `width` words.
fn vector(words: &[u64], at: usize, width: usize) -> Option<(u64, usize)> {
    let &[begin, end, most] = words.get(at..at + 3)? else { return None };
    let fits = is_address(begin) && begin < end && end <= most && end.is_multiple_of(8);
    let count = if fits { (end - begin) as usize / 8 } else { return None };
    let is_one = count.is_multiple_of(width) && (most - begin) as usize / 8 <= LIST;
    is_one.then_some((begin, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENSOR: u64 = 0x5555_0000_1000;
    const SAVED: Saved = Saved { tensor: TENSOR, version: Some(3) };

    fn saved(counted: Counted) -> Vec<u64> {
        let (mut one, width) = (vec![0; counted.variable()], counted.words());
        // Never written, between the flags and what follows.
        (one[0], one[3 + width], one[4 + width]) = (TENSOR, 3, 0xdead_be01_0101_0000);
        one[6 + 3 * width] = 0xffff_ff01;
        one
    }

    #[test]
    fn a_saved_tensor_is_believed_by_all_its_fields() {
        let apart =
            [(0, 7), (1, TENSOR), (3, TENSOR), (4, 1), (5, 1 << 60), (6, 2 << 8), (7, 3), (8, 9), (12, 2)];
        let inside = [(0, 7), (1, TENSOR), (3, 1), (4, 1 << 60), (5, 2 << 8), (6, 3), (7, 9), (8, 9), (9, 2)];
        for (counted, all) in [(Counted::Apart, apart), (Counted::Inside, inside)] {
            assert_eq!(variable(&saved(counted), counted), Some((Some(SAVED), None)));
            for (at, wrong) in all {
                let mut one = saved(counted);
                one[at] = wrong;
                assert_eq!(variable(&one, counted), None, "{counted:?}, word {at}");
            }
            for (at, word, hooks) in
                [(4 + counted.words(), 1, None), (5 + counted.words(), TENSOR, Some(TENSOR))]
            {
                let mut one = saved(counted);
                one[at] = word;
                assert_eq!(variable(&one, counted), Some((None, hooks)), "released, or kept by hooks");
            }
        }
    }

    #[test]
    fn a_list_with_one_element_that_is_no_saved_tensor_is_none() {
        for counted in [Counted::Apart, Counted::Inside] {
            let lists = |words: &[u64]| lists_of_variables(&Pages::default(), &[words], counted).remove(0);
            let mut all = [saved(counted), saved(counted)].concat();
            let begin = all.as_ptr() as u64;
            let end = begin + 2 * 8 * counted.variable() as u64;
            assert_eq!(lists(&[7, begin, end, end]), [(Some(SAVED), None); 2]);
            assert!(lists(&[7, begin, end - 8, end]).is_empty(), "not whole elements");
            // What the heap writes into a block that is free.
            (all[0], all[1]) = (TENSOR, 0x1234_5678_9abc_def1);
            assert!(lists(&[std::hint::black_box(all.as_ptr() as u64), end, end]).is_empty());
        }
    }
}
