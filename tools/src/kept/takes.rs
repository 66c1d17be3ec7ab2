//! What is taken of entries of what is kept, where these are read: numbers, tensors, or their graphs.

use super::adds::METHODS;
use super::needs::As;
use super::removes;
use super::scope::{Source, below, children, part};
use super::values::called;
use super::ways;
use strandline::event::WordList;
use tree_sitter::Node;

/// What a call that is given all of it needs; `None` where it only counts or shows it.
pub(super) fn of_call<'t>(source: &Source<'t>, call: Node<'t>) -> Option<As> {
    const COUNTS: WordList = WordList("len print bool id type isinstance hasattr repr str");
    const OF_NUMBERS: WordList = WordList("min max sum fmean mean median stdev array asarray");
    let name = called(source, call);
    let is_method = part(call, "function").is_some_and(|f| f.kind() == "attribute");
    let is_torch = source.field(call, "function").starts_with("torch.");
    if COUNTS.has(name) || METHODS.has(name) && is_method || removes::METHODS.contains(&name) && is_method {
        return None;
    }
    let has_more = part(call, "arguments").map_or(0, |a| children(a).len()) > 1;
    Some(match OF_NUMBERS.has(name) && !is_torch && !has_more {
        true => taken(source, call),
        false => taken(source, call).max(As::Tensors),
    })
}

/// What a loop, or a comprehension, over all of it needs of each entry.
pub(super) fn of_loop<'t>(source: &Source<'t>, over: Node<'t>) -> As {
    let Some(left) = part(over, "left") else { return As::Tensors };
    let names: Vec<&str> = source.targets(left);
    let whole = if over.kind() == "for_in_clause" { over.parent() } else { Some(over) };
    let Some(whole) = whole else { return As::Tensors };
    let is_name = |n: &Node<'t>| {
        n.kind() == "identifier" && names.contains(&source.text(*n)) && !ways::is_attribute_name(*n)
    };
    let uses = below(whole, &|_| true)
        .into_iter()
        .filter(is_name)
        .filter(|n| !(left.start_byte() <= n.start_byte() && n.end_byte() <= left.end_byte()));
    uses.map(|n| given_on(source, n).max(taken(source, n))).max().unwrap_or(As::Numbers)
}

/// What is needed of an entry where it is handed on: to a function that makes a number of it, or one that nothing is known of.
fn given_on<'t>(source: &Source<'t>, entry: Node<'t>) -> As {
    const TO_NUMBERS: WordList = WordList("float int print round str format append");
    let Some(arguments) = entry.parent().filter(|p| p.kind() == "argument_list") else {
        return As::Numbers;
    };
    let name = arguments.parent().map_or("", |call| called(source, call));
    if TO_NUMBERS.has(name) { As::Numbers } else { As::Tensors }
}

/// What is done with a value that only a tensor has, there or by the name that it is given.
pub(super) fn taken<'t>(source: &Source<'t>, value: Node<'t>) -> As {
    let mut most = As::Numbers;
    let mut n = value;
    while let Some(parent) = n.parent() {
        match parent.kind() {
            "attribute" => {
                let name = source.field(parent, "attribute");
                most = most.max(if name == "backward" { As::Graphs } else { As::Tensors });
            }
            "call" | "parenthesized_expression" | "binary_operator" | "unary_operator" | "subscript" => {}
            "assignment" => {
                let to = part(parent, "left").filter(|l| l.kind() == "identifier" && l.id() != n.id());
                let Some(to) = to else { break };
                let text = source.text(to);
                let owner = source.owner(to, text);
                let is_it = |a: &&Node<'t>| {
                    part(**a, "object").is_some_and(|o| {
                        o.kind() == "identifier" && source.text(o) == text && source.owner(o, text) == owner
                    })
                };
                for a in source.all("attribute").iter().filter(is_it) {
                    let goes = source.field(*a, "attribute") == "backward";
                    most = most.max(if goes { As::Graphs } else { As::Tensors });
                }
                break;
            }
            _ => break,
        }
        n = parent;
    }
    most
}
