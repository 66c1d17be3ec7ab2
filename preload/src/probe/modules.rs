//! PyTorch's modules: what a module calls its submodules, which are no attributes of it to Python, and the containers of modules and of
//! parameters, which are what grows where ever more of them are added.

use super::objects::{HEAP_TYPE, Python, TYPE_FLAGS, type_of};
use crate::platform::memory::{is_address, read};

/// Where these containers are from.
const CONTAINERS: &[u8] = b"torch.nn.modules.container";
const MODULE: &[u8] = b"torch.nn.modules.module";
/// Bases of a class that are looked at.
const BASES: u64 = 64;

/// What a container of this name has its entries in.
fn inside(name: &str) -> Option<&'static str> {
    match name {
        "ModuleDict" | "ModuleList" | "Sequential" => Some("_modules"),
        "ParameterDict" | "ParameterList" => Some("_parameters"),
        _ => None,
    }
}

/// `tp_mro`: a class and all that it is made from, of several bases as well.
const TYPE_MRO: u64 = 344;

impl Python {
    /// The dictionary that a container of modules or parameters has its entries in; `None` where it is no such container.
    ///
    /// # Safety
    /// `object` must be alive; with the GIL held. What is returned is alive as long as it has it.
    pub(super) unsafe fn in_modules(&self, object: u64) -> Option<u64> {
        // SAFETY: the caller's promise, and a class is alive as long as one that is made from it.
        unsafe {
            let is_it = |class| inside(&self.type_name(class)).filter(|_| self.is_of(class, CONTAINERS));
            let attribute = self.bases(type_of(object)).find_map(is_it)?;
            self.dict_in(object, attribute)
        }
    }

    /// The dictionary of the submodules of a module that calls them by names of the program's own; `None` where it is no such module.
    /// A container's are called by keys, which are values.
    ///
    /// # Safety
    /// As [`Python::in_modules`].
    pub(super) unsafe fn submodules(&self, module: u64) -> Option<u64> {
        // SAFETY: the caller's promise, and a class is alive as long as one that is made from it.
        unsafe {
            let is_module = |class| self.type_name(class) == "Module" && self.is_of(class, MODULE);
            if !self.bases(type_of(module)).any(is_module) || self.in_modules(module).is_some() {
                return None;
            }
            self.dict_in(module, "_modules")
        }
    }

    /// A class and what it is made from, as far as these are written in Python.
    ///
    /// # Safety
    /// `class` must be a class that is alive as long as the result is used.
    unsafe fn bases(&self, class: u64) -> impl Iterator<Item = u64> {
        // SAFETY: the caller's promise; a class that is ready has a tuple there, and what is in that are classes.
        unsafe {
            let all = read(class + TYPE_MRO);
            let is_one = is_address(all) && self.tuple != 0 && type_of(all) == self.tuple;
            let bases = (0..BASES).take_while(move |_| is_one).map_while(move |i| self.entry(all, i));
            bases.filter(|base| read(base + TYPE_FLAGS) & HEAP_TYPE != 0)
        }
    }

    /// Whether a class says that it is of this module.
    ///
    /// # Safety
    /// As [`Python::in_modules`].
    unsafe fn is_of(&self, class: u64, module: &[u8]) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.module_of_class(class) == Some(module) }
    }

    /// The submodule of a module for which `is` says so, by its name and itself.
    ///
    /// # Safety
    /// As [`Python::in_modules`].
    pub(super) unsafe fn submodule(&self, module: u64, is: impl Fn(&str, u64) -> bool) -> Option<u64> {
        let mut found = None;
        // SAFETY: the caller's promise; what a dictionary has is alive, and its keys are.
        unsafe {
            let all = self.submodules(module)?;
            self.items(all, |key, value| {
                found = is(&self.text(key), value).then_some(value);
                found.is_none()
            });
        }
        found
    }

    /// The dictionary that an attribute of an instance is.
    ///
    /// # Safety
    /// As [`Python::in_modules`].
    unsafe fn dict_in(&self, object: u64, attribute: &str) -> Option<u64> {
        let mut found = 0;
        // SAFETY: the caller's promise; what an attribute has is alive.
        unsafe {
            self.attributes(object, |name, value| {
                if self.ascii(name) == Some(attribute.as_bytes()) {
                    found = value;
                }
                found == 0
            });
            (is_address(found) && self.is_dict(found)).then_some(found)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_have_their_entries_where_they_are_counted() {
        assert_eq!((inside("ModuleDict"), inside("ParameterList")), (Some("_modules"), Some("_parameters")));
        assert_eq!(inside("Module"), None);
    }
}
