//! A recording without what is private, for a bug report: what is the job's own gets a number, what anybody can install stays.
//!
//! Items are folded before anything is made of them, so nothing that is printed can hold what is not here. What may pass is
//! listed; all else is folded.

mod fold;
mod public;
mod statement;

use fold::Fold;
use public::sentence;
use serde_json::{Map, Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strandline::event::{Frame, Item, Names, NativeFrame, StackId};

/// What each folded name stands for.
#[derive(Clone, Default)]
pub(crate) struct Share(Arc<Mutex<Fold>>);

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

/// The numbers of an object.
fn numbers(all: &Value) -> Value {
    let numbers = all.as_object().into_iter().flatten().filter(|(_, v)| v.is_number());
    Value::Object(numbers.map(|(k, v)| (k.clone(), v.clone())).collect())
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

    /// The same, taken away.
    pub(super) fn take_names(&mut self) -> Names {
        std::mem::take(&mut self.names)
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
                        let mut folded = json!({ "at_ns": answer["at_ns"].as_u64(), "findings": findings, "cost": numbers(&answer["cost"]) });
                        if let Some(counts) = answer["counts"].as_array() {
                            folded["counts"] = counts.iter().map(|c| fold.counted(c)).collect();
                        }
                        folded
                    })
                    .collect(),
                ("pid" | "rank" | "probe" | "stacks_undefined" | "events_stopped_by_max_size", v)
                    if v.is_number() || v.is_boolean() =>
                {
                    v.clone()
                }
                // That there is none of them says that a rank is none.
                ("local_rank" | "world_size", v) if v.is_number() || v.is_null() => v.clone(),
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
            "pid": 7, "rank": 0, "local_rank": null, "world_size": null, "host": "secret-7", "cwd": "/home/secret/job", "env": {"TOKEN": "secret"}, "user": "secret",
            "command": ["/home/secret/v/bin/python3", "-u", "plan.py", "--token=secret", "secret.yaml"],
            "coverage": {"level": "segments", "reason": "see /home/secret/log, please"},
            "devices": [{"index": 0, "name": "RTX 3090", "capacity_bytes": 1, "uuid": "secret"}],
        });
        let Item::Meta(kept) = folder.item(Item::Meta(facts), &Names::default()) else { panic!() };
        assert!(!kept.to_string().contains("secret"), "{kept}");
        assert_eq!(kept["command"], json!(["python3", "…", "your/file1.py", "…"]));
        assert!(
            kept["rank"] == 0 && kept.get("world_size") == Some(&Value::Null),
            "no launcher gave it: {kept}"
        );
        assert_eq!((&kept["host"], &kept["coverage"]["reason"]), (&json!("host1"), &json!("see … please")));
        let about = json!({ "kind": "step-growth", "device": 0, "stream": null, "sites": ["/home/secret/job/plan.py:7"] });
        let holder = |name: &str, kind: &str| json!({ "name": name, "type": kind, "entries": 3, "graph": true, "through": "Secret.context", "blocks": 1 });
        let holders = [
            holder("Secret.stash", "dict"),
            holder("__main__.secrets", "SecretList"),
            holder("secret, a local of secret_f", "list"),
            holder("a closure of secret_f", "set"),
            holder("secret, a closure of secret_f", "set"),
        ];
        let found =
            json!({ "about": about, "status": "found", "holders": holders, "reason": null, "blocks": 5 });
        let counts =
            json!([{ "name": "Secret.stash", "counts": [[7, 3], [9, 4]], "most": null, "open": false }]);
        let facts = json!({ "holders": [{ "number": 1, "findings": [found], "counts": counts }] });
        let Item::Meta(kept) = folder.item(Item::Meta(facts), &Names::default()) else { panic!() };
        assert!(!kept.to_string().to_lowercase().contains("secret"), "{kept}");
        let counted = &kept["holders"][0]["counts"][0];
        assert_eq!(
            (&counted["name"], &counted["counts"]),
            (&json!("YourClass1.name1"), &json!([[7, 3], [9, 4]]))
        );
        let found = &kept["holders"][0]["findings"][0];
        assert_eq!(found["about"]["sites"], json!(["your/file1.py:7"]));
        let names: Vec<&Value> = (0..5).map(|i| &found["holders"][i]["name"]).collect();
        assert_eq!(
            names,
            [
                "YourClass1.name1",
                "__main__.name3",
                "name4, a local of function1",
                "a closure of function1",
                "name4, a closure of function1"
            ]
        );
        assert_eq!(
            (&found["holders"][0]["type"], &found["holders"][0]["through"]),
            (&json!("dict"), &json!("YourClass1.name2"))
        );
        assert_eq!(folder.share.fold().node("SecretBackward"), "YourFunction1Backward");
        assert_eq!(folder.share.fold().node("MmBackward0"), "MmBackward0");
    }
}
