//! How sure the stacks of what was allocated make a statement: they lead through its lines, or to where its value comes from.

use super::adds::Add;
use super::keeper::Keeper;
use super::scope::{FUNCTIONS, Source, below, children, last_line, line, part};
use super::stored::is_computed;
use super::values::called;
use super::ways::is_attribute_name;
use std::collections::HashSet;
use tree_sitter::Node;

/// Assignments and calls that a value is followed through.
const DEEPEST: u32 = 4;

impl<'t> Add<'t> {
    /// 4 where stacks lead through the statement; 3 where they lead through what made its value; 2 where that was handed on to it, by
    /// assignments or as an argument; 1 where the value is computed of such a one, elsewhere; 0 where nothing tells.
    pub(super) fn evidence(&self, source: &Source<'t>, keeper: &Keeper) -> u32 {
        self.proof(source, keeper).0
    }

    /// The same, and the lines of the stacks that make it so sure.
    pub(super) fn proof(&self, source: &Source<'t>, keeper: &Keeper) -> (u32, Vec<u32>) {
        let look = Look { source, allocated: &keeper.allocated };
        // What a decorator keeps, the function that it decorates returns.
        let decorated = self.node.parent().filter(|p| p.kind() == "decorated_definition");
        let own = look.lines(decorated.unwrap_or_else(|| self.statement()));
        if !own.is_empty() {
            return (4, own);
        }
        // A graph keeps what a value was computed of.
        let of = |v: &Node<'t>| if keeper.graph { names_in(*v) } else { same(source, *v) };
        match look.follow(self.values.iter().flat_map(of).collect()) {
            (0, _) => {
                let (sure, lines) = look.follow(self.values.iter().flat_map(|v| names_in(*v)).collect());
                (sure.min(1), lines)
            }
            proof => proof,
        }
    }
}

impl<'t> Look<'_, 't> {
    /// 3 where stacks lead through what made these names, 2 where they lead to where that came from, 0 where they do not; and which lines.
    fn follow(&self, mut names: Vec<Node<'t>>) -> (u32, Vec<u32>) {
        let (look, source) = (self, self.source);
        let mut met = HashSet::new();
        for depth in 0..DEEPEST {
            names.retain(|n| met.insert((source.text(*n), source.owner(*n, source.text(*n)))));
            let came: Vec<Node<'t>> = names.iter().flat_map(|n| look.came_from(*n)).collect();
            // A name that is handed on was made elsewhere.
            let made = came.iter().filter(|n| n.kind() != "identifier");
            let lines: Vec<u32> = made.flat_map(|n| look.lines(*n)).collect();
            if !lines.is_empty() {
                return (if depth == 0 { 3 } else { 2 }, lines);
            }
            names = came.into_iter().flat_map(names_in).collect();
        }
        (0, Vec::new())
    }
}

/// The variables in an expression, without those that another tensor is computed of.
fn same<'t>(source: &Source<'t>, value: Node<'t>) -> Vec<Node<'t>> {
    variables(below(value, &|n| !is_computed(source, n)))
}

