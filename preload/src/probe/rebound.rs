//! Names that get another object at every step: a running loss, a hidden state. By the time that a walk over all objects has come to what
//! had the name, it has the next one. So what local variables, globals and attributes near them have at this moment is looked at from
//! the top, in one slice, and a name counts where its tensor's graph leads to what was asked about.

use super::World;
use super::budget::Budget;
use super::frames::Variable;
use super::graph;
use super::naming::{Named, Place, Rank};
use super::objects::{Class, Types, references};
use std::collections::{HashMap, HashSet};

/// Objects that are looked at, references down that are followed, and things in a container that are.
const MOST: usize = 4_096;
const DEPTH: u32 = 3;
const ENTRIES: u64 = 64;
/// Tensors whose graphs are walked.
const TENSORS: usize = 12;

/// By what an object was come to.
#[derive(Clone, Copy)]
enum Way {
    Local(Variable),
    /// A dictionary of globals, and the string that names one.
    Global(u64, u64),
    /// An instance, and the string that names the attribute.
    Attribute(u64, u64),
}

/// A tensor that a graph leads from, and what has its name: itself, or the dictionary that it is an entry of. Lists are not looked into:
/// what is put into one stays.
struct Top {
    tensor: u64,
    named: u64,
    node: u64,
    way: Way,
    depth: u32,
}

/// Names whose tensors' graphs keep what is wanted (address → samples) at this moment; and whether there was time for all of them.
///
/// # Safety
/// With the GIL held and the collector not at work.
pub(super) unsafe fn search(
    w: &World,
    types: &mut Types<'_>,
    wanted: &HashMap<u64, u64>,
    budget: &Budget,
) -> (Vec<Named>, bool) {
    let (mut found, mut is_whole) = (Vec::new(), true);
    // SAFETY: the caller's promise, for all of them; nothing of the job runs before the end.
    unsafe {
        for top in tops(w, types) {
            let keys: HashSet<u64> = wanted.keys().copied().collect();
            let mut walk = graph::Walk::new(vec![(top.tensor, top.node)], keys);
            let mut is_done = walk.go_on(w, &Budget::new());
            while !is_done && !budget.is_all_used() {
                is_done = walk.go_on(w, &Budget::new());
            }
            is_whole &= is_done;
            let mask =
                walk.found.iter().filter_map(|kept| wanted.get(&kept.what)).fold(0, |all, mask| all | mask);
            if mask != 0 {
                let place = top.place(w);
                let named = place.named(w, types, top.named, (mask, top.depth));
                found.push(Named {
                    is_final: true,
                    piles: true,
                    is_verified: true,
                    is_rebound: true,
                    is_wrapper: false,
                    ..named
                });
            }
            let all = found.iter().fold(0, |all, n: &Named| all | n.mask);
            if !is_whole || wanted.values().all(|mask| mask & !all == 0) {
                break;
            }
        }
    }
    (found, is_whole)
}

/// Tensors with a graph that have a name now: those of locals first.
///
/// # Safety
/// As [`search`].
unsafe fn tops(w: &World, types: &mut Types<'_>) -> Vec<Top> {
    let (mut level, mut seen) = (Vec::new(), HashSet::new());
    // SAFETY: the caller's promise; what runs, and what a dictionary that is alive has, is alive.
    unsafe {
        let mut globals = w.python.module_dict("__main__").into_iter().collect::<Vec<u64>>();
        if let Some(frames) = &w.frames {
            frames.locals(&w.python, w.interpreter, &mut |v| level.push((v.value, Way::Local(v))));
            globals.extend(frames.globals(w.interpreter));
        }
        for dict in globals.into_iter().filter(|d| seen.insert(*d)).collect::<Vec<u64>>() {
            w.python.items(dict, |name, value| {
                level.push((value, Way::Global(dict, name)));
                level.len() < MOST
            });
        }
    }
    let (mut tensors, mut depth) = (Vec::new(), 0);
    while !level.is_empty() && depth < DEPTH && seen.len() < MOST {
        let mut next = Vec::new();
        for (object, way) in level {
            if seen.len() >= MOST || !seen.insert(object) {
                continue;
            }
            // SAFETY: as above; what is alive refers to what is.
            unsafe {
                let kind = types.of(object);
                match kind.class {
                    Class::Tensor => tensors.push((object, object, way, depth)),
                    Class::Instance => w.python.attributes(object, |name, value| {
                        next.push((value, Way::Attribute(object, name)));
                        next.len() < MOST
                    }),
                    Class::Dict | Class::List | Class::Tuple | Class::Deque
                        if w.python.entries(object, kind.class).is_some_and(|n| n <= ENTRIES) =>
                    {
                        let mut inside = Vec::new();
                        references(object, kind, &mut |child| inside.push(child));
                        let is_dict = kind.class == Class::Dict;
                        for child in inside {
                            match types.of(child).class {
                                Class::Tensor if is_dict && seen.insert(child) => {
                                    tensors.push((child, object, way, depth));
                                }
                                Class::Tensor => {}
                                _ => next.push((child, way)),
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
        (level, depth) = (next, depth + 1);
    }
    let objects: Vec<u64> = tensors.iter().map(|t| t.0).collect();
    // SAFETY: tensors that are alive.
    let known = unsafe { w.torch.of_python(&objects) };
    let mut nodes = HashSet::new();
    let with = tensors.into_iter().zip(w.torch.autograd(&known));
    let with = with.filter(|(_, a)| a.node != 0 && nodes.insert(a.node));
    let top = |((tensor, named, way, depth), a): (_, super::tensors::Autograd)| Top {
        tensor,
        named,
        node: a.node,
        way,
        depth,
    };
    with.map(top).take(TENSORS).collect()
}

impl Top {
    /// What it is called.
    ///
    /// # Safety
    /// As [`search`], in the same slice.
    unsafe fn place(&self, w: &World) -> Place {
        // SAFETY: what it was come to by is alive, as nothing has run since.
        unsafe {
            match self.way {
                Way::Local(v) => Place::variable(w, Rank::Local, v, 0),
                Way::Attribute(owner, name) => Place::attribute(w, owner, w.python.text(name)),
                Way::Global(dict, name) => {
                    let scope = w.python.scope_in_module(dict, w.python.text(name));
                    let module = scope.module.as_deref().unwrap_or("?");
                    let text = format!("{module}.{}", scope.variable);
                    Place { rank: Rank::Global, text, scope, owner: 0 }
                }
            }
        }
    }
}
