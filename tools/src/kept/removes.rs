//! What a source does to keep a container small: a cache that evicts is not helped by being told to.

use super::adds::Add;
use super::lists;
use super::scope::{Source, below, children, line, outward, part};
use super::values::called;
use super::ways;
use tree_sitter::Node;

/// Longest text of a container that advice names.
const LONGEST: usize = 40;

/// The container that a statement fills, where it has a name: a variable, or an attribute.
pub(super) fn container<'t>(source: &Source<'t>, add: &Add<'t>) -> Option<Node<'t>> {
    let node = match add.node.kind() {
        "call" => match lists::first_argument(source, add.node) {
            Some(list) => list,
            None => part(part(add.node, "function")?, "object")?,
        },
        _ => match ways::target(add.node)? {
            left if left.kind() == "subscript" => part(left, "value")?,
            left => left,
        },
    };
    let is_name = matches!(node.kind(), "identifier" | "attribute") && source.text(node) != "self";
    (is_name && source.text(node).len() <= LONGEST).then_some(node)
}

/// Types of containers that are read as a whole.
pub(super) fn is_plain(type_name: &str) -> bool {
    ["list", "dict", "defaultdict", "OrderedDict", "tuple", "set", "deque"].contains(&type_name)
}

/// Whether a container is made elsewhere, and known here by an import or as a parameter: a new value of its name would be another's.
pub(super) fn is_foreign<'t>(source: &Source<'t>, container: Node<'t>) -> bool {
    let Some(name) = first_name(container) else { return false };
    let text = source.text(name);
    let is_import = |n: &Node<'t>| n.parent().is_some_and(|p| p.kind().starts_with("import"));
    let function = outward(container).find(|n| n.kind() == "function_definition");
    let is_given = || function.is_some_and(|f| source.parameters(f).contains(&text));
    source.binding(text).iter().any(is_import) || container.kind() == "identifier" && is_given()
}

/// Methods that take something out of a container.
pub(super) const METHODS: [&str; 7] =
    ["popitem", "pop", "popleft", "clear", "remove", "discard", "cache_clear"];

/// Whether a node names a container.
pub(super) fn is_it<'t>(source: &Source<'t>, n: Node<'t>, container: Node<'t>) -> bool {
    !ways::is_attribute_name(n) && source.text(n) == source.text(container) && is_same(source, n, container)
}

/// A statement that takes something out of a container again: its line, and its text.
pub(super) fn statement<'t>(source: &Source<'t>, container: Node<'t>) -> Option<(u32, &'t str)> {
    let is_it = |n: Node<'t>| is_it(source, n, container);
    let calls = source.all("call").iter().filter(|call| {
        let object = part(**call, "function").and_then(|f| part(f, "object"));
        METHODS.contains(&ways::method(source, **call)) && object.is_some_and(is_it)
            || called(source, **call) == "heappop" && lists::first_argument(source, **call).is_some_and(is_it)
    });
    let deletes = source.all("delete_statement").iter().filter(|d| {
        let parts = below(**d, &|_| true);
        parts.iter().any(|s| s.kind() == "subscript" && part(*s, "value").is_some_and(is_it))
    });
    let first = calls.chain(deletes).min_by_key(|n| line(**n))?;
    let text = source.text(*first);
    (text.len() <= LONGEST && !text.contains('\n')).then_some((line(*first), text))
}

/// Advice for a container, the length of which the source may limit already.
pub(super) fn unless_limited<'t>(source: &Source<'t>, container: Node<'t>, advice: String) -> String {
    match limit(source, container) {
        None => advice,
        Some((line, text)) => format!(
            "if line {line}, {text}, limits its length, check that this limit is low enough; otherwise {advice}"
        ),
    }
}

/// A comparison of the container's length, by which a source may limit it: its line, and its text.
fn limit<'t>(source: &Source<'t>, container: Node<'t>) -> Option<(u32, &'t str)> {
    let is_it = |n: Node<'t>| is_it(source, n, container);
    let is_length = |n: &Node<'t>| {
        let given = part(*n, "arguments").map(children).unwrap_or_default();
        n.kind() == "call"
            && source.field(*n, "function") == "len"
            && matches!(given.as_slice(), [one] if is_it(*one))
    };
    // Whether there is anything in it is no limit.
    let is_few = |n: &Node<'t>| matches!(source.text(*n), "0" | "1");
    let compares = |n: &&Node<'t>| {
        let sides = children(**n);
        sides.iter().any(is_length) && !sides.iter().any(is_few)
    };
    let first = source.all("comparison_operator").iter().filter(compares).min_by_key(|n| line(**n))?;
    let text = source.text(*first);
    (text.len() <= LONGEST && !text.contains('\n')).then_some((line(*first), text))
}

