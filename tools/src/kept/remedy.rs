//! What helps at a statement that keeps something.

use super::adds::{Add, POOLS};
use super::growing::{EPOCHS, LONGEST, OF_DICTS, OF_LISTS, filled, of_container, of_modules};
use super::hooks;
use super::instances;
use super::keeper::Keeper;
use super::later::{self, after, of_read, one};
use super::library;
use super::lists;
use super::needs::{As, When};
use super::otherwise;
use super::reads;
use super::removes;
use super::scope::{Source, children, part};
use super::stored::{exception, is_detached, is_number, is_view};
use super::values::called;
use super::ways;
use tree_sitter::Node;

/// The same where steps are all that is known, and in a server.
const ALWAYS: &str = "at regular intervals";

/// What helps at a statement; `None` where nothing that is known does.
pub(super) fn suggest<'t>(source: &Source<'t>, add: &Add<'t>, keeper: &Keeper) -> Option<String> {
    let text = in_epochs(source, add, keeper)?;
    let mut names = source.all("identifier").iter().map(|n| source.text(*n).to_lowercase());
    let has_epochs = keeper.trains && names.any(|name| name.contains("epoch"));
    Some(if has_epochs { text } else { text.replace(EPOCHS, ALWAYS) })
}

/// The same in the words of a training that has epochs.
fn in_epochs<'t>(source: &Source<'t>, add: &Add<'t>, keeper: &Keeper) -> Option<String> {
    let is_sum = matches!(add.node.kind(), "assignment" | "augmented_assignment" | "named_expression");
    let target = part(add.node, "left").filter(|_| is_sum).map(|t| source.text(t));
    of_call(source, add, keeper)
        .map(str::to_owned)
        .or_else(|| of_what_is_kept(source, add, keeper))
        .or_else(|| of_graph(source, add, keeper, is_sum, target))
        .or_else(|| of_value(source, add, keeper, target))
        // What it replaces is let go: nothing piles up in a container that does not grow.
        .or_else(|| if add.grows { of_growing(source, add, keeper, is_sum) } else { None })
}

/// For a call that keeps what it is given.
fn of_call<'t>(source: &Source<'t>, add: &Add<'t>, keeper: &Keeper) -> Option<&'static str> {
    let calls = |name: &str| add.node.kind() == "call" && called(source, add.node) == name;
    let wraps_the_last = |class: &String| hooks::is_around_the_last(source, add.node, class);
    if ways::has_handle(source, add.node) {
        Some("remove the hook when it is no longer needed: keep its handle, and call handle.remove()")
    } else if calls("add_param_group") {
        Some(
            "remove the parameter group that is no longer trained: del optimizer.param_groups[i], and pop() its parameters from optimizer.state",
        )
    } else if let Some(remedy) = library::remedy(keeper) {
        Some(remedy)
    } else if POOLS.contains(&keeper.type_name.as_str()) {
        Some(
            "a task that waits in the pool keeps its arguments: submit fewer at a time, or give it arguments that hold no GPU memory",
        )
    } else if hooks::begins(source, add.node) {
        Some(
            "a thread or task keeps its arguments until it ends: end it, or give it arguments that hold no GPU memory",
        )
    } else if keeper.class.as_ref().is_some_and(wraps_the_last) {
        Some(
            "each new object wraps the one before it: wrap the original object instead, or cut the chain where older objects are no longer needed",
        )
    } else if hooks::hands_on_made(source, add.node, keeper) {
        Some("each call keeps one more object: call it once, or remove what it added before")
    } else if instances::gives(source, add.node, keeper) {
        let is_queue = |class: &&str| class.ends_with("Queue");
        let queue = keeper.class.as_deref().filter(is_queue).and_then(of_container);
        queue.or(Some("empty it at the end of each epoch, as reset() does with a metric"))
    } else {
        None
    }
}

/// For a keeper, or a value, that keeps more than it seems to.
fn of_what_is_kept<'t>(source: &Source<'t>, add: &Add<'t>, keeper: &Keeper) -> Option<String> {
    let values = add.values.as_slice();
    if library::is_context(keeper) {
        let value = values.first().map_or("…", |v| source.text(*v));
        return Some(format!(
            "save it with ctx.save_for_backward({value}), which frees it after the backward: an attribute of ctx keeps an output in a reference cycle"
        ));
    }
    if keeper.type_name == "_lru_cache_wrapper" || otherwise::caches(source, add.node) {
        let is_limited = |text: &str| text.contains("maxsize=") && !text.contains("maxsize=None");
        return Some(match is_limited(source.text(add.statement())) {
            true => "its entries get larger: lower its maxsize, or do not cache tensors".into(),
            false => "give the cache a maxsize, or do not cache tensors".into(),
        });
    }
    let name = values.iter().find_map(|v| exception(source, *v))?;
    Some(format!(
        "store str({name}) instead of the exception: an exception keeps the frames of its traceback, and the tensors in their variables"
    ))
}

