//! The hooks on optimizers: Python that registers them, and what they call.

use super::frameless::{OWN_BEGIN, OWN_END};
use super::pickled::LEAVE_OUT;
use super::record::{begun, end};
use crate::probe;
use crate::python::interpreter::{MethodDef, Outcome, close_queue, none, run_source};
use crate::python::object::Object;
use std::ffi::{CStr, c_int};

/// No argument; one, any object.
const METH_NOARGS: c_int = 4;
const METH_O: c_int = 8;
static BEGIN: MethodDef = MethodDef::new(c"begin", begin, METH_O);
static BEGIN_WITH_CLOSURE: MethodDef = MethodDef::new(c"begin_with_closure", begin_with_closure, METH_O);
static END: MethodDef = MethodDef::new(c"end", end, METH_O);
static ENDING: MethodDef = MethodDef::new(c"ending", ending, METH_NOARGS);

/// `_r` is 1 once the hooks are on. `torch.compile` traces them as the functions that they are, and finds nothing to do: a builtin in
/// their place would break the graph and warn. Whoever calls them runs ours in their place, without a frame: a tracer or a
/// profiler of the job's does not see them. They go into PyTorch's tables themselves, under a number that no hook of the job's gets:
/// those are counted, and are in what `torch.save` writes. A table that somebody goes through must not change: where the job has hooks of
/// its own there, no optimizer may be at work, and without a GIL there must be no other thread. Ours come first: behind the last one of the
/// job's PyTorch does not look whether that has changed the table, as one does that is called once. Nothing is imported, for a job may have its own `__import__`; and what stays
/// needs no name of its namespace, which is emptied but for the builtins. A function that the job has put in the place of one of Python's own
/// is not called; where an audit hook refuses to show the frames, ours stay out.
const SOURCE: &CStr = cr#"
def _install(modules, begin, begin_with_closure, end, own_begin, own_end, leave_out, ending):
    optimizers = modules.get("torch.optim.optimizer")
    compiler = modules.get("torch.compiler")
    functools, system, threads = modules.get("_functools"), modules.get("sys"), modules.get("_thread")
    if optimizers is None or compiler is None or "register_optimizer_step_post_hook" not in optimizers.__dict__:
        return 0
    before = optimizers.__dict__.get("_global_optimizer_pre_hooks")
    after = optimizers.__dict__.get("_global_optimizer_post_hooks")
    is_gil_enabled = system.__dict__.get("_is_gil_enabled")
    if is_gil_enabled is not None and not is_gil_enabled() and threads._count():
        return 0
    if before or after:
        try:
            frames = system._current_frames()
        except Exception:
            return 2
        for frame in frames.values():
            while frame is not None:
                if frame.f_code.co_filename == optimizers.__file__:
                    return 0
                frame = frame.f_back
    is_compiling = compiler.is_compiling
    def strandline_begin(optimizer, args, kwargs):
        if not is_compiling():
            closure = args[1] if args[1:] else kwargs.get("closure")
            (begin if closure is None else begin_with_closure)(optimizer)
    def strandline_end(optimizer, args, kwargs):
        if not is_compiling():
            end(optimizer)
    if functools is not None and own_begin(strandline_begin) and own_end(strandline_end):
        strandline_begin, strandline_end = functools.partial(strandline_begin), functools.partial(strandline_end)
    if dict in type(before).__mro__ and dict in type(after).__mro__:
        before[-1], after[-1] = strandline_begin, strandline_end
        for table in before, after:
            if type(table) is not dict:
                table.move_to_end(-1, last=False)
                leave_out(table)
    else:
        optimizers.register_optimizer_step_pre_hook(strandline_begin)
        optimizers.register_optimizer_step_post_hook(strandline_end)
    atexit = modules.get("atexit")
    if atexit is not None and type(atexit.register) is type(ending):
        atexit.register(ending)
    return 1
_r = _install(_modules, _begin, _begin_with_closure, _end, _own_begin, _own_end, _leave_out, _ending)
"#;
/// Installs the hooks. With the GIL held, and no exception set.
#[cold]
pub(super) fn run() -> Outcome {
    let given = [
        (c"_begin", &BEGIN),
        (c"_begin_with_closure", &BEGIN_WITH_CLOSURE),
        (c"_end", &END),
        (c"_own_begin", &OWN_BEGIN),
        (c"_own_end", &OWN_END),
        (c"_leave_out", &LEAVE_OUT),
        (c"_ending", &ENDING),
    ];
    run_source(SOURCE, &given)
}
/// An optimizer's step begins that is called after the backward.
extern "C" fn begin(_: Object, optimizer: Object) -> Object {
    begun(optimizer, 0)
}

/// An optimizer's step begins that calls a closure with forward and backward in it.
extern "C" fn begin_with_closure(_: Object, optimizer: Object) -> Object {
    begun(optimizer, 1)
}

/// The interpreter begins to end.
extern "C" fn ending(_: Object, _: Object) -> Object {
    probe::ending::at_exit();
    close_queue();
    none()
}
