//! Statements that put something into a keeper: calls of its methods, assignments to its keys, sums that build on it.

use super::keeper::{Keeper, Name};
use super::scope::{FUNCTIONS, Source, below, children, outward, part};
use super::values::CONTAINERS;
use super::ways::is_attribute_name;
use super::{values, ways};
use std::collections::HashSet;
use strandline::event::WordList;
use tree_sitter::Node;

/// Methods that put their argument into what they are called on.
pub(super) const METHODS: WordList = WordList(
    "append appendleft extend extendleft insert add update put put_nowait push setdefault register \
     add_param_group add_module register_buffer register_module send write __setitem__ __iadd__",
);
/// Functions that put an argument of theirs into the first.
const FUNCTIONS_OF_TWO: [&str; 8] =
    ["heappush", "heappushpop", "iadd", "insort", "insort_left", "insort_right", "setattr", "setitem"];
/// Methods that put their argument into a stack of context managers.
pub(super) const OF_STACKS: [&str; 5] =
    ["callback", "enter_context", "enter_async_context", "push_async_callback", "push_async_exit"];
const STACKS: [&str; 2] = ["ExitStack", "AsyncExitStack"];
/// Methods that put their arguments into what waits for a pool of threads or processes.
const OF_POOLS: [&str; 7] =
    ["submit", "map", "apply_async", "map_async", "starmap_async", "imap", "imap_unordered"];
/// Those pools.
pub(super) const POOLS: [&str; 4] = ["ThreadPoolExecutor", "ProcessPoolExecutor", "ThreadPool", "Pool"];
/// Iterators that keep what they have handed out.
const KEEPING: [&str; 2] = ["cycle", "_tee"];
/// Methods whose result is what the container has.
const ENTRIES: [&str; 3] = ["setdefault", "get", "__getitem__"];
/// Calls from one function to another that a keeper is followed through.
const DEEPEST: u32 = 2;

/// A statement that may be it.
pub(super) struct Add<'t> {
    /// What puts it there: a call, an assignment.
    pub(super) node: Node<'t>,
    /// What is put there.
    pub(super) values: Vec<Node<'t>>,
    /// That could be memory of a device.
    pub(super) may_hold: bool,
    /// What was there before stays.
    pub(super) grows: bool,
}

impl<'t> Add<'t> {
    /// One that puts something in, whatever it is.
    pub(super) fn of(node: Node<'t>) -> Add<'t> {
        Add { node, values: Vec::new(), may_hold: true, grows: true }
    }

    /// The statement: what stands in a lambda is told by itself.
    pub(super) fn statement(&self) -> Node<'t> {
        let mut node = self.node;
        while let Some(parent) = node.parent() {
            if FUNCTIONS.contains(&node.kind()) || node.kind() == "decorator" {
                return self.node;
            }
            if matches!(parent.kind(), "block" | "module") {
                return node;
            }
            node = parent;
        }
        self.node
    }
}

/// Statements that put something into a keeper; where there is none of its own, those of functions that are given it.
pub(super) fn all<'t>(source: &Source<'t>, keeper: &Keeper) -> Vec<Add<'t>> {
    let Some(first) = name_of(source, keeper) else { return Vec::new() };
    let own = HashSet::from([first.clone()]);
    if let Some(cached) = cached(source, keeper) {
        return cached;
    }
    if KEEPING.contains(&keeper.type_name.as_str()) {
        let names = HashSet::from([first]);
        return Search::new(source, keeper, names).makes();
    }
    let (mut names, mut met) = (HashSet::from([first]), HashSet::new());
    for _ in 0..=DEEPEST {
        let found = Search::with_aliases(source, keeper, names.clone());
        let adds = found.adds();
        if adds.iter().any(|a| a.may_hold) {
            return adds;
        }
        met.extend(found.names.iter().cloned());
        names = found.given().into_iter().filter(|n| !met.contains(n)).collect();
        if names.is_empty() {
            break;
        }
    }
    // Where nothing else is: attributes that are asked for by names of which the source does not say which.
    Search { is_any: true, ..Search::new(source, keeper, own) }.adds()
}

