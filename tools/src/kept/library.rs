//! Calls that hand something to Python's own library or to PyTorch, which keeps it in an attribute of its own: `weakref.finalize(owner, f, tensor)`,
//! `log.info("batch %s", tensor)` where a handler keeps its records.

use super::adds::Add;
use super::keeper::Keeper;
use super::scope::{Source, children, outward, part};
use super::values::{called, may_hold};

/// Methods of a logger.
const LOGGER: [&str; 8] = ["debug", "info", "warning", "error", "critical", "exception", "fatal", "log"];

/// Attributes of modules, optimizers and tensors, and globals of PyTorch, that keep hooks, and the functions that put them there.
const HOOKS: [(&str, &[&str]); 15] = [
    ("_forward_hooks", &["register_forward_hook"]),
    ("_forward_pre_hooks", &["register_forward_pre_hook"]),
    ("_backward_hooks", &["register_full_backward_hook", "register_backward_hook"]),
    ("_backward_pre_hooks", &["register_full_backward_pre_hook"]),
    ("_post_accumulate_grad_hooks", &["register_post_accumulate_grad_hook"]),
    ("_state_dict_hooks", &["register_state_dict_post_hook", "_register_state_dict_hook"]),
    ("_state_dict_pre_hooks", &["register_state_dict_pre_hook"]),
    ("_optimizer_step_pre_hooks", &["register_step_pre_hook"]),
    ("_optimizer_step_post_hooks", &["register_step_post_hook"]),
    ("_optimizer_state_dict_post_hooks", &["register_state_dict_post_hook"]),
    ("_global_forward_hooks", &["register_module_forward_hook"]),
    ("_global_forward_pre_hooks", &["register_module_forward_pre_hook"]),
    ("_global_backward_hooks", &["register_module_full_backward_hook"]),
    ("_global_optimizer_pre_hooks", &["register_optimizer_step_pre_hook"]),
    ("_global_optimizer_post_hooks", &["register_optimizer_step_post_hook"]),
];

/// What PyTorch puts behind the name of an `autograd.Function` for the class of its contexts.
const OF_FUNCTION: &str = "Backward";

/// Whether it is an attribute of an autograd function's context.
pub(super) fn is_context(keeper: &Keeper) -> bool {
    let class = keeper.class.as_deref().and_then(|c| c.strip_suffix(OF_FUNCTION));
    keeper.kind == "attribute" && class.is_some_and(|c| !c.is_empty()) && keeper.type_name == "Tensor"
}

/// Assignments of a method of the `autograd.Function` to this attribute of its first parameter, the context.
fn of_context<'t>(source: &Source<'t>, keeper: &Keeper) -> Option<Vec<Add<'t>>> {
    let class = keeper.class.as_deref()?.strip_suffix(OF_FUNCTION)?;
    let is_it = |n: &&tree_sitter::Node<'t>| {
        let left = part(**n, "left").filter(|l| l.kind() == "attribute");
        let method = outward(**n).find(|n| n.kind() == "function_definition");
        let (Some(left), Some(method)) = (left, method) else { return false };
        let is_own = source.class_around(method).is_some_and(|c| source.field(c, "name") == class);
        is_own
            && source.field(left, "attribute") == keeper.variable
            && source.parameters(method).contains(&source.field(left, "object"))
    };
    let found = source.all("assignment").iter().filter(is_it);
    let add =
        |n: &tree_sitter::Node<'t>| Add { values: part(*n, "right").into_iter().collect(), ..Add::of(*n) };
    Some(found.map(add).collect::<Vec<_>>()).filter(|all| !all.is_empty())
}

