//! Jobs of many processes.

use super::*;

#[test]
fn of_many_ranks_those_with_nothing_to_tell_are_one_line() {
    let [well, leaks] = [0, 1].map(|i| rank(i, 20, i == 1));
    let table = |bad: usize| {
        let is_bad = |i: usize| (7..7 + bad).contains(&i);
        let processes = (0..20).map(|i| if is_bad(i) { leaks.process() } else { well.process() }).collect();
        let mut out = Vec::new();
        text::write(&mut out, &Report { processes, exit: None, next: Vec::new() }, Style::default()).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines = text.lines().skip_while(|l| !l.starts_with("  process ")).skip(1);
        let is_row = |l: &&str| l.contains("  LEAK ") || l.contains("  NO LEAK ");
        let first = |l: &str| l.trim().split("  ").next().unwrap_or_default().to_owned();
        lines.take_while(is_row).map(first).collect::<Vec<_>>()
    };
    assert_eq!(table(0), ["all 20"]);
    let one = table(1);
    assert_eq!((one.len(), one[1].as_str()), (2, "19 others"), "{one:?}");
    let twelve = table(12);
    assert_eq!(
        (twelve.len(), twelve[8].as_str(), twelve[9].starts_with("rank")),
        (17, "4 others", true),
        "{twelve:?}"
    );
}

/// One recording of a job of many ranks says how many there should be; without a launcher that is not known, and no number.
#[test]
fn what_a_job_of_one_recording_has_is_not_invented() {
    let clean = Verdict::new(Outcome::Clean, "");
    let row = |facts: Value| {
        let (mut replay, names) = (Replay::new(), Names::default());
        replay.apply(&Item::Meta(facts), &names);
        let mut p = Process::new(&replay, &names, &clean, &[]);
        p.ended = Ended::Running;
        let row = export::tables::job(&Report { processes: vec![p], exit: None, next: Vec::new() }, 1, None);
        ["world_size", "missing_ranks", "running", "restarts"].map(|column| row[column].clone())
    };
    let of_four = json!({"rank": 2, "local_rank": 2, "world_size": 4, "restart": 1, "pid": 7});
    assert_eq!(row(of_four), [json!(4), json!(3), json!(1), json!(1)]);
    assert_eq!(row(json!({"rank": 0, "pid": 7})), [Value::Null, Value::Null, json!(1), json!(0)]);
}
