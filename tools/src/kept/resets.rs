//! Whether a name that builds up from step to step begins anew now and then, as a sum of losses at each epoch does: what it keeps is bounded by that.

use super::keeper::Keeper;
use super::scope::{FUNCTIONS, Source, below, is_shallow, outward, parse, part};
use super::values::called;
use tree_sitter::Node;

/// Whether a source gives the keeper's name something new again and again that it does not build on. What cannot be told is none.
pub(super) fn is_reset(text: &str, keeper: &Keeper) -> bool {
    let Some(tree) = parse(text).filter(|t| is_shallow(t.root_node())) else { return false };
    let source = Source::new(text, tree.root_node());
    let name = keeper.variable.as_str();
    let owner = match keeper.kind.as_str() {
        "global" => Some(source.root.id()),
        "local" => {
            keeper.function.as_deref().and_then(|f| source.function(f, keeper.first_line)).map(|f| f.id())
        }
        _ => None,
    };
    let is_its = |left: Node<'_>| match keeper.kind.as_str() {
        "attribute" => left.kind() == "attribute" && source.field(left, "attribute") == name,
        _ => source.text(left) == name && owner == Some(source.owner(left, name)),
    };
    let begins_anew = |a: &&Node<'_>| {
        let sides = part(**a, "left").zip(part(**a, "right"));
        sides.is_some_and(|(left, right)| is_its(left) && !builds_on(&source, left, right))
    };
    source.all("assignment").iter().filter(begins_anew).any(|a| is_repeated(&source, *a))
}

/// Whether a value has the graph of what a name had.
fn builds_on(source: &Source<'_>, left: Node<'_>, right: Node<'_>) -> bool {
    const CUTS: [&str; 3] = ["detach", "item", "data"];
    let is_cut = |n: Node<'_>| {
        outward(n)
            .take_while(|o| o.id() != right.id())
            .chain([right])
            .any(|o| CUTS.contains(&source.field(o, "attribute")))
    };
    let is_it = |n: &Node<'_>| n.kind() == left.kind() && source.text(*n) == source.text(left);
    below(right, &|_| true).into_iter().any(|n| is_it(&n) && !is_cut(n))
}

/// Whether a statement runs again and again: in a loop, or in a function that a loop calls.
fn is_repeated(source: &Source<'_>, statement: Node<'_>) -> bool {
    let function = outward(statement).find(|n| FUNCTIONS.contains(&n.kind()));
    let end = function.map(|f| f.id());
    if outward(statement).take_while(|n| Some(n.id()) != end).any(repeats) {
        return true;
    }
    let name = function.map_or("", |f| source.field(f, "name"));
    let calls = source.all("call").iter().filter(|c| called(source, **c) == name);
    !name.is_empty() && name != "__init__" && calls.into_iter().any(|c| outward(*c).any(repeats))
}

fn repeats(n: Node<'_>) -> bool {
    matches!(n.kind(), "for_statement" | "while_statement" | "generator_expression")
        || n.kind().ends_with("_comprehension")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{attribute, global};
    use super::*;

    #[test]
    fn what_begins_anew_at_each_epoch() {
        let total = global("total", "Tensor");
        let epochs =
            "for e in range(9):\n    total = 0\n    for x in data:\n        total = total + net(x)\n";
        assert!(is_reset(epochs, &total));
        assert!(!is_reset(&epochs.replace("    total = 0\n", ""), &total));
        assert!(!is_reset("total = 0\nfor x in data:\n    total = total + net(x)\n", &total));
        assert!(is_reset(
            "for x in data:\n    total = total + net(x)\n    if x: total = total.detach()\n",
            &total
        ));
        assert!(!is_reset("for x in data:\n    total = .9 * total + net(x).detach()\n", &total));
        let local =
            Keeper { kind: "local".into(), function: Some("fit".into()), first_line: Some(1), ..total };
        let fit = "def fit():\n    total = 0\n    for x in data: total = total + net(x)\n";
        assert!(is_reset(&format!("{fit}[fit() for e in range(9)]\n"), &local));
        assert!(is_reset(&format!("{fit}while True:\n    if fit() > 1: break\n"), &local));
        assert!(!is_reset(&format!("{fit}fit()\n"), &local));
    }

    #[test]
    fn an_attribute_may_be_reset_by_a_method() {
        let class = "class M:\n    def __init__(self): self.sum = 0\n    def update(self, x): self.sum = self.sum + x\n";
        let reset = "    def reset(self): self.sum = 0\nfor e in range(9):\n    m.reset()\n    for x in data: m.update(x)\n";
        assert!(is_reset(&format!("{class}{reset}"), &attribute("M", "sum", "Tensor")));
        assert!(!is_reset(class, &attribute("M", "sum", "Tensor")));
    }
}