pub(super) fn name_of(source: &Source<'_>, keeper: &Keeper) -> Option<Name> {
    let variable = keeper.variable.clone();
    if variable.is_empty() || variable == "?" {
        return None;
    }
    match keeper.kind.as_str() {
        "attribute" | "class" => Some(Name::Attribute(variable)),
        "global" if keeper.is_outside => Some(ways::imported(source, keeper)),
        "global" | "context" => Some(Name::Of(source.root.id(), variable)),
        _ => {
            let function = source.function(keeper.function.as_deref()?, keeper.first_line)?;
            let is_own = keeper.kind != "default" || source.parameters(function).contains(&variable.as_str());
            match is_own {
                true => Some(Name::Of(source.owner_in(function, &variable), variable)),
                false => Some(Name::Attribute(variable)),
            }
        }
    }
}

/// Where the results of a function are kept that `functools.lru_cache` has: its decorator, or what puts something into such a result.
fn cached<'t>(source: &Source<'t>, keeper: &Keeper) -> Option<Vec<Add<'t>>> {
    let is_cache = keeper.type_name == "_lru_cache_wrapper";
    let by_call = if is_cache { ways::cached_by_call(source, &keeper.variable) } else { Vec::new() };
    if !by_call.is_empty() {
        return Some(by_call.into_iter().map(Add::of).collect());
    }
    let (decorator, is_filled) = if is_cache {
        ways::cache(source, &keeper.variable)?
    } else {
        (ways::cached_property(source, keeper.class.as_deref()?, &keeper.variable)?, false)
    };
    let into = ways::calls_on_results(source, &keeper.variable);
    let into = into.into_iter().filter(|n| METHODS.has(ways::method(source, *n)));
    let nodes = if is_filled { into.collect() } else { vec![decorator] };
    Some(nodes.into_iter().map(Add::of).collect())
}

/// Looks for a keeper by its names.
pub(super) struct Search<'s, 't> {
    pub(super) source: &'s Source<'t>,
    pub(super) keeper: &'s Keeper,
    pub(super) names: HashSet<Name>,
    /// Names of entries of it: `row = kept.setdefault(key, [])`.
    pub(super) entries: HashSet<Name>,
    /// `getattr(self, name)` may be the keeper.
    is_any: bool,
}

impl<'s, 't> Search<'s, 't> {
    /// For what these names are.
    pub(super) fn new(source: &'s Source<'t>, keeper: &'s Keeper, names: HashSet<Name>) -> Search<'s, 't> {
        Search { source, keeper, names, entries: HashSet::new(), is_any: false }
    }

    /// Whether an expression is the keeper itself.
    pub(super) fn is_keeper(&self, n: Node<'t>) -> bool {
        match n.kind() {
            "identifier" => {
                let text = self.source.text(n);
                !is_attribute_name(n)
                    && self.names.iter().any(|m| matches!(m, Name::Of(_, t) if t == text))
                    && self.names.contains(&Name::Of(self.source.owner(n, text), text.to_string()))
            }
            "attribute" => {
                let text = self.source.field(n, "attribute");
                let object = part(n, "object");
                self.names.contains(&Name::Attribute(text.to_string()))
                    && object.is_some_and(|o| self.is_owner(o))
                    || self.keeper.is_outside
                        && text == self.keeper.variable
                        && object.is_some_and(|o| ways::is_module(self.source, o, self.keeper))
                    || ways::own(self.source, n).is_some_and(|own| self.names.contains(&own))
            }
            "parenthesized_expression" => children(n).first().is_some_and(|c| self.is_keeper(*c)),
            "subscript" | "call" => {
                let is_global =
                    |name: &str| self.names.contains(&Name::Of(self.source.root.id(), name.to_string()));
                ways::global(self.source, n).is_some_and(is_global)
                    || ways::by_name(self.source, n).is_some_and(|(object, name)| self.is_named(object, name))
                    || self.is_any && ways::is_some_global(self.source, n, self.keeper)
                    || self.is_returned(n)
            }
            _ => false,
        }
    }

