//! What a source reads of what it keeps, which advice must not take from it: `min(results)` after the loop that fills it.

use super::adds::{self, Add, METHODS, Search};
use super::keeper::Keeper;
use super::needs::{As, Read, When};
use super::removes;
use super::scope::{FUNCTIONS, Source, below, children, line, outward, part};
use super::takes::{of_call, of_loop, taken};
use super::values::{self, called};
use super::ways;
use std::collections::HashSet;
use strandline::event::WordList;
use tree_sitter::Node;

/// Longest text of an expression that advice names.
const LONGEST: usize = 40;
/// Functions whose result goes through what they are given.
const ITERATORS: WordList = WordList("iter reversed enumerate zip");
/// Statements that hand on what they name.
const RETURNS: [&str; 2] = ["return_statement", "yield"];

/// The place that reads all of what a statement fills: the first after its loop, or else the first; `None` where none is seen.
pub(super) fn of<'t>(source: &Source<'t>, add: &Add<'t>, keeper: &Keeper) -> Option<Read> {
    let kept = filled(source, add);
    let holders: Vec<Search<'_, 't>> =
        [keeper].into_iter().chain(&keeper.also).filter_map(|k| holder(source, k)).collect();
    let nested = kept.is_some_and(|kept| {
        let filled = part(add.node, "function").and_then(|f| part(f, "object"));
        let filled = filled.or_else(|| part(add.node, "left").filter(|_| add.node.kind() != "assignment"));
        filled.is_some_and(|f| f.id() != kept.id())
    });
    let statement = add.statement();
    let is_own =
        |n: Node<'t>| statement.start_byte() <= n.start_byte() && n.end_byte() <= statement.end_byte();
    let is_it = |n: Node<'t>| {
        kept.is_some_and(|kept| is_it(source, n, kept)) || holders.iter().any(|h| h.is_keeper(n))
    };
    let uses = ["identifier", "attribute"].into_iter().flat_map(|kind| source.all(kind)).copied();
    // Whoever gives it to the function of the statement reads nothing there.
    let function = outward(statement).find(|p| p.kind() == "function_definition");
    let filler = function.map_or("", |f| source.field(f, "name"));
    let fills = |n: &Node<'t>| {
        let call = n.parent().filter(|p| p.kind() == "argument_list").and_then(|p| p.parent());
        call.is_some_and(|c| !filler.is_empty() && called(source, c) == filler)
    };
    let uses = uses.filter(|n| !is_own(*n) && is_it(*n) && !fills(n));
    let mut reads: Vec<Read> = uses.filter_map(|n| read(source, n, Some(statement), nested)).collect();
    reads.extend(keeper.read.clone());
    first(reads)
}

/// The first of several reads, which needs what all of them do.
pub(super) fn first(reads: impl IntoIterator<Item = Read>) -> Option<Read> {
    let mut reads: Vec<Read> = reads.into_iter().collect();
    let takes = reads.iter().map(|r| r.takes).max()?;
    reads.sort_by_key(|r| (r.when, r.file.is_some(), r.line));
    reads.into_iter().next().map(|first| Read { takes, ..first })
}

/// What a keeper is called in its source, where it is a container itself: the statement may know it by another name.
fn holder<'s, 't>(source: &'s Source<'t>, keeper: &'s Keeper) -> Option<Search<'s, 't>> {
    let is_container =
        removes::is_plain(&keeper.type_name) || ways::container(source, &keeper.type_name).is_some();
    let name = adds::name_of(source, keeper).filter(|_| is_container)?;
    Some(Search::with_aliases(source, keeper, HashSet::from([name])))
}

/// Whether something is read of a sum that only a tensor has: `total.item()`.
pub(super) fn takes_tensor<'t>(source: &Source<'t>, sum: Node<'t>) -> bool {
    let uses = ["identifier", "attribute"].into_iter().flat_map(|kind| source.all(kind));
    uses.filter(|n| is_it(source, **n, sum)).any(|n| taken(source, *n) > As::Numbers)
}

