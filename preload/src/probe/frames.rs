//! Local variables of running frames, of every thread: the collector does not see those (3.11 and newer).

use super::objects::{Python, TYPE};
use crate::platform::memory;
use crate::platform::memory::read;
use crate::platform::real;

/// Functions that tell the threads, and where frames lie. None of it makes or counts anything.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frames {
    head: extern "C" fn(u64) -> u64,
    next: extern "C" fn(u64) -> u64,
    /// Thread state: where the chain begins; 0: in the state itself.
    cframe: u64,
    current: u64,
    code: u64,
    previous: u64,
    owner: Option<u64>,
    globals: u64,
    /// A generator: its frame.
    generator: u64,
}

/// A variable of a frame, which has a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variable {
    /// Its value; that in its cell, where it is in one.
    pub(super) value: u64,
    /// The code of its function.
    pub(super) code: u64,
    /// Which of the code's variables it is.
    at: u64,
}

impl Variable {
    /// Which of the code's variables it is.
    pub(super) fn at(self) -> u64 {
        self.at
    }
}

/// A frame's variables begin here.
const LOCALS: u64 = 72;
/// Words of a frame before them.
const HEAD: usize = LOCALS as usize / 8;
/// Longest chain that is followed.
const DEEPEST: usize = 4096;
/// Frames of the interpreter itself have no code.
const OWNED_BY_INTERPRETER: u8 = 3;

impl Frames {
    /// For a version; `None` where its frames are not known, or are the collector's own objects (up to 3.10).
    pub(super) fn find(minor: u32) -> Option<Frames> {
        // SAFETY: both functions have had these types since 3.0.
        let (head, next) = unsafe {
            (real::of_python(c"PyInterpreterState_ThreadHead")?, real::of_python(c"PyThreadState_Next")?)
        };
        let common = Frames {
            head,
            next,
            cframe: 56,
            current: 0,
            code: 0,
            previous: 8,
            owner: Some(70),
            globals: 24,
            generator: 72,
        };
        match minor {
            11 => Some(Frames {
                current: 8,
                code: 32,
                previous: 48,
                owner: None,
                globals: 8,
                generator: 80,
                ..common
            }),
            12 => Some(common),
            13 => Some(Frames { cframe: 0, current: 72, ..common }),
            _ => None,
        }
    }

    /// Hands out every frame that runs, of every thread.
    ///
    /// # Safety
    /// With the GIL held, of this interpreter, whose frames' layout has been proved.
    unsafe fn running(&self, code_type: u64, interpreter: u64, each: &mut dyn FnMut(u64)) {
        let (mut thread, mut known) = ((self.head)(interpreter), 0);
        // SAFETY: the states of threads are whole with the GIL held; what they point to is read carefully.
        unsafe {
            while thread != 0 {
                let base = if self.cframe != 0 { read(thread + self.cframe) } else { thread };
                // Up to 3.12 it lies on the thread's own stack, which is gone where C code has ended the thread in a call of Python's.
                let current = if base != 0 { memory::at::<1>(base + self.current) } else { None };
                let mut frame = current.map_or(0, |[frame]| frame);
                for _ in 0..DEEPEST {
                    // Another thread may have that stack by now: what lies there is a frame only where it has code.
                    let Some(words) = memory::at::<HEAD>(frame) else { break };
                    let word = |at: u64| words.get(at as usize / 8).copied().unwrap_or(0);
                    let is_owned = |at: u64| (word(at) >> (at % 8 * 8)) as u8 >= OWNED_BY_INTERPRETER;
                    if !self.owner.is_some_and(is_owned) {
                        let code = word(self.code);
                        // Where a function calls itself its code comes again and again.
                        if code != known && memory::at::<1>(code.wrapping_add(TYPE)) != Some([code_type]) {
                            break;
                        }
                        known = code;
                        each(frame);
                    }
                    frame = word(self.previous);
                }
                thread = (self.next)(thread);
            }
        }
    }

