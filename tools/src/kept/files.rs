//! From a finding to the statement that keeps it: the probe's answer, and the user's own source as it lies on this machine.

use super::find::{Found, Statement, find};
use super::gradients;
use super::keeper::Keeper;
use super::remade::{self, Line};
use crate::{files, holder};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use strandline::detect::Finding;
use strandline::event::steps::StepSource;
use strandline::event::{Frame, Names, StackId, total};
use strandline::reader::open_file;
use strandline::replay::{Replay, Site};
use strandline::report::{HeldBy, Holder, KeptAt};

/// Part of the blocks that another holder than the first has, whose statement is worth a word.
const GOOD_PART: f64 = 0.2;

/// The statement that keeps what a finding is about, and that of another holder with its part of the blocks, where it has a good part of them.
type Statements = (KeptAt, Option<(KeptAt, f64)>);

/// The statements that keep what a finding is about, which is `held_by` these; else the file that was not searched because it was modified
/// since. `began`: when its recording did, in nanoseconds of the Unix epoch. What was written since then, is not the user's own, or was
/// recorded on another machine, is not read.
pub(crate) fn kept_at(
    finding: &Finding,
    replay: &Replay,
    held_by: &HeldBy,
    names: &Names,
    began: u64,
) -> Result<Statements, Option<String>> {
    let texts = Texts::of(replay, began);
    search(finding, replay, held_by, names, &texts).ok_or_else(|| texts.modified.into_inner())
}

fn search(
    finding: &Finding,
    replay: &Replay,
    held_by: &HeldBy,
    names: &Names,
    texts: &Texts<'_>,
) -> Option<Statements> {
    // The user's own, and a file at all.
    let is_own = |file: &str| !file.is_empty() && !replay.is_installed(file);
    if !is_of_this_machine(replay) {
        return None;
    }
    if finding.is_remade() {
        let site = finding.sites.first().and_then(|s| s.site(replay));
        let frames = site.into_iter().flat_map(|s| names.frames(s.stack)).filter(|f| is_own(&f.file));
        if let Some(one) = remade_at(frames, texts) {
            return Some((one, None));
        }
    }
    let stacks = |of: fn(&Site) -> Vec<StackId>| -> Vec<&Frame> {
        let sites = finding.sites.iter().take(4).filter_map(|s| s.site(replay));
        sites.flat_map(|s| of(&s)).flat_map(|id| names.frames(id)).filter(|f| is_own(&f.file)).collect()
    };
    // What a backward has made, and nothing of Python's leads to, is in a cycle of C++'s: a gradient's graph has the tensor whose gradient it is.
    let of_cycle = || {
        let backwards = stacks(|s| vec![s.backward_stack]);
        backwards.into_iter().find_map(|f| gradients_at(f, texts)).map(|one| (one, None))
    };
    let answer = holder::answer_of(finding, replay)?;
    let HeldBy::Found(holders) = held_by else {
        return if matches!(held_by, HeldBy::NotFound(_)) { of_cycle() } else { None };
    };
    // What does not grow keeps none of what does; and gradients are made by a backward, which may give them a graph.
    let first = holders.first().filter(|h| !h.stays && (h.graph || !h.gradient))?;
    // One that explains little of it does not say where it is kept.
    let staying = total(holders.iter().filter(|h| h.stays || h.ends).map(|h| h.blocks));
    if first.blocks * 5 < number(answer, "blocks").saturating_sub(staying) * 2 {
        return of_cycle();
    }
    let stacks = stacks(|s| vec![s.stack, s.backward_stack]);
    if first.has_growing_gradients() {
        return stacks.iter().find_map(|f| gradients_at(f, texts)).map(|one| (one, None));
    }
    let lines = answer.get("about").and_then(|a| a.get("lines")?.as_array());
    let lines: Vec<(&str, u32)> = lines.into_iter().flatten().filter_map(line).collect();
    let others = || replay.sites().iter().map(|s| names.frames(s.stack).filter(|f| is_own(&f.file)));
    let elsewhere = others().flatten().map(|f| f.file.as_str()).collect();
    let look = Look { texts, stacks: &stacks, script: script(&stacks, others()), lines: &lines, elsewhere };
    let of = |holder: &Holder| look.of(answer, holder, &is_own);
    let one = of(first)?;
    let is_good = |h: &&Holder| !h.stays && !h.gradient && h.share >= GOOD_PART;
    let others = holders.iter().skip(1).filter(is_good).filter_map(|h| Some((of(h)?, h.share)));
    let mut others = others.filter(|(k, _)| (&k.file, k.line) != (&one.file, one.line));
    let other = others.next();
    Some((one, other))
}

