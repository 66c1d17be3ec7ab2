//! The one statement of a source that puts things into a keeper.

use super::adds::{self, Add};
use super::hooks;
use super::instances;
use super::keeper::Keeper;
use super::library;
use super::otherwise;
use super::remedy;
use super::scope::{self, FUNCTIONS, Source, outward, part};
use super::stored::has_no_graph;
use tree_sitter::Node;

/// The statement that puts it there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    /// Its line, from 1.
    pub(crate) line: u32,
    /// As it stands there, in one line.
    pub(crate) text: String,
    /// What helps at this statement.
    pub(crate) remedy: Option<String>,
}

/// What was found in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// One, and how sure the stacks make it: 0 not at all.
    One(Statement, u32),
    /// Several, each proved by stacks of its own, if these are those of different lines; those of which they are surest come first.
    Each(Vec<Proved>),
    /// Several that cannot be told apart.
    Several,
}

/// A statement that stacks lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proved {
    pub(super) statement: Statement,
    /// How sure they make it.
    pub(super) sure: u32,
    /// Which lines of theirs do.
    pub(super) lines: Vec<u32>,
}

/// The one statement of a source that puts things into a keeper; `None` where there is none, or more than one could be it.
#[cfg_attr(not(test), allow(dead_code, reason = "`files` tells nothing from several"))]
pub(crate) fn kept_at(source_text: &str, keeper: &Keeper) -> Option<Statement> {
    match find(source_text, keeper) {
        Found::One(statement, _) => Some(statement),
        Found::Each(all) => surest(all).map(|p| p.statement),
        Found::Nothing | Found::Several => None,
    }
}

/// The one of which the stacks are surest, if there is one.
pub(super) fn surest(all: Vec<Proved>) -> Option<Proved> {
    let mut all = all.into_iter();
    let first = all.next()?;
    all.next().is_none_or(|next| next.sure < first.sure).then_some(first)
}

/// What of a source puts things into a keeper.
pub(super) fn find(source_text: &str, keeper: &Keeper) -> Found {
    let tree = scope::parse(source_text).filter(|t| scope::is_shallow(t.root_node()));
    let Some(tree) = tree else { return Found::Nothing };
    let source = Source::new(source_text, tree.root_node());
    let mut all = match keeper.each {
        true => hooks::registered_each(&source, keeper),
        false => library::adds(&source, keeper).unwrap_or_else(|| adds::all(&source, keeper)),
    };
    all.retain(|add| add.may_hold && !is_of_a_beginning(&source, add, keeper));
    let others = [hooks::registered, hooks::begun, hooks::made, instances::given];
    for handed in
        others.into_iter().chain([otherwise::by_keys, otherwise::by_comprehension, otherwise::by_decorator])
    {
        if all.is_empty() && !keeper.each {
            all = handed(&source, keeper);
        }
    }
    // What only sets it, where something also builds on what it had.
    if !keeper.once && all.iter().any(|a| a.grows) {
        all.retain(|a| a.grows);
    }
    // A method that a class is given in its place is the one that is called.
    if all.iter().any(|a| !is_replaced(&source, a)) {
        all.retain(|a| !is_replaced(&source, a));
    }
    // What has no graph is kept by none.
    let has_graph = |a: &Add<'_>| {
        !keeper.graph || a.values.is_empty() || !a.values.iter().all(|v| has_no_graph(&source, *v))
    };
    if all.iter().any(has_graph) {
        all.retain(has_graph);
    }
    let mut proofs: Vec<_> = all.iter().map(|a| (a, a.proof(&source, keeper))).collect();
    proofs.sort_by_key(|(_, (sure, _))| std::cmp::Reverse(*sure));
    if proofs.iter().filter(|(_, (sure, _))| *sure >= PROVED).count() > 1 {
        proofs.retain(|(_, (sure, _))| *sure >= PROVED);
        let proved = |(add, (sure, lines)): (&Add<'_>, (u32, Vec<u32>))| Proved {
            statement: statement(&source, add, keeper),
            sure,
            lines,
        };
        return Found::Each(proofs.into_iter().map(proved).collect());
    }
    match proofs.as_slice() {
        [] => Found::Nothing,
        [_, (_, next), ..] if proofs[0].1.0 == next.0 => Found::Several,
        [(one, (sure, _)), ..] => Found::One(statement(&source, one, keeper), *sure),
    }
}

/// From here on the stacks lead to what a statement puts there itself, and not to what that was computed of.
pub(super) const PROVED: u32 = 2;

