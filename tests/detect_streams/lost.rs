//! What is behind the figures of `rates`: each leak that is lost and each healthy job that grows wrongly, with what its lines kept.

use crate::healthy::Shape;
use crate::seen::{Seen, kept_by_line};
use crate::synthetic::{self, Drawn};
use crate::{fills, healthy, leaks, pauses};

/// The job of a name, as `rates` draws it.
fn draw(name: &str, seed: u64, leaky: bool) -> Option<Drawn> {
    let is = |s: &&Shape| s.0 == name;
    let kind = || leaks::KINDS.into_iter().find(|k| k.0 == name);
    match leaky {
        _ if name == "synthetic" => Some(synthetic::draw(seed, leaky)),
        true => {
            let mut all = fills::LEAKS.iter().chain(&pauses::LEAKS);
            let shape = all.find(is).map(|s| healthy::draw(*s, seed));
            shape.or_else(|| kind().map(|k| leaks::draw(k, seed).0))
        }
        false => {
            let mut all = healthy::SHAPES.iter().chain(&fills::SHAPES).chain(&pauses::SHAPES);
            all.find(is).map(|s| healthy::draw(*s, seed))
        }
    }
}

/// `STRANDLINE_JOBS='leak|needles|1240001;healthy|pool|1240007' cargo test --release -p strandline --test detect_streams jobs_one_by_one --
/// --ignored --nocapture`: when each was named and not, and the steps from which blocks of each line live at the end.
#[test]
#[ignore = "a look at single jobs: needs STRANDLINE_JOBS"]
fn jobs_one_by_one() {
    let jobs = std::env::var("STRANDLINE_JOBS").expect("STRANDLINE_JOBS");
    for job in jobs.split(';').filter(|j| !j.is_empty()) {
        let parts: Vec<&str> = job.split('|').collect();
        let [kind, name, seed] = parts[..] else { panic!("{job}: KIND|NAME|SEED") };
        let seed = seed.parse().expect("a seed");
        let d = draw(name, seed, kind == "leak").expect("a shape");
        println!("JOB {job}: {} steps, {:?}", d.steps, d.leak);
        let seen = Seen::of(&d);
        println!(
            "  named in {:?}; lost {:?}; idle {:?}; alert {:?}",
            seen.when, seen.lost, seen.idle, seen.alert
        );
        for (line, births) in kept_by_line(&d) {
            if line.starts_with("leak.py") == (kind == "leak") {
                println!("  {line}: {} died old; kept of {}", births.1, births.0);
            }
        }
    }
}
