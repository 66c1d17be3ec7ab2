//! What is handed, again and again, to somebody who keeps it: a function with a tensor of its own in a variable that it has closed over, or as a
//! default (`layer.register_forward_hook(hook)`); a thread or a task, with what its function was given (`Thread(target=f, args=(x,))`); an
//! object that is made there (`register_parametrization(layer, "weight", Scale())`), or made around what its name had (`net = Wrap(net)`).

use super::adds::{Add, METHODS, OF_STACKS};
use super::keeper::Keeper;
use super::scope::{Source, below, children, part};
use super::values::called;
use strandline::event::WordList;
use tree_sitter::Node;

/// Types that are kept one by one: what is in a container was put there by another statement.
const TENSORS: [&str; 2] = ["Tensor", "Parameter"];

/// Calls that hand a function to whoever keeps it, where a variable of that function is the keeper.
pub(super) fn registered<'t>(source: &Source<'t>, keeper: &Keeper) -> Vec<Add<'t>> {
    if TENSORS.contains(&keeper.type_name.as_str()) { of_function(source, keeper) } else { Vec::new() }
}

/// Calls that hand on a function, or an object or a method of it, where each that is handed on has a container of its own: the keeper is one of these.
pub(super) fn registered_each<'t>(source: &Source<'t>, keeper: &Keeper) -> Vec<Add<'t>> {
    let Some(class) = keeper.class.as_deref().filter(|_| keeper.kind == "attribute") else {
        return of_function(source, keeper);
    };
    let makes = || source.all("call").iter().filter(|c| called(source, **c) == class).copied();
    let named = makes().filter_map(|c| {
        let left = c.parent().filter(|p| p.kind() == "assignment").and_then(|p| part(p, "left"))?;
        (left.kind() == "identifier").then(|| uses(source, left)).map(|all| all.collect::<Vec<_>>())
    });
    let handed = makes().chain(named.flatten()).filter_map(|n| {
        let method = n.parent().filter(|p| p.kind() == "attribute");
        call_of(method.unwrap_or(n)).filter(|c| registers(called(source, *c)))
    });
    handed.map(Add::of).collect()
}

/// Calls that hand on the function that has the keeper as a variable.
fn of_function<'t>(source: &Source<'t>, keeper: &Keeper) -> Vec<Add<'t>> {
    let is_one = matches!(keeper.kind.as_str(), "closure" | "default");
    let function = keeper.function.as_deref().filter(|_| is_one);
    let Some(function) = function.and_then(|f| source.function(f, keeper.first_line)) else {
        return Vec::new();
    };
    let calls: Vec<Node<'t>> = match part(function, "name") {
        None => call_of(function).into_iter().collect(),
        Some(name) => uses(source, name).filter_map(call_of).collect(),
    };
    calls.into_iter().filter(|c| registers(called(source, *c))).map(Add::of).collect()
}

/// Where a name is used that belongs to the same scope.
fn uses<'a, 't>(source: &'a Source<'t>, name: Node<'t>) -> impl Iterator<Item = Node<'t>> + 'a {
    let text = source.text(name);
    let owner = source.owner(name, text);
    source
        .all("identifier")
        .iter()
        .copied()
        .filter(move |n| source.text(*n) == text && source.owner(*n, text) == owner)
}

/// Calls that begin a thread, or a task for a coroutine.
const BEGINS: WordList = WordList(
    "Thread Timer submit start_new_thread run_in_executor to_thread apply_async \
     create_task ensure_future run_coroutine_threadsafe start_soon spawn gather call_later call_soon",
);

/// Whether a call begins a thread or a task.
pub(super) fn begins(source: &Source<'_>, call: Node<'_>) -> bool {
    call.kind() == "call" && BEGINS.has(called(source, call))
}

