//! What helps where a source reads later what it keeps: nothing that takes it away before.

use super::adds::{self, Add};
use super::growing::{EPOCHS, LONGEST};
use super::keeper::Keeper;
use super::needs::{As, Read, When};
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
    let one = one(source, &add.values).filter(|_| keeper.direct && !is_one_of_several(source, keeper));
    match (one, read.with.as_slice()) {
        (Some(one), [(_, other)]) => format!("keep both in host memory, {one}.cpu() and {other}.cpu()"),
        (Some(tensor), []) => format!("keep it in host memory, {tensor}.cpu()"),
        (None, []) => "keep its tensors in host memory, .cpu()".into(),
        (_, others) => {
            let others: Vec<&str> = others.iter().map(|(other, _)| other.as_str()).collect();
            format!("keep its tensors and those of {} in host memory, .cpu()", others.join(" and "))
        }
    }
}

/// Whether several statements fill a keeper: what is done at one alone would mix tensors of the GPU with those in host memory.
pub(super) fn is_one_of_several(source: &Source<'_>, keeper: &Keeper) -> bool {
    adds::all(source, keeper).iter().filter(|a| a.may_hold && a.grows).count() > 1
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
    let also: String = read.with.iter().map(|(other, _)| format!(" and {other}.clear()")).collect();
    let text = match text.split_once(", or ").filter(|(clear, _)| clear.contains(EPOCHS)) {
        Some((_, limit)) if read.when == When::Sampled => limit.to_owned(),
        // It may need all that ever was there.
        Some((clear, _)) => {
            format!("{clear}, or {}", in_host(source, add, keeper, read))
        }
        _ => text,
    };
    let text = text.replace(&format!(".clear() {EPOCHS}"), &format!(".clear(){also} {EPOCHS}"));
    text.replace(EPOCHS, &once)
}

/// The one value that is kept, where its text is short and takes a method: `loss`, `net(x).mean()`.
pub(super) fn one<'t>(source: &Source<'t>, values: &[Node<'t>]) -> Option<&'t str> {
    let [only] = values else { return None };
    let is_plain = matches!(only.kind(), "identifier" | "attribute" | "call" | "subscript");
    let text = source.text(*only);
    (is_plain && text.len() <= LONGEST && !text.contains('\n')).then_some(text)
}