    /// Whether it is a call of a method or a function that returns the keeper.
    fn is_returned(&self, call: Node<'t>) -> bool {
        if ways::function(self.source, call).is_some_and(|name| self.names.contains(&name)) {
            return true;
        }
        let Some(function) = part(call, "function").filter(|f| f.kind() == "attribute") else {
            return false;
        };
        let name = Name::Method(self.source.field(function, "attribute").to_string());
        self.names.contains(&name) && part(function, "object").is_some_and(|o| self.is_owner(o))
    }

    /// Whether it is the keeper, or its class puts something into itself: `self[key] = value` in a class made of `dict`.
    fn is_whole(&self, n: Node<'t>) -> bool {
        let class = self.keeper.type_name.as_str();
        self.is_keeper(n) || ways::is_self(self.source, n, class) && ways::is_container(self.source, class)
    }

    /// Whether the attribute of this name of an object is the keeper; `None`: any name.
    fn is_named(&self, object: Node<'t>, name: Option<&str>) -> bool {
        match name {
            Some(name) => self.names.contains(&Name::Attribute(name.to_string())) && self.is_owner(object),
            None => {
                self.is_any
                    && self.keeper.class.as_deref().is_some_and(|c| ways::is_self(self.source, object, c))
            }
        }
    }

    /// Whether an object that an attribute is asked of may be of the keeper's class.
    fn is_owner(&self, owner: Node<'t>) -> bool {
        let (source, object) = (self.source, self.source.text(owner));
        let Some(class) = &self.keeper.class else {
            // An attribute of a function.
            let name = self.keeper.function.as_deref().and_then(|f| f.rsplit('.').next());
            return name == Some(object) || name.is_some_and(|name| ways::is_wrapped(source, owner, name));
        };
        let of = match owner.kind() {
            "call" if values::called(source, owner) == "type" => {
                part(owner, "arguments").and_then(|a| children(a).first().copied())
            }
            "attribute" if source.field(owner, "attribute") == "__class__" => part(owner, "object"),
            _ => Some(owner),
        };
        // In no class it is a function that a class is given later.
        if of.is_some_and(|n| source.is_self(n))
            && let Some(around) = source.class_around(owner)
        {
            return source.are_related(source.field(around, "name"), class);
        }
        // Of another class that has such an attribute it would be that.
        let others = source.all("attribute").iter().filter(|n| {
            source.field(**n, "attribute") == self.keeper.variable
                && part(**n, "object").is_some_and(|o| source.is_self(o))
        });
        let mut classes = others.filter_map(|n| source.class_around(*n)).map(|c| source.field(c, "name"));
        object == class || classes.all(|c| source.are_related(c, class))
    }

    /// The keeper below keys and the like: of `self.losses["x"]` it is `self.losses`.
    pub(super) fn is_part(&self, n: Node<'t>) -> bool {
        let inner = match n.kind() {
            "subscript" => part(n, "value"),
            "call" => part(n, "function")
                .filter(|f| f.kind() == "attribute" && ENTRIES.contains(&self.source.field(*f, "attribute"))),
            "attribute" if n.parent().is_some_and(|p| p.kind() == "call") => {
                part(n, "object").filter(|_| !self.is_keeper(n))
            }
            "attribute" if ways::is_namespace(&self.keeper.type_name) => part(n, "object"),
            "parenthesized_expression" => children(n).first().copied(),
            _ => None,
        };
        // The condition stands between the two.
        let is_branch = n.kind() == "conditional_expression"
            && children(n).iter().step_by(2).any(|branch| self.is_part(*branch));
        is_branch
            || self.is_whole(n)
            || self.is_attributes(n)
            || self.is_entry(n)
            || inner.is_some_and(|i| self.is_part(i))
    }

