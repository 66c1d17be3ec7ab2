//! A recording without what is private, for a bug report: what is the job's own gets a number, what anybody can install stays.
//!
//! Items are folded before anything is made of them, so nothing that is printed can hold what is not here. What may pass is
//! listed; all else is folded. A name gets the same number throughout, in all processes of a job.

use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strandline::event::{Frame, Item, Names, NativeFrame, StackId};

/// Where installed files lie. What follows is the same for everybody.
const INSTALLED: [&str; 2] = ["/site-packages/", "/dist-packages/"];
/// Libraries of PyTorch, CUDA and the system, by the beginning of their names.
const PUBLIC: [&str; 20] = [
    "libc10",
    "libtorch",
    "libcaffe2",
    "libcuda",
    "libcublas",
    "libcudnn",
    "libcufft",
    "libcurand",
    "libcusolver",
    "libcusparse",
    "libcupti",
    "libnccl",
    "libnvidia-",
    "libnvrtc",
    "libnvToolsExt",
    "libstdc++.",
    "libc.so",
    "libm.so",
    "libgcc_s.",
    "libpython3.",
];
/// Nodes of PyTorch's own that are not called after a function.
const NODES: [&str; 6] = ["AccumulateGrad", "CopyBackwards", "CopySlices", "GraphRoot", "PyNode", "CppNode"];

/// Types that anybody has.
const TYPES: [&str; 12] = [
    "dict",
    "list",
    "tuple",
    "set",
    "frozenset",
    "deque",
    "defaultdict",
    "OrderedDict",
    "Tensor",
    "Parameter",
    "generator",
    "cell",
];
/// How the probe says that a variable's owner is a function (`preload/src/probe`).
const LOCAL: &str = ", a local of ";
const CLOSURE: &str = "a closure of ";

/// What each folded name stands for.
#[derive(Clone, Default)]
pub(crate) struct Share(Arc<Mutex<Fold>>);

#[derive(Default)]
struct Fold {
    /// By kind and name, the name it got.
    folded: HashMap<(&'static str, String), String>,
    /// The other way round.
    real: HashMap<String, String>,
    counts: HashMap<&'static str, u32>,
}

impl Fold {
    /// `before`, the next number of its kind, `after`.
    fn number(&mut self, name: &str, before: &'static str, after: &str) -> String {
        if let Some(known) = self.folded.get(&(before, name.to_owned())) {
            return known.clone();
        }
        let count = self.counts.entry(before).or_default();
        *count += 1;
        let folded = format!("{before}{count}{after}");
        self.folded.insert((before, name.to_owned()), folded.clone());
        self.real.insert(folded.clone(), name.to_owned());
        folded
    }

    /// A public name without what is before it.
    fn kept(&mut self, name: &str, kept: String) -> String {
        self.real.entry(kept.clone()).or_insert_with(|| name.to_owned());
        kept
    }

    /// A file of Python code, and whether it is the job's own.
    fn file(&mut self, file: &str, cwd: &str) -> (String, bool) {
        if file.is_empty() || file.starts_with("<frozen ") || file == "<autograd>" {
            return (file.to_owned(), false);
        }
        if file.starts_with('<') {
            let python = ["<string>", "<stdin>"].contains(&file);
            return (if python { file.to_owned() } else { self.number(file, "<code ", ">") }, true);
        }
        if let Some(kept) = installed(file) {
            return (self.kept(file, kept), false);
        }
        let whole = match file.starts_with('/') || cwd.is_empty() {
            true => file.to_owned(),
            false => format!("{}/{}", cwd.trim_end_matches('/'), file.trim_start_matches("./")),
        };
        // What tells replay's judgement of a file stays (`src/replay/site.rs`).
        let place = match () {
            () if file.contains("/torch/") => "your/torch/file",
            () if file.contains(".zip/") => "your.zip/file",
            () if file.contains("/lib/python3") || file.contains("/lib64/python3") => "your/lib/python3/file",
            () => "your/file",
        };
        (self.number(&whole, place, if file.ends_with(".py") { ".py" } else { "" }), true)
    }

