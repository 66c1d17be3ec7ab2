//! Stacks with what they hold, as every profile format has them.

use super::sums::{Key, Sums};
use crate::event::{DeviceId, Frame, StackId};
use crate::replay::Point;
use crate::report::model::{Process, Report, used};
use crate::report::path;
use crate::report::text::{NO_FRAME, label, stream};
use std::collections::BTreeMap;

/// What stands for the stacks of blocks that were there before the recording began.
const EARLY: &str = "allocated before the recording began, by an unknown line";

/// Which figure of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Held at the moment of this number.
    Held(usize),
    /// Allocated in all, freed or not.
    Allocated,
}

/// What a process's stacks hold.
#[derive(Debug)]
pub struct Profile<'a> {
    pub(super) process: &'a Process<'a>,
    /// The process among others; `None` where there are no others.
    pub(super) name: Option<String>,
    sums: Sums,
    native: BTreeMap<StackId, Vec<Frame>>,
    /// The moments, in words.
    pub(super) moments: Vec<String>,
    /// Devices are told apart.
    pub(super) several: bool,
}

/// A frame of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Call {
    /// As reports write it: `trl/models/activation_offloading.py:430 unpack_tensor_with_streams`.
    pub(super) label: String,
    pub(super) function: String,
    pub(super) file: String,
    pub(super) line: u32,
}

impl Call {
    fn named(name: &str) -> Call {
        Call { label: name.to_owned(), function: name.to_owned(), file: String::new(), line: 0 }
    }
}

/// A native frame: names of C++ have dots and spaces of their own, and most have no file.
fn native(f: &Frame) -> Call {
    let file = f.file.rsplit('/').next().unwrap_or_default();
    let label = match f.line {
        0 => format!("{file}{}", f.function),
        line => format!("{} ({file}:{line})", f.function),
    };
    Call { label, function: f.function.clone(), file: f.file.clone(), line: f.line }
}

/// A stack of one device and stream, the outermost call first.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) device: DeviceId,
    pub(super) stream: Option<String>,
    pub(super) path: Vec<Call>,
    /// At each moment.
    pub(super) held: Vec<Point>,
    pub(super) allocated: Point,
}

impl Sample {
    pub(super) fn sum(&self, column: Column) -> Point {
        match column {
            Column::Held(i) => self.held.get(i).copied().unwrap_or_default(),
            Column::Allocated => self.allocated,
        }
    }
}

impl<'a> Profile<'a> {
    /// The profile of a process of a report. `native`: the native frames of stacks that have some, innermost first; `moments`: those
    /// of `sums`, in words.
    pub fn new(
        report: &Report<'_>,
        process: &'a Process<'a>,
        sums: Sums,
        native: BTreeMap<StackId, Vec<Frame>>,
        moments: Vec<String>,
    ) -> Profile<'a> {
        let name = (report.processes.len() > 1).then(|| report.name(process));
        let several = used(process).count() > 1;
        Profile { process, name, sums, native, moments, several }
    }

    /// What is known of all stacks, ordered by them.
    pub(super) fn samples(&self) -> Vec<Sample> {
        let mut all: BTreeMap<Key, Sample> = BTreeMap::new();
        let moments = self.moments.len();
        let fresh = |key: &Key| Sample {
            device: key.device,
            stream: Some(stream(self.process.replay, key.stream)),
            path: self.path(key),
            held: vec![Point::default(); moments],
            allocated: Point::default(),
        };
        for (key, sum) in &self.sums.allocated {
            all.entry(*key).or_insert_with(|| fresh(key)).allocated = *sum;
        }
        let mut early: BTreeMap<DeviceId, Sample> = BTreeMap::new();
        for (i, (_, picture)) in self.sums.moments.iter().enumerate().take(moments) {
            let Some(picture) = picture else { continue };
            for (key, sum) in &picture.stacks {
                all.entry(*key).or_insert_with(|| fresh(key)).held[i] = *sum;
            }
            for (device, bytes) in &picture.early {
                let path = self.within(*device).chain([Call::named(EARLY)]).collect();
                let held = vec![Point::default(); moments];
                let none = Sample { device: *device, stream: None, path, held, allocated: Point::default() };
                early.entry(*device).or_insert(none).held[i].add(Point { blocks: 0, bytes: *bytes });
            }
        }
        let mut samples: Vec<Sample> = all.into_values().chain(early.into_values()).collect();
        samples.sort_by(|a, b| a.path.cmp(&b.path));
        samples
    }

    /// What stands above all frames: the process and the device, where there are others.
    fn within(&self, device: DeviceId) -> impl Iterator<Item = Call> {
        let gpu = self.several.then(|| format!("GPU {}", device.0));
        self.name.clone().into_iter().chain(gpu).map(|name| Call::named(&name))
    }

    fn path(&self, key: &Key) -> Vec<Call> {
        let p = self.process;
        let call = |f: &Frame| Call {
            label: label(p, f),
            function: f.function.clone(),
            file: f.file.clone(),
            line: f.line,
        };
        let (frames, node) = path::frames_of(p.replay, p.names, key.site, key.stack);
        let mut path: Vec<Call> = self.within(key.device).collect();
        let above = path.len();
        path.extend(frames.into_iter().map(call));
        path.extend(node.map(Call::named));
        path.extend(self.native.get(&key.stack).into_iter().flatten().rev().map(native));
        if path.len() == above {
            path.push(Call::named(NO_FRAME));
        }
        path
    }
}
