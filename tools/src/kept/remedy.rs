//! What helps at a statement that keeps something.

use super::adds::Add;
use super::keeper::Keeper;
use super::scope::{Source, below};
use super::values::{DETACHED, called};
use super::ways;
use strandline::event::WordList;
use tree_sitter::Node;

/// Methods whose result shares the memory of what they are called on.
const VIEWS: WordList = WordList(
    "view reshape narrow select squeeze unsqueeze transpose permute t expand flatten chunk split unbind",
);

/// Whether a method of such a name is called anywhere in the values.
fn calls(source: &Source<'_>, values: &[Node<'_>], is: impl Fn(&str) -> bool) -> bool {
    let all = values.iter().flat_map(|v| below(*v, &|_| true));
    all.into_iter().any(|n| n.kind() == "call" && is(called(source, n)))
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
pub(super) fn suggest(source: &Source<'_>, add: &Add<'_>, keeper: &Keeper) -> Option<String> {
    let values = add.values.as_slice();
    let is_sum = matches!(add.node.kind(), "assignment" | "augmented_assignment" | "named_expression");
    let is_detached = calls(source, values, |name| DETACHED.contains(&name))
        || values.iter().any(|v| source.text(*v).contains(".data"));
    let is_view = || {
        calls(source, values, |name| VIEWS.has(name))
            || values.iter().any(|v| below(*v, &|_| true).iter().any(|n| n.kind() == "subscript"))
    };
    if ways::has_handle(source, add.node) {
        return Some("remove the hook when it has done its work: keep its handle, and call remove()".into());
    }
    if add.node.kind() == "call" && called(source, add.node) == "add_param_group" {
        return Some(
            "remove the group of what trains no more: del optimizer.param_groups[i], and pop() its parameters from optimizer.state"
                .into(),
        );
    }
    if keeper.type_name == "_lru_cache_wrapper" {
        return Some("give the cache a maxsize, or do not cache tensors".into());
    }
    if keeper.graph && keeper.awaited && is_sum && !is_detached {
        return Some("if no backward is to come, add it without its graph: .detach()".into());
    }
    if keeper.graph && values.iter().any(|v| source.text(*v).ends_with(".grad_fn")) {
        return Some("keep what you need of the node, its name() say: a node keeps its whole graph".into());
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
    if is_view() && !calls(source, values, |name| ["clone", "contiguous"].contains(&name)) {
        return Some("a view keeps its whole base tensor: .clone() the part that is needed".into());
    }
    Some(match keeper.type_name.as_str() {
        "deque" => "give it a maxlen, or popleft() what is no longer needed".into(),
        "list" => "clear() it when an epoch ends, or limit its length: collections.deque(maxlen=…)".into(),
        "dict" | "defaultdict" | "OrderedDict" => {
            "delete what is no longer needed: pop() the key, or clear() at the end of each epoch".into()
        }
        "set" => "discard() what is no longer needed, or clear() at the end of each epoch".into(),
        "Queue" | "LifoQueue" | "SimpleQueue" | "PriorityQueue" => {
            "give it a maxsize, so that put() waits for the consumer".into()
        }
        _ => return None,
    })
}
