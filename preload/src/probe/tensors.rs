//! From a Python tensor to the memory of its storage and to the node that made it, without torch being asked.
//!
//! Every step is believed only where the vtable says what stands there: a `c10::TensorImpl` (storage at 16, autograd's part
//! at 24, what counts the changes of its memory at 40), a `c10::StorageImpl` (data at 16), a `torch::autograd::AutogradMeta` (after its name: grad, grad_fn), which a view's begins with. A tensor of
//! any other kind (batched, functional) has no storage here, and one that nobody refers to any more is none; a sparse one has those of the tensors
//! that it is made of. Offsets as in torch 2.4 to 2.15.

use super::wrappers::{Wrappers, is_text};
use crate::platform::memory::read;
use crate::platform::memory::{self, is_address, words};
use crate::platform::pages::Pages;
use crate::platform::real::{Library, look_up};
use std::collections::HashMap;
use std::ffi::CStr;

/// Tensors that a sparse one is made of, at most: its indices or two of them, and its values.
const PARTS: usize = 3;
/// From where on, and in how many words, it has them. Before them it has at most two numbers, and behind them at most one.
const FIRST_PART: u64 = 184;
const WORDS_OF_PARTS: usize = 5;

/// A tensor as C++ has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Implementation {
    /// Address of its `TensorImpl`; 0 where there is none that we know.
    pub(super) at: u64,
    /// Addresses of its memory; 0 where it has none.
    data: [u64; PARTS],
    /// Address of autograd's part, or 0.
    meta: u64,
    /// Address of what counts the changes of its memory, or 0.
    counter: u64,
}

impl Implementation {
    /// The blocks of each of these tensors, and those of its gradient, which is one of these.
    pub(super) fn blocks(tensors: &[Implementation], gradients: &[Implementation]) -> Vec<[[u64; PARTS]; 2]> {
        tensors.iter().zip(gradients).map(|(t, grad)| [t.data, grad.data]).collect()
    }
}

/// What autograd says of a tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Autograd {
    /// `TensorImpl` of its gradient, or 0.
    pub(super) grad: u64,
    /// The node that made it and what counts the references to that, or 0.
    pub(super) node: u64,
    pub(super) control: u64,
    /// Of a leaf, the node that adds to its gradient, and what counts the references to that, or 0.
    pub(super) accumulator: u64,
    pub(super) accumulator_control: u64,
}

/// How a torch counts the references to nodes, on which the layout of whatever refers to one depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// In a block of its own: a reference is a `std::shared_ptr`, the node's address and that block's.
    Apart,
    /// In the node itself (2.13 and newer): a reference is a `c10::intrusive_ptr`, the node's address, which stands for both.
    Inside,
}

impl Counted {
    /// What the type information of `Node` says, by its base.
    fn of_type(node: u64) -> Counted {
        const BASE: &[u8] = b"N3c1020intrusive_ptr_targetE\0";
        let name = |info: u64| memory::at::<2>(info).map_or(0, |[_, name]| name);
        let base = memory::at::<3>(node).map_or(0, |[_, _, base]| base);
        if is_text(name(base), BASE) { Counted::Inside } else { Counted::Apart }
    }

    /// Words of a reference.
    pub(super) fn words(self) -> usize {
        if self == Counted::Apart { 2 } else { 1 }
    }

    /// The reference that such words begin with: the node, and what counts the references to it.
    fn reference(self, words: [u64; 2]) -> (u64, u64) {
        let [node, control] = words;
        (node, if self == Counted::Apart { control } else { node })
    }
}

/// Addresses of torch's vtables, as objects hold them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Torch {
    tensor: u64,
    /// Of sparse tensors, by coordinates and by rows or columns; 0 where this torch does not export it.
    sparse: [u64; 2],
    /// Up to 2.8 or so every library of torch's has one of its own.
    storage: [u64; 4],
    /// Of what counts changes; 0 where this torch does not export it.
    counter: [u64; 4],
    meta: u64,
    /// The same of views.
    view_meta: u64,
    /// Type information of `torch::autograd::Node`.
    node: u64,
    /// How references to nodes are counted.
    pub(super) counted: Counted,
}

