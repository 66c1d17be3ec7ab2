//! Ways to a keeper besides its name: the class that it is an instance of, a property that returns it, a key that is always the same.

use super::keeper::{Keeper, Name};
use super::scope::{ASSIGNING, FUNCTIONS, Source, below, children, outward, part};
use super::stored::exception;
use super::values::{CONTAINERS, called, is_empty};
use tree_sitter::Node;

/// Whether `n` is `self` (or `super()`) in a class of this name.
pub(super) fn is_self<'t>(source: &Source<'t>, n: Node<'t>, class: &str) -> bool {
    let is_it = source.text(n) == "super()" || source.is_self(n);
    is_it && source.class_around(n).is_some_and(|c| source.are_related(source.field(c, "name"), class))
}

/// Whether a class of this source is made of a container of Python's.
pub(super) fn is_container(source: &Source<'_>, class: &str) -> bool {
    container(source, class).is_some()
}

/// The container of Python's that a class of this source is made of.
pub(super) fn container(source: &Source<'_>, class: &str) -> Option<&'static str> {
    CONTAINERS.into_iter().find(|c| *c != class && source.inherits(class, c))
}

/// Types whose attributes are as keys of a dictionary.
pub(super) fn is_namespace(type_name: &str) -> bool {
    ["_local", "local", "SimpleNamespace", "Namespace"].contains(&type_name)
}

/// Whether a class of this source has a method of its own of this name: what it does stands in there.
pub(super) fn has_method(source: &Source<'_>, class: &str, name: &str) -> bool {
    let named = source.binding(name).iter().filter(|n| n.kind() == "function_definition");
    let mut classes = named.filter_map(|m| source.class_around(*m)).map(|c| source.field(c, "name"));
    classes.any(|c| source.inherits(class, c))
}

/// What a function is asked by, or a method, or a property, and the expression that it returns and does nothing else.
pub(super) fn returned<'t>(source: &Source<'t>, function: Node<'t>) -> Option<(Name, Node<'t>)> {
    let around = function.parent()?;
    let is_decorated = around.kind() == "decorated_definition";
    let is_property = is_decorated
        && children(around).iter().any(|d| d.kind() == "decorator" && source.text(*d) == "@property");
    if is_decorated && !is_property {
        return None;
    }
    let body = children(part(function, "body")?);
    let [only] = body.as_slice() else { return None };
    let value = children(*only).into_iter().next().filter(|_| only.kind() == "return_statement")?;
    let named = part(function, "name")?;
    let name = source.text(named).to_owned();
    let asked = match source.class_around(function) {
        Some(_) if is_property => Name::Attribute(name),
        Some(_) => Name::Method(name),
        None => Name::Function(source.owner(named, &name), name),
    };
    Some((asked, value))
}

/// The function that a call calls by its name.
pub(super) fn function(source: &Source<'_>, call: Node<'_>) -> Option<Name> {
    let function = part(call, "function").filter(|f| call.kind() == "call" && f.kind() == "identifier")?;
    let name = source.text(function);
    Some(Name::Function(source.owner(function, name), name.to_owned()))
}

/// Whether an assignment links what is kept to what was kept before: an object's attribute gets another object of the same type, as in
/// `new.previous = last`, a class's gets a new object of that class, as in `Node.last = Node(x)`, or an exception gets a name in the clause that
/// handles it, from where it can be the cause of the next. Whatever its type, an object may be given what the name has and get the name.
pub(super) fn links(source: &Source<'_>, assignment: Node<'_>, keeper: &Keeper) -> bool {
    let (Some(left), Some(right)) = (part(assignment, "left"), part(assignment, "right")) else {
        return false;
    };
    let is_node = keeper.class.as_deref() == Some(keeper.type_name.as_str());
    let is_handled = || exception(source, right).is_some();
    match (keeper.kind.as_str(), left.kind()) {
        (_, "attribute" | "identifier") if is_put_before(source, assignment) => true,
        ("attribute", "attribute") => {
            // `self.last = x` alone is no link: what it had before may be let go.
            let is_last = right.kind() == "attribute" && source.field(left, "object") != "self";
            !keeper.rebound && is_node && (right.kind() == "identifier" || is_last)
                || is_handled()
                || wraps(source, assignment)
        }
        ("class", "attribute") => {
            !keeper.rebound && is_node && right.kind() == "call" && called(source, right) == keeper.type_name
        }
        ("local" | "global", "identifier") => is_handled(),
        _ => false,
    }
}