    /// Whether it is the dictionary of the keeper's attributes, or the keeper, which is such a dictionary.
    fn is_attributes(&self, n: Node<'t>) -> bool {
        match ways::dictionary(self.source, n) {
            Some(Some(object)) => self.is_instance(object) || self.has_all(object),
            Some(None) => self.keeper.kind == "global" && self.keeper.variable == "__dict__",
            None => false,
        }
    }

    /// Whether all attributes of an object are what keeps.
    fn has_all(&self, object: Node<'t>) -> bool {
        let is_own = || match self.keeper.kind.as_str() {
            "global" => ways::is_module(self.source, object, self.keeper),
            _ => self.is_owner(object),
        };
        self.keeper.variable == "__dict__" && is_own()
    }

    /// Whether it is the keeper, or it is in a method of its class.
    fn is_instance(&self, n: Node<'t>) -> bool {
        self.is_keeper(n) || ways::is_self(self.source, n, &self.keeper.type_name)
    }

    /// Whether the keeper is anywhere in an expression.
    pub(super) fn mentions(&self, n: Node<'t>) -> bool {
        below(n, &|_| true).into_iter().any(|n| self.is_keeper(n))
    }

    /// Whether a value is the keeper again, or what is left of it: `kept[-10:]`, `[k for k in kept if …]`, `list(kept)`.
    pub(super) fn is_rest(&self, n: Node<'t>) -> bool {
        const COPIES: [&str; 9] =
            ["list", "dict", "set", "tuple", "sorted", "deque", "copy", "filter", "reversed"];
        let called = self.source.field(n, "function").rsplit('.').next().unwrap_or_default();
        self.is_part(n)
            || n.kind().ends_with("comprehension")
            || n.kind() == "call" && COPIES.contains(&called)
            || n.kind() == "parenthesized_expression" && children(n).first().is_some_and(|c| self.is_rest(*c))
    }

