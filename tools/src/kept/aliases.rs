//! Other names of a keeper and of its entries: `rows = self.rows`, `row = rows.setdefault(key, [])`, `for row in rows.values()`.

use super::adds::{METHODS, Search};
use super::evidence::arguments;
use super::keeper::{Keeper, Name};
use super::scope::{FUNCTIONS, Source, children, outward, part};
use super::values::called;
use super::ways;
use std::collections::HashSet;
use tree_sitter::Node;

/// Names that lead to names: `rows = self.rows; row = rows[key]`.
const LONGEST: usize = 2;

impl<'s, 't> Search<'s, 't> {
    /// For the names, those that are only ever assigned one of them or an entry, and functions, properties and methods that return it.
    pub(super) fn with_aliases(
        source: &'s Source<'t>,
        keeper: &'s Keeper,
        names: HashSet<Name>,
    ) -> Search<'s, 't> {
        let mut search = Search::new(source, keeper, names);
        for _ in 0..LONGEST {
            let whole = search
                .named(&|n| search.assigned(n).filter(|(_, v)| search.is_keeper(*v)).into_iter().collect());
            let entries = search.named(&|n| search.entries_of(n));
            for n in source.all("function_definition") {
                let Some((name, value)) = ways::returned(source, *n) else { continue };
                if search.is_keeper(value) {
                    search.names.insert(name);
                } else if matches!(name, Name::Function(..)) && search.is_part(value) {
                    search.entries.insert(name);
                }
            }
            let own = search.given_to_self();
            search.names.extend(whole.into_iter().chain(own));
            search.entries.extend(entries);
        }
        search
    }

