//! Where in strandline's own code a thread of the job is at work. A process leaves it in its shared memory as it goes, so that it is
//! there when the process dies of it: in a hook by a word of the thread's ring, in what is no hook by a bit for the whole process.

use super::{CALLS, named};

/// Which hook a thread is in: a place in [`CALLS`], or past them in a list of what is no call of CUDA's. 0: in none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct HookId(u64);

/// Numbers of hooks that are no CUDA calls begin here.
const OTHERS_FROM: u64 = 0x1000;

/// Hooks that are no CUDA calls: by the symbol or word that code has, and as a person reads it. Numbers are written into shared memory
/// that later versions read: new ones go to the end.
const OTHERS: &[(&str, &str)] = &[
    ("tracker", "an event of PyTorch's allocator"),
    ("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE", "c10::reportMemoryUsageToProfiler"),
    ("_ZN3c104cuda20setCurrentCUDAStreamENS0_10CUDAStreamE", "c10::cuda::setCurrentCUDAStream"),
    ("_ZN3c1013setThreadNameENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", "c10::setThreadName"),
    ("_ZN2at6native18record_stream_cudaERNS_6TensorEN3c106StreamE", "Tensor.record_stream"),
    ("_ZN2at4_ops18_amp_update_scale_4callERNS_6TensorES3_RKS2_ddl", "GradScaler.update"),
    (
        "_ZN5torch8autograd6Engine7executeERKSt6vectorINS0_4EdgeESaIS3_EERKS2_IN2at6TensorESaIS9_EEbbbS7_",
        "backward()",
    ),
    ("optimizer", "an optimizer's step"),
    ("nvtx", "an NVTX range"),
    ("strandline_step", "strandline_step"),
    ("strandline_block", "strandline_block"),
    ("pluggable", "strandline's pluggable allocator"),
];

impl HookId {
    /// In no hook.
    pub const NONE: HookId = HookId(0);

    /// The number of a hooked function, by its symbol. [`HookId::NONE`] where it has none; use it in a `const`.
    pub const fn of(symbol: &str) -> HookId {
        let mut i = 1;
        while i < CALLS.len() {
            if is_same(CALLS[i], symbol) {
                return HookId(i as u64);
            }
            i += 1;
        }
        i = 0;
        while i < OTHERS.len() {
            if is_same(OTHERS[i].0, symbol) {
                return HookId(OTHERS_FROM + i as u64);
            }
            i += 1;
        }
        HookId::NONE
    }

    /// As the shared memory has it.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// What a person calls the hook of this number; `None`: no hook, or one that this version does not know.
    pub fn name(word: u64) -> Option<&'static str> {
        let other = || Some(OTHERS.get(usize::try_from(word.checked_sub(OTHERS_FROM)?).ok()?)?.1);
        match usize::try_from(word) {
            Ok(0) => None,
            Ok(i) => CALLS.get(i).copied().or_else(other),
            Err(_) => None,
        }
    }
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return false;
    }
    let mut i = 0;
    while i < one.len() {
        if one[i] != other[i] {
            return false;
        }
        i += 1;
    }
    true
}

named! {
    /// A part of strandline in the job that is no hook.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Room {
        /// Attaches to PyTorch's allocator.
        Attach = "attaching to PyTorch's allocator",
        /// Installs functions in Python.
        Python = "installing its functions in Python",
        /// Looks through Python's objects for who holds a leak.
        Probe = "searching for the holder of a leak",
        /// Writes the recording. The kernel's log told so, after the process's death.
        Writer = "its writer thread",
        /// Its code anywhere else. The kernel's log told so, after the process's death.
        Library = "its library",
    }
}

/// What of strandline a thread was in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtWork {
    /// A hook, by what a person calls it.
    Hook(&'static str),
    /// Something that is no hook.
    Room(Room),
}

impl AtWork {
    /// All that the words of the rings and the bits of the process say; each once. That it was in the library says nothing more where a thread
    /// has noted its place.
    pub fn all(hooks: impl IntoIterator<Item = u64>, rooms: u64) -> Vec<AtWork> {
        let mut all: Vec<AtWork> = Vec::new();
        let hooks = hooks.into_iter().filter_map(HookId::name).map(AtWork::Hook);
        let rooms = Room::ALL.into_iter().filter(|r| rooms & r.bit() != 0).map(AtWork::Room);
        for one in hooks.chain(rooms) {
            let is_known = one == AtWork::Room(Room::Library) && !all.is_empty();
            if !is_known && !all.contains(&one) {
                all.push(one);
            }
        }
        all
    }

    /// As a person reads it: `cudaMemGetInfo`.
    pub fn name(self) -> &'static str {
        match self {
            AtWork::Hook(name) => name,
            AtWork::Room(room) => room.name(),
        }
    }
}

impl Room {
    /// Its bit in the shared memory.
    pub const fn bit(self) -> u64 {
        1 << self as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_named_and_stays_what_it_is() {
        const MEM_GET_INFO: HookId = HookId::of("cudaMemGetInfo");
        assert_eq!(HookId::name(MEM_GET_INFO.word()), Some("cudaMemGetInfo"));
        assert_eq!((MEM_GET_INFO.word(), HookId::of("tracker").word()), (15, 0x1000));
        assert_eq!(HookId::of("no such function"), HookId::NONE);
        for (symbol, name) in OTHERS {
            assert_eq!(HookId::name(HookId::of(symbol).word()), Some(*name));
        }
        for odd in [0, CALLS.len() as u64, OTHERS_FROM - 1, OTHERS_FROM + OTHERS.len() as u64, u64::MAX] {
            assert_eq!(HookId::name(odd), None, "{odd}");
        }
        assert_eq!(Room::ALL.map(Room::bit), [1, 2, 4, 8, 16]);
        let all = AtWork::all([0, 15, u64::MAX, 15], Room::Probe.bit() | 1 << 60);
        assert_eq!(all, [AtWork::Hook("cudaMemGetInfo"), AtWork::Room(Room::Probe)]);
        let library = Room::Library.bit();
        assert_eq!(AtWork::all([15], library), [AtWork::Hook("cudaMemGetInfo")]);
        assert_eq!(AtWork::all([0], library), [AtWork::Room(Room::Library)]);
    }
}