/// The same of one statement, for what Python itself has named, in the words of the probe's answer: `scopes`, the nearest first. `stack`: where it
/// was allocated.
pub(crate) fn kept_in_scopes<'a>(
    scopes: &[Value],
    stack: impl IntoIterator<Item = &'a Frame>,
    replay: &Replay,
    began: u64,
) -> Result<KeptAt, Option<String>> {
    if !is_of_this_machine(replay) {
        return Err(None);
    }
    let is_own = |file: &str| !file.is_empty() && !replay.is_installed(file);
    let stacks: Vec<&Frame> = stack.into_iter().filter(|f| is_own(&f.file)).collect();
    let lines: Vec<(&str, u32)> = stacks.iter().map(|f| (f.file.as_str(), f.line)).collect();
    let texts = Texts::of(replay, began);
    let none = std::iter::empty::<std::iter::Empty<&Frame>>();
    let script = script(&stacks, none);
    let look = Look { texts: &texts, stacks: &stacks, script, lines: &lines, elsewhere: BTreeSet::new() };
    let found = look.first(scopes.iter().map(|scope| (scope, scope)), &Value::Null, &is_own);
    found.ok_or_else(|| texts.modified.into_inner())
}

fn number(v: &Value, key: &str) -> u64 {
    v.get(key).and_then(Value::as_u64).unwrap_or(0)
}

/// Where the names stand whose statements are looked for, and whose types are told there, in their order: the holder's own, then those on the way to
/// it. Where the holder has as many entries at each look, something in them grows: then the innermost container comes first. So does that of
/// an object of a class of the user's own.
fn scopes<'a>(
    told: &'a Value,
    holder: &Holder,
    is_own: &dyn Fn(&str) -> bool,
) -> Option<Vec<(&'a Value, &'a Value)>> {
    let own = (told.get("scope")?, told);
    let near = told.get("names").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let near = near.iter().filter(|n| number(n, "blocks") * 2 >= holder.blocks);
    let is_still = holder.counts.len() > 1 && holder.counts.iter().all(|c| Some(c.entries) == holder.entries);
    let is_nested = is_still && !holder.graph && !holder.rebound && holder.part.is_none();
    let is_object = holder.entries.is_none() && !holder.graph && !holder.rebound;
    let is_users = |n: &Value| n["class"].is_string() && n["file"].as_str().is_some_and(is_own);
    let is_first = |n: &&Value| n["entries"].is_u64() && (is_nested || is_object && is_users(n));
    let (first, rest): (Vec<_>, Vec<_>) = near.partition(is_first);
    let pairs = |all: Vec<&'a Value>| all.into_iter().map(|n| (n, n));
    Some(pairs(first).chain([own]).chain(pairs(rest)).collect())
}

/// The statement that makes a block anew, and larger each time: the innermost of these lines of the user's own, or that of whoever it returns it to.
fn remade_at<'a>(frames: impl IntoIterator<Item = &'a Frame>, texts: &Texts<'_>) -> Option<KeptAt> {
    for frame in frames {
        match remade::at(&texts.of_own(&frame.file)?, frame.line) {
            Line::Builds(Statement { line, text, remedy }) => {
                return Some(KeptAt { file: frame.file.clone(), line, source: text, remedy });
            }
            Line::Returns => {}
            Line::Other => return None,
        }
    }
    None
}

/// The backward that gives gradients a graph, where the line of a frame has it.
fn gradients_at(frame: &Frame, texts: &Texts<'_>) -> Option<KeptAt> {
    let Statement { line, text, remedy } = gradients::at(&texts.of_own(&frame.file)?, frame.line)?;
    Some(KeptAt { file: frame.file.clone(), line, source: text, remedy })
}

