//! What a statement stores: the expression itself, and not what stands in its arguments and keys. Is it a part of a larger tensor, has it a
//! graph, is it an exception? Where that is not sure, it is said to be none.

use super::scope::{Source, below, children, outward, part};
use super::values::{DETACHED, called, is_counter};
use strandline::event::WordList;
use tree_sitter::Node;

/// Methods whose result shares the memory of what they are called on, all of it.
const WHOLE: WordList = WordList(
    "view reshape squeeze unsqueeze transpose permute t flatten view_as reshape_as detach detach_ requires_grad_",
);
/// And those whose result is a part of it.
const PARTS: [&str; 3] = ["narrow", "select", "diagonal"];
/// Functions that return several parts.
const SEVERAL: WordList = WordList(
    "chunk split unbind tensor_split topk sort max min median mode unique meshgrid var_mean std_mean",
);
/// Attributes and methods that tensors have, and neither lists, dictionaries nor modules.
const OF_TENSORS: WordList = WordList(
    "square pow mean sum detach detach_ view reshape transpose permute unsqueeze squeeze flatten backward argmax softmax log_softmax sigmoid tanh \
     relu exp log abs logsumexp masked_fill shape grad_fn requires_grad requires_grad_",
);
/// Those of them whose result is one tensor.
const TO_TENSORS: WordList = WordList(
    "square pow mean sum detach detach_ view reshape transpose permute unsqueeze squeeze flatten argmax softmax log_softmax sigmoid tanh relu exp \
     log abs logsumexp masked_fill requires_grad_ narrow select diagonal clone contiguous",
);

