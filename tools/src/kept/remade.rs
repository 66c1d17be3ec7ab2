//! Where a block is made anew and larger again and again, nothing old is left that a holder could be asked for. The line that makes it is a statement
//! that builds on what its own name had: `cache = torch.cat([cache, new])`.

use super::find::{Found, Statement, find};
use super::keeper::Keeper;
use super::scope::{self, Source, last_line, line, outward, part};
use tree_sitter::Node;

/// What a line of a stack says.
pub(super) enum Line {
    /// It assigns what it builds on.
    Builds(Statement),
    /// It hands on what it makes: the caller's line may.
    Returns,
    /// Something else.
    Other,
}

/// Understands the line of a frame.
pub(super) fn at(text: &str, at: u32) -> Line {
    let Some(tree) = scope::parse(text).filter(|t| scope::is_shallow(t.root_node())) else {
        return Line::Other;
    };
    let source = Source::new(text, tree.root_node());
    let is_there = |n: &&Node<'_>| (line(**n)..=last_line(**n)).contains(&at);
    let mut all = source.all("assignment").iter().filter(is_there);
    let (Some(one), None) = (all.next(), all.next()) else {
        return if source.all("return_statement").iter().any(|n| is_there(&n)) {
            Line::Returns
        } else {
            Line::Other
        };
    };
    let keeper = part(*one, "left").and_then(|left| keeper(&source, left));
    match keeper.map(|k| find(text, &k)) {
        Some(Found::One(statement, _)) if statement.line == line(*one) => {
            let help = "allocate it once with its final size, or keep only its last part";
            Line::Builds(Statement { remedy: Some(help.into()), ..statement })
        }
        _ => Line::Other,
    }
}

/// What is assigned, as a probe would name it.
fn keeper(source: &Source<'_>, target: Node<'_>) -> Option<Keeper> {
    let own = Keeper { type_name: "Tensor".into(), rebound: true, ..Keeper::default() };
    match target.kind() {
        "subscript" => keeper(source, part(target, "value")?),
        "attribute" => Some(Keeper {
            kind: "attribute".into(),
            variable: source.field(target, "attribute").into(),
            class: Some(source.field(source.class_around(target)?, "name").into()),
            ..own
        })
        .filter(|_| part(target, "object").is_some_and(|o| source.is_self(o))),
        "identifier" => {
            let variable = source.text(target).to_string();
            let mut around = outward(target);
            let Some(function) = around.find(|n| n.kind() == "function_definition") else {
                return Some(Keeper { kind: "global".into(), variable, ..own });
            };
            // What an argument had is the caller's.
            let is_argument = source.parameters(function).contains(&variable.as_str());
            let (name, first) = (source.field(function, "name").to_string(), line(function));
            let local = Keeper {
                kind: "local".into(),
                variable,
                function: Some(name),
                first_line: Some(first),
                ..own
            };
            (!is_argument).then_some(local)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn builds(text: &str, line: u32, is: Option<&str>) {
        let found = match at(text, line) {
            Line::Builds(s) => Some((s.line, s.text)),
            _ => None,
        };
        assert_eq!(found, is.map(|s| (line, s.to_string())), "{text}");
    }

    #[test]
    fn a_line_that_builds_on_its_own_name_keeps_what_it_makes() {
        let class = |body: &str| format!("class Cache:\n    def put(self, i, k):\n        {body}\n");
        for body in ["self.k = torch.cat([self.k, k])", "self.k[i] = torch.cat([self.k[i], k], dim=-2)"] {
            builds(&class(body), 3, Some(body));
        }
        builds(&class("new = torch.cat([self.k, k])"), 3, None);
        builds(&class("k = torch.cat([self.k, k])"), 3, None);
        let text = "q = start()\nfor x in data:\n    q = torch.cat([q, x])\n";
        builds(text, 3, Some("q = torch.cat([q, x])"));
        // A loop inside the step begins anew each time.
        let inner = "def step(x):\n    k = start(x)\n    k = torch.cat([self.past, k])\n    return k\n";
        builds(inner, 3, None);
        assert!(matches!(at(inner, 4), Line::Returns));
    }
}
