//! Python's objects, read as they lie: their types, what they refer to, what things are called.
//!
//! Nothing is created, counted or called but `tp_traverse`, which is what the collector itself calls at any time, and of
//! that only CPython's own and the one of autograd's functions: what an extension brings is not entered.

use super::heap::executable;
use crate::platform::memory::{self, read};
use crate::platform::real;
use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_void};

/// What the collector's visits call.
type Visit = extern "C" fn(u64, *mut c_void) -> c_int;
type Traverse = extern "C" fn(u64, Visit, *mut c_void) -> c_int;

// `PyObject`, `PyVarObject`, `PyTypeObject`: the same offsets from 3.9 to 3.15.
pub(super) const TYPE: u64 = 8;
pub(super) const SIZE: u64 = 16;
const TYPE_NAME: u64 = 24;
pub(super) const TYPE_FLAGS: u64 = 168;
const TYPE_TRAVERSE: u64 = 184;
const TYPE_GETSET: u64 = 248;
pub(super) const TYPE_BASE: u64 = 256;
/// `tp_dict`.
pub(super) const TYPE_DICT: u64 = 264;
pub(super) const TYPE_DICT_OFFSET: u64 = 288;
/// How large its objects are, without what varies.
pub(super) const BASIC_SIZE: u64 = 32;
pub(super) const HEAP_TYPE: u64 = 1 << 9;
pub(super) const INLINE_VALUES: u64 = 1 << 2;
pub(super) const MANAGED_DICT: u64 = 1 << 4;
const LIST: u64 = 1 << 25;
const TUPLE: u64 = 1 << 26;
pub(super) const DICT: u64 = 1 << 29;
const TYPE_OBJECT: u64 = 1 << 31;
/// `torch::autograd::THPCppFunction_next_functions`.
const NEXT_FUNCTIONS: &CStr = c"_ZN5torch8autograd29THPCppFunction_next_functionsEP7_objectPv";
/// Longest name that is told.
const LONGEST: usize = 80;

/// The type of an object.
///
/// # Safety
/// `object` must be one that is alive.
#[inline(always)]
pub(super) unsafe fn type_of(object: u64) -> u64 {
    // SAFETY: every object has its type there.
    unsafe { read(object + TYPE) }
}

/// What an object is, for a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// A tensor, of whatever class. It is never entered.
    Tensor,
    /// A module.
    Module,
    /// A class.
    Type,
    /// A Python function.
    Function,
    /// A frame that somebody keeps.
    Frame,
    /// A dictionary or a subclass.
    Dict,
    /// A list or a subclass.
    List,
    /// A tuple or a subclass.
    Tuple,
    /// A set.
    Set,
    /// `collections.deque`.
    Deque,
    /// `torch.UntypedStorage`, or a capsule, which may be one of DLPack's: it is never entered.
    Storage,
    /// A node of a graph, as `tensor.grad_fn` gives it: it is never entered.
    Node,
    /// A generator or a coroutine.
    Generator,
    /// `numpy.ndarray`.
    Array,
    /// An instance of a class written in Python.
    Instance,
    /// Anything else of CPython's own.
    Other,
    /// What an extension brings: not entered.
    Opaque,
}

impl Class {
    /// What grows as things are put into it.
    pub(super) fn is_container(self) -> bool {
        matches!(self, Class::Dict | Class::List | Class::Set | Class::Deque)
    }

    /// What a way down may lead through. The collector itself never enters the classes that are written in C.
    pub(super) fn is_entered(self) -> bool {
        self.is_container()
            || matches!(
                self,
                Class::Tuple
                    | Class::Instance
                    | Class::Other
                    | Class::Frame
                    | Class::Generator
                    | Class::Function
            )
    }
}

/// A type, understood.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    /// What its objects are.
    pub(super) class: Class,
    /// Its `tp_traverse`; 0: its objects refer to nothing.
    pub(super) traverse: u64,
}

