//! Statements that fill a keeper in no usual way, looked for where there is no other: under keys that are tensors, by a comprehension.

use super::adds::{Add, Search, name_of};
use super::keeper::Keeper;
use super::scope::{Source, below, children, part};
use super::{values, ways};
use std::collections::HashSet;
use tree_sitter::Node;

/// What puts nothing that could be memory into a dictionary, under a key that could: `names[tensor] = "conv1"`.
pub(super) fn by_keys<'t>(source: &Source<'t>, keeper: &Keeper) -> Vec<Add<'t>> {
    const DICTS: [&str; 3] = ["dict", "defaultdict", "OrderedDict"];
    let name = name_of(source, keeper).filter(|_| DICTS.contains(&keeper.type_name.as_str()));
    let Some(name) = name else { return Vec::new() };
    let found = Search::with_aliases(source, keeper, HashSet::from([name]));
    let is_it = |n: &&Node<'t>| matches!(n.kind(), "assignment" | "augmented_assignment");
    let add = |n: &Node<'t>| {
        let to = part(*n, "left").filter(|l| l.kind() == "subscript" && !ways::is_fixed(*l))?;
        let mut cursor = to.walk();
        let keys: Vec<Node<'t>> = to.children_by_field_name("subscript", &mut cursor).collect();
        let is_own = part(to, "value").is_some_and(|v| found.is_keeper(v));
        let may_hold = keys.iter().any(|k| values::may_hold(source, *k));
        (is_own && may_hold).then(|| Add { values: keys, ..Add::of(*n) })
    };
    source.nodes.iter().filter(is_it).filter_map(add).collect()
}

/// Decorators of `cachetools` that keep the results of a function that allocates, in the keeper or in one of their own.
pub(super) fn by_decorator<'t>(source: &Source<'t>, keeper: &Keeper) -> Vec<Add<'t>> {
    let is_its_own = keeper.module.as_deref().is_some_and(|m| m.split('.').next() == Some("cachetools"));
    let found = Search::new(source, keeper, name_of(source, keeper).into_iter().collect());
    let is_it = |n: &&Node<'t>| caches(source, **n) && (is_its_own || found.mentions(**n));
    let all = source.all("decorator").iter().filter(is_it).map(|n| Add::of(*n));
    all.filter(|add| add.evidence(source, keeper) > 0).collect()
}

/// Whether it is such a decorator.
pub(super) fn caches(source: &Source<'_>, n: Node<'_>) -> bool {
    let call = children(n).into_iter().next().filter(|c| n.kind() == "decorator" && c.kind() == "call");
    call.is_some_and(|c| matches!(values::called(source, c), "cached" | "cachedmethod"))
}

/// What makes it of things that are allocated meanwhile: `results = [fold(k) for k in range(5)]`.
pub(super) fn by_comprehension<'t>(source: &Source<'t>, keeper: &Keeper) -> Vec<Add<'t>> {
    const PASSED: [&str; 4] = ["list", "dict", "set", "tuple"];
    let name = name_of(source, keeper).filter(|_| !keeper.rebound);
    let Some(name) = name else { return Vec::new() };
    let found = Search::new(source, keeper, HashSet::from([name]));
    let is_comprehension =
        |n: Node<'t>| n.kind().ends_with("comprehension") || n.kind() == "generator_expression";
    let add = |n: &Node<'t>| {
        let right = part(*n, "right")?;
        let arguments = || {
            part(right, "arguments").map(|a| if a.kind() == "argument_list" { children(a) } else { vec![a] })
        };
        let inner = match right.kind() {
            "call" if PASSED.contains(&values::called(source, right)) => arguments()?.first().copied()?,
            _ => right,
        };
        let is_own = part(*n, "left").is_some_and(|l| found.is_keeper(l))
            && is_comprehension(inner)
            // What is left of it is no more than it was.
            && !below(right, &|_| true).into_iter().any(|n| found.is_keeper(n));
        let add = Add { values: part(inner, "body").into_iter().collect(), grows: false, ..Add::of(*n) };
        (is_own && add.evidence(source, keeper) > 0).then_some(add)
    };
    source.all("assignment").iter().filter_map(add).collect()
}

#[cfg(test)]
mod tests {
    use super::super::keeper::Keeper;
    use super::super::tests::{attribute, global, is, none};

    #[test]
    fn keys_that_are_tensors_where_nothing_else_is_stored() {
        let class = "class Reporter:\n    def note(self, name, t):\n        self.names[t] = f'{name}.out'\n";
        let keeper = attribute("Reporter", "names", "dict");
        let remedy = is(class, &keeper, 3, "self.names[t] = f'{name}.out'");
        assert!(remedy.contains("pop() the keys"), "{remedy}");
        let both = format!("{class}    def keep(self, i, x):\n        self.names[i] = x.detach()\n");
        is(&both, &keeper, 5, "self.names[i] = x.detach()");
        none("seen = {}\nfor i in range(9):\n    seen[i] = 1\n", &global("seen", "dict"));
        none("seen = {}\nseen['last'] = 1\n", &global("seen", "dict"));
    }

    #[test]
    fn what_a_comprehension_makes() {
        let source = "def fold(k):\n    return train(k)\nresults = [fold(k) for k in range(5)]\n";
        let kept = |lines: &[u32]| Keeper { allocated: lines.to_vec(), ..global("results", "list") };
        is(source, &kept(&[2, 3]), 3, "results = [fold(k) for k in range(5)]");
        none(source, &kept(&[9]));
        let passed = source.replace("[fold(k) for k in range(5)]", "list(fold(k) for k in range(5))");
        is(&passed, &kept(&[3]), 3, "results = list(fold(k) for k in range(5))");
        let rest = "results = []\nfor k in data:\n    results = [r for r in results if r.good]\n";
        none(rest, &kept(&[3]));
    }

    #[test]
    fn the_rest_of_what_a_list_is_unpacked_into() {
        let rest = "xs = []\nfor i in range(9):\n    h = net(x)\n    *xs, last = *xs, h, i\n";
        is(rest, &global("xs", "list"), 4, "*xs, last = *xs, h, i");
        none(&rest.replace("*xs, h, i", "xs"), &global("xs", "list"));
    }

    #[test]
    fn a_decorator_that_keeps_what_its_function_returns() {
        let source = "memo = {}\n@cached(cache={})\ndef mask(n):\n    return net(n)\n@cached(memo)\ndef pos(n):\n    return net(n)\n";
        let its_own = |line| Keeper {
            module: Some("cachetools._cached".into()),
            allocated: vec![line],
            ..attribute("_BasicWrapper", "cache", "dict")
        };
        assert!(is(source, &its_own(4), 2, "@cached(cache={})").contains("maxsize"));
        is(source, &Keeper { allocated: vec![7], ..global("memo", "dict") }, 5, "@cached(memo)");
        none(source, &its_own(1));
        none(source, &Keeper { module: Some("other".into()), ..its_own(4) });
    }
}