/// Calls that begin a thread or a task with the function whose parameter the keeper is, or a variable of whose coroutine, and give it what was
/// allocated: of a queue that one worker has for long nothing is told.
pub(super) fn begun<'t>(source: &Source<'t>, keeper: &Keeper) -> Vec<Add<'t>> {
    let function = keeper.function.as_deref().and_then(|f| source.function(f, keeper.first_line));
    let is_given = |f: &Node<'t>| match keeper.kind.as_str() {
        "local" => source.parameters(*f).contains(&keeper.variable.as_str()),
        "generator" => source.text(*f).starts_with("async"),
        _ => false,
    };
    let Some(name) = function.filter(is_given).map(|f| source.field(f, "name")) else { return Vec::new() };
    let is_it = |n: Node<'t>| {
        let called = if n.kind() == "call" { part(n, "function") } else { Some(n) };
        called.is_some_and(|f| source.text(f).rsplit('.').next() == Some(name))
    };
    let gives =
        |a: &Node<'t>| is_it(part(*a, "value").filter(|_| a.kind() == "keyword_argument").unwrap_or(*a));
    let arguments = |call: &Node<'t>| part(*call, "arguments").map(children).unwrap_or_default();
    let calls = source.all("call").iter().filter(|c| begins(source, **c) && arguments(c).iter().any(gives));
    let all = calls.map(|c| Add { values: arguments(c), ..Add::of(*c) });
    all.filter(|add| add.evidence(source, keeper) > 0).collect()
}

/// Whether an assignment makes an object of a class around what its name had: `net = Wrap(net)`.
pub(super) fn is_around_the_last(source: &Source<'_>, assignment: Node<'_>, class: &str) -> bool {
    let (Some(left), Some(right)) = (part(assignment, "left"), part(assignment, "right")) else {
        return false;
    };
    let is_it = |n: Node<'_>| n.kind() == left.kind() && source.text(n) == source.text(left);
    let arguments = part(right, "arguments").filter(|_| right.kind() == "call");
    called(source, right) == class
        && matches!(left.kind(), "identifier" | "attribute")
        && arguments.is_some_and(|a| below(a, &|_| true).into_iter().any(is_it))
}

/// Statements that make an object of the keeper's class, of which there are more and more, around the last one, or as an argument of a call that
/// keeps it; what was allocated leads through them, or to what the object is given.
pub(super) fn made<'t>(source: &Source<'t>, keeper: &Keeper) -> Vec<Add<'t>> {
    let class = keeper.class.as_deref().filter(|_| keeper.kind == "attribute").unwrap_or_default();
    let is_here = |n: &Node<'t>| !class.is_empty() && source.field(*n, "name") == class;
    if !source.all("class_definition").iter().any(is_here) {
        return Vec::new();
    }
    let values = |call: Node<'t>| part(call, "arguments").map(children).unwrap_or_default();
    let assignments = source.all("assignment").iter().filter(|a| is_around_the_last(source, **a, class));
    let around =
        assignments.map(|a| Add { values: part(*a, "right").map(values).unwrap_or_default(), ..Add::of(*a) });
    let makes = source.all("call").iter().filter(|c| called(source, **c) == class);
    let handed = makes.filter_map(|c| Some(Add { values: values(*c), ..Add::of(call_of(*c)?) }));
    let all = around.chain(handed.filter(|a| hands_on_made(source, a.node, keeper)));
    all.filter(|a| a.evidence(source, keeper) > 2).collect()
}

/// Whether an object of the keeper's class is made as an argument of a call that keeps it, and not of a method of the keeper itself.
pub(super) fn hands_on_made(source: &Source<'_>, call: Node<'_>, keeper: &Keeper) -> bool {
    let arguments = part(call, "arguments").filter(|_| call.kind() == "call").map(children);
    let makes = |a: &Node<'_>| a.kind() == "call" && Some(called(source, *a)) == keeper.class.as_deref();
    let object = part(call, "function").and_then(|f| part(f, "object"));
    let is_own = object.is_some_and(|o| source.field(o, "attribute") == keeper.variable);
    !is_own && registers(called(source, call)) && arguments.is_some_and(|all| all.iter().any(makes))
}