/// The variables in an expression.
fn names_in(value: Node<'_>) -> Vec<Node<'_>> {
    variables(below(value, &|_| true))
}

fn variables(all: Vec<Node<'_>>) -> Vec<Node<'_>> {
    all.into_iter().filter(|n| n.kind() == "identifier" && !is_attribute_name(*n)).collect()
}

struct Look<'s, 't> {
    source: &'s Source<'t>,
    /// Lines that stacks of what is kept lead through.
    allocated: &'s [u32],
}

impl<'t> Look<'_, 't> {
    /// Those of the stacks' lines that are lines of a node.
    fn lines(&self, n: Node<'t>) -> Vec<u32> {
        let is_of = |l: &&u32| (line(n)..=last_line(n)).contains(l);
        self.allocated.iter().filter(is_of).copied().collect()
    }

    /// What a name is given: by assignments, or, as a parameter, by calls of its function.
    fn came_from(&self, name: Node<'t>) -> Vec<Node<'t>> {
        let (source, text) = (self.source, self.source.text(name));
        let owner = source.owner(name, text);
        let is_it = |n: &&Node<'t>| n.kind() == "assignment" && source.owner(**n, text) == owner;
        let assigned = source.binding(text).iter().filter(is_it).filter_map(|n| part(*n, "right"));
        let function = FUNCTIONS.iter().flat_map(|kind| source.all(kind)).find(|f| f.id() == owner);
        let given = function.map(|f| arguments(source, *f, text)).unwrap_or_default();
        assigned.chain(given).collect()
    }
}

/// What calls of a function give a parameter of it; of `__init__`, those of its class.
pub(super) fn arguments<'t>(source: &Source<'t>, function: Node<'t>, parameter: &str) -> Vec<Node<'t>> {
    let named = match source.field(function, "name") {
        "__init__" => source.class_around(function).map_or("", |c| source.field(c, "name")),
        name => name,
    };
    let all = source.given(function);
    let Some(at) = all.iter().position(|p| *p == parameter).filter(|_| !named.is_empty()) else {
        return Vec::new();
    };
    let calls = source.all("call").iter().filter(|c| called(source, **c) == named);
    let given = calls.filter_map(|c| {
        let arguments = children(part(*c, "arguments")?);
        let is_named =
            |a: &&Node<'t>| a.kind() == "keyword_argument" && source.field(**a, "name") == parameter;
        let by_name = arguments.iter().find(is_named).and_then(|a| part(*a, "value"));
        by_name.or_else(|| arguments.get(at).filter(|a| a.kind() != "keyword_argument").copied())
    });
    given.collect()
}

#[cfg(test)]
mod tests {
    use super::super::keeper::Keeper;
    use super::super::tests::{attribute, global, is, none};

    fn allocated(keeper: Keeper, lines: &[u32]) -> Keeper {
        Keeper { allocated: lines.to_vec(), ..keeper }
    }

    #[test]
    fn a_value_is_followed_through_assignments() {
        let source = "cache = {}\ncache[-1] = torch.zeros(4)\nfor i, x in enumerate(data):\n    out = net(x)\n    t = out.detach()\n    cache[i] = t\n";
        is(source, &allocated(global("cache", "dict"), &[4]), 6, "cache[i] = t");
        none(source, &global("cache", "dict"));
    }

    #[test]
    fn a_number_that_callers_give_was_not_allocated_there() {
        let class = "class T:\n    def step(self, i):\n        o = net(i)\n        self.log.append(i * 0.1)\n        self.log.append(o.detach())\n";
        let source = format!("{class}t = T()\nfor i in range(9): t.step(i)\n");
        let kept = allocated(attribute("T", "log", "list"), &[3, 7]);
        is(&source, &kept, 5, "self.log.append(o.detach())");
    }

    #[test]
    fn what_is_computed_of_it_elsewhere_is_another_tensor() {
        let class = "class M:\n    def step(self, x):\n        feats = self.enc(x)\n        self.kept['f'].append(feats)\n        self.kept['p'].append(self.head(feats).softmax(-1))\n";
        let kept = |lines: &[u32]| allocated(attribute("M", "kept", "defaultdict"), lines);
        is(class, &kept(&[3, 9]), 4, "self.kept['f'].append(feats)");
        is(class, &kept(&[5, 9]), 5, "self.kept['p'].append(self.head(feats).softmax(-1))");
        // Its graph has what it was computed of.
        none(class, &Keeper { graph: true, ..kept(&[3, 9]) });
        none(&class.replace("self.head(feats).softmax(-1)", "Row(feats)"), &kept(&[3, 9]));
        is(
            &class.replace("append(feats)", "append('x')"),
            &kept(&[3]),
            5,
            "self.kept['p'].append(self.head(feats).softmax(-1))",
        );
    }

    #[test]
    fn a_parameter_is_what_callers_give() {
        let class = "class A:\n    def text(self, s): self.rec.append(s)\n    def image(self, x): self.rec.append(x)\n";
        let source = format!("{class}for x in data:\n    out = net(x)\n    a.text('step'); a.image(out)\n");
        let kept = allocated(attribute("A", "rec", "list"), &[5]);
        is(&source, &kept, 3, "self.rec.append(x)");
        is(&source.replace("image(out)", "image(x=out)"), &kept, 3, "self.rec.append(x)");
        none(&source.replace("text('step')", "text(out)"), &kept);
    }
}
