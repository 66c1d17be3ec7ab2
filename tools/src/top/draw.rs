//! The screen: a pure function of the state and the time, made for 80 columns and 24 lines.

use super::rank::{Bar, Growth, Rank};
use super::state::{Mode, State};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};
use strandline::report::{curve, duration, plural, rounded, seconds, size, size_f, thousands};

/// Lines beside the rows and the detail: title, columns, footer.
const FIXED: u16 = 3;
/// Lines that a detail wants at least.
const DETAIL: u16 = 12;
const KEYS: &str = " q quit  ↑↓ select  s sort  / filter  enter stack  p snapshot  ? help";
const STACK_KEYS: &str = " enter back  ↑↓ another line";
const HELP_KEYS: &str = " any key: back";
/// What keys do and columns mean.
const HELP: &[(&str, &str)] = &[
    ("q  ctrl-c", "quit top; the jobs keep running"),
    ("up  down", "select a row; the memory that it holds is shown below the table"),
    ("s", "sort by process, growth, allocated, full in, last event"),
    ("/", "show only rows with this text in rank, host, command or a line; esc: all"),
    ("enter", "the stack of a line that allocates"),
    ("p", "write a snapshot for pytorch.org/memory_viz beside the recording"),
    ("", ""),
    ("ALLOC", "memory of live tensors, in GiB; PEAK: the highest so far"),
    ("RESERV", "memory that PyTorch has reserved"),
    ("TREND", "ALLOC over the last ten minutes"),
    ("GROWTH", "memory added per step and not yet freed (mb: microbatch)"),
    ("FULL IN", "time until the GPU is full, at the current rate"),
    ("IDLE", "time since the job's last event; if it is long, the job may be stuck"),
];
/// Forecasts beyond this are not worth a number in a narrow column.
const FAR: u64 = 100_000;

/// Draws it. `now`: nanoseconds of the Unix epoch.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State, now: u64) {
    let shown = state.shown();
    let at = state.at(&shown);
    let most = frame.area().height.saturating_sub(FIXED + DETAIL).max(3);
    let rows = (shown.len().clamp(1, usize::from(most))) as u16;
    let parts = [1, 1, rows].map(Constraint::Length).into_iter();
    let parts = parts.chain([Constraint::Fill(1), Constraint::Length(1)]);
    let [title, columns, table, detail, footer] = Layout::vertical(parts).areas(frame.area());

    let dim = Style::new().add_modifier(Modifier::DIM);
    frame.render_widget(Paragraph::new(headline(state, shown.len())), title);
    let cells = Table::of(state, &shown, now, usize::from(frame.area().width));
    let heads = Paragraph::new(cells.line(0, ' '));
    frame.render_widget(heads.style(Style::new().add_modifier(Modifier::BOLD)), columns);
    let first = (at + 1).saturating_sub(usize::from(rows));
    let lines: Vec<Line<'_>> = match shown.is_empty() {
        true if state.rows.is_empty() => vec![Line::raw(" no running job yet")],
        true => vec![Line::raw(" no row matches the filter")],
        false => (first..shown.len())
            .map(|i| row(shown[i], cells.line(i + 1, if i == at { '>' } else { ' ' }), i == at))
            .collect(),
    };
    frame.render_widget(Paragraph::new(lines), table);
    if state.mode == Mode::Help {
        frame.render_widget(help(usize::from(detail.width)), detail);
    } else if let Some(selected) = shown.get(at) {
        let text = match state.mode {
            Mode::Stack(site) => stack(selected, site),
            _ => self::detail(selected, usize::from(detail.width)),
        };
        let text = Paragraph::new(text);
        // Frames are long, and their ends say most.
        let wrapped = matches!(state.mode, Mode::Stack(_));
        frame.render_widget(if wrapped { text.wrap(Wrap { trim: false }) } else { text }, detail);
    }
    let foot = match state.mode {
        Mode::Filter => Line::raw(format!(" filter: {}▏ enter keep  esc clear", state.filter)),
        Mode::Stack(_) => Line::styled(STACK_KEYS, dim),
        Mode::Help => Line::styled(HELP_KEYS, dim),
        Mode::Rows if !state.message.is_empty() => Line::raw(format!(" {}", state.message)),
        Mode::Rows => Line::styled(KEYS, dim),
    };
    frame.render_widget(Paragraph::new(foot), footer);
    if state.ascii {
        to_ascii(frame.buffer_mut());
    }
}