/// For values that keep the graph that made them.
fn of_graph<'t>(
    source: &Source<'t>,
    add: &Add<'t>,
    keeper: &Keeper,
    is_sum: bool,
    target: Option<&str>,
) -> Option<String> {
    let values = add.values.as_slice();
    let is_detached = !values.is_empty() && values.iter().all(|v| is_detached(source, *v, target));
    if !keeper.graph {
        return None;
    }
    if keeper.awaited && is_sum && !is_detached {
        let is_added =
            add.node.kind() == "augmented_assignment" || values.iter().any(|v| v.kind() == "binary_operator");
        let what = match is_added {
            true => "add the tensor without its graph: .detach()",
            false => "store it without its graph: .detach(), or make it under torch.no_grad()",
        };
        return Some(format!("unless a later backward pass has to go back through it, {what}"));
    }
    if values.iter().any(|v| source.text(*v).ends_with(".grad_fn")) {
        return Some(
            "keep only what you need from the node, such as its name(): a node keeps its whole graph".into(),
        );
    }
    if is_detached {
        return None;
    }
    let one = one(source, values);
    let read = if is_sum && keeper.rebound { None } else { reads::of(source, add, keeper) };
    if let Some(through) = read.as_ref().filter(|r| r.takes == As::Graphs) {
        return Some(after(source, add, through));
    }
    let sum = part(add.node, "left").filter(|_| is_sum);
    let needs_tensor = read.as_ref().is_some_and(|r| r.takes == As::Tensors)
        || sum.is_some_and(|s| reads::takes_tensor(source, s));
    Some(match is_number(source, values) {
        true if is_sum && needs_tensor => "add the tensor without its graph: .detach()".into(),
        true if is_sum => match one {
            Some(value) => format!("add {value}.item() instead of {value}"),
            None => "add a number, .item(), not a tensor with its graph".into(),
        },
        is_number if is_number && !needs_tensor => match one {
            Some(value) => format!("keep {value}.item(), a number, not {value} with its graph"),
            None => "keep the number, not the tensor with its graph: .item()".into(),
        },
        false if is_sum && keeper.rebound => {
            "cut the graph between steps: .detach() the tensors that go into the next step".into()
        }
        is_number => {
            let what = one.map_or_else(
                || "store it without its graph: .detach()".to_owned(),
                |value| format!("store {value}.detach(), without its graph"),
            );
            let many = match read {
                _ if is_number || !add.grows || is_sum => String::new(),
                Some(r) if r.when != When::Newest => {
                    let all = if later::is_one_of_several(source, keeper) { " all its tensors" } else { "" };
                    format!(", and{all} in host memory, .cpu(): {} needs them", r.place())
                }
                _ => ", and limit how many are kept".into(),
            };
            format!("{what}{many}")
        }
    })
}

/// For a value that has others behind it.
fn of_value<'t>(source: &Source<'t>, add: &Add<'t>, keeper: &Keeper, target: Option<&str>) -> Option<String> {
    if add.values.iter().any(|v| is_view(source, *v)) {
        return Some("a view keeps its whole base tensor: .clone() the part that is needed".into());
    }
    if keeper.kind == "attribute" && ways::wraps(source, add.node) {
        return Some("wrap the original function, not the one that already wraps it".into());
    }
    ways::links(source, add.node, keeper).then(|| {
        let link = target.filter(|t| t.len() <= LONGEST).unwrap_or("the link");
        format!("cut the chain where older objects are no longer needed: {link} = None")
    })
}