    /// Names that are only ever given what `gives` tells of an assignment or a loop: a name, and its value.
    fn named(&self, gives: &dyn Fn(Node<'t>) -> Vec<(Node<'t>, Node<'t>)>) -> HashSet<Name> {
        let source = self.source;
        let statements = ["assignment", "for_statement"].into_iter().flat_map(|kind| source.all(kind));
        let names = statements.flat_map(|n| gives(*n)).map(|(name, _)| {
            let text = source.text(name);
            (Name::Of(source.owner(name, text), text.to_string()), text)
        });
        let is_given = |n: Node<'t>, text: &str| gives(n).iter().any(|(name, _)| source.text(*name) == text);
        names
            .filter(|(name, text)| self.is_only(name, &|n| is_given(n, text)))
            .map(|(name, _)| name)
            .collect()
    }

    /// Attributes of `self` that are only ever given one of the names, a variable: `self.log = log`.
    fn given_to_self(&self) -> Vec<Name> {
        let source = self.source;
        let pairs = || source.all("assignment").iter().flat_map(|n| ways::pairs(*n));
        let own = |to: Node<'t>| ways::own(source, to).filter(|own| !self.names.contains(own));
        let is_it = |from: Node<'t>| from.kind() == "identifier" && self.is_keeper(from);
        let mut found: Vec<Name> = pairs().filter(|(_, v)| is_it(*v)).filter_map(|(to, _)| own(to)).collect();
        found.retain(|name| {
            pairs().all(|(to, from)| is_it(from) || ways::own(source, to).as_ref() != Some(name))
        });
        found
    }

    /// The one name on the left of an assignment, and what it is given.
    fn assigned(&self, n: Node<'t>) -> Option<(Node<'t>, Node<'t>)> {
        let left = part(n, "left").filter(|l| n.kind() == "assignment" && l.kind() == "identifier")?;
        Some((left, part(n, "right")?))
    }

    /// Names that an assignment, or a loop, gives entries of the keeper.
    fn entries_of(&self, n: Node<'t>) -> Vec<(Node<'t>, Node<'t>)> {
        let is_looked_up = |value: Node<'t>| {
            matches!(value.kind(), "subscript" | "call") && !self.is_keeper(value) && self.is_part(value)
        };
        if n.kind() == "assignment" {
            return self.assigned(n).filter(|(_, value)| is_looked_up(*value)).into_iter().collect();
        }
        let (Some(left), Some(over)) = (part(n, "left"), part(n, "right")) else { return Vec::new() };
        let names = if left.kind() == "identifier" { vec![left] } else { children(left) };
        let is_list = self.keeper.type_name == "list";
        let each = |(name, (value, of_list)): (Node<'t>, (Node<'t>, bool))| {
            (name.kind() == "identifier" && of_list == is_list && self.is_part(value))
                .then_some((name, value))
        };
        names.into_iter().zip(self.each_of(over)).filter_map(each).collect()
    }

    /// What a loop over an expression goes through, for each name on its left: an iterable, and whether its entries come as they do of a list
    /// (not as the values of a dictionary).
    fn each_of(&self, over: Node<'t>) -> Vec<(Node<'t>, bool)> {
        let arguments = || part(over, "arguments").map(children).unwrap_or_default();
        let of = || part(over, "function").and_then(|f| part(f, "object"));
        match (over.kind(), called(self.source, over)) {
            ("call", "zip") => arguments().into_iter().map(|a| (a, true)).collect(),
            ("call", "enumerate") => [over].into_iter().chain(arguments()).map(|a| (a, true)).collect(),
            ("call", "values") => of().map(|o| (o, false)).into_iter().collect(),
            ("call", "items") => [over].into_iter().chain(of()).map(|o| (o, false)).collect(),
            _ => vec![(over, true)],
        }
    }

    /// Whether a name, or what a function returns, is an entry of the keeper.
    pub(super) fn is_entry(&self, n: Node<'t>) -> bool {
        let text = self.source.text(n);
        let is_name = || {
            let name = || Name::Of(self.source.owner(n, text), text.to_string());
            n.kind() == "identifier" && !ways::is_attribute_name(n) && self.entries.contains(&name())
        };
        let is_returned = || ways::function(self.source, n).is_some_and(|name| self.entries.contains(&name));
        !self.entries.is_empty() && (is_name() || is_returned())
    }

    /// Whether a name or an attribute is only ever assigned a method of the keeper that puts its argument there: `push = kept.append`.
    pub(super) fn is_method(&self, name: Node<'t>) -> bool {
        let source = self.source;
        let is_method = |right: Node<'t>| {
            METHODS.has(source.field(right, "attribute"))
                && part(right, "object").is_some_and(|o| self.is_part(o))
        };
        // A parameter, wherever callers give that one such a method: `Trainer(log.append)`.
        let is_given = |n: Node<'t>| {
            let text = source.text(n);
            let function = outward(n).find(|f| FUNCTIONS.contains(&f.kind()));
            let function = function.filter(|f| source.owner(n, text) == f.id());
            let given = function.map(|f| arguments(source, f, text)).unwrap_or_default();
            n.kind() == "identifier" && !given.is_empty() && given.into_iter().all(is_method)
        };
        let is_it = |right: Node<'t>| is_method(right) || is_given(right);
        if name.kind() == "attribute" {
            let all = ways::values_of_attribute(source, name);
            return !all.is_empty() && all.into_iter().all(|right| right.is_some_and(is_it));
        }
        let text = source.text(name);
        let name_of = || Name::Of(source.owner(name, text), text.to_string());
        let is_only =
            || self.is_only(&name_of(), &|n| self.assigned(n).is_some_and(|(_, value)| is_it(value)));
        name.kind() == "identifier" && (is_given(name) || is_only())
    }

    /// Whether a name is given something, and only ever by what `is_it` says.
    fn is_only(&self, name: &Name, is_it: &dyn Fn(Node<'t>) -> bool) -> bool {
        let Name::Of(owner, text) = name else { return false };
        let gives = |n: &&Node<'t>| self.source.owner(n.child(0).unwrap_or(**n), text) == *owner;
        let mut all = self.source.binding(text).iter().filter(gives).peekable();
        all.peek().is_some() && all.all(|n| is_it(*n))
    }
}

#[cfg(test)]
mod tests {
    use super::super::keeper::Keeper;
    use super::super::tests::{attribute, global, is, none};

