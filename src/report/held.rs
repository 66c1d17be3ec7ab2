//! Who holds what was flagged: the words for what the job's probe has answered.

use super::units::{duration, numbered, percent, plural, thousands};
use crate::event::Frame;
use crate::event::steps::StepSource;
use serde_json::{Value, json};

/// What the holder probe said.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum HeldBy {
    /// It did not run, for this reason (may be empty).
    #[default]
    NotRun,
    /// It did not run, and this is why.
    Skipped(String),
    /// It ran and found no holder, for this reason.
    NotFound(String),
    /// It found these.
    Found(Vec<Holder>),
}

/// A place with a name that keeps blocks. Types and names of attributes, never values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Holder {
    /// The place: `OffloadActivations.bwd_tensor_stash`.
    pub name: String,
    /// The type of what is there.
    pub kind: String,
    /// How many things were in it when it was found, where it is a container.
    pub entries: Option<u64>,
    /// Nanoseconds from the recording's beginning until it was found.
    pub taken: Option<u64>,
    /// The step that was under way then, where that is known.
    pub step: Option<u32>,
    /// What its steps are counted by: the number of a second says no more than the time.
    pub counted_by: StepSource,
    /// How many things were in it, at moments in their order: the first, the last, and every one that was less than the one before.
    pub counts: Vec<Count>,
    /// Where it ends, as it says itself.
    pub bound: Option<HolderBound>,
    /// It keeps the blocks through the autograd graphs of tensors in it.
    pub graph: bool,
    /// The blocks are gradients of tensors in it; with `graph`, the graphs of these keep them.
    pub gradient: bool,
    /// Its entries are the tensors themselves, and it is one object: it holds no more of them than it has entries.
    pub direct: bool,
    /// It has as many entries as before while what was found grows: what grows is kept by another.
    pub stays: bool,
    /// It ends, as it says itself, and another holder that got more entries does not: that one is what grows without an end.
    pub ends: bool,
    /// The name gets another object again and again, whose graph reaches back to the blocks.
    pub rebound: bool,
    /// And a backward may need that graph: an optimizer did not step while others did, or none has stepped its parameters.
    pub awaited: bool,
    /// Whose it is, where it has a part in training: `optimizer` or `module`.
    pub part: Option<String>,
    /// A variable of a module, of a class or of a running function leads to it: it is no garbage.
    pub root: bool,
    /// It is a variable of a frame that runs no more: a traceback keeps that.
    pub in_frame: bool,
    /// The nearest name on the way from the blocks to it, where that is another one.
    pub through: Option<String>,
    /// How many of the blocks that were asked about it keeps, and its part of them, 0 to 1.
    pub blocks: u64,
    /// See `blocks`.
    pub share: f64,
    /// Its part of the memory, as far as the blocks that were asked about tell, 0 to 1.
    pub memory: Option<f64>,
    /// Containers that hold all of it as well: names and types.
    pub also: Vec<(String, String)>,
    /// When the last step ended, in nanoseconds from the recording's beginning, and which it was; where the process has ended.
    pub last_step: Option<(u64, u32)>,
}

/// How many things were in a holder at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Nanoseconds from the recording's beginning.
    pub taken: u64,
    /// The step that was under way, from 1, where that is known.
    pub step: Option<u32>,
    /// Entries.
    pub entries: u64,
}

/// A container's own bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HolderBound {
    /// What says so: `maxlen` or `maxsize`.
    pub kind: String,
    /// Entries at most.
    pub entries: u64,
}

/// The statement that keeps what was found, in the user's own source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptAt {
    /// The file, as Python has it.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The statement: `hist.append(loss)`.
    pub source: String,
    /// What helps at this statement; `None` where nothing that is known does.
    pub remedy: Option<String>,
}

impl KeptAt {
    /// The line.
    pub(super) fn frame(&self) -> Frame {
        Frame { file: self.file.clone(), line: self.line, function: String::new() }
    }
}

