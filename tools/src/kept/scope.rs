//! A Python source, parsed: which function a name belongs to.

use std::collections::{HashMap, HashSet};
use tree_sitter::{Node, Parser, Tree};

/// Most bytes of a source that is parsed.
pub(super) const MOST: usize = 2 << 20;

/// Parses it; `None` where it is too large, or is no Python at all.
pub(super) fn parse(text: &str) -> Option<Tree> {
    if text.len() > MOST {
        return None;
    }
    let mut parser = Parser::new();
    parser.set_language(&tree_sitter_python::LANGUAGE.into()).ok()?;
    // The grammar takes `type(self).seen[k] = v` for an alias of a type. A tree has places in the text, and no words of it.
    parser.parse(text.replace("type(", "kind(").replace("type[", "kind["), None)
}

/// Deepest nesting of a source that is looked into: what goes down into expressions calls itself.
const DEEPEST: u32 = 300;

/// Whether a tree is one that a person wrote.
pub(super) fn is_shallow(root: Node<'_>) -> bool {
    let mut cursor = root.walk();
    let mut depth = 0;
    loop {
        if cursor.goto_first_child() {
            depth += 1;
            if depth > DEEPEST {
                return false;
            }
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return true;
            }
            depth -= 1;
        }
    }
}

/// The line that a node begins in, from 1.
pub(super) fn line(node: Node<'_>) -> u32 {
    u32::try_from(node.start_position().row + 1).unwrap_or(u32::MAX)
}

/// The line that a node ends in, from 1.
pub(super) fn last_line(node: Node<'_>) -> u32 {
    u32::try_from(node.end_position().row + 1).unwrap_or(u32::MAX)
}

/// Nodes that have names of their own.
pub(super) const FUNCTIONS: [&str; 2] = ["function_definition", "lambda"];
const COMPREHENSIONS: [&str; 4] =
    ["list_comprehension", "set_comprehension", "dictionary_comprehension", "generator_expression"];

/// Kinds of nodes whose `left` is assigned.
pub(super) const ASSIGNING: [&str; 4] =
    ["assignment", "augmented_assignment", "for_statement", "for_in_clause"];
/// Kinds of nodes that assign names otherwise.
const BINDING: [&str; 6] = [
    "named_expression",
    "function_definition",
    "class_definition",
    "as_pattern_target",
    "aliased_import",
    "dotted_name",
];

/// A source and its tree.
pub(super) struct Source<'t> {
    text: &'t str,
    /// The module.
    pub(super) root: Node<'t>,
    /// Every node, in the order of the text.
    pub(super) nodes: Vec<Node<'t>>,
    /// The nodes of each kind, by its number.
    of_kind: HashMap<u16, Vec<Node<'t>>>,
    /// The nodes that assign each name.
    binding: HashMap<&'t str, Vec<Node<'t>>>,
}