/// The call that something is an argument of.
fn call_of(argument: Node<'_>) -> Option<Node<'_>> {
    let parent = argument.parent()?;
    let parent = if parent.kind() == "keyword_argument" { parent.parent()? } else { parent };
    parent.parent().filter(|call| parent.kind() == "argument_list" && call.kind() == "call")
}

/// Whether a function of this name keeps what it is given.
fn registers(name: &str) -> bool {
    METHODS.has(name)
        || OF_STACKS.contains(&name)
        || name.starts_with("register")
        || ["hook", "callback"].iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::super::keeper::Keeper;
    use super::super::tests::{attribute, global, is, none};

    fn given(kind: &str, variable: &str) -> Keeper {
        Keeper {
            kind: kind.into(),
            function: Some("work".into()),
            first_line: Some(1),
            allocated: vec![3],
            ..global(variable, "Tensor")
        }
    }

    #[test]
    fn a_thread_or_a_task_keeps_what_its_function_is_given() {
        let source =
            "def work(x):\n    never.wait()\nout = net(1)\nThread(target=work, args=(out,)).start()\n";
        let remedy = is(source, &given("local", "x"), 4, "Thread(target=work, args=(out,)).start()");
        assert!(remedy.starts_with("a thread or task keeps"), "{remedy}");
        none(source, &given("local", "other"));
        none(&source.replace("target=work", "target=rest"), &given("local", "x"));
        none(&source.replace("(out,)", "(queue,)"), &given("local", "x"));
        let task =
            "async def work(x):\n    await never.wait()\nout = net(1)\nasyncio.create_task(work(out))\n";
        is(task, &given("generator", "x"), 4, "asyncio.create_task(work(out))");
        none(&task.replace("asyncio.create_task(work(out))", "work(out)"), &given("generator", "x"));
    }

    #[test]
    fn a_pool_keeps_what_waits_for_it() {
        let source = "pool = ThreadPoolExecutor(1)\nout = net(1)\npool.submit(write, out)\n";
        is(source, &global("pool", "ThreadPoolExecutor"), 3, "pool.submit(write, out)");
        none(source, &global("pool", "Client"));
        none(&source.replace("pool.submit", "other.submit"), &global("pool", "ThreadPoolExecutor"));
        let own = "class W:\n    def save(self, x):\n        self.pool.apply_async(write, (x,))\n";
        is(own, &attribute("W", "pool", "ThreadPool"), 3, "self.pool.apply_async(write, (x,))");
    }

    #[test]
    fn objects_that_are_made_around_the_last_or_handed_on() {
        let class = "class Wrap(Module):\n    def __init__(self, m): self.m, self.flat = m, zeros(9)\n";
        let kept =
            |lines: &[u32]| Keeper { allocated: lines.to_vec(), ..attribute("Wrap", "flat", "Tensor") };
        let source = format!("{class}for e in range(9):\n    net = Wrap(net)\n");
        is(&source, &kept(&[2, 4]), 4, "net = Wrap(net)");
        none(&source, &kept(&[2]));
        none(&source.replace("Wrap(net)", "Wrap(other)"), &kept(&[2, 4]));
        let source = format!("{class}for e in range(9):\n    P.register_parametrization(l, 'w', Wrap(1))\n");
        is(&source, &kept(&[2, 4]), 4, "P.register_parametrization(l, 'w', Wrap(1))");
        none(&source.replace("register_parametrization", "train"), &kept(&[2, 4]));
    }

    #[test]
    fn what_has_a_container_of_its_own_is_kept_by_its_registration() {
        let source = "def probe():\n    acts = {}\n    def save(m, a, o): acts.setdefault(m, o)\n    net.register_forward_hook(save)\n";
        let keeper = |each| Keeper {
            kind: "closure".into(),
            function: Some("probe.<locals>.save".into()),
            first_line: Some(3),
            each,
            ..global("acts", "dict")
        };
        let remedy = is(source, &keeper(true), 4, "net.register_forward_hook(save)");
        assert!(remedy.contains("remove()"), "{remedy}");
        is(source, &keeper(false), 3, "acts.setdefault(m, o)");
        none(&source.replace("net.register_forward_hook(save)", "net(save)"), &keeper(true));
        let class = "class Rec:\n    def __init__(self): self.out = {}\n    def hook(self, m, a, o): self.out.setdefault(m, o)\n";
        let of_object = Keeper { each: true, ..attribute("Rec", "out", "dict") };
        is(
            &format!("{class}net.register_forward_hook(Rec().hook)\n"),
            &of_object,
            4,
            "net.register_forward_hook(Rec().hook)",
        );
        let named =
            format!("{class}def probe():\n    rec = Rec()\n    net.register_forward_hook(rec.hook)\n");
        is(&named, &of_object, 6, "net.register_forward_hook(rec.hook)");
        none(class, &of_object);
    }

    #[test]
    fn an_entry_that_is_made_is_no_call_that_keeps_its_object() {
        let source = "class Node:\n    def add(self, k):\n        return self.kids.setdefault(k, Node())\n";
        let text = "return self.kids.setdefault(k, Node())";
        let remedy = is(source, &attribute("Node", "kids", "dict"), 3, text);
        assert!(remedy.contains("pop()"), "{remedy}");
    }
}
