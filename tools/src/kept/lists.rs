//! Whether a list could be a `deque` as well: some of what a source does with a list fails with another type.

use super::scope::{Source, children, part};
use super::values::called;
use super::ways;
use tree_sitter::Node;

/// Functions that keep the list that they are given first in an order of their own.
const OF_HEAPS: [&str; 5] = ["heapify", "heappop", "heappush", "heappushpop", "heapreplace"];
const OF_ORDER: [&str; 3] = ["insort", "insort_left", "insort_right"];
/// Functions of PyTorch that take tensors in a list or a tuple only.
const OF_TENSORS: [&str; 8] =
    ["cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "column_stack"];
/// Methods that a `deque` does not have.
const METHODS: [&str; 1] = ["sort"];

/// What a source does with a list, which decides how it can be kept short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Nothing that a `deque` cannot do.
    Plain,
    /// Something that only a list can do: a slice, `torch.cat(…)`, a sum.
    List,
    /// It is a heap, whose first entry is the smallest one.
    Heap,
    /// Its entries are in an order, not in that in which they came.
    Ordered,
}

/// The list that a statement puts something into by a function of two: `heap` of `heapq.heappush(heap, x)`.
pub(super) fn first_argument<'t>(source: &Source<'t>, n: Node<'t>) -> Option<Node<'t>> {
    let name = if n.kind() == "call" { called(source, n) } else { "" };
    if !OF_HEAPS.contains(&name) && !OF_ORDER.contains(&name) {
        return None;
    }
    children(part(n, "arguments")?).first().copied()
}

/// Whether a statement puts something into a list that it names by no method: `heapq.heappush(heap, x)`, `kept += new`.
pub(super) fn is_extended<'t>(source: &Source<'t>, n: Node<'t>) -> bool {
    n.kind() == "augmented_assignment" || first_argument(source, n).is_some()
}

/// Whether a statement puts something into an entry of what keeps, a list of lists: `kept[0] += [x]`, `kept[i].append(x)`.
pub(super) fn is_in_another(n: Node<'_>) -> bool {
    let into = match n.kind() {
        "call" => part(n, "function").and_then(|f| part(f, "object")),
        "augmented_assignment" => part(n, "left"),
        _ => None,
    };
    into.is_some_and(|i| i.kind() == "subscript")
}

/// How a source uses the list of such a name. An attribute counts whatever it is an attribute of: a list that stays one is never wrong.
pub(super) fn used(source: &Source<'_>, list: Node<'_>) -> Use {
    let is_it = |n: Node<'_>| is_called(source, n, list);
    let is_given = |call: &Node<'_>, functions: &[&str]| {
        let first = part(*call, "arguments").and_then(|a| children(a).first().copied());
        functions.contains(&called(source, *call)) && first.is_some_and(is_it)
    };
    let calls = source.all("call");
    if calls.iter().any(|c| is_given(c, &OF_HEAPS)) {
        return Use::Heap;
    }
    if calls.iter().any(|c| is_given(c, &OF_ORDER)) {
        return Use::Ordered;
    }
    let is_method = |call: &Node<'_>| {
        let object = part(*call, "function").and_then(|f| part(f, "object"));
        METHODS.contains(&ways::method(source, *call)) && object.is_some_and(is_it)
    };
    let is_sliced = |s: &Node<'_>| {
        part(*s, "value").is_some_and(is_it) && part(*s, "subscript").is_some_and(|i| i.kind() == "slice")
    };
    let is_summed = |b: &Node<'_>| {
        source.field(*b, "operator") == "+"
            && ["left", "right"].iter().any(|s| part(*b, s).is_some_and(is_it))
    };
    let needs_list = calls.iter().any(|c| is_given(c, &OF_TENSORS) || is_method(c))
        || source.all("subscript").iter().any(is_sliced)
        || source.all("binary_operator").iter().any(is_summed);
    if needs_list { Use::List } else { Use::Plain }
}

/// Whether a source reads the newest entries of a list, which it always has: `kept[-1]`.
pub(super) fn has_newest(source: &Source<'_>, list: Node<'_>) -> bool {
    let is_deleted = |s: &Node<'_>| s.parent().is_some_and(|p| p.kind() == "delete_statement");
    let is_it = |s: &&Node<'_>| {
        part(**s, "value").is_some_and(|v| is_called(source, v, list))
            && part(**s, "subscript").is_some_and(|i| source.text(i).starts_with('-'))
    };
    source.all("subscript").iter().filter(is_it).any(|s| !is_deleted(s))
}

/// Whether two nodes are called alike.
fn is_called(source: &Source<'_>, n: Node<'_>, list: Node<'_>) -> bool {
    match (n.kind(), list.kind()) {
        ("attribute", "attribute") => source.field(n, "attribute") == source.field(list, "attribute"),
        ("identifier", "identifier") => source.text(n) == source.text(list),
        _ => false,
    }
}