    fn adds(&self) -> Vec<Add<'t>> {
        let mut all: Vec<Add<'t>> = self.source.nodes.iter().filter_map(|n| self.add(*n)).collect();
        // Where it is seen who calls a method that was handed on, that call puts it there.
        let is_called = |add: &Add<'t>| add.node.kind() == "call" && self.is_called(add.node);
        if all.iter().any(is_called) {
            all.retain(|add| add.node.kind() != "attribute");
        }
        all
    }

    /// Whether a call is one of a method of the keeper by another name.
    fn is_called(&self, call: Node<'t>) -> bool {
        part(call, "function").is_some_and(|f| self.is_method(f) || self.is_bound(f))
    }

    /// Whether it is the keeper, a method of a container that has no other name: `add = Table().rows.append`.
    fn is_bound(&self, function: Node<'t>) -> bool {
        self.keeper.type_name == "builtin_function_or_method" && self.is_keeper(function)
    }

    /// Assignments that make it, by a function of its type's name.
    fn makes(&self) -> Vec<Add<'t>> {
        let is_it = |n: &&Node<'t>| {
            let (left, right) = (part(**n, "left"), part(**n, "right"));
            let called = right.map_or("", |r| self.source.field(r, "function"));
            let name = called.rsplit('.').next().unwrap_or_default();
            left.is_some_and(|l| self.mentions(l)) && self.keeper.type_name.trim_start_matches('_') == name
        };
        self.source.all("assignment").iter().filter(is_it).copied().map(Add::of).collect()
    }

    /// Whether an assignment hands on what its name had before: in the loop, or the function, that it stands in, the name is read before it is
    /// assigned. A loss that is made anew each time is not, however far its graph reaches.
    fn is_carried(&self, assignment: Node<'t>) -> bool {
        let mut around = outward(assignment);
        let is_scope = |n: &Node<'t>| {
            matches!(n.kind(), "for_statement" | "while_statement" | "module")
                || FUNCTIONS.contains(&n.kind())
        };
        let Some(scope) = around.find(is_scope) else { return false };
        let inside = below(scope, &|_| true);
        let used = inside.iter().copied().filter(|n| self.is_keeper(*n) || self.is_read_by(*n));
        // The right side comes first.
        let when = |n: Node<'t>| {
            let assigned = outward(n)
                .take_while(|p| !matches!(p.kind(), "block" | "module" | "call" | "subscript"))
                .find(|p| matches!(p.kind(), "assignment" | "named_expression"))
                .filter(|p| {
                    let left = part(*p, "left").or_else(|| part(*p, "name"));
                    left.is_some_and(|l| l.start_byte() <= n.start_byte() && n.end_byte() <= l.end_byte())
                });
            assigned.map_or((n.start_byte(), false), |a| (a.end_byte(), true))
        };
        used.map(when).min().is_some_and(|(_, is_assigned)| !is_assigned)
    }

    /// Whether a call is one of a method of the same object that uses the keeper, an attribute.
    fn is_read_by(&self, call: Node<'t>) -> bool {
        let source = self.source;
        let Some(function) = part(call, "function").filter(|f| f.kind() == "attribute") else {
            return false;
        };
        let (name, class) = (source.field(function, "attribute"), source.class_around(call));
        let is_own =
            part(function, "object").is_some_and(|o| source.is_self(o)) && self.keeper.class.is_some();
        let named = source.binding(name).iter().filter(|n| n.kind() == "function_definition");
        let mut methods = named.filter(|m| source.class_around(**m) == class);
        is_own && class.is_some() && methods.any(|m| self.mentions(*m))
    }

    fn add(&self, n: Node<'t>) -> Option<Add<'t>> {
        let source = self.source;
        let field = |name: &str| part(n, name);
        let made = |values: Vec<Node<'t>>, grows: bool| {
            let may_hold = values.is_empty() || values.iter().any(|v| values::may_hold(source, *v));
            Add { node: n, values, may_hold, grows }
        };
        match n.kind() {
            "call" => {
                let (function, arguments) = (field("function")?, children(field("arguments")?));
                let method = source.field(function, "attribute");
                if let Some(built) = self.copied(n) {
                    return Some(made(vec![built], true));
                }
                let is_stack = STACKS.contains(&self.keeper.type_name.as_str());
                let is_group = self.keeper.variable == "param_groups" && method == "add_param_group";
                if is_group || self.is_called(n) && !arguments.is_empty() {
                    return Some(made(arguments, true));
                }
                if let Some((object, values)) = ways::registered(source, n, &self.keeper.variable) {
                    return self.is_owner(object).then(|| made(values, true));
                }
                // Of many hooks one is told by what it was given; and what an optimizer keeps is its state as well, which nobody adds.
                let is_hook = ways::has_handle(source, n);
                let needs_evidence = is_hook || method == "add_param_group";
                // A context variable is set anew.
                let is_set = self.keeper.kind == "context"
                    && method == "set"
                    && self.mentions(arguments.first().copied()?);
                let is_own = METHODS.has(method) || is_hook || is_set;
                let is_pool = POOLS.contains(&self.keeper.type_name.as_str());
                let is_kept_by = is_own
                    || is_stack && OF_STACKS.contains(&method)
                    || is_pool && OF_POOLS.contains(&method);
                // `list.append(kept, x)` is told below.
                let is_unbound = CONTAINERS.contains(&source.field(function, "object"));
                if is_kept_by && !is_unbound {
                    let object = part(function, "object")?;
                    // What `setdefault` makes is mostly a container to put something into.
                    let is_way = method == "setdefault"
                        && (n.parent().is_some_and(|p| p.kind() == "attribute")
                            || arguments.get(1).is_some_and(|made| values::is_empty(source, *made)));
                    let by_name = |a: &Node<'t>| {
                        part(*a, "value").filter(|_| a.kind() == "keyword_argument").unwrap_or(*a)
                    };
                    let values: Vec<Node<'t>> = arguments.iter().map(by_name).collect();
                    // A method that its class has is no container's: what it does stands there.
                    let is_other =
                        self.is_keeper(object) && ways::has_method(source, &self.keeper.type_name, method);
                    // A tensor has such a method, too: what it returns is used.
                    let is_sum = method == "add"
                        && self.is_entry(object)
                        && n.parent().is_none_or(|p| p.kind() != "expression_statement");
                    let is_into = self.is_part(object) && !is_way && !is_other && !is_sum;
                    return (is_into && !values.is_empty())
                        .then(|| made(values, true))
                        .filter(|add| !needs_evidence || add.evidence(source, self.keeper) > 0);
                }
                let name = source.text(function).rsplit('.').next().unwrap_or_default();
                let is_set = |n: Node<'t>| name == "setattr" && (self.is_instance(n) || self.has_all(n));
                let first = arguments.first().filter(|a| self.is_part(**a) || is_set(**a))?;
                let is_two = FUNCTIONS_OF_TWO.contains(&name) && !ways::is_of_one_name(name, &arguments);
                let unbound = METHODS.has(name) && function.kind() == "attribute";
                (is_two || unbound && first.id() != function.id())
                    .then(|| made(arguments.get(1..).unwrap_or_default().to_vec(), true))
            }
            "attribute" => {
                // Handed on to be called: `hook(acts.append)`.
                let called = n.parent().filter(|p| p.kind() == "call");
                let is_called = called.is_some_and(|c| part(c, "function").is_some_and(|f| f.id() == n.id()));
                let is_method = METHODS.has(source.field(n, "attribute"));
                let given =
                    n.parent().is_some_and(|p| matches!(p.kind(), "argument_list" | "keyword_argument"));
                (is_method && given && !is_called && self.is_part(field("object")?))
                    .then(|| made(Vec::new(), true))
            }
            "augmented_assignment" => {
                let is_sum = self.keeper.rebound || matches!(source.field(n, "operator"), "+=" | "|=");
                let (left, right) = (field("left")?, field("right")?);
                (is_sum && self.is_part(left)).then(|| made(vec![right], true))
            }
            "assignment" | "named_expression" => {
                let left = field("left").or_else(|| field("name"))?;
                let right = field("right").or_else(|| field("value"))?;
                const PATTERNS: [&str; 4] =
                    ["pattern_list", "tuple_pattern", "list_pattern", "list_splat_pattern"];
                let is_pattern = |n: Node<'t>| PATTERNS.contains(&n.kind());
                let targets: Vec<Node<'t>> =
                    below(left, &is_pattern).into_iter().filter(|t| !is_pattern(*t)).collect();
                if targets.iter().any(|t| t.kind() == "subscript" && self.is_part(*t)) {
                    let is_fixed = targets.iter().all(|t| ways::is_fixed(*t)) && !self.mentions(right);
                    let is_some = is_fixed && self.keeper.variable == "__dict__";
                    let is_one = !is_some && (!self.keeper.rebound || self.mentions(right));
                    let grows = self.keeper.type_name != "list" && !is_fixed;
                    return is_one.then(|| made(vec![right], grows));
                }
                if !targets.iter().any(|t| self.is_keeper(*t)) {
                    return None;
                }
                let own = ways::pairs(n).into_iter().find(|(to, _)| self.is_keeper(*to));
                let right = own.map_or(right, |(_, value)| value);
                let builds = !self.is_rest(right) && self.mentions(right);
                let is_set = self.keeper.rebound && !builds && values::is_made_of_others(source, right);
                let is_one = !self.keeper.rebound || self.is_carried(n);
                let is_linked = ways::links(source, n, self.keeper);
                (is_one && (builds || is_set) || is_linked).then(|| made(vec![right], builds))
            }
            _ => None,
        }
    }
}
