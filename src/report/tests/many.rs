//! Jobs of many processes.

use super::*;

#[test]
fn of_many_ranks_those_with_nothing_to_tell_are_one_line() {
    let [well, leaks] = [0, 1].map(|i| rank(i, 20, i == 1));
    let table = |bad: usize| {
        let is_bad = |i: usize| (7..7 + bad).contains(&i);
        let processes = (0..20).map(|i| if is_bad(i) { leaks.process() } else { well.process() }).collect();
        let mut out = Vec::new();
        text::write(&mut out, &Report { processes, exit: None, ..Report::default() }, Style::default())
            .unwrap();
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
        let row =
            export::tables::job(&Report { processes: vec![p], exit: None, ..Report::default() }, 1, None);
        ["world_size", "missing_ranks", "running", "restarts"].map(|column| row[column].clone())
    };
    let of_four = json!({"rank": 2, "local_rank": 2, "world_size": 4, "restart": 1, "pid": 7});
    assert_eq!(row(of_four), [json!(4), json!(3), json!(1), json!(1)]);
    assert_eq!(row(json!({"rank": 0, "pid": 7})), [Value::Null, Value::Null, json!(1), json!(0)]);
}

#[test]
fn ranks_that_hold_the_same_are_named_as_groups() {
    // Of four stages of a pipeline of two ranks each, the first two hold as much.
    let more = [0, 0, 0, 0, 4, 4, 9, 9];
    let of = |(rank, more): (usize, u64)| {
        let mut job = Job::of_rank(rank as u64, Some(8));
        (0..more).for_each(|_| assert!(job.alloc(GIB, MAIN, job::BUILD).is_some()));
        job.train(20, 0, 0).judged(as_known, Ended::Exit)
    };
    let ranks: Vec<Judged> = more.into_iter().enumerate().map(of).collect();
    let report =
        |n| Report { processes: ranks[..n].iter().map(Judged::process).collect(), ..Report::default() };
    let said = |n| {
        let (mut text, mut json) = (Vec::new(), Vec::new());
        text::write(&mut text, &report(n), Style::default()).unwrap();
        json::write(&mut json, &report(n)).unwrap();
        let text = String::from_utf8(text).unwrap();
        let words: Vec<&str> = text.split_whitespace().collect();
        (words.join(" "), serde_json::from_slice::<Value>(&json).unwrap()["ranks"]["groups"].clone())
    };
    let (text, groups) = said(8);
    let held = |g: &Value| g["allocated_high"].as_u64().unwrap() / GIB;
    let first = held(&groups[0]);
    assert_eq!(groups[0]["ranks"], json!([0, 1, 2, 3]));
    assert_eq!(groups[2]["processes"], json!([6, 7]));
    assert_eq!((held(&groups[1]) - first, held(&groups[2]) - first), (4, 9));
    let sentence = "ranks form 3 groups: ranks 0 to 3 hold ";
    assert!(text.contains(sentence) && text.contains(" GiB at the end of a step, ranks 4 to 5 "), "{text}");
    assert!(text.contains(" times the smallest)"), "{text}");
    // The last stage has one rank here: it is none that groups are told of.
    let (text, groups) = said(7);
    assert!(groups == json!([]) && !text.contains("groups"), "{text}");
}

/// Where all ended well, nobody asks.
#[test]
fn how_ranks_ended_is_told_where_one_failed() {
    let all = [0, 1, 2].map(|i| rank(i, 3, false));
    let of = |first: Ended| {
        let mut processes: Vec<Process<'_>> = all.iter().map(Judged::process).collect();
        processes[0].ended = first;
        Report { processes, ..Report::default() }
    };
    let table = |r: &Report<'_>| {
        let text = one_line(r);
        let (_, table) = text.split_once("process verdict ").expect("a table");
        table.split(" rank 2 NO LEAK").next().unwrap_or_default().to_owned()
    };
    let well = table(&of(Ended::Exit));
    assert!(well.starts_with("peak left behind steps rank 0 NO LEAK ") && !well.contains("exit"), "{well}");
    let killed = table(&of(Ended::Signal(9)));
    assert!(killed.starts_with("ended peak left behind steps rank 0 NO LEAK SIGKILL "), "{killed}");
    assert!(killed.contains(" rank 1 NO LEAK exit "), "{killed}");
}

#[test]
fn how_many_ranks_ended_is_told_in_a_line_of_many() {
    let all = [0, 1].map(|i| rank(i, 20, false));
    let mut processes: Vec<Process<'_>> = (0..20).map(|_| all[1].process()).collect();
    processes[3].ended = Ended::Signal(9);
    let text = one_line(&Report { processes, ..Report::default() });
    assert!(text.contains(" all 20 NO LEAK 19 exit, 1 SIGKILL "), "{text}");
}
