//! Functions that are given a keeper: what they put into their parameter they put into it.

use super::adds::{Name, Search};
use super::scope::{children, part};
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

    /// The parameter of a function of this name; where no such function is there, those that are called as what is given.
    fn parameters(&self, callee: &str, i: usize, own: &str, by_name: bool) -> Vec<Name> {
        let source = self.source;
        let functions = || source.all("function_definition").iter();
        let named: Vec<&Node<'t>> = functions().filter(|f| source.field(**f, "name") == callee).collect();
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
}
