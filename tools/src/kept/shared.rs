//! What other files than that of its statement do with what is kept: a variable of a module, or an attribute of an object.

use super::keeper::Keeper;
use super::needs::Read;
use super::reads;
use super::scope::{self, Source, children, has_word, part};
use super::ways;
use tree_sitter::Node;

/// Attributes that tensors and containers have as well.
const OF_ALL: [&str; 8] = ["T", "__dict__", "data", "grad", "items", "shape", "size", "values"];

/// What another file does with a keeper.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shared {
    /// It names it.
    pub(super) is_named: bool,
    /// It reads all of it.
    pub(super) read: Option<Read>,
}

/// Modules by whose names a keeper that is a variable of one of them is known: that, the packages around it, and those that a file of these
/// imports it from.
pub(super) fn modules(text: &str, keeper: &Keeper) -> Vec<String> {
    let mut all: Vec<String> = keeper.module.iter().flat_map(|m| m.split('.')).map(str::to_owned).collect();
    if let Some(tree) = parsed(text) {
        let source = Source::new(text, tree.root_node());
        let froms = source.all("import_from_statement").iter().filter(|n| {
            let names = children(**n);
            let is_it = |n: &Node<'_>| match n.kind() {
                "wildcard_import" => !makes(&source, keeper),
                _ => is_called(&source, *n, keeper),
            };
            names.iter().skip(1).any(is_it)
        });
        all.extend(froms.map(|n| last(source.field(*n, "module_name")).to_owned()));
    }
    all.retain(|m| !m.is_empty());
    all
}

/// What a file does with a keeper that is another's; `modules`: those that it may be known by.
pub(super) fn shared(text: &str, keeper: &Keeper, modules: &[String]) -> Shared {
    let is_attribute = matches!(keeper.kind.as_str(), "attribute" | "class");
    let is_plain = is_attribute && !OF_ALL.contains(&keeper.variable.as_str());
    // An attribute may be any other class's: that one is named there, too.
    let is_told = keeper.class.as_ref().is_some_and(|class| has_word(text, class));
    if !(has_word(text, &keeper.variable) && (keeper.kind == "global" || is_plain && is_told)) {
        return Shared::default();
    }
    let Some(tree) = parsed(text) else { return Shared::default() };
    let source = Source::new(text, tree.root_node());
    let is_module =
        |n: Node<'_>| modules.iter().any(|m| m == last(source.text(n)) || is_alias(&source, n, m));
    let froms = source.all("import_from_statement").iter();
    let froms = froms.filter(|n| modules.iter().any(|m| m == last(source.field(**n, "module_name"))));
    let names: Vec<&str> = froms
        .flat_map(|n| children(*n).into_iter().skip(1))
        .filter_map(|n| match n.kind() {
            "wildcard_import" => Some(keeper.variable.as_str()).filter(|_| !makes(&source, keeper)),
            _ if !is_called(&source, n, keeper) => None,
            "aliased_import" => Some(source.field(n, "alias")),
            _ => Some(source.text(n)),
        })
        .collect();
    let root = source.root.id();
    let is_it = |n: &Node<'_>| match (n.kind(), part(*n, "object")) {
        ("attribute", Some(object)) if source.field(*n, "attribute") == keeper.variable => match is_attribute
        {
            true => !source.is_self(object),
            false => is_module(object),
        },
        ("identifier", _) if !is_attribute && !ways::is_attribute_name(*n) => {
            let text = source.text(*n);
            names.contains(&text) && source.owner(*n, text) == root
        }
        _ => false,
    };
    let uses = ["identifier", "attribute"].into_iter().flat_map(|kind| source.all(kind)).copied();
    let uses: Vec<Node<'_>> = uses.filter(is_it).collect();
    // Where a class has such an attribute of its own, it may be that one.
    let is_other = |n: &Node<'_>| {
        let is_own = source.field(*n, "attribute") == keeper.variable
            && part(*n, "object").is_some_and(|o| source.is_self(o));
        is_own
            && source
                .class_around(*n)
                .is_some_and(|c| keeper.class.as_deref() != Some(source.field(c, "name")))
    };
    if is_attribute && source.all("attribute").iter().any(is_other) {
        return Shared::default();
    }
    let reads = uses.iter().filter_map(|n| reads::read(&source, *n, None, false));
    Shared { is_named: !uses.is_empty(), read: reads::first(reads) }
}

