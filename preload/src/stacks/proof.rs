//! The proof at start: what we read of frames is held against what the running interpreter says of the same frames.
//!
//! A few lines of Python make a stack with everything that is peculiar (recursion, a generator, a coroutine, a call
//! through C, a lambda, a class body) and call us at its end, with the GIL held. Every frame's code object, file, name,
//! line table and line must be the interpreter's own, down to the first of these lines. Until then no stack is read;
//! where it does not hold, none ever is.

use super::memory::{At, Memory};
use super::object;
use super::object::Code;
use super::offsets::{ASCII_STATE, KIND_SHIFTS, Offsets, STR_STATE, TP_DEALLOC};
use super::python::{self, Interpreter};
use crate::platform::memory::Pipe;
use crate::python::interpreter::{MethodDef, Outcome, gil_is_held, run_source};
use crate::python::object::c_api;
use crate::recorder::stack_memory::{Frame, MAX_FRAMES};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Mutex;
use strandline_core::event::CodeDef;
use strandline_core::format::python::line;

type Object = *mut c_void;

/// Frames of every kind, deep enough. What `deep` does lies on a line each, so that an instruction that is taken for one a little before it
/// or behind it has another line.
const SOURCE: &CStr = cr#"
def _prove(look):
    def deep(n):
        return (
            deep(
                n
                - 1
            )
            if n
            else look()
        )
    def generated():
        yield deep(3)
    async def awaited():
        return generated().__next__()
    def driven(_):
        try:
            awaited().send(None)
        except StopIteration as end:
            return end.value
    def seen():
        return list(map(lambda n: driven(n), [0]))
    try:
        seen()
    finally:
        # It refers to itself, and a class would: neither is left for Python's collector.
        deep = None
    return 1
_r = _prove(_look)
"#;
/// Frames that these lines make, at least.
const FRAMES: usize = 10;
/// `METH_NOARGS`.
const NO_ARGUMENTS: c_int = 4;
/// `Py_tp_dealloc`.
const SLOT_DEALLOC: c_int = 52;

static LOOK: MethodDef = MethodDef::new(c"look", look, NO_ARGUMENTS);

/// What is on trial, and what came of it.
struct Trial {
    interpreter: Interpreter,
    code_type: u64,
    verdict: Option<Result<Interpreter, String>>,
}
static TRIAL: Mutex<Option<Trial>> = Mutex::new(None);

fn trial() -> std::sync::MutexGuard<'static, Option<Trial>> {
    TRIAL.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// How a trial ended.
pub(super) enum Verdict {
    /// What we read is right, with this layout.
    Proved(Interpreter),
    /// It is not: what differs.
    Disproved(String),
    /// It could not be held: no GIL here, or an exception is on its way.
    NotNow,
    /// A script's own exception came in between, and is set.
    HandOn,
}

/// Holds the trial, where this thread has the GIL.
#[cold]
pub(super) fn attempt(interpreter: Interpreter, code_type: u64) -> Verdict {
    if !gil_is_held() {
        return Verdict::NotNow;
    }
    *trial() = Some(Trial { interpreter, code_type, verdict: None });
    let outcome = run_source(SOURCE, &[(c"_look", &LOOK)]);
    let verdict = trial().take().and_then(|t| t.verdict);
    match (verdict, outcome) {
        (_, Outcome::HandOn) => Verdict::HandOn,
        (Some(Ok(proved)), _) => Verdict::Proved(proved),
        (Some(Err(what)), _) => Verdict::Disproved(what),
        (None, Outcome::NotYet) => Verdict::NotNow,
        (None, _) => Verdict::Disproved("nothing could be compared".into()),
    }
}

/// Called from the depth of the stack that the source makes.
extern "C" fn look(_: Object, _: Object) -> Object {
    let on_trial = trial().as_ref().map(|t| (t.interpreter, t.code_type));
    if let Some((interpreter, code_type)) = on_trial {
        let verdict = match Api::look_up() {
            Some(api) => api.compare(&interpreter, code_type),
            None => Err("functions of its C API are missing".into()),
        };
        if let Some(t) = trial().as_mut() {
            t.verdict = Some(verdict);
        }
    }
    crate::python::interpreter::none()
}

