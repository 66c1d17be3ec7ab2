//! What a package keeps, whose source is not the user's own: the user's call by which a function of the package keeps it, which its stacks lead
//! through, or which gives that function what it keeps.

use super::adds::{self, Add};
use super::find::{Proved, Statement, in_one_line};
use super::instances;
use super::keeper::Keeper;
use super::scope::{self, Source, children, last_line, line, outward, part};
use super::values::called;
use std::ops::RangeInclusive;
use tree_sitter::Node;

/// What names of functions begin with that make something stay.
const KEEPS: [&str; 14] = [
    "add", "append", "attach", "cache", "collect", "inject", "insert", "load", "log", "push", "record",
    "register", "remember", "store",
];

/// A function that puts something into what a package keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Filler {
    pub(super) name: String,
    pub(super) lines: RangeInclusive<u32>,
}

/// The functions of a package's source that put something into a keeper.
pub(super) fn fillers(text: &str, keeper: &Keeper) -> Vec<Filler> {
    let Some(tree) = scope::parse(text).filter(|t| scope::is_shallow(t.root_node())) else {
        return Vec::new();
    };
    let source = Source::new(text, tree.root_node());
    let adds = adds::all(&source, keeper).into_iter().filter(|add| add.may_hold);
    let function = |add: Add<'_>| {
        let f = outward(add.node).find(|n| n.kind() == "function_definition")?;
        let name = source.field(f, "name").to_owned();
        (!name.starts_with("__")).then(|| Filler { name, lines: line(f)..=last_line(f) })
    };
    adds.filter_map(function).collect()
}

/// The call in a line of the user's own that leads to such a function: of that one, or one that says by its name that something stays.
pub(super) fn leading(text: &str, at: u32, fillers: &[Filler]) -> Option<Statement> {
    let tree = scope::parse(text).filter(|t| scope::is_shallow(t.root_node()))?;
    let source = Source::new(text, tree.root_node());
    let is_there = |n: &&Node<'_>| (line(**n)..=last_line(**n)).contains(&at);
    let keeps = |n: &&Node<'_>| {
        let is_filler = fillers.iter().any(|f| f.name == called(&source, **n));
        let name = called(&source, **n).trim_start_matches('_');
        is_filler
            || KEEPS
                .iter()
                .any(|k| name.strip_prefix(k).is_some_and(|rest| rest.is_empty() || rest.starts_with('_')))
    };
    let mut calls = source.all("call").iter().filter(is_there).filter(keeps);
    let call = calls.next()?;
    calls.next().is_none().then(|| {
        let text = source.text(Add::of(*call).statement());
        let remedy = "each call keeps one more object: call it once, or remove what it added before";
        Statement { line: line(*call), text: in_one_line(text), remedy: Some(remedy.into()) }
    })
}

/// Calls of the user's own that give such a function what was allocated.
pub(super) fn giving(text: &str, keeper: &Keeper, fillers: &[Filler]) -> Vec<Proved> {
    let Some(tree) = scope::parse(text).filter(|t| scope::is_shallow(t.root_node())) else {
        return Vec::new();
    };
    let source = Source::new(text, tree.root_node());
    let objects = instances::of_package(&source, keeper);
    let is_filler = |c: &&Node<'_>| fillers.iter().any(|f| f.name == called(&source, **c));
    let of_package =
        |c: &&Node<'_>| is_imported(&source, **c) || instances::has_method(&source, **c, &objects);
    let calls = source.all("call").iter().filter(is_filler).filter(of_package);
    let proved = calls.filter_map(|c| {
        let add = Add { values: children(part(*c, "arguments")?), ..Add::of(*c) };
        let (sure, lines) = add.proof(&source, keeper);
        let remedy = "the package keeps the arguments of this call: remove what is no longer needed, or give it a copy in host memory, .cpu()";
        let text = in_one_line(source.text(add.statement()));
        let statement = Statement { line: line(*c), text, remedy: Some(remedy.into()) };
        (sure > 1).then_some(Proved { statement, sure, lines })
    });
    let mut all: Vec<Proved> = proved.collect();
    all.sort_by_key(|p| std::cmp::Reverse(p.sure));
    all
}

/// Whether what is called is imported, or a function of what is: `registry.register(x)`.
fn is_imported(source: &Source<'_>, call: Node<'_>) -> bool {
    let Some(function) = part(call, "function") else { return false };
    let first = source.text(function).split('.').next().unwrap_or_default();
    source.binding(first).iter().any(|n| n.parent().is_some_and(|p| p.kind().starts_with("import")))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{attribute, global};
    use super::*;

    const PACKAGE: &str = "ROWS = []\nclass Layer:\n    def __init__(self): self.lora = ModuleDict()\n    def update_layer(self, name):\n        self.lora[name] = Linear(9, 9)\ndef publish(name, t):\n    ROWS.append(t)\n";

    #[test]
    fn a_call_that_leads_to_what_a_package_keeps() {
        let fillers = fillers(PACKAGE, &attribute("Layer", "lora", "ModuleDict"));
        assert_eq!(fillers, [Filler { name: "update_layer".into(), lines: 4..=5 }]);
        let at = |line: &str| leading(&format!("for i in range(9):\n    {line}\n"), 2, &fillers);
        for line in ["model.add_adapter(f'a{i}', config)", "load_adapter(i)", "x.update_layer(i)"] {
            assert_eq!(at(line).map(|s| (s.line, s.text)), Some((2, line.to_owned())));
        }
        for line in ["out = model(x)", "loss.backward()", "addition(i)", "log.append(pool.add(i))"] {
            assert_eq!(at(line), None, "{line}");
        }
    }

    #[test]
    fn a_call_that_gives_a_package_what_was_allocated() {
        let keeper = Keeper { allocated: vec![3], ..global("ROWS", "list") };
        let fillers = fillers(PACKAGE, &keeper);
        assert_eq!(fillers, [Filler { name: "publish".into(), lines: 6..=7 }]);
        let of = |import: &str, call: &str| {
            let source = format!("{import}\nfor i in data:\n    out = net(i)\n    {call}\n");
            giving(&source, &keeper, &fillers).into_iter().map(|p| p.statement.line).collect::<Vec<_>>()
        };
        assert_eq!(of("from pkg import registry", "registry.publish(i, out.detach())"), [4]);
        assert_eq!(of("from pkg.registry import publish", "publish(i, out)"), [4]);
        assert_eq!(of("from pkg import registry", "registry.publish(i, other)"), [0; 0]);
        assert_eq!(of("from pkg import registry", "registry.other(i, out)"), [0; 0]);
        assert_eq!(of("", "mqtt.publish(i, out)"), [0; 0], "not a function of a package");
    }
}
