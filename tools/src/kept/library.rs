//! Calls that hand something to Python's own library or to PyTorch, which keeps it in an attribute of its own: `weakref.finalize(owner, f, tensor)`,
//! `log.info("batch %s", tensor)` where a handler keeps its records.

use super::adds::Add;
use super::keeper::Keeper;
use super::scope::{Source, children, part};
use super::values::{called, may_hold};

/// Methods of a logger.
const LOGGER: [&str; 8] = ["debug", "info", "warning", "error", "critical", "exception", "fatal", "log"];

/// Calls that put something into an attribute of a class of Python's library; `None` where the keeper is no such attribute.
pub(super) fn adds<'t>(source: &Source<'t>, keeper: &Keeper) -> Option<Vec<Add<'t>>> {
    let (class, variable) = (keeper.class.as_deref()?, keeper.variable.as_str());
    // Which functions, and the arguments that they keep: from that place on.
    let (names, from): (&[&str], usize) = match (class, variable) {
        ("finalize", "_registry") => (&["finalize"], 2),
        ("atexit", "register") => (&["register"], 1),
        ("MemoryHandler" | "BufferingHandler", "buffer") => (&LOGGER, 1),
        ("Tensor" | "Parameter", "_backward_hooks") => (&["register_hook"], 0),
        ("Tensor" | "Parameter", "_post_accumulate_grad_hooks") => {
            (&["register_post_accumulate_grad_hook"], 0)
        }
        _ => return None,
    };
    // Others have a method of that name, too.
    let is_it = |n: &tree_sitter::Node<'t>| {
        class != "atexit" || matches!(source.field(*n, "function"), "atexit.register" | "register")
    };
    let calls = source.all("call").iter().copied();
    let calls = calls.filter(|n| names.contains(&called(source, *n))).filter(is_it);
    let add = |node: tree_sitter::Node<'t>| {
        let arguments = children(part(node, "arguments")?);
        let values = arguments.get(from..)?.to_vec();
        let may_hold = values.iter().any(|v| may_hold(source, *v));
        Some(Add { node, values, may_hold, grows: true })
    };
    Some(calls.filter_map(add).collect())
}