/// Whether a node names a container, or, of another object, an attribute that is called so.
fn is_it<'t>(source: &Source<'t>, n: Node<'t>, container: Node<'t>) -> bool {
    let of = |n: Node<'t>| source.field(n, "object");
    let is_other = n.kind() == "attribute" && container.kind() == "attribute" && of(n) != "self";
    is_other && source.field(n, "attribute") == source.field(container, "attribute")
        || removes::is_it(source, n, container)
}

/// The container that a statement fills, below its keys: of `history["loss"].append(x)` it is `history`.
fn filled<'t>(source: &Source<'t>, add: &Add<'t>) -> Option<Node<'t>> {
    let mut n = match add.node.kind() {
        "call" => part(part(add.node, "function")?, "object")?,
        _ => ways::target(add.node)?,
    };
    loop {
        n = match n.kind() {
            "subscript" => part(n, "value")?,
            "call" => part(part(n, "function")?, "object")?,
            "identifier" => return Some(n),
            "attribute" if matches!(source.field(n, "attribute"), "get" | "setdefault") => part(n, "object")?,
            "attribute" => return Some(n),
            _ => return None,
        };
    }
}

/// What a use of a container reads, if that is all of it.
///
/// `nested`: its entries are containers, which are filled.
pub(super) fn read<'t>(
    source: &Source<'t>,
    n: Node<'t>,
    statement: Option<Node<'t>>,
    nested: bool,
) -> Option<Read> {
    let parent = n.parent()?;
    // `return outs, losses`, `return iter(outs)`
    let whole = |p: &Node<'t>| match p.kind() {
        "call" => ITERATORS.has(called(source, *p)),
        "argument_list" => p.parent().is_some_and(|c| ITERATORS.has(called(source, c))),
        kind => matches!(kind, "expression_list" | "tuple" | "list" | "dictionary" | "pair"),
    };
    let is_returned = outward(n).find(|p| !whole(p)).is_some_and(|p| RETURNS.contains(&p.kind()));
    // `return rows[key]`, `return rows.get(key)`
    let entry = match parent.kind() {
        "attribute" => parent.parent().filter(|c| c.kind() == "call"),
        _ => Some(parent).filter(|p| p.kind() == "subscript"),
    };
    let is_entry_returned =
        nested && entry.and_then(|e| e.parent()).is_some_and(|p| RETURNS.contains(&p.kind()));
    let mut is_newest = false;
    let takes = match parent.kind() {
        _ if is_returned => As::Tensors,
        "list_splat" | "dictionary_splat" => As::Tensors,
        "argument_list" => of_call(source, parent.parent()?)?,
        "keyword_argument" => As::Tensors,
        "for_statement" | "for_in_clause" if part(parent, "right")?.id() == n.id() => of_loop(source, parent),
        // `history.values()`; methods that fill it or empty it read nothing.
        "attribute" => {
            let call = parent.parent().filter(|c| c.kind() == "call")?;
            let over = call.parent()?;
            let is_returned = RETURNS.contains(&over.kind());
            match (source.field(parent, "attribute"), over.kind()) {
                ("values" | "items", "for_statement" | "for_in_clause") => of_loop(source, over),
                ("values" | "items", "argument_list") => of_call(source, over.parent()?)?,
                ("copy", _) => As::Tensors,
                ("get", "argument_list") if nested => of_call(source, over.parent()?)?,
                ("get", _) if is_entry_returned => As::Tensors,
                ("values" | "items", _) if is_returned => As::Tensors,
                _ => return None,
            }
        }
        "subscript" if part(parent, "value")?.id() == n.id() => {
            let inner = parent.parent()?;
            let is_given = inner.kind() == "argument_list" && part(parent, "subscript")?.kind() == "string";
            // `history["loss"]` is one of its lists where its keys are always the same.
            match is_given && ways::is_fixed(parent) {
                true => of_call(source, inner.parent()?)?,
                false if nested && inner.kind() == "argument_list" => of_call(source, inner.parent()?)?,
                false if is_entry_returned => As::Tensors,
                false => {
                    let (takes, newest) = of_entry(source, parent, statement)?;
                    is_newest = newest;
                    takes
                }
            }
        }
        _ => return None,
    };
    // A sample is taken of as many as there are.
    const SAMPLES: WordList = WordList("sample choice choices");
    let around = parent.parent().filter(|c| c.kind() == "call");
    let takes_some = around.is_some_and(|c| SAMPLES.has(called(source, c)));
    let text = |n: &Node<'t>| {
        let text = source.text(*n);
        text.len() <= LONGEST && !text.contains('\n')
    };
    let whole = outward(n).take_while(|p| !p.kind().ends_with("_statement") && p.kind() != "block");
    let shown = whole.filter(|p| text(p) && matches!(p.kind(), "call" | "subscript" | "binary_operator"));
    let of_loop = || {
        let is_loop = matches!(parent.kind(), "for_statement" | "for_in_clause");
        is_loop.then(|| format!("for {} in {}", source.field(parent, "left"), source.text(n)))
    };
    let shown = || shown.take(1).last().unwrap_or(n);
    Some(Read {
        line: line(n),
        file: None,
        text: of_loop().unwrap_or_else(|| source.text(shown()).to_owned()),
        takes,
        when: match when(n, statement) {
            when if takes_some && when != When::After => When::Sampled,
            // Whoever gets the container itself reads it later.
            _ if is_newest => When::Newest,
            _ if is_returned || is_entry_returned => When::After,
            when => when,
        },
        with: statement.map(|s| with(source, n, s)).unwrap_or_default(),
    })
}