    #[test]
    fn an_entry_that_has_a_name_of_its_own() {
        let kept = attribute("Trace", "rows", "dict");
        let class = "class Trace:\n    def __init__(self): self.rows = {}\n    def add(self, k, x):\n";
        let made = "        row = self.rows.setdefault(k, [])\n        row.append(x)\n";
        is(&format!("{class}{made}"), &kept, 5, "row.append(x)");
        let looked_up = "        row = self.rows[k]\n        row[\"kv\" + k] = x\n";
        is(&format!("{class}{looked_up}"), &kept, 5, "row[\"kv\" + k] = x");
        let two = "        rows = self.rows\n        row = rows.get(k)\n        row.append(x)\n";
        is(&format!("{class}{two}"), &kept, 6, "row.append(x)");
        let both = "        for k, row in self.rows.items():\n            row.append(x)\n";
        is(&format!("{class}{both}"), &kept, 5, "row.append(x)");
        let lists = "class Trace:\n    def add(self, xs):\n        for d, x in zip(self.dev, xs):\n            d.append(x)\n";
        is(lists, &attribute("Trace", "dev", "list"), 4, "d.append(x)");
        is(
            &lists.replace("d, x in zip(self.dev, xs)", "i, d in enumerate(self.dev)"),
            &attribute("Trace", "dev", "list"),
            4,
            "d.append(x)",
        );
        none(lists, &attribute("Trace", "dev", "dict"));
        let each = "        for row in self.rows.values():\n            row.append(x)\n";
        is(&format!("{class}{each}"), &kept, 5, "row.append(x)");
        // An empty container is not what keeps memory; where nothing is known to fill it, nothing is told.
        none(&format!("{class}        row = self.rows.setdefault(k, [])\n        fill(row, x)\n"), &kept);
        none(
            &format!("{class}        row = self.rows[k]\n        row = other()\n        row.append(x)\n"),
            &kept,
        );
        none(&format!("{class}        row = self.rows[k]\n        return row.add(x)\n"), &kept);
    }

    #[test]
    fn a_list_that_objects_are_given_as_they_are_made() {
        let class = "class R:\n    def __init__(self, x, sink=[]):\n        self.x, self.sink = x, sink\n    def run(self):\n        self.sink.append(net(self.x))\n";
        let used = format!("{class}log = []\nfor x in data: R(x, log).run()\n");
        is(&used, &global("log", "list"), 5, "self.sink.append(net(self.x))");
        let default = Keeper {
            kind: "default".into(),
            function: Some("R.__init__".into()),
            first_line: Some(2),
            ..global("sink", "list")
        };
        is(class, &default, 5, "self.sink.append(net(self.x))");
        none(&used.replace("x, sink\n", "x, list(sink)\n"), &global("log", "list"));
        let plain = class.replace("self.x, self.sink = x, sink", "self.sink = sink");
        is(&plain, &default, 5, "self.sink.append(net(self.x))");
        let other = "    def other(self): self.sink = []\n";
        none(&format!("{plain}{other}"), &default);
        let unbound = "log = []\nfor x in data: list.append(log, net(x))\n";
        is(unbound, &global("log", "list"), 2, "list.append(log, net(x))");
    }

    #[test]
    fn a_method_that_is_given_to_who_calls_it() {
        let class = "class Loop:\n    def __init__(self, emit): self.emit = emit\n    def run(self):\n        for x in data:\n            self.emit(net(x))\n";
        let source = format!("{class}log = []\nLoop(log.append).run()\n");
        is(&source, &global("log", "list"), 5, "self.emit(net(x))");
        is(
            &source.replace("self.emit(net", "other(net"),
            &global("log", "list"),
            7,
            "Loop(log.append).run()",
        );
        let plain = "log = []\ndef run(emit):\n    for x in data: emit(net(x))\nrun(emit=log.append)\n";
        is(plain, &global("log", "list"), 3, "emit(net(x))");
        none(&format!("{plain}run(print)\n").replace("emit=log.append", "log.pop"), &global("log", "list"));
    }

    #[test]
    fn a_function_that_returns_it_or_an_entry() {
        let uses = "log().append(x)";
        let source = |returns: &str| format!("def log():\n    return {returns}\nfor x in data: {uses}\n");
        is(&source("kept"), &global("kept", "list"), 3, uses);
        is(&source("kept['rows']"), &global("kept", "dict"), 3, uses);
        none(&source("other"), &global("kept", "list"));
        let own = format!("def f(log):\n    for x in data: {uses}\n{}", "def log():\n    return kept\n");
        none(&own, &global("kept", "list"));
    }

    #[test]
    fn a_method_that_returns_it() {
        let class =
            "class T:\n    def __init__(self): self.extra = []\n    def state(self): return self.extra\n";
        let source = format!("{class}t = T()\nt.state().append(x)\n");
        is(&source, &attribute("T", "extra", "list"), 5, "t.state().append(x)");
        none(
            &source.replace("return self.extra", "return list(self.extra)"),
            &attribute("T", "extra", "list"),
        );
    }

