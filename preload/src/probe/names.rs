//! Where a name stands in a program's source: the attribute or variable, and the class, module or function that has it. Names and files,
//! never values.

use super::frames::Variable;
use super::layout::{MODULE_DICT, in_function, module_name, tuple_items};
use super::objects::{HEAP_TYPE, Python, SIZE, TYPE_BASE, TYPE_DICT, TYPE_FLAGS, type_of};
use crate::platform::memory::is_address;
use crate::platform::memory::read;
use crate::python::packages;
use serde_json::{Value, json};

/// Longest path that is told.
const LONGEST: u64 = 1_024;
/// Entries of a class or a module that are looked through for one of them.
const ENTRIES: u32 = 4_096;
/// Classes that only wrap what somebody keeps: the name that says more is the one of whoever has them.
const WRAPPERS: [&str; 7] =
    ["queue", "asyncio.queues", "collections", "contextlib", "cachetools", "weakref", "_weakrefset"];
const WRAPPING_ROOMS: [&str; 5] =
    ["torch.nn.", "torch.optim.", "IPython.", "ipykernel.", "sortedcontainers."];

/// Public attributes of PyTorch's optimizers that have tensors.
const OF_OPTIMIZERS: [&str; 2] = ["state", "param_groups"];

/// Whether it is a module of Python's library, or like it, whose classes only wrap what somebody keeps.
pub(super) fn is_wrapping(module: &[u8]) -> bool {
    WRAPPERS.iter().any(|w| w.as_bytes() == module)
}

/// Where a name stands. What is not known is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Scope {
    /// The attribute or variable.
    pub(super) variable: String,
    /// Of an attribute: the class.
    pub(super) class: Option<String>,
    /// Of a global or a class: the module.
    pub(super) module: Option<String>,
    /// Of a local: the function's qualified name.
    pub(super) function: Option<String>,
    /// The file, as Python has it.
    pub(super) file: Option<String>,
    /// The function's first line.
    pub(super) line: Option<u32>,
}

impl Scope {
    /// As the answer has it; `kind`: what kind of a place it is.
    pub(super) fn to_json(&self, kind: &str) -> Value {
        json!({
            "kind": kind, "variable": self.variable, "class": self.class, "module": self.module,
            "function": self.function, "file": self.file, "line": self.line,
        })
    }

    /// It stands in the user's own code, and not in that of an installed package or of Python's library.
    pub(super) fn is_of_user(&self) -> bool {
        self.file.as_deref().is_some_and(is_file_of_user)
    }

    /// The class is one that only wraps what somebody keeps, and the attribute is its own: scripts give modules and optimizers others.
    pub(super) fn is_wrapper(&self) -> bool {
        let is_own = || self.variable.starts_with('_') || OF_OPTIMIZERS.contains(&self.variable.as_str());
        let is = |m: &str| {
            is_wrapping(m.as_bytes())
                || WRAPPING_ROOMS.iter().any(|w| m.starts_with(w)) && (!m.starts_with("torch.") || is_own())
        };
        self.class.is_some() && self.module.as_deref().is_some_and(is)
    }
}

fn is_file_of_user(file: &str) -> bool {
    !file.starts_with("<frozen ") && !packages::have(file)
}

/// Where a code object of a version keeps what is read of it: file, name, first line, number of arguments.
fn in_code(minor: u32) -> (u64, u64, u64, u64) {
    match minor {
        ..=10 => (104, 112, 40, 16),
        11 => (112, 128, 72, 56),
        _ => (112, 128, 68, 52),
    }
}

/// Up to 3.10: the tuples of the names of a code's variables, in the order in which a frame has those, and how many each names: its own
/// variables, those that functions in it close over, and those that it closes over itself.
///
/// # Safety
/// `code` must be a code object that is alive.
unsafe fn old_variables(code: u64) -> [(u64, u64); 3] {
    [72, 88, 80].map(|at| {
        // SAFETY: the caller's promise; a code object has these fields, which are tuples.
        unsafe {
            let names = read(code + at);
            (names, if is_address(names) { read(names + SIZE) } else { 0 })
        }
    })
}

/// The same: where the name of one is, as a tuple and a place in it.
///
/// # Safety
/// As [`old_variables`].
unsafe fn old_variable(code: u64, at: u64) -> (u64, u64) {
    let mut before = 0;
    // SAFETY: the caller's promise.
    for (names, count) in unsafe { old_variables(code) } {
        if at < before + count {
            return (names, at - before);
        }
        before += count;
    }
    (0, 0)
}

