//! What local variables, globals and attributes near them have at one moment, looked at from the top.

use super::contexts;
use super::frames::Variable;
use super::named::{Place, Rank};
use super::names::is_wrapping;
use super::objects::{Class, Kind, TYPE_DICT, TYPE_FLAGS, references, type_of};
use super::types::Types;
use super::world::World;
use crate::platform::memory::{is_address, read};
use crate::platform::pages::Pages;
use std::collections::{HashMap, HashSet};

/// Objects that are looked at, and references down that are followed.
const MOST: usize = 4_096;
const DEPTH: u32 = 3;
/// Things in a container that are followed on, and that are looked at for what is wanted.
pub(super) const ENTRIES: u64 = 256;
/// What a state is made of: in a larger one each entry is one of many.
const FEW: u64 = 4;
const MANY: u64 = 20_000;
/// The same of all containers together: a few milliseconds.
pub(super) const ALL: u64 = 100_000;
/// Of types: their objects are exceptions.
pub(super) const EXCEPTION: u64 = 1 << 30;
/// Tensors whose graphs are walked; and of those that are some of many.
const TENSORS: usize = 12;
const LISTED: usize = 256;

/// By what an object was come to.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// A variable of a frame that runs.
    Local(Variable),
    /// A dictionary of globals, and the string that names one.
    Global(u64, u64),
    /// An instance, and the string that names the attribute.
    Attribute(u64, u64),
    /// A class, and the string that names the attribute of its own.
    OfClass(u64, u64),
    /// A context variable.
    Context(u64),
    /// A function, and which of the variables that it has closed over.
    Closure(u64, u64),
}

/// What has a name: a tensor itself, or the container that it is an entry of, and the way there. Is that a list or a large container, or below
/// one, what is put into it stays mostly, and is no new value of a name.
#[derive(Clone, Copy)]
pub(super) struct NameOf {
    pub(super) object: u64,
    pub(super) way: Way,
    pub(super) is_listed: bool,
}

/// A node that graphs lead from, and a tensor that it has made.
pub(super) struct Top {
    /// The tensor, and the node.
    pub(super) tensor: u64,
    pub(super) node: u64,
    /// What has its name.
    pub(super) names: Vec<NameOf>,
    /// Nothing but a list or a large container has a name for it.
    pub(super) is_listed: bool,
    /// References down from the name.
    pub(super) depth: u32,
}

/// What has a name and keeps tensors or storages that are wanted: a container, or the first of a chain of objects of one class.
pub(super) struct Holder {
    pub(super) named: u64,
    pub(super) way: Way,
    pub(super) depth: u32,
    /// What it keeps of them.
    pub(super) tensors: Vec<u64>,
}

/// What was found.
pub(super) struct Near {
    /// Graphs, those of the user's own locals first.
    pub(super) tops: Vec<Top>,
    /// What keeps some of what is wanted itself.
    pub(super) holders: Vec<Holder>,
}

/// An object that was come to.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) object: u64,
    pub(super) way: Way,
    /// Where it is a link of a chain: its first object, and the way to that.
    pub(super) chain: Option<(u64, Way)>,
    /// The list or large container that it is an entry of, or below one of, and the way to that.
    pub(super) listed: Option<(u64, Way)>,
}

/// A tensor that was come to: what has the name, the way there, references down; and the list that it is below.
struct Tensor {
    object: u64,
    named: u64,
    way: Way,
    depth: u32,
    listed: Option<(u64, Way)>,
}

/// A search under way.
pub(super) struct Search<'a, 'p> {
    pub(super) w: &'a World,
    pub(super) types: &'a mut Types<'p>,
    pub(super) wanted: &'a HashMap<u64, u64>,
    /// References down from the names, of what is looked at now.
    pub(super) depth: u32,
    /// What is to be looked at still, and after it.
    pub(super) level: Vec<Step>,
    pub(super) next: Vec<Step>,
    seen: HashSet<u64>,
    tensors: Vec<Tensor>,
    pub(super) holders: Vec<Holder>,
    /// Of chains, by their first object: the place among the holders.
    pub(super) chains: HashMap<u64, usize>,
    /// Things in containers that were looked at.
    pub(super) entries: u64,
}