/// What else an expression reads that statements beside this one fill: `torch.cat(preds) == torch.cat(targets)`.
fn with<'t>(source: &Source<'t>, n: Node<'t>, statement: Node<'t>) -> Vec<(String, String)> {
    let is_whole = |p: &Node<'t>| p.kind().ends_with("_statement") || p.kind() == "block";
    let Some(read) = outward(n).take_while(|p| !is_whole(p)).last() else { return Vec::new() };
    let read = below(outward(n).find(|p| p.kind() == "return_statement").unwrap_or(read), &|_| true);
    let Some(block) = statement.parent() else { return Vec::new() };
    let fills = source.all("call").iter().filter(|c| {
        let method = ways::method(source, **c);
        let own = c.parent().filter(|s| s.parent().is_some_and(|b| b.id() == block.id()));
        matches!(method, "append" | "extend") && own.is_some_and(|s| s.id() != statement.id())
    });
    let fills = fills.filter_map(|c| {
        let container = part(part(*c, "function")?, "object")?;
        let values = children(part(*c, "arguments")?);
        let is_read = read.iter().any(|r| r.kind() == container.kind() && is_it(source, *r, container));
        let is_other = source.text(container) != source.text(n) && is_read;
        let is_tensor = matches!(values.as_slice(), [one] if values::may_hold(source, *one));
        (is_other && is_tensor).then(|| [container, values[0]].map(|n| source.text(n).to_owned()).into())
    });
    let mut all: Vec<(String, String)> = fills.collect();
    all.dedup_by(|a, b| a.0 == b.0);
    if all.iter().any(|(container, value)| container.len() + value.len() > LONGEST) {
        all.clear();
    }
    all
}

