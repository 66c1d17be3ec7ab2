//! The table of a moment: parts of a device that sum to its total, whatever is unknown.

use super::model::{Moment, Process, capacity};
use crate::event::total;
use crate::replay::anatomy::Anatomy;

/// One part, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) bytes: u64,
}

/// The parts of a moment. Their sum is [`Parts::total`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    /// What the job needs.
    pub(super) job: Vec<Part>,
    /// What earlier steps left behind.
    pub(super) left_behind: u64,
    /// What is replaced by larger blocks.
    pub(super) growing: u64,
    /// What would be one of these, were it not suppressed.
    pub(super) suppressed: u64,
    /// Everything else.
    pub(super) rest: Vec<Part>,
    /// Sum of all.
    pub(super) total: u64,
    /// Whether that is what the driver counts; else it is what torch has reserved.
    pub(super) whole_device: bool,
}

fn part(name: &str, bytes: u64) -> Part {
    Part { name: name.to_owned(), bytes }
}

/// The parts of `m`.
pub(super) fn parts(p: &Process<'_>, m: &Moment) -> Parts {
    parts_of(&m.anatomy, capacity(p, m.device), context(p, m))
}

/// What of a moment a CUDA context took: as much as was measured, and no more than there is room for.
pub(super) fn context(p: &Process<'_>, m: &Moment) -> Option<u64> {
    let measured = p.contexts.get(&m.device)?.bytes.0;
    let a = &m.anatomy;
    let seen = total(a.seen_libraries.iter().map(|l| l.1.0));
    let others = a.other_processes.map_or(0, |b| b.0);
    let free = a.free.map_or(0, |b| b.0);
    let room = match (a.libraries, capacity(p, m.device)) {
        (Some(libraries), _) => libraries.0,
        (None, Some(c)) => c.saturating_sub(a.reserved.0).saturating_sub(others.saturating_add(free)),
        (None, None) => return None,
    };
    // Where there is less than that, it was measured of something else: it is not known.
    (measured > 0 && measured.saturating_add(seen) <= room).then_some(measured)
}