/// Whether what is assigned has an attribute that is given, in the same function, what the name had: `x.previous = self.last`, `self.last = x`.
fn is_put_before(source: &Source<'_>, assignment: Node<'_>) -> bool {
    let (Some(left), Some(right)) = (part(assignment, "left"), part(assignment, "right")) else {
        return false;
    };
    let function = |n: Node<'_>| outward(n).find(|n| n.kind() == "function_definition").map(|f| f.id());
    let is_it = |n: &Node<'_>| {
        part(*n, "left")
            .is_some_and(|l| l.kind() == "attribute" && source.field(l, "object") == source.text(right))
            && source.field(*n, "right") == source.text(left)
            && n.end_byte() <= assignment.start_byte()
            && function(*n) == function(assignment)
    };
    right.kind() == "identifier" && source.all("assignment").iter().any(is_it)
}

/// Whether an attribute is assigned a function that is made in the same function, and calls what the attribute had.
pub(super) fn wraps(source: &Source<'_>, assignment: Node<'_>) -> bool {
    let (Some(left), Some(right)) = (part(assignment, "left"), part(assignment, "right")) else {
        return false;
    };
    let around = outward(assignment).find(|n| n.kind() == "function_definition");
    let is_made = |f: &Node<'_>| {
        around.is_some_and(|a| outward(*f).any(|n| n.id() == a.id()))
            && source.field(*f, "name") == source.text(right)
    };
    let is_read = |n: Node<'_>| n.id() != left.id() && source.text(n) == source.text(left);
    left.kind() == "attribute"
        && right.kind() == "identifier"
        && source.all("function_definition").iter().any(is_made)
        && around.is_some_and(|a| below(a, &|_| true).into_iter().any(is_read))
}

/// Whether all keys of a subscript are literals: `state["last"]` is the same place each time.
pub(super) fn is_fixed(subscript: Node<'_>) -> bool {
    let mut cursor = subscript.walk();
    let mut keys = subscript.children_by_field_name("subscript", &mut cursor);
    let is_plain = |k: Node<'_>| children(k).iter().all(|part| part.kind() != "interpolation");
    let is_literal = keys.all(|k| matches!(k.kind(), "string" | "integer") && is_plain(k));
    let inner = part(subscript, "value").filter(|v| v.kind() == "subscript");
    is_literal && inner.is_none_or(is_fixed)
}

/// The decorator by which `functools` keeps the results of the only function of this name, and whether these are containers, made empty
/// to be filled by whoever gets them.
pub(super) fn cache<'t>(source: &Source<'t>, function: &str) -> Option<(Node<'t>, bool)> {
    let is_it = |n: &&Node<'t>| source.field(**n, "name") == function;
    let mut all =
        source.all("function_definition").iter().filter(is_it).filter_map(|n| Some((*n, n.parent()?)));
    let (node, decorated) = all.next().filter(|(_, d)| d.kind() == "decorated_definition")?;
    let is_cache = |d: &Node<'t>| d.kind() == "decorator" && source.text(*d).contains("cache");
    let decorator = children(decorated).into_iter().find(is_cache)?;
    let returns_empty = |n: Node<'t>| {
        n.kind() == "return_statement" && children(n).first().is_some_and(|v| is_empty(source, *v))
    };
    let is_filled = below(node, &|_| true).into_iter().any(returns_empty);
    all.next().is_none().then_some((decorator, is_filled))
}

/// Assignments that give this name a function whose results are kept: `self.encode = lru_cache(maxsize=None)(self._encode)`.
pub(super) fn cached_by_call<'t>(source: &Source<'t>, name: &str) -> Vec<Node<'t>> {
    let is_it = |n: &&Node<'t>| {
        let last = |field: &str| part(**n, field).map_or("", |n| source.text(n));
        let right = part(**n, "right").filter(|r| r.kind() == "call");
        last("left").rsplit('.').next() == Some(name)
            && right.is_some_and(|r| source.field(r, "function").contains("cache"))
    };
    source.all("assignment").iter().filter(is_it).copied().collect()
}

