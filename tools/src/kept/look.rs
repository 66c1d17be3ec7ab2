//! Where a keeper's statement is looked for: in which files, and for which of the names on the way to it.

use super::find::{Found, PROVED, Proved, Statement, find, surest};
use super::keeper::Keeper;
use super::names::scopes;
use super::needs::Read;
use super::package;
use super::reads;
use super::scope::has_word;
use super::shared::{self, Shared};
use super::texts::Texts;
use crate::holder::HALF;
use serde_json::Value;
use std::collections::BTreeSet;
use strandline::event::Frame;
use strandline::report::{Holder, KeptAt};

/// Part of the blocks of which a second statement is worth a word.
pub(super) const GOOD_PART: f64 = 0.2;

/// The statement that keeps what a finding is about, and others that do, with their parts of the blocks, where these are good parts.
pub(super) type Statements = (KeptAt, Vec<(KeptAt, f64)>);

/// A keeper as the answer has it; `of`: whose type is told beside the scope.
pub(super) fn keeper(scope: &Value, of: &Value, holder: &Value) -> Option<Keeper> {
    let text = |v: &Value, key: &str| v.get(key).and_then(Value::as_str).map(str::to_owned);
    let is = |key: &str| holder.get(key).and_then(Value::as_bool).unwrap_or(false);
    Some(Keeper {
        kind: text(scope, "kind")?,
        variable: text(scope, "variable")?,
        class: text(scope, "class"),
        module: text(scope, "module"),
        function: text(scope, "function"),
        first_line: scope.get("line").and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok()),
        type_name: text(of, "type").unwrap_or_default(),
        graph: is("graph"),
        rebound: of.get("rebound").and_then(Value::as_bool).unwrap_or(false),
        direct: is("direct"),
        each: false,
        once: is("once"),
        awaited: is("awaited"),
        trains: false,
        placed: false,
        is_outside: false,
        also: Vec::new(),
        read: None,
        is_shared: false,
        allocated: Vec::new(),
    })
}

/// Whether a container on the way is one of many, each for an entry of a container of a package's that grows, as hooks of a module are: it has fewer
/// entries than there are blocks of those that were asked about.
fn is_for_each(of: &Value, told: &Value, is_own: &dyn Fn(&str) -> bool) -> bool {
    let count = |v: &Value, key: &str| v.get(key).and_then(Value::as_u64);
    let outer = told.get("scope").and_then(|s| s.get("file")).and_then(Value::as_str);
    let (Some(outer), Some(entries), Some(grown)) = (outer, count(of, "entries"), count(told, "entries"))
    else {
        return false;
    };
    let blocks = count(of, "blocks").unwrap_or(0);
    !is_own(outer) && entries < blocks && grown >= blocks
}

