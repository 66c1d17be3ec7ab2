//! The list of known leaks: those that the user keeps, then ours.
//!
//! Both are JSON, a list of objects: `docs/known.md` says what each key means. Ours is `leaks.json`.

use crate::error::{Error, status};
use crate::say;
use serde_json::Value;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use strandline::detect::Kind;
use strandline::event::WordList;

const OURS: &str = include_str!("leaks.json");
const KEYS: WordList = WordList(
    "known package distribution what kinds files functions without with held_by grain since fixed remedy",
);

/// A known leak.
#[derive(Debug)]
pub(super) struct Leak {
    /// What it is known as: `huggingface/trl#5700`.
    pub(super) known: String,
    /// Names of the kinds that a finding of it has.
    pub(super) kinds: Vec<String>,
    /// Ends of the paths of files that allocate what stays, or folders of a package (`fast_llm/`).
    pub(super) files: Vec<String>,
    /// Parts of the names of functions of those; none: any.
    pub(super) functions: Vec<String>,
    /// Parts of the names of functions none of which allocates what stays: something else is kept then.
    pub(super) without: Vec<String>,
    /// What stays is allocated by the model itself, and this file allocates in the same job.
    pub(super) with: Option<String>,
    /// A part of the name of what holds it, as the holder probe has it; `None`: any, or nobody known.
    pub(super) held_by: Option<String>,
    /// What the job's marks are; `None`: any.
    pub(super) grain: Option<String>,
    /// The package whose version tells whether the fix is installed.
    pub(super) package: Option<String>,
    /// What that package is installed as, where its folder has another name: `grad-cam` of `pytorch_grad_cam`.
    pub(super) distribution: Option<String>,
    /// The first version with the leak; `None`: any before the fix.
    pub(super) since: Option<String>,
    /// The first version with the fix.
    pub(super) fixed: Option<String>,
    /// What helps, without a full stop.
    pub(super) remedy: String,
}

static USERS: OnceLock<Vec<Leak>> = OnceLock::new();

/// Reads the user's lists, once for this process: the files that were named, and `known.json` of the configuration, which does not keep a job from
/// starting.
///
/// # Errors
/// A file that was named cannot be read, or is no such list.
pub(crate) fn keep(named: &[PathBuf]) -> Result<(), Error> {
    let mut all = Vec::new();
    for file in named {
        all.extend(read(file)?);
    }
    if let Some(file) = configured() {
        match read(&file) {
            Ok(leaks) => all.extend(leaks),
            Err(error) => say::line(format!("{error}\n  it is left out")),
        }
    }
    let _ = USERS.set(all);
    Ok(())
}

/// `known.json` in `$XDG_CONFIG_HOME/strandline` or `~/.config/strandline`, where it is.
fn configured() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let base = variable("XDG_CONFIG_HOME").or_else(|| Some(variable("HOME")?.join(".config")))?;
    let file = base.join("strandline/known.json");
    let is_absent = |e: std::io::Error| matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
    (!std::fs::metadata(&file).is_err_and(is_absent)).then_some(file)
}

fn read(file: &Path) -> Result<Vec<Leak>, Error> {
    let what = "cannot read known leaks";
    let text = std::fs::read_to_string(file).map_err(|e| Error::io(what, file, e).status(status::USAGE))?;
    parse(&text).map_err(|why| {
        let what = format!("{what}: {}: {why}", say::path(file));
        let hint = "write it like [{\"known\": \"our#12\", \"kinds\": [\"step-growth\"], \"files\": [\"data/cache.py\"], \"remedy\": \"call clear()\"}]";
        Error::usage(what, hint)
    })
}

/// All known leaks, the user's first.
pub(super) fn all() -> impl Iterator<Item = &'static Leak> {
    static LEAKS: OnceLock<Vec<Leak>> = OnceLock::new();
    let ours = LEAKS.get_or_init(|| parse(OURS).unwrap_or_default());
    USERS.get().into_iter().flatten().chain(ours)
}