/// `train.py:12`.
fn line(text: &Value) -> Option<(&str, u32)> {
    let (file, line) = text.as_str()?.rsplit_once(':')?;
    Some((file, line.parse().ok()?))
}

/// A keeper as the answer has it; `of`: whose type is told beside the scope.
fn keeper(scope: &Value, of: &Value, holder: &Value) -> Option<Keeper> {
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
        awaited: is("awaited"),
        trains: false,
        placed: false,
        allocated: Vec::new(),
    })
}

/// Where is looked.
struct Look<'a> {
    texts: &'a Texts<'a>,
    /// Frames of the user's own that lead to a line that allocated it.
    stacks: &'a [&'a Frame],
    /// The script that the job ran.
    script: Option<&'a str>,
    /// Files and lines that the allocation of what is kept led through, all of them.
    lines: &'a [(&'a str, u32)],
    /// Files of the user's own from which anything was allocated in this job.
    elsewhere: BTreeSet<&'a str>,
}

impl Look<'_> {
    /// The statement that puts things into a holder, of those that an answer has.
    fn of(&self, answer: &Value, holder: &Holder, is_own: &dyn Fn(&str) -> bool) -> Option<KeptAt> {
        let mut told = answer.get("holders")?.as_array()?.iter();
        let told = told.find(|h| h["name"] == *holder.name && (h["graph"] == true) == holder.graph)?;
        self.first(scopes(told, holder, is_own)?, told, is_own)
    }

    /// The statement for the first of these names that has one. Where several could be it, none is told.
    fn first<'v>(
        &self,
        scopes: impl IntoIterator<Item = (&'v Value, &'v Value)>,
        told: &Value,
        is_own: &dyn Fn(&str) -> bool,
    ) -> Option<KeptAt> {
        for (scope, of) in scopes {
            let is_main = scope.get("module").and_then(Value::as_str) == Some("__main__");
            let file = scope.get("file").and_then(Value::as_str);
            let file = file.or_else(|| self.script.filter(|_| is_main));
            match self.at(&keeper(scope, of, told)?, file, is_own) {
                Some((file, Found::One(Statement { line, text, remedy }, _))) => {
                    return Some(KeptAt { file, line, source: text, remedy });
                }
                Some((_, Found::Several)) => return None,
                _ => {}
            }
        }
        None
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
        let is_unknown = package.is_some_and(|text| !super::scope::has_word(&text, &keeper.variable));
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
        let mut found: Option<(String, Found)> = None;
        for file in files {
            let Some(text) = self.texts.of_own(file) else { continue };
            let lines = self.lines.iter().filter(|l| l.0 == file).map(|l| l.1);
            let (allocated, trains) = (lines.collect(), self.texts.trains);
            let keeper = Keeper { allocated, trains, placed: found.is_some(), ..keeper.clone() };
            // An attribute of this name may be another class's: in another file than the class's own the stacks must lead to it, where another
            // was found before, or the class is a package's.
            let sure = |f: &Found| if let Found::One(_, sure) = f { *sure } else { 0 };
            match (find(&text, &keeper), &found) {
                (Found::Nothing, _) => {}
                (here, None) if own.is_some() || gives(&text) || sure(&here) > 0 => {
                    found = Some((file.to_string(), here));
                }
                (_, None) => {}
                (here, Some((_, before))) if sure(&here) < sure(before) => {}
                _ => return Some((file.to_string(), Found::Several)),
            }
        }
        found
    }
}

/// Files of Python as they lie on this machine.
pub(crate) struct Texts<'a> {
    cwd: Option<&'a str>,
    began: u64,
    /// The job that they ran in trains.
    trains: bool,
    /// The first of the user's own that was asked for and was modified since.
    modified: RefCell<Option<String>>,
}

/// Why a file has no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoText {
    /// It was modified since the recording began.
    Modified,
    /// It is not there, or is no text, or too long.
    Unreadable,
}

