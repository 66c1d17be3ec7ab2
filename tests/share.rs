//! `strandline report --share`: whatever of the job's own is planted in a real recording, no form of the report has it.

mod support;

use serde_json::Value;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use support::{Folder, Job, command, python, root};

/// What an export says, decompressed where it is a profile for pprof.
fn unpacked(bytes: Vec<u8>) -> String {
    let source = "import sys, gzip; d = sys.stdin.buffer.read(); sys.stdout.buffer.write(gzip.decompress(d) if d[:2] == b'\\x1f\\x8b' else d)";
    let mut python =
        Command::new("python3").args(["-c", source]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let python = python.as_mut().expect("python3 starts");
    let mut to = python.stdin.take().expect("piped");
    let writes = std::thread::spawn(move || to.write_all(&bytes));
    let mut all = Vec::new();
    python.stdout.take().expect("piped").read_to_end(&mut all).expect("its output");
    writes.join().expect("a thread").expect("its input");
    assert!(python.wait().expect("it ends").success());
    String::from_utf8_lossy(&all).into_owned()
}

/// Where a text has the word alone: a short name of a host is in some hash by chance.
fn alone(text: &str, word: &str) -> Option<usize> {
    let ends = |c: Option<char>| !c.is_some_and(char::is_alphanumeric);
    let is_alone =
        |at: usize| ends(text[..at].chars().next_back()) && ends(text[at + word.len()..].chars().next());
    text.match_indices(word).map(|(at, _)| at).find(|at| is_alone(*at))
}

#[test]
fn nothing_of_the_jobs_own_is_in_a_report_to_share() {
    let folder = Folder::new("share");
    let own = folder.join("zebra-project");
    std::fs::create_dir(&own).expect("a folder");
    let script = own.join("zebra_train.py");
    std::fs::copy(root().join("tests/python/share.py"), &script).expect("a copy");
    let ran = Job::program(&folder, python())
        .arg(&script)
        .arg("--zebra-token=zebra")
        .arg("zebra.yaml")
        .env("ZEBRA_TOKEN", "zebra")
        .run()
        .succeeded();
    let recording = ran.recording();
    let of = |name: &str, words: &[&OsStr]| {
        let mut report = Command::new(command());
        report.args([name.as_ref(), recording.as_os_str()]).args(words).env("COLUMNS", "200");
        report.env_remove("GITHUB_WORKSPACE").current_dir(&own);
        let output = report.output().expect("the command starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let report = |words: &[&OsStr]| String::from_utf8(of("report", words)).expect("UTF-8");
    let share = OsStr::new("--share");
    let form = |name: &'static str| [OsStr::new("--format"), OsStr::new(name)];

    // They are there to be found.
    let open: Value = serde_json::from_str(&report(&form("json"))).expect("JSON");
    let text = open.to_string();
    for planted in
        ["zebra_train.py", "zebra_held", "zebra_made", "<zebra code>", "--zebra-token", "zebra.yaml"]
    {
        assert!(text.contains(planted), "{planted}: {text}");
    }
    assert!(report(&form("html")).contains("zebra_held"));

    let host = open["processes"][0]["host"].as_str().expect("a host").to_owned();
    let home = python().parent().expect("a folder").to_string_lossy().into_owned();
    let secrets = ["zebra".to_owned(), host.clone(), home, folder.path().to_string_lossy().into_owned()];
    let page = folder.join("page.html");
    let mut page_words = std::ffi::OsString::from("--html=");
    page_words.push(&page);
    assert_eq!(report(&[share, &page_words]), "");
    let [json, html] = ["json", "html"].map(|name| report(&[&form(name)[..], &[share]].concat()));
    let shared = [report(&[share]), json, html, std::fs::read_to_string(&page).expect("the page")];
    let for_ci = ["github", "sarif", "junit"].map(|name| report(&[&form(name)[..], &[share]].concat()));
    let for_tools = ["folded", "speedscope", "perfetto", "pprof"].map(|name| {
        let export = |words: &[&OsStr]| unpacked(of("export", &[&form(name)[..], words].concat()));
        let (shared, open) = (export(&[share]), export(&[]));
        assert!(open.contains("zebra_held") && !open.contains("your/file1.py"), "{name}: {open}");
        assert!(shared.contains("your/file1.py"), "{name}: {shared}");
        shared
    });
    for said in shared.iter().chain(&for_ci).chain(&for_tools) {
        let plain = said.to_lowercase();
        for secret in &secrets {
            let find = if *secret == host { alone } else { |text: &str, word: &str| text.find(word) };
            let at = find(&plain, &secret.to_lowercase());
            let around = at.map(|at| plain.get(at.saturating_sub(80)..).unwrap_or(&plain).chars().take(200));
            assert!(at.is_none(), "{secret}: …{}", around.map(String::from_iter).unwrap_or_default());
        }
    }

    // What it is about stays: the same verdict, findings and figures, and the lines of what anybody can install.
    let [text, json, ..] = &shared;
    let json: Value = serde_json::from_str(json).expect("JSON");
    let words = json["command"].as_array().expect("a command");
    assert_eq!(words[1..], ["your/file1.py", "…"], "{words:?}");
    for key in ["verdict", "reason", "schema"] {
        assert_eq!(json[key], open[key], "{key}");
    }
    let [p, q] = [&json, &open].map(|r| &r["processes"][0]);
    assert_eq!(p["devices"], q["devices"]);
    let figures = |p: &Value| -> Vec<Value> {
        let all = p["findings"].as_array().expect("findings");
        all.iter()
            .map(|f| serde_json::json!([f["kind"], f["bytes_now"], f["first_step"], f["explain"]]))
            .collect()
    };
    assert_eq!(figures(p), figures(q));
    assert!(!figures(p).is_empty());
    assert!(text.contains("your/file1.py:"), "{text}");
    assert!(json.to_string().contains("<code 1>"), "{json}");
}

/// The statement that keeps the memory stays, without its names.
#[test]
fn the_statement_that_keeps_is_told_without_its_names() {
    let folder = Folder::new("share-kept");
    let script = folder.join("zebra_keep.py");
    let text = "import torch\n\
                model = torch.nn.Linear(512, 512).to('cuda')\n\
                optimizer = torch.optim.SGD(model.parameters())\n\
                zebra_rows = []\n\
                for step in range(40):\n    \
                    zebra_out = model(torch.randn(512, 512, device='cuda'))\n    \
                    zebra_out.square().mean().backward()\n    \
                    optimizer.step()\n    \
                    optimizer.zero_grad()\n    \
                    zebra_rows.append(zebra_out.detach())\n";
    std::fs::write(&script, text).expect("a script");
    let recordings = folder.join("rec");
    let mut run = Command::new(command());
    for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("STRANDLINE_")) {
        run.env_remove(name);
    }
    run.env("XDG_CACHE_HOME", support::cache()).env_remove("LD_PRELOAD");
    run.args(["run", "-o"]).arg(&recordings).arg("--").arg(python()).arg(&script);
    let ran = run.output().expect("the command starts");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let report = |words: &[&str]| {
        let told =
            Command::new(command()).arg("report").arg(&recordings).args(words).output().expect("it starts");
        String::from_utf8(told.stdout).expect("UTF-8")
    };
    let (open, shared) = (report(&[]), report(&["--share"]));
    assert!(open.contains("zebra_rows.append(zebra_out.detach())"), "{open}");
    assert!(shared.contains("kept at    your/file1.py:10: name1.append(name2.detach())"), "{shared}");
    assert!(!shared.contains("zebra"), "{shared}");
}