/// What we read of a code object, as it will stand in the recording.
///
/// # Safety
/// As [`object::read`].
unsafe fn described(o: &Offsets, code: Code) -> CodeDef {
    // SAFETY: the caller's promise.
    let said = unsafe { object::read(o, code) };
    let text = |t: &object::Text| t.utf8(&mut vec![0; t.bound()]).to_string();
    CodeDef {
        file: text(&said.file),
        function: text(&said.function),
        first_line: said.first_line,
        line_table: said.line_table().to_vec(),
        python_minor: o.minor as u8,
        ..CodeDef::default()
    }
}

c_api! {
    /// What the interpreter describes its frames with.
    struct Api {
        frame: c"PyEval_GetFrame" = extern "C" fn() -> Object,
        back: c"PyFrame_GetBack" = extern "C" fn(Object) -> Object,
        code: c"PyFrame_GetCode" = extern "C" fn(Object) -> Object,
        line: c"PyFrame_GetLineNumber" = extern "C" fn(Object) -> c_int,
        attribute: c"PyObject_GetAttrString" = extern "C" fn(Object, *const c_char) -> Object,
        as_long: c"PyLong_AsLong" = extern "C" fn(Object) -> i64,
        utf8: c"PyUnicode_AsUTF8" = extern "C" fn(Object) -> *const c_char,
        bytes: c"PyBytes_AsString" = extern "C" fn(Object) -> *const u8,
        bytes_len: c"PyBytes_Size" = extern "C" fn(Object) -> isize,
        slot: c"PyType_GetSlot" = extern "C" fn(Object, c_int) -> Object,
        clear: c"PyErr_Clear" = extern "C" fn(),
        incref: c"Py_IncRef" = extern "C" fn(Object),
        decref: c"Py_DecRef" = extern "C" fn(Object),
    }
}

impl Api {
    /// The interpreter with its layout as it was found to be.
    fn compare(&self, i: &Interpreter, code_type: u64) -> Result<Interpreter, String> {
        let memory = Pipe::new().ok_or("the process has too many open files")?;
        let mut i = *i;
        i.offsets.kind_shift = self.kind_shift(&memory)?;
        let o = &i.offsets;
        // Up to 3.9 static types have no slots to ask for.
        if o.minor >= 10 {
            let said = (self.slot)(code_type as Object, SLOT_DEALLOC) as u64;
            if At::new(code_type).and_then(|t| memory.read::<u64>(t, TP_DEALLOC)) != Some(said) {
                return Err("the type of code objects".into());
            }
        }
        let mut ours = Box::new([Frame::default(); MAX_FRAMES]);
        let walked = python::frames::<_, true>(o, &memory, (i.thread_state)(), &mut ours);
        let (depth, _) = walked.ok_or("the chain of frames")?;
        let mut theirs = (self.frame)();
        (self.incref)(theirs);
        let mut n = 0;
        while !theirs.is_null() {
            let same = match ours.get(n).filter(|_| n < depth) {
                Some(&f) => self
                    .compare_frame(o, &memory, theirs, (f, code_type))
                    .map_err(|what| format!("{what} of frame {n}")),
                None if n < depth => Ok(()),
                None => Err(format!("it has more frames than the {depth} that were found")),
            };
            // Frames below ours are the job's: from 3.11 on they are no objects until somebody asks for them, and before that the line of one
            // that was traced may be an old one. What is known of a layout does not depend on where a job was interrupted.
            n += 1;
            if same.is_ok() && n >= FRAMES && self.is_module(theirs) {
                (self.decref)(theirs);
                return Ok(i);
            }
            let next = (self.back)(theirs);
            (self.decref)(theirs);
            if let Err(what) = same {
                (self.decref)(next);
                return Err(what);
            }
            theirs = next;
        }
        Err(format!("it has {n} frames, {depth} were found"))
    }

    /// Whether a frame is the first of a source.
    fn is_module(&self, frame: Object) -> bool {
        let code = (self.code)(frame);
        let name = (self.attribute)(code, c"co_name".as_ptr());
        let text = if name.is_null() { core::ptr::null() } else { (self.utf8)(name) };
        if text.is_null() {
            (self.clear)();
        }
        // SAFETY: the text lives as long as its object, of which we have a reference.
        let is = !text.is_null() && unsafe { CStr::from_ptr(text) } == c"<module>";
        (self.decref)(name);
        (self.decref)(code);
        is
    }