/// Looks at what has a name now. `wanted`: tensors, storages and what else was asked about.
///
/// # Safety
/// With the GIL held and the collector not at work.
pub(super) unsafe fn look(w: &World, types: &mut Types<'_>, wanted: &HashMap<u64, u64>) -> Near {
    let mut search = Search {
        w,
        types,
        wanted,
        depth: 0,
        level: Vec::new(),
        next: Vec::new(),
        seen: HashSet::new(),
        tensors: Vec::new(),
        holders: Vec::new(),
        chains: HashMap::new(),
        entries: 0,
    };
    // SAFETY: the caller's promise, for all of them.
    unsafe {
        search.level = names(w, search.types);
        while !search.level.is_empty() && search.depth < DEPTH && search.seen.len() < MOST {
            // Links of a chain are as near as its first object.
            while let Some(step) = search.level.pop() {
                // One tensor may have several names.
                if search.types.of(step.object).class == Class::Tensor {
                    let Step { object, way, listed, .. } = step;
                    search.tensors.push(Tensor { object, named: object, way, depth: search.depth, listed });
                    search.tensor(step);
                } else if search.seen.len() < MOST && search.seen.insert(step.object) {
                    search.step(step);
                }
            }
            search.level = std::mem::take(&mut search.next);
            search.level.reverse();
            search.depth += 1;
        }
        search.holders.retain(|h| !h.tensors.is_empty());
        let Search { tensors, holders, .. } = search;
        Near { tops: tops(w, tensors), holders }
    }
}

/// What local variables have: those of the user's own code, and the others.
///
/// # Safety
/// As [`look`].
pub(super) unsafe fn locals(w: &World) -> [Vec<Step>; 2] {
    let (mut own, mut others, mut last) = (Vec::new(), Vec::new(), (0, false));
    if let Some(frames) = &w.frames {
        // SAFETY: the caller's promise; what runs is alive.
        unsafe {
            frames.locals(&w.python, w.interpreter, &mut |v| {
                if v.code != last.0 {
                    last = (v.code, w.python.is_of_user(v.code));
                }
                let step = Step { object: v.value, way: Way::Local(v), chain: None, listed: None };
                if last.1 { own.push(step) } else { others.push(step) }
            });
        }
    }
    [own, others]
}

/// What local variables have, those of the user's own code last, and globals: in the reverse of the order in which they are looked at.
///
/// # Safety
/// As [`look`].
unsafe fn names(w: &World, types: &mut Types<'_>) -> Vec<Step> {
    // SAFETY: the caller's promise; what a dictionary that is alive has is alive.
    unsafe {
        let [mut own, mut others] = locals(w);
        let mut globals = w.python.module_dict("__main__").into_iter().collect::<Vec<u64>>();
        globals.extend(w.frames.iter().flat_map(|frames| frames.globals(w.interpreter)));
        own.append(&mut others);
        for context in contexts::all(w) {
            contexts::pairs(w, types, context, &mut |variable, value| {
                let way = Way::Context(variable);
                own.push(Step { object: value, way, chain: None, listed: None });
            });
        }
        let mut seen = HashSet::new();
        for dict in globals.into_iter().filter(|d| seen.insert(*d)).collect::<Vec<u64>>() {
            let scope = w.python.scope_in_module(dict, String::new());
            let is_users = scope.is_of_user() || scope.module.as_deref() == Some("__main__");
            let module = scope.module.filter(|_| is_users).unwrap_or_default();
            let mut classes = Vec::new();
            w.python.items(dict, |name, value| {
                let way = Way::Global(dict, name);
                own.push(Step { object: value, way, chain: None, listed: None });
                if is_users && types.of(value).class == Class::Type {
                    classes.push(value);
                }
                own.len() < MOST
            });
            // What a class of that module has is as near as a global.
            for class in classes {
                if w.python.module_of_class(class) == Some(module.as_bytes()) {
                    of_class(w, types, class, &mut own);
                }
            }
        }
        own.reverse();
        own
    }
}

/// Adds what a class has of its own beside functions.
///
/// # Safety
/// As [`look`]; the class is alive, and written in Python.
unsafe fn of_class(w: &World, types: &mut Types<'_>, class: u64, steps: &mut Vec<Step>) {
    // SAFETY: the caller's promise; what a class's dictionary has is alive.
    unsafe {
        let dict = read(class + TYPE_DICT);
        if is_address(dict) && w.python.is_dict(dict) {
            w.python.items(dict, |name, object| {
                if !matches!(types.of(object).class, Class::Function | Class::Type | Class::Other) {
                    steps.push(Step { object, way: Way::OfClass(class, name), chain: None, listed: None });
                }
                steps.len() < MOST
            });
        }
    }
}

