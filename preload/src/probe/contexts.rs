//! Context variables (`contextvars`): what a thread's context has, and which variable has it. A context keeps that in tables of its own, in which
//! each variable is followed by what it has.

use super::named::{Place, Rank};
use super::names::Scope;
use super::objects::{Class, HEAP_TYPE, SIZE, TYPE_FLAGS, references, type_of};
use super::types::Types;
use super::world::World;
use crate::platform::memory::{is_address, read};

/// Tables that are looked into.
const MOST: usize = 256;
/// Where a table's entries begin, and a variable's name.
const ENTRIES: u64 = 32;
const NAME: u64 = 16;

/// The contexts of all threads.
///
/// # Safety
/// With the GIL held.
pub(super) unsafe fn all(w: &World) -> Vec<u64> {
    // SAFETY: the caller's promise; frames are there only where their layout is proved.
    w.frames.as_ref().map_or_else(Vec::new, |f| unsafe { f.contexts(w.interpreter, w.python.context) })
}

/// Hands out every variable of a context that has something, and what that is.
///
/// # Safety
/// The context is alive; with the GIL held and the collector not at work.
pub(super) unsafe fn pairs(w: &World, types: &mut Types<'_>, context: u64, each: &mut impl FnMut(u64, u64)) {
    let (mut tables, mut left) = (vec![context], MOST);
    while let Some(table) = tables.pop().filter(|_| left > 0) {
        left -= 1;
        // SAFETY: the caller's promise; what is alive refers to what is.
        unsafe {
            let kind = types.of(table);
            let mut inside = Vec::new();
            references(table, kind, &mut |child| inside.push(child));
            for child in inside.into_iter().filter(|c| types.of(*c).class == Class::Other) {
                if w.python.type_name(type_of(child)).starts_with("hamt") {
                    tables.push(child);
                }
            }
            entries(w, table, &mut *each);
        }
    }
}

/// The variable that has an object in a table; `None` where this is none, or does not have it.
///
/// # Safety
/// As [`pairs`], of the table.
pub(super) unsafe fn variable(w: &World, table: u64, object: u64) -> Option<u64> {
    let mut found = None;
    // SAFETY: the caller's promise.
    unsafe {
        entries(w, table, |variable, value| {
            if value == object {
                found = Some(variable);
            }
        });
    }
    found
}

/// # Safety
/// As [`pairs`], of the table, or of any other object.
unsafe fn entries(w: &World, table: u64, mut each: impl FnMut(u64, u64)) {
    // SAFETY: the caller's promise; such a table has as many entries as it says, each null or an object that is alive.
    unsafe {
        let kind = type_of(table);
        // A class of the program's own could be called so.
        let is_own = read(kind + TYPE_FLAGS) & HEAP_TYPE != 0;
        if is_own || !matches!(&*w.python.type_name(kind), "hamt_bitmap_node" | "hamt_collision_node") {
            return;
        }
        for i in 0..read(table + SIZE) / 2 {
            let [key, value] = [0, 8].map(|at| read(table + ENTRIES + 16 * i + at));
            if key != 0 && value != 0 && w.python.type_name(type_of(key)) == "ContextVar" {
                each(key, value);
            }
        }
    }
}

/// What a context variable is called: as the global that has it, where there is one, else as it calls itself.
///
/// # Safety
/// The variable is alive; with the GIL held.
pub(super) unsafe fn place(w: &World, variable: u64, owner: u64) -> Place {
    // SAFETY: the caller's promise; a variable has its name, and the globals of what runs are alive.
    unsafe {
        let main = w.python.module_dict("__main__");
        let running = w.frames.iter().flat_map(|f| f.globals(w.interpreter));
        for dict in main.into_iter().chain(running).filter(|d| is_address(*d)) {
            let mut name = None;
            w.python.items(dict, |key, value| {
                name = (value == variable).then_some(key);
                name.is_none()
            });
            if let Some(name) = name {
                let scope = w.python.scope_in_module(dict, w.python.text(name));
                let text = format!("{}, a context variable", scope.variable);
                return Place { rank: Rank::Context, text, scope, owner };
            }
        }
        let scope = Scope { variable: w.python.text(read(variable + NAME)), ..Scope::default() };
        Place { rank: Rank::Context, text: format!("{}, a context variable", scope.variable), scope, owner }
    }
}
