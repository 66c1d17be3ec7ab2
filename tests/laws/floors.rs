//! The floors of the command and of the preload: a file uses its own room and those on lower floors.

use super::circles::uses;
use super::{none, read, root, tracked};

/// Rooms, from the ground up. A file belongs to the longest path that names it; rooms of one floor do not use each other.
type Floors = &'static [&'static [&'static str]];

/// Inside the job (`preload/src`).
const PRELOAD: Floors = &[
    &["platform/"],
    &["recorder/", "python/"],
    &["stacks/", "tail/"],
    &["probe/", "torch/", "control.rs"],
    &["steps/", "pluggable/"],
    &["hooks/"],
    &["late/"],
    &["lifecycle/"],
    &["lib.rs"],
];

/// The command (`tools/src`): no command stands on another.
const COMMAND: Floors = &[
    // What the reader sees with, and signals.
    &["signals.rs", "terminal.rs"],
    // The machine, and words.
    &[
        "background.rs",
        "clock.rs",
        "files/",
        "inherited.rs",
        "nvml.rs",
        "post.rs",
        "probe.rs",
        "process.rs",
        "say.rs",
        "share/",
        "size.rs",
        "symbols.rs",
        "words.rs",
    ],
    &["error.rs", "holder.rs", "metrics/", "rate.rs", "simulate/", "trial/cards.rs"],
    &["embedded.rs", "kept/", "recording.rs", "store/"],
    &["job/", "known/"],
    &["context/", "environment/"],
    // Recordings: judged, followed, drawn.
    &["analyze/", "driver.rs"],
    &["live.rs"],
    &["ship/", "snapshot/"],
    // While a job runs.
    &["alert/"],
    &["watch/"],
    &["run/"],
    &["trial/"],
    // Options of all commands, and the commands.
    &["cli/"],
    &[
        "advise/",
        "demo.rs",
        "diff/",
        "doctor/",
        "dump/",
        "env/",
        "export/",
        "fit/",
        "manual.rs",
        "left.rs",
        "environment/command.rs",
        "predict/",
        "report.rs",
        "run/command.rs",
        "snapshot/command.rs",
        "top/",
        "watch/command.rs",
    ],
    &["main.rs"],
];

/// The floor and the room of a file.
fn place(floors: Floors, file: &str) -> Option<(usize, &'static str)> {
    let rooms = floors.iter().enumerate().flat_map(|(floor, rooms)| rooms.iter().map(move |r| (floor, *r)));
    rooms.filter(|(_, room)| file.starts_with(room)).max_by_key(|(_, room)| room.len())
}

/// What uses a room of no lower floor, and what has no floor.
fn broken(folder: &str, floors: Floors) -> Vec<String> {
    let inner = |path: &str| path.strip_prefix(folder).unwrap_or(path).trim_start_matches('/').to_string();
    let mut broken = Vec::new();
    for (file, used) in uses(folder) {
        let file = inner(&file);
        let Some((floor, room)) = place(floors, &file) else {
            broken.push(format!("{folder}/{file} has no floor: give its room one in tests/laws/floors.rs"));
            continue;
        };
        // What a room shows to others may be on several floors.
        let face = file.strip_suffix("mod.rs").unwrap_or("?");
        for used in used.iter().map(|u| inner(u)).filter(|u| !u.starts_with(face)) {
            if let Some((other_floor, other)) = place(floors, &used)
                && other != room
                && other_floor >= floor
            {
                broken.push(format!("{folder}/{file} (floor {floor}) uses {used} (floor {other_floor})"));
            }
        }
    }
    let gone = floors.iter().copied().flatten().filter(|r| !root().join(folder).join(r).exists());
    broken.extend(gone.map(|r| format!("{folder}/{r} has a floor and is not there")));
    broken
}

#[test]
fn nothing_of_the_command_stands_on_a_higher_floor() {
    none("a file uses one of another room that is on no lower floor", broken("tools/src", COMMAND));
}

#[test]
fn nothing_of_the_preload_stands_on_a_higher_floor() {
    none("a file uses one of another room that is on no lower floor", broken("preload/src", PRELOAD));
}

#[test]
fn the_code_map_shows_the_floors_and_files_that_are() {
    let map = read("ARCHITECTURE.md");
    let drawn: Vec<Vec<&str>> = map
        .lines()
        .skip_while(|l| !l.starts_with("<!-- floors of the preload"))
        .skip(1)
        .take_while(|l| !l.is_empty())
        .map(|l| l.split('`').skip(1).step_by(2).collect())
        .collect();
    assert_eq!(drawn, PRELOAD, "the floors in ARCHITECTURE.md");

    let Some(files) = tracked() else { return };
    let mut gone = Vec::new();
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = read(page);
        let names =
            text.lines().filter(|l| !l.starts_with("```")).flat_map(|l| l.split('`').skip(1).step_by(2));
        for name in names
            .filter(|n| n.ends_with(".rs") && !n.contains(|c: char| c.is_uppercase() || "*… ".contains(c)))
        {
            let end = format!("/{}", name.trim_start_matches('/'));
            if !files.iter().any(|f| format!("/{f}").ends_with(&end)) {
                gone.push(format!("{page} names {name}"));
            }
        }
    }
    none("a page names a file that is not there", gone);
}
