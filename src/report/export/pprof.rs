//! pprof's `profile.proto`, as heap profiles have it: what was allocated in all, and what was held at one moment.

use super::profile::{Call, Column, Profile, Sample};
use super::protobuf::Message;
use crate::report::numbered::Numbered;

/// Fields of the message `Profile`.
mod field {
    pub(super) const SAMPLE_TYPE: u32 = 1;
    pub(super) const SAMPLE: u32 = 2;
    pub(super) const LOCATION: u32 = 4;
    pub(super) const FUNCTION: u32 = 5;
    pub(super) const STRING_TABLE: u32 = 6;
    pub(super) const TIME_NANOS: u32 = 9;
    pub(super) const DURATION_NANOS: u32 = 10;
    pub(super) const PERIOD_TYPE: u32 = 11;
    pub(super) const PERIOD: u32 = 12;
    pub(super) const COMMENT: u32 = 13;
    pub(super) const DEFAULT_SAMPLE_TYPE: u32 = 14;
}

/// The values of a sample, as Go's heap profiles call them.
const TYPES: [(&str, &str); 4] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];

/// All profiles as one, with the first of their moments. It is not compressed. `unix_ns`: when the recording began.
pub fn encode(profiles: &[Profile<'_>], unix_ns: u64) -> Vec<u8> {
    let mut out = Writer { texts: Numbered::new(), functions: Numbered::new(), locations: Numbered::new() };
    let mut all = Message::default();
    // The first text is none.
    out.text("");
    for (name, unit) in TYPES {
        all.message(field::SAMPLE_TYPE, &out.value_type(name, unit));
    }
    for profile in profiles {
        for sample in profile.samples() {
            if let Some(sample) = out.sample(profile, &sample) {
                all.message(field::SAMPLE, &sample);
            }
        }
    }
    let last = profiles.iter().map(|p| p.process.replay.time().0).max().unwrap_or(0);
    all.number(field::TIME_NANOS, unix_ns).number(field::DURATION_NANOS, last);
    all.message(field::PERIOD_TYPE, &out.value_type("space", "bytes")).number(field::PERIOD, 1);
    let mut comments = vec![format!("strandline {}", crate::VERSION)];
    comments.extend(profiles.iter().filter_map(|p| {
        let name = p.name.as_ref().map(|n| format!("{n}: ")).unwrap_or_default();
        Some(format!("{name}inuse is what was held at {}", p.moments.first()?))
    }));
    let comments: Vec<u64> = comments.iter().map(|c| out.text(c)).collect();
    all.packed(field::COMMENT, comments).number(field::DEFAULT_SAMPLE_TYPE, out.text("inuse_space"));
    for (number, (function, at)) in (1..).zip(out.locations.list()) {
        let (mut line, mut location) = (Message::default(), Message::default());
        line.number(1, function).number(2, u64::from(at));
        location.number(1, number).message(4, &line);
        all.message(field::LOCATION, &location);
    }
    for (number, (name, file)) in (1..).zip(out.functions.list()) {
        let mut function = Message::default();
        function.number(1, number).number(2, name).number(3, name).number(4, file);
        all.message(field::FUNCTION, &function);
    }
    for text in out.texts.list() {
        all.text(field::STRING_TABLE, &text);
    }
    all.into_bytes()
}

/// Texts, functions (name and file, by the numbers of their texts) and places (function and line); places and functions count from 1.
struct Writer {
    texts: Numbered<String>,
    functions: Numbered<(u64, u64)>,
    locations: Numbered<(u64, u32)>,
}

impl Writer {
    fn text(&mut self, text: &str) -> u64 {
        self.texts.number(text) as u64
    }

    fn value_type(&mut self, name: &str, unit: &str) -> Message {
        let mut m = Message::default();
        m.number(1, self.text(name)).number(2, self.text(unit));
        m
    }

    fn sample(&mut self, profile: &Profile<'_>, sample: &Sample) -> Option<Message> {
        let (all, held) = (sample.sum(Column::Allocated), sample.sum(Column::Held(0)));
        let values = [all.blocks, all.bytes, held.blocks, held.bytes];
        if values == [0; 4] {
            return None;
        }
        let mut m = Message::default();
        // The innermost call first.
        let places: Vec<u64> = sample.path.iter().rev().map(|c| self.location(c)).collect();
        m.packed(1, places).packed(2, values);
        let gpu = format!("GPU {}", sample.device.0);
        let labels = [("process", &profile.name), ("device", &Some(gpu)), ("stream", &sample.stream)];
        for (key, text) in labels.into_iter().filter_map(|(key, text)| Some((key, text.as_ref()?))) {
            let mut label = Message::default();
            label.number(1, self.text(key)).number(2, self.text(text));
            m.message(3, &label);
        }
        Some(m)
    }

    fn location(&mut self, call: &Call) -> u64 {
        let function = (self.text(&call.function), self.text(&call.file));
        let function = self.functions.number(&function) as u64 + 1;
        self.locations.number(&(function, call.line)) as u64 + 1
    }
}