/// For a container that gets more and more entries, or a tensor that gets larger.
fn of_growing<'t>(source: &Source<'t>, add: &Add<'t>, keeper: &Keeper, is_sum: bool) -> Option<String> {
    let type_name = keeper.type_name.as_str();
    if let Some(of_modules) = of_modules(source, add, type_name) {
        return Some(of_modules);
    }
    if let Some(object) = by_name(source, add) {
        return Some(format!("delete what is no longer used: delattr({object}, name)"));
    }
    if is_sum && type_name == "Tensor" && add.values.iter().any(|v| joins(source, *v)) {
        return Some("keep only its last part, or start it again at the end of each epoch".into());
    }
    let filled = filled(source, add);
    let removes_some = || removes::container(source, add).and_then(|c| removes::statement(source, c));
    let is_container = removes::is_plain(type_name)
        || ways::is_namespace(type_name)
        || ways::container(source, type_name).is_some();
    let read = reads::of(source, add, keeper)
        .filter(|r| is_container && r.when != When::Newest && removes_some().is_none());
    match read {
        Some(read) if read.when == When::After || read.takes == As::Graphs => {
            Some(of_read(source, add, keeper, &read))
        }
        Some(read) => {
            let text = of_container_alone(source, add, keeper, filled)?;
            Some(later::once(source, add, keeper, &read, text))
        }
        None => of_container_alone(source, add, keeper, filled),
    }
}

/// For a container of which nobody reads all.
fn of_container_alone<'t>(
    source: &Source<'t>,
    add: &Add<'t>,
    keeper: &Keeper,
    filled: Option<&'static str>,
) -> Option<String> {
    let type_name = keeper.type_name.as_str();
    let base = || ways::container(source, type_name).or(filled.filter(|_| ways::is_namespace(type_name)));
    let of_type = of_container(type_name).or_else(|| of_container(base()?))?;
    let lists_in_it = || format!("clear() the lists in {} {EPOCHS}", keeper.variable);
    if of_type == OF_DICTS && matches!(filled, Some("list" | "deque")) {
        return Some(format!("{}, or pop() the keys that are no longer needed", lists_in_it()));
    }
    if of_type == OF_LISTS && lists::is_in_another(add.node) {
        return Some(lists_in_it());
    }
    let Some(container) = removes::container(source, add) else { return Some(of_type.to_owned()) };
    if let Some((line, text)) = removes::statement(source, container) {
        return Some(format!(
            "check that line {line}, {text}, which removes entries, runs often enough and removes enough"
        ));
    }
    let name = source.text(container);
    // By another name it is not given a new value.
    let is_its_own = name.rsplit('.').next() == Some(keeper.variable.as_str());
    let advice = match of_type {
        OF_LISTS if is_its_own && (filled == Some("list") || lists::is_extended(source, add.node)) => {
            let is_foreign = keeper.is_shared || removes::is_foreign(source, container);
            let used = match lists::used(source, container) {
                lists::Use::Plain if is_foreign => lists::Use::List,
                used => used,
            };
            lists::advice(name, used, lists::has_newest(source, container))
        }
        // What is made anew of a deque is a list again.
        OF_LISTS if is_its_own && add.node.kind() == "assignment" => {
            lists::advice(name, lists::Use::List, false)
        }
        OF_DICTS if filled == Some("dict") => format!(
            "pop() the keys of {name} that are no longer needed, or call {name}.clear() at the end of each epoch"
        ),
        other => other.to_owned(),
    };
    Some(removes::unless_limited(source, container, advice))
}

/// The object that a statement gives an attribute, a buffer or a module whose name may be another one each time.
fn by_name<'t>(source: &Source<'t>, add: &Add<'t>) -> Option<&'t str> {
    const OF_OBJECTS: [&str; 4] = ["register_buffer", "register_parameter", "add_module", "register_module"];
    let function = part(add.node, "function").filter(|_| add.node.kind() == "call")?;
    let object = match source.field(function, "attribute") {
        name if OF_OBJECTS.contains(&name) => part(function, "object"),
        _ if source.text(function) == "setattr" => children(part(add.node, "arguments")?).first().copied(),
        _ => None,
    };
    object.map(|o| source.text(o)).filter(|o| o.len() <= LONGEST)
}

/// Whether a value is tensors joined into one.
fn joins(source: &Source<'_>, value: Node<'_>) -> bool {
    const JOINS: [&str; 6] = ["cat", "concat", "concatenate", "stack", "hstack", "vstack"];
    value.kind() == "call" && JOINS.contains(&called(source, value))
}

#[cfg(test)]
mod tests {
    use super::super::keeper::Keeper;
    use super::super::tests::{GRAPH, attribute, global, is};

    /// What is said where this is stored in a list, after these lines.
    fn stored(before: &str, value: &str) -> String {
        let statement = format!("kept.append({value})");
        let line = before.lines().count() as u32 + 1;
        is(&format!("{before}{statement}\n"), &global("kept", "list"), line, &statement)
    }

    #[test]
    fn what_has_an_entry_for_each_row_is_no_number() {
        let remedy = |value: &str| {
            is(
                &format!("rows.append({value})\n"),
                &GRAPH(global("rows", "list")),
                1,
                &format!("rows.append({value})"),
            )
        };
        assert!(remedy("net(x).sum(-1)").contains("net(x).sum(-1).detach()"));
        assert!(remedy("net(x).sum()").contains("net(x).sum().item()"));
    }