/// Signs that the reader's locale does not have, each as one that it has.
fn to_ascii(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        let sign = match cell.symbol() {
            s if s.is_ascii() => continue,
            "─" => '-',
            "▏" => '|',
            "↑" | "↓" => '^',
            "▓" => '%',
            "▒" => '~',
            "░" => 'o',
            s => strandline::report::ascii(s).chars().next().filter(|c| *c != '\\').unwrap_or('?'),
        };
        cell.set_char(sign);
    }
}

fn help(width: usize) -> Paragraph<'static> {
    let lines = HELP.iter().map(|(what, means)| Line::raw(format!(" {what:<10} {means}")));
    Paragraph::new(std::iter::once(rule("help", width)).chain(lines).collect::<Vec<_>>())
}

fn headline(state: &State, shown: usize) -> String {
    let all = state.rows.len();
    let how_many = plural(all as u64, "process");
    let how_many = if shown == all { how_many } else { format!("{shown} of {how_many}") };
    let filter = match state.filter.as_str() {
        "" => String::new(),
        text => format!(" · filter {text}"),
    };
    format!(" strandline top · {how_many} · sizes in GiB · sorted by {}{filter}", state.sort.name())
}

/// Cells of a line of the table.
type Cells = [String; 10];
/// How wide they are at least, where ranks name the rows: 80 columns with the mark.
const WIDE: [usize; 10] = [4, 3, 6, 6, 6, 6, TREND, 13, 12, 6];
/// Columns that give the first one room, where it needs more and they have it.
const SPARE: [usize; 2] = [7, 8];
/// Points of the curve in a row.
const TREND: usize = 8;
/// Columns from which on a row says what keeps its memory, too.
const KEEPER_FROM: usize = 110;

/// The table: its heads, and its lines.
struct Table {
    cells: Vec<Cells>,
    wide: [usize; 10],
    /// What keeps the memory of each line, where there is room.
    keepers: Option<Vec<String>>,
}

impl Table {
    fn of(state: &State, shown: &[&Rank], now: u64, width: usize) -> Table {
        let names: Vec<(bool, String)> = shown.iter().map(|r| state.name(r)).collect();
        // Of all rows: a filter that shows none changes no head.
        let ranks = state.rows.iter().filter(|r| state.name(r).0).count();
        let head = match ranks {
            n if n == state.rows.len() => "RANK",
            0 => "PID",
            _ => "PROCESS",
        };
        let heads = [head, "GPU", "STEPS", "ALLOC", "RESERV", "PEAK", "TREND", "GROWTH", "FULL IN", "IDLE"];
        let mut all = vec![heads.map(str::to_owned)];
        for (r, (is_rank, name)) in shown.iter().zip(names) {
            let name = if is_rank && head == "PROCESS" { format!("rank {name}") } else { name };
            all.push(cells(r, name, now));
        }
        let most = |i: usize| all.iter().map(|c| c[i].chars().count()).max().unwrap_or(0);
        let mut wide = WIDE;
        wide[0] = wide[0].max(most(0));
        let mut wanted = wide[0] - WIDE[0];
        for i in SPARE {
            let given = wanted.min(wide[i].saturating_sub(most(i)));
            (wide[i], wanted) = (wide[i] - given, wanted - given);
        }
        let kept = |r: &&Rank| r.growth.as_ref().map(|g| g.kept.clone().unwrap_or_else(|| g.place.clone()));
        let keepers = (width >= KEEPER_FROM).then(|| {
            let heads = std::iter::once("KEPT BY".to_string());
            heads.chain(shown.iter().map(|r| kept(r).unwrap_or_default())).collect()
        });
        Table { cells: all, wide, keepers }
    }