    /// A library or program, and whether it is the job's own.
    fn module(&mut self, path: &str) -> (String, bool) {
        if path.is_empty() {
            return (String::new(), false);
        }
        if let Some(kept) = installed(path) {
            return (self.kept(path, kept), false);
        }
        let name = path.rsplit('/').next().unwrap_or(path);
        if PUBLIC.iter().any(|p| name.starts_with(p)) || is_python(name) {
            return (self.kept(path, format!("lib/{name}")), false);
        }
        let place = if path.contains("/torch/") { "your/torch/lib" } else { "your/lib" };
        (self.number(path, place, ".so"), true)
    }

    fn function(&mut self, name: &str) -> String {
        let is_plain = name.is_empty() || name.starts_with("+0x") || ["<module>", "<lambda>"].contains(&name);
        if is_plain { name.to_owned() } else { self.number(name, "function", "") }
    }

    fn frame(&mut self, f: &Frame, cwd: &str) -> Frame {
        let (file, own) = match f.function.starts_with("+0x") {
            true => self.module(&f.file),
            false => self.file(&f.file, cwd),
        };
        let function = if own { self.function(&f.function) } else { f.function.clone() };
        Frame { file, line: f.line, function }
    }

    fn node(&mut self, name: &str) -> String {
        let generated = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let is_torchs = NODES.contains(&name) || generated != name && generated.ends_with("Backward");
        if is_torchs { name.to_owned() } else { self.number(name, "YourFunction", "Backward") }
    }

    fn class(&mut self, name: &str) -> String {
        if TYPES.contains(&name) { name.to_owned() } else { self.number(name, "YourClass", "") }
    }

    /// A holder: who owns what, by numbers.
    fn holder(&mut self, name: &str) -> String {
        if let Some((variable, function)) = name.split_once(LOCAL) {
            return format!("{}{LOCAL}{}", self.number(variable, "name", ""), self.function(function));
        }
        if let Some(function) = name.strip_prefix(CLOSURE) {
            return format!("{CLOSURE}{}", self.function(function));
        }
        match name.rsplit_once('.') {
            Some(("__main__", variable)) => format!("__main__.{}", self.number(variable, "name", "")),
            Some((owner, attribute)) => {
                format!("{}.{}", self.class(owner), self.number(attribute, "name", ""))
            }
            None => self.number(name, "name", ""),
        }
    }

    /// What the probe has answered about a finding. Its lines get the numbers that the finding's own get.
    fn held(&mut self, f: &Value, cwd: &str) -> Value {
        let about = &f["about"];
        let site = |site: &Value, fold: &mut Fold| {
            let (file, line) = site.as_str()?.rsplit_once(':')?;
            Some(format!("{}:{line}", fold.file(file, cwd).0))
        };
        let sites: Vec<String> =
            about["sites"].as_array().into_iter().flatten().filter_map(|s| site(s, self)).collect();
        let holders = f["holders"].as_array().into_iter().flatten().map(|h| {
            json!({
                "name": h["name"].as_str().map(|n| self.holder(n)),
                "type": h["type"].as_str().map(|t| self.class(t)),
                "through": h["through"].as_str().map(|n| self.holder(n)),
                "entries": h["entries"].as_u64(), "graph": h["graph"].as_bool(), "blocks": h["blocks"].as_u64(),
            })
        });
        let holders: Vec<Value> = holders.collect();
        json!({
            "about": {
                "kind": about["kind"], "device": about["device"].as_u64(), "stream": about["stream"].as_u64(), "sites": sites,
            },
            "status": f["status"], "holders": holders, "reason": f["reason"].as_str().map(sentence),
            "blocks": f["blocks"].as_u64(),
        })
    }

    /// The program, its scripts and `-m`; no argument.
    fn command(&mut self, words: &[Value], cwd: &str) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for (i, word) in words.iter().enumerate() {
            let word = word.as_str().unwrap_or_default();
            let name = word.rsplit('/').next().unwrap_or_default();
            let folded = match i {
                0 if is_python(name) || ["torchrun", "accelerate", "deepspeed"].contains(&name) => {
                    name.to_owned()
                }
                0 if !word.ends_with(".py") => "program".to_owned(),
                _ if word.ends_with(".py") && !word.starts_with('-') => self.file(word, cwd).0,
                _ if word == "-m" || word == "-c" => word.to_owned(),
                _ => "…".to_owned(),
            };
            // How many there are says nothing either.
            if folded != "…" || all.last().is_none_or(|last| last != "…") {
                all.push(folded);
            }
        }
        all
    }
}

