//! What is on the screen, line by line, and what keys do: drawn into a terminal that is none.

use super::draw::draw;
use super::jobs::Jobs;
use super::rank::{Bar, Growth, Line, Rank, Stream};
use super::state::{Ask, Mode, Sort, State};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use strandline::detect::{Outcome, StepsToOom, Verdict};
use strandline::event::Names;
use strandline::replay::Replay;
use strandline::report::Process;

const SECOND: u64 = 1_000_000_000;

/// What is on a screen of 80x24, without the blanks at the ends of lines.
fn screen(state: &State) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    terminal.draw(|frame| draw(frame, state, 100 * SECOND)).unwrap();
    let cells = terminal.backend().buffer().content();
    let line = |row: &[ratatui::buffer::Cell]| row.iter().map(|c| c.symbol()).collect::<String>();
    cells.chunks(80).map(|row| line(row).trim_end().to_string()).collect()
}

fn press(state: &mut State, keys: &[KeyCode]) -> Ask {
    let press = |key: &KeyCode| state.key(KeyEvent::new(*key, KeyModifiers::NONE));
    keys.iter().map(press).last().unwrap()
}

fn same(lines: &[String], expected: &str) {
    let drawn = lines.join("\n");
    assert_eq!(drawn.trim_end(), expected.trim_end(), "\n{drawn}\n");
}

const PLAIN: &str = r" strandline top · 6 processes · sizes in GiB · sorted by process
  PID GPU  STEPS  ALLOC RESERV   PEAK    TREND        GROWTH      FULL IN   IDLE
 4711   0    120   0.00   1.20   0.00 ▅▆▃▃▅▅▇▅             -            -  ended
 4711   0     15   0.00   0.19   0.00 ▄▄▄▇█▆▆▆             -            -  ended
 4711   0     20   0.00   0.19   0.00 ▄▅▇▇█▇▆▆             -            -  ended
 4711   0    120   0.00   1.20   0.00 ▅▆▃▃▅▅▇▅             -            -  ended
 4711   0     15   0.00   0.19   0.00 ▄▄▄▇█▆▆▆             -            -  ended
>4711   0     20   0.00   0.19   0.00 ▄▅▇▇█▇▆▆             -            -  ended
── pid 4711 ────────────────────────────────────────────────────────────────────
 no leak so far
 ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
 █ normal 0.00  ░ cached 0.19 (reserved; size unknown)
 ▃▃▄▄▄▄▄▄▅▅▅▅▆▆▆▇▇▇▇▇▇████████▇▇████▆▆▆▆▆▆ 887 KiB to 2.4 MiB in the last 40 s
     1 MiB  stream 0 in 20 blocks
   545 KiB  side stream 1 in 17 blocks
   718 KiB      16  train.py:12
   469 KiB      11  train.py:13
   419 KiB      10  train.py:11





 q quit  ↑↓ select  s sort  / filter  enter stack  p snapshot  ? help";

const PLAIN_STACK: &str = r" 718 KiB in 16 blocks · train.py:12
 one of 2 stacks that lead there:
   train.py:12 step";

const LEAK: &str = r" strandline top · 3 processes · sizes in GiB · sorted by growth
 RANK GPU  STEPS  ALLOC RESERV   PEAK    TREND        GROWTH      FULL IN   IDLE
>   1   1     24   2.20   2.75   2.50 ▁▂▃▄▅▆▇█   61 MiB/step    3 min 4 s  1 min
    0   0     24   2.10   2.75   2.50        -             -            -    2 s
    2   2     24   2.30   2.75   2.50        -             -            -  ended
── pid 4001 · node7 · NVIDIA H200 · python train.py ────────────────────────────
 LEAK: it grows
 61 MiB more a step, full in about 92 steps (65 to 185), 3 min 4 s from now
   kept by `hist.append(loss)` at job/leak.py:11
   allocated at model.py:430
 ████▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓░░░░░××××××××××·······································
 █ normal 0.50  ▓ left behind 2.00  ░ cached 0.50  × others 1.00  · free 4.00
 ▁▁▁▁▁▂▂▂▂▂▃▃▃▃▄▄▄▄▄▅▅▅▅▅▆▆▆▆▆▇▇▇▇█████ 37.5 MiB to 2.2 GiB in the last 10 min
   1.9 GiB  side stream 1 in 1 block, 3 MiB wait for this stream
   1.9 GiB   1,159  model.py:430  <- left behind
   205 MiB   1,159  model.py:12







 q quit  ↑↓ select  s sort  / filter  enter stack  p snapshot  ? help";

