//! Native frames of the calling thread: return addresses, found by the compilers' own unwind tables.
//!
//! Hot: a frame costs a look-up in the thread's own table of rules, and two loads from its stack. Cold, once per place in the
//! code: `cfi` reads the rule from the library's `.eh_frame`, without heap, lock or call. Only the thread's own stack is
//! read, between its stack pointer and its end, so that a wrong rule makes a wrong frame and never a crash.

mod cfi;
pub(crate) mod modules;

use crate::platform::tls;
use crate::recorder::stack_memory::{Base, KnownPlace, NATIVE_FRAMES, PLACES, Rule, Rules, Saved};
use core::arch::asm;
use core::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

const PROBES: usize = 2;
/// A stack that reaches further is not this thread's own (a coroutine's): it is not read.
const DEEPEST: usize = 64 << 20;

/// The stack that a walk has found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Walk {
    /// Its frames.
    pub(super) depth: usize,
    /// Their hash; 0 for no frames.
    pub(super) hash: u64,
    /// The outermost frame was not reached.
    pub(super) truncated: bool,
}

/// `__libc_stack_end`, the main thread's first stack pointer.
static MAIN_END: AtomicUsize = AtomicUsize::new(0);

/// Native frames are recorded.
#[unsafe(link_section = ".data.strandline_hot")]
static ON: AtomicBool = AtomicBool::new(false);

/// Whether native frames are recorded.
#[inline(always)]
pub(super) fn is_on() -> bool {
    ON.load(Relaxed)
}

/// Lets walks begin. `false`: the C library cannot tell a hook what is loaded, and nothing is read then.
#[cold]
pub(crate) fn start() -> bool {
    if !modules::find_dl_find_object() {
        return false;
    }
    let end = crate::platform::real::python(c"__libc_stack_end").cast::<usize>();
    if !end.is_null() {
        // SAFETY: the C library's word of that name, set before any program code runs.
        MAIN_END.store(unsafe { *end }, Relaxed);
    }
    find_stack_words();
    modules::refresh();
    ON.store(true, Relaxed);
    true
}

/// The word `at` so many bytes behind the start of the calling thread's control block. The first one is the block's own address, in every
/// x86-64 ABI.
fn control_word(at: usize) -> usize {
    tls::word_of_descriptor(at) as usize
}

/// Where in the thread control block glibc notes a thread's stack: its lowest address, then its size. 0: not known.
static STACK_WORDS: AtomicUsize = AtomicUsize::new(0);

/// Finds out where glibc notes a thread's stack: on a thread that has one.
#[cold]
fn find_stack_words() {
    extern "C" fn look(_: *mut c_void) -> *mut c_void {
        // SAFETY: asks for this thread's own attributes, which are given back; all fields may be zero before.
        unsafe {
            let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
            if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) != 0 {
                return core::ptr::null_mut();
            }
            let (mut low, mut size) = (core::ptr::null_mut(), 0);
            libc::pthread_attr_getstack(&attributes, &mut low, &mut size);
            libc::pthread_attr_destroy(&mut attributes);
            let (low, control) = (low as usize, control_word(0));
            let top = low.wrapping_add(size);
            if low < control && control < top {
                // What is noted may begin with the guard page.
                let is_it = |at: &usize| {
                    let (from, bytes) = (control_word(*at), control_word(at + 8));
                    from != 0 && from <= low && low - from <= 1 << 20 && from.checked_add(bytes) == Some(top)
                };
                STACK_WORDS.store(tls::words_of_descriptor().find(is_it).unwrap_or(0), Relaxed);
            }
        }
        core::ptr::null_mut()
    }
    // SAFETY: the function has the required type and is waited for; it takes no lock of the loader's, which whoever arms may hold.
    unsafe {
        let mut thread: libc::pthread_t = core::mem::zeroed();
        if libc::pthread_create(&mut thread, core::ptr::null(), look, core::ptr::null_mut()) == 0 {
            libc::pthread_join(thread, core::ptr::null_mut());
        }
    }
}