/// The expressions that a value may be: branches of a condition, entries of a tuple.
fn ends(value: Node<'_>) -> Vec<Node<'_>> {
    let of = |name: &str| part(value, name).map(ends).unwrap_or_default();
    match value.kind() {
        "parenthesized_expression" | "list" | "tuple" | "set" | "expression_list" | "dictionary" => {
            children(value).into_iter().flat_map(ends).collect()
        }
        "boolean_operator" => [of("left"), of("right")].concat(),
        "pair" | "named_expression" | "keyword_argument" => of("value"),
        "conditional_expression" => branches(value).into_iter().flat_map(ends).collect(),
        kind if kind.ends_with("comprehension") => of("body"),
        _ => vec![value],
    }
}

/// What a condition chooses from: itself stands between the two.
fn branches(condition: Node<'_>) -> Vec<Node<'_>> {
    let all = children(condition);
    [0, 2].iter().filter_map(|i| all.get(*i).copied()).collect()
}

/// Whether a value is, or has as an entry, a part of a larger tensor, whose memory it shares.
pub(super) fn is_view(source: &Source<'_>, value: Node<'_>) -> bool {
    ends(value).into_iter().any(|n| is_part(source, n))
}

fn is_part(source: &Source<'_>, n: Node<'_>) -> bool {
    match n.kind() {
        "subscript" => part(n, "value").is_some_and(|of| {
            let (is_basic, is_many) = index(source, n);
            let one_of_several = of.kind() == "call" && is_one_of_several(source, of);
            is_basic && (is_many || one_of_several || is_tensor(source, of) || is_part(source, of))
        }),
        "call" => {
            let function = part(n, "function").filter(|f| f.kind() == "attribute");
            let (Some(function), name) = (function, called(source, n)) else { return false };
            PARTS.contains(&name)
                || WHOLE.has(name) && part(function, "object").is_some_and(|o| is_part(source, o))
        }
        "attribute" => {
            matches!(source.field(n, "attribute"), "data" | "T" | "mT")
                && part(n, "object").is_some_and(|o| is_part(source, o))
        }
        "parenthesized_expression" => children(n).first().is_some_and(|c| is_part(source, *c)),
        "identifier" => value_of(source, n).is_some_and(|v| v.kind() != "identifier" && is_part(source, v)),
        _ => false,
    }
}

/// The value of the one assignment that a variable has, where it does not depend on the variable itself.
fn value_of<'t>(source: &Source<'t>, name: Node<'t>) -> Option<Node<'t>> {
    let text = source.text(name);
    let owner = source.owner(name, text);
    let mut all = source.binding(text).iter().filter(|b| source.owner(**b, text) == owner);
    let one = all.next().filter(|b| b.kind() == "assignment" && all.next().is_none())?;
    let value = part(*one, "right")?;
    let is_other = |n: Node<'t>| n.kind() != "identifier" || source.text(n) != text;
    (one.start_byte() < name.start_byte() && below(value, &|_| true).into_iter().all(is_other))
        .then_some(value)
}

/// Whether a call returns parts of a tensor: `x.chunk(2)`. Text is split by text, or by nothing.
fn is_one_of_several(source: &Source<'_>, call: Node<'_>) -> bool {
    let arguments = part(call, "arguments").map(children).unwrap_or_default();
    let is_sized = arguments.first().is_some_and(|a| a.kind() != "string");
    match called(source, call) {
        "chunk" | "unbind" | "tensor_split" => true,
        "split" => is_sized,
        _ => false,
    }
}

/// Whether an index leaves a part of a tensor where it is, and does not copy it, as one with a tensor does; and whether only tensors have such
/// an index: `x[:, -1]`.
fn index(source: &Source<'_>, subscript: Node<'_>) -> (bool, bool) {
    let mut cursor = subscript.walk();
    let keys: Vec<Node<'_>> = subscript.children_by_field_name("subscript", &mut cursor).collect();
    let is_number = |k: &Node<'_>| match k.kind() {
        "integer" => true,
        "unary_operator" => part(*k, "argument").is_some_and(|a| a.kind() == "integer"),
        "identifier" => is_counter(source, *k),
        _ => false,
    };
    let is_slice = |k: &Node<'_>| matches!(k.kind(), "slice" | "ellipsis" | "none");
    let selects = |k: &Node<'_>| is_number(k) || k.kind() == "slice" && !children(*k).is_empty();
    let is_basic = keys.iter().all(|k| is_number(k) || is_slice(k)) && keys.iter().any(selects);
    (is_basic, keys.len() > 1 && keys.iter().any(is_slice))
}

/// Whether it is a call whose result is surely a tensor of its own, which shares no memory with what it is computed of.
pub(super) fn is_computed(source: &Source<'_>, call: Node<'_>) -> bool {
    let name = called(source, call);
    let shares = WHOLE.has(name) || PARTS.contains(&name) || name == "contiguous";
    let of = part(call, "function").map_or("", |f| source.field(f, "object"));
    let is_method = part(call, "function").is_some_and(|f| f.kind() == "attribute") && TO_TENSORS.has(name);
    call.kind() == "call" && !shares && (is_method || is_of_torch(of) && is_tensor(source, call))
}

/// The modules of PyTorch whose functions return tensors.
fn is_of_torch(object: &str) -> bool {
    matches!(object, "torch" | "F" | "functional" | "nn.functional" | "torch.nn.functional")
}

/// Whether it is surely one tensor: what makes it says so, or something else that is done with it.
fn is_tensor(source: &Source<'_>, n: Node<'_>) -> bool {
    match n.kind() {
        "parenthesized_expression" => children(n).first().is_some_and(|c| is_tensor(source, *c)),
        "subscript" => index(source, n).1 || part(n, "value").is_some_and(|v| is_tensor(source, v)),
        "call" => {
            let Some(function) = part(n, "function").filter(|f| f.kind() == "attribute") else {
                return false;
            };
            let (name, of) = (called(source, n), source.field(function, "object"));
            match is_of_torch(of) {
                true => !SEVERAL.has(name) && name != "load",
                false => TO_TENSORS.has(name),
            }
        }
        "attribute" if matches!(source.field(n, "attribute"), "data" | "T" | "mT" | "grad") => {
            part(n, "object").is_some_and(|o| is_tensor(source, o))
        }
        "identifier" if is_given_one(source, n) => true,
        "identifier" | "attribute" => is_used_as_tensor(source, n),
        _ => false,
    }
}

/// Whether the one value that a name is given is surely a tensor.
fn is_given_one(source: &Source<'_>, name: Node<'_>) -> bool {
    value_of(source, name).is_some_and(|v| v.kind() == "call" && is_tensor(source, v))
}

/// Whether the function that a name stands in does something with it that only a tensor has.
fn is_used_as_tensor(source: &Source<'_>, name: Node<'_>) -> bool {
    let text = source.text(name);
    let around = |n: Node<'_>| outward(n).find(|p| p.kind() == "function_definition").map(|p| p.id());
    let is_here = around(name);
    let is_it = |n: Node<'_>| source.text(n) == text && around(n) == is_here;
    let uses = source.all("attribute").iter().filter(|a| part(**a, "object").is_some_and(is_it));
    let is_of_several = |n: &Node<'_>| {
        let several = |r: Node<'_>| matches!(r.kind(), "list" | "tuple" | "dictionary" | "expression_list");
        part(*n, "left").is_some_and(is_it)
            && part(*n, "right").is_some_and(|r| several(r) || r.kind().ends_with("comprehension"))
    };
    let is_one = uses.into_iter().any(|a| OF_TENSORS.has(source.field(*a, "attribute")));
    is_one && !source.all("assignment").iter().any(is_of_several)
}

