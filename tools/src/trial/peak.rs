//! What a job needed of each device.

use super::buckets::made_anew;
use crate::analyze::Judged;
use crate::error::Error;
use serde_json::{Value, json};
use strandline::event::DeviceId;
use strandline::report::{Facts, Namesakes, Process};

/// Bytes that a process takes of a card beside PyTorch's: 527 MiB for the CUDA context, 112 to 116 MiB for kernels' code and cuDNN, 64 MiB
/// for each of two cuBLAS handles, with PyTorch 2.11 and CUDA 13 on an H100 and on an H200 (docs/measurements.md; other cards' contexts are
/// smaller).
pub(super) const BESIDE: u64 = (527 + 116 + 2 * 64) << 20;

/// Bytes that NCCL takes in each rank: 486 MiB for a communicator of two H200s, and its kernels (docs/measurements.md).
pub(super) const NCCL: u64 = 770 << 20;

/// A device of a process.
pub(crate) struct Peak {
    /// What the process is called, where there are several.
    pub(crate) process: Option<String>,
    /// The same, for people: its rank.
    pub(crate) who: Option<String>,
    pub(crate) device: u8,
    pub(crate) allocated: u64,
    pub(crate) reserved: u64,
    pub(crate) step: u32,
    pub(crate) phase: &'static str,
    /// What it held at the peak, by class; those with nothing are left out.
    pub(crate) classes: Vec<(&'static str, u64)>,
    /// Bytes of DDP's first buckets, which are not in the peak, and may be there beside the new ones; 0 where NCCL does not sum them up.
    pub(crate) first_buckets: u64,
}

/// The devices that the processes used, the fullest first.
///
/// # Errors
/// The recordings cannot be read once more.
pub(super) fn peaks(judged: &[Judged]) -> Result<Vec<Peak>, Error> {
    let mut all: Vec<Peak> = judged
        .iter()
        .flat_map(|j| peaks_of(&j.process(), (judged.len() > 1).then(|| crate::say::shown(&j.path))))
        .collect();
    if has_ranks(&all) {
        for j in judged {
            let (name, buckets) = (crate::say::shown(&j.path), made_anew(j)?);
            for p in all.iter_mut().filter(|p| p.process.as_ref() == Some(&name)) {
                p.first_buckets = buckets.get(&DeviceId(p.device)).copied().unwrap_or(0);
            }
        }
    }
    all.sort_by_key(|p| std::cmp::Reverse(p.reserved));
    Ok(all)
}

/// Whether these are ranks, each on a device of its own, which NCCL joins.
pub(super) fn has_ranks(peaks: &[Peak]) -> bool {
    peaks.iter().any(|p| p.process.is_some() && p.device != peaks[0].device)
}

fn peaks_of(p: &Process<'_>, name: Option<String>) -> Vec<Peak> {
    let used = p.replay.devices().filter(|d| d.peak_reserved.bytes.0 > 0);
    used.map(|d| {
        let moment = p.anatomies.iter().find(|m| m.device == d.id);
        let classes = moment.map(|m| &m.anatomy).map_or_else(Vec::new, |a| {
            let all = [
                ("weights", a.weights),
                ("gradients", a.gradients),
                ("optimizer", a.optimizer),
                ("activations", a.activations),
                ("temporaries", a.temporaries),
                ("left behind", a.left_behind),
                ("growing", a.growing),
                ("unclassified", a.other),
            ];
            all.into_iter().map(|(name, b)| (name, b.0)).filter(|(_, b)| *b > 0).collect()
        });
        Peak {
            process: name.clone(),
            who: name.as_ref().map(|_| Facts::of(p.replay).name(Namesakes::None)),
            device: d.id.0,
            allocated: d.peak_allocated.bytes.0,
            reserved: d.peak_reserved.bytes.0,
            step: d.peak_allocated.step,
            phase: d.peak_allocated.phase.name(),
            classes,
            first_buckets: 0,
        }
    })
    .collect()
}

impl Peak {
    pub(crate) fn json(&self) -> Value {
        let classes: serde_json::Map<String, Value> =
            self.classes.iter().map(|(name, b)| (name.replace(' ', "_"), json!(b))).collect();
        json!({
            "process": self.process, "device": self.device, "peak_allocated_bytes": self.allocated,
            "peak_reserved_bytes": self.reserved, "peak_step": self.step, "peak_phase": self.phase, "classes": classes,
            "first_buckets_bytes": self.first_buckets,
        })
    }
}
