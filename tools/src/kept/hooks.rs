//! Functions that are made again and again and handed to somebody who keeps them, each with a tensor of its own in a variable that it has
//! closed over, or as a default: `layer.register_forward_hook(hook)`.

use super::adds::{Add, METHODS, OF_STACKS};
use super::keeper::Keeper;
use super::scope::{Source, part};
use super::values::called;
use tree_sitter::Node;

/// Types that are kept one by one: what is in a container was put there by another statement.
const TENSORS: [&str; 2] = ["Tensor", "Parameter"];

/// Calls that hand a function to whoever keeps it, where a variable of that function is the keeper.
pub(super) fn registered<'t>(source: &Source<'t>, keeper: &Keeper) -> Vec<Add<'t>> {
    let is_one = matches!(keeper.kind.as_str(), "closure" | "default");
    let function =
        keeper.function.as_deref().filter(|_| is_one && TENSORS.contains(&keeper.type_name.as_str()));
    let Some(function) = function.and_then(|f| source.function(f, keeper.first_line)) else {
        return Vec::new();
    };
    let calls: Vec<Node<'t>> = match part(function, "name") {
        None => call_of(function).into_iter().collect(),
        Some(name) => {
            let text = source.text(name);
            let owner = source.owner(name, text);
            let is_it = |n: &&Node<'t>| source.text(**n) == text && source.owner(**n, text) == owner;
            source.all("identifier").iter().filter(is_it).filter_map(|n| call_of(*n)).collect()
        }
    };
    let keeps = calls.into_iter().filter(|c| registers(called(source, *c)));
    keeps.map(Add::of).collect()
}

/// The call that something is an argument of.
fn call_of(argument: Node<'_>) -> Option<Node<'_>> {
    let parent = argument.parent()?;
    let parent = if parent.kind() == "keyword_argument" { parent.parent()? } else { parent };
    parent.parent().filter(|call| parent.kind() == "argument_list" && call.kind() == "call")
}

/// Whether a function of this name keeps what it is given.
fn registers(name: &str) -> bool {
    METHODS.has(name)
        || OF_STACKS.contains(&name)
        || name.starts_with("register")
        || ["hook", "callback"].iter().any(|part| name.contains(part))
}