impl Python {
    /// A variable of a function's code.
    ///
    /// # Safety
    /// `code` must be an object that is alive, or no address.
    pub(super) unsafe fn scope_in_code(&self, code: u64, variable: String) -> Scope {
        // SAFETY: the caller's promise; a code object has these fields.
        unsafe {
            if !is_address(code) || type_of(code) != self.code_type {
                return Scope { variable, ..Scope::default() };
            }
            let (file, name, line, _) = in_code(self.minor);
            Scope {
                variable,
                function: Some(self.text(read(code + name))),
                file: self.path(read(code + file)),
                line: Some(read(code + line) as u32),
                ..Scope::default()
            }
        }
    }

    /// Whether code is the user's own, and not that of an installed package or of Python's library.
    ///
    /// # Safety
    /// As [`Python::scope_in_code`].
    pub(super) unsafe fn is_of_user(&self, code: u64) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.scope_in_code(code, String::new()) }.is_of_user()
    }

    /// The code of a function.
    ///
    /// # Safety
    /// `function` must be a function that is alive.
    pub(super) unsafe fn code_of(&self, function: u64) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { read(function + if self.minor >= 10 { 48 } else { 16 }) }
    }

    /// A function's qualified name (`__qualname__`).
    ///
    /// # Safety
    /// `function` must be a function that is alive.
    pub(super) unsafe fn qualname_of(&self, function: u64) -> String {
        // SAFETY: the caller's promise; a function has its name.
        unsafe { self.text(read(function + in_function(self.minor).name)) }
    }

    /// The tuple of the cells that a function has closed over; 0: none.
    ///
    /// # Safety
    /// `function` must be a function that is alive.
    pub(super) unsafe fn closure_of(&self, function: u64) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { read(function + in_function(self.minor).closure) }
    }

    /// The name of the variable that a function has closed over as its `i`th.
    ///
    /// # Safety
    /// `code` must be a code object that is alive.
    pub(super) unsafe fn free_variable(&self, code: u64, i: u64) -> Option<String> {
        // SAFETY: the caller's promise; `entry` looks at the tuple's length.
        unsafe {
            let (names, i) = match self.minor {
                ..=10 => (read(code + 80), i),
                minor => {
                    let (count, free) = if minor == 11 { (76, 92) } else { (72, 88) };
                    let (count, free) = (read(code + count) as u32, read(code + free) as u32);
                    (read(code + 96), u64::from(count.checked_sub(free)?) + i)
                }
            };
            self.entry(names, i).map(|name| self.text(name))
        }
    }

    /// How many variables a function's code has.
    ///
    /// # Safety
    /// `code` must be a code object that is alive.
    pub(super) unsafe fn variables(&self, code: u64) -> u64 {
        // SAFETY: the caller's promise; a code object has these fields.
        unsafe {
            match self.minor {
                ..=10 => old_variables(code).into_iter().map(|(_, count)| count).sum(),
                11 => u64::from(read(code + 76) as u32),
                _ => u64::from(read(code + 72) as u32),
            }
        }
    }

    /// What a variable is called.
    ///
    /// # Safety
    /// Its code must be alive.
    pub(super) unsafe fn variable(&self, v: Variable) -> String {
        // SAFETY: the caller's promise; what a tuple has is alive.
        unsafe {
            let (names, at) = match self.minor {
                ..=10 => old_variable(v.code, v.at()),
                _ => (read(v.code + 96), v.at()),
            };
            self.entry(names, at).map_or_else(|| "?".into(), |name| self.text(name))
        }
    }

    /// The name of the argument that has the `i`th of `count` defaults.
    ///
    /// # Safety
    /// As [`Python::free_variable`].
    pub(super) unsafe fn argument(&self, code: u64, i: u64, count: u64) -> Option<String> {
        // SAFETY: as above.
        unsafe {
            let arguments = u64::from(read(code + in_code(self.minor).3) as u32);
            let names = read(code + if self.minor >= 11 { 96 } else { 72 });
            self.entry(names, (arguments + i).checked_sub(count)?).map(|name| self.text(name))
        }
    }

    /// An entry of a tuple.
    ///
    /// # Safety
    /// `tuple` must be a tuple that is alive, or no address.
    pub(super) unsafe fn entry(&self, tuple: u64, i: u64) -> Option<u64> {
        let items = tuple_items(self.minor);
        // SAFETY: the caller's promise, and the tuple has more than `i` entries.
        unsafe { (is_address(tuple) && i < read(tuple + SIZE)).then(|| read(tuple + items + 8 * i)) }
    }

    /// The variables that a function has closed over: which one, its cell, and its value, where it has one.
    ///
    /// # Safety
    /// `closure` must be null or a tuple that is alive; with the GIL held.
    pub(super) unsafe fn closed_over(&self, closure: u64) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        // SAFETY: the caller's promise; what a tuple has is alive.
        let cells = (0..).map_while(move |i| Some((i, unsafe { self.entry(closure, i)? })));
        // SAFETY: as above.
        cells.filter_map(|(i, cell)| Some((i, cell, unsafe { self.in_cell(cell)? })))
    }

    /// Where a class stands: a scope of no variable yet.
    ///
    /// # Safety
    /// `class` must be a class that is alive; with the GIL held.
    pub(super) unsafe fn scope_in_class(&self, class: u64) -> Scope {
        let mut scope = Scope::default();
        // SAFETY: the caller's promise; a class refers to its dictionary, that to its functions, and those to their code.
        unsafe {
            scope.class = Some(self.type_name(class));
            let dict = read(class + TYPE_DICT);
            if !is_address(dict) || !self.is_dict(dict) {
                return scope;
            }
            let (mut left, mut of_function, mut last) = (ENTRIES, None, 0);
            self.items(dict, |key, value| {
                left -= 1;
                // Of a dataclass some are Python's own library's.
                if self.is_function(value) && of_function.is_none() {
                    let code = self.code_of(value);
                    let is_code = is_address(code) && type_of(code) == self.code_type;
                    let file = if is_code { read(code + in_code(self.minor).0) } else { last };
                    // Most functions of a class are of one file.
                    if file != last {
                        of_function = self.path(file).filter(|f| is_file_of_user(f) && !f.starts_with('<'));
                        last = file;
                    }
                }
                if scope.module.is_none() && self.ascii(key) == Some(b"__module__") {
                    scope.module = self.path(value);
                }
                left > 0
            });
            let of_module = || scope.module.as_deref().and_then(|m| self.file_of_module(m));
            scope.file = of_function.or_else(of_module);
        }
        scope
    }

    /// The module that a class which is written in Python says that it is of.
    ///
    /// # Safety
    /// As [`Python::scope_in_class`]; the text is used no longer than the class is alive.
    pub(super) unsafe fn module_of_class<'a>(&self, class: u64) -> Option<&'a [u8]> {
        let mut module = None;
        // SAFETY: the caller's promise; such a class has its dictionary.
        unsafe {
            let dict = if read(class + TYPE_FLAGS) & HEAP_TYPE != 0 { read(class + TYPE_DICT) } else { 0 };
            if is_address(dict) {
                self.items(dict, |key, value| {
                    if self.ascii(key) == Some(b"__module__") {
                        module = self.ascii(value);
                    }
                    module.is_none()
                });
            }
        }
        module
    }

    /// A global of a module whose dictionary this is.
    ///
    /// # Safety
    /// `dict` must be a dictionary that is alive, or no address; with the GIL held.
    pub(super) unsafe fn scope_in_module(&self, dict: u64, variable: String) -> Scope {
        let mut scope = Scope { variable, ..Scope::default() };
        if !is_address(dict) {
            return scope;
        }
        let mut left = ENTRIES;
        // SAFETY: the caller's promise.
        unsafe {
            self.items(dict, |key, value| {
                left -= 1;
                match self.ascii(key) {
                    Some(b"__name__") => scope.module = self.path(value),
                    Some(b"__file__") => scope.file = self.path(value),
                    _ => {}
                }
                left > 0 && (scope.module.is_none() || scope.file.is_none())
            });
        }
        scope
    }

    /// The dictionary of a module that is imported, by its name.
    ///
    /// # Safety
    /// With the GIL held.
    pub(super) unsafe fn module_dict(&self, name: &str) -> Option<u64> {
        let all = (self.modules?)();
        let mut found = None;
        // SAFETY: the dictionary of all modules is alive as long as the interpreter is; what is read of a module it has.
        unsafe {
            if !is_address(all) {
                return None;
            }
            self.items(all, |key, module| {
                let is_named = |string| self.ascii(string) == Some(name.as_bytes());
                let is_it = self.is_module(module)
                    && is_named(key)
                    && is_named(read(module + module_name(self.minor)));
                if is_it {
                    found = Some(read(module + MODULE_DICT));
                }
                !is_it
            });
        }
        found
    }

    unsafe fn file_of_module(&self, name: &str) -> Option<String> {
        // SAFETY: the caller's promise, and a module that is imported has its dictionary.
        unsafe { self.module_dict(name).and_then(|dict| self.scope_in_module(dict, String::new()).file) }
    }

    /// A string as it is, where it could be a path or a module's name: ASCII that can be printed, and not too long.
    ///
    /// # Safety
    /// `string` must be an object that is alive.
    pub(super) unsafe fn path(&self, string: u64) -> Option<String> {
        // SAFETY: the caller's promise.
        let bytes = unsafe { self.ascii(string) }.filter(|b| b.len() as u64 <= LONGEST)?;
        let is_plain = bytes.iter().all(|b| (0x20..0x7f).contains(b));
        is_plain.then(|| String::from_utf8_lossy(bytes).into_owned())
    }

    /// Whether a class, or one that it is made from, is of such a module.
    ///
    /// # Safety
    /// `class` must be a class that is alive; with the GIL held.
    pub(super) unsafe fn descends(&self, class: u64, is: impl Fn(&[u8]) -> bool) -> bool {
        let mut class = class;
        for _ in 0..32 {
            // SAFETY: a class refers to its base.
            unsafe {
                if class == 0 {
                    return false;
                }
                if self.module_of_class(class).is_some_and(&is) {
                    return true;
                }
                class = read(class + TYPE_BASE);
            }
        }
        false
    }

    /// Whose an attribute is: an optimizer's or a module's, by the classes that its owner's class descends from.
    ///
    /// # Safety
    /// `class` must be a class that is alive; with the GIL held.
    pub(super) unsafe fn part_in_training(&self, class: u64, attribute: &str) -> Option<&'static str> {
        let (base, module, owner) = match attribute {
            "state" | "param_groups" => ("Optimizer", "torch.optim.optimizer", "optimizer"),
            "_parameters" | "_buffers" => ("Module", "torch.nn.modules.module", "module"),
            _ => return None,
        };
        let mut class = class;
        for _ in 0..32 {
            // SAFETY: a class refers to its base.
            unsafe {
                if class == 0 {
                    return None;
                }
                if self.type_name(class) == base && self.module_of_class(class) == Some(module.as_bytes()) {
                    return Some(owner);
                }
                class = read(class + TYPE_BASE);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_old_code_have_three_tuples_of_names() {
        // References, type, size: all that is looked at.
        let tuples = [2u64, 1, 3].map(|size| [1, 0, size, 0]);
        let [own, free, cells] = [0, 1, 2].map(|i| tuples[i].as_ptr() as u64);
        let mut code = [0u64; 22];
        (code[9], code[10], code[11]) = (own, free, cells);
        let code = std::hint::black_box(&code).as_ptr() as u64;
        // SAFETY: the words of a code object that are read.
        let (all, named) =
            unsafe { (old_variables(code), [0, 1, 2, 4, 5, 6].map(|i| old_variable(code, i))) };
        assert_eq!(all, [(own, 2), (cells, 3), (free, 1)]);
        assert_eq!(named, [(own, 0), (own, 1), (cells, 0), (cells, 2), (free, 0), (0, 0)]);
    }

    #[test]
    fn what_only_wraps_is_told_from_what_keeps() {
        let of = |module: &str| Scope {
            class: Some("X".into()),
            module: Some(module.into()),
            variable: "_has".into(),
            ..Scope::default()
        };
        assert!(!Scope { variable: "seen".into(), ..of("torch.nn.modules.linear") }.is_wrapper());
        assert!(Scope { variable: "state".into(), ..of("torch.optim.sgd") }.is_wrapper());
        assert!(Scope { variable: "queue".into(), ..of("queue") }.is_wrapper());
        for module in ["queue", "torch.nn.modules.container", "torch.optim.adamw", "collections"] {
            assert!(of(module).is_wrapper(), "{module}");
        }
        for module in ["__main__", "queues", "torch.fx", "my.torch.nn.x"] {
            assert!(!of(module).is_wrapper(), "{module}");
        }
        assert!(!Scope { class: None, ..of("queue") }.is_wrapper(), "a global of it");
        let at = |file: &str| Scope { file: Some(file.into()), ..Scope::default() };
        assert!(at("/home/me/train.py").is_of_user() && at("<string>").is_of_user());
        assert!(!at("/v/lib/python3.11/contextlib.py").is_of_user() && !Scope::default().is_of_user());
        assert_eq!(of("m").to_json("attribute")["class"], "X");
    }
}