impl HeldBy {
    /// Understands a finding's part of the fact `holders` (docs/recording.md). `answer`: the answer that it is a part of; `counts`: what was
    /// counted since, of all answers; `step_at`: the step that was under way so many nanoseconds after the recording began.
    pub fn of(
        finding: &Value,
        answer: &Value,
        counts: &Value,
        step_at: &dyn Fn(u64) -> Option<u32>,
    ) -> HeldBy {
        let text = |v: &Value| v.as_str().map(str::to_owned);
        let reason = text(&finding["reason"]).unwrap_or_default();
        let all = finding["holders"].as_array().into_iter().flatten();
        let asked = finding["blocks"].as_u64().unwrap_or(0);
        let weight = finding["weight"].as_u64().filter(|all| *all > 0);
        let taken = finding["at_ns"].as_u64().or(answer["at_ns"].as_u64());
        let holder = |v: &Value| {
            let blocks = v["blocks"].as_u64().unwrap_or(0);
            let name = text(&v["name"])?;
            let since = counted_of(counts, &name).unwrap_or(&Value::Null);
            let most = since["most"].as_u64().or(v["bound"]["entries"].as_u64());
            let bound = text(&v["bound"]["kind"]).zip(most).filter(|_| since["open"] != true);
            Some(Holder {
                counts: counted(counts, &name, step_at),
                name,
                kind: text(&v["type"]).unwrap_or_default(),
                entries: v["entries"].as_u64(),
                taken,
                step: taken.and_then(step_at),
                counted_by: StepSource::None,
                bound: bound.map(|(kind, entries)| HolderBound { kind, entries }),
                graph: v["graph"] == true,
                gradient: v["gradient"] == true,
                direct: v["direct"] == true,
                stays: false,
                ends: false,
                rebound: v["rebound"] == true,
                awaited: v["awaited"] == true,
                part: text(&v["part"]),
                root: v["root"] == true,
                in_frame: v["scope"]["kind"] == "frame",
                through: text(&v["through"]),
                blocks,
                share: if asked == 0 { 1.0 } else { blocks as f64 / asked as f64 },
                memory: v["weight"].as_u64().zip(weight).map(|(part, all)| part as f64 / all as f64),
                also: also(v, blocks),
                last_step: None,
            })
        };
        match finding["status"].as_str() {
            Some("found") => HeldBy::Found(all.filter_map(holder).collect()),
            Some("not_found") => HeldBy::NotFound(reason),
            _ => HeldBy::Skipped(reason),
        }
    }
}

/// Other containers that are the program's own and whose entries are tensors of all these blocks.
fn also(holder: &Value, blocks: u64) -> Vec<(String, String)> {
    let is_it = |n: &&Value| n["direct"] == true && n["blocks"].as_u64() == Some(blocks) && blocks > 1;
    let all = holder["names"].as_array().into_iter().flatten().filter(is_it);
    let word = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    all.filter(|_| holder["direct"] == true).map(|n| (word(&n["name"]), word(&n["type"]))).collect()
}

/// What the looks at a name say.
fn counted_of<'a>(counts: &'a Value, name: &str) -> Option<&'a Value> {
    counts.as_array().into_iter().flatten().find(|c| c["name"] == name)
}

/// What was counted of a name.
fn counted(counts: &Value, name: &str, step_at: &dyn Fn(u64) -> Option<u32>) -> Vec<Count> {
    let mine = counted_of(counts, name);
    let one = |c: &Value| {
        let taken = c[0].as_u64()?;
        Some(Count { taken, step: step_at(taken), entries: c[1].as_u64()? })
    };
    mine.and_then(|c| c["counts"].as_array()).into_iter().flatten().filter_map(one).collect()
}

impl Holder {
    /// It was seen with fewer things in it than before: something empties it.
    pub fn shrank(&self) -> bool {
        self.counts.windows(2).any(|pair| matches!(pair, [a, b] if b.entries < a.entries))
    }