/// Whether two nodes of the same text name one thing: a variable of one scope, or an attribute within one class.
fn is_same<'t>(source: &Source<'t>, a: Node<'t>, b: Node<'t>) -> bool {
    let Some(name) = first_name(a) else { return false };
    match source.text(name) {
        _ if source.is_self(name) => {
            source.class_around(a).map(|c| c.id()) == source.class_around(b).map(|c| c.id())
        }
        // An attribute of what a function is given may be that of what another one is given.
        text => {
            source.owner(a, text) == source.owner(b, text)
                || is_of_parameter(source, a) && is_of_parameter(source, b)
        }
    }
}

/// Whether it is an attribute of a parameter of the function around it.
fn is_of_parameter<'t>(source: &Source<'t>, n: Node<'t>) -> bool {
    let object = part(n, "object").filter(|o| n.kind() == "attribute" && o.kind() == "identifier");
    let function = outward(n).find(|n| n.kind() == "function_definition");
    object.zip(function).is_some_and(|(o, f)| source.parameters(f).contains(&source.text(o)))
}

/// `self` of `self.cache.entries`.
fn first_name(n: Node<'_>) -> Option<Node<'_>> {
    match n.kind() {
        "identifier" => Some(n),
        "attribute" => children(n).first().copied().and_then(first_name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{attribute, global, is};

    #[test]
    fn a_cache_that_evicts_is_told_about_its_limit() {
        let add = "cache[key] = value(key)";
        let evicts = format!("{add}\nif len(cache) > 200: cache.popitem(last=False)\n");
        let remedy = is(&evicts, &global("cache", "OrderedDict"), 1, add);
        assert!(
            remedy.starts_with(
                "check that line 2, cache.popitem(last=False), which removes entries, runs often enough"
            ),
            "{remedy}"
        );
        let deletes = format!("{add}\nfor k in old: del cache[k]\n");
        let remedy = is(&deletes, &global("cache", "dict"), 1, add);
        assert!(remedy.starts_with("check that line 2, del cache[k], which removes"), "{remedy}");
        let class = "class C:\n    def put(self, k, v):\n        self.kept[k] = v\n    def trim(self):\n        self.kept.clear()\n";
        let remedy = is(class, &attribute("C", "kept", "dict"), 3, "self.kept[k] = v");
        assert!(remedy.starts_with("check that line 5, self.kept.clear(), which removes"), "{remedy}");
        // A comparison may be all that is seen of its limit.
        let class = "class Buffer:\n    def push(self, x):\n        if len(self.data) < self.cap:\n            self.data.append(x)\n        else:\n            self.data[self.at] = x\n";
        let remedy = is(class, &attribute("Buffer", "data", "list"), 4, "self.data.append(x)");
        assert!(remedy.starts_with("if line 3, len(self.data) < self.cap, limits its length, "), "{remedy}");
        assert!(remedy.contains("otherwise call self.data.clear()"), "{remedy}");
        for other in ["len(self.data) % 10 == 0", "len(self.data) > 0", "len(x) < self.cap"] {
            let other = class.replace("len(self.data) < self.cap", other);
            let remedy = is(&other, &attribute("Buffer", "data", "list"), 4, "self.data.append(x)");
            assert!(!remedy.contains("limits"), "{remedy}");
        }
        // What hooks are given is the same object.
        let hooks = "def push(m, x):\n    m.acts.append(x)\ndef take(m, g):\n    return m.acts.pop() * g\n";
        let remedy = is(hooks, &attribute("Linear", "acts", "list"), 2, "m.acts.append(x)");
        assert!(remedy.starts_with("check that line 4, m.acts.pop(), which removes entries"), "{remedy}");
        // A variable of that name in another function is another one.
        let other = format!("def f():\n    cache = {{}}\n    cache.clear()\n{add}\n");
        let remedy = is(&other, &global("cache", "dict"), 4, add);
        assert!(remedy.starts_with("pop() the keys of cache"), "{remedy}");
    }
}