/// Where is looked.
pub(super) struct Look<'a> {
    pub(super) texts: &'a Texts<'a>,
    /// Frames of the user's own that lead to a line that allocated it.
    pub(super) stacks: &'a [&'a Frame],
    /// The script that the job ran.
    pub(super) script: Option<&'a str>,
    /// Files and lines that the allocation of what is kept led through, all of them.
    pub(super) lines: &'a [(&'a str, u32)],
    /// Files of the user's own from which anything was allocated in this job.
    pub(super) elsewhere: BTreeSet<&'a str>,
    /// For each line that allocated it, what leads there, and its part of it.
    pub(super) sites: Vec<(Vec<(&'a str, u32)>, f64)>,
}

impl Look<'_> {
    /// The statement that puts things into a holder, of those that an answer has.
    pub(super) fn of(
        &self,
        answer: &Value,
        holder: &Holder,
        is_own: &dyn Fn(&str) -> bool,
    ) -> Option<Statements> {
        let mut told = answer.get("holders")?.as_array()?.iter();
        let told = told.find(|h| h["name"] == *holder.name && (h["graph"] == true) == holder.graph)?;
        self.first(scopes(told, holder, is_own)?, told, is_own)
    }

    /// The statement for the first of these names that has one. Where several could be it, none is told.
    pub(super) fn first<'v>(
        &self,
        scopes: impl IntoIterator<Item = (&'v Value, &'v Value)>,
        told: &Value,
        is_own: &dyn Fn(&str) -> bool,
    ) -> Option<Statements> {
        let scopes: Vec<_> = scopes.into_iter().collect();
        let is_same =
            |a: &Value, b: &Value| a["entries"].is_u64() && ["type", "entries"].iter().all(|k| a[k] == b[k]);
        for (scope, of) in &scopes {
            let others = scopes.iter().filter(|(s, o)| s != scope && is_same(o, of));
            let also = others.filter_map(|(s, o)| keeper(s, o, told)).collect();
            let is_main = scope.get("module").and_then(Value::as_str) == Some("__main__");
            let file = scope.get("file").and_then(Value::as_str);
            let file = file.or_else(|| self.script.filter(|_| is_main));
            let at = |file: &str, Statement { line, text, remedy }: Statement| KeptAt {
                file: file.to_owned(),
                line,
                source: text,
                remedy,
            };
            let each = is_for_each(of, told, is_own);
            match self.at(&Keeper { also, each, ..keeper(scope, of, told)? }, file, is_own) {
                Some((file, Found::One(statement, _))) => return Some((at(&file, statement), Vec::new())),
                Some((file, Found::Each(all))) => {
                    let (one, other) = self.apart(&file, all)?;
                    let others = other.map(|(s, share)| (at(&file, s), share));
                    return Some((at(&file, one), others.into_iter().collect()));
                }
                Some((_, Found::Several)) => return None,
                _ => {}
            }
        }
        None
    }

    /// Of several statements the one that keeps most, and the next; where they have not each lines of its own that allocate it, the one of which
    /// the stacks are surest.
    fn apart(&self, file: &str, all: Vec<Proved>) -> Option<(Statement, Option<(Statement, f64)>)> {
        let is_of = |p: &Proved, at: &(&str, u32)| at.0 == file && p.lines.contains(&at.1);
        let of = |p: &Proved| -> Vec<bool> {
            self.sites.iter().map(|(lines, _)| lines.iter().any(|at| is_of(p, at))).collect()
        };
        let sites: Vec<Vec<bool>> = all.iter().map(of).collect();
        let share = |s: &[bool]| self.sites.iter().zip(s).filter(|(_, is)| **is).map(|((_, n), _)| n).sum();
        let shares: Vec<f64> = sites.iter().map(|s| share(s)).collect();
        let is_shared = (0..self.sites.len()).any(|i| sites.iter().filter(|s| s[i]).count() > 1);
        if is_shared || shares.iter().filter(|n| **n >= GOOD_PART).count() < 2 {
            return Some((surest(all)?.statement, None));
        }
        let mut all: Vec<_> = shares.into_iter().zip(all).collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut all = all.into_iter().map(|(share, proved)| (proved.statement, share));
        Some((all.next()?.0, all.next()))
    }

    /// What puts things into a keeper, and in which file; `file`: that in which the keeper stands.
    fn at(
        &self,
        keeper: &Keeper,
        file: Option<&str>,
        is_own: &dyn Fn(&str) -> bool,
    ) -> Option<(String, Found)> {
        let own = file.filter(|f| is_own(f));
        // A package's class may have an attribute that it knows nothing of: a script gave it that.
        let package = file.filter(|_| own.is_none()).and_then(|f| self.texts.unchanged(f).ok());
        let is_unknown = package.is_some_and(|text| !has_word(&text, &keeper.variable));
        let mut files: Vec<&str> = own.into_iter().collect();
        let gives = |text: &str| is_unknown && text.contains(&format!(".{} = ", keeper.variable));
        // Whoever gives it that knows best: a hook gets what others allocated.
        let is_giver = |file: &&&str| self.texts.unchanged(file).is_ok_and(|text| gives(&text));
        files.extend(self.elsewhere.iter().filter(|_| is_unknown).filter(is_giver));
        let is_anywhere = matches!(keeper.kind.as_str(), "attribute" | "class") || file.is_none();
        if is_anywhere || keeper.variable.ends_with("_hooks") {
            // An attribute may be used wherever the class is: of that the stacks tell a part. So it is with a module that has no file.
            for frame in self.stacks {
                if !files.contains(&frame.file.as_str()) {
                    files.push(&frame.file);
                }
            }
        }
        let outside = own.map(|own| self.outside(keeper, own, is_own)).unwrap_or_default();
        files.extend(outside.iter().map(String::as_str));
        let mut found: Option<(String, Found)> = None;
        for file in files {
            let Some(text) = self.texts.of_own(file) else { continue };
            let lines = self.lines.iter().filter(|l| l.0 == file).map(|l| l.1);
            let (allocated, trains) = (lines.collect(), self.texts.trains);
            let is_outside = outside.iter().any(|f| f == file);
            let placed = found.is_some();
            let shared = self.shared(keeper, file, own, is_own);
            let (read, is_shared) = (shared.read, shared.is_named);
            let keeper = Keeper { allocated, trains, placed, is_outside, read, is_shared, ..keeper.clone() };
            // An attribute of this name may be another class's: in another file than the class's own the stacks must lead to it, where another
            // was found before, or the class is a package's.
            let sure = |f: &Found| match f {
                Found::One(_, sure) => *sure,
                Found::Each(all) => all.first().map_or(0, |p| p.sure),
                Found::Nothing | Found::Several => 0,
            };
            let here = match find(&text, &keeper) {
                Found::One(one, 0) if !outside.is_empty() => {
                    let is_given = self.is_given_elsewhere(&keeper, file, &package::fillers(&text, &keeper));
                    Found::One(one, if is_given { PROVED } else { 0 })
                }
                here => here,
            };
            match (here, &found) {
                (Found::Nothing, _) => {}
                (here, None) if own.is_some() || gives(&text) || sure(&here) > 0 => {
                    found = Some((file.to_string(), here));
                }
                (_, None) => {}
                (here, Some((_, before))) if sure(&here) < sure(before) => {}
                (here, Some((_, before))) if is_outside && sure(&here) >= PROVED && sure(before) == 0 => {
                    found = Some((file.to_string(), here));
                }
                _ => return Some((file.to_string(), Found::Several)),
            }
        }
        let package = || self.by_package(keeper, file.filter(|_| own.is_none())?, is_own);
        found.or_else(package)
    }

    /// What others of the user's own files than this do with a keeper, which stands in `own`.
    fn shared(
        &self,
        keeper: &Keeper,
        file: &str,
        own: Option<&str>,
        is_own: &dyn Fn(&str) -> bool,
    ) -> Shared {
        let text = self.texts.unchanged(own.unwrap_or(file)).unwrap_or_default();
        let modules = shared::modules(&text, keeper);
        let all = self.elsewhere.iter().map(|f| (*f).to_owned());
        let beside = self.texts.beside(file).into_iter().filter(|f| is_own(f));
        let all: BTreeSet<String> =
            all.chain(self.script.map(str::to_owned)).chain(beside).filter(|f| f != file).collect();
        let mut found = Shared::default();
        for file in all {
            let Ok(text) = self.texts.unchanged(&file) else { continue };
            if own != Some(file.as_str()) && shared::has_class(&text, keeper) {
                continue;
            }
            let here = shared::shared(&text, keeper, &modules);
            found.is_named |= here.is_named;
            let name = file.rsplit('/').next().map(str::to_owned);
            let read = here.read.map(|r| Read { file: name, ..r });
            found.read = reads::first(found.read.into_iter().chain(read));
        }
        found
    }

    /// Whether calls in another file give these functions of a file what was allocated.
    fn is_given_elsewhere(&self, keeper: &Keeper, file: &str, fillers: &[package::Filler]) -> bool {
        let mut others = self.stacks.iter().map(|f| f.file.as_str()).filter(|f| *f != file);
        others.any(|other| {
            let lines = self.lines.iter().filter(|l| l.0 == other).map(|l| l.1).collect();
            let keeper = Keeper { allocated: lines, ..keeper.clone() };
            let text = self.texts.unchanged(other);
            text.is_ok_and(|text| !package::giving(&text, &keeper, fillers).is_empty())
        })
    }

    /// Other files of the user's own in which a module's variable is used: those from which anything was allocated, and those beside it.
    fn outside(&self, keeper: &Keeper, file: &str, is_own: &dyn Fn(&str) -> bool) -> Vec<String> {
        let module = keeper.module.as_deref().filter(|m| keeper.kind == "global" && *m != "__main__");
        let Some(module) = module.and_then(|m| m.rsplit('.').next()) else { return Vec::new() };
        let all = self.elsewhere.iter().map(|f| (*f).to_owned());
        let all = all.chain(self.texts.beside(file).into_iter().filter(|f| is_own(f)));
        let all: BTreeSet<String> = all.filter(|f| f != file).collect();
        let uses = |text: &str| has_word(text, &keeper.variable) && has_word(text, module);
        all.into_iter().filter(|f| self.texts.unchanged(f).is_ok_and(|text| uses(&text))).collect()
    }

    /// The user's call that leads to what keeps something in a package's file, or gives it to that.
    fn by_package(
        &self,
        keeper: &Keeper,
        file: &str,
        is_own: &dyn Fn(&str) -> bool,
    ) -> Option<(String, Found)> {
        let fillers = package::fillers(&self.texts.unchanged(file).ok()?, keeper);
        let is_filler = |at: &&(&str, u32)| at.0 == file && fillers.iter().any(|f| f.lines.contains(&at.1));
        let mut led: Vec<(&(&str, u32), f64)> = Vec::new();
        for (lines, share) in &self.sites {
            let after = lines.iter().skip_while(|at| !is_filler(at));
            let Some(own) = after.skip(1).find(|at| is_own(at.0)) else { continue };
            match led.iter_mut().find(|(at, _)| *at == own) {
                Some((_, all)) => *all += share,
                None => led.push((own, *share)),
            }
        }
        if let [((own, at), share)] = led.as_slice() {
            let leading =
                package::leading(&self.texts.of_own(own)?, *at, &fillers).filter(|_| *share > HALF)?;
            return Some(((*own).to_owned(), Found::One(leading, PROVED)));
        }
        let mut own = self.stacks.iter().map(|f| f.file.as_str()).collect::<Vec<_>>();
        own.sort_unstable();
        own.dedup();
        let giving = own.into_iter().filter(|_| led.is_empty()).filter_map(|file| {
            let lines = self.lines.iter().filter(|l| l.0 == file).map(|l| l.1).collect();
            let keeper = Keeper { allocated: lines, ..keeper.clone() };
            let all = package::giving(&self.texts.of_own(file)?, &keeper, &fillers);
            (!all.is_empty()).then(|| (file.to_owned(), Found::Each(all)))
        });
        let mut giving = giving.collect::<Vec<_>>();
        if giving.len() == 1 { giving.pop() } else { None }
    }
}