/// A list; else why it is none.
fn parse(text: &str) -> Result<Vec<Leak>, String> {
    let all: Value = serde_json::from_str(text)
        .map_err(|e| format!("not valid JSON after line {}, column {}", e.line(), e.column()))?;
    let all = all.as_array().ok_or("not a list of objects")?;
    let numbered = |(at, entry)| leak(entry).map_err(|why| format!("entry {}: {why}", at + 1));
    all.iter().enumerate().map(numbered).collect()
}

fn leak(entry: &Value) -> Result<Leak, String> {
    let object = entry.as_object().ok_or("not an object")?;
    if let Some(key) = object.keys().find(|k| !KEYS.has(k)) {
        return Err(format!("\"{key}\" is not a key; the keys are {}", KEYS.0.replace(' ', ", ")));
    }
    let text = |key: &str| match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
        Some(_) => Err(format!("\"{key}\" is not a string")),
    };
    let needed = |key: &str| text(key)?.ok_or(format!("\"{key}\" is missing"));
    let list = |key: &str| {
        let all = object.get(key).map_or(Some(&[][..]), |v| v.as_array().map(Vec::as_slice));
        let texts =
            all.map(|all| all.iter().map(|v| Some(v.as_str()?.to_owned())).collect::<Option<Vec<_>>>());
        texts
            .flatten()
            .filter(|t| t.iter().all(|t| !t.is_empty()))
            .ok_or(format!("\"{key}\" is not a list of strings"))
    };
    text("what")?;
    let leak = Leak {
        known: needed("known")?,
        kinds: list("kinds")?,
        files: list("files")?,
        functions: list("functions")?,
        without: list("without")?,
        with: text("with")?,
        held_by: text("held_by")?,
        grain: text("grain")?,
        package: text("package")?,
        distribution: text("distribution")?,
        since: text("since")?,
        fixed: text("fixed")?,
        remedy: needed("remedy")?,
    };
    let kinds = || Kind::all().map(Kind::name).collect::<Vec<_>>().join(", ");
    if leak.kinds.is_empty() {
        return Err(format!("\"kinds\" is missing; the kinds are {}", kinds()));
    }
    if let Some(kind) = leak.kinds.iter().find(|name| !Kind::all().any(|k| k.name() == **name)) {
        return Err(format!("\"{kind}\" is not a kind of finding; the kinds are {}", kinds()));
    }
    if leak.files.is_empty() && leak.with.is_none() && leak.held_by.is_none() {
        return Err(
            "\"files\" or \"with\" (what allocates the memory) or \"held_by\" (what holds it) is needed"
                .into(),
        );
    }
    for (key, of) in [("distribution", &leak.distribution), ("since", &leak.since), ("fixed", &leak.fixed)] {
        if of.is_some() && leak.package.is_none() {
            return Err(format!("\"{key}\" is given without \"package\""));
        }
    }
    Ok(leak)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_list_is_whole() {
        let ours = parse(OURS).expect("a list");
        let all = |part: &str, of: fn(char) -> bool| !part.is_empty() && part.chars().all(of);
        let is_source = |known: &str| {
            let (repository, number) = known.split_once('#').expect(known);
            repository.split('/').count() == 2
                && repository
                    .split('/')
                    .all(|part| all(part, |c| c.is_ascii_alphanumeric() || "-_.".contains(c)))
                && all(number, |c| c.is_ascii_digit())
        };
        let is_file =
            |file: &String| (file.ends_with(".py") || file.ends_with('/')) && !file.starts_with('/');
        for (at, leak) in ours.iter().enumerate() {
            let known = &leak.known;
            assert!(is_source(known), "{known} is no owner/repository#number");
            assert!(!ours[..at].iter().any(|other| other.known == *known), "{known} is there twice");
            let package = leak.package.as_deref().expect(known);
            let files = || leak.files.iter().chain(&leak.with);
            assert!(files().all(is_file), "{known}: a file is the end of a path, or a folder");
            assert!(
                files().all(|file| file.starts_with(&format!("{package}/"))),
                "{known}: {package} has no such file"
            );
            for version in leak.since.iter().chain(&leak.fixed) {
                let parts = version.split('.').map(|part| all(part, |c| c.is_ascii_digit()));
                assert!(
                    parts.clone().count() > 1 && parts.clone().all(|is| is),
                    "{known}: version {version}"
                );
            }
            assert!(
                !leak.remedy.ends_with('.') && !leak.remedy.contains('\n'),
                "{known}: a remedy is one clause"
            );
        }
    }

    #[test]
    fn the_documentation_has_our_list_all_keys_and_a_valid_example() {
        let ours: Vec<Value> = serde_json::from_str(OURS).expect("a list");
        let mut table = "| package | what stays | source | fixed in |\n|---|---|---|---|\n".to_owned();
        for entry in &ours {
            let text = |key: &str| entry.get(key).and_then(Value::as_str);
            let package = text("distribution").or(text("package")).expect("a package");
            let what = text("what").unwrap_or_else(|| panic!("{entry} does not say what stays"));
            let known = text("known").expect("a source");
            let url = format!("https://github.com/{}", known.replace('#', "/issues/"));
            let fixed = text("fixed").unwrap_or("-");
            table += &format!("| {package} | {what} | [{known}]({url}) | {fixed} |\n");
        }
        let document = include_str!("../../../docs/known.md");
        assert!(document.contains(&table), "docs/known.md should have this table:\n{table}");
        assert!(document.contains(&format!("a list of [{}]", ours.len())));
        let example = document.split("```json\n").nth(1).and_then(|rest| rest.split("```").next());
        assert_eq!(parse(example.expect("an example")).expect("a list").len(), 1);
        let rows = document.split("\n| `").map(|row| row.split(" |").next().unwrap_or_default());
        let told: Vec<_> =
            rows.flat_map(|row| row.split(", `")).map(|key| key.trim_end_matches('`')).collect();
        for key in KEYS.0.split(' ') {
            assert!(told.contains(&key), "docs/known.md does not say what {key} is");
        }
    }

    #[test]
    fn what_is_no_list_is_told_by_entry_and_key() {
        let good = r#"{"known":"k","kinds":["step-growth"],"files":["a.py"],"remedy":"r"}"#;
        assert_eq!(parse(&format!("[{good}]")).expect("one").len(), 1);
        for (text, why) in [
            ("{", "not valid JSON"),
            ("{}", "not a list of objects"),
            ("[1]", "entry 1: not an object"),
            (r#"[{"known":"k","kinds":["step-growth"],"files":["a.py"]}]"#, "\"remedy\" is missing"),
            (r#"[{"known":"k","kind":["step-growth"]}]"#, "\"kind\" is not a key"),
            (r#"[{"known":"k","kinds":["leak"],"files":["a.py"],"remedy":"r"}]"#, "\"leak\" is not a kind"),
            (r#"[{"known":"k","files":["a.py"],"remedy":"r"}]"#, "\"kinds\" is missing"),
            (r#"[{"known":"k","kinds":["step-growth"],"remedy":"r"}]"#, "\"files\" or \"with\" ("),
            (
                r#"[{"known":"k","kinds":["step-growth"],"files":"a.py","remedy":"r"}]"#,
                "not a list of strings",
            ),
            (
                r#"[{"known":"","kinds":["step-growth"],"files":["a.py"],"remedy":"r"}]"#,
                "\"known\" is not a string",
            ),
            (
                r#"[{"known":"k","kinds":["step-growth"],"files":["a.py"],"remedy":"r","fixed":"1.0"}]"#,
                "without \"package\"",
            ),
        ] {
            assert!(parse(text).expect_err(text).contains(why), "{text}: {:?}", parse(text));
        }
        let second = format!("[{good},{{}}]");
        assert!(parse(&second).expect_err("the second").starts_with("entry 2: "));
    }
}