/// The calling thread's stack: where it begins, and behind its last byte. Below the main thread's nothing else lies for 128 MiB. Where it is not known,
/// nothing is a part of it.
#[cold]
fn own_stack() -> (usize, usize) {
    const UNKNOWN: (usize, usize) = (usize::MAX, 1);
    let (control, at) = (control_word(0), STACK_WORDS.load(Relaxed));
    if at == 0 {
        return UNKNOWN;
    }
    let [from, bytes] = [at, at + 8].map(control_word);
    let end = MAIN_END.load(Relaxed);
    match from {
        0 => (end.saturating_sub(DEEPEST), end),
        // A thread's control block lies within what is noted as its stack.
        from if (from..from.saturating_add(bytes)).contains(&control) => (from, control),
        _ => UNKNOWN,
    }
}

/// The hash of the calling thread's native frames. On its own, so that whoever wants none has none of its code between his.
#[inline(never)]
#[unsafe(link_section = ".text.strandline_hot")]
pub(super) fn hash(rules: &mut Rules) -> u64 {
    walk::<false>(rules).hash
}

/// Walks the calling thread's stack, from this function's caller outwards, leaving this library's own frames out. With
/// `STORE`, return addresses are written to `rules.frames`, innermost first.
#[inline(always)]
pub(super) fn walk<const STORE: bool>(rules: &mut Rules) -> Walk {
    let (mut pc, mut sp, mut bp): (usize, usize, usize);
    // SAFETY: reads three registers and touches nothing.
    unsafe {
        asm!(
            "lea {pc}, [rip]",
            "mov {sp}, rsp",
            "mov {bp}, rbp",
            pc = out(reg) pc,
            sp = out(reg) sp,
            bp = out(reg) bp,
            options(nomem, nostack, preserves_flags)
        )
    };
    let Some(modules) = modules::current() else { return Walk::default() };
    if rules.generation != modules.generation {
        rules.forget(modules.generation);
    }
    if rules.stack.1 == 0 {
        rules.stack = own_stack();
    }
    let (low, end) = (sp, rules.stack.1);
    if low < rules.stack.0 || low >= end {
        return Walk::default();
    }
    let word = |at: usize| {
        let is_own = at >= low && at < end && at & 7 == 0 && end - at >= 8;
        // SAFETY: an aligned word between this function's stack pointer, which lies in its thread's stack, and the end of that: all of it is
        // mapped.
        is_own.then(|| unsafe { *(at as *const usize) })
    };
    let mut walk = Walk { depth: 0, hash: 0x9e37_79b9_7f4a_7c15, truncated: true };
    loop {
        let rule = rules.at(pc, modules);
        let cfa = match rule.base {
            Base::Rsp => sp.wrapping_add_signed(rule.offset as isize),
            Base::Rbp => bp.wrapping_add_signed(rule.offset as isize),
            Base::AtRbp => match word(bp.wrapping_add_signed(rule.offset as isize)) {
                Some(w) => w,
                None => break,
            },
            Base::None => {
                walk.truncated = false;
                break;
            }
            Base::Unknown => break,
        };
        // A caller's frame lies above: a chain that does not climb is no chain.
        let Some(caller) = (cfa > sp).then(|| word(cfa.wrapping_sub(8))).flatten() else { break };
        bp = match rule.rbp {
            Saved::Same => bp,
            Saved::Cfa(n) => match word(cfa.wrapping_add_signed(n.into())) {
                Some(w) => w,
                None => break,
            },
            Saved::Rbp(n) => match word(bp.wrapping_add_signed(n.into())) {
                Some(w) => w,
                None => break,
            },
        };
        (pc, sp) = (caller, cfa);
        if pc == 0 {
            walk.truncated = false;
            break;
        }
        if (modules.own.0..modules.own.1).contains(&pc) {
            continue;
        }
        if STORE && let Some(slot) = rules.frames.get_mut(walk.depth) {
            *slot = pc as u64;
        }
        walk.hash = (walk.hash ^ pc as u64).wrapping_mul(0xff51_afd7_ed55_8ccd);
        walk.hash ^= walk.hash >> 29;
        walk.depth += 1;
        if walk.depth == NATIVE_FRAMES {
            break;
        }
    }
    if walk.depth == 0 { Walk::default() } else { walk }
}

