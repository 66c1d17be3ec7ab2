//! Local variables of running frames, of every thread: the collector does not see those, as up to 3.10 frames are objects that it tracks only
//! once their function has ended.

use super::objects::{Python, TYPE};
use crate::platform::memory;
use crate::platform::memory::read;
use crate::platform::real;
use crate::stacks::{RunningFrame, frame_at, frames_of};

/// Functions that tell the threads, and what of frames nobody else reads. None of it makes or counts anything.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frames {
    head: extern "C" fn(u64) -> u64,
    next: extern "C" fn(u64) -> u64,
    /// A frame: the globals of its function.
    globals: u64,
    /// A generator: its frame; up to 3.10 a pointer to it.
    generator: u64,
    /// Frames are objects themselves, whose variables are null once they have ended: where one says whether it is a generator's (up to 3.10); 0: they
    /// are not.
    of_generator: u64,
    /// What a generator's state is while it runs; more than that: it has ended.
    executing: i8,
    /// Whether a variable's word has a tag in its lowest two bits (3.14 and newer).
    tagged: bool,
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

impl Frames {
    /// For a version; `None` where its frames are not known.
    pub(super) fn find(minor: u32) -> Option<Frames> {
        // SAFETY: both functions have had these types since 3.0.
        let (head, next) = unsafe {
            (real::of_python(c"PyInterpreterState_ThreadHead")?, real::of_python(c"PyThreadState_Next")?)
        };
        let (globals, generator) = match minor {
            ..=8 => return None,
            9 | 10 => (48, 16),
            11 => (8, 80),
            12..=15 => (24, 72),
            _ => return None,
        };
        let executing = if minor >= 15 { 4 } else { 0 };
        let of_generator = match minor {
            9 => 96,
            10 => 88,
            _ => 0,
        };
        Some(Frames { head, next, globals, generator, of_generator, executing, tagged: minor >= 14 })
    }

    /// The states of all threads.
    fn threads(&self, interpreter: u64) -> impl Iterator<Item = u64> {
        let (next, is_one) = (self.next, |thread: &u64| *thread != 0);
        let first = Some((self.head)(interpreter)).filter(is_one);
        core::iter::successors(first, move |thread| Some(next(*thread)).filter(is_one))
    }

    /// Hands out every frame that runs, of every thread.
    ///
    /// # Safety
    /// With the GIL held, of this interpreter, whose frames' layout has been proved.
    unsafe fn running(&self, interpreter: u64, each: &mut dyn FnMut(RunningFrame)) {
        self.threads(interpreter).for_each(|thread| frames_of(thread, each));
    }

    /// Hands out every variable of the frames that run.
    ///
    /// # Safety
    /// As [`Frames::running`].
    pub(super) unsafe fn locals(&self, python: &Python, interpreter: u64, each: &mut dyn FnMut(Variable)) {
        // SAFETY: the caller's promise; a frame that is handed out is whole.
        unsafe { self.running(interpreter, &mut |frame| self.variables(python, frame, each)) }
    }

    /// The contexts of `contextvars` that threads are in, which are objects of this type.
    ///
    /// # Safety
    /// As [`Frames::running`].
    pub(super) unsafe fn contexts(&self, interpreter: u64, kind: u64) -> Vec<u64> {
        /// Words of a thread's state: it has its context among the first.
        const WORDS: usize = 48;
        let is_context = |w: &u64| memory::is_address(*w) && memory::at::<1>(w + TYPE) == Some([kind]);
        let threads = self.threads(interpreter).take_while(|_| kind != 0);
        threads.flat_map(|thread| memory::range(thread, WORDS)).filter(is_context).collect()
    }

    /// The dictionaries of globals of the frames that run, each once.
    ///
    /// # Safety
    /// As [`Frames::running`].
    pub(super) unsafe fn globals(&self, interpreter: u64) -> Vec<u64> {
        let mut all = Vec::new();
        // SAFETY: the caller's promise; a frame has its globals.
        unsafe {
            self.running(interpreter, &mut |frame| {
                let globals = read(frame.at + self.globals);
                if globals != 0 && !all.contains(&globals) {
                    all.push(globals);
                }
            });
        }
        all
    }

    /// The object that a variable's word refers to; `None` where it has none: null, and what the interpreter keeps there itself (a number, an error).
    fn untagged(&self, word: u64) -> Option<u64> {
        /// The object is counted elsewhere.
        const DEFERRED: u64 = 1;
        /// No object.
        const OTHER: u64 = 2;
        let object = match self.tagged {
            true if word & OTHER != 0 => 0,
            true => word & !DEFERRED,
            false => word,
        };
        Some(object).filter(|o| *o != 0)
    }

    /// Hands out the variables of a frame that have a value.
    ///
    /// # Safety
    /// The frame is whole; with the GIL held.
    unsafe fn variables(&self, python: &Python, frame: RunningFrame, each: &mut dyn FnMut(Variable)) {
        let code = frame.code;
        // SAFETY: a frame holds its code, and has as many variables as that says; each is null or an object that is alive.
        unsafe {
            for at in 0..python.variables(code) {
                let Some(value) = self.untagged(read(frame.locals + 8 * at)) else { continue };
                let value = if python.is_cell(value) { python.in_cell(value) } else { Some(value) };
                value.into_iter().for_each(|value| each(Variable { value, code, at }));
            }
        }
    }

    /// Whether a frame that is an object is that of a generator, which keeps it (up to 3.10).
    ///
    /// # Safety
    /// `frame` is a frame that is alive.
    pub(super) unsafe fn is_of_generator(&self, frame: u64) -> bool {
        // SAFETY: the caller's promise; such a frame has that word.
        self.of_generator != 0 && unsafe { read(frame + self.of_generator) } != 0
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
        let mut found = None;
        // SAFETY: the caller's promise; its frame lies in it, or is pointed to, and has code that is checked to be such. Until a generator has
        // ended, and in a frame that is an object at any time, a variable is null or has an object that is alive.
        unsafe {
            // `gi_frame_state`, five bytes before the frame.
            let has_ended = || (read(holder + self.generator - 8) >> 24) as i8 > self.executing;
            let frame = match (is_frame, self.of_generator != 0) {
                (true, true) => holder,
                (true, false) => read(holder + FRAME),
                (false, true) => read(holder + self.generator),
                (false, false) if has_ended() => return None,
                (false, false) => holder + self.generator,
            };
            self.variables(python, frame_at(frame)?, &mut |v| {
                if is(v.value) {
                    found = Some(v);
                }
            });
        }
        found
    }
}