impl<'a> Texts<'a> {
    /// Those of a recording that began then, in nanoseconds of the Unix epoch.
    pub(crate) fn of(replay: &'a Replay, began: u64) -> Texts<'a> {
        let cwd = replay.meta().get("cwd").and_then(Value::as_str);
        let trains = matches!(replay.step_source(), StepSource::Optimizer | StepSource::Backward);
        Texts { cwd, began, trains, modified: RefCell::default() }
    }

    /// The text of a file that has not changed since the recording began.
    pub(crate) fn unchanged(&self, file: &str) -> Result<String, NoText> {
        self.read(file).ok_or(NoText::Unreadable)?
    }

    /// The same of the user's own; one that was modified is remembered.
    fn of_own(&self, file: &str) -> Option<String> {
        let text = self.unchanged(file);
        if text == Err(NoText::Modified) {
            self.modified.borrow_mut().get_or_insert_with(|| file.to_owned());
        }
        text.ok()
    }

    fn read(&self, file: &str) -> Option<Result<String, NoText>> {
        let path = Path::new(file);
        let path = if path.is_absolute() { PathBuf::from(file) } else { Path::new(self.cwd?).join(file) };
        // A pipe that lies there is not waited for.
        let opened = open_file(&path).ok()?;
        let is = opened.metadata().ok()?;
        if is.modified().ok()? >= UNIX_EPOCH + Duration::from_nanos(self.began) {
            return Some(Err(NoText::Modified));
        }
        let mut text = String::new();
        let length = opened.take(super::scope::MOST as u64 + 1).read_to_string(&mut text).ok()?;
        (length <= super::scope::MOST).then_some(Ok(text))
    }
}

/// The script: once it has run to its end `__main__` does not say any more where it lies, and a module-level list is asked about then. A thread's
/// stacks do not lead to it; `others` of the job do.
fn script<'a>(
    stacks: &[&'a Frame],
    others: impl IntoIterator<Item = impl IntoIterator<Item = &'a Frame>>,
) -> Option<&'a str> {
    fn outermost<'a>(frames: impl IntoIterator<Item = &'a Frame>) -> Option<&'a str> {
        frames.into_iter().filter(|f| f.function == "<module>").last().map(|f| f.file.as_str())
    }
    outermost(stacks.iter().copied()).or_else(|| others.into_iter().find_map(outermost))
}

