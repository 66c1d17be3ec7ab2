//! Memory of a device that is not PyTorch's: of other processes, and of libraries in this one.

use super::amounts::size;
use super::cause::Cause;
use crate::replay::{OomEvent, Replay};

/// What contexts and libraries are granted before they are blamed: this, but no more than a quarter of a small device, and a tenth of
/// a large one.
const LIBRARIES: u64 = 2 << 30;

fn granted(total: u64) -> u64 {
    LIBRARIES.min(total / 4).max(total / 10)
}

/// How much is used outside of PyTorch, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outsiders {
    /// By all.
    pub(super) all: u64,
    /// By other processes; `None` where the driver does not tell them apart.
    pub(super) processes: Option<u64>,
}

/// The library that took nearly all of so much.
pub(super) fn main_library(replay: &Replay, all: u64) -> Option<String> {
    let most = replay.calls().libraries.iter().max_by_key(|l| l.1.peak)?;
    (all > 0 && most.1.peak.0 >= all / 10 * 9).then(|| most.0.clone())
}

/// Who has most of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Most {
    Processes,
    Libraries,
    Unknown,
}

impl Outsiders {
    fn libraries(self) -> u64 {
        self.all.saturating_sub(self.processes.unwrap_or(0))
    }

    /// What may be blamed on a device of this size: all, where libraries have more than they are granted, else what other processes have.
    pub(super) fn blamed(self, total: u64) -> u64 {
        if self.libraries() > granted(total) { self.all } else { self.processes.unwrap_or(0) }
    }

    fn most(self) -> Most {
        match self.processes {
            Some(processes) if processes >= self.libraries() => Most::Processes,
            Some(_) => Most::Libraries,
            None => Most::Unknown,
        }
    }

    /// Who has most of it, within a sentence.
    pub(super) fn in_words(self) -> &'static str {
        match self.most() {
            Most::Processes => "other processes",
            Most::Libraries => "the CUDA context and libraries in this process",
            Most::Unknown => "other processes, or libraries in this process",
        }
    }

    /// What helps, in one sentence without a full stop.
    pub(super) fn remedy(self) -> &'static str {
        match self.most() {
            Most::Processes => Cause::Outside.remedy(),
            Most::Libraries => {
                "find the library that uses this memory: another framework in this process has a setting for its memory; NCCL uses some for each process group, cuBLAS and cuDNN use some for workspaces (CUBLAS_WORKSPACE_CONFIG)"
            }
            Most::Unknown => {
                "run nvidia-smi: if it lists other processes on this GPU, stop them, or choose another GPU with CUDA_VISIBLE_DEVICES; if it lists only this process, a library other than PyTorch in it uses the memory"
            }
        }
    }

    /// Why a request failed for it: in a few words, and as a clause.
    pub(super) fn explain(self, replay: &Replay, o: &OomEvent) -> (String, String) {
        let mine = if o.call.is_none() { "PyTorch" } else { "the program" };
        let fits = format!("without that memory, the requested {} would have fit", size(o.requested.0));
        let library = replay.calls().libraries.iter().max_by_key(|l| l.1.peak);
        let library = library.filter(|l| l.1.peak.0.saturating_mul(2) > self.all);
        let took = library.map(|(name, a)| format!("{name} took {}", size(a.peak.0)));
        let library = took.as_ref().map(|took| format!(" ({took})")).unwrap_or_default();
        match self.most() {
            Most::Processes => {
                (format!("other processes on this GPU use {}", size(self.processes.unwrap_or(0))), fits)
            }
            Most::Libraries => {
                let who = match took.filter(|_| main_library(replay, self.all).is_some()) {
                    Some(took) => format!("in this process {took}"),
                    None => format!(
                        "the CUDA context of this process and libraries such as cuDNN, cuBLAS or NCCL use it{library}"
                    ),
                };
                (
                    format!("libraries use {} outside of {mine}", size(self.libraries())),
                    format!("{who}; {fits}"),
                )
            }
            Most::Unknown => (
                format!("{} of the GPU is used outside of {mine}", size(self.all)),
                format!(
                    "other processes on this GPU, or libraries in this process such as cuDNN or NCCL, use it{library}; {fits}"
                ),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_blamed_for_more_than_a_device_of_its_size_grants_them() {
        const GIB: u64 = 1 << 30;
        let of = |all, processes| Outsiders { all, processes };
        for (who, total, blamed, words) in [
            (of(GIB, None), 24 * GIB, 0, "other processes, or libraries in this process"),
            (of(3 * GIB, None), 24 * GIB, 3 * GIB, "other processes, or libraries in this process"),
            (of(GIB, None), 2 * GIB, GIB, "other processes, or libraries in this process"),
            (of(7 * GIB, None), 80 * GIB, 0, "other processes, or libraries in this process"),
            (of(3 * GIB, Some(2 * GIB)), 24 * GIB, 2 * GIB, "other processes"),
            (of(9 * GIB, Some(GIB)), 24 * GIB, 9 * GIB, "the CUDA context and libraries in this process"),
        ] {
            assert_eq!((who.blamed(total), who.in_words()), (blamed, words), "{who:?} of {total}");
        }
    }
}