/// The function, or the module, that something stands in.
fn place(n: Node<'_>) -> Option<Node<'_>> {
    outward(n).find(|p| FUNCTIONS.contains(&p.kind()) || p.kind() == "module")
}

/// What is read of entries, after the loop, and whether they are the newest, which are there in any case.
fn of_entry<'t>(source: &Source<'t>, entry: Node<'t>, statement: Option<Node<'t>>) -> Option<(As, bool)> {
    let key = part(entry, "subscript")?;
    let is_newest = matches!(key.kind(), "unary_operator" | "slice") && source.text(key).starts_with('-');
    let is_target =
        |p: Node<'t>| p.kind() == "delete_statement" || part(p, "left").is_some_and(|l| l.id() == entry.id());
    let is_filled = entry.parent().is_none_or(|p| is_target(p) || METHODS.has(source.field(p, "attribute")));
    let parent = entry.parent()?;
    let takes = || match parent.kind() {
        "for_statement" | "for_in_clause" => Some(of_loop(source, parent)),
        "argument_list" if key.kind() == "slice" => of_call(source, parent.parent()?),
        kind if RETURNS.contains(&kind) => Some(As::Tensors),
        _ => Some(taken(source, entry)),
    };
    let is_read = !is_filled && (is_newest || when(entry, statement) == When::After);
    is_read.then(takes).flatten().map(|takes| (takes, is_newest))
}

/// When something comes that a statement fills: after it in the same function, and in none of the loops that the statement is in, or in the
/// script, which goes on after all that its functions do.
fn when<'t>(n: Node<'t>, statement: Option<Node<'t>>) -> When {
    let is_loop = |p: &Node<'_>| matches!(p.kind(), "for_statement" | "while_statement");
    let is_inside = |of: Node<'_>| of.start_byte() <= n.start_byte() && n.end_byte() <= of.end_byte();
    let Some(here) = place(n) else { return When::Meanwhile };
    let is_of_script =
        |is_later: bool| here.kind() == "module" && is_later && !outward(n).any(|p| is_loop(&p));
    let Some(statement) = statement else {
        return if is_of_script(true) { When::After } else { When::Elsewhere };
    };
    let Some(there) = place(statement) else { return When::Meanwhile };
    let is_later = n.start_byte() > statement.end_byte();
    let mut loops = outward(statement).take_while(|p| p.id() != there.id()).filter(is_loop).peekable();
    if here.id() == there.id() {
        // `kept.extend(net(x) for x in data)` is a loop of its own.
        let is_all = || below(statement, &|_| true).iter().any(|p| p.kind() == "for_in_clause");
        let is_after = (loops.peek().is_some() || is_all()) && is_later && !loops.any(is_inside);
        return if is_after { When::After } else { When::Meanwhile };
    }
    if is_of_script(is_later) { When::After } else { When::Elsewhere }
}

#[cfg(test)]
mod tests {
    use super::super::keeper::Keeper;
    use super::super::tests::{GRAPH, attribute, global, is};

    /// What is said where this is stored in a list in a loop, before these lines.
    fn stored(value: &str, after: &str, is_graph: bool) -> String {
        let statement = format!("kept.append({value})");
        let source = format!("kept = []\nfor x in data:\n    {statement}\n{after}\n");
        let keeper = Keeper { direct: true, ..global("kept", "list") };
        is(&source, &if is_graph { GRAPH(keeper) } else { keeper }, 3, &statement)
    }

    #[test]
    fn what_is_read_after_the_loop_is_not_to_be_cleared() {
        let host = "keep it in host memory, net(x).cpu(), and move back only what is used on the GPU: ";
        for (after, place) in [
            ("print(torch.cat(kept).mean())", "line 4, torch.cat(kept)"),
            ("for k in kept: print(k)", "line 4, for k in kept"),
            ("save([k.cpu() for k in kept])", "line 4, for k in kept"),
            ("best = min(kept, key=score)", "line 4, min(kept, key=score)"),
            ("report(kept)", "line 4, report(kept)"),
        ] {
            assert_eq!(stored("net(x)", after, false), format!("{host}{place}, needs it"), "{after}");
        }
        let first = stored("net(x)", "print(kept[0].mean())", false);
        assert!(first.ends_with("line 4, kept[0], needs it"), "{first}");
        for after in ["print(len(kept))", "print(kept)"] {
            assert!(stored("net(x)", after, false).contains("kept.clear() at"), "{after}");
        }
        let host = stored("net(x)", "best = torch.stack(kept)", true);
        assert!(
            host.contains(
                "net(x).detach(), without its graph, and in host memory, .cpu(): line 4, torch.stack(kept)"
            ),
            "{host}"
        );
    }