    #[test]
    fn only_a_training_with_epochs_is_told_of_them() {
        let remedy = |range: &str, trains| {
            let source = format!("for {range}:\n    kept.append(net(x))\n");
            is(&source, &Keeper { trains, ..global("kept", "list") }, 2, "kept.append(net(x))")
        };
        let begins = |remedy: String, words: &str| assert!(remedy.starts_with(words), "{remedy}");
        begins(remedy("epoch in range(9)", true), "call kept.clear() at the end of each epoch, or limit");
        for (range, trains) in [("i in range(9)", true), ("epoch in range(9)", false)] {
            begins(remedy(range, trains), "call kept.clear() at regular intervals, or limit");
        }
    }

    #[test]
    fn what_a_variable_was_assigned_and_what_calls_return_count() {
        let cloned = stored("y = net(x)\nrow = y.detach()[0].unsqueeze(0)\n", "row");
        assert!(cloned.contains(".clone()"), "{cloned}");
        let error = stored("import sys\n", "(n, sys.exc_info())");
        assert!(error.starts_with("store str("), "{error}");
        let lists = "state = {'hist': []}\nstate['hist'] += [out]\n";
        let lists = is(lists, &global("state", "dict"), 2, "state['hist'] += [out]");
        assert!(lists.starts_with("clear() the lists"), "{lists}");
        let source = "class E:\n    def __init__(self): self.f = lru_cache(maxsize=None)(self._f)\n";
        let cache = attribute("E", "f", "_lru_cache_wrapper");
        let cache = is(source, &cache, 2, "self.f = lru_cache(maxsize=None)(self._f)");
        assert!(cache.contains("maxsize"), "{cache}");
    }

    #[test]
    fn a_part_of_a_tensor_is_cloned() {
        let uses = "out = net(x)\nout.square().mean().backward()\n";
        for value in [
            "out.detach()[-1]",
            "out[0]",
            "out[0].detach()",
            "out.detach()[2:5].view(-1)",
            "(i, out[:4])",
            "out.data[0] if full else None",
            "[o[:, -1] for o in outs]",
            "logits[:, -1]",
            "outs.logits[:, 0, :].detach()",
            "out.narrow(0, 1, 2)",
            "out.chunk(4)[0]",
            "torch.relu(y)[0]",
        ] {
            assert!(stored(uses, value).contains(".clone()"), "{value}");
        }
        let of_loop = "for i in range(9):\n    y = net(x).square()\n    kept.append(y.detach()[:, i])\n";
        let remedy = is(of_loop, &global("kept", "list"), 3, "kept.append(y.detach()[:, i])");
        assert!(remedy.contains(".clone()"), "{remedy}");
    }

    #[test]
    fn what_may_be_no_part_of_a_tensor_is_not_called_one() {
        let uses = "out = net(x)\nout.square().mean().backward()\npair = [out, out]\npair.mean()\n";
        for value in [
            "torch.zeros(256, key[0], device=\"cuda\")",
            "net(x[0])",
            "copy.deepcopy(pop[(g + 1) % 5])",
            // An entry of a list, of a dictionary, of what a model returns.
            "outs[0]",
            "pair[0]",
            "states[name]",
            "outs[-1].detach()",
            "cells[1:]",
            // These are copies.
            "out[mask]",
            "out[:, order]",
            "out[0].clone()",
            "out.detach()[-1].cpu()",
            // All of it is kept either way.
            "out.view(-1)",
            "out.detach().t()",
            "out[:]",
            "out[None]",
            "text.split(' ')[0]",
        ] {
            let statement = format!("kept.append({value})\n");
            let all = super::super::find::kept_at(&format!("{uses}{statement}"), &global("kept", "list"));
            let remedy = all.and_then(|s| s.remedy).unwrap_or_default();
            assert!(!remedy.contains(".clone()"), "{value}: {remedy}");
        }
        let source = "masks[key] = torch.zeros(256, key[0])\n";
        let remedy = is(source, &global("masks", "dict"), 1, "masks[key] = torch.zeros(256, key[0])");
        assert!(remedy.contains("pop()"), "{remedy}");
    }

