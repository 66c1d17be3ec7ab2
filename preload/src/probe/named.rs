//! Something with a name, below which blocks are: what kind of place it is, and how it reads.

use super::bound::Bound;
use super::frames::Variable;
use super::names::Scope;
use super::objects::{Class, Kind, type_of};
use super::remembered::Remembered;
use super::types::Types;
use super::world::World;
use strandline_core::event::named;

named! {
    /// What kind of a place a name is, as the answer has it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(super) enum Rank {
        /// An attribute of an instance.
        Attribute = "attribute",
        /// A global of a module.
        Global = "global",
        /// An attribute of a class.
        OfClass = "class",
        /// A variable that a function has closed over.
        Closure = "closure",
        /// A context variable of `contextvars`.
        Context = "context",
        /// The default of an argument, an attribute of a function, or the hooks of a tensor, a module or an optimizer: what a hook has in a name
        /// of its own is called by that.
        Default = "default",
        /// A local variable.
        Local = "local",
        /// A local variable of a generator.
        Generator = "generator",
        /// A local variable of a frame that runs no more, and is kept by a traceback.
        Frame = "frame",
    }
}

impl Rank {
    /// What has such a name is no garbage, whatever cycles it is in.
    pub(super) fn is_root(self) -> bool {
        matches!(self, Rank::Global | Rank::OfClass | Rank::Context | Rank::Local)
    }
}

/// Something with a name, below which samples are.
#[derive(Clone, Debug)]
pub(super) struct Named {
    /// The name: types and attributes, never values.
    pub(super) place: String,
    /// Where the name stands.
    pub(super) scope: Scope,
    /// What kind of place.
    pub(super) rank: Rank,
    /// What the name stands for.
    pub(super) object: Remembered,
    /// What has it under this name, and the type of that; nothing of a running function's local variable.
    pub(super) owner: Remembered,
    pub(super) owner_kind: u64,
    /// Its type.
    pub(super) kind: String,
    /// How many things are in it, where it is a container, and where it ends.
    pub(super) entries: Option<u64>,
    pub(super) bound: Option<Bound>,
    /// It is an optimizer's or a module's.
    pub(super) part: Option<&'static str>,
    /// It is a container of modules or of parameters.
    pub(super) has_modules: bool,
    /// Samples below it.
    pub(super) mask: u64,
    /// Nothing above it needs to be looked for.
    pub(super) is_final: bool,
    /// It is a container that they pile up in.
    pub(super) piles: bool,
    /// The class that has it only wraps what somebody keeps.
    pub(super) is_wrapper: bool,
    /// Levels above the tensors.
    pub(super) level: u32,
    /// It was seen to be there still, after all the walks.
    pub(super) is_verified: bool,
    /// The name has another object by now, whose graph keeps the samples.
    pub(super) is_rebound: bool,
    /// And a backward may still go through that graph: nothing that it saved was seen to have been changed in place since.
    pub(super) is_awaited: bool,
}

/// A name that is to be given: what kind of place, how it reads, where it stands, and what has it.
pub(super) struct Place {
    pub(super) rank: Rank,
    pub(super) text: String,
    pub(super) scope: Scope,
    pub(super) owner: u64,
}

/// How attributes end that have hooks.
const HOOKS: &str = "_hooks";

impl Place {
    /// An attribute of an instance of a class.
    ///
    /// # Safety
    /// `owner` is an instance that is alive; with the GIL held.
    pub(super) unsafe fn attribute(w: &World, types: &mut Types<'_>, owner: u64, name: String) -> Place {
        // SAFETY: the caller's promise.
        unsafe {
            let class = type_of(owner);
            let text = format!("{}.{name}", w.python.type_name(class));
            let rank = if name.ends_with(HOOKS) { Rank::Default } else { Rank::Attribute };
            Place { rank, text, scope: types.scope_in_class(class, name), owner }
        }
    }