/// What is fixed about the running Python, looked up once, off the job's threads.
#[derive(Clone, Debug)]
pub(super) struct Python {
    /// Minor version of CPython 3.
    pub(super) minor: u32,
    pub(super) module: u64,
    pub(super) function: u64,
    frame: u64,
    cell: u64,
    set: u64,
    frozen_set: u64,
    generators: [u64; 3],
    /// Of tuples, where it is known, and of dictionaries.
    pub(super) tuple: u64,
    pub(super) dict: u64,
    /// Of contexts of `contextvars`; 0 where it is not known.
    pub(super) context: u64,
    /// Of code objects, and of what finds a slot of an instance.
    pub(super) code_type: u64,
    pub(super) member: u64,
    /// torch's classes of tensors and (0 where it is not known) of storages, and the one that contexts of autograd functions are made of.
    pub(super) tensor: u64,
    storage: u64,
    /// Of capsules; 0 where it is not known.
    capsule: u64,
    pub(super) autograd: u64,
    /// The function behind the first property of every class of nodes, `next_functions`; 0 where it is not known.
    next_functions: u64,
    /// Code of CPython and of its standard library.
    code: Vec<(u64, u64)>,
    /// `PyImport_GetModuleDict`.
    pub(super) modules: Option<extern "C" fn() -> u64>,
    /// `PyDict_Next`.
    pub(super) next: extern "C" fn(u64, *mut isize, *mut u64, *mut u64) -> c_int,
}

impl Python {
    /// Looks everything up.
    ///
    /// # Errors
    /// Why this Python cannot be asked.
    pub(super) fn look_up(minor: u32) -> Result<Python, String> {
        if !(9..=15).contains(&minor) {
            return Err(format!("Python 3.{minor} is not known to the probe"));
        }
        let find = |name: &CStr| match real::python(name) as u64 {
            0 => Err(format!("this Python does not export {}", name.to_string_lossy())),
            address => Ok(address),
        };
        // The variables hold the classes once torch's Python part is imported.
        let class = |name: &CStr| {
            let variable = real::look_up(name, real::Library::TorchPython) as u64;
            // SAFETY: an exported variable of the size of a pointer, in a library that stays loaded.
            let class = if variable == 0 { 0 } else { unsafe { read(variable) } };
            if class == 0 {
                Err("this process has no PyTorch classes to look for".to_string())
            } else {
                Ok(class)
            }
        };
        let code = code_of_python(find(c"PyDict_Next")?);
        let types = [c"PyType_Type", c"PyDict_Type", c"PyLong_Type", c"PyBool_Type"].map(find);
        let [Ok(kind), Ok(dict), Ok(long), Ok(bool)] = types else {
            return Err("this Python does not export its own types".into());
        };
        // SAFETY: four static types of CPython, larger than what is read of them, and the dictionary of one of them.
        if !unsafe { is_laid_out(&code, kind, dict, long, bool) } {
            return Err("the objects of this Python are not laid out as in CPython's own builds".into());
        }
        // The class for scripts, and the contexts that nodes keep, have a base in common: the one that torch wrote in C.
        let mut autograd = class(c"THPFunctionClass")?;
        // SAFETY: a class that torch keeps; its bases are alive as long as it is, and the last of them is `object`.
        unsafe {
            while read(autograd + TYPE_BASE) != 0 && read(read(autograd + TYPE_BASE) + TYPE_BASE) != 0 {
                autograd = read(autograd + TYPE_BASE);
            }
        }
        // SAFETY: this function has had this type in every version that is known.
        let next = unsafe {
            core::mem::transmute::<u64, extern "C" fn(u64, *mut isize, *mut u64, *mut u64) -> c_int>(find(
                c"PyDict_Next",
            )?)
        };
        Ok(Python {
            minor,
            module: find(c"PyModule_Type")?,
            function: find(c"PyFunction_Type")?,
            frame: find(c"PyFrame_Type")?,
            cell: find(c"PyCell_Type")?,
            set: find(c"PySet_Type")?,
            frozen_set: find(c"PyFrozenSet_Type")?,
            generators: [find(c"PyGen_Type")?, find(c"PyCoro_Type")?, find(c"PyAsyncGen_Type")?],
            code_type: find(c"PyCode_Type")?,
            member: find(c"PyMemberDescr_Type")?,
            tuple: find(c"PyTuple_Type").unwrap_or(0),
            dict,
            context: find(c"PyContext_Type").unwrap_or(0),
            storage: class(c"THPStorageClass").unwrap_or(0),
            capsule: find(c"PyCapsule_Type").unwrap_or(0),
            modules: find(c"PyImport_GetModuleDict").ok().map(|f| {
                // SAFETY: this function has had this type in every version that is known.
                unsafe { core::mem::transmute::<u64, extern "C" fn() -> u64>(f) }
            }),
            tensor: class(c"THPVariableClass")?,
            autograd,
            next_functions: real::look_up(NEXT_FUNCTIONS, real::Library::TorchPython) as u64,
            code,
            next,
        })
    }

