//! `strandline dump`: what is in a recording, one line for each event, for grep and for tests.

mod fields;
mod stacks;

use crate::analyze::Feed;
use crate::error::Error;
use crate::symbols::Symbols;
use crate::{cli, recording, say};
use fields::Fields;
use serde_json::Value;
use std::fmt::Write;
use std::ops::ControlFlow;
use strandline::event::Item;
use strandline::replay::PASSES;

/// Text is written in pieces of this size.
const PIECE: usize = 1 << 16;

/// Runs the command; the result is the exit status.
///
/// # Errors
/// The recording cannot be read, or the folder holds several.
pub(crate) fn main(options: &cli::Dump) -> Result<u8, Error> {
    let found = recording::find(Some(&options.recording))?;
    let path = recording::only(&found)?;
    let mut text = String::with_capacity(PIECE + 4096);
    let mut symbols = Symbols::default();
    let mut feed = Feed::open(path)?;
    feed.until(|item, names| {
        // What a reader is told beside the recording is not in it.
        if matches!(item, Item::Meta(facts) if facts.get(PASSES).is_some()) {
            return ControlFlow::Continue(());
        }
        let stack = stacks::of_native_stack(item, names, &mut symbols);
        let Some(fields) = stack.or_else(|| fields::of_item(item, names)) else {
            return ControlFlow::Continue(());
        };
        match options.format {
            cli::DumpFormat::Text => line(&fields, &mut text),
            cli::DumpFormat::Json => {
                let _ = writeln!(text, "{}", Value::Object(fields));
            }
        }
        let full = text.len() >= PIECE;
        if full && !say::out(&text) {
            return ControlFlow::Break(());
        }
        if full {
            text.clear();
        }
        ControlFlow::Continue(())
    });
    say::out(&text);
    feed.damage().iter().for_each(|d| say::line(format!("damage: {d}")));
    Ok(0)
}

/// `0.001234567 alloc device=0 …`: the time in seconds, the name, then `key=value` for the rest.
fn line(fields: &Fields, text: &mut String) {
    let nanos = fields.get("t_ns").and_then(Value::as_u64);
    match nanos {
        Some(n) => {
            let _ = write!(text, "{}.{:09}", n / 1_000_000_000, n % 1_000_000_000);
        }
        None => text.push('-'),
    }
    let _ = write!(text, " {}", fields.get("what").and_then(Value::as_str).unwrap_or("unknown"));
    for (name, value) in fields.iter().filter(|(name, _)| *name != "t_ns" && *name != "what") {
        let _ = match value {
            Value::String(s) if !s.contains([' ', '"', '\n']) && !s.is_empty() => write!(text, " {name}={s}"),
            other => write!(text, " {name}={other}"),
        };
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline::event::*;

    fn shown(item: &Item, names: &Names) -> String {
        let mut text = String::new();
        line(&fields::of_item(item, names).unwrap(), &mut text);
        text
    }

    #[test]
    fn an_allocation_is_one_line_that_can_be_grepped() {
        let mut names = Names::default();
        names.add_stack(StackId(7), [Frame { file: "a b.py".into(), line: 3, function: "f".into() }]);
        let block = Block {
            addr: Addr(0x7f00),
            size: Bytes(100),
            rounded: Bytes(512),
            stream: StreamHandle(0x20),
            stack: StackId(7),
            phase: Phase { backward: true, ..Phase::default() },
            totals: Some(Totals { allocated: Bytes(512), reserved: Bytes(2 << 20) }),
            ..Block::default()
        };
        let event = Event { time: Nanos(1_000_000_002), thread: ThreadId(1), body: Body::Alloc(block) };
        assert_eq!(
            shown(&Item::Event(event), &names),
            "1.000000002 alloc thread=1 device=0 addr=0x7f00 size=100 rounded=512 stream=0x20 phase=backward \
             allocated=512 reserved=2097152 stack=7 at=\"a b.py:3\" in=f\n"
        );
        let end = shown(&Item::End(Nanos(5)), &names);
        assert_eq!(end, "0.000000005 end\n");
        assert!(fields::of_item(&Item::Stack(StackId(7)), &names).is_none());
    }
}