/// Calls that put something into an attribute of a class of Python's library; `None` where the keeper is no such attribute.
pub(super) fn adds<'t>(source: &Source<'t>, keeper: &Keeper) -> Option<Vec<Add<'t>>> {
    if is_context(keeper)
        && let Some(found) = of_context(source, keeper)
    {
        return Some(found);
    }
    let (class, variable) = (keeper.class.as_deref().unwrap_or_default(), keeper.variable.as_str());
    // Which functions, and the arguments that they keep: from that place on.
    let (names, from): (&[&str], usize) = match (class, variable) {
        ("finalize", "_registry") => (&["finalize"], 2),
        ("atexit", "register") => (&["register"], 1),
        ("Timer", "args") => (&["Timer"], 2),
        ("WarningMessage", "message") => (&["warn", "warn_explicit"], 0),
        ("MemoryHandler" | "BufferingHandler", "buffer") => (&LOGGER, 1),
        ("scheduler", "_queue") => (&["enter", "enterabs"], 2),
        ("Tensor" | "Parameter", "_backward_hooks") => (&["register_hook"], 0),
        _ => (HOOKS.iter().find(|h| h.0 == variable)?.1, 0),
    };
    // Others have a method of that name, too.
    let is_it = |n: &tree_sitter::Node<'t>| {
        class != "atexit" || matches!(source.field(*n, "function"), "atexit.register" | "register")
    };
    let calls = source.all("call").iter().copied();
    let calls = calls.filter(|n| names.contains(&called(source, *n))).filter(is_it);
    let add = |node: tree_sitter::Node<'t>| {
        let arguments = children(part(node, "arguments")?);
        let values = arguments.get(from..)?.to_vec();
        let may_hold = values.iter().any(|v| may_hold(source, *v));
        Some(Add { node, values, may_hold, grows: true })
    };
    Some(calls.filter_map(add).collect())
}

/// What helps where Python's library keeps the arguments of a call until something happens.
pub(super) fn remedy(keeper: &Keeper) -> Option<&'static str> {
    match (keeper.class.as_deref()?, keeper.variable.as_str()) {
        ("finalize", "_registry") => Some(
            "a finalizer keeps its arguments for as long as its object lives: detach() it, or give it arguments that hold no GPU memory",
        ),
        ("atexit", "register") => Some(
            "atexit keeps a function and its arguments until the process ends: atexit.unregister() it, or give it arguments that hold no GPU memory",
        ),
        ("Timer", "args") => Some(
            "a timer keeps its arguments until it runs: cancel() it, or give it arguments that hold no GPU memory",
        ),
        ("scheduler", "_queue") => Some(
            "an event keeps its arguments until it runs: cancel() it, or give it arguments that hold no GPU memory",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::keeper::Keeper;
    use super::super::tests::{GRAPH, attribute, global, is, none};

    #[test]
    fn a_hook_that_an_optimizer_or_every_module_has() {
        let step = |call: &str| format!("for x in data:\n    mask = net(x)\n    {call}\n");
        let kept = |class: &str, variable: &str| Keeper {
            allocated: vec![2],
            ..attribute(class, variable, "OrderedDict")
        };
        for (class, variable, call) in [
            ("AdamW", "_optimizer_step_post_hooks", "opt.register_step_post_hook(partial(f, mask))"),
            ("Linear", "_backward_hooks", "net[0].register_full_backward_hook(partial(f, mask))"),
        ] {
            let remedy = is(&step(call), &kept(class, variable), 3, call);
            assert!(remedy.contains("remove()"), "{remedy}");
            none(&step("opt.register_step_pre_hook(partial(f, mask))"), &kept(class, variable));
        }
        let call = "register_module_forward_hook(partial(f, mask))";
        let every = Keeper { allocated: vec![2], ..global("_global_forward_hooks", "OrderedDict") };
        is(&step(call), &every, 3, call);
    }

    #[test]
    fn what_waits_has_a_remedy_of_its_own() {
        for (class, variable, call, helps) in [
            ("finalize", "_registry", "weakref.finalize(owner, close, x)", "detach()"),
            ("atexit", "register", "atexit.register(dump, x)", "atexit.unregister()"),
            ("Timer", "args", "Timer(9, work, (x,)).start()", "cancel()"),
            ("scheduler", "_queue", "s.enter(9, 1, work, (x,))", "cancel()"),
        ] {
            let source = format!("for i in range(9):\n    x = net(i)\n    {call}\n");
            let remedy = is(&source, &attribute(class, variable, "dict"), 3, call);
            assert!(remedy.contains(helps), "{remedy}");
        }
    }

    #[test]
    fn an_attribute_of_an_autograd_functions_context() {
        let source = "class Act(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        y = x.sigmoid()\n        ctx.y = y\n        return y\n";
        let remedy = is(source, &GRAPH(attribute("ActBackward", "y", "Tensor")), 5, "ctx.y = y");
        assert!(remedy.starts_with("save it with ctx.save_for_backward(y)"), "{remedy}");
        none(source, &Keeper { class: Some("OtherBackward".into()), ..attribute("", "y", "Tensor") });
    }
}