    /// Something empties it while the job works: nothing in it at the last look alone may be the job's end.
    fn is_emptied(&self) -> bool {
        let before = match self.counts.split_last() {
            Some((last, before)) if last.entries == 0 => before,
            _ => &self.counts[..],
        };
        before.windows(2).any(|pair| matches!(pair, [a, b] if b.entries < a.entries))
    }

    /// It had more things in it at the last look than at the first.
    pub fn grew(&self) -> bool {
        self.counts.first().zip(self.counts.last()).is_some_and(|(a, b)| b.entries > a.entries)
    }

    /// The graphs of gradients keep it, and these are of the same tensors in every step. A list whose entries were counted once may get new ones.
    pub fn has_growing_gradients(&self) -> bool {
        let is_known = self.counts.len() > 1 || !self.is_plain();
        self.graph && self.gradient && is_known && !self.grew()
    }

    /// It is a container of Python's own.
    pub(super) fn is_plain(&self) -> bool {
        const PLAIN: [&str; 7] = ["list", "dict", "defaultdict", "OrderedDict", "deque", "set", "tuple"];
        PLAIN.contains(&self.kind.as_str())
    }

    /// The first of the last looks that all counted the same.
    pub fn still_since(&self) -> Option<&Count> {
        let last = self.counts.last()?;
        self.counts.iter().rev().take_while(|c| c.entries == last.entries).last()
    }

    /// Steps between that look and the last one.
    pub fn still(&self) -> u32 {
        let steps = self.still_since().zip(self.counts.last());
        steps.and_then(|(first, last)| Some(last.step?.saturating_sub(first.step?))).unwrap_or(0)
    }

    /// Something that runs has it: what it keeps is no garbage that Python's collector could free.
    pub fn is_reachable(&self) -> bool {
        self.root || self.grew()
    }

    /// Each block is the memory of a tensor, which is an attribute of an object of its own.
    fn is_of_many(&self) -> bool {
        let is_memory = ["Tensor", "Parameter", "Storage"].iter().any(|end| self.kind.ends_with(end));
        is_memory && self.blocks > 1 && !self.graph
    }

    /// Nobody was found who has the objects: a reference cycle may be all that does.
    pub fn may_be_garbage(&self) -> bool {
        self.is_of_many() && !self.is_reachable()
    }

    /// IPython's results of cells: `Out`, and the name by which its own modules call that.
    pub fn is_of_cells(&self) -> bool {
        ["__main__._oh", "__main__.Out"].contains(&self.name.as_str())
    }