/// What helps with a list of this name that gets longer and longer; `has_newest`: an entry is read that is there as long as it is not emptied.
pub(super) fn advice(name: &str, used: Use, has_newest: bool) -> String {
    let limit = match used {
        Use::Plain => format!("limit its length: {name} = collections.deque(maxlen=…)"),
        Use::List => format!("keep only its newest n entries: del {name}[:-n]"),
        Use::Heap => format!("limit its length: heapq.heappop({name}) while it is too long"),
        Use::Ordered => format!("keep only n entries: del {name}[n:], or del {name}[:-n]"),
    };
    if has_newest { limit } else { format!("call {name}.clear() at the end of each epoch, or {limit}") }
}

#[cfg(test)]
mod tests {
    use super::super::keeper::Keeper;
    use super::super::tests::{attribute, global, is};

    #[test]
    fn a_list_that_must_stay_one_is_not_made_a_deque() {
        let remedy = |rest: &str| {
            let source = format!("kept.append(net(x))\n{rest}\n");
            is(&source, &global("kept", "list"), 1, "kept.append(net(x))")
        };
        for rest in ["torch.cat(kept).mean()", "torch.stack(kept, 1)"] {
            let said = remedy(rest);
            assert!(said.ends_with("or keep its tensors in host memory, .cpu()"), "{rest}: {said}");
        }
        for rest in ["last = kept[-8:]", "y = kept[-1]\nkept.sort()"] {
            assert_eq!(remedy(rest), "keep only its newest n entries: del kept[:-n]", "{rest}");
        }
        for rest in ["kept.sort()", "all = kept + [y]", "first = kept[:8]"] {
            let said = remedy(rest);
            assert!(said.ends_with("or keep only its newest n entries: del kept[:-n]"), "{rest}: {said}");
        }
        assert_eq!(
            remedy("print(len(kept), kept[-1])"),
            "limit its length: kept = collections.deque(maxlen=…)"
        );
        for rest in ["print(len(kept))", "torch.cat(others)", "row[2:]"] {
            let said = remedy(rest);
            assert!(
                said.ends_with("or limit its length: kept = collections.deque(maxlen=…)"),
                "{rest}: {said}"
            );
        }
    }

    #[test]
    fn a_list_that_others_know_by_name_stays_that_one() {
        let said = is(
            "from bank import ROWS\nROWS.append(net(x))\n",
            &global("ROWS", "list"),
            2,
            "ROWS.append(net(x))",
        );
        assert!(said.ends_with("del ROWS[:-n]"), "{said}");
        let shared = Keeper { is_shared: true, ..global("ROWS", "list") };
        let said = is("ROWS.append(net(x))\n", &shared, 1, "ROWS.append(net(x))");
        assert!(said.ends_with("del ROWS[:-n]"), "{said}");
    }

    #[test]
    fn what_another_object_reads_is_the_same_attribute() {
        let class = "class Buffer:\n    def add(self, x):\n        self.rows.append(x)\n";
        let keeper = attribute("Buffer", "rows", "list");
        let said = is(&format!("{class}        last = buf.rows[:9]\n"), &keeper, 3, "self.rows.append(x)");
        assert!(said.ends_with("del self.rows[:-n]"), "{said}");
    }

    #[test]
    fn a_list_that_a_sum_extends_is_named() {
        let sum = "kept += [net(x) for x in data]";
        let list = global("kept", "list");
        assert!(is(sum, &list, 1, sum).starts_with("call kept.clear() at"), "{}", is(sum, &list, 1, sum));
        let more = "more = load()\nkept += more\n";
        assert!(is(more, &list, 2, "kept += more").starts_with("call kept.clear() at"));
        let entry = "kept[0] += [net(x)]";
        assert!(is(entry, &list, 1, entry).starts_with("clear() the lists in kept at"));
        let entry = "kept[i].append(net(x))";
        assert!(is(entry, &list, 1, entry).starts_with("clear() the lists in kept at"));
        let anew = "kept = [*kept, net(x)]";
        assert!(is(anew, &list, 1, anew).ends_with("del kept[:-n]"), "{}", is(anew, &list, 1, anew));
    }

    #[test]
    fn a_heap_stays_a_heap() {
        let push = "heapq.heappush(heap, (s, t))";
        let said = is(&format!("{push}\n"), &global("heap", "list"), 1, push);
        assert_eq!(
            said,
            "call heap.clear() at regular intervals, or limit its length: heapq.heappop(heap) while it is too long"
        );
        let pops = format!("{push}\nif len(heap) > 90: heapq.heappop(heap)\n");
        let said = is(&pops, &global("heap", "list"), 1, push);
        assert!(said.starts_with("check that line 2, heapq.heappop(heap), which removes entries"), "{said}");
        let sorted = "bisect.insort(best, (s, t))";
        let said = is(&format!("{sorted}\n"), &global("best", "list"), 1, sorted);
        assert!(said.ends_with("keep only n entries: del best[n:], or del best[:-n]"), "{said}");
    }
}