/// Whether a file gives a variable of this name a value: then that is its own, whatever it imports.
fn makes(source: &Source<'_>, keeper: &Keeper) -> bool {
    let (name, root) = (keeper.variable.as_str(), source.root.id());
    let mut all = source.binding(name).iter();
    all.any(|n| n.kind() != "augmented_assignment" && source.owner(n.child(0).unwrap_or(*n), name) == root)
}

/// Whether a file has a class of its own that is called as that of a keeper.
pub(super) fn has_class(text: &str, keeper: &Keeper) -> bool {
    let name = |line: &str| {
        let name = line.trim_start().strip_prefix("class ")?;
        Some(name.split([':', '(', '[', ' ']).next() == keeper.class.as_deref())
    };
    keeper.class.is_some() && text.lines().filter_map(name).any(|is_it| is_it)
}

fn parsed(text: &str) -> Option<tree_sitter::Tree> {
    scope::parse(text).filter(|t| scope::is_shallow(t.root_node()))
}

/// What is behind the last dot.
fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// Whether what an import names is called as a keeper.
fn is_called(source: &Source<'_>, import: Node<'_>, keeper: &Keeper) -> bool {
    let name =
        if import.kind() == "aliased_import" { source.field(import, "name") } else { source.text(import) };
    name == keeper.variable
}

/// Whether a name is that of a module by another name: `import bank as b`.
fn is_alias(source: &Source<'_>, n: Node<'_>, module: &str) -> bool {
    let is_it = |i: &Node<'_>| i.kind() == "aliased_import" && last(source.field(*i, "name")) == module;
    n.kind() == "identifier" && source.binding(source.text(n)).iter().any(is_it)
}

#[cfg(test)]
mod tests {
    use super::super::needs::{As, When};
    use super::super::tests::{attribute, global};
    use super::*;

    #[test]
    fn a_modules_variable_is_read_by_whatever_name_it_is_imported() {
        let mut keeper = global("ROWS", "list");
        keeper.module = Some("pkg.state".into());
        let of = |text: &str| {
            let shared = shared(text, &keeper, &modules("from base import *\n", &keeper));
            (shared.is_named, shared.read.map(|r| (r.line, r.takes, r.when)))
        };
        for import in [
            "from pkg import state\nprint(torch.stack(state.ROWS))",
            "import pkg\nprint(max(pkg.ROWS, key=f))",
            "import pkg.state as s\nprint(torch.stack(s.ROWS))",
            "from pkg.state import ROWS as R\nprint(torch.stack(R))",
            "from pkg.state import *\nprint(torch.stack(ROWS))",
            "import base\nprint(torch.stack(base.ROWS))",
        ] {
            assert_eq!(of(import), (true, Some((2, As::Tensors, When::After))), "{import}");
        }
        let inside = "from pkg import state\ndef end():\n    return torch.stack(state.ROWS)\n";
        assert_eq!(of(inside).1, Some((3, As::Tensors, When::Elsewhere)));
        assert_eq!(of("from pkg import state\nprint(len(state.ROWS))"), (true, None));
        for other in [
            "import other\ntorch.stack(other.ROWS)",
            "ROWS = []\ntorch.stack(ROWS)  # state",
            "from pkg.state import *\nROWS = []\ntorch.stack(ROWS)",
        ] {
            assert_eq!(of(other), (false, None), "{other}");
        }
        keeper.module = Some("__main__".into());
        assert_eq!(modules("from base import *\nROWS = []\n", &keeper), ["__main__"]);
    }

    #[test]
    fn an_attribute_is_read_where_its_class_is_known() {
        let of = |text: &str| shared(text, &attribute("Meter", "rows", "list"), &[]).read.map(|r| r.line);
        assert_eq!(of("m = Meter()\nprint(torch.stack(m.rows))"), Some(2));
        assert_eq!(of("m = Other()\nprint(torch.stack(m.rows))"), None);
        let table = "class Table:\n    def __init__(self, meter: Meter): self.rows = []\nf(table.rows)\n";
        assert_eq!(of(table), None, "another class has rows");
        let both = "m = Meter()\nprint(min(m.rows))\ndef end(m): return torch.stack(m.rows)\n";
        let read = shared(both, &attribute("Meter", "rows", "list"), &[]).read.unwrap();
        assert_eq!((read.line, read.takes), (2, As::Tensors));
        let kept = attribute("Meter", "rows", "list");
        assert!(has_class("class Meter(Base):\n    pass\n", &kept));
        assert!(!has_class("class Meters: pass\nm = Meter()\n", &kept));
        let data = attribute("Meter", "data", "list");
        assert_eq!(shared("m = Meter()\nf(x.data)", &data, &[]), Shared::default());
    }
}
