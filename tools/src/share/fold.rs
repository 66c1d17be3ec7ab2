//! Which name stands for which: a name gets the same number throughout, in all processes of a job.

use super::public::{NODES, PUBLIC, TYPES, installed, is_python, sentence};
use serde_json::{Value, json};
use std::collections::HashMap;
use strandline::event::Frame;

/// How the probe says that a variable's owner is a function (`preload/src/probe`).
const OWNED: [&str; 3] = [", a local of ", ", a closure of ", ", a default of "];
/// The same of a closure whose variable is not known.
const CLOSURE: &str = "a closure of ";
/// What stands for a class of the job's own, before its number.
const CLASS: &str = "YourClass";

#[derive(Default)]
pub(super) struct Fold {
    /// By kind and name, the name it got.
    folded: HashMap<(&'static str, String), String>,
    /// The other way round.
    pub(super) real: HashMap<String, String>,
    counts: HashMap<&'static str, u32>,
}

impl Fold {
    /// `before`, the next number of its kind, `after`.
    pub(super) fn number(&mut self, name: &str, before: &'static str, after: &str) -> String {
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
    pub(super) fn file(&mut self, file: &str, cwd: &str) -> (String, bool) {
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
    pub(super) fn module(&mut self, path: &str) -> (String, bool) {
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

    pub(super) fn function(&mut self, name: &str) -> String {
        let is_plain = name.is_empty() || name.starts_with("+0x") || ["<module>", "<lambda>"].contains(&name);
        if is_plain { name.to_owned() } else { self.number(name, "function", "") }
    }

    pub(super) fn frame(&mut self, f: &Frame, cwd: &str) -> Frame {
        let (file, own) = match f.function.starts_with("+0x") {
            true => self.module(&f.file),
            false => self.file(&f.file, cwd),
        };
        let function = if own { self.function(&f.function) } else { f.function.clone() };
        Frame { file, line: f.line, function }
    }

    pub(super) fn node(&mut self, name: &str) -> String {
        let generated = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let is_torchs = NODES.contains(&name) || generated != name && generated.ends_with("Backward");
        if is_torchs { name.to_owned() } else { self.number(name, "YourFunction", "Backward") }
    }

    fn class(&mut self, name: &str) -> String {
        if TYPES.has(name) { name.to_owned() } else { self.number(name, CLASS, "") }
    }

    /// A name in the job's source: of a class that was folded before, the same as there.
    pub(super) fn name(&mut self, name: &str) -> String {
        let class = self.folded.get(&(CLASS, name.to_owned())).cloned();
        class.unwrap_or_else(|| self.number(name, "name", ""))
    }

    /// A holder: who owns what, by numbers.
    fn holder(&mut self, name: &str) -> String {
        let parts = OWNED.iter().find_map(|of| Some((of, name.split_once(of)?)));
        if let Some((of, (variable, function))) = parts {
            return format!("{}{of}{}", self.number(variable, "name", ""), self.function(function));
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

    /// How many entries a holder had at each later look.
    pub(super) fn counted(&mut self, c: &Value) -> Value {
        let looks = c["counts"].as_array().into_iter().flatten();
        let looks: Vec<Value> = looks.map(|n| json!([n[0].as_u64(), n[1].as_u64()])).collect();
        let name = c["name"].as_str().map(|n| self.holder(n));
        json!({ "name": name, "counts": looks, "most": c["most"].as_u64(), "open": c["open"] == true })
    }

    /// What the probe has answered about a finding. Its lines get the numbers that the finding's own get.
    pub(super) fn held(&mut self, f: &Value, cwd: &str) -> Value {
        let about = &f["about"];
        let site = |site: &Value, fold: &mut Fold| {
            let (file, line) = site.as_str()?.rsplit_once(':')?;
            Some(format!("{}:{line}", fold.file(file, cwd).0))
        };
        let sites: Vec<String> =
            about["sites"].as_array().into_iter().flatten().filter_map(|s| site(s, self)).collect();
        // Other names tell whether what they are of holds the same.
        let also = |h: &Value, fold: &mut Fold| {
            let all = h["names"].as_array().into_iter().flatten().filter(|n| n["direct"] == true);
            let one = |n: &Value| {
                let (name, kind) = (n["name"].as_str()?, n["type"].as_str()?);
                let (name, kind) = (fold.holder(name), fold.class(kind));
                Some(json!({ "name": name, "type": kind, "direct": true, "blocks": n["blocks"].as_u64() }))
            };
            all.filter_map(one).collect::<Vec<Value>>()
        };
        let holders = f["holders"].as_array().into_iter().flatten().map(|h| {
            json!({
                "name": h["name"].as_str().map(|n| self.holder(n)),
                "type": h["type"].as_str().map(|t| self.class(t)),
                "through": h["through"].as_str().map(|n| self.holder(n)),
                "entries": h["entries"].as_u64(), "graph": h["graph"].as_bool(),
                "gradient": h["gradient"].as_bool(), "blocks": h["blocks"].as_u64(),
                "weight": h["weight"].as_u64(), "direct": h["direct"].as_bool(), "names": also(h, self),
                "bound": { "kind": h["bound"]["kind"].as_str(), "entries": h["bound"]["entries"].as_u64() },
                "rebound": h["rebound"].as_bool(), "root": h["root"].as_bool(),
                "part": h["part"].as_str().filter(|p| ["optimizer", "module"].contains(p)),
                "scope": { "kind": h["scope"]["kind"].as_str().filter(|k| *k == "frame") },
            })
        });
        let holders: Vec<Value> = holders.collect();
        let asked = &about["asked"];
        let blocks: Vec<u64> =
            asked["blocks"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
        json!({
            "about": {
                "kind": about["kind"], "device": about["device"].as_u64(), "stream": about["stream"].as_u64(), "sites": sites,
                "asked": { "ns": asked["ns"].as_u64(), "freed": asked["freed"].as_f64(), "blocks": blocks, "anew": asked["anew"] == true },
            },
            "status": f["status"], "holders": holders, "reason": f["reason"].as_str().map(sentence),
            "blocks": f["blocks"].as_u64(), "weight": f["weight"].as_u64(), "at_ns": f["at_ns"].as_u64(),
        })
    }

    /// The program, its scripts and `-m`; no argument.
    pub(super) fn command(&mut self, words: &[Value], cwd: &str) -> Vec<String> {
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
}