    /// Understands a type.
    ///
    /// # Safety
    /// `kind` must be a type that is alive; with the GIL held.
    pub(super) unsafe fn kind(&self, kind: u64) -> Kind {
        // SAFETY: a type has these fields, and its bases are alive as long as it is.
        unsafe {
            let flags = read(kind + TYPE_FLAGS);
            let (mut is_tensor, mut is_storage, mut is_function, mut foreign) = (false, false, false, false);
            let mut base = kind;
            for _ in 0..64 {
                is_tensor |= base == self.tensor;
                is_storage |= base == self.storage;
                is_function |= base == self.autograd;
                let traverse = read(base + TYPE_TRAVERSE);
                let own =
                    traverse == 0 || self.code.iter().any(|(from, to)| (*from..*to).contains(&traverse));
                foreign |= !own && base != self.autograd;
                base = read(base + TYPE_BASE);
                if base == 0 {
                    break;
                }
            }
            let class = match kind {
                _ if is_tensor => Class::Tensor,
                _ if is_storage => Class::Storage,
                k if k == self.capsule => Class::Storage,
                k if foreign && self.is_of_nodes(k) => Class::Node,
                _ if foreign && !is_function => Class::Opaque,
                k if k == self.module => Class::Module,
                k if k == self.function => Class::Function,
                k if k == self.frame => Class::Frame,
                k if self.generators.contains(&k) => Class::Generator,
                k if k == self.set || k == self.frozen_set => Class::Set,
                _ if flags & TYPE_OBJECT != 0 => Class::Type,
                _ if flags & DICT != 0 => Class::Dict,
                _ if flags & LIST != 0 => Class::List,
                _ if flags & TUPLE != 0 => Class::Tuple,
                k if self.is_deque(k) => Class::Deque,
                k if self.full_name(k) == c"numpy.ndarray" => Class::Array,
                _ if flags & HEAP_TYPE != 0 => Class::Instance,
                _ => Class::Other,
            };
            Kind { class, traverse: read(kind + TYPE_TRAVERSE) }
        }
    }

    /// Whether a class is one of those that torch makes for nodes written in C++.
    ///
    /// # Safety
    /// `kind` must be a type that is alive.
    unsafe fn is_of_nodes(&self, kind: u64) -> bool {
        // SAFETY: the caller's promise; what may be no pointer is copied by the kernel.
        let first = memory::at::<2>(unsafe { read(kind + TYPE_GETSET) });
        first.is_some_and(|[_, get]| get != 0 && get == self.next_functions)
    }

    /// What a type is called, without its module.
    ///
    /// # Safety
    /// `kind` must be a type that is alive.
    pub(super) unsafe fn type_name(&self, kind: u64) -> String {
        // SAFETY: the caller's promise.
        let name = unsafe { self.full_name(kind) }.to_string_lossy();
        plain(name.rsplit('.').next().unwrap_or_default().as_bytes())
    }