/// Whether values read like a loss: one number with a graph.
pub(super) fn is_number(source: &Source<'_>, values: &[Node<'_>]) -> bool {
    let is_one = |n: Node<'_>| match n.kind() {
        "identifier" | "attribute" => {
            let text = source.text(n).rsplit('.').next().unwrap_or_default().to_lowercase();
            let is_named = || ["loss", "cost", "nll", "perplexity"].iter().any(|w| text.contains(w));
            // What it was given says more than its name.
            let given = values.iter().any(|v| v.id() == n.id()).then(|| value_of(source, n)).flatten();
            is_named() && !text.ends_with("fn") || given.is_some_and(|v| is_one_number(source, v))
        }
        _ => is_one_number(source, n),
    };
    values.iter().flat_map(|v| below(*v, &|n| n.kind() != "argument_list")).any(is_one)
}

/// Whether it is a call whose result is one number.
fn is_one_number(source: &Source<'_>, call: Node<'_>) -> bool {
    let arguments = part(call, "arguments").map(children).unwrap_or_default();
    let of_torch = source.field(call, "function").starts_with("torch.");
    // Along a dimension, or of each sample, there are many.
    match called(source, call) {
        _ if call.kind() != "call" => false,
        "mean" | "sum" => arguments.len() == usize::from(of_torch),
        "backward" | "cross_entropy" | "mse_loss" | "criterion" | "loss_fn" | "nll_loss" => {
            !arguments.iter().any(|a| source.field(*a, "name") == "reduction")
        }
        _ => false,
    }
}

/// Whether a value has no graph, whichever branch it is. `target`: what it is assigned to, and may be built on.
pub(super) fn is_detached(source: &Source<'_>, n: Node<'_>, target: Option<&str>) -> bool {
    let is = |n: Node<'_>| is_detached(source, n, target);
    let of = |name: &str| part(n, name).is_some_and(is);
    match n.kind() {
        "integer" | "float" | "string" | "true" | "false" | "none" => true,
        "conditional_expression" => branches(n).into_iter().all(is),
        "binary_operator" => of("left") && of("right"),
        "parenthesized_expression" | "list" | "tuple" | "set" | "expression_list" | "dictionary" => {
            children(n).into_iter().all(is)
        }
        "pair" | "subscript" | "keyword_argument" | "named_expression" => of("value"),
        "unary_operator" => of("argument"),
        "attribute" => source.field(n, "attribute") == "data" || of("object") || is_target(source, n, target),
        "identifier" => is_target(source, n, target),
        "call" => {
            let is_cut = |n: Node<'_>| n.kind() == "call" && DETACHED.contains(&called(source, n));
            let object = part(n, "function").and_then(|f| part(f, "object"));
            // A function may be given it, or what is made of it.
            let is_given =
                || part(n, "arguments").is_some_and(|a| below(a, &|_| true).into_iter().any(is_cut));
            is_cut(n) || object.is_some_and(is) || is_given()
        }
        _ => false,
    }
}

