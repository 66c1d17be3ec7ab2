//! What is put into a keeper: whether that can be memory of a device, and what helps at this statement.

use super::Keeper;
use super::adds::Add;
use super::scope::{Source, below, children};
use tree_sitter::Node;

/// Methods whose result is no tensor, or one in host memory.
const ON_HOST: [&str; 6] = ["item", "cpu", "tolist", "numpy", "size", "dim"];
/// Functions whose result is no tensor.
const NUMBERS: [&str; 12] =
    ["float", "int", "len", "str", "repr", "bool", "hash", "id", "range", "time", "round", "perf_counter"];
/// Functions that make a tensor of nothing else, so that what a name had before is let go.
const MAKERS: [&str; 12] = [
    "zeros",
    "ones",
    "empty",
    "full",
    "randn",
    "rand",
    "tensor",
    "zeros_like",
    "ones_like",
    "empty_like",
    "randn_like",
    "new_zeros",
];
/// Methods that let a tensor go from its graph.
const DETACHED: [&str; 2] = ["detach", "detach_"];
/// Methods whose result shares the memory of what they are called on.
const VIEWS: [&str; 14] = [
    "view",
    "reshape",
    "narrow",
    "select",
    "squeeze",
    "unsqueeze",
    "transpose",
    "permute",
    "t",
    "expand",
    "flatten",
    "chunk",
    "split",
    "unbind",
];

/// Whether a value can be memory of a device, as far as its text tells.
pub(super) fn may_hold(source: &Source<'_>, value: Node<'_>) -> bool {
    match value.kind() {
        "integer"
        | "float"
        | "string"
        | "true"
        | "false"
        | "none"
        | "comparison_operator"
        | "not_operator"
        | "concatenated_string" => false,
        "call" => {
            let name = called(source, value);
            let is_method = value.child_by_field_name("function").is_some_and(|f| f.kind() == "attribute");
            !(NUMBERS.contains(&name) || is_method && ON_HOST.contains(&name))
        }
        "attribute" => !matches!(source.field(value, "attribute"), "shape" | "dtype" | "device" | "name"),
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

/// The name of the function that is called: what is behind the last dot.
fn called<'t>(source: &Source<'t>, call: Node<'_>) -> &'t str {
    let function = call.child_by_field_name("function").map_or("", |f| source.text(f));
    function.rsplit('.').next().unwrap_or_default().trim()
}

/// Whether a name is the counter of a loop around it.
fn is_counter(source: &Source<'_>, name: Node<'_>) -> bool {
    let text = source.text(name);
    let mut around =
        std::iter::successors(name.parent(), Node::parent).filter(|n| n.kind() == "for_statement");
    around.any(|f| {
        let (Some(left), Some(right)) = (f.child_by_field_name("left"), f.child_by_field_name("right"))
        else {
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

/// Whether a value is made of what was computed before, and keeps its graph: nothing new, nothing detached.
pub(super) fn is_made_of_others(source: &Source<'_>, value: Node<'_>) -> bool {
    match value.kind() {
        "none" | "integer" | "float" | "string" => false,
        "call" => !MAKERS.contains(&called(source, value)) && !DETACHED.contains(&called(source, value)),
        "list" | "tuple" | "expression_list" => {
            children(value).into_iter().any(|v| is_made_of_others(source, v))
        }
        _ => true,
    }
}

/// Whether a method of this list is called anywhere in the values.
fn calls(source: &Source<'_>, values: &[Node<'_>], names: &[&str]) -> bool {
    let all = values.iter().flat_map(|v| below(*v, &|_| true));
    all.into_iter().any(|n| n.kind() == "call" && names.contains(&called(source, n)))
}

/// Whether a value reads like a loss: one number with a graph.
fn is_number(source: &Source<'_>, values: &[Node<'_>]) -> bool {
    let is_one = |n: Node<'_>| match n.kind() {
        "identifier" | "attribute" => {
            let text = source.text(n).rsplit('.').next().unwrap_or_default().to_lowercase();
            ["loss", "cost", "nll", "perplexity"].iter().any(|w| text.contains(w)) && !text.ends_with("fn")
        }
        "call" => {
            ["mean", "sum", "backward", "cross_entropy", "mse_loss", "criterion", "loss_fn", "nll_loss"]
                .contains(&called(source, n))
        }
        _ => false,
    };
    values.iter().flat_map(|v| below(*v, &|n| n.kind() != "argument_list")).any(is_one)
}

/// What helps at a statement; `None` where nothing that is known does.
pub(super) fn of(source: &Source<'_>, add: &Add<'_>, keeper: &Keeper) -> Option<String> {
    let values = add.values.as_slice();
    let is_sum = matches!(add.node.kind(), "assignment" | "augmented_assignment" | "named_expression");
    let is_detached =
        calls(source, values, &DETACHED) || values.iter().any(|v| source.text(*v).contains(".data"));
    let is_view = || {
        calls(source, values, &VIEWS)
            || values.iter().any(|v| below(*v, &|_| true).iter().any(|n| n.kind() == "subscript"))
    };
    if keeper.type_name == "_lru_cache_wrapper" {
        return Some("give the cache a maxsize, or cache what is no tensor".into());
    }
    if keeper.graph && !is_detached {
        return Some(match is_number(source, values) {
            true if is_sum => "add a number, not a tensor with its graph: .item()".into(),
            true => "keep the number, not the tensor with its graph: .item()".into(),
            false if is_sum && keeper.rebound => {
                "cut the graph between steps: .detach() what goes into the next one".into()
            }
            false => "keep it without its graph: .detach()".into(),
        });
    }
    if is_view() && !calls(source, values, &["clone", "contiguous"]) {
        return Some("a view keeps all of its base: .clone() the part that is needed".into());
    }
    Some(match keeper.type_name.as_str() {
        "deque" => "give it a maxlen, or popleft() what is done with".into(),
        "list" => "clear() it when an epoch ends, or bound it: collections.deque(maxlen=…)".into(),
        "dict" | "defaultdict" | "OrderedDict" => {
            "delete what is done with: pop() the key, or clear() at the epoch's end".into()
        }
        "set" => "discard() what is done with, or clear() at the epoch's end".into(),
        "Queue" | "LifoQueue" | "SimpleQueue" | "PriorityQueue" => {
            "give it a maxsize, so that put() waits for the consumer".into()
        }
        _ => return None,
    })
}