#[test]
fn recordings_are_drawn_as_they_ended() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/recordings");
    let rows = Jobs::open(Some(&folder), Arc::default()).unwrap().rows();
    let mut state = State { rows, ..State::default() };
    press(&mut state, &[KeyCode::Down; 6]);
    same(&screen(&state), PLAIN);
    press(&mut state, &[KeyCode::Enter]);
    same(&screen(&state)[8..11], PLAIN_STACK);
}

fn job() -> State {
    let gib = |n: f64| (n * (1u64 << 30) as f64) as u64;
    let line = |place: &str, n, leaks| Line {
        place: place.into(),
        bytes: gib(n),
        blocks: 1159,
        leaks,
        stack: vec![format!("/job/{place} forward"), "/job/train.py:88 train".into()],
        stacks: 2,
    };
    let rank = |n: u64, growth: Option<Growth>| Rank {
        key: (PathBuf::from(format!("h-r{n}.strand")), Some(n as u8)),
        rank: Some(n),
        pid: 4000 + n as u32,
        title: format!("pid {} · node7 · NVIDIA H200 · python train.py", 4000 + n),
        steps: 24,
        allocated: gib(2.1 + n as f64 / 10.0),
        reserved: gib(2.75),
        peak: gib(2.5),
        recent: if growth.is_some() { (1..=60).map(|i| i * gib(2.2) / 60).collect() } else { Vec::new() },
        recent_span: 600 * SECOND,
        last_event: (98 - 90 * (n & 1)) * SECOND,
        ended: n == 2,
        verdict: if growth.is_some() { "LEAK: it grows".into() } else { "no leak so far".into() },
        bar: Bar {
            job: gib(0.5),
            left_behind: gib(2.0),
            waiting: 0,
            cached: gib(0.5),
            others: gib(1.0),
            free: gib(4.0),
            total: gib(8.0),
            whole: true,
            told: true,
        },
        streams: vec![Stream { name: "side stream 1".into(), bytes: gib(1.9), blocks: 1, waiting: 3 << 20 }],
        sites: vec![line("model.py:430", 1.9, growth.is_some()), line("model.py:12", 0.2, false)],
        growth,
    };
    let leak = Growth {
        bytes: 61.0 * 1048576.0,
        per: "step",
        full: Some(StepsToOom { low: 65, mid: 92, high: 185 }),
        seconds: Some(184),
        kept: Some("`hist.append(loss)` at job/leak.py:11".into()),
        place: "model.py:430".into(),
    };
    State { rows: vec![rank(0, None), rank(1, Some(leak)), rank(2, None)], ..State::default() }
}

#[test]
fn a_leak_is_told_with_its_forecast_and_its_line() {
    let mut state = job();
    assert!(screen(&state)[2].starts_with(">   0 "), "by rank");
    press(&mut state, &[KeyCode::Char('s')]);
    same(&screen(&state), LEAK);
    press(&mut state, &[KeyCode::Enter, KeyCode::Down, KeyCode::Down]);
    assert_eq!(state.mode, Mode::Stack(1), "there are two lines");
    let stack = &screen(&state)[5..9];
    same(
        stack,
        " 205 MiB in 1,159 blocks · model.py:12\n one of 2 stacks that lead there:\n   /job/model.py:12 forward\n   /job/train.py:88 train",
    );
    press(&mut state, &[KeyCode::Esc]);
    same(&screen(&state), LEAK);
}

#[test]
fn what_keys_and_columns_mean_is_told_and_any_key_leads_back() {
    let mut state = job();
    press(&mut state, &[KeyCode::Char('?')]);
    let drawn = screen(&state).join("\n");
    for head in ["ALLOC", "RESERV", "TREND", "GROWTH", "FULL IN", "IDLE"] {
        assert!(drawn.matches(head).count() >= 2, "{head}: its column, and what it means\n{drawn}");
    }
    assert_eq!(press(&mut state, &[KeyCode::Char('q')]), Ask::Nothing);
    assert_eq!(state.mode, Mode::Rows);
}

#[test]
fn a_locale_without_our_signs_gets_ascii() {
    let mut state = State { ascii: true, sort: Sort::Growth, filter: "h200 · €".into(), ..job() };
    state.rows[1].title.push_str(" · \u{e9}t\u{e9}.py");
    for mode in [Mode::Rows, Mode::Filter, Mode::Help, Mode::Stack(0)] {
        state.mode = mode;
        let drawn = screen(&state);
        assert!(drawn.iter().all(|l| l.is_ascii()), "{drawn:#?}");
    }
    (state.mode, state.filter) = (Mode::Rows, String::new());
    let drawn = screen(&state);
    assert!(drawn[2].contains(" _.:-=+*# ") && drawn[5].starts_with("-- pid 4001 - node7"), "{drawn:#?}");
}

