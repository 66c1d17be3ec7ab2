//! The floors of the command: a file uses its own room and those on lower floors. No command stands on another.

use super::circles::uses;
use super::{none, root};

/// Rooms of `tools/src`, from the ground up. A file belongs to the longest path that names it; rooms of one floor do not use each other.
const FLOORS: [&[&str]; 14] = [
    // The machine, and words.
    &[
        "files/",
        "nvml.rs",
        "post.rs",
        "probe.rs",
        "process.rs",
        "say.rs",
        "share/",
        "signals.rs",
        "size.rs",
        "symbols.rs",
        "terminal.rs",
        "words.rs",
    ],
    &["error.rs", "holder.rs", "metrics/", "rate.rs", "simulate/"],
    &["embedded.rs", "kept/", "recording.rs"],
    &["job/", "known/"],
    &["context/", "environment/"],
    // Recordings: judged, followed, drawn.
    &["analyze/", "driver.rs"],
    &["live.rs"],
    &["snapshot/"],
    // While a job runs.
    &["alert/"],
    &["watch/"],
    &["run/"],
    // Options of all commands, and the commands.
    &["cli/"],
    &[
        "demo.rs",
        "diff.rs",
        "doctor/",
        "dump/",
        "env/",
        "environment/command.rs",
        "report.rs",
        "run/command.rs",
        "snapshot/command.rs",
        "top/",
        "watch/command.rs",
    ],
    &["main.rs"],
];

/// The floor and the room of a file.
fn place(file: &str) -> Option<(usize, &'static str)> {
    let rooms = FLOORS.iter().enumerate().flat_map(|(floor, rooms)| rooms.iter().map(move |r| (floor, *r)));
    rooms.filter(|(_, room)| file.starts_with(room)).max_by_key(|(_, room)| room.len())
}

#[test]
fn nothing_of_the_command_stands_on_a_higher_floor() {
    let inner = |path: &str| path["tools/src/".len()..].to_string();
    let mut broken = Vec::new();
    for (file, used) in uses("tools/src") {
        let file = inner(&file);
        let Some((floor, room)) = place(&file) else {
            broken.push(format!("tools/src/{file} has no floor: give its room one in tests/laws/floors.rs"));
            continue;
        };
        // What a room shows to others may be on several floors.
        let face = file.strip_suffix("mod.rs").unwrap_or("?");
        for used in used.iter().map(|u| inner(u)).filter(|u| !u.starts_with(face)) {
            if let Some((other_floor, other)) = place(&used)
                && other != room
                && other_floor >= floor
            {
                broken.push(format!("tools/src/{file} (floor {floor}) uses {used} (floor {other_floor})"));
            }
        }
    }
    none("a file uses one of another room that is on no lower floor", broken);
}

#[test]
fn every_room_of_the_command_is_there() {
    let gone = FLOORS.iter().copied().flatten().filter(|r| !root().join("tools/src").join(r).exists());
    none("a room has a floor and is not there", gone.map(|r| r.to_string()).collect());
}