impl Torch {
    /// Looks them up.
    ///
    /// # Errors
    /// This torch does not export them.
    pub(super) fn find() -> Result<Torch, String> {
        /// Objects point behind the offset and the type information that a vtable begins with.
        const FIRST: u64 = 16;
        let find = |name: &CStr, library| match look_up(name, library) as u64 {
            0 => Err(format!("this torch does not export {}", name.to_string_lossy())),
            address => Ok(address),
        };
        let storage = find(c"_ZTVN3c1011StorageImplE", Library::C10)?;
        let each = [Library::C10, Library::TorchCpu, Library::TorchPython, Library::TorchCuda];
        let node = find(c"_ZTIN5torch8autograd4NodeE", Library::TorchCpu)?;
        Ok(Torch {
            tensor: find(c"_ZTVN3c1010TensorImplE", Library::C10)? + FIRST,
            sparse: [c"_ZTVN2at16SparseTensorImplE", c"_ZTVN2at19SparseCsrTensorImplE"]
                .map(|name| find(name, Library::TorchCpu).map_or(0, |at| at + FIRST)),
            storage: each.map(|library| find(c"_ZTVN3c1011StorageImplE", library).unwrap_or(storage) + FIRST),
            counter: each.map(|library| {
                find(c"_ZTVN3c1015VariableVersion14VersionCounterE", library).map_or(0, |at| at + FIRST)
            }),
            meta: find(c"_ZTVN5torch8autograd12AutogradMetaE", Library::TorchCpu)? + FIRST,
            view_meta: find(c"_ZTVN5torch8autograd22DifferentiableViewMetaE", Library::TorchCpu)? + FIRST,
            node,
            counted: Counted::of_type(node),
        })
    }

    /// What the Python tensors are, in their order.
    ///
    /// # Safety
    /// They must be tensors that are alive; with the GIL held.
    pub(super) unsafe fn of_python(&self, tensors: &[u64]) -> Vec<Implementation> {
        // Up to 2.10 a flag precedes the pointer.
        let pointers = |at: u64| -> Vec<u64> {
            // SAFETY: a tensor's object has at least four words.
            tensors.iter().map(|t| unsafe { read(t + at) }).collect()
        };
        let pages = Pages::default();
        let mut found = self.implementations(&pages, &pointers(16));
        let rest: Vec<usize> =
            (0..found.len()).filter(|&i| found.get(i).is_some_and(|f| f.at == 0)).collect();
        let second = pointers(24);
        let again: Vec<u64> = rest.iter().filter_map(|&i| second.get(i).copied()).collect();
        for (i, known) in rest.into_iter().zip(self.implementations(&pages, &again)) {
            found.get_mut(i).into_iter().for_each(|f| *f = known);
        }
        found
    }

    /// The memory of Python's storages and of DLPack's capsules that nobody has taken, in their order; 0 where it is not known.
    ///
    /// # Safety
    /// They must be storages or capsules that are alive; with the GIL held.
    pub(super) unsafe fn of_storages(&self, storages: &[u64]) -> Vec<u64> {
        // As a tensor's: a flag may precede the pointer. A capsule has a pointer and a name.
        // SAFETY: a storage's object has at least four words, and so has a capsule.
        let at: Vec<u64> = storages.iter().flat_map(|s| unsafe { [read(s + 16), read(s + 24)] }).collect();
        let known = |word: &Option<[u64; 3]>| match word {
            Some([vtable, references, data]) if self.storage.contains(vtable) && *references as u32 != 0 => {
                *data
            }
            _ => 0,
        };
        words::<3>(&at)
            .chunks(2)
            .zip(at.chunks(2))
            .map(|(pair, at)| match (pair.iter().map(known).find(|d| *d != 0), pair, at) {
                (Some(data), ..) => data,
                // What it points to begins with the address of the memory.
                (None, [Some([data, ..]), _], [_, name]) if is_text(*name, b"dltensor\0") => *data,
                _ => 0,
            })
            .collect()
    }

    /// What lies at these addresses, where it is a tensor of C++.
    pub(super) fn implementations(&self, pages: &Pages, at: &[u64]) -> Vec<Implementation> {
        let (mut all, sparse) = self.plain(pages, at);
        let places: Vec<u64> = sparse.iter().map(|(_, address)| address + FIRST_PART).collect();
        let words = pages.words::<WORDS_OF_PARTS>(&places);
        let parts: Vec<u64> = words.into_iter().flat_map(Option::unwrap_or_default).collect();
        // Only what is a tensor is a part.
        let (known, _) = if parts.is_empty() { Default::default() } else { self.plain(pages, &parts) };
        for ((i, _), parts) in sparse.iter().zip(known.chunks(WORDS_OF_PARTS)) {
            let Some(one) = all.get_mut(*i) else { continue };
            let found = parts.iter().map(|p| p.data[0]).filter(|d| *d != 0);
            one.data.iter_mut().zip(found).for_each(|(mine, data)| *mine = data);
        }
        all
    }