    /// What a type is called; of one that is written in C, with its module.
    ///
    /// # Safety
    /// As [`Python::type_name`]; it is used no longer than that.
    pub(super) unsafe fn full_name<'a>(&self, kind: u64) -> &'a CStr {
        // SAFETY: `tp_name` is a C string that lives as long as the type.
        unsafe { CStr::from_ptr(read(kind + TYPE_NAME) as *const _) }
    }

    /// How many things are in a container; `None` where it is none.
    ///
    /// # Safety
    /// `object` must be alive, and of this class.
    pub(super) unsafe fn entries(&self, object: u64, class: Class) -> Option<u64> {
        const SET_USED: u64 = 24;
        if matches!(class, Class::Instance | Class::Other) {
            // SAFETY: the caller's promise.
            return unsafe { self.wrapped(object) };
        }
        let at = match class {
            Class::Dict | Class::List | Class::Tuple | Class::Deque => SIZE,
            Class::Set => SET_USED,
            _ => return None,
        };
        // SAFETY: the caller's promise; these classes count there.
        Some(unsafe { read(object + at) })
    }

    /// Every key and value of a dictionary, until `each` says `false`.
    ///
    /// # Safety
    /// `dict` must be a dictionary that is alive; with the GIL held.
    pub(super) unsafe fn items(&self, dict: u64, mut each: impl FnMut(u64, u64) -> bool) {
        let (mut at, mut key, mut value) = (0, 0, 0);
        while (self.next)(dict, &mut at, &mut key, &mut value) != 0 && each(key, value) {}
    }

    /// The text of a string of ASCII characters; `?` for any other object.
    ///
    /// # Safety
    /// `string` must be an object that is alive, or null.
    pub(super) unsafe fn text(&self, string: u64) -> String {
        // SAFETY: the caller's promise.
        unsafe { self.ascii(string) }.map_or_else(|| "?".into(), plain)
    }

    /// The characters of a string, where all of them are ASCII. A module that was made without its name has none.
    ///
    /// # Safety
    /// `string` must be an object that is alive, as long as the result is used, or null.
    pub(super) unsafe fn ascii<'a>(&self, string: u64) -> Option<&'a [u8]> {
        const UNICODE: u64 = 1 << 28;
        const STATE: u64 = 32;
        const COMPACT_ASCII: u64 = 0x60;
        let data = string + if self.minor >= 12 { 40 } else { 48 };
        // SAFETY: a string has these fields, and as many characters as it says behind them where it is compact and ASCII.
        unsafe {
            let is_string = string != 0 && read(type_of(string) + TYPE_FLAGS) & UNICODE != 0;
            let is_ascii = is_string && read(string + STATE) & COMPACT_ASCII == COMPACT_ASCII;
            is_ascii.then(|| core::slice::from_raw_parts(data as *const u8, read(string + SIZE) as usize))
        }
    }

    /// Whether an object is a cell, which variables of closures live in.
    ///
    /// # Safety
    /// `object` must be alive.
    pub(super) unsafe fn is_cell(&self, object: u64) -> bool {
        // SAFETY: the caller's promise.
        unsafe { type_of(object) == self.cell }
    }

    /// What is in a cell; `None` where that is nothing, or the object is no cell.
    ///
    /// # Safety
    /// `object` must be alive; with the GIL held.
    pub(super) unsafe fn in_cell(&self, object: u64) -> Option<u64> {
        const VALUE: u64 = 16;
        // SAFETY: the caller's promise; a cell has its value there, or null.
        unsafe { self.is_cell(object).then(|| read(object + VALUE)).filter(|value| *value != 0) }
    }
}

/// Mixes an address.
#[derive(Clone, Copy, Default)]
pub(super) struct Mix(u64);