/// The decorator of a property of a class that keeps its result in an attribute of its name.
pub(super) fn cached_property<'t>(source: &Source<'t>, class: &str, name: &str) -> Option<Node<'t>> {
    let is_it = |n: &&Node<'t>| {
        let around = source.class_around(**n).map_or("", |c| source.field(c, "name"));
        source.field(**n, "name") == name && source.are_related(around, class)
    };
    let decorated = source.all("function_definition").iter().find(is_it)?.parent()?;
    let is_cached = |d: &Node<'t>| {
        let name = children(*d).into_iter().next().map_or("", |n| source.text(n));
        d.kind() == "decorator" && name.ends_with("cached_property")
    };
    children(decorated).into_iter().find(is_cached)
}

/// The attribute that a string names, and whose: `getattr(x, "name")`, `vars(x)["name"]`, `x.__dict__["name"]` and the like. The name is `None`
/// where it is no literal.
pub(super) fn by_name<'t>(source: &Source<'t>, n: Node<'t>) -> Option<(Node<'t>, Option<&'t str>)> {
    let arguments = |call: Node<'t>| part(call, "arguments").map(children).unwrap_or_default();
    let of_dict = |dict: Node<'t>| dictionary(source, dict).flatten();
    let (object, name) = match n.kind() {
        "subscript" => (of_dict(part(n, "value")?)?, part(n, "subscript")?),
        "call" if source.field(n, "function") == "getattr" => match arguments(n).as_slice() {
            [object, name, ..] => (*object, *name),
            _ => return None,
        },
        "call" => {
            let function = part(n, "function").filter(|f| f.kind() == "attribute")?;
            let is_entry = matches!(source.field(function, "attribute"), "get" | "setdefault");
            let dict = part(function, "object").filter(|_| is_entry)?;
            (of_dict(dict)?, *arguments(n).first()?)
        }
        _ => return None,
    };
    Some((object, if is_plain(name) { Some(quoted(source.text(name))?) } else { None }))
}

/// Whether it is a dictionary of attributes, `x.__dict__` or `vars(x)`, and of what; `None` inside: of this module's globals.
pub(super) fn dictionary<'t>(source: &Source<'t>, n: Node<'t>) -> Option<Option<Node<'t>>> {
    if n.kind() == "attribute" {
        return (source.field(n, "attribute") == "__dict__").then(|| part(n, "object"));
    }
    let given = part(n, "arguments").filter(|_| n.kind() == "call").map(children)?;
    let is_of_module = || !outward(n).any(|p| FUNCTIONS.contains(&p.kind()));
    match (source.field(n, "function"), given.as_slice()) {
        ("globals", []) => Some(None),
        ("vars" | "locals", []) if is_of_module() => Some(None),
        ("vars", [object]) => Some(Some(*object)),
        _ => None,
    }
}

/// Whether an object is the module whose globals keep.
pub(super) fn is_module(source: &Source<'_>, object: Node<'_>, keeper: &Keeper) -> bool {
    let text = source.text(object);
    let name = keeper.module.as_deref().and_then(last);
    let is_it = |n: &Node<'_>| n.kind() == "aliased_import" && last(source.field(*n, "name")) == name;
    let is_alias = || source.binding(text).iter().any(is_it);
    match object.kind() {
        "identifier" => name == Some(text) || is_alias(),
        "attribute" => last(text) == name,
        _ => text.starts_with("sys.modules["),
    }
}

/// What is behind the last dot.
fn last(path: &str) -> Option<&str> {
    path.rsplit('.').next()
}

/// What a variable of another module is called that is imported from there; where it is not, the name is nobody's.
pub(super) fn imported(source: &Source<'_>, keeper: &Keeper) -> Name {
    let module = keeper.module.as_deref().and_then(last);
    let froms = source.all("import_from_statement").iter();
    let froms = froms.filter(|n| last(source.field(**n, "module_name").trim_start_matches('.')) == module);
    let mut names = froms.flat_map(|n| children(*n).into_iter().skip(1)).filter_map(|n| match n.kind() {
        "aliased_import" if source.field(n, "name") == keeper.variable => Some(source.field(n, "alias")),
        _ => (source.text(n) == keeper.variable).then_some(source.text(n)),
    });
    match names.next_back() {
        Some(name) => Name::Of(source.root.id(), name.to_owned()),
        None => Name::Of(usize::MAX, keeper.variable.clone()),
    }
}