fn parts_of(a: &Anatomy, capacity: Option<u64>, context: Option<u64>) -> Parts {
    let job = vec![
        part("weights", a.weights.0),
        part("gradients", a.gradients.0),
        part("optimizer", a.optimizer.0),
        part("activations", a.activations.0),
        part("temporaries", a.temporaries.0),
        part("unclassified", a.other.0),
        part("allocated before recording", a.before_recording.0),
    ];
    let mut rest =
        vec![part("freed, but a stream may still use it", a.pending.0), part("cached", a.cached.0)];
    let found = [a.left_behind.0, a.growing.0, a.suppressed.0];
    let torchs = total(job.iter().chain(&rest).map(|x| x.bytes).chain(found));
    // The parts of the device that are outside PyTorch: those that are known by name, the others as one lump.
    let own = if context.is_some() { "kernels and libraries" } else { "CUDA and libraries" };
    let libraries = a.libraries.map(|b| b.0.saturating_sub(context.unwrap_or(0)));
    let outside = [
        (own, libraries),
        ("other processes", a.other_processes.map(|b| b.0)),
        ("free", a.free.map(|b| b.0)),
    ];
    // Where the driver does not tell what this process holds, what libraries were seen to take is a part of it.
    let seen = total(a.seen_libraries.iter().map(|l| l.1.0));
    let room =
        capacity.map_or(u64::MAX, |c| c.saturating_sub(torchs).saturating_sub(a.free.map_or(0, |f| f.0)));
    let seen = if a.libraries.is_none() { seen.min(room) } else { 0 };
    let known = total(outside.iter().filter_map(|(_, b)| *b).chain([seen, context.unwrap_or(0)]));
    let unknown: Vec<&str> = outside.iter().filter(|(_, b)| b.is_none()).map(|(n, _)| *n).collect();
    let total = match capacity {
        Some(c) => c.max(torchs.saturating_add(known)),
        // Nobody told the device's size: where all parts are known it is their sum, else torch's part is all there is.
        None => torchs.saturating_add(known),
    };
    let whole_device = capacity.is_some() || unknown.is_empty();
    rest.extend(context.map(|bytes| part("CUDA context", bytes)));
    if seen > 0 {
        rest.push(part("libraries", seen));
    }
    rest.extend(outside.iter().filter_map(|(n, b)| b.map(|b| part(n, b))));
    if capacity.is_some() {
        let lump = total.saturating_sub(torchs).saturating_sub(known);
        let name = match unknown[..] {
            [] => "not accounted for".to_owned(),
            [one] => one.to_owned(),
            [_, _, _] if context.is_none() => {
                "free or used outside PyTorch (CUDA, libraries, other processes)".to_owned()
            }
            [ref used @ .., "free"] => format!("free or used outside PyTorch ({})", used.join(", ")),
            _ => format!("outside PyTorch ({})", unknown.join(", ")),
        };
        rest.push(Part { name, bytes: lump });
    }
    let [left_behind, growing, suppressed] = found;
    Parts { job, left_behind, growing, suppressed, rest, total, whole_device }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Bytes;

    fn sum(p: &Parts) -> u64 {
        p.job.iter().chain(&p.rest).map(|x| x.bytes).sum::<u64>() + p.left_behind + p.growing + p.suppressed
    }

    fn anatomy() -> Anatomy {
        Anatomy {
            weights: Bytes(600),
            gradients: Bytes(10),
            optimizer: Bytes(20),
            activations: Bytes(1000),
            temporaries: Bytes(30),
            left_behind: Bytes(480),
            growing: Bytes(15),
            suppressed: Bytes(5),
            other: Bytes(30),
            before_recording: Bytes(10),
            pending: Bytes(5),
            cached: Bytes(15),
            ..Anatomy::default()
        }
    }

    /// Whatever of the driver's figures is known, the parts sum to the device.
    #[test]
    fn the_sum_always_holds() {
        for mask in 0..8u32 {
            let known = |bit: u32, v: u64| (mask & bit != 0).then_some(Bytes(v));
            let a = Anatomy {
                libraries: known(1, 50),
                other_processes: known(2, 30),
                free: known(4, 100),
                ..anatomy()
            };
            let p = parts_of(&a, Some(2400), None);
            assert_eq!((sum(&p), p.total, p.whole_device), (2400, 2400, true), "{mask}");
            // A device said to be smaller than what lies on it: the parts are what is certain.
            let p = parts_of(&a, Some(100), None);
            assert_eq!(sum(&p), p.total, "{mask}");
            let p = parts_of(&a, None, None);
            assert_eq!(sum(&p), p.total, "{mask}");
            assert_eq!(p.whole_device, mask == 7);
            let p = parts_of(&a, Some(2400), Some(40));
            assert_eq!((sum(&p), p.total), (2400, 2400), "{mask}");
            assert!(p.rest.contains(&part("CUDA context", 40)), "{mask}");
        }
    }

    #[test]
    fn what_is_unknown_is_one_lump_with_its_names() {
        let names = |a: &Anatomy| parts_of(a, Some(2400), None).rest.pop().unwrap();
        let with = |a: &Anatomy| parts_of(a, Some(2400), Some(30)).rest.pop().unwrap();
        let unknown = "free or used outside PyTorch (kernels and libraries, other processes)";
        assert_eq!(with(&anatomy()), part(unknown, 150));
        assert_eq!(
            names(&anatomy()),
            part("free or used outside PyTorch (CUDA, libraries, other processes)", 180)
        );
        let a = Anatomy { free: Some(Bytes(80)), ..anatomy() };
        assert_eq!(names(&a), part("outside PyTorch (CUDA and libraries, other processes)", 100));
        let a = Anatomy { other_processes: Some(Bytes(80)), ..a };
        assert_eq!(names(&a), part("CUDA and libraries", 20));
        let a = Anatomy { seen_libraries: vec![("libnccl.so.2".to_owned(), Bytes(15))], ..a };
        assert_eq!(names(&a), part("CUDA and libraries", 5));
        assert!(parts_of(&a, Some(2400), None).rest.contains(&part("libraries", 15)));
        assert_eq!(sum(&parts_of(&a, Some(2400), None)), 2400);
    }
}