    /// Where the kind of strings lies, by the name of a function of ours: ASCII, as we know.
    fn kind_shift(&self, memory: &Pipe) -> Result<u32, String> {
        let frame = (self.frame)();
        if frame.is_null() {
            return Err("the frame".into());
        }
        let code = (self.code)(frame);
        let name = (self.attribute)(code, c"co_name".as_ptr());
        if name.is_null() {
            (self.clear)();
        }
        let state = At::new(name as u64).and_then(|n| memory.read::<u32>(n, STR_STATE)).unwrap_or(0);
        (self.decref)(name);
        (self.decref)(code);
        let fits = |shift: &u32| state >> shift & 0x1f == ASCII_STATE;
        KIND_SHIFTS.into_iter().find(fits).ok_or_else(|| "its strings".into())
    }

    /// `ours`: the frame as we read it, and the type of code objects.
    fn compare_frame(
        &self,
        o: &Offsets,
        memory: &Pipe,
        frame: Object,
        (ours, code_type): (Frame, u64),
    ) -> Result<(), String> {
        let code = (self.code)(frame);
        let checked = Code::checked(memory, code as u64, code_type).ok_or("the type of its code");
        let result = checked.map_err(String::from).and_then(|checked| {
            self.compare_code(o, memory, (code, checked), ours)?;
            // SAFETY: the frame keeps its code alive; where it keeps what was just compared.
            let def = unsafe { described(o, checked) };
            let said = (self.line)(frame);
            let read = line(&def, python::instruction_offset(o, ours));
            if i64::from(read) == i64::from(said.max(0)) { Ok(()) } else { Err("the line".into()) }
        });
        (self.decref)(code);
        result
    }

    fn compare_code(
        &self,
        o: &Offsets,
        memory: &Pipe,
        (code, checked): (Object, Code),
        ours: Frame,
    ) -> Result<(), String> {
        if code as u64 != ours.code {
            return Err("the code object".into());
        }
        let name = if o.minor >= 11 { c"co_qualname" } else { c"co_name" };
        let table = if o.minor >= 10 { c"co_linetable" } else { c"co_lnotab" };
        if python::has_begun(o, memory, ours) != Some(true) {
            return Err("where it begins".into());
        }
        // The very objects: their addresses are compared before anything of them is read.
        let mut parts = Vec::with_capacity(3);
        for (attribute, at) in [(c"co_filename", o.file), (name, o.name), (table, o.line_table)] {
            let said = (self.attribute)(code, attribute.as_ptr());
            if said.is_null() {
                (self.clear)();
            }
            parts.push(said);
            if said.is_null() || memory.read::<u64>(checked.at(), at) != Some(said as u64) {
                parts.iter().for_each(|&p| (self.decref)(p));
                return Err(attribute.to_string_lossy().into_owned());
            }
        }
        let same = self.compare_words(o, memory, (code, checked), &parts);
        parts.iter().for_each(|&p| (self.decref)(p));
        same
    }

    /// The texts, the table and the first line, as they will stand in the recording.
    fn compare_words(
        &self,
        o: &Offsets,
        memory: &Pipe,
        (code, checked): (Object, Code),
        parts: &[Object],
    ) -> Result<(), String> {
        let &[file, name, table] = parts else { return Err("its parts".into()) };
        let first = (self.attribute)(code, c"co_firstlineno".as_ptr());
        let said = if first.is_null() { -1 } else { (self.as_long)(first) };
        (self.decref)(first);
        if memory.read::<u32>(checked.at(), o.first_line).map(i64::from) != Some(said) {
            return Err("co_firstlineno".into());
        }
        // SAFETY: the code object is alive, and the three that it owns lie where they are looked for.
        let def = unsafe { described(o, checked) };
        for (object, read) in [(file, &def.file), (name, &def.function)] {
            let utf8 = (self.utf8)(object);
            if utf8.is_null() {
                (self.clear)(); // half a surrogate pair has no UTF-8
                continue;
            }
            // SAFETY: the text lives as long as its object, of which `parts` has a reference.
            if unsafe { CStr::from_ptr(utf8) }.to_bytes() != read.as_bytes() {
                return Err("a text".into());
            }
        }
        let (data, len) = ((self.bytes)(table), (self.bytes_len)(table));
        // SAFETY: as above, for the bytes.
        let same = !data.is_null()
            && unsafe { core::slice::from_raw_parts(data, usize::try_from(len).unwrap_or(0)) }
                == def.line_table;
        if same { Ok(()) } else { Err("the line table".into()) }
    }
}