/// Whether a value surely has no graph, nor a tensor in it that has one.
pub(super) fn has_no_graph(source: &Source<'_>, n: Node<'_>) -> bool {
    /// Methods whose result autograd does not go through.
    const CUTS: WordList = WordList(
        "detach detach_ item tolist argmax argmin argsort eq ne gt lt ge le long int bool numel isnan isfinite",
    );
    /// And those that hand on what they are called on.
    const PASSES: WordList = WordList("float half double cpu cuda to clone contiguous");
    let is = |n: Node<'_>| has_no_graph(source, n);
    match n.kind() {
        "integer" | "float" | "string" | "true" | "false" | "none" | "comparison_operator" => true,
        "binary_operator" => ["left", "right"].iter().all(|side| part(n, side).is_some_and(is)),
        "parenthesized_expression" | "list" | "tuple" | "expression_list" => children(n).into_iter().all(is),
        "call" => {
            let object = part(n, "function").and_then(|f| part(f, "object"));
            let (name, object) = (called(source, n), object.filter(|o| !is_of_torch(source.text(*o))));
            let hands_on = PASSES.has(name) || TO_TENSORS.has(name);
            object.is_some_and(|o| CUTS.has(name) || hands_on && is(o))
        }
        _ => false,
    }
}

fn is_target(source: &Source<'_>, n: Node<'_>, target: Option<&str>) -> bool {
    target == Some(source.text(n))
}

/// The name of an exception that a value is, or has as an entry: of one that is handled where it stands.
pub(super) fn exception<'t>(source: &Source<'t>, value: Node<'t>) -> Option<&'t str> {
    let one = |n: Node<'t>| match n.kind() {
        "identifier" => {
            let text = source.text(n);
            let is_it = |clause: Node<'t>| {
                let mut head = children(clause).into_iter().filter(|c| c.kind() != "block");
                clause.kind() == "except_clause"
                    && head.next_back().is_some_and(|h| last_name(source, h) == text)
            };
            outward(n).any(is_it).then_some(text)
        }
        "attribute" if source.field(n, "attribute") == "__traceback__" => Some(source.field(n, "object")),
        "call" if called(source, n) == "exc_info" => Some("error"),
        _ => None,
    };
    ends(value).into_iter().find_map(one)
}

/// The last word of `ValueError as e`; nothing of a name that stands alone.
fn last_name<'t>(source: &Source<'t>, head: Node<'t>) -> &'t str {
    let mut words = source.text(head).split_whitespace().rev();
    let last = words.next().unwrap_or_default();
    let is_named = words.next() == Some("as")
        || head.kind() == "identifier" && head.prev_sibling().is_some_and(|p| p.kind() == "as");
    if is_named { last } else { "" }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{GRAPH, attribute, is};

    #[test]
    fn a_name_is_what_it_was_given() {
        let remedy = |keeper: fn(super::super::keeper::Keeper) -> _, given: &str, value: &str| {
            let class = "class T:\n    def step(self, x):\n";
            let source = format!("{class}        kl = {given}\n        self.parts.append({value})\n");
            is(&source, &keeper(attribute("T", "parts", "list")), 4, &format!("self.parts.append({value})"))
        };
        assert!(remedy(GRAPH, "(a - b).pow(2).mean()", "kl").contains("keep kl.item()"));
        assert!(remedy(GRAPH, "(a - b).pow(2).mean(-1)", "kl").contains("kl.detach()"));
        assert!(remedy(GRAPH, "(a - b).mean()", "kl * a").contains(".detach()"));
        for given in ["nn.functional.normalize(self.enc(x), dim=-1)", "net(x).softmax(-1)"] {
            assert!(remedy(|k| k, given, "kl[0]").contains(".clone()"), "{given}");
        }
        assert!(!remedy(|k| k, "self.split(x)", "kl[0]").contains(".clone()"));
    }
}