#[test]
fn a_wide_terminal_says_what_keeps_the_memory_in_each_row() {
    let state = State { sort: Sort::Growth, ..job() };
    let line = |width: u16, y: u16| {
        let mut terminal = Terminal::new(TestBackend::new(width, 24)).unwrap();
        terminal.draw(|frame| draw(frame, &state, 100 * SECOND)).unwrap();
        let buffer = terminal.backend().buffer();
        (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>()
    };
    assert!(
        line(140, 1).contains("  KEPT BY")
            && line(140, 2).contains("  `hist.append(loss)` at job/leak.py:11")
    );
    assert!(line(140, 3).trim_end().ends_with("2 s"), "nothing is kept there: {}", line(140, 3));
    assert!(!line(100, 1).contains("KEPT BY"));
}

#[test]
fn keys_select_sort_filter_and_ask() {
    let mut state = job();
    let ranks = |state: &State| state.shown().iter().filter_map(|r| r.rank).collect::<Vec<_>>();
    let orders = [[1, 0, 2], [2, 1, 0], [1, 0, 2], [1, 0, 2], [0, 1, 2]];
    for order in orders {
        press(&mut state, &[KeyCode::Char('s')]);
        assert_eq!(ranks(&state), order, "{:?}", state.sort);
    }
    press(&mut state, &[KeyCode::Down, KeyCode::Char('s')]);
    assert_eq!(state.at(&state.shown()), 0, "the selection goes with its row");
    press(&mut state, &[KeyCode::Char('/'), KeyCode::Char('r'), KeyCode::Char('2')]);
    assert_eq!((ranks(&state), state.at(&state.shown())), (vec![2], 0));
    assert!(screen(&state)[0].contains("1 of 3 processes") && screen(&state)[23].starts_with(" filter: r2"));
    press(&mut state, &[KeyCode::Char('x'), KeyCode::Enter]);
    assert_eq!((ranks(&state), press(&mut state, &[KeyCode::Char('p')])), (vec![], Ask::Nothing));
    press(&mut state, &[KeyCode::Enter, KeyCode::Up]);
    assert_eq!(state.mode, Mode::Rows, "there is no stack to open");
    press(&mut state, &[KeyCode::Esc]);
    assert_eq!((ranks(&state).len(), press(&mut state, &[KeyCode::Char('p')])), (3, Ask::Snapshot));
    assert_eq!(press(&mut state, &[KeyCode::Char('q')]), Ask::Quit);
}

/// A process that has no rank, or one that another has, too, is called by its number, and all of it stays within 80 columns.
#[test]
fn no_two_processes_are_called_the_same() {
    let names = |state: &State| {
        let drawn = screen(state);
        let column = |l: &String| l.chars().skip(1).take(7).collect::<String>();
        (drawn.iter().all(|l| l.chars().count() <= 80), drawn[1..5].iter().map(column).collect::<Vec<_>>())
    };
    let mut state = job();
    state.rows[2].rank = Some(1);
    for (row, pid) in state.rows.iter_mut().zip([2_001_111, 2_002_222, 2_003_333]) {
        row.pid = pid;
    }
    assert_eq!(names(&state).1, ["PROCESS", " rank 0", "2002222", "2003333"]);
    state.rows.iter_mut().for_each(|r| r.rank = None);
    let (fits, drawn) = names(&state);
    assert_eq!(
        (fits, &drawn[..]),
        (true, ["    PID", "2001111", "2002222", "2003333"].map(String::from).as_slice())
    );
    assert!(
        screen(&state)[1].ends_with("IDLE") && screen(&state)[4].ends_with("ended"),
        "{:#?}",
        screen(&state)
    );
}

/// What did nothing with GPU memory is not called unjudged.
#[test]
fn an_idle_process_is_called_that() {
    let (replay, names) = (Replay::new(), Names::default());
    let verdict = Verdict::new(Outcome::Unknown, "nothing was seen");
    let p = Process::new(&replay, &names, &verdict, &[]);
    assert_eq!(super::rank::verdict(&p, false), "no GPU memory so far");
    assert_eq!(super::rank::verdict(&p, true), "not judged yet: nothing was seen", "something is missing");
}

#[test]
fn many_ranks_scroll_and_small_terminals_do_not_matter() {
    let mut state = job();
    let first = state.rows[0].clone();
    let rank = |n: u64| Rank { rank: Some(n), key: (format!("r{n}").into(), Some(0)), ..first.clone() };
    state.rows = (0..64).map(rank).collect();
    press(&mut state, &[KeyCode::Down; 40]);
    let drawn = screen(&state);
    assert!(drawn[10].starts_with(">  40 ") && drawn[2].starts_with("   32 "), "{drawn:#?}");
    for (width, height) in [(1, 1), (20, 3), (79, 8), (300, 100)] {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, &state, 0)).unwrap();
    }
}
