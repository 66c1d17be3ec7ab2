//! How what is said is shown: signs of the locale, columns, colour; and what shells and man are given of the command line.

use super::support::{Folder, strandline};
use super::{frozen, run};
use std::process::{Command, Stdio};

/// What the command says on a stream that is no terminal, with these variables and none of their kind.
fn said(folder: &Folder, words: &[&str], variables: &[(&str, &str)]) -> (String, String) {
    let mut command = Command::new(strandline());
    for name in ["LC_ALL", "LC_CTYPE", "LANG", "COLUMNS", "NO_COLOR"] {
        command.env_remove(name);
    }
    let output = command.args(words).envs(variables.iter().copied()).current_dir(folder.path()).output();
    let output = output.expect("the command starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (text(output.stdout), text(output.stderr))
}

#[test]
fn a_locale_without_our_signs_gets_ascii() {
    let folder = Folder::new("locale");
    let recording = frozen("v1-plain.strand");
    let report = |variables: &[(&str, &str)]| said(&folder, &["report", &recording], variables).0;
    let whole = report(&[("LC_ALL", "C.UTF-8")]);
    assert!(whole.contains(" · "), "{whole}");
    for locale in [&[][..], &[("LANG", "de_DE.utf8")], &[("LC_CTYPE", "en_US.UTF-8"), ("LANG", "C")]] {
        assert_eq!(report(locale), whole, "{locale:?}");
    }
    for locale in [
        &[("LC_ALL", "C"), ("LANG", "en_US.UTF-8")][..],
        &[("LANG", "POSIX")],
        &[("LC_CTYPE", "de_DE.ISO-8859-1")],
        &[("LC_ALL", ""), ("LANG", "C")],
    ] {
        let plain = report(locale);
        assert!(plain.is_ascii() && plain.contains(" - "), "{locale:?}: {plain}");
    }
    // What is said beside it, and a program's form, which has no locale.
    folder.file("\u{fc}.strand", "no recording");
    let (_, stderr) = said(&folder, &["report", "\u{fc}.strand"], &[("LC_ALL", "C")]);
    assert!(stderr.is_ascii() && stderr.contains("\\u{fc}.strand"), "{stderr}");
    assert!(said(&folder, &["doctor"], &[("LC_ALL", "C")]).0.is_ascii());
    let json = |locale| said(&folder, &["report", &recording, "--format", "json"], &[("LC_ALL", locale)]).0;
    assert_eq!(json("C"), json("C.UTF-8"));
}

#[test]
fn columns_that_are_asked_for_are_kept_to() {
    let folder = Folder::new("columns");
    // What would be typed next names it, and is never broken.
    std::fs::copy(frozen("v1-plain.strand"), folder.path().join("a.strand")).expect("a copy");
    let widest = |columns: &str| {
        let text = said(&folder, &["report", "a.strand"], &[("COLUMNS", columns)]).0;
        // A path is never broken.
        text.lines().filter(|l| l.contains(' ')).map(|l| l.chars().count()).max().expect("a line")
    };
    let [narrow, usual, wide] = ["60", "100", "200"].map(widest);
    assert!(
        narrow <= 60 && narrow < usual && usual <= 100 && usual < wide && wide <= 200,
        "{narrow} {usual} {wide}"
    );
    assert_eq!((widest("10"), widest("100000")), (narrow, wide), "what cannot be meant is the next that can");
    assert_eq!((widest("0"), widest("many")), (usual, usual));
}

/// On a terminal: `script` gives the command one.
#[test]
fn colour_is_for_terminals_that_did_not_refuse_it() {
    let folder = Folder::new("colour");
    let on_terminal = |variables: &[(&str, &str)]| {
        let words = format!("'{}' report '{}'", strandline().to_string_lossy(), frozen("v1-plain.strand"));
        let mut script = Command::new("script");
        script.args(["-qec", &words, "/dev/null"]).env("TERM", "xterm").env_remove("NO_COLOR");
        script.envs(variables.iter().copied()).current_dir(folder.path()).stdin(Stdio::null());
        let output = script.output().expect("script (util-linux) is there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(on_terminal(&[]).contains("\x1b["));
    for refused in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        assert!(!on_terminal(&[refused]).contains("\x1b["), "{refused:?}");
    }
    assert!(on_terminal(&[("NO_COLOR", "")]).contains("\x1b["), "empty is not set");
    assert!(
        !said(&folder, &["report", &frozen("v1-plain.strand")], &[("TERM", "xterm")]).0.contains("\x1b[")
    );
}

#[test]
fn bash_completes_commands_options_and_values() {
    let folder = Folder::new("completions");
    let (status, script, _) = run(&folder, &["completions", "bash"]);
    assert_eq!(status, 0);
    folder.file("completions.bash", &script);
    // As the shell does it on Tab: the words, the number of the one that is being typed, and the function that is registered for it.
    let completed = |words: &str| {
        let source = format!(
            "source ./completions.bash; COMP_WORDS=({words}); COMP_CWORD=$(({} - 1)); COMP_LINE='{words}'; \
             entry=$(complete -p strandline); [[ $entry =~ -F\\ ([^ ]+) ]] || exit 3; \
             \"${{BASH_REMATCH[1]}}\" strandline \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            words.split(' ').count(),
        );
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", &source]).current_dir(folder.path());
        let output = bash.output().expect("bash starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(completed("strandline exp"), ["export"]);
    assert_eq!(completed("strandline export --form"), ["--format"]);
    let formats = completed("strandline export --format p");
    assert_eq!(formats, ["pprof", "perfetto", "parquet"]);
    assert!(completed("strandline report --").contains(&"--fail-on-leak".to_owned()));
    for (shell, word) in [("zsh", "#compdef strandline"), ("fish", "complete -c strandline")] {
        let (status, script, _) = run(&folder, &["completions", shell]);
        assert!(status == 0 && script.contains(word), "{script}");
    }
    assert_eq!(run(&folder, &["completions", "cmd.exe"]).0, 2);
}

#[test]
fn the_manual_is_one_that_man_can_set() {
    let folder = Folder::new("man");
    for (words, title, text) in [
        (&["man"][..], "strandline(1)", "--fail-on-leak"),
        (&["man", "export"], "strandline-export(1)", "--suppressions"),
    ] {
        let (status, page, _) = run(&folder, words);
        assert!(status == 0 && page.contains(".TH strandline"), "{page}");
        let file = folder.file("page.1", &page);
        let mut groff = Command::new("groff");
        let output = groff.args(["-man", "-Tascii", "-ww", "-P-cbuo"]).arg(&file).output();
        let Ok(output) = output else {
            println!("skipped in part: there is no groff, which man sets pages with");
            continue;
        };
        let set = String::from_utf8_lossy(&output.stdout).into_owned();
        let bare: String = set.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(bare.to_lowercase().contains(title) && bare.contains(text), "{bare}");
    }
    assert_eq!(run(&folder, &["man", "nothing"]).0, 2);
}