    /// A line: 0 is that of the heads.
    fn line(&self, i: usize, mark: char) -> String {
        let mut line = String::from(mark);
        for (k, (cell, wide)) in self.cells[i].iter().zip(self.wide).enumerate() {
            line.push_str(if k > 0 { " " } else { "" });
            line.push_str(&format!("{cell:>wide$}"));
        }
        if let Some(keeper) = self.keepers.as_ref().and_then(|all| all.get(i)) {
            line.push_str(&format!("  {keeper}"));
        }
        line
    }
}

fn cells(r: &Rank, name: String, now: u64) -> Cells {
    let or_none = |n: Option<String>| n.unwrap_or_else(|| "-".into());
    [
        name,
        or_none(r.key.1.map(|n| n.to_string())),
        r.steps.to_string(),
        gib(r.allocated),
        gib(r.reserved),
        gib(r.peak),
        or_none(Some(curve(&r.recent, TREND)).filter(|c| !c.is_empty())),
        or_none(r.growth.as_ref().map(|g| format!("{}/{}", size_f(g.bytes), g.per))),
        or_none(r.growth.as_ref().map(full)),
        if r.ended { "ended".into() } else { age(now.saturating_sub(r.last_event)) },
    ]
}

fn row(r: &Rank, text: String, selected: bool) -> Line<'static> {
    let style = if r.growth.is_some() { Style::new().fg(Color::Red) } else { Style::new() };
    Line::styled(text, if selected { style.add_modifier(Modifier::REVERSED) } else { style })
}

/// `3 min 4 s`; where the time is not known `92 steps`; in twelve columns at most.
fn full(g: &Growth) -> String {
    if let Some(left) = g.seconds {
        return seconds(left);
    }
    match g.full.map(|f| f.mid) {
        None => "size unknown".into(),
        Some(u64::MAX) => "growth slows".into(),
        Some(n) if n >= FAR => "later".into(),
        Some(n) if g.per == "step" => plural(n, "step"),
        // An abbreviation.
        Some(n) => format!("{} {}", thousands(n), g.per),
    }
}

fn gib(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / (1u64 << 30) as f64)
}

/// `3 s`, `12 min`: the largest unit alone.
fn age(nanos: u64) -> String {
    let seconds = nanos / 1_000_000_000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86400),
    }
}

fn detail(r: &Rank, width: usize) -> Vec<Line<'static>> {
    let mut lines = vec![rule(&r.title, width)];
    lines.push(Line::raw(format!(" {}", r.verdict)));
    if let Some(g) = &r.growth {
        lines.push(Line::raw(format!(" {} more a {}{}", size_f(g.bytes), noun(g.per), forecast(g, r.ended))));
        if let Some(kept) = &g.kept {
            lines.push(Line::raw(format!("   kept by {kept}")));
        }
        lines.push(Line::raw(format!("   allocated at {}", g.place)));
    }
    if r.bar.total > 0 {
        lines.push(bar(&r.bar, width.saturating_sub(2)));
        lines.push(legend(&r.bar));
    }
    if let (Some(low), Some(high)) = (r.recent.iter().min(), r.recent.iter().max()) {
        let text = format!(" {} to {} in the last {}", size(*low), size(*high), duration(r.recent_span));
        let room = width.saturating_sub(text.chars().count() + 3).min(r.recent.len());
        lines.push(Line::raw(format!(" {}{text}", curve(&r.recent, room))));
    }
    for s in &r.streams {
        let waiting =
            if s.waiting > 0 { format!(", {} wait for this stream", size(s.waiting)) } else { String::new() };
        let blocks = plural(s.blocks, "block");
        lines.push(Line::raw(format!(" {:>9}  {} in {blocks}{waiting}", size(s.bytes), s.name)));
    }
    for s in &r.sites {
        let leaks = if s.leaks { "  <- left behind" } else { "" };
        let text = format!(" {:>9}  {:>6}  {}{leaks}", size(s.bytes), thousands(s.blocks), s.place);
        let style = if s.leaks { Style::new().fg(Color::Red) } else { Style::new() };
        lines.push(Line::styled(text, style));
    }
    lines
}