impl Search<'_, '_> {
    /// Looks at one object: what it has comes at once (`level`) or one reference further down (`next`).
    ///
    /// # Safety
    /// As [`look`]; the object is alive.
    unsafe fn step(&mut self, step: Step) {
        let Step { object, way, chain, listed } = step;
        let w = self.w;
        // SAFETY: the caller's promise; what is alive refers to what is.
        unsafe {
            let kind = self.types.of(object);
            match kind.class {
                Class::Instance | Class::Other if read(type_of(object) + TYPE_FLAGS) & EXCEPTION != 0 => {
                    self.exception(step, kind);
                }
                _ if self.is_callable(kind, object) => {
                    self.callable(step, kind);
                    self.closure(step, kind);
                }
                // What Python's library wraps is called as whoever has it.
                Class::Instance if w.python.module_of_class(type_of(object)).is_some_and(is_wrapping) => {
                    let chain = chain.or(Some((object, way)));
                    references(object, kind, &mut |child| {
                        self.next.push(Step { object: child, way, chain, listed })
                    });
                }
                Class::Instance => {
                    let (mut mine, own) = (Vec::new(), type_of(object));
                    w.python.attributes(object, |name, value| {
                        mine.push((name, value));
                        self.next.len() + mine.len() < MOST
                    });
                    let is_first = mine.iter().any(|(_, value)| type_of(*value) == own);
                    let chain = chain.or(is_first.then_some((object, way)));
                    let mut kept = Vec::new();
                    for (name, value) in mine {
                        let way = Way::Attribute(object, name);
                        if type_of(value) == own {
                            self.level.push(Step { object: value, way, chain, listed });
                            continue;
                        }
                        self.next.push(Step { object: value, way, chain: None, listed });
                        if self.wanted.contains_key(&value) && is_memory(self.types, value) {
                            kept.push(value);
                        }
                    }
                    if let Some((first, way)) = chain {
                        self.of_chain(first, way, kept);
                    }
                }
                Class::Tuple | Class::List | Class::Dict | Class::Set | Class::Deque => {
                    self.container(step, kind);
                }
                Class::Array => self.array(step),
                _ => {}
            }
        }
    }

    /// Looks at a tensor: one that has another one as an attribute, and that the next, is a link of a chain.
    ///
    /// # Safety
    /// As [`look`]; the object is alive, a tensor.
    unsafe fn tensor(&mut self, step: Step) {
        let Step { object, way, chain, listed } = step;
        let mut values = Vec::new();
        // SAFETY: the caller's promise; what is alive refers to what is.
        unsafe {
            self.w.python.own_parts(object, |part| values.push(part));
            for part in values.clone() {
                if self.w.python.is_dict(part) {
                    self.w.python.items(part, |_, value| {
                        values.push(value);
                        values.len() < ENTRIES as usize
                    });
                }
            }
            values.retain(|&value| self.types.of(value).class == Class::Tensor);
        }
        let links = values;
        if links.is_empty() && chain.is_none() || !self.seen.insert(object) {
            return;
        }
        let (first, way) = chain.unwrap_or((object, way));
        let kept = Some(object).filter(|o| self.wanted.contains_key(o)).into_iter().collect();
        self.of_chain(first, way, kept);
        let chain = Some((first, way));
        self.level.extend(links.into_iter().map(|object| Step { object, way, chain, listed }));
    }