/// Whether a recording was made on this machine, as far as is known.
pub(crate) fn is_of_this_machine(replay: &Replay) -> bool {
    let told = replay.meta().get("host").and_then(Value::as_str);
    told.is_none_or(|h| h == files::host())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fs::{File, create_dir_all, remove_dir_all, write};
    use strandline::report::Count;

    #[test]
    fn the_first_own_file_that_was_modified_since_is_remembered() {
        let folder = std::env::temp_dir().join(format!("strandline-modified-{}", std::process::id()));
        create_dir_all(&folder).unwrap();
        for (name, second) in [("old.py", 999), ("new.py", 1001), ("newer.py", 1002)] {
            write(folder.join(name), "kept = []").unwrap();
            let file = File::options().write(true).open(folder.join(name)).unwrap();
            file.set_modified(UNIX_EPOCH + Duration::from_secs(second)).unwrap();
        }
        let texts = Texts {
            cwd: folder.to_str(),
            began: 1_000_000_000_000,
            trains: true,
            modified: RefCell::default(),
        };
        assert_eq!(texts.of_own("old.py").as_deref(), Some("kept = []"));
        assert_eq!(texts.unchanged("newer.py"), Err(NoText::Modified));
        assert_eq!(texts.unchanged("gone.py"), Err(NoText::Unreadable));
        assert_eq!(*texts.modified.borrow(), None, "none of the user's own");
        assert_eq!(
            (texts.of_own("gone.py"), texts.of_own("new.py"), texts.of_own("newer.py")),
            (None, None, None)
        );
        assert_eq!(texts.modified.into_inner().as_deref(), Some("new.py"));
        remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_grows_in_entries_that_stay_as_many_is_kept_by_the_innermost_container() {
        let names = json!([
            { "variable": "t", "entries": null, "blocks": 8 },
            { "variable": "turns", "entries": 40, "blocks": 8 },
            { "variable": "few", "entries": 3, "blocks": 1 },
        ]);
        let told = json!({ "scope": { "variable": "session" }, "names": names });
        let order = |counts: &[u64], graph| {
            let count = |entries: &u64| Count { entries: *entries, ..Count::default() };
            let counts = counts.iter().map(count).collect();
            let holder = Holder { entries: Some(8), blocks: 8, graph, counts, ..Holder::default() };
            let all = scopes(&told, &holder, &|_| true).unwrap();
            all.iter().map(|(scope, _)| scope["variable"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(order(&[8, 8, 8], false), ["turns", "session", "t"]);
        for (counts, graph) in [(&[8, 9, 12][..], false), (&[8][..], false), (&[8, 8, 8][..], true)] {
            assert_eq!(order(counts, graph), ["session", "t", "turns"], "{counts:?}");
        }
    }

    fn written<const N: usize>(folder: &Path, files: [(&str, &str); N]) -> [String; N] {
        files.map(|(name, text)| {
            let path = folder.join(name);
            write(&path, text).unwrap();
            File::options().write(true).open(&path).unwrap().set_modified(UNIX_EPOCH).unwrap();
            path.to_str().unwrap().to_owned()
        })
    }

    #[test]
    fn what_a_class_of_another_own_file_does_is_no_other_statement_than_a_call_of_it() {
        let folder = std::env::temp_dir().join(format!("strandline-two-files-{}", std::process::id()));
        create_dir_all(&folder).unwrap();
        let class = "class Tracker:\n    def update(self, name, x):\n        self.rows.setdefault(name, []).append(x)\n";
        let script = "t = Tracker()\nfor x in data:\n    out = net(x)\n    t.update('out', out)\n";
        let [class, script] = written(&folder, [("meters.py", class), ("train.py", script)]);
        let texts = Texts { cwd: None, began: 1_000_000_000, trains: true, modified: RefCell::default() };
        let frame = Frame { file: script.clone(), function: "<module>".into(), line: 3 };
        let lines = [(script.as_str(), 3)];
        let elsewhere = BTreeSet::new();
        let look = Look { texts: &texts, stacks: &[&frame], script: None, lines: &lines, elsewhere };
        let keeper = super::super::tests::attribute("Tracker", "rows", "dict");
        let at = |file| look.at(&keeper, Some(file), &|f| f != "package.py").unwrap();
        let (file, found) = at(&class);
        assert!(file == class && matches!(found, Found::One(Statement { line: 3, .. }, 0)), "{found:?}");
        let (file, found) = at("package.py");
        assert!(file == script && matches!(found, Found::One(Statement { line: 4, .. }, 3)), "{found:?}");
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
        let texts = Texts { cwd: None, began: 1_000_000_000, trains: true, modified: RefCell::default() };
        let (frame, lines) = (Frame { file: run.clone(), line: 2, ..Frame::default() }, [(run.as_str(), 2)]);
        let keeper = super::super::tests::attribute("Linear", "acts", "list");
        let elsewhere = BTreeSet::from([run.as_str(), hook.as_str()]);
        let look = Look { texts: &texts, stacks: &[&frame], script: None, lines: &lines, elsewhere };
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

    #[test]
    fn what_an_object_of_the_users_own_has_grows_in_an_attribute_of_its_class() {
        let of = |file: &str, class: Value| json!({ "variable": "trace", "class": class, "file": file, "entries": 9, "blocks": 8 });
        let first = |name: Value, entries| {
            let told = json!({ "scope": { "variable": "st" }, "names": [name] });
            let holder = Holder { blocks: 8, entries, ..Holder::default() };
            let all = scopes(&told, &holder, &|file| file == "mine.py").unwrap();
            all.first().unwrap().0["variable"].as_str().unwrap().to_owned()
        };
        assert_eq!(first(of("mine.py", "State".into()), None), "trace");
        assert_eq!(first(of("mine.py", "State".into()), Some(3)), "st", "it is a container itself");
        assert_eq!(first(of("theirs.py", "State".into()), None), "st");
        assert_eq!(first(of("mine.py", Value::Null), None), "st", "a variable");
    }
}
