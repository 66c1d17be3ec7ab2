//! Native frames of the calling thread: return addresses, found by the compilers' own unwind tables.
//!
//! Hot: a frame costs a look-up in the thread's own table of rules, and two loads from its stack. Cold, once per place in the
//! code: `cfi` reads the rule from the library's `.eh_frame`, without heap, lock or call. Only the thread's own stack is
//! read, between its stack pointer and its end, so that a wrong rule makes a wrong frame and never a crash.

mod cfi;
pub(crate) mod modules;

use crate::platform::memory;
use crate::recorder::stack_memory::{Base, KnownPlace, NATIVE_FRAMES, PLACES, Rule, Rules, Saved};
use core::arch::asm;
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
    modules::refresh();
    ON.store(true, Relaxed);
    true
}

/// Where the calling thread's stack ends. A thread's control block lies at the top of its stack, wherever that came from; the
/// main thread's lies elsewhere, below its stack. Whichever is the nearer above the stack pointer.
#[cold]
fn stack_end(sp: usize) -> usize {
    let control: usize;
    // SAFETY: the first word of the thread control block is its own address, in every x86-64 ABI.
    unsafe {
        asm!("mov {}, qword ptr fs:[0]", out(reg) control, options(nostack, preserves_flags, readonly))
    };
    let above = [control, MAIN_END.load(Relaxed)].into_iter().filter(|&end| end > sp);
    above.min().unwrap_or(0)
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
    if rules.end == 0 {
        rules.end = stack_end(sp);
    }
    let (low, end) = (sp, rules.end);
    if !rules.is_on_stack(low) && !rules.look(low) {
        return Walk::default();
    }
    let word = |at: usize| {
        let is_own = at >= low && at < end && at & 7 == 0 && end - at >= 8;
        // SAFETY: an aligned word between this function's stack pointer and the end of its thread's stack, all of which was seen to be
        // mapped (`look`), without the gap that lies below each stack: so it is that stack, which stays as long as its thread.
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

    /// Looks whether the stack pointer lies in the thread's stack: whether all that lies between it and the end, or what was seen before, can be read.
    /// Below each stack is a page that cannot, so from another one (a coroutine's) it does not.
    #[cold]
    #[inline(never)]
    fn look(&mut self, low: usize) -> bool {
        let to = if self.seen_from == 0 { self.end } else { self.seen_from };
        let is_known = (self.elsewhere.0..self.elsewhere.1).contains(&low);
        if is_known || low >= to || self.end - low > DEEPEST {
            return false;
        }
        match memory::readable_to(low, to) {
            all if all == to => self.seen_from = low & !4095,
            gap => self.elsewhere = (low & !4095, gap),
        }
        self.is_on_stack(low)
    }

    /// Whether an address is one of those that were seen to be the thread's stack.
    #[inline(always)]
    fn is_on_stack(&self, low: usize) -> bool {
        self.seen_from != 0 && low >= self.seen_from && low < self.end
    }

    /// The place has a new thread, whose stack ends elsewhere.
    pub(crate) fn moved(&mut self) {
        (self.end, self.seen_from, self.elsewhere) = (0, 0, (0, 0));
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
        rules.end = 4096;
        assert_eq!(walk::<false>(&mut rules).depth, 0);
        rules.end = usize::MAX;
        assert_eq!(walk::<false>(&mut rules).depth, 0);
    }
}