impl<'t> Source<'t> {
    /// All nodes of a tree.
    pub(super) fn new(text: &'t str, root: Node<'t>) -> Source<'t> {
        let nodes = below(root, &|_| true);
        let mut of_kind = HashMap::<u16, Vec<Node<'t>>>::new();
        for node in &nodes {
            of_kind.entry(node.kind_id()).or_default().push(*node);
        }
        let mut source = Source { text, root, nodes, of_kind, binding: HashMap::new() };
        let mut binding = HashMap::<&str, Vec<Node<'t>>>::new();
        for node in ASSIGNING.iter().chain(&BINDING).flat_map(|kind| source.all(kind)) {
            for name in source.bound_by(*node) {
                binding.entry(name).or_default().push(*node);
            }
        }
        source.binding = binding;
        source
    }

    /// All nodes of a kind, in the order of the text.
    pub(super) fn all(&self, kind: &str) -> &[Node<'t>] {
        let id = self.root.language().id_for_node_kind(kind, true);
        self.of_kind.get(&id).map_or(&[], Vec::as_slice)
    }

    /// All nodes that assign a name, whosever it is.
    pub(super) fn binding(&self, name: &str) -> &[Node<'t>] {
        self.binding.get(name).map_or(&[], Vec::as_slice)
    }

    /// The text of a node.
    pub(super) fn text(&self, node: Node<'_>) -> &'t str {
        self.text.get(node.byte_range()).unwrap_or_default()
    }

    /// The text of a field of a node.
    pub(super) fn field(&self, node: Node<'_>, name: &str) -> &'t str {
        part(node, name).map_or("", |n| self.text(n))
    }

    /// The function (or lambda) of this qualified name that begins in this line; without a line the only one of the name.
    pub(super) fn function(&self, qualified: &str, first_line: Option<u32>) -> Option<Node<'t>> {
        let name = qualified.rsplit('.').next().unwrap_or(qualified);
        if name == "<module>" {
            return Some(self.root);
        }
        let is_it = |n: &&Node<'t>| match n.kind() {
            "lambda" => name == "<lambda>" && first_line == Some(line(**n)),
            "function_definition" => {
                let decorated = n.parent().filter(|p| p.kind() == "decorated_definition");
                let begins = [Some(line(**n)), decorated.map(line)];
                self.field(**n, "name") == name && (first_line.is_none() || begins.contains(&first_line))
            }
            _ => false,
        };
        let mut all = self.nodes.iter().filter(is_it);
        let first = all.next().copied();
        // Two lambdas of one line close over the same names.
        first.filter(|f| f.kind() == "lambda" || all.next().is_none())
    }

    /// The node that a name belongs to as it is used at `at`: a function, a lambda, a comprehension, or the module.
    pub(super) fn owner(&self, at: Node<'t>, name: &str) -> usize {
        let (mut from, mut in_function) = (at, false);
        while let Some(n) = from.parent() {
            if FUNCTIONS.contains(&n.kind()) {
                let is_inside = part(n, "body").is_some_and(|b| holds(b, at))
                    || part(n, "parameters").is_some_and(|p| is_parameter_of(p, at));
                if is_inside {
                    if self.is_declared(n, "global_statement", name) {
                        return self.root.id();
                    }
                    if !self.is_declared(n, "nonlocal_statement", name) && self.binds(n, name) {
                        return n.id();
                    }
                    in_function = true;
                }
            } else if COMPREHENSIONS.contains(&n.kind()) && self.binds(n, name)
                || n.kind() == "class_definition" && !in_function && self.binds(n, name)
            {
                return n.id();
            }
            from = n;
        }
        self.root.id()
    }

    /// The node that a name belongs to that a function uses.
    pub(super) fn owner_in(&self, function: Node<'t>, name: &str) -> usize {
        if function.kind() == "module" {
            return self.root.id();
        }
        part(function, "body").map_or(self.root.id(), |body| match body.child(0) {
            Some(first) => self.owner(first, name),
            None => self.owner(body, name),
        })
    }

    /// Whether a function makes a name its own: as a parameter or by assigning it.
    pub(super) fn binds(&self, scope: Node<'t>, name: &str) -> bool {
        if self.parameters(scope).contains(&name) {
            return true;
        }
        let mut nodes = self.binding(name).iter().filter(|n| holds(scope, **n)).peekable();
        nodes.peek().is_some() && {
            let own: HashSet<usize> = own(scope).iter().map(Node::id).collect();
            nodes.any(|n| own.contains(&n.id()))
        }
    }

    /// The names of a function's parameters, in their order.
    pub(super) fn parameters(&self, function: Node<'t>) -> Vec<&'t str> {
        let Some(all) = part(function, "parameters") else { return Vec::new() };
        children(all).into_iter().filter_map(|p| self.parameter(p)).collect()
    }

    /// Those that calls give, in their order: all but `self`.
    pub(super) fn given(&self, function: Node<'t>) -> Vec<&'t str> {
        let mut all = self.parameters(function);
        if all.first().is_some_and(|first| matches!(*first, "self" | "cls") || self.is_method(function)) {
            all.remove(0);
        }
        all
    }

    /// Whether a name is `self` or `cls`, whatever its method calls its first parameter.
    pub(super) fn is_self(&self, n: Node<'t>) -> bool {
        let text = self.text(n);
        let method = || outward(n).find(|f| f.kind() == "function_definition" && self.is_method(*f));
        let is_first =
            |m: Node<'t>| self.parameters(m).first() == Some(&text) && self.owner(n, text) == m.id();
        matches!(text, "self" | "cls") || n.kind() == "identifier" && method().is_some_and(is_first)
    }

    /// Whether a function is a method that gets its object, or its class.
    fn is_method(&self, function: Node<'t>) -> bool {
        let decorated = function.parent().filter(|p| p.kind() == "decorated_definition");
        let is_static = |d: &Node<'t>| self.text(*d) == "@staticmethod";
        let block = decorated.unwrap_or(function).parent();
        let class = block.and_then(|b| b.parent()).filter(|c| c.kind() == "class_definition");
        class.is_some() && !decorated.is_some_and(|d| children(d).iter().any(is_static))
    }

    fn parameter(&self, p: Node<'t>) -> Option<&'t str> {
        match p.kind() {
            "identifier" => Some(self.text(p)),
            "default_parameter" | "typed_default_parameter" => Some(self.field(p, "name")),
            "typed_parameter" | "list_splat_pattern" | "dictionary_splat_pattern" => {
                children(p).into_iter().find_map(|c| self.parameter(c))
            }
            _ => None,
        }
    }

    /// The names that a node assigns.
    pub(super) fn bound_by(&self, n: Node<'t>) -> Vec<&'t str> {
        let of = |field: &str| part(n, field).map(|t| self.targets(t)).unwrap_or_default();
        match n.kind() {
            kind if ASSIGNING.contains(&kind) => of("left"),
            "named_expression" | "function_definition" | "class_definition" => of("name"),
            "as_pattern_target" => self.targets(n),
            "aliased_import" => of("alias"),
            "dotted_name" => {
                let is_import = n.parent().is_some_and(|p| p.kind().starts_with("import"));
                let first = children(n).into_iter().next();
                first.filter(|_| is_import).map(|f| self.text(f)).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    pub(super) fn targets(&self, target: Node<'t>) -> Vec<&'t str> {
        match target.kind() {
            "identifier" => vec![self.text(target)],
            "attribute" | "subscript" => Vec::new(),
            _ => children(target).into_iter().flat_map(|c| self.targets(c)).collect(),
        }
    }

    fn is_declared(&self, scope: Node<'t>, kind: &str, name: &str) -> bool {
        let declares = |n: &Node<'t>| n.kind() == kind && children(*n).iter().any(|c| self.text(*c) == name);
        own(scope).iter().any(declares)
    }

    /// The class that a node stands in, through whatever functions.
    pub(super) fn class_around(&self, at: Node<'t>) -> Option<Node<'t>> {
        outward(at).find(|n| n.kind() == "class_definition")
    }

    /// Whether a class is this one, or one descends from the other, as far as this source says.
    pub(super) fn are_related(&self, a: &str, b: &str) -> bool {
        a == b || self.descends(a, b, 8) || self.descends(b, a, 8)
    }

    /// Whether a class is this one, or descends from it, as far as this source says.
    pub(super) fn inherits(&self, class: &str, from: &str) -> bool {
        class == from || self.descends(class, from, 8)
    }

    fn descends(&self, class: &str, from: &str, deepest: u32) -> bool {
        let mine = self.all("class_definition").iter().filter(|n| self.field(**n, "name") == class);
        let bases = mine.filter_map(|n| part(*n, "superclasses")).flat_map(children);
        let names = bases.map(|b| self.text(b).rsplit('.').next().unwrap_or_default());
        deepest > 0 && names.into_iter().any(|base| base == from || self.descends(base, from, deepest - 1))
    }
}

/// The part of a node that the grammar gives this name.
pub(super) fn part<'t>(node: Node<'t>, name: &str) -> Option<Node<'t>> {
    node.child_by_field_name(name)
}

/// What a node stands in, from the inside to the outside.
pub(super) fn outward(node: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    std::iter::successors(node.parent(), Node::parent)
}

/// Named children of a node.
pub(super) fn children(node: Node<'_>) -> Vec<Node<'_>> {
    let mut cursor = node.walk();
    node.named_children(&mut cursor).collect()
}

/// A node and all below it, in the order of the text; of what `enters` refuses only the node itself.
pub(super) fn below<'t>(node: Node<'t>, enters: &dyn Fn(Node<'t>) -> bool) -> Vec<Node<'t>> {
    let (mut all, mut stack) = (Vec::new(), vec![node]);
    while let Some(n) = stack.pop() {
        all.push(n);
        if enters(n) {
            stack.extend(children(n).into_iter().rev());
        }
    }
    all
}

/// All nodes of a scope, without those of functions and classes in it.
fn own(scope: Node<'_>) -> Vec<Node<'_>> {
    let own = |n: Node<'_>| !FUNCTIONS.contains(&n.kind()) && n.kind() != "class_definition";
    let parts = match part(scope, "body") {
        Some(body) => vec![body],
        None => children(scope),
    };
    parts.into_iter().flat_map(|part| below(part, &own)).collect()
}

fn holds(outer: Node<'_>, inner: Node<'_>) -> bool {
    outer.start_byte() <= inner.start_byte() && inner.end_byte() <= outer.end_byte()
}

/// Whether a node is the name of a parameter: defaults belong to whoever makes the function.
fn is_parameter_of(parameters: Node<'_>, at: Node<'_>) -> bool {
    let named = |p: &Node<'_>| part(*p, "name").is_some_and(|n| n.id() == at.id()) || p.id() == at.id();
    children(parameters).iter().any(named)
}

/// Whether a name stands in a text, and not as a part of a longer one.
pub(super) fn has_word(text: &str, name: &str) -> bool {
    let is_name = |c: char| c == '_' || c.is_alphanumeric();
    text.split(|c| !is_name(c)).any(|word| word == name)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{attribute, global, is, none};
    use super::*;

    #[test]
    fn a_method_may_call_its_object_otherwise() {
        let class = |name: &str, put: &str| format!("class {name}:\n    def put(s, x): {put}\n");
        let kept = attribute("A", "rows", "list");
        let two = format!("{}{}", class("A", "s.rows.append(x)"), class("B", "s.rows.append(x)"));
        is(&two, &kept, 2, "s.rows.append(x)");
        none(&class("B", "s.rows.append(x)"), &kept);
        let other = format!("{two}    def end(s): s.rows.clear()\n");
        assert!(!is(&other, &kept, 2, "s.rows.append(x)").contains("check that line"));
        for owner in ["type(s)", "s.__class__"] {
            let line = format!("{owner}.rows[x] = x");
            is(&class("A", &line), &attribute("A", "rows", "dict"), 2, &line);
            none(&class("B", &line), &attribute("A", "rows", "dict"));
        }
        is("operator.setitem(d, k, x)\n", &global("d", "dict"), 1, "operator.setitem(d, k, x)");
        let add = "run.state.log['a'][k] = net(x)";
        is(&format!("run = Box()\n{add}\n"), &global("run", "SimpleNamespace"), 2, add);
    }

    #[test]
    fn a_call_of_type_is_no_alias_of_a_type() {
        for line in ["type(self).seen[k] = v", "type(self)[k] = v", "type[k] = v"] {
            let tree = parse(line).unwrap();
            let statement = tree.root_node().child(0).and_then(|n| n.child(0));
            assert_eq!(statement.map(|n| n.kind()), Some("assignment"), "{line}");
        }
    }

    #[test]
    fn a_name_is_no_part_of_a_longer_one() {
        assert!(has_word("x.prev = 1", "prev") && has_word("prev", "prev"));
        assert!(!has_word("to prevent it, the prev_x, _prev", "prev"));
    }
}