    /// For a person: `OffloadActivations.bwd_tensor_stash, a dict with 1,116 entries`, and when that was.
    pub fn in_words(&self) -> String {
        let mut said = self.by().to_owned();
        said.push_str(&if self.is_of_cells() {
            "Out, the results of notebook cells".to_owned()
        } else {
            spoken(&self.name)
        });
        if self.in_frame {
            said.push_str(", in a frame that an exception's traceback keeps alive");
        }
        if self.is_of_many() {
            said.push_str(&format!(" of many objects, each of them {} {}", article(&self.kind), self.kind));
        } else if !self.kind.is_empty() {
            said.push_str(&format!(", {} {}", article(&self.kind), self.kind));
        }
        if self.rebound {
            said.push_str(" that is assigned anew as the job runs");
        }
        let at = |ns: u64, step: Option<u32>| match step.filter(|_| self.counted_by != StepSource::Time) {
            Some(step) => {
                let when = match self.last_step {
                    Some((end, last)) if step == last && ns > end => "after",
                    _ => "in",
                };
                format!("{when} {} {}", self.counted_by.noun(), thousands(step.into()))
            }
            None => format!("at {}", duration(ns)),
        };
        if let Some(n) = self.entries {
            let taken = self.taken.map(|ns| at(ns, self.step));
            // Of counts with the same moment in words, the last.
            let same = |c: &&Count| Some(at(c.taken, c.step)) == taken;
            let n = self.counts.iter().rev().find(same).map_or(n, |c| c.entries);
            let last = self.counts.last().filter(|last| last.entries != n && !same(last));
            let last = last.map(|c| format!(", {} {}", thousands(c.entries), at(c.taken, c.step)));
            let (taken, last) =
                (taken.map(|t| format!(" {t}")).unwrap_or_default(), last.unwrap_or_default());
            said.push_str(&format!(" with {}{taken}{last}", plural(n, "entry")));
        }
        // What has more entries than that holds several such containers.
        let is_true = |most: u64| self.counts.iter().all(|c| c.entries <= most);
        if let Some(bound) = self.bound.as_ref().filter(|b| is_true(b.entries)) {
            said.push_str(&format!(
                ", at most {} ({}={})",
                thousands(bound.entries),
                bound.kind,
                bound.entries
            ));
        }
        // What a queue has its entries in says no more.
        let is_told = |through: &&String| !self.gradient && **through != format!("{}.queue", self.kind);
        if let Some(through) = self.through.as_ref().filter(is_told) {
            said.push_str(&format!(", through {}", spoken(through)));
        }
        let is_empty = self.counts.last().is_some_and(|c| c.entries == 0);
        if self.is_emptied() && self.bound.is_none() && !is_empty {
            said.push_str("; other entries are removed from it");
        }
        if self.stays {
            said.push_str("; its number of entries no longer grows, so the growth is elsewhere");
        }
        if self.share_to_tell() < 0.995 {
            let holds = if self.is_of_many() { "together they hold" } else { "it holds" };
            said.push_str(&format!("; {holds} {}", self.part("this memory", "these blocks")));
        }
        for (name, kind) in &self.also {
            said.push_str(&format!("; {}, {} {kind}, holds the same memory", spoken(name), article(kind)));
        }
        if self.awaited {
            said.push_str(
                "; a later backward pass may still need these graphs, as in reinforcement learning, where an actor's loss waits for the end of an episode",
            );
        }
        said
    }

    /// The part that it holds: of the memory, where that is known, else of the blocks that were asked about.
    pub fn share_to_tell(&self) -> f64 {
        self.memory.unwrap_or(self.share)
    }

    /// The same in words. What a few dozen of many blocks tell is told as that.
    fn part(&self, memory: &str, blocks: &str) -> String {
        match self.memory {
            Some(part) if part < 0.005 => format!("less than 1 % of {memory}"),
            Some(part) => format!("about {:.0} % of {memory}", part * 100.0),
            None => format!("{} of {blocks}", percent(self.share)),
        }
    }

    /// All of it for a program. Times in seconds from the recording's beginning.
    pub fn to_json(&self) -> Value {
        let seconds = |ns: u64| (ns as f64 / 1e6).round() / 1e3;
        let one = |c: &Count| json!({ "seconds": seconds(c.taken), "step": c.step, "entries": c.entries });
        let counts: Vec<Value> = self.counts.iter().map(one).collect();
        json!({
            "name": self.name, "type": self.kind, "entries": self.entries, "seconds": self.taken.map(seconds), "step": self.step, "counts": counts,
            "bound": self.bound.as_ref().map(|b| json!({ "kind": b.kind, "entries": b.entries })), "shrank": self.shrank(),
            "graph": self.graph, "gradient": self.gradient, "rebound": self.rebound, "awaited": self.awaited, "owner": self.part, "reachable": self.is_reachable(),
            "blocks": self.blocks, "share": (self.share * 1e4).round() / 1e4, "through": self.through,
            "memory_share": self.memory.map(|part| (part * 1e4).round() / 1e4), "also": self.also.iter().map(|a| &a.0).collect::<Vec<_>>(),
        })
    }

