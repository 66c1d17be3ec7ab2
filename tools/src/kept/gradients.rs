//! A backward that creates a graph makes each gradient a part of it: gradients that are not set to None keep the graphs of all steps.

use super::find::{Statement, in_one_line};
use super::scope::{self, Source, children, last_line, line, outward, part};
use super::values::called;
use tree_sitter::Node;

const HELP: &str = "create_graph=True makes every gradient part of an autograd graph: set the gradients to None in every step (optimizer.zero_grad(), or x.grad = None for a tensor that no optimizer has), or use torch.autograd.grad(…, create_graph=True), which stores nothing in .grad";

/// The statement of a line that calls `backward(create_graph=True)`.
pub(super) fn at(text: &str, at: u32) -> Option<Statement> {
    let tree = scope::parse(text).filter(|t| scope::is_shallow(t.root_node()))?;
    let source = Source::new(text, tree.root_node());
    let is_there = |n: &&Node<'_>| (line(**n)..=last_line(**n)).contains(&at);
    let creates = |n: &&Node<'_>| called(&source, **n) == "backward" && creates_graph(&source, **n);
    let call = source.all("call").iter().filter(is_there).find(creates)?;
    let statement = outward(*call).find(|n| n.kind().ends_with("_statement")).unwrap_or(*call);
    let whole = if statement.kind() == "expression_statement" { statement } else { *call };
    Some(Statement { line: line(whole), text: in_one_line(source.text(whole)), remedy: Some(HELP.into()) })
}

fn creates_graph(source: &Source<'_>, call: Node<'_>) -> bool {
    let arguments = part(call, "arguments").map(children).unwrap_or_default();
    arguments
        .iter()
        .any(|a| source.field(*a, "name") == "create_graph" && source.field(*a, "value") != "False")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_backward_that_creates_a_graph_keeps_those_of_all_steps() {
        let told = |line: &str| at(&format!("for x in data:\n    {line}\n"), 2).map(|s| (s.line, s.text));
        let creates = "net(x).sum().backward(create_graph=True)";
        assert_eq!(told(creates), Some((2, creates.to_owned())));
        let asked = "torch.autograd.backward(loss, create_graph=self.second)";
        assert_eq!(told(asked), Some((2, asked.to_owned())));
        assert_eq!(
            told("if twice: loss.backward(create_graph=True)").map(|s| s.1),
            Some("loss.backward(create_graph=True)".into())
        );
        for other in [
            "loss.backward()",
            "loss.backward(create_graph=False)",
            "g = torch.autograd.grad(loss, w, create_graph=True)",
        ] {
            assert_eq!(told(other), None, "{other}");
        }
    }
}