/// What an assignment fills: of `kept[i], last = x, i` it is `kept[i]`.
pub(super) fn target(assignment: Node<'_>) -> Option<Node<'_>> {
    let left = part(assignment, "left")?;
    if !matches!(left.kind(), "pattern_list" | "tuple_pattern" | "list_pattern") {
        return Some(left);
    }
    let mut keys = children(left).into_iter().filter(|n| n.kind() == "subscript");
    keys.next().filter(|_| keys.next().is_none())
}

/// Whether a name is that by which a function around it, a decorator, knows the function of this name: `train = logged(train)`.
pub(super) fn is_wrapped(source: &Source<'_>, n: Node<'_>, function: &str) -> bool {
    let text = source.text(n);
    let is_given_it =
        |p: &Node<'_>| p.kind() == "function_definition" && source.parameters(*p).contains(&text);
    let Some(wraps) = outward(n).find(is_given_it).map(|f| source.field(f, "name")) else { return false };
    let is_given = |c: &Node<'_>| {
        let given = part(*c, "arguments").map(children).unwrap_or_default();
        called(source, *c) == wraps && given.first().is_some_and(|g| source.text(*g) == function)
    };
    let is_decorator = |d: &Node<'_>| {
        let on = d.parent().and_then(|p| part(p, "definition"));
        on.is_some_and(|f| source.field(f, "name") == function)
            && children(*d).first().is_some_and(|c| source.text(*c) == wraps)
    };
    source.all("call").iter().any(is_given) || source.all("decorator").iter().any(is_decorator)
}

/// `self.name` in a class, as a name.
pub(super) fn own<'t>(source: &Source<'t>, attribute: Node<'t>) -> Option<Name> {
    let is_own =
        attribute.kind() == "attribute" && part(attribute, "object").is_some_and(|o| source.is_self(o));
    let class = source.class_around(attribute).filter(|_| is_own)?;
    Some(Name::Own(source.field(class, "name").into(), source.field(attribute, "attribute").into()))
}

/// What an assignment gives to what, one by one: `self.x, self.log = x, log`.
pub(super) fn pairs(assignment: Node<'_>) -> Vec<(Node<'_>, Node<'_>)> {
    let (Some(left), Some(right)) = (part(assignment, "left"), part(assignment, "right")) else {
        return Vec::new();
    };
    let is_several =
        |n: Node<'_>| matches!(n.kind(), "pattern_list" | "tuple_pattern" | "expression_list" | "tuple");
    let (to, from) = (children(left), children(right));
    match is_several(left) && is_several(right) && to.len() == from.len() {
        true => to.into_iter().zip(from).collect(),
        false => vec![(left, right)],
    }
}

/// What stands between quotes.
fn quoted(text: &str) -> Option<&str> {
    ["\"", "'"].iter().find_map(|q| text.strip_prefix(q)?.strip_suffix(q))
}

/// Calls of methods of what a function returns: `bucket(key).append(x)`.
pub(super) fn calls_on_results<'t>(source: &Source<'t>, function: &str) -> Vec<Node<'t>> {
    let object = |n: &Node<'t>| part(part(*n, "function")?, "object");
    let is_it = |n: &Node<'t>| {
        object(n).is_some_and(|o| o.kind() == "call" && source.field(o, "function") == function)
    };
    source.all("call").iter().copied().filter(is_it).collect()
}

/// The method that is called.
pub(super) fn method<'t>(source: &Source<'t>, call: Node<'t>) -> &'t str {
    part(call, "function").map_or("", |f| source.field(f, "attribute"))
}