    /// What of the tensors in it keeps the blocks, where it is not these themselves.
    fn by(&self) -> &'static str {
        match (self.graph, self.gradient) {
            (true, true) => "the autograd graphs of the gradients of ",
            (true, false) => "the autograd graphs of ",
            (false, true) => "the gradients of ",
            _ => "",
        }
    }

    /// For a program, as of the last look: `OffloadActivations.bwd_tensor_stash (dict, 1859 entries)`.
    pub fn in_short(&self) -> String {
        let by = self.by().trim_start_matches("the ");
        let last = self.counts.last().map(|c| c.entries).or(self.entries);
        let entries = last.map(|n| format!(", {n} {}", numbered(n, "entry")));
        let through = self.through.as_ref().map(|t| format!(" through {t}"));
        let (name, kind) = (&self.name, &self.kind);
        format!("{by}{name} ({kind}{}){}", entries.unwrap_or_default(), through.unwrap_or_default())
    }
}

/// What each of these holds. A name that keeps blocks in two ways is said once.
pub(super) fn in_words(all: &[Holder]) -> Vec<String> {
    let is_twin =
        |a: &Holder, b: &Holder| a.name == b.name && !a.graph && b.graph && !a.gradient && !b.gradient;
    let twin_of = |h: &Holder| all.iter().find(|other| is_twin(h, other) || is_twin(other, h));
    let is_second = |i: usize, h: &Holder| twin_of(h).is_some_and(|t| all[..i].iter().any(|a| a == t));
    let one = |h: &Holder| match twin_of(h) {
        Some(twin) => {
            let (own, graph) = if h.graph { (twin, h) } else { (h, twin) };
            let mut alone = own.clone();
            (alone.share, alone.memory) = (1.0, None);
            let parts = [own, graph].map(|h| h.part("the memory", "the blocks"));
            format!("{}: its tensors hold {}, their autograd graphs {}", alone.in_words(), parts[0], parts[1])
        }
        None => h.in_words(),
    };
    let mut said: Vec<String> =
        all.iter().enumerate().filter(|(i, h)| !is_second(*i, h)).map(|(_, h)| one(h)).collect();
    // One that has little of them is not who keeps them.
    let found: f64 = all.iter().map(Holder::share_to_tell).sum();
    if found < HALF && !said.is_empty() {
        said.push(format!("what holds the other {} was not found", percent(1.0 - found)));
    }
    said
}

/// Where holders have less of the blocks than this, it is said of the others that nobody is known.
const HALF: f64 = 0.5;

/// A variable of a function as people call it: `the local variable x of one()` of the recorded `x, a local of one`.
fn spoken(name: &str) -> String {
    let function = |f: &str| format!("{}()", f.rsplit("<locals>.").next().unwrap_or(f));
    if let Some((variable, f)) = name.split_once(", a local of ") {
        format!("the local variable {variable} of {}", function(f))
    } else if let Some((variable, f)) = name.split_once(", a closure of ") {
        format!("the variable {variable} that {} captured", function(f))
    } else if let Some((variable, f)) = name.split_once(", a default of ") {
        format!("the default of {variable} in {}", function(f))
    } else if let Some(f) = name.strip_prefix("a closure of ") {
        format!("a variable that {} captured", function(f))
    } else {
        name.to_owned()
    }
}

/// The article of a type, as it is spoken: `a dict`, `an Adam`; letter by letter `an SGD`, `a UNet`, `an ndarray`.
fn article(kind: &str) -> &'static str {
    let mut letters = kind.chars();
    let (first, second) = (letters.next().unwrap_or_default(), letters.next().unwrap_or_default());
    let by_letter =
        first.is_uppercase() && second.is_uppercase() || first == 'n' && !"aeiouy".contains(second);
    let with_vowel = if by_letter { "AEFHILMNORSXn" } else { "aeiouAEIOU" };
    // `a UserDict`, `a UniformSampler`.
    let is_as_you = !by_letter && ["Use", "Uni", "use", "uni"].iter().any(|u| kind.starts_with(u));
    if with_vowel.contains(first) && !is_as_you { "an" } else { "a" }
}

#[cfg(test)]
#[path = "tests/held.rs"]
mod tests;
