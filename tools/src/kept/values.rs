//! What is put into a keeper, as far as its text tells: can it be memory of a device, and is it made of what was there before?

use super::scope::{Source, children, outward, part};
use strandline::event::WordList;
use tree_sitter::Node;

/// Methods and functions of modules whose result is no tensor, or one in host memory.
const ON_HOST: [&str; 8] = ["item", "cpu", "tolist", "numpy", "size", "dim", "time", "perf_counter"];
/// Functions whose result is no tensor; `float` and the like as methods of tensors make tensors.
const NUMBERS: [&str; 12] =
    ["float", "int", "len", "str", "repr", "bool", "hash", "id", "range", "time", "round", "perf_counter"];
/// Functions that make a tensor of nothing else, so that what a name had before is let go.
const MAKERS: WordList =
    WordList("zeros ones empty full randn rand tensor zeros_like ones_like empty_like randn_like new_zeros");
/// Methods that let a tensor go from its graph.
pub(super) const DETACHED: [&str; 2] = ["detach", "detach_"];

/// Classes whose instances are containers.
pub(super) const CONTAINERS: [&str; 9] =
    ["dict", "list", "set", "deque", "OrderedDict", "defaultdict", "Counter", "UserDict", "UserList"];

/// Whether a value can be memory of a device, as far as its text tells.
pub(super) fn may_hold(source: &Source<'_>, value: Node<'_>) -> bool {
    match value.kind() {
        "integer"
        | "float"
        | "string"
        | "true"
        | "false"
        | "none"
        | "not_operator"
        | "concatenated_string" => false,
        "call" => {
            let name = called(source, value);
            let is_method = part(value, "function").is_some_and(|f| f.kind() == "attribute");
            let is_other = if is_method { ON_HOST.contains(&name) } else { NUMBERS.contains(&name) };
            !is_other && !is_empty(source, value)
        }
        "attribute" => !matches!(source.field(value, "attribute"), "shape" | "dtype" | "device" | "name"),
        // Of tensors it is a mask.
        "comparison_operator" => is_mask(source, value),
        "conditional_expression" => {
            // The condition stands between the two.
            let all = children(value);
            [0, 2].iter().filter_map(|i| all.get(*i)).any(|v| may_hold(source, *v))
        }
        "list"
        | "tuple"
        | "set"
        | "expression_list"
        | "parenthesized_expression"
        | "binary_operator"
        | "dictionary"
        | "pair" => children(value).into_iter().any(|v| may_hold(source, v)),
        "identifier" => !is_counter(source, value),
        _ => true,
    }
}

/// Whether a comparison can be one of tensors: of numbers and names alone it is read as one of numbers.
fn is_mask(source: &Source<'_>, comparison: Node<'_>) -> bool {
    const OPERATORS: [&str; 6] = ["<", "<=", ">", ">=", "==", "!="];
    let mut cursor = comparison.walk();
    let mut operators = comparison.children(&mut cursor).filter(|n| !n.is_named());
    let is_made = |n: &Node<'_>| !matches!(n.kind(), "identifier" | "attribute");
    operators.all(|o| OPERATORS.contains(&o.kind()))
        && children(comparison).into_iter().filter(is_made).any(|n| may_hold(source, n))
}

/// The name of the function that is called: what is behind the last dot.
pub(super) fn called<'t>(source: &Source<'t>, call: Node<'_>) -> &'t str {
    let function = part(call, "function").map_or("", |f| source.text(f));
    function.rsplit('.').next().unwrap_or_default().trim()
}

/// Whether a name is the counter of a loop around it.
pub(super) fn is_counter(source: &Source<'_>, name: Node<'_>) -> bool {
    let text = source.text(name);
    let mut around = outward(name).filter(|n| n.kind() == "for_statement");
    around.any(|f| {
        let (Some(left), Some(right)) = (part(f, "left"), part(f, "right")) else {
            return false;
        };
        let first = children(left).first().map_or(source.text(left), |c| source.text(*c));
        right.kind() == "call"
            && match called(source, right) {
                "range" => source.text(left) == text,
                "enumerate" => first == text,
                _ => false,
            }
    })
}

/// Whether an expression makes a container of Python's with nothing in it.
pub(super) fn is_empty(source: &Source<'_>, made: Node<'_>) -> bool {
    let arguments = || part(made, "arguments").map(children).unwrap_or_default();
    match made.kind() {
        "list" | "dictionary" => children(made).is_empty(),
        "call" => match called(source, made) {
            "deque" => arguments().iter().all(|a| source.field(*a, "name") == "maxlen"),
            "defaultdict" => arguments().len() <= 1,
            name => CONTAINERS.contains(&name) && arguments().is_empty(),
        },
        _ => false,
    }
}

/// Whether a value is made of what was computed before, and keeps its graph: nothing new, nothing detached.
pub(super) fn is_made_of_others(source: &Source<'_>, value: Node<'_>) -> bool {
    match value.kind() {
        "none" | "integer" | "float" | "string" => false,
        "call" => !MAKERS.has(called(source, value)) && !DETACHED.contains(&called(source, value)),
        "list" | "tuple" | "expression_list" => {
            children(value).into_iter().any(|v| is_made_of_others(source, v))
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::super::keeper::Keeper;
    use super::super::tests::{global, is, none};

    #[test]
    fn a_comparison_of_what_is_computed_is_a_mask() {
        let kept = global("kept", "list");
        let one = |value: &str| format!("kept = []\nfor x in data:\n    kept.append({value})\n");
        for mask in ["(x / scale).abs() < 127", "x.argmax(-1) == y", "net(x) >= 0"] {
            is(&one(mask), &kept, 3, &format!("kept.append({mask})"));
        }
        for other in ["x is None", "best > 3", "len(x) > 3", "x.name == y", "n in net(x)"] {
            none(&one(other), &kept);
        }
        let both = format!("{}    out = net(x)\n    kept.append(out)\n", one("score.item() > net(x)"));
        is(&both, &Keeper { allocated: vec![4], ..kept }, 5, "kept.append(out)");
    }
}