    #[test]
    fn a_chain_of_objects_or_of_exceptions() {
        let chain =
            "prev = None\nfor x in data:\n    cur = net(x)\n    cur.previous = prev\n    prev = cur\n";
        let remedy = is(chain, &attribute("Tensor", "previous", "Tensor"), 4, "cur.previous = prev");
        assert!(remedy.ends_with("cur.previous = None"), "{remedy}");
        let last = "class T:\n    def push(self, x):\n        x.prev = self.last\n        self.last = x\n";
        is(last, &attribute("Tensor", "prev", "Tensor"), 3, "x.prev = self.last");
        let class = "class N:\n    last = None\n    def __init__(self, x): self.x, self.prev = x, N.last\nN.last = N(net(x))\n";
        let kept = super::super::keeper::Keeper { kind: "class".into(), ..attribute("N", "last", "N") };
        is(class, &kept, 4, "N.last = N(net(x))");
        let errors = "class R:\n    def run(self):\n        try: work()\n        except ValueError as e:\n            self.last = e\n";
        let remedy = is(errors, &attribute("R", "last", "ValueError"), 5, "self.last = e");
        assert!(remedy.contains("str(e)"), "{remedy}");
        none(&errors.replace("= e\n", "= None\n"), &attribute("R", "last", "ValueError"));
        let variable = "last = None\nfor x in data:\n    try: work(last)\n    except ValueError as e:\n        last = e\n";
        is(variable, &global("last", "ValueError"), 5, "last = e");
    }

    #[test]
    fn a_function_that_wraps_what_the_attribute_had() {
        let source = "class Aug:\n    def add(self, t):\n        f = self.f\n        def g(x): return f(x) + t\n        self.f = g\n";
        let remedy = is(source, &attribute("Aug", "f", "function"), 5, "self.f = g");
        assert!(remedy.starts_with("wrap the original function"), "{remedy}");
        none(&source.replace("f = self.f\n", "f = other\n"), &attribute("Aug", "f", "function"));
    }

    #[test]
    fn globals_by_names_of_their_own() {
        let source = "for i in range(9):\n    globals()[f'saved_{i}'] = net(x)\n";
        is(source, &global("saved_0", "Tensor"), 2, "globals()[f'saved_{i}'] = net(x)");
        none(&source.replace("f'saved_{i}'", "'other'"), &global("saved_0", "Tensor"));
    }

    #[test]
    fn attributes_and_globals_of_which_each_is_one_of_many() {
        let own = attribute("Dump", "__dict__", "dict");
        for line in [
            "setattr(self, f\"h_{i}\", out)",
            "setattr(self, \"h\" + str(i), out)",
            "self.__dict__[name] = out",
            "vars(self)[name] = out",
            "self.__dict__.update({name: out})",
        ] {
            let source = format!("class Dump:\n    def see(self, i, name, out):\n        {line}\n");
            is(&source, &own, 3, line);
        }
        for line in ["setattr(self, \"last\", out)", "self.last = out", "self.__dict__[\"last\"] = out"] {
            none(&format!("class Dump:\n    def see(self, out):\n        {line}\n"), &own);
        }
        let others = "class Other:\n    def see(self, i, out):\n        setattr(self, f\"h{i}\", out)\n";
        none(others, &own);
        let all = global("__dict__", "dict");
        for line in [
            "globals()[f\"b{i}\"] = x",
            "vars()[f\"b{i}\"] = x",
            "globals().update({f\"b{i}\": x})",
            "setattr(sys.modules[__name__], f\"b{i}\", x)",
        ] {
            is(&format!("for i in range(9):\n    x = net(i)\n    {line}\n"), &all, 3, line);
        }
        none("def f(x):\n    vars()[f\"b{i}\"] = x\n", &all);
        let bag = Keeper { module: Some("bag".into()), ..global("__dict__", "dict") };
        let source = "for i in range(9):\n    setattr(bag, f\"b{i}\", net(i))\n";
        is(source, &bag, 2, "setattr(bag, f\"b{i}\", net(i))");
        none(&source.replace("bag,", "other,"), &bag);
    }

    #[test]
    fn an_object_that_is_made_like_the_last_with_more_in_it() {
        let kept = attribute("State", "rows", "tuple");
        let of = |made: &str| format!("def more(s, x):\n    return {made}\n");
        for made in [
            "replace(s, step=s.step + 1, rows=s.rows + (x,))",
            "s._replace(rows=(*s.rows, x))",
            "State(s.step + 1, s.rows + (x,))",
        ] {
            is(&of(made), &kept, 2, &format!("return {made}"));
        }
        for made in ["replace(s, other=s.rows + (x,))", "replace(s, rows=s.rows)", "Other(s.rows + (x,))"] {
            none(&of(made), &kept);
        }
    }
}
