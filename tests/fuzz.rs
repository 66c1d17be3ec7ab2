//! Bytes from elsewhere, broken in every way that chance finds: the targets of `tests/fuzz` over what is kept in `tests/fuzz/corpus`, over
//! real recordings and snapshots, and over mutations of them. The same on every run, and bounded by rounds: `FUZZ_ROUNDS` says how many
//! for each target, `FUZZ_SEED` where to begin.

#[path = "fuzz/memory.rs"]
mod memory;
#[path = "fuzz/mutate.rs"]
mod mutate;
#[path = "fuzz/seeds.rs"]
mod seeds;
#[path = "fuzz/targets.rs"]
mod targets;

use memory::{Counting, peak_of};
use mutate::Mutator;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use strandline::report::snapshot::import::import;
use strandline::report::snapshot::unpickle::{self, Limits};

#[global_allocator]
static COUNTING: Counting = Counting;

/// Rounds for each target where nothing else is said: about a minute of a processor for all of them together.
const ROUNDS: u64 = 400;
/// No input of these sizes is worth more time, on a slow machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(60);

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// Calls a target. What fails is kept where it can be found.
fn call(name: &str, target: fn(&[u8]), bytes: &[u8]) {
    let began = Instant::now();
    let (peak, done) = peak_of(|| catch_unwind(AssertUnwindSafe(|| target(bytes))));
    let most = 4 * bytes.len() + (64 << 20);
    let (slow, large) = (began.elapsed() > PATIENCE, peak > most);
    if done.is_err() || slow || large {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{name}"));
        std::fs::write(&path, bytes).expect("the input can be kept");
        println!("{name}: the input is kept in {}", path.display());
    }
    if let Err(panic) = done {
        resume_unwind(panic);
    }
    assert!(!slow, "{name}: {:?} for {} bytes", began.elapsed(), bytes.len());
    assert!(!large, "{name}: {} MiB for {} bytes", peak >> 20, bytes.len());
}

fn fuzz(name: &str) {
    let (_, target) = targets::TARGETS.into_iter().find(|(n, _)| *n == name).expect("a target");
    let seeds = seeds::of(name);
    assert!(!seeds.is_empty(), "{name}: nothing to begin with");
    seeds.iter().for_each(|seed| call(name, target, seed));
    let rounds = number("FUZZ_ROUNDS", ROUNDS);
    let from = number("FUZZ_SEED", 0);
    for round in from..from + rounds {
        let mut mutator = Mutator::new(name, round);
        let bytes = mutator.mutated(&seeds);
        call(name, target, &bytes);
    }
    println!("{name}: {rounds} rounds over {} seeds", seeds.len());
}

/// What PyTorch would have written of so many allocations, each freed again: dicts whose keys are shared, as are their stacks.
fn snapshot(allocations: u32) -> Vec<u8> {
    let mut b = b"\x80\x04}(\x8c\x08segments]\x8c\x0ddevice_traces](](".to_vec();
    let keys = [
        "action",
        "addr",
        "size",
        "stream",
        "time_us",
        "frames",
        "alloc",
        "free_requested",
        "free_completed",
    ];
    let mut known = 0;
    let text = |b: &mut Vec<u8>, known: &mut usize, i: usize| match i < *known {
        true => b.extend([b'h', i as u8]),
        false => {
            b.extend([0x8c, keys[i].len() as u8]);
            b.extend(keys[i].as_bytes());
            b.extend([b'q', i as u8]);
            *known = i + 1;
        }
    };
    // Every text once, in a tuple that nobody looks at.
    let mut first = Vec::new();
    (0..keys.len()).for_each(|i| text(&mut first, &mut known, i));
    b.extend(b"(");
    b.extend(&first);
    b.extend(b"t");
    b.extend(b"]q\x09(}(\x8c\x08filename\x8c\x04a.py\x8c\x04lineK\x07\x8c\x04name\x8c\x01fue");
    for i in 0..allocations {
        for (action, later) in [(6, 0), (7, 20), (8, 20)] {
            b.extend(b"}(");
            text(&mut b, &mut known, 0);
            text(&mut b, &mut known, action);
            for (key, value) in [
                (1, 0x7f00_0000_0000 + (u64::from(i) << 21)),
                (2, 512 + u64::from(i % 4096)),
                (4, 1_700_000_000_000_000 + u64::from(i) * 30 + later),
            ] {
                text(&mut b, &mut known, key);
                b.extend([0x8a, 8]);
                b.extend(value.to_le_bytes());
            }
            text(&mut b, &mut known, 3);
            b.extend(b"K\x00");
            text(&mut b, &mut known, 5);
            b.extend(b"h\x09u");
        }
    }
    b.extend(b"eeu.");
    b
}

#[test]
fn a_snapshot_is_read_in_memory_in_proportion_to_its_size() {
    let bytes = snapshot(50_000);
    assert!(bytes.len() > 6 << 20, "{}", bytes.len());
    let (peak, events) = peak_of(|| {
        let tree = unpickle::read(&bytes, &Limits::default()).unwrap_or_else(|e| panic!("{e}"));
        import(tree).expect("a snapshot").events().count()
    });
    assert_eq!(events, 150_000);
    // The input lies in memory as well where a file was read.
    let whole = peak + bytes.len();
    println!("{} KiB for {} KiB", whole >> 10, bytes.len() >> 10);
    assert!(whole < 4 * bytes.len(), "{} MiB for {} MiB", whole >> 20, bytes.len() >> 20);
    call("pickles", targets::pickles, &bytes);
}

#[test]
fn a_recording_is_read_in_memory_in_proportion_to_its_size() {
    call("recordings", targets::recordings, &seeds::long(60_000));
}

#[test]
fn recordings() {
    fuzz("recordings");
}

#[test]
fn pages() {
    fuzz("pages");
}

#[test]
fn checkpoints() {
    fuzz("checkpoints");
}

#[test]
fn tails() {
    fuzz("tails");
}

#[test]
fn messages() {
    fuzz("messages");
}

#[test]
fn pickles() {
    fuzz("pickles");
}

/// What `cargo fuzz` begins with: `FUZZ_CORPUS=DIR cargo test --test fuzz seeds -- --ignored` makes a folder for each target.
#[test]
#[ignore = "writes files for another tool"]
fn the_seeds_are_written() {
    let corpus = PathBuf::from(std::env::var_os("FUZZ_CORPUS").expect("FUZZ_CORPUS names a folder"));
    for (name, _) in targets::TARGETS {
        let folder = corpus.join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        for (i, seed) in seeds::of(name).iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{i}")), seed).expect("a file");
        }
    }
}