    #[test]
    fn what_is_read_by_another_name_than_that_of_the_statement_is_the_same() {
        let said = |keeper: Keeper, line: u32, text: &str, source: &str| {
            is(source, &Keeper { direct: true, ..keeper }, line, text)
        };
        let given =
            "def step(store, x):\n    store.append(x)\nresults = []\nfor x in data:\n    step(results, x)\n";
        let sample = format!("{given}print(random.sample(results, 8))\n");
        let text = said(global("results", "list"), 2, "store.append(x)", &sample);
        assert!(text.ends_with("line 6, random.sample(results, 8), needs it"), "{text}");
        let own = "class Loud(list):\n    def append(self, x):\n        super().append(x)\nkept = Loud()\nprint(max(kept, key=f))\n";
        let text = said(global("kept", "Loud"), 3, "super().append(x)", own);
        assert!(text.ends_with("line 5, max(kept, key=f), needs it"), "{text}");
        let class = "class Rec:\n    def __init__(self): self.rows = []\n    def all(self): return self.rows\nfor x in data: r.rows.append(net(x))\n";
        let text = said(attribute("Rec", "rows", "list"), 4, "r.rows.append(net(x))", class);
        assert!(text.ends_with("line 3, self.rows, needs it"), "{text}");
    }

    #[test]
    fn what_several_statements_fill_is_moved_as_a_whole() {
        let both = "kept = []\nfor x in data:\n    y = net(x)\n    kept.append(y)\n    kept.append(x)\nprint(torch.stack(kept))\n";
        let keeper = Keeper { direct: true, allocated: vec![3], ..global("kept", "list") };
        let said = is(both, &keeper, 4, "kept.append(y)");
        assert!(said.starts_with("keep its tensors in host memory, .cpu(), "), "{said}");
    }

    #[test]
    fn what_a_tuple_and_a_generator_fill_is_read_after_them() {
        let keys = "kept = {}\nfor i, x in data:\n    kept[i], last = net(x), i\nprint(sorted(kept))\n";
        let said = is(keys, &global("kept", "dict"), 3, "kept[i], last = net(x), i");
        assert!(said.ends_with("line 4, sorted(kept), needs it"), "{said}");
        let all = "kept = []\nkept.extend(net(x) for x in data)\nprint(kept[0])\n";
        let said = is(all, &global("kept", "list"), 2, "kept.extend(net(x) for x in data)");
        assert!(said.ends_with("line 3, kept[0], needs it"), "{said}");
        let get = "class T:\n    def add(self, k, t): self.rows.setdefault(k, []).append(t)\n    def get(self, k): return self.rows[k]\n";
        let add = "self.rows.setdefault(k, []).append(t)";
        let said = is(get, &attribute("T", "rows", "dict"), 2, add);
        assert!(said.ends_with("line 3, self.rows[k], needs it"), "{said}");
        let cache = "class T:\n    def add(self, k, t): self.rows[k] = t\n    def get(self, k): return self.rows[k]\n";
        let said = is(cache, &attribute("T", "rows", "dict"), 2, "self.rows[k] = t");
        assert!(said.starts_with("pop() the keys of self.rows that are no longer needed"), "{said}");
        let own = "class B:\n    def add(self, t): self.rows.append(t)\n    def __iter__(self): return iter(self.rows)\n";
        let said = is(own, &attribute("B", "rows", "list"), 2, "self.rows.append(t)");
        assert!(said.ends_with("line 3, iter(self.rows), needs it"), "{said}");
        let pair = "def run():\n    kept, n = [], 0\n    for x in data:\n        kept.append(net(x))\n    return kept, n\n";
        let said = is(pair, &super::super::tests::local("kept", "run", 1, "list"), 4, "kept.append(net(x))");
        assert!(said.ends_with("line 5, kept, needs it"), "{said}");
    }

