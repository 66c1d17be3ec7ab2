//! What a source reads of what it keeps, which advice must not take from it: `min(results)` after the loop that fills it.

use super::adds::{Add, METHODS};
use super::removes;
use super::scope::{FUNCTIONS, Source, below, children, line, outward, part};
use super::values::{self, called};
use super::ways;
use strandline::event::WordList;
use tree_sitter::Node;

/// Longest text of an expression that advice names.
const LONGEST: usize = 40;

/// What it takes from the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum As {
    /// What a number has as well: `min(losses)`.
    Numbers,
    /// What may be had of tensors only: `torch.stack(losses)`, `losses[0].item()`.
    Tensors,
    /// A backward that goes through their graphs.
    Graphs,
}

/// A place that reads all of what is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) line: u32,
    /// `min(results)`.
    pub(super) text: String,
    /// What all such places need.
    pub(super) takes: As,
    pub(super) when: When,
    /// What is filled beside it, and read with it: the container, and what it gets.
    pub(super) with: Option<(String, String)>,
}

/// When that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum When {
    /// After the loop that fills it.
    After,
    /// Whenever another function is called.
    Elsewhere,
    /// In that loop, or as little is known: some of the entries may be enough.
    Meanwhile,
    /// Whenever it wants some of the entries: `random.sample(rows, 8)`.
    Sampled,
}

impl Read {
    /// `line 12, min(results),`: what it does follows.
    pub(super) fn place(&self) -> String {
        format!("line {}, {},", self.line, self.text)
    }
}

/// The place that reads all of what a statement fills: the first after its loop, or else the first; `None` where none is seen.
pub(super) fn of<'t>(source: &Source<'t>, add: &Add<'t>) -> Option<Read> {
    let kept = filled(source, add)?;
    let statement = add.statement();
    let is_own =
        |n: Node<'t>| statement.start_byte() <= n.start_byte() && n.end_byte() <= statement.end_byte();
    let uses = ["identifier", "attribute"].into_iter().flat_map(|kind| source.all(kind)).copied();
    let uses = uses.filter(|n| !is_own(*n) && is_it(source, *n, kept));
    let mut reads: Vec<Read> = uses.filter_map(|n| read(source, n, statement)).collect();
    let takes = reads.iter().map(|r| r.takes).max()?;
    reads.sort_by_key(|r| (r.when, r.line));
    reads.into_iter().next().map(|first| Read { takes, ..first })
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
        _ => part(add.node, "left")?,
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
fn read<'t>(source: &Source<'t>, n: Node<'t>, statement: Node<'t>) -> Option<Read> {
    let parent = n.parent()?;
    let takes = match parent.kind() {
        "return_statement" | "yield" | "list_splat" => As::Tensors,
        "argument_list" => of_call(source, parent.parent()?)?,
        "keyword_argument" => As::Tensors,
        "for_statement" | "for_in_clause" if part(parent, "right")?.id() == n.id() => of_loop(source, parent),
        // `history.values()`; methods that fill it or empty it read nothing.
        "attribute" => {
            let call = parent.parent().filter(|c| c.kind() == "call")?;
            let over = call.parent()?;
            match (source.field(parent, "attribute"), over.kind()) {
                ("values" | "items", "for_statement" | "for_in_clause") => of_loop(source, over),
                ("values" | "items", "argument_list") => of_call(source, over.parent()?)?,
                _ => return None,
            }
        }
        "subscript" if part(parent, "value")?.id() == n.id() => {
            let inner = parent.parent()?;
            let is_given = inner.kind() == "argument_list" && part(parent, "subscript")?.kind() == "string";
            // `history["loss"]` is one of its lists where its keys are always the same.
            match is_given && ways::is_fixed(parent) {
                true => of_call(source, inner.parent()?)?,
                false => of_entry(source, parent, statement)?,
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
        text: of_loop().unwrap_or_else(|| source.text(shown()).to_owned()),
        takes,
        when: if takes_some { When::Sampled } else { when(n, statement) },
        with: with(source, n, statement),
    })
}

/// What else an expression reads that statements beside this one fill: `torch.cat(preds) == torch.cat(targets)`.
fn with<'t>(source: &Source<'t>, n: Node<'t>, statement: Node<'t>) -> Option<(String, String)> {
    let is_whole = |p: &Node<'t>| p.kind().ends_with("_statement") || p.kind() == "block";
    let read = outward(n).take_while(|p| !is_whole(p)).last()?;
    let read = below(outward(n).find(|p| p.kind() == "return_statement").unwrap_or(read), &|_| true);
    let block = statement.parent()?;
    let fills = source.all("call").iter().filter(|c| {
        let method = ways::method(source, **c);
        let own = c.parent().filter(|s| s.parent().is_some_and(|b| b.id() == block.id()));
        matches!(method, "append" | "extend") && own.is_some_and(|s| s.id() != statement.id())
    });
    let mut fills = fills.filter_map(|c| {
        let container = part(part(*c, "function")?, "object")?;
        let values = children(part(*c, "arguments")?);
        let is_read = read.iter().any(|r| r.kind() == container.kind() && is_it(source, *r, container));
        let is_other = source.text(container) != source.text(n) && is_read;
        let is_tensor = matches!(values.as_slice(), [one] if values::may_hold(source, *one));
        (is_other && is_tensor).then(|| [container, values[0]].map(|n| source.text(n).to_owned()).into())
    });
    fills.next().filter(|(container, value)| container.len() + value.len() <= LONGEST)
}