    /// The same, without the memory of sparse tensors: where in the list those are, and their addresses.
    fn plain(&self, pages: &Pages, at: &[u64]) -> (Vec<Implementation>, Vec<(usize, u64)>) {
        let mut all = vec![Implementation::default(); at.len()];
        let (places, addresses) = memory::addresses(at);
        let (mut storages, mut sparse) = (Vec::new(), Vec::new());
        for ((i, address), word) in places.iter().zip(&addresses).zip(pages.words::<6>(&addresses)) {
            let (Some([vtable, references, storage, meta, _, counter]), Some(one)) = (word, all.get_mut(*i))
            else {
                continue;
            };
            let is_sparse = vtable != 0 && self.sparse.contains(&vtable);
            if (vtable == self.tensor || is_sparse) && references as u32 != 0 {
                *one = Implementation { at: *address, data: [0; PARTS], meta, counter };
                if is_sparse {
                    sparse.push((*i, *address));
                } else {
                    storages.push((*i, storage));
                }
            }
        }
        let addresses: Vec<u64> = storages.iter().map(|(_, s)| *s).collect();
        for ((i, _), word) in storages.iter().zip(pages.words::<3>(&addresses)) {
            if let (Some([vtable, _, data]), Some(one)) = (word, all.get_mut(*i))
                && self.storage.contains(&vtable)
            {
                one.data[0] = data;
            }
        }
        (all, sparse)
    }

    /// The blocks of each of these tensors, and those of its gradient; 0 where it has none.
    pub(super) fn blocks(&self, pages: &Pages, tensors: &[Implementation]) -> Vec<[[u64; PARTS]; 2]> {
        let gradients = self.gradients(pages, &self.autograd(pages, tensors));
        Implementation::blocks(tensors, &gradients)
    }

    /// How often the memory of each was changed in place, as autograd counts it; `None` where that is not known.
    pub(super) fn versions(&self, pages: &Pages, tensors: &[u64]) -> Vec<Option<u32>> {
        let counters: Vec<u64> = self.implementations(pages, tensors).iter().map(|t| t.counter).collect();
        let version = |word: Option<[u64; 3]>| match word? {
            [vtable, references, version] if vtable != 0 && self.counter.contains(&vtable) => {
                (references as u32 != 0).then_some(version as u32)
            }
            _ => None,
        };
        pages.words::<3>(&counters).into_iter().map(version).collect()
    }

    /// The node that an object of Python's stands for, and what counts the references to it.
    ///
    /// # Safety
    /// It is of a class of nodes, and alive.
    pub(super) unsafe fn node_of(&self, object: u64) -> (u64, u64) {
        let last = self.counted.words() as u64 - 1;
        // SAFETY: the caller's promise; such an object is a reference behind its head.
        self.counted.reference(unsafe { [read(object + 16), read(object + 16 + 8 * last)] })
    }

    /// The gradients of tensors of which autograd says this.
    pub(super) fn gradients(&self, pages: &Pages, tensors: &[Autograd]) -> Vec<Implementation> {
        let gradients: Vec<u64> = tensors.iter().map(|a| a.grad).collect();
        self.implementations(pages, &gradients)
    }

    /// What autograd says of tensors, in their order.
    pub(super) fn autograd(&self, pages: &Pages, tensors: &[Implementation]) -> Vec<Autograd> {
        let metas: Vec<u64> = tensors.iter().map(|t| t.meta).collect();
        let known = |(word, meta): (Option<[u64; 10]>, u64)| {
            let [vtable, name, a, b, c, grad, e, f, g, h] = word?;
            if vtable != self.meta && vtable != self.view_meta {
                return None;
            }
            // A short name lies in the string itself; before the C++11 interface a string was one pointer.
            let own = name == meta + 24 || !is_address(a);
            let [grad, rest @ ..] = if own { [grad, e, f, g, h] } else { [a, b, c, grad, e] };
            let at = |i: usize| [i, i + 1].map(|i| rest.get(i).copied().unwrap_or(0));
            let (node, control) = self.counted.reference(at(0));
            let (accumulator, accumulator_control) = self.counted.reference(at(self.counted.words()));
            Some(Autograd { grad, node, control, accumulator, accumulator_control })
        };
        pages.words::<10>(&metas).into_iter().zip(metas).map(|w| known(w).unwrap_or_default()).collect()
    }
}

/// Which vtables are those of nodes, and of what nodes have for objects of Python's.
#[derive(Default)]
pub(super) struct Nodes {
    nodes: HashMap<u64, bool>,
    pub(super) wrappers: Wrappers,
}

impl Nodes {
    /// Whether objects with this vtable are nodes of a graph: its class descends from `Node`.
    pub(super) fn is_node(&mut self, torch: &Torch, vtable: u64) -> bool {
        *self.nodes.entry(vtable).or_insert_with(|| descends(vtable, torch.node))
    }
}

fn descends(vtable: u64, from: u64) -> bool {
    if !is_address(vtable) {
        return false;
    }
    let Some([mut info]) = memory::at::<1>(vtable - 8) else { return false };
    // Type information: vtable, name, and of a class with one base that base.
    for _ in 0..16 {
        if info == from {
            return true;
        }
        match memory::at::<3>(info) {
            Some([_, _, base]) if is_address(base) => info = base,
            _ => return false,
        }
    }
    false
}
