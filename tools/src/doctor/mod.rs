//! `strandline doctor`: would this job be seen, and if not, why. The verdict first, then what it rests on, each with
//! its remedy.

mod check;
mod checks;
mod trial;

use crate::error::{Error, status};
use crate::job::Job;
use crate::{cli, context, embedded, say, terminal};
use check::{Check, Grade, Patient};
use strandline::report::Style;

/// Runs the command; the result is the exit status: 0 where the job would be seen.
///
/// # Errors
/// The library is asked for and cannot be written, or a context and there is no device. Whatever else goes wrong is part of the answer.
pub(crate) fn main(options: &cli::Doctor) -> Result<u8, Error> {
    if options.library {
        say::out(&format!("{}\n", embedded::preload()?.display()));
        return Ok(0);
    }
    if let Some(device) = options.hold_context {
        return context::hold(device);
    }
    if options.context {
        return context::main();
    }
    let words = if options.command.is_empty() { vec!["python".into()] } else { options.command.clone() };
    // `python` where there is only `python3` is what `run` would take as well.
    let job = match words.as_slice() {
        [one] if one == "python" => Job::new(&["-m".into()], None),
        _ => Job::new(&words, None),
    };
    let python = trial::python_of(&job);
    let patient = Patient { job, python };
    let mut all = checks::all(&patient);
    if all.iter().all(|check| check.grade != Grade::Bad) {
        all.extend(trial::run(&patient));
    }
    say::text(&text(&all, terminal::style_of_stdout()));
    Ok(if worst(&all) == Grade::Bad { status::FAILED } else { 0 })
}

fn worst(all: &[Check]) -> Grade {
    all.iter().map(|check| check.grade).max().unwrap_or(Grade::Good)
}

fn text(all: &[Check], style: Style) -> String {
    let first = |grade| all.iter().find(|c| c.grade == grade).map(|c| c.found.as_str()).unwrap_or_default();
    let word = match worst(all) {
        Grade::Good => "READY: this job can be recorded".to_string(),
        Grade::Note => format!("READY, with a remark: {}", first(Grade::Note)),
        Grade::Bad => format!("NOT READY: {}", first(Grade::Bad)),
    };
    let mut lines = style.wrap("strandline: ", &word);
    for check in all {
        let mark = match check.grade {
            Grade::Good => "ok  ",
            Grade::Note => "note",
            Grade::Bad => "BAD ",
        };
        lines.extend(style.wrap(&format!("  {mark}  {:<9}  ", check.about), &check.found));
        if let Some(fix) = &check.fix {
            // Of what is no fault there may be nothing to mend.
            let label = if check.grade == Grade::Bad { "fix" } else { "hint" };
            lines.extend(style.wrap(&format!("        {label:<9}  "), fix));
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_comes_first_and_every_problem_has_its_remedy() {
        let good = Check::good("platform", "Linux x86-64");
        let note = Check::note("driver", "no NVML", "nothing to do");
        let bad = Check::bad("torch", "this python has no torch", "pip install torch");
        assert!(text(std::slice::from_ref(&good), Style::default()).starts_with("strandline: READY: "));
        assert!(
            text(&[good.clone(), note.clone()], Style::default())
                .starts_with("strandline: READY, with a remark: no NVML\n")
        );
        let text = text(&[good, note, bad], Style::default());
        assert!(text.starts_with("strandline: NOT READY: this python has no torch\n"), "{text}");
        assert!(
            text.contains(
                "  BAD   torch      this python has no torch\n        fix        pip install torch\n"
            ),
            "{text}"
        );
    }
}