/// What a call that is given all of it needs; `None` where it only counts or shows it.
fn of_call<'t>(source: &Source<'t>, call: Node<'t>) -> Option<As> {
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
fn of_loop<'t>(source: &Source<'t>, over: Node<'t>) -> As {
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
fn taken<'t>(source: &Source<'t>, value: Node<'t>) -> As {
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

/// The function, or the module, that something stands in.
fn place(n: Node<'_>) -> Option<Node<'_>> {
    outward(n).find(|p| FUNCTIONS.contains(&p.kind()) || p.kind() == "module")
}

/// What is read of an entry, after the loop: the newest ones are there in any case.
fn of_entry<'t>(source: &Source<'t>, entry: Node<'t>, statement: Node<'t>) -> Option<As> {
    let key = part(entry, "subscript")?;
    let is_newest = matches!(key.kind(), "unary_operator" | "slice") && source.text(key).starts_with('-');
    let is_target =
        |p: Node<'t>| p.kind() == "delete_statement" || part(p, "left").is_some_and(|l| l.id() == entry.id());
    let is_filled = entry.parent().is_none_or(|p| is_target(p) || METHODS.has(source.field(p, "attribute")));
    (!is_newest && !is_filled && when(entry, statement) == When::After).then(|| taken(source, entry))
}

/// When something comes that a statement fills: after it in the same function, and in none of the loops that the statement is in, or in the
/// script, which goes on after all that its functions do.
fn when(n: Node<'_>, statement: Node<'_>) -> When {
    let is_loop = |p: &Node<'_>| matches!(p.kind(), "for_statement" | "while_statement");
    let is_inside = |of: Node<'_>| of.start_byte() <= n.start_byte() && n.end_byte() <= of.end_byte();
    let (Some(here), Some(there)) = (place(n), place(statement)) else { return When::Meanwhile };
    let is_later = n.start_byte() > statement.end_byte();
    let mut loops = outward(statement).take_while(|p| p.id() != there.id()).filter(is_loop).peekable();
    if here.id() == there.id() {
        let is_after = loops.peek().is_some() && is_later && !loops.any(is_inside);
        return if is_after { When::After } else { When::Meanwhile };
    }
    let is_of_script = here.kind() == "module" && is_later && !outward(n).any(|p| is_loop(&p));
    if is_of_script { When::After } else { When::Elsewhere }
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
        for after in ["print(len(kept))", "last = kept[-1]", "kept.append(1)", "print(kept)"] {
            assert!(stored("net(x)", after, false).contains("kept.clear() at"), "{after}");
        }
        let host = stored("net(x)", "best = torch.stack(kept)", true);
        assert!(
            host.contains("net(x).detach(), and in host memory, .cpu(): line 4, torch.stack(kept)"),
            "{host}"
        );
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
        ] {
            assert_eq!(stored("loss", after, true), "keep it without its graph, loss.detach()", "{after}");
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
        assert_eq!(sum("print(total / 9)"), "add a number, not a tensor with its graph: .item()");
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