    /// Hands out every variable of the frames that run.
    ///
    /// # Safety
    /// As [`Frames::running`].
    pub(super) unsafe fn locals(&self, python: &Python, interpreter: u64, each: &mut dyn FnMut(Variable)) {
        // SAFETY: the caller's promise; a frame that is handed out is whole.
        unsafe {
            self.running(python.code_type, interpreter, &mut |frame| self.variables(python, frame, each))
        }
    }

    /// The contexts of `contextvars` that threads are in, which are objects of this type.
    ///
    /// # Safety
    /// As [`Frames::running`].
    pub(super) unsafe fn contexts(&self, interpreter: u64, kind: u64) -> Vec<u64> {
        /// Words of a thread's state: it has its context among the first.
        const WORDS: usize = 48;
        let (mut all, mut thread) = (Vec::new(), (self.head)(interpreter));
        while thread != 0 && kind != 0 {
            let words = memory::range(thread, WORDS);
            let is_context = |w: &u64| memory::is_address(*w) && memory::at::<1>(w + TYPE) == Some([kind]);
            all.extend(words.into_iter().filter(is_context));
            thread = (self.next)(thread);
        }
        all
    }

    /// The dictionaries of globals of the frames that run, each once.
    ///
    /// # Safety
    /// As [`Frames::running`].
    pub(super) unsafe fn globals(&self, python: &Python, interpreter: u64) -> Vec<u64> {
        let mut all = Vec::new();
        // SAFETY: the caller's promise; a frame has its globals.
        unsafe {
            self.running(python.code_type, interpreter, &mut |frame| {
                let globals = read(frame + self.globals);
                if globals != 0 && !all.contains(&globals) {
                    all.push(globals);
                }
            });
        }
        all
    }

    /// Hands out the variables of a frame that have a value.
    ///
    /// # Safety
    /// The frame is whole; with the GIL held.
    unsafe fn variables(&self, python: &Python, frame: u64, each: &mut dyn FnMut(Variable)) {
        // SAFETY: a frame holds its code, and has as many variables as that says; each is null or an object that is alive.
        unsafe {
            let code = read(frame + self.code);
            for at in 0..python.variables(code) {
                let value = read(frame + LOCALS + 8 * at);
                if value == 0 {
                    continue;
                }
                let value = if python.is_cell(value) { python.in_cell(value) } else { Some(value) };
                value.into_iter().for_each(|value| each(Variable { value, code, at }));
            }
        }
    }

    /// The variable whose value `is` the one, in a frame that is an object (`is_frame`), or in that of a generator; `None` where there is none, as in a
    /// generator that has ended, whose frame still has the addresses of what its variables were.
    ///
    /// # Safety
    /// `holder` is alive, and a frame or a generator; with the GIL held.
    pub(super) unsafe fn variable_in(
        &self,
        python: &Python,
        holder: u64,
        is_frame: bool,
        is: impl Fn(u64) -> bool,
    ) -> Option<Variable> {
        const FRAME: u64 = 24;
        // `gi_frame_state`, five bytes before the frame: more than this one says that it has ended (3.11 to 3.13).
        const EXECUTING: i8 = 0;
        let mut found = None;
        // SAFETY: the caller's promise; its frame lies in it, or is pointed to, and has code that is checked to be such. Until a generator has
        // ended, and in a frame that is an object at any time, a variable is null or has an object that is alive.
        unsafe {
            if !is_frame && (read(holder + self.generator - 8) >> 24) as i8 > EXECUTING {
                return None;
            }
            let frame = if is_frame { read(holder + FRAME) } else { holder + self.generator };
            let [code] = memory::at::<1>(frame + self.code)?;
            if !memory::is_address(code) || memory::at::<1>(code + TYPE) != Some([python.code_type]) {
                return None;
            }
            self.variables(python, frame, &mut |v| {
                if is(v.value) {
                    found = Some(v);
                }
            });
        }
        found
    }
}