impl Rules {
    /// The rule at a return address, or at the place of the walk itself.
    #[inline(always)]
    fn at(&mut self, place: usize, modules: &modules::Modules) -> Rule {
        let first = slot(place);
        for k in 0..PROBES {
            if let Some(e) = self.entries.get((first + k) & (PLACES - 1))
                && e.place == place as u64
            {
                return e.rule;
            }
        }
        self.learn(place, modules)
    }

    #[cold]
    #[inline(never)]
    fn learn(&mut self, place: usize, modules: &modules::Modules) -> Rule {
        // A call may be its function's last instruction: what counts is where it was made.
        let called = place.wrapping_sub(1);
        let tables = modules.find(called).and_then(|m| m.tables(called));
        let rule = tables.and_then(|t| cfi::rule(&t, called)).unwrap_or(cfi::UNKNOWN);
        let first = slot(place);
        for k in 0..PROBES {
            if let Some(e) = self.entries.get_mut((first + k) & (PLACES - 1))
                && (e.place == 0 || k == PROBES - 1)
            {
                *e = KnownPlace { place: place as u64, rule };
                break;
            }
        }
        rule
    }

    /// Libraries have come or gone: what stood at an address may be something else.
    #[cold]
    #[inline(never)]
    fn forget(&mut self, generation: u32) {
        self.entries.iter_mut().for_each(|e| e.place = 0);
        self.generation = generation;
    }

    /// The frames that the last walk has stored.
    pub(super) fn frames(&mut self, depth: usize) -> &mut [u64] {
        self.frames.get_mut(..depth).unwrap_or_default()
    }

    /// The place has a new thread, whose stack ends elsewhere.
    pub(crate) fn moved(&mut self) {
        self.stack = (0, 0);
    }
}

#[inline(always)]
fn slot(place: usize) -> usize {
    ((place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize & (PLACES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Box<Rules> {
        // SAFETY: all of it is numbers and field-less choices whose first is 0: zeroed memory is an empty table.
        unsafe { Box::<Rules>::new_zeroed().assume_init() }
    }

    /// The same stack by both, from `depth` calls further in.
    #[inline(never)]
    fn both(depth: u32, rules: &mut Rules) -> (Walk, Vec<u64>, Vec<u64>) {
        if depth > 0 {
            let deeper = both(depth - 1, rules);
            return std::hint::black_box(deeper);
        }
        let walk = walk::<true>(rules);
        let mut theirs = Vec::new();
        backtrace::trace(|f| {
            theirs.push(f.ip() as u64);
            true
        });
        (walk, rules.frames(walk.depth).to_vec(), theirs)
    }

    #[test]
    fn a_stack_is_what_the_systems_unwinder_says() {
        start();
        let mut rules = rules();
        let mut before = (0, 0);
        for depth in [0, 0, 3, 3, 50, 50] {
            let (walk, ours, theirs) = both(depth, &mut rules);
            assert!(walk.depth > depth as usize + 3 && !walk.truncated && walk.hash != 0, "{walk:?}");
            // Theirs has its own frames inside, and may count the outermost place of all, which nobody called.
            let outermost = theirs.iter().rposition(|ip| *ip != 0).map_or(0, |i| i + 1);
            assert!(theirs[..outermost].ends_with(&ours), "{ours:x?} {theirs:x?}");
            // The second of each two goes by rules that are known.
            assert_eq!(before.0 == depth + 1, before.1 == walk.hash);
            before = (depth + 1, walk.hash);
        }
    }

    #[test]
    fn a_thread_that_is_not_on_its_own_stack_is_not_read() {
        start();
        let mut rules = rules();
        for elsewhere in [(4096, 8192), (usize::MAX, 1), (usize::MAX - 8, usize::MAX)] {
            rules.stack = elsewhere;
            assert_eq!(walk::<false>(&mut rules).depth, 0);
        }
        rules.moved();
        assert!(walk::<false>(&mut rules).depth > 0);
    }
}