    #[test]
    fn a_number_is_kept_only_where_what_reads_it_needs_no_tensor() {
        for after in [
            "print(min(kept))",
            "mean = sum(kept) / len(kept)\nprint(mean)",
            "print([float(k) for k in kept])",
            "np.mean(kept)",
            "for k in kept: print(f'{k:.3f}')",
            "",
        ] {
            assert!(stored("loss", after, true).contains("keep loss.item()"), "{after}");
        }
        for after in [
            "print(min(kept).item())",
            "mean = sum(kept) / len(kept)\nprint(mean.item())",
            "print([k.item() for k in kept])",
            "torch.stack(kept).mean()",
            "plot(kept)",
            "for k in kept: log(k)",
            "torch.stack(kept[-9:]).mean()",
            "torch.stack(kept[:9]).mean()",
            "for k in kept[::9]: print(k.item())",
            "print(kept[-1].item())",
        ] {
            assert_eq!(stored("loss", after, true), "store loss.detach(), without its graph", "{after}");
        }
        let number = stored("net(x).mean()", "print(max(kept))", false);
        assert_eq!(number, "keep the number, net(x).mean().item(): line 4, max(kept), needs them");
    }

    #[test]
    fn what_a_backward_needs_is_emptied_after_it() {
        for after in ["torch.stack(kept).sum().backward()", "loss = sum(kept)\nloss.backward()"] {
            let said = stored("net(x).log()", after, true);
            assert!(
                said.starts_with("empty kept after line 4, ") && said.ends_with(": kept.clear()"),
                "{said}"
            );
        }
    }

    #[test]
    fn a_sum_whose_item_is_read_stays_a_tensor() {
        let sum = |after: &str| {
            let source = format!("total = 0.0\nfor x in data:\n    total += loss\n{after}\n");
            is(&source, &GRAPH(global("total", "Tensor")), 3, "total += loss")
        };
        assert_eq!(sum("print(total / 9)"), "add loss.item() instead of loss");
        for after in ["print(total.item() / 9)", "mean = total / 9\nprint(mean.item())"] {
            assert_eq!(sum(after), "add the tensor without its graph: .detach()", "{after}");
        }
    }

    #[test]
    fn who_reads_it_in_another_function_comes_first() {
        let said = |reads: &str, direct| {
            let class = "class Meter:\n    def add(self, x):\n        self.rows.append(x)\n    def get(self):\n        return ";
            let keeper = Keeper { direct, ..attribute("Meter", "rows", "list") };
            is(&format!("{class}{reads}\n"), &keeper, 3, "self.rows.append(x)")
        };
        let clear = "call self.rows.clear() once line 5, torch.cat(self.rows), has used it, or keep it in host memory, x.cpu()";
        assert_eq!(said("torch.cat(self.rows).mean()", true), clear);
        // What has tensors in it has no such method.
        assert!(
            said("torch.cat(self.rows).mean()", false).ends_with("keep its tensors in host memory, .cpu()")
        );
        let sample = said("random.sample(self.rows, 9)", true);
        assert_eq!(sample, "limit its length: self.rows = collections.deque(maxlen=…)");
    }

    #[test]
    fn what_is_read_with_it_is_treated_alike() {
        let class =
            "class Meter:\n    def add(self, p, t):\n        self.p.append(p)\n        self.t.append(t)\n";
        let get = "    def get(self):\n        return (torch.cat(self.p) == torch.cat(self.t)).mean()\n";
        let keeper = Keeper { direct: true, ..attribute("Meter", "p", "list") };
        let said = is(&format!("{class}{get}"), &keeper, 3, "self.p.append(p)");
        let both = "call self.p.clear() and self.t.clear() once line 6, torch.cat(self.p), has used it, or keep both in host memory, p.cpu() and t.cpu()";
        assert_eq!(said, both);
    }
}