    #[test]
    fn a_graph_is_cut_where_any_branch_or_term_has_one() {
        let cut = |value: &str| {
            let statement = format!("kept.append({value})");
            is(&statement, &GRAPH(global("kept", "list")), 1, &statement).contains(".detach()")
        };
        for value in ["x.detach() if fixed else x", "(x.detach(), y)", "x.detach() + y"] {
            assert!(cut(value), "{value}");
        }
        for value in
            ["x.detach()", "x.detach().float()[0]", "2 * x.detach()", "(3, x.data)[1]", "f(x.detach())"]
        {
            assert!(!cut(value), "{value}");
        }
        let sum = Keeper { rebound: true, ..GRAPH(attribute("A", "m", "Tensor")) };
        let of = |value: &str| format!("class A:\n    def f(self, v):\n        self.m = {value}\n");
        let text = "self.m = 0.9 * self.m + 0.1 * (v.detach() if fixed else v)";
        let remedy = is(&of(&text[9..]), &sum, 3, text);
        assert!(remedy.starts_with("cut the graph"), "{remedy}");
        let text = "self.m = 0.9 * self.m + 0.1 * v.detach()";
        assert!(!is(&of(&text[9..]), &sum, 3, text).contains(".detach()"));
    }

    #[test]
    fn of_an_exception_its_text_is_enough() {
        for (value, said) in
            [("e", true), ("(i, e)", true), ("str(e)", false), ("out", false), ("e.args[0].sum()", false)]
        {
            let statement = format!("errors.append({value})");
            let source = format!("try:\n    load(i)\nexcept ValueError as e:\n    {statement}\n");
            let found = super::super::find::kept_at(&source, &global("errors", "list"));
            let remedy = found.and_then(|f| f.remedy).unwrap_or_default();
            assert_eq!(
                remedy.starts_with("store str(e) instead of the exception"),
                said,
                "{value}: {remedy}"
            );
        }
    }

    #[test]
    fn every_container_has_what_helps_there() {
        let says = |source: &str, keeper: Keeper, line: u32, text: &str, said: &str| {
            let remedy = is(source, &keeper, line, text);
            assert!(remedy.contains(said), "{text}: {remedy}");
        };
        let local = "tls.trace.append(x)";
        says(local, global("tls", "_local"), 1, local, "clear()");
        let class = "class Registry(UserDict):\n    def claim(self, key, v):\n        self[key] = v\n";
        says(class, global("reg", "Registry"), 3, "self[key] = v", "pop() the key");
        let callback = "stack.callback(release, buf)";
        says(callback, global("stack", "ExitStack"), 1, callback, "close() it");
        let submits = "pool.submit(write, out)";
        says(submits, global("pool", "ThreadPoolExecutor"), 1, submits, "submit fewer at a time");
        let weak = "saved.setdefault(mod, []).append(out.detach())";
        says(weak, global("saved", "WeakKeyDictionary"), 1, weak, "as long as its key lives");
        let add = "self.adapters[name] = a";
        let source = format!("class Model:\n    def add(self, name, a):\n        {add}\n");
        says(
            &source,
            attribute("Model", "adapters", "ModuleDict"),
            3,
            add,
            "no longer used: del self.adapters[name]",
        );
        let append = "self.pool.append(new())";
        let source = format!("class Model:\n    def add(self):\n        {append}\n");
        says(&source, attribute("Model", "pool", "ModuleList"), 3, append, "del self.pool[i]");
        says(&source, attribute("Model", "pool", "ParameterList"), 3, append, "make a new nn.ParameterList");
        let set = "setattr(store, f'x{i}', make())";
        says(set, global("store", "SimpleNamespace"), 1, set, "delattr(store, name)");
        let buffer = "self.register_buffer(f'm{self.n}', x)";
        let source = format!("class M:\n    def f(self, x):\n        {buffer}\n");
        says(&source, attribute("M", "_buffers", "dict"), 3, buffer, "delattr(self, name)");
        let prompt = "self.prompts.append(p)";
        let source = format!(
            "class P:\n    def new(self, p):\n        {prompt}\nopt.add_param_group({{'params': [p.new()]}})\n"
        );
        let prompts = attribute("P", "prompts", "ParameterList");
        says(&source, prompts, 3, prompt, "of these, and del optimizer.param_groups[i]");
        let joined = "bank = torch.cat([bank, x])";
        says(joined, global("bank", "Tensor"), 1, joined, "keep only its last part");
        // What is replaced does not pile up.
        assert_eq!(is("nets[i] = new()", &global("nets", "list"), 1, "nets[i] = new()"), "");
        // Of a class that the source does not have nothing is known.
        assert_eq!(is("reg[key] = v", &global("reg", "Registry"), 1, "reg[key] = v"), "");
    }
}
