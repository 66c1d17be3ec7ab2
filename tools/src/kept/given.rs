//! Functions that are given a keeper: what they put into their parameter they put into it. Objects that are made like another one.

use super::adds::Search;
use super::keeper::Name;
use super::scope::{children, part};
use super::values;
use std::collections::HashSet;
use tree_sitter::Node;

impl<'t> Search<'_, 't> {
    /// Parameters that are given the keeper, by whatever calls a function of this source.
    pub(super) fn given(&self) -> HashSet<Name> {
        let (source, mut found) = (self.source, HashSet::new());
        for call in source.all("call") {
            let (Some(function), Some(arguments)) = (part(*call, "function"), part(*call, "arguments"))
            else {
                continue;
            };
            let name = source.text(function).rsplit('.').next().unwrap_or_default();
            for (i, argument) in children(arguments).into_iter().enumerate() {
                let keyword = (argument.kind() == "keyword_argument").then(|| source.field(argument, "name"));
                let value = part(argument, "value").filter(|_| keyword.is_some());
                let value = value.unwrap_or(argument);
                if !self.is_keeper(value) {
                    continue;
                }
                let own = source.text(value).rsplit('.').next().unwrap_or_default();
                found.extend(self.parameters(name, i, keyword.unwrap_or(own), keyword.is_some()));
            }
        }
        found
    }

    /// The parameter of a function, or a class, of this name; where no such function is there, those that are called as what is given.
    fn parameters(&self, callee: &str, i: usize, own: &str, by_name: bool) -> Vec<Name> {
        let source = self.source;
        let functions = || source.all("function_definition").iter();
        // A class is called as well, and that is its `__init__`.
        let is_made = |f: &Node<'t>| {
            source.field(*f, "name") == "__init__"
                && source.class_around(*f).is_some_and(|c| source.field(c, "name") == callee)
        };
        let is_named = |f: &&Node<'t>| source.field(**f, "name") == callee || is_made(f);
        let named: Vec<&Node<'t>> = functions().filter(is_named).collect();
        let of = |f: &Node<'t>, name: &str| Name::Of(f.id(), name.to_string());
        if named.is_empty() {
            let same = functions().filter(|f| source.parameters(**f).contains(&own));
            return same.map(|f| of(f, own)).collect();
        }
        let one = |f: &Node<'t>| {
            let all = source.given(*f);
            match by_name {
                true => all.contains(&own).then(|| of(f, own)),
                false => all.get(i).map(|name| of(f, name)),
            }
        };
        named.into_iter().filter_map(one).collect()
    }

    /// What a call that makes an object like another one gives it, built on what that one has: `replace(state, rows=state.rows + (x,))`,
    /// `State(state.step + 1, state.rows + (x,))`.
    pub(super) fn copied(&self, call: Node<'t>) -> Option<Node<'t>> {
        let class = self.keeper.class.as_deref().filter(|_| self.keeper.kind == "attribute")?;
        let is_copy = [class, "replace", "_replace", "evolve"].contains(&values::called(self.source, call));
        let arguments = part(call, "arguments").filter(|_| is_copy).map(children)?;
        let is_it = |a: &Node<'t>| {
            a.kind() != "keyword_argument" || self.source.field(*a, "name") == self.keeper.variable
        };
        let value = |a: Node<'t>| if a.kind() == "keyword_argument" { part(a, "value") } else { Some(a) };
        let builds = |v: &Node<'t>| {
            let is_made = matches!(v.kind(), "binary_operator" | "list" | "tuple" | "dictionary" | "set");
            is_made && !self.is_rest(*v) && self.mentions(*v)
        };
        arguments.into_iter().filter(is_it).filter_map(value).find(builds)
    }
}