impl std::hash::Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u64(u64::from(*b)));
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A map by address.
pub(super) type Map<V> = HashMap<u64, V, std::hash::BuildHasherDefault<Mix>>;

/// Hands out what an object refers to, as the collector sees it.
///
/// # Safety
/// `object` must be a tracked object that is alive and of this kind; with the GIL held and the collector not at work.
pub(super) unsafe fn references<F: FnMut(u64)>(object: u64, kind: Kind, each: &mut F) {
    extern "C" fn visit<F: FnMut(u64)>(child: u64, each: *mut c_void) -> c_int {
        // SAFETY: the closure that `references` passes, which is alive and used by nobody else during the call.
        unsafe { (*each.cast::<F>())(child) };
        0
    }
    if kind.traverse == 0
        || matches!(kind.class, Class::Opaque | Class::Tensor | Class::Storage | Class::Node)
    {
        return;
    }
    // SAFETY: this is the type's own function, of CPython or of autograd's functions (`kind`): it hands every reference to
    // the visitor, changes nothing, and is called by the collector in the same situation.
    unsafe {
        let traverse = core::mem::transmute::<u64, Traverse>(kind.traverse);
        traverse(object, visit::<F>, (&raw mut *each).cast());
    }
}

/// Whether what is known of types lies where it is read: names, flags, functions, bases and dictionaries.
///
/// # Safety
/// The addresses of the types of types, dictionaries, integers and truth values.
unsafe fn is_laid_out(code: &[(u64, u64)], kind: u64, dict: u64, long: u64, bool: u64) -> bool {
    const LONG: u64 = 1 << 24;
    // SAFETY: the caller's promise. What may be no pointer is copied by the kernel.
    unsafe {
        let flags = |t: u64| read(t + TYPE_FLAGS) & (LONG | LIST | TUPLE | DICT | TYPE_OBJECT);
        let traverse = read(dict + TYPE_TRAVERSE);
        let own = read(dict + TYPE_DICT);
        [kind, dict, long, bool].into_iter().all(|t| type_of(t) == kind)
            && memory::is_text(read(dict + TYPE_NAME), b"dict\0")
            && (flags(dict), flags(bool), flags(kind)) == (DICT, LONG, TYPE_OBJECT)
            && read(bool + TYPE_BASE) == long
            && code.iter().any(|(from, to)| (*from..*to).contains(&traverse))
            && memory::at::<2>(own).is_none_or(|[_, t]| t == dict)
    }
}

/// Where the code of CPython lies, and that of its standard library's modules: what the kernel says of this process.
fn code_of_python(inside: u64) -> Vec<(u64, u64)> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let all: Vec<(u64, u64, &str)> = maps.lines().filter_map(executable).collect();
    let own = all.iter().find(|(from, to, _)| (*from..*to).contains(&inside)).map_or("", |m| m.2);
    let ours = |path: &str| !own.is_empty() && path == own || path.contains("/lib-dynload/");
    all.iter().filter(|m| ours(m.2)).map(|m| (m.0, m.1)).collect()
}

/// Letters, digits and what else is in names; anything else would be no name.
fn plain(text: &[u8]) -> String {
    let is_plain = |b: &u8| b.is_ascii_alphanumeric() || b"_.<>".contains(b);
    text.iter().take(LONGEST).map(|b| if is_plain(b) { char::from(*b) } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_and_names_are_read() {
        let line = "55d0c8a00000-55d0c8c00000 r-xp 00001000 fe:00 42    /usr/bin/python3.11";
        assert_eq!(executable(line), Some((0x55d0_c8a0_0000, 0x55d0_c8c0_0000, "/usr/bin/python3.11")));
        assert_eq!(executable("1000-2000 rw-p 00000000 00:00 0"), None);
        assert_eq!(executable("1000-2000 r-xp 00000000 00:00 0"), None, "no file");
        assert_eq!(plain(b"f.<locals>.g key=\xff"), "f.<locals>.g?key??");
    }
}
