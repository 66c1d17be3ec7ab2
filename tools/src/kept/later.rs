//! What helps where a source reads later what it keeps: nothing that takes it away before.

use super::adds::Add;
use super::growing::{EPOCHS, LONGEST};
use super::keeper::Keeper;
use super::reads::{As, Read, When};
use super::removes;
use super::scope::Source;
use super::stored::is_number;
use tree_sitter::Node;

/// For a container that is read, and may be emptied only then.
pub(super) fn after<'t>(source: &Source<'t>, add: &Add<'t>, read: &Read) -> String {
    let name = removes::container(source, add).map_or("it", |c| source.text(c));
    format!("empty {name} after {} which needs what it has: {name}.clear()", read.place())
}

/// To keep what a statement stores where it takes no memory of the GPU.
fn in_host<'t>(source: &Source<'t>, add: &Add<'t>, keeper: &Keeper, read: &Read) -> String {
    match (one(source, &add.values).filter(|_| keeper.direct), &read.with) {
        (Some(one), Some((_, other))) => {
            format!("keep both in host memory, {one}.cpu() and {other}.cpu()")
        }
        (None, Some((other, _))) => format!("keep its tensors and those of {other} in host memory, .cpu()"),
        (Some(tensor), None) => format!("keep it in host memory, {tensor}.cpu()"),
        (None, None) => "keep its tensors in host memory, .cpu()".into(),
    }
}

/// For a container all of which is read: what stands in it must not be lost before. It is kept where it takes no memory of the GPU.
pub(super) fn of_read<'t>(source: &Source<'t>, add: &Add<'t>, keeper: &Keeper, read: &Read) -> String {
    let (value, place) = (one(source, &add.values), read.place());
    if read.takes == As::Graphs {
        return after(source, add, read);
    }
    if read.takes == As::Numbers && is_number(source, &add.values) {
        let number = value.map_or_else(|| "its .item()".to_owned(), |v| format!("{v}.item()"));
        return format!("keep the number, {number}: {place} needs them");
    }
    format!(
        "{}, and move back only what is used on the GPU: {place} needs it",
        in_host(source, add, keeper, read)
    )
}

/// Advice for a container that somebody reads now and then: it is not emptied before.
pub(super) fn once<'t>(
    source: &Source<'t>,
    add: &Add<'t>,
    keeper: &Keeper,
    read: &Read,
    text: String,
) -> String {
    let once = format!("once {} has used it", read.place());
    let clears = read.with.as_ref().map(|(other, _)| format!(".clear() and {other}.clear() {EPOCHS}"));
    let text = match text.split_once(", or ").filter(|(clear, _)| clear.contains(EPOCHS)) {
        Some((_, limit)) if read.when == When::Sampled => limit.to_owned(),
        Some((clear, _)) if read.when == When::Elsewhere => {
            format!("{clear}, or {}", in_host(source, add, keeper, read))
        }
        _ => text,
    };
    let text = clears.map_or(text.clone(), |c| text.replace(&format!(".clear() {EPOCHS}"), &c));
    text.replace(EPOCHS, &once)
}

/// The one value that is kept, where its text is short and takes a method: `loss`, `net(x).mean()`.
pub(super) fn one<'t>(source: &Source<'t>, values: &[Node<'t>]) -> Option<&'t str> {
    let [only] = values else { return None };
    let is_plain = matches!(only.kind(), "identifier" | "attribute" | "call" | "subscript");
    let text = source.text(*only);
    (is_plain && text.len() <= LONGEST && !text.contains('\n')).then_some(text)
}