/// The script: once it has run to its end `__main__` does not say any more where it lies, and a module-level list is asked about then. A thread's
/// stacks do not lead to it; `others` of the job do.
pub(super) fn script<'a>(
    stacks: &[&'a Frame],
    others: impl IntoIterator<Item = impl IntoIterator<Item = &'a Frame>>,
) -> Option<&'a str> {
    fn outermost<'a>(frames: impl IntoIterator<Item = &'a Frame>) -> Option<&'a str> {
        frames.into_iter().filter(|f| f.function == "<module>").last().map(|f| f.file.as_str())
    }
    outermost(stacks.iter().copied()).or_else(|| others.into_iter().find_map(outermost))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::fs::{File, create_dir_all, remove_dir_all, write};
    use std::path::Path;
    use std::time::UNIX_EPOCH;

    fn written<const N: usize>(folder: &Path, files: [(&str, &str); N]) -> [String; N] {
        files.map(|(name, text)| {
            let path = folder.join(name);
            write(&path, text).unwrap();
            File::options().write(true).open(&path).unwrap().set_modified(UNIX_EPOCH).unwrap();
            path.to_str().unwrap().to_owned()
        })
    }

    /// A job that began after all of these files were written.
    fn a_job<'a>() -> Texts<'a> {
        Texts { cwd: None, began: 1_000_000_000, trains: true, modified: RefCell::default() }
    }

    fn looks<'a>(texts: &'a Texts<'a>, lines: &'a [(&'a str, u32)]) -> Look<'a> {
        Look { texts, stacks: &[], script: None, lines, elsewhere: BTreeSet::new(), sites: Vec::new() }
    }

    #[test]
    fn what_a_class_of_another_own_file_does_is_no_other_statement_than_a_call_of_it() {
        let folder = std::env::temp_dir().join(format!("strandline-two-files-{}", std::process::id()));
        create_dir_all(&folder).unwrap();
        let class = "class Tracker:\n    def update(self, name, x):\n        self.rows.setdefault(name, []).append(x)\n";
        let script = "t = Tracker()\nfor x in data:\n    out = net(x)\n    t.update('out', out)\n";
        let [class, script] = written(&folder, [("meters.py", class), ("train.py", script)]);
        let texts = a_job();
        let frame = Frame { file: script.clone(), function: "<module>".into(), line: 3 };
        let lines = [(script.as_str(), 3)];
        let elsewhere = BTreeSet::new();
        let look = Look { stacks: &[&frame], elsewhere, ..looks(&texts, &lines) };
        let keeper = super::super::tests::attribute("Tracker", "rows", "dict");
        let at = |file| look.at(&keeper, Some(file), &|f| f != "package.py").unwrap();
        let (file, found) = at(&class);
        assert!(file == class && matches!(found, Found::One(Statement { line: 3, .. }, 0)), "{found:?}");
        let (file, found) = at("package.py");
        assert!(file == script && matches!(found, Found::One(Statement { line: 4, .. }, 3)), "{found:?}");
        remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn two_statements_are_told_where_each_has_lines_of_its_own_that_allocate_it() {
        let folder = std::env::temp_dir().join(format!("strandline-apart-{}", std::process::id()));
        create_dir_all(&folder).unwrap();
        let source = "cache = {}\nfor i in data:\n    x = load(i)\n    out = net(x)\n    cache.setdefault(i, []).append(out)\n    cache[i].append(x)\n    cache[i].append(out.sum())\n";
        let [file] = written(&folder, [("train.py", source)]);
        let texts = a_job();
        let keeper = super::super::tests::global("cache", "dict");
        let told = |lines: &[u32], sites: &[(&[u32], f64)]| {
            let lines: Vec<_> = lines.iter().map(|l| (file.as_str(), *l)).collect();
            let at = |lines: &[u32]| lines.iter().map(|l| (file.as_str(), *l)).collect();
            let sites = sites.iter().map(|(lines, share)| (at(lines), *share)).collect();
            let script = Some(file.as_str());
            let look = Look { script, sites, ..looks(&texts, &lines) };
            match look.at(&keeper, script, &|_| true)?.1 {
                Found::One(one, _) => Some((one.line, None)),
                Found::Each(all) => look
                    .apart(&file, all)
                    .map(|(one, other)| (one.line, other.map(|(s, share)| (s.line, (share * 100.0) as u32)))),
                _ => None,
            }
        };
        assert_eq!(told(&[3, 4], &[(&[3], 0.4), (&[4], 0.6)]), Some((5, Some((6, 40)))));
        assert_eq!(told(&[3, 4], &[(&[3], 0.7), (&[4], 0.3)]), Some((6, Some((5, 30)))));
        assert_eq!(told(&[3, 4], &[(&[3, 4], 1.0)]), None, "one stack leads to both");
        assert_eq!(told(&[3, 4], &[(&[3], 0.9), (&[4], 0.1)]), None, "little of it is told by nobody");
        assert_eq!(told(&[4], &[(&[4], 1.0)]), Some((5, None)));
        remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_variable_of_a_module_is_filled_in_any_file_that_imports_it() {
        let folder = std::env::temp_dir().join(format!("strandline-outside-{}", std::process::id()));
        create_dir_all(&folder).unwrap();
        let layers = "from . import registry as r\ndef record(x):\n    y = x * 2\n    r.ROWS.append(y)\n";
        let registry = "ROWS = []\ndef register(t):\n    ROWS.append(t)\n";
        let other = "from .other import registry\nROWS = []\nROWS.append(registry)\n";
        let [layers, registry, _] =
            written(&folder, [("layers.py", layers), ("registry.py", registry), ("other.py", other)]);
        let texts = a_job();
        let mut keeper = super::super::tests::global("ROWS", "list");
        keeper.module = Some("pkg.registry".into());
        let found =
            |lines: &[(&str, u32)]| looks(&texts, lines).at(&keeper, Some(&registry), &|_| true).unwrap();
        assert_eq!(found(&[]).1, Found::Several, "either may be it");
        let (file, one) = found(&[(&layers, 3)]);
        assert!(file == layers && matches!(one, Found::One(Statement { line: 4, .. }, 3)), "{file} {one:?}");
        let script = "from pkg import registry\nout = net(x)\nregistry.register(out)\n";
        let [script] = written(&folder, [("main.py", script)]);
        let frame = Frame { file: script.clone(), line: 2, ..Frame::default() };
        let (stacks, lines) = ([&frame], [(script.as_str(), 2)]);
        let look = Look { stacks: &stacks, lines: &lines, ..looks(&texts, &[]) };
        let (file, one) = look.at(&keeper, Some(&registry), &|_| true).unwrap();
        assert!(
            file == registry && matches!(one, Found::One(Statement { line: 3, .. }, 2)),
            "{file} {one:?}"
        );
        write(&layers, "from .registry import ROWS\nprint(len(ROWS))\n").unwrap();
        File::options().write(true).open(&layers).unwrap().set_modified(UNIX_EPOCH).unwrap();
        let (file, one) = found(&[]);
        assert!(
            file == registry && matches!(one, Found::One(Statement { line: 3, .. }, 0)),
            "{file} {one:?}"
        );
        remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_a_hook_gives_a_packages_object_is_kept_there_though_its_file_allocated_none_of_it() {
        let folder = std::env::temp_dir().join(format!("strandline-giver-{}", std::process::id()));
        create_dir_all(&folder).unwrap();
        let hook = "def capture(m, args, out):\n    if not hasattr(m, 'acts'):\n        m.acts = []\n    m.acts.append(args[0])\n";
        let files = [
            ("linear.py", "class Linear: pass\n"),
            ("hook.py", hook),
            ("run.py", "net = Linear(3)\nnet(rand(9))\n"),
        ];
        let [package, hook, run] = written(&folder, files);
        let texts = a_job();
        let (frame, lines) = (Frame { file: run.clone(), line: 2, ..Frame::default() }, [(run.as_str(), 2)]);
        let keeper = super::super::tests::attribute("Linear", "acts", "list");
        let elsewhere = BTreeSet::from([run.as_str(), hook.as_str()]);
        let look = Look { stacks: &[&frame], elsewhere, ..looks(&texts, &lines) };
        let (file, found) = look.at(&keeper, Some(&package), &|f| f != package).unwrap();
        assert!(
            file == hook && matches!(found, Found::One(Statement { line: 4, .. }, 0)),
            "{file}: {found:?}"
        );
        remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_script_is_where_the_job_began_though_a_thread_allocated() {
        let frame =
            |file: &str, function: &str| Frame { file: file.into(), function: function.into(), line: 1 };
        let main = [frame("net.py", "forward"), frame("data.py", "<module>"), frame("serve.py", "<module>")];
        let thread = [frame("serve.py", "infer"), frame("pool.py", "run")];
        let of = |stacks: &[&Frame]| script(stacks, [&thread[..], &main[..]]).map(str::to_owned);
        assert_eq!(of(&[&thread[0]]).as_deref(), Some("serve.py"));
        assert_eq!(of(&[&main[0], &main[1]]).as_deref(), Some("data.py"), "its own stack comes first");
        assert_eq!(script(&[], [&thread[..]]), None);
    }
}
