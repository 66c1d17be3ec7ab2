//! speedscope's own JSON: a profile for each process and device, of each moment and of all that was allocated.

use super::profile::{Call, Column, Profile, Sample};
use crate::event::DeviceId;
use crate::report::numbered::Numbered;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{self, Write};

/// What the format's files say that they are.
const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

/// Prints them. `name` is what the file is called.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut impl Write, profiles: &[Profile<'_>], name: &str) -> io::Result<()> {
    let mut frames = Numbered::new();
    let mut all = Vec::new();
    for profile in profiles {
        let samples = profile.samples();
        let devices: BTreeSet<DeviceId> = samples.iter().map(|s| s.device).collect();
        for device in devices {
            let of = |column, words: &str, frames: &mut Numbered<Call>| {
                let samples = samples.iter().filter(|s| s.device == device);
                one(&title(profile, device, words), samples, column, frames)
            };
            for (i, words) in profile.moments.iter().enumerate() {
                all.extend(of(Column::Held(i), &format!("held at {words}"), &mut frames));
            }
            all.extend(of(Column::Allocated, "allocated in all", &mut frames));
        }
    }
    let file = json!({
        "$schema": SCHEMA,
        "name": name,
        "exporter": format!("strandline {}", crate::VERSION),
        "activeProfileIndex": 0,
        "shared": { "frames": frames.list().iter().map(frame).collect::<Vec<_>>() },
        "profiles": all,
    });
    serde_json::to_writer(&mut *out, &file)?;
    writeln!(out)
}

fn title(profile: &Profile<'_>, device: DeviceId, words: &str) -> String {
    let name = profile.name.as_ref().map(|n| format!("{n}, ")).unwrap_or_default();
    format!("{name}GPU {}: {words}", device.0)
}

/// A profile; none where nothing is in it.
fn one<'s>(
    name: &str,
    samples: impl Iterator<Item = &'s Sample>,
    column: Column,
    frames: &mut Numbered<Call>,
) -> Option<Value> {
    let (mut stacks, mut weights, mut total) = (Vec::new(), Vec::new(), 0u64);
    for (sample, bytes) in samples.map(|s| (s, s.sum(column).bytes)).filter(|(_, bytes)| *bytes > 0) {
        stacks.push(sample.path.iter().map(|c| frames.number(c)).collect::<Vec<_>>());
        weights.push(bytes);
        total = total.saturating_add(bytes);
    }
    (total > 0).then(|| {
        json!({
            "type": "sampled", "name": name, "unit": "bytes", "startValue": 0, "endValue": total,
            "samples": stacks, "weights": weights,
        })
    })
}

/// A frame of the list that stacks name by number.
fn frame(call: &Call) -> Value {
    let mut frame = json!({ "name": call.label });
    if !call.file.is_empty() {
        frame["file"] = json!(call.file);
    }
    if call.line > 0 {
        frame["line"] = json!(call.line);
    }
    frame
}