/// What the table has no room for.
fn noun(per: &str) -> &str {
    match per {
        "mb" => "microbatch",
        "s" => "second",
        other => other,
    }
}

/// When the device is full; of a process that has ended, when it would have been.
fn forecast(g: &Growth, ended: bool) -> String {
    let Some(f) = g.full.filter(|f| f.mid != u64::MAX) else { return String::new() };
    let high = if f.high == u64::MAX { "never".into() } else { thousands(rounded(f.high)) };
    let time = g.seconds.filter(|_| !ended).map(|s| format!(", {} from now", seconds(s)));
    let when = if ended { "would have been full after" } else { "full in" };
    // Its seconds are those with GPU memory in use: others pass, too.
    if let Some(s) = g.seconds.filter(|_| g.per == "s") {
        return format!(", {when} about {}", seconds(s));
    }
    let marks = plural(rounded(f.mid), noun(g.per));
    format!(", {when} about {marks} ({} to {high}){}", thousands(rounded(f.low)), time.unwrap_or_default())
}

fn rule(text: &str, width: usize) -> Line<'static> {
    let mut line = format!("── {text} ");
    let used = Span::raw(line.as_str()).width();
    line.push_str(&"─".repeat(width.saturating_sub(used)));
    Line::styled(line, Style::new().add_modifier(Modifier::DIM))
}

/// The parts of the bar: what each is drawn with, its colour, its name, its bytes. Told apart without colour, too.
fn parts(b: &Bar) -> [(char, Color, &'static str, u64); 6] {
    let free = if b.told { "free" } else { "not PyTorch's" };
    [
        ('█', Color::Blue, "normal", b.job),
        ('▓', Color::Red, "left behind", b.left_behind),
        ('▒', Color::Yellow, "waiting", b.waiting),
        ('░', Color::Cyan, "cached", b.cached),
        ('×', Color::Magenta, "others", b.others),
        ('·', Color::Reset, free, b.free),
    ]
}

/// The bar, of exactly `width` columns.
fn bar(b: &Bar, width: usize) -> Line<'static> {
    let mut spans = vec![Span::raw(" ")];
    let (mut sum, mut drawn) = (0u128, 0);
    for (with, colour, _, bytes) in parts(b) {
        sum += u128::from(bytes);
        let end = (sum * width as u128 / u128::from(b.total.max(1))) as usize;
        spans.push(Span::styled(with.to_string().repeat(end - drawn), Style::new().fg(colour)));
        drawn = end;
    }
    Line::from(spans)
}

fn legend(b: &Bar) -> Line<'static> {
    let mut spans = Vec::new();
    for (with, colour, name, bytes) in parts(b).into_iter().filter(|p| p.3 > 0) {
        spans.push(Span::styled(format!(" {with}"), Style::new().fg(colour)));
        spans.push(Span::raw(format!(" {name} {} ", gib(bytes))));
    }
    if !b.whole {
        spans.push(Span::raw("(reserved; size unknown)"));
    }
    Line::from(spans)
}

fn stack(r: &Rank, site: usize) -> Vec<Line<'static>> {
    let Some(s) = r.sites.get(site.min(r.sites.len().saturating_sub(1))) else { return Vec::new() };
    let what = format!(" {} in {} · {}", size(s.bytes), plural(s.blocks, "block"), s.place);
    let mut lines = vec![Line::styled(what, Style::new().add_modifier(Modifier::BOLD))];
    if s.stacks > 1 {
        lines.push(Line::raw(format!(" one of {} stacks that lead there:", s.stacks)));
    }
    lines.extend(s.stack.iter().map(|f| Line::raw(format!("   {f}"))));
    lines
}