    /// An attribute of a class itself.
    ///
    /// # Safety
    /// `class` is alive; with the GIL held.
    pub(super) unsafe fn of_class(w: &World, types: &mut Types<'_>, class: u64, name: String) -> Place {
        // SAFETY: the caller's promise.
        unsafe {
            let text = format!("{}.{name}", w.python.type_name(class));
            Place { rank: Rank::OfClass, text, scope: types.scope_in_class(class, name), owner: class }
        }
    }

    /// A variable of a frame.
    ///
    /// # Safety
    /// As the frame's code: alive.
    pub(super) unsafe fn variable(w: &World, rank: Rank, v: Variable, owner: u64) -> Place {
        // SAFETY: the caller's promise.
        unsafe {
            let scope = w.python.scope_in_code(v.code, w.python.variable(v));
            let function = scope.function.as_deref().unwrap_or("?");
            Place { rank, text: format!("{}, a local of {function}", scope.variable), scope, owner }
        }
    }

    /// The `i`th variable that a function has closed over.
    ///
    /// # Safety
    /// `function` is one that is alive; with the GIL held.
    pub(super) unsafe fn closed_over(w: &World, function: u64, i: u64) -> Place {
        // SAFETY: the caller's promise; a function has its code and its name.
        unsafe {
            let code = w.python.code_of(function);
            let variable = w.python.free_variable(code, i).unwrap_or_default();
            let said = w.python.qualname_of(function);
            let text = match variable.as_str() {
                "" => format!("a closure of {said}"),
                name => format!("{name}, a closure of {said}"),
            };
            let scope = w.python.scope_in_code(code, variable);
            Place { rank: Rank::Closure, text, scope, owner: function }
        }
    }

    /// What a name stands for.
    ///
    /// # Safety
    /// `object` is alive, as is the owner; with the GIL held.
    pub(super) unsafe fn named(
        self,
        w: &World,
        types: &mut Types<'_>,
        object: u64,
        (mask, level): (u64, u32),
    ) -> Named {
        // SAFETY: the caller's promise.
        unsafe {
            let kind: Kind = types.of(object);
            let owner_kind = if self.owner != 0 { type_of(self.owner) } else { 0 };
            let is_instance = self.owner != 0 && types.of(self.owner).class == Class::Instance;
            let part = if self.rank == Rank::Attribute && is_instance {
                w.python.part_in_training(owner_kind, &self.scope.variable)
            } else {
                None
            };
            let is_inside = || w.python.is_inside(owner_kind, &self.scope.variable);
            Named {
                kind: w.python.type_name(type_of(object)),
                entries: w.python.counted(object, kind.class),
                bound: w.python.bound(object, kind.class, if is_instance { self.owner } else { 0 }),
                part,
                has_modules: kind.class == Class::Instance && w.python.in_modules(object).is_some(),
                is_wrapper: is_instance
                    && self.rank == Rank::Attribute
                    && (self.scope.is_wrapper() || is_inside()),
                place: self.text,
                scope: self.scope,
                rank: self.rank,
                object: Remembered::of(object),
                owner: Remembered::of(self.owner),
                owner_kind,
                mask,
                level,
                is_final: false,
                piles: false,
                is_verified: false,
                is_rebound: false,
                is_awaited: false,
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A name of a dictionary: a global where it is one of `__main__`, else an attribute.
    pub(in crate::probe) fn named(place: &str, mask: u64, is_final: bool, level: u32) -> Named {
        let rank = if place.starts_with("__main__") { Rank::Global } else { Rank::Attribute };
        Named {
            place: place.into(),
            scope: Scope::default(),
            rank,
            object: Remembered::of(1),
            owner: Remembered::of(2),
            owner_kind: 3,
            kind: "dict".to_string(),
            entries: Some(u64::from(level) * 10),
            bound: None,
            part: None,
            has_modules: false,
            mask,
            is_final,
            piles: is_final,
            is_wrapper: false,
            level,
            is_verified: true,
            is_rebound: false,
            is_awaited: false,
        }
    }
}