/// A path from the folder on in which packages are installed, or Python's own modules lie.
fn installed(path: &str) -> Option<String> {
    for root in INSTALLED {
        if let Some(at) = path.rfind(root) {
            return Some(format!("python{}", &path[at..]));
        }
    }
    if let Some(at) = path.rfind(".whl/") {
        let begin = path[..at].rfind('/').map_or(0, |i| i + 1);
        return Some(format!("python/{}", &path[begin..]));
    }
    for root in ["/lib/python3.", "/lib64/python3."] {
        if let Some(at) = path.rfind(root) {
            let version = path[at + root.len()..].split('/').next().unwrap_or_default();
            if !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit()) {
                return Some(format!("python{}", &path[at..]));
            }
        }
    }
    None
}

/// `python`, `python3`, `python3.12`.
fn is_python(name: &str) -> bool {
    let rest = name.strip_prefix("python");
    rest.is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
}

/// A sentence of ours that may name a file: every word with a path in it is left out.
fn sentence(text: &str) -> String {
    let words = text.split(' ').map(|word| if word.contains('/') { "…" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// The numbers of an object.
fn numbers(all: &Value) -> Value {
    let numbers = all.as_object().into_iter().flatten().filter(|(_, v)| v.is_number());
    Value::Object(numbers.map(|(k, v)| (k.clone(), v.clone())).collect())
}

impl Share {
    fn fold(&self) -> MutexGuard<'_, Fold> {
        // Numbers are given whole or not at all.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The frame that a folded one stands for; itself where nothing was folded.
    pub(crate) fn real(&self, f: &Frame) -> Frame {
        let fold = self.fold();
        let real = |name: &str| fold.real.get(name).map_or_else(|| name.to_owned(), Clone::clone);
        let own = f.file.starts_with("your") || f.file.starts_with('<');
        Frame {
            file: real(&f.file),
            line: f.line,
            function: if own { real(&f.function) } else { f.function.clone() },
        }
    }

    /// The functions of a folded native frame: looked up where the real one is, and folded.
    pub(crate) fn native(
        &self,
        f: &NativeFrame,
        find: impl FnOnce(&NativeFrame) -> Vec<Frame>,
    ) -> Vec<Frame> {
        let module = self.fold().real.get(&*f.module).cloned();
        let real = NativeFrame { module: module.map_or_else(|| f.module.clone(), Into::into), ..f.clone() };
        let found = find(&real);
        let mut fold = self.fold();
        let (_, own) = fold.module(&real.module);
        let one = |g: Frame| match (own, g.file == *real.module) {
            (_, true) => Frame { file: f.module.to_string(), ..g },
            // Where a library was built is nobody's business; its file's name is in its sources.
            (false, false) => Frame { file: g.file.rsplit('/').next().unwrap_or_default().to_owned(), ..g },
            (true, false) => {
                let file =
                    if g.file.is_empty() { String::new() } else { fold.number(&g.file, "your/source", "") };
                Frame { file, line: g.line, function: fold.function(&g.function) }
            }
        };
        found.into_iter().map(one).collect()
    }
}

/// Folds the items of one process.
pub(crate) struct Folder {
    share: Share,
    names: Names,
    cwd: String,
}

impl Folder {
    /// A folder of items that numbers as `share` does.
    pub(super) fn new(share: &Share) -> Folder {
        Folder { share: share.clone(), names: Names::default(), cwd: String::new() }
    }

    /// Stacks and texts that were folded.
    pub(super) fn names(&self) -> &Names {
        &self.names
    }

    /// An item, with the stacks and texts known by then.
    pub(super) fn item(&mut self, item: Item, names: &Names) -> Item {
        match item {
            Item::Stack(id) => self.stack(id, names),
            Item::Name(id) => {
                let text = self.share.fold().number(names.text(id).unwrap_or_default(), "mark ", "");
                self.names.add_text(id, text);
            }
            Item::Meta(facts) => return Item::Meta(self.facts(&facts)),
            Item::Thread(mut thread) => {
                thread.name.clear();
                return Item::Thread(thread);
            }
            _ => {}
        }
        item
    }

    fn stack(&mut self, id: StackId, names: &Names) {
        let mut fold = self.share.fold();
        let frames: Vec<Frame> = names.frames(id).map(|f| fold.frame(f, &self.cwd)).collect();
        self.names.add_stack(id, frames);
        let native = |f: &NativeFrame| NativeFrame { module: fold.module(&f.module).0.into(), ..f.clone() };
        let native: Vec<NativeFrame> = names.native(id).iter().map(native).collect();
        if !native.is_empty() {
            self.names.add_native(id, native);
        }
        if let Some(node) = names.node(id) {
            self.names.add_node(id, fold.node(node));
        }
    }

    /// The facts that a report uses and that name nobody.
    fn facts(&mut self, facts: &Value) -> Value {
        let mut fold = self.share.fold();
        if let Some(cwd) = facts.get("cwd").and_then(Value::as_str) {
            self.cwd = cwd.to_owned();
        }
        let mut kept = Map::new();
        for (key, value) in facts.as_object().into_iter().flatten() {
            let value = match (key.as_str(), value) {
                ("holders", Value::Array(all)) => all
                    .iter()
                    .map(|answer| {
                        let findings = answer["findings"].as_array().into_iter().flatten();
                        let findings: Vec<Value> = findings.map(|f| fold.held(f, &self.cwd)).collect();
                        json!({ "findings": findings, "cost": numbers(&answer["cost"]) })
                    })
                    .collect(),
                ("pid" | "rank" | "probe" | "stacks_undefined" | "events_stopped_by_max_size", v)
                    if v.is_number() || v.is_boolean() =>
                {
                    v.clone()
                }
                ("framework" | "allocator" | "ended", Value::String(s)) => json!(sentence(s)),
                ("host", Value::String(s)) => json!(fold.number(s, "host", "")),
                ("command", Value::Array(words)) => json!(fold.command(words, &self.cwd)),
                ("coverage", c) => json!({
                    "level": c["level"], "reason": c["reason"].as_str().map(sentence),
                }),
                ("devices", Value::Array(all)) => all
                    .iter()
                    .map(|d| {
                        json!({
                            "index": d["index"], "name": d["name"], "capacity_bytes": d["capacity_bytes"],
                            "memory_fraction": d["memory_fraction"],
                        })
                    })
                    .collect(),
                ("cost", cost) => numbers(cost),
                _ => continue,
            };
            kept.insert(key.clone(), value);
        }
        Value::Object(kept)
    }

    /// What was wrong, without paths.
    pub(super) fn damage(all: Vec<String>) -> Vec<String> {
        all.iter().map(|text| sentence(text)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(file: &str, function: &str) -> Frame {
        Frame { file: file.into(), line: 12, function: function.into() }
    }

    #[test]
    fn the_jobs_own_is_numbered_and_what_is_installed_stays() {
        let mut fold = Fold::default();
        let mut said = |file: &str, function: &str| {
            let f = fold.frame(&frame(file, function), "/home/secret/job");
            format!("{} {}", f.file, f.function)
        };
        assert_eq!(said("/home/secret/job/plan.py", "Secret.plan"), "your/file1.py function1");
        assert_eq!(said("plan.py", "Secret.plan"), "your/file1.py function1", "one file, by two names");
        assert_eq!(said("/srv/secret.py", "<module>"), "your/file2.py <module>");
        let trl = "/home/secret/v/lib/python3.12/site-packages/trl/x.py";
        assert_eq!(said(trl, "Trainer.step"), "python/site-packages/trl/x.py Trainer.step");
        assert_eq!(
            said("/home/secret/v/lib/python3.12/json/encoder.py", "f"),
            "python/lib/python3.12/json/encoder.py f"
        );
        assert_eq!(said("/home/secret/lib/python3.secret/x.py", "f"), "your/lib/python3/file1.py function2");
        assert_eq!(said("/home/secret/torch/nn.py", "g"), "your/torch/file1.py function3");
        assert_eq!(said("<secret>", "g"), "<code 1> function3");
        assert_eq!(said("<frozen runpy>", "g"), "<frozen runpy> g");
        assert_eq!(said("/home/secret/libcustomer.so", "+0x10"), "your/lib1.so +0x10");
        assert_eq!(said("/usr/local/cuda/lib64/libcudart.so.12", "+0x10"), "lib/libcudart.so.12 +0x10");
    }

    #[test]
    fn what_was_folded_is_found_again() {
        let share = Share::default();
        let real = frame("/home/secret/fast_llm/x.py", "Secret.step");
        let folded = share.fold().frame(&real, "");
        assert_eq!(folded, frame("your/file1.py", "function1"));
        assert_eq!(share.real(&folded), real);
        let gone = NativeFrame { module: "/home/secret/l.so".into(), ..NativeFrame::default() };
        let module = share.fold().module(&gone.module).0;
        let shown = NativeFrame { module: module.as_str().into(), ..gone.clone() };
        let found = share.native(&shown, |f| {
            assert_eq!(f, &gone);
            vec![frame("/home/secret/l.cpp", "secret::f()"), frame("/home/secret/l.so", "+0x1")]
        });
        assert_eq!(found, [frame("your/source1", "function2"), frame(&module, "+0x1")]);
    }

    #[test]
    fn facts_that_are_not_known_to_be_harmless_are_left_out() {
        let share = Share::default();
        let mut folder = Folder::new(&share);
        let facts = json!({
            "pid": 7, "host": "secret-7", "cwd": "/home/secret/job", "env": {"TOKEN": "secret"}, "user": "secret",
            "command": ["/home/secret/v/bin/python3", "-u", "plan.py", "--token=secret", "secret.yaml"],
            "coverage": {"level": "segments", "reason": "see /home/secret/log, please"},
            "devices": [{"index": 0, "name": "RTX 3090", "capacity_bytes": 1, "uuid": "secret"}],
        });
        let Item::Meta(kept) = folder.item(Item::Meta(facts), &Names::default()) else { panic!() };
        assert!(!kept.to_string().contains("secret"), "{kept}");
        assert_eq!(kept["command"], json!(["python3", "…", "your/file1.py", "…"]));
        assert_eq!((&kept["host"], &kept["coverage"]["reason"]), (&json!("host1"), &json!("see … please")));
        let about = json!({ "kind": "step-growth", "device": 0, "stream": null, "sites": ["/home/secret/job/plan.py:7"] });
        let holder = |name: &str, kind: &str| json!({ "name": name, "type": kind, "entries": 3, "graph": true, "through": "Secret.context", "blocks": 1 });
        let holders = [
            holder("Secret.stash", "dict"),
            holder("__main__.secrets", "SecretList"),
            holder("secret, a local of secret_f", "list"),
            holder("a closure of secret_f", "set"),
        ];
        let found =
            json!({ "about": about, "status": "found", "holders": holders, "reason": null, "blocks": 4 });
        let facts = json!({ "holders": [{ "number": 1, "findings": [found] }] });
        let Item::Meta(kept) = folder.item(Item::Meta(facts), &Names::default()) else { panic!() };
        assert!(!kept.to_string().to_lowercase().contains("secret"), "{kept}");
        let found = &kept["holders"][0]["findings"][0];
        assert_eq!(found["about"]["sites"], json!(["your/file1.py:7"]));
        let names: Vec<&Value> = (0..4).map(|i| &found["holders"][i]["name"]).collect();
        assert_eq!(
            names,
            ["YourClass1.name1", "__main__.name3", "name4, a local of function1", "a closure of function1"]
        );
        assert_eq!(
            (&found["holders"][0]["type"], &found["holders"][0]["through"]),
            (&json!("dict"), &json!("YourClass1.name2"))
        );
        assert_eq!(folder.share.fold().node("SecretBackward"), "YourFunction1Backward");
        assert_eq!(folder.share.fold().node("MmBackward0"), "MmBackward0");
    }
}
