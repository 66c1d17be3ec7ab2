//! What helps where a container gets more and more entries, by its type.

use super::adds::Add;
use super::scope::{Source, part};
use super::ways;
use tree_sitter::Node;

/// When to empty something, in a training whose source has epochs.
pub(super) const EPOCHS: &str = "at the end of each epoch";

/// Longest text of an object that advice names.
pub(super) const LONGEST: usize = 40;

pub(super) const OF_LISTS: &str =
    "clear() it at the end of each epoch, or limit its length: collections.deque(maxlen=…)";
pub(super) const OF_DICTS: &str =
    "delete what is no longer needed: pop() the key, or clear() at the end of each epoch";

/// What helps where a container of such a type gets more and more.
pub(super) fn of_container(type_name: &str) -> Option<&'static str> {
    Some(match type_name {
        "deque" => "give it a maxlen, or popleft() what is no longer needed",
        "list" | "UserList" => OF_LISTS,
        "dict" | "defaultdict" | "OrderedDict" | "UserDict" | "Counter" => OF_DICTS,
        "set" => "discard() what is no longer needed, or clear() at the end of each epoch",
        "SimpleQueue" => {
            "this queue has no limit: take out as many entries as are put in; or, if another thread takes them out, use a queue.Queue(maxsize=…), whose put() waits for that thread"
        }
        "Queue" | "LifoQueue" | "PriorityQueue" => {
            "take out as many entries as are put in; or, if another thread takes them out, give it a maxsize, so that put() waits for that thread"
        }
        "tuple" => "keep only its newest entries, or start it again with () at the end of each epoch",
        "WeakKeyDictionary" => {
            "an entry stays as long as its key lives: pop() what is no longer needed, or clear() at the end of each epoch"
        }
        "ExitStack" => {
            "the stack keeps its entries until it is closed: use one for each step, or close() it at the end of each epoch"
        }
        "AsyncExitStack" => {
            "the stack keeps its entries until it is closed: use one for each step, or aclose() it at the end of each epoch"
        }
        _ => return None,
    })
}

/// What helps where a container of modules or parameters gets more and more of them.
pub(super) fn of_modules(source: &Source<'_>, add: &Add<'_>, type_name: &str) -> Option<String> {
    const ALL: [&str; 5] = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"];
    let kind = ALL.into_iter().find(|kind| source.inherits(type_name, kind))?;
    // Where an optimizer is given each, it keeps them as well.
    let is_given = |c: &Node<'_>| ways::method(source, *c) == "add_param_group";
    let also = match source.all("call").iter().any(is_given) {
        true => ", and del optimizer.param_groups[i], which keeps them as well",
        false => "",
    };
    if kind == "ParameterList" {
        return Some(format!(
            "keep only the parameters still used: make a new nn.ParameterList(…) of these{also}"
        ));
    }
    let what = if kind == "ParameterDict" { "parameters" } else { "modules" };
    let target =
        part(add.node, "left").filter(|t| t.kind() == "subscript").map(|t| source.text(t).to_owned());
    let entry = || {
        let object = part(part(add.node, "function")?, "object").map(|o| source.text(o))?;
        Some(format!("{object}[{}]", if kind.ends_with("Dict") { "name" } else { "i" }))
    };
    let is_short = |t: &String| t.len() <= LONGEST && !t.contains('\n');
    Some(match target.or_else(entry).filter(is_short) {
        Some(entry) => format!("delete {what} that are no longer used: del {entry}{also}"),
        None => format!("delete {what} that are no longer used{also}"),
    })
}

/// The type of what a statement fills, as far as its method tells.
pub(super) fn filled(source: &Source<'_>, add: &Add<'_>) -> Option<&'static str> {
    let is_list = |right: Option<Node<'_>>| right.is_some_and(|r| r.kind().starts_with("list"));
    match (add.node.kind(), ways::method(source, add.node)) {
        ("call", "append" | "extend" | "insert") => Some("list"),
        ("call", "appendleft" | "extendleft") => Some("deque"),
        ("call", "update" | "setdefault") => Some("dict"),
        ("call", "add") => Some("set"),
        ("call", "put" | "put_nowait") => Some("Queue"),
        ("augmented_assignment", _) if is_list(part(add.node, "right")) => Some("list"),
        ("assignment", _) if ways::target(add.node).is_some_and(|l| l.kind() == "subscript") => Some("dict"),
        _ => None,
    }
}
