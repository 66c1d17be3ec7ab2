//! A stack of which more is known than the Python frames that its events name: its native frames.

use super::fields::Fields;
use crate::symbols::Symbols;
use serde_json::{Value, json};
use strandline::event::{Frame, Item, Names, NativeFrame, printable};

/// The fields of a stack with native frames; `None` for any other item.
pub(super) fn of_native_stack(item: &Item, names: &Names, symbols: &mut Symbols) -> Option<Fields> {
    let Item::Stack(id) = item else { return None };
    let native = names.native(*id);
    if native.is_empty() {
        return None;
    }
    let function = |f: Frame| match f.line {
        0 => json!({ "function": f.function }),
        line => json!({ "function": f.function, "file": f.file, "line": line }),
    };
    let frame = |f: &NativeFrame| {
        let NativeFrame { module, offset, .. } = f;
        let functions: Vec<Value> = symbols.frames(f).into_iter().map(function).collect();
        json!({ "module": printable(module), "offset": offset, "functions": functions })
    };
    let mut fields = Fields::new();
    fields.insert("what".into(), "stack".into());
    fields.insert("stack".into(), id.0.into());
    fields.insert("native".into(), native.iter().map(frame).collect());
    Some(fields)
}