    /// Looks at a container: what it keeps that is wanted, and, where it is small, what else.
    ///
    /// # Safety
    /// As [`look`]; the object is alive and of this kind.
    unsafe fn container(&mut self, step: Step, kind: Kind) {
        let Step { object, way, chain, listed } = step;
        // SAFETY: the caller's promise; what a container refers to is alive.
        unsafe {
            let entries = self.w.python.entries(object, kind.class).unwrap_or(u64::MAX);
            if entries > MANY || self.entries > ALL {
                return;
            }
            self.entries += entries;
            let mut inside = Vec::new();
            references(object, kind, &mut |child| inside.push(child));
            let mut kept = Vec::new();
            let inner = if entries > ENTRIES { self.of_inner(&inside) } else { Vec::new() };
            for &child in inside.iter().chain(&inner).filter(|c| self.wanted.contains_key(c)) {
                if is_memory(self.types, child) {
                    kept.push(child);
                }
            }
            // A tuple in a tuple, `(x, before)`, is a link of a chain.
            let link = |c: u64, t: &mut Types<'_>| {
                kind.class == Class::Tuple && t.of(c).class == Class::Tuple && type_of(c) == type_of(object)
            };
            let first = chain.unwrap_or((object, way));
            let is_chain = chain.is_some() || inside.iter().any(|c| link(*c, self.types));
            if is_chain {
                self.of_chain(first.0, first.1, kept);
            } else if !kept.is_empty() {
                self.holders.push(Holder { named: object, way, depth: self.depth, tensors: kept });
            }
            if entries > ENTRIES {
                return;
            }
            let listed = listed.or((kind.class == Class::List || entries > FEW).then_some(first));
            let is_carried = matches!(kind.class, Class::Dict | Class::Tuple | Class::List);
            for child in inside {
                match self.types.of(child).class {
                    Class::Tensor if is_carried && self.tensors.len() < MOST => {
                        let (named, way) = first;
                        self.tensors.push(Tensor { object: child, named, way, depth: self.depth, listed });
                    }
                    Class::Tensor => {}
                    _ if link(child, self.types) => {
                        self.level.push(Step { object: child, way, chain: Some(first), listed })
                    }
                    // What is in a container in a container is kept by the outer one: the name is that one's.
                    _ => self.next.push(Step { object: child, way, chain: Some(first), listed }),
                }
            }
        }
    }
}

/// Whether an object is a tensor or a storage.
///
/// # Safety
/// It is alive; with the GIL held.
pub(super) unsafe fn is_memory(types: &mut Types<'_>, object: u64) -> bool {
    // SAFETY: the caller's promise.
    matches!(unsafe { types.of(object) }.class, Class::Tensor | Class::Storage)
}

/// Tensors with a graph, those of one node together; those of lists come last.
///
/// # Safety
/// They are alive; with the GIL held.
unsafe fn tops(w: &World, mut tensors: Vec<Tensor>) -> Vec<Top> {
    tensors.sort_by_key(|t| t.listed.is_some());
    let objects: Vec<u64> = tensors.iter().map(|t| t.object).collect();
    // SAFETY: the caller's promise.
    let known = unsafe { w.torch.of_python(&objects) };
    let mut tops: Vec<Top> = Vec::new();
    for (Tensor { object, named, way, depth, listed }, a) in
        tensors.into_iter().zip(w.torch.autograd(&Pages::default(), &known))
    {
        if a.node == 0 {
            continue;
        }
        let is_listed = listed.is_some();
        let mut names = vec![NameOf { object: named, way, is_listed }];
        let above = listed.filter(|l| l.0 != named);
        names.extend(above.map(|(object, way)| NameOf { object, way, is_listed }));
        if let Some(top) = tops.iter_mut().find(|t| t.node == a.node) {
            top.names.extend(names);
        } else if tops.len() < if is_listed { LISTED } else { TENSORS } {
            tops.push(Top { tensor: object, node: a.node, names, is_listed, depth });
        }
    }
    tops
}

impl Way {
    /// What is come to by it is called so.
    ///
    /// # Safety
    /// As [`look`], in the same slice.
    pub(super) unsafe fn place(&self, w: &World, types: &mut Types<'_>) -> Place {
        // SAFETY: what it was come to by is alive, as nothing has run since.
        unsafe {
            match *self {
                Way::Local(v) => Place::variable(w, Rank::Local, v, 0),
                Way::Context(variable) => contexts::place(w, variable, 0),
                Way::Closure(function, i) => Place::closed_over(w, function, i),
                Way::Attribute(owner, name) => Place::attribute(w, types, owner, w.python.text(name)),
                Way::OfClass(class, name) => Place::of_class(w, types, class, w.python.text(name)),
                Way::Global(dict, name) => {
                    let scope = w.python.scope_in_module(dict, w.python.text(name));
                    let module = scope.module.as_deref().unwrap_or("?");
                    let text = format!("{module}.{}", scope.variable);
                    Place { rank: Rank::Global, text, scope, owner: dict }
                }
            }
        }
    }
}