/// Whether a statement stands in a method that its class does not have any more: `Bag.add = other`, where nothing else asks for `Bag.add`.
fn is_replaced<'t>(source: &Source<'t>, add: &Add<'t>) -> bool {
    let method = outward(add.node).find(|n| n.kind() == "function_definition");
    let Some((method, class)) = method.and_then(|m| Some((m, source.class_around(m)?))) else { return false };
    let name = format!("{}.{}", source.field(class, "name"), source.field(method, "name"));
    let uses: Vec<_> = source.all("attribute").iter().filter(|n| source.text(**n) == name).collect();
    let is_given = |n: &&Node<'t>| {
        n.parent()
            .is_some_and(|p| p.kind() == "assignment" && part(p, "left").is_some_and(|l| l.id() == n.id()))
    };
    matches!(uses.as_slice(), [one] if is_given(one) && place(**one).is_some_and(|p| p.kind() == "module"))
}

const LOOPS: [&str; 2] = ["for_statement", "while_statement"];

/// Whether a statement registers something once, before the loop that allocates: it keeps nothing more with every step.
fn is_of_a_beginning(source: &Source<'_>, add: &Add<'_>, keeper: &Keeper) -> bool {
    const ONCE: [&str; 4] = ["add_param_group", "add_module", "register_buffer", "register_module"];
    let method = part(add.node, "function").map_or("", |f| source.field(f, "attribute"));
    if !ONCE.contains(&method) {
        return false;
    }
    let lines = |n: Node<'_>| scope::line(n)..=scope::last_line(n);
    let (place, at) = (place(add.node), scope::line(add.node));
    let is_beside = |n: &&Node<'_>| LOOPS.contains(&n.kind()) && self::place(**n) == place;
    let loops: Vec<_> = source.nodes.iter().filter(is_beside).map(|l| lines(*l)).collect();
    let allocates = |at: &u32| keeper.allocated.contains(at);
    loops.iter().any(|l| *l.start() > at && l.clone().any(|l| allocates(&l)))
        && !place.filter(|p| p.kind() != "module").is_some_and(|p| {
            // What is kept was allocated beside it too, before it, and comes again with that.
            let mut before = scope::line(p) + 1..=at;
            before.any(|l| allocates(&l) && !loops.iter().any(|r| r.contains(&l)))
        })
}

/// The loop, function or module that a statement is in.
fn place(n: Node<'_>) -> Option<Node<'_>> {
    let is =
        |p: &Node<'_>| LOOPS.contains(&p.kind()) || FUNCTIONS.contains(&p.kind()) || p.kind() == "module";
    outward(n).find(is)
}

/// Longest text of a statement, in characters.
const LONGEST: usize = 120;

fn statement<'t>(source: &Source<'t>, add: &Add<'t>, keeper: &Keeper) -> Statement {
    let node = add.statement();
    Statement {
        line: scope::line(node),
        text: in_one_line(source.text(node)),
        remedy: remedy::suggest(source, add, keeper),
    }
}

/// The text of a statement in one line, which is not too long.
pub(super) fn in_one_line(statement: &str) -> String {
    let text = statement.split_whitespace().collect::<Vec<&str>>().join(" ");
    if text.chars().count() <= LONGEST {
        return text;
    }
    text.chars().take(LONGEST - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::super::keeper::Keeper;
    use super::super::tests::{attribute, global, is};

    #[test]
    fn what_was_found_once_may_have_been_put_there_by_what_only_sets_it() {
        let source = "table['a'] = load(1)\nfor i in data:\n    table[i] = load(i)\n";
        let of = |once, line| Keeper { once, allocated: vec![line], ..global("table", "dict") };
        is(source, &of(false, 1), 3, "table[i] = load(i)");
        is(source, &of(true, 1), 1, "table['a'] = load(1)");
        is(source, &of(true, 3), 3, "table[i] = load(i)");
    }

    #[test]
    fn a_method_that_was_replaced_keeps_nothing() {
        let class = "class Bag:\n    def add(self, t): self.rows.append(t)\ndef add(self, t):\n    self.rows.append(t.detach())\n";
        let source = format!("{class}Bag.add = add\nbag.add(net(x))\n");
        is(&source, &attribute("Bag", "rows", "list"), 4, "self.rows.append(t.detach())");
    }

    #[test]
    fn what_a_decorator_gives_a_function_is_filled_there() {
        let source = "def logged(f):\n    f.calls = []\n    def g(x):\n        f.calls.append(x)\n    return g\ntrain = logged(train)\n";
        let keeper = Keeper { class: None, function: Some("train".into()), ..attribute("", "calls", "list") };
        is(source, &keeper, 4, "f.calls.append(x)");
        let source =
            format!("{}@logged\ndef train(x): net(x)\n", source.replace("train = logged(train)\n", ""));
        is(&source, &keeper, 4, "f.calls.append(x)");
    }
}