/// Whether a call sets an attribute that always has the same name: what was there before is let go.
pub(super) fn is_of_one_name(function: &str, arguments: &[Node<'_>]) -> bool {
    matches!(function, "setattr" | "setitem") && arguments.get(1).is_some_and(|n| is_plain(*n))
}

/// Whether an argument is a string that is always the same.
pub(super) fn is_plain(n: Node<'_>) -> bool {
    n.kind() == "string" && children(n).iter().all(|p| p.kind() != "interpolation")
}

/// What an attribute is assigned, wherever it is. Where it is asked of another object than `self`, and some class has a method of its name, it is
/// not known to be this one: nothing.
pub(super) fn values_of_attribute<'t>(source: &Source<'t>, attribute: Node<'t>) -> Vec<Option<Node<'t>>> {
    let name = source.field(attribute, "attribute");
    let object = part(attribute, "object").filter(|o| source.is_self(*o));
    let class = object.and_then(|_| source.class_around(attribute));
    let value = |n: &Node<'t>| {
        let left = part(*n, "left").filter(|l| l.kind() == "attribute")?;
        let is_here = class.is_none() || source.class_around(left) == class;
        (source.field(left, "attribute") == name && is_here).then(|| part(*n, "right"))
    };
    if class.is_none() && source.binding(name).iter().any(|n| n.kind() == "function_definition") {
        return Vec::new();
    }
    ASSIGNING.iter().flat_map(|kind| source.all(kind)).filter_map(value).collect()
}

/// What modules of PyTorch have their tensors in, and each other.
const OF_MODULES: [&str; 3] = ["_buffers", "_parameters", "_modules"];

/// The module that a call gives a buffer, a parameter or a module, under a name that may be another each time, and what it gives.
pub(super) fn registered<'t>(
    source: &Source<'t>,
    call: Node<'t>,
    variable: &str,
) -> Option<(Node<'t>, Vec<Node<'t>>)> {
    const NAMES: [&str; 4] = ["register_buffer", "register_parameter", "add_module", "register_module"];
    let function = part(call, "function").filter(|_| OF_MODULES.contains(&variable))?;
    let arguments = children(part(call, "arguments")?);
    let (object, given) = match arguments.as_slice() {
        all if NAMES.contains(&source.field(function, "attribute")) => (part(function, "object")?, all),
        // Any object has attributes: it is a module's only where its class says so, or what it is given.
        [object, given @ ..] if source.text(function) == "setattr" => {
            let is_given = given.last().is_some_and(|v| source.text(*v).contains("Parameter("));
            let is_module = source.is_self(*object) || variable == "_parameters" && is_given;
            (*object, if is_module { given } else { &[] })
        }
        _ => return None,
    };
    let [name, values @ ..] = given else { return None };
    (!is_plain(*name)).then(|| (object, values.to_vec()))
}

/// The global that `globals()["name"]` is.
pub(super) fn global<'t>(source: &Source<'t>, subscript: Node<'_>) -> Option<&'t str> {
    let is_it = source.field(subscript, "value") == "globals()";
    let key = part(subscript, "subscript").filter(|k| is_it && k.kind() == "string")?;
    quoted(source.text(key))
}

/// Whether it is a global of which there may be many such as the keeper, a tensor: `globals()[f"saved_{i}"]`.
pub(super) fn is_some_global(source: &Source<'_>, subscript: Node<'_>, keeper: &Keeper) -> bool {
    let is_it = source.field(subscript, "value") == "globals()"
        && part(subscript, "subscript").is_some_and(|k| !is_plain(k));
    is_it && keeper.kind == "global" && keeper.type_name == "Tensor"
}

/// The name after the dot, or of an argument: no variable.
pub(super) fn is_attribute_name(n: Node<'_>) -> bool {
    let is = |p: Node<'_>, field: &str| part(p, field).is_some_and(|f| f.id() == n.id());
    n.parent().is_some_and(|p| match p.kind() {
        "attribute" => is(p, "attribute"),
        "keyword_argument" => is(p, "name"),
        _ => false,
    })
}

/// Whether it is a hook of PyTorch, which has a handle by which it is removed.
pub(super) fn has_handle(source: &Source<'_>, call: Node<'_>) -> bool {
    let name = if call.kind() == "call" { called(source, call) } else { "" };
    name.starts_with("register") && name.ends_with("hook")
}
