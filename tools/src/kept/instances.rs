//! Objects of a class that the source does not define, a package's, and the calls that give them something to keep:
//! `metric = CatMetric()`, then `metric.update(out)`.

use super::adds::{Add, METHODS};
use super::keeper::Keeper;
use super::scope::{Source, below, children, outward, part};
use super::values::{called, may_hold};
use tree_sitter::Node;

/// Other methods that give an object something.
const GIVING: [&str; 5] = ["forward", "__call__", "add_batch", "collect", "observe"];
/// Methods and functions whose result is another object of its class.
const COPIES: [&str; 3] = ["clone", "copy", "deepcopy"];
/// Copies of copies that are followed.
const DEEPEST: u32 = 2;

/// Calls that give something to an object of the keeper's class, which is nowhere made but in this source, and lead to what was allocated.
pub(super) fn given<'t>(source: &Source<'t>, keeper: &Keeper) -> Vec<Add<'t>> {
    let objects = of_package(source, keeper);
    let adds =
        source.all("call").iter().filter(|call| gives_one(source, **call, &objects)).filter_map(|call| {
            let values = children(part(*call, "arguments")?);
            values.iter().any(|v| may_hold(source, *v)).then(|| Add { values, ..Add::of(*call) })
        });
    adds.filter(|add| add.evidence(source, keeper) > 0).collect()
}

/// Whether a call gives something to an object of the keeper's class, a package's.
pub(super) fn gives<'t>(source: &Source<'t>, call: Node<'t>, keeper: &Keeper) -> bool {
    call.kind() == "call" && gives_one(source, call, &of_package(source, keeper))
}

/// Whether it is a call of a method of one of these objects, whichever.
pub(super) fn has_method<'t>(
    source: &Source<'t>,
    call: Node<'t>,
    objects: &[(Option<usize>, String)],
) -> bool {
    let object = part(call, "function").and_then(|f| part(f, "object"));
    object.and_then(|o| name(source, o)).is_some_and(|n| objects.contains(&n))
}

/// What objects of the keeper's class are called, where this source does not define that.
pub(super) fn of_package<'t>(source: &Source<'t>, keeper: &Keeper) -> Vec<(Option<usize>, String)> {
    let class = keeper.class.as_deref().filter(|_| keeper.kind == "attribute").unwrap_or_default();
    let is_here = |n: &Node<'t>| source.field(*n, "name") == class;
    match class.is_empty() || keeper.placed || source.all("class_definition").iter().any(is_here) {
        true => Vec::new(),
        false => objects(source, class),
    }
}

/// Whether a call is one of these objects, or of a method of one that gives it something.
fn gives_one<'t>(source: &Source<'t>, call: Node<'t>, objects: &[(Option<usize>, String)]) -> bool {
    let is_object = |n: Node<'t>| name(source, n).is_some_and(|n| objects.contains(&n));
    part(call, "function").is_some_and(|function| {
        let method = source.field(function, "attribute");
        let gives = METHODS.has(method) || GIVING.contains(&method);
        is_object(function) || gives && part(function, "object").is_some_and(is_object)
    })
}

/// What objects of a class are called: variables with the node that they belong to, and attributes.
fn objects<'t>(source: &Source<'t>, class: &str) -> Vec<(Option<usize>, String)> {
    let mut found: Vec<(Option<usize>, String)> = Vec::new();
    for _ in 0..=DEEPEST {
        let is_one = |n: Node<'t>| {
            let is_copy = || {
                let of = part(n, "function").and_then(|f| part(f, "object"));
                let first = || part(n, "arguments").and_then(|a| children(a).first().copied());
                COPIES.contains(&called(source, n))
                    && of
                        .into_iter()
                        .chain(first())
                        .any(|o| name(source, o).is_some_and(|o| found.contains(&o)))
            };
            n.kind() == "call" && (called(source, n) == class || is_copy()) && !is_handed_on(source, n)
        };
        let makes =
            |a: &&Node<'t>| part(**a, "right").is_some_and(|r| below(r, &|_| true).into_iter().any(is_one));
        let targets = source.all("assignment").iter().filter(makes).filter_map(|a| part(*a, "left"));
        let names = targets.flat_map(|t| match t.kind() {
            "pattern_list" | "tuple_pattern" => children(t),
            _ => vec![t],
        });
        let new: Vec<_> = names.filter_map(|n| name(source, n)).filter(|n| !found.contains(n)).collect();
        if new.is_empty() {
            break;
        }
        found.extend(new);
    }
    found
}

/// Whether an object is an argument of a call of something that this source defines: what that makes of it is not known.
fn is_handed_on(source: &Source<'_>, made: Node<'_>) -> bool {
    const DEFINING: [&str; 2] = ["class_definition", "function_definition"];
    let is_own = |name: &str| source.binding(name).iter().any(|n| DEFINING.contains(&n.kind()));
    outward(made)
        .take_while(|n| n.kind() != "assignment")
        .any(|n| n.kind() == "call" && is_own(called(source, n)))
}

/// A variable with the node that it belongs to, or an attribute, whosever it is.
fn name<'t>(source: &Source<'t>, n: Node<'t>) -> Option<(Option<usize>, String)> {
    let text = source.text(n);
    match n.kind() {
        "identifier" => Some((Some(source.owner(n, text)), text.to_string())),
        "attribute" => Some((None, source.field(n, "attribute").to_string())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{attribute, is, none};
    use super::*;

    #[test]
    fn an_object_of_a_packages_class_keeps_what_its_methods_are_given() {
        let keeper = |line| Keeper { allocated: vec![line], ..attribute("CatMetric", "value", "list") };
        let source = "m = CatMetric().cuda()\nfor i in r:\n    y = net(x)\n    m.update(y.detach())\n";
        let remedy = is(source, &keeper(3), 4, "m.update(y.detach())");
        assert_eq!(remedy, "empty it at regular intervals, as reset() does with a metric");
        none(source, &keeper(2));
        let queue = Keeper { allocated: vec![3], ..attribute("Queue", "queue", "deque") };
        let source = "q = queue.Queue()\nfor i in r:\n    q.put(net(x))\n    q.get()\n";
        assert!(is(source, &queue, 3, "q.put(net(x))").starts_with("take out as many entries as are put in"));
        let source = "class T:\n    def __init__(self):\n        self.ap = tm.CatMetric()\n    def step(self, y):\n        self.ap(y)\nfor i in r:\n    y = net(x)\n    t.step(y)\n";
        is(source, &keeper(7), 5, "self.ap(y)");
        let source = "base = Collection({'a': CatMetric()})\na, b = base.clone(), base.clone()\nfor i in r:\n    y = net(x)\n    a.update(y)\n";
        is(source, &keeper(4), 5, "a.update(y)");
        let source = "class Tracker:\n    pass\nt = Tracker(CatMetric())\nfor i in r:\n    y = net(x)\n    t.update(y)\n";
        none(source, &keeper(5));
    }
}
