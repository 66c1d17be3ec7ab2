//! How a pass of a loop, or a call of a function, comes to two of its lines: what events cannot tell of optimizers that take turns.

use super::scope::{below, children, is_shallow, last_line, line, parse, part};
use strandline::event::steps::InPass;
use tree_sitter::{Node, Tree};

/// A source that was parsed.
pub(crate) struct Parsed {
    text: String,
    tree: Tree,
}

/// A block that not every pass runs once.
struct Block<'t> {
    /// The statement that it is of, and which of its blocks it is.
    place: (usize, usize),
    is_loop: bool,
    body: Node<'t>,
}

/// Where a line is: blocks from the outermost on.
struct Place<'t> {
    line: u32,
    function: Node<'t>,
    body: Node<'t>,
    blocks: Vec<Block<'t>>,
}

const LOOPS: [&str; 2] = ["for_statement", "while_statement"];
/// Statements of whose blocks a pass runs one at most.
const BRANCHES: [&str; 2] = ["if_statement", "match_statement"];
/// What ends a pass, or the loop.
const JUMPS: [&str; 4] = ["continue_statement", "return_statement", "break_statement", "raise_statement"];

impl Parsed {
    /// `None`: it is no Python, or none that a person wrote.
    pub(crate) fn of(text: String) -> Option<Parsed> {
        let tree = parse(&text).filter(|tree| is_shallow(tree.root_node()))?;
        Some(Parsed { text, tree })
    }

    /// How many loops of this function run a line and step: themselves, or what that line calls (`is_stepping`, to which this function's own steps
    /// are added). A loop that only gathers gradients does not. `None` where that cannot be told.
    pub(crate) fn loops(&self, function: &str, line: u32, is_stepping: &mut bool) -> Option<usize> {
        let place = self.place(function, line)?;
        let is_step = |n: Node<'_>| {
            let called = part(n, "function").and_then(|f| part(f, "attribute"));
            n.kind() == "call" && called.is_some_and(|name| &self.text[name.byte_range()] == "step")
        };
        let steps = |body: Node<'_>| below(body, &|_| true).into_iter().any(is_step);
        let loops = place.blocks.iter().filter(|b| b.is_loop && (*is_stepping || steps(b.body))).count();
        *is_stepping |= steps(place.body);
        Some(loops)
    }

    /// Whether a line has `a if x else b`.
    pub(crate) fn chooses(&self, line: u32) -> bool {
        let all = below(self.tree.root_node(), &|n| has(n, line));
        all.into_iter().any(|n| n.kind() == "conditional_expression" && has(n, line))
    }

    /// How a pass comes to two lines of a function, and whether it is the second of them that each pass comes to.
    pub(crate) fn in_pass(&self, function: &str, [first, second]: [u32; 2]) -> Option<(InPass, bool)> {
        let (a, b) = (self.place(function, first)?, self.place(function, second)?);
        let common = a.blocks.iter().zip(&b.blocks).take_while(|(x, y)| x.place == y.place).count();
        match (a.blocks.get(common), b.blocks.get(common)) {
            _ if a.function != b.function => None,
            (Some(x), Some(y)) => (x.place.0 == y.place.0).then_some((InPass::Either, false)),
            (None, Some(branch)) => Some((a.beside(branch, common, b.line)?, false)),
            (Some(branch), None) => Some((b.beside(branch, common, a.line)?, true)),
            (None, None) => a.before(&b, common),
        }
    }

    /// The place of a line in the innermost function around it, if it has this name.
    fn place(&self, function: &str, at: u32) -> Option<Place<'_>> {
        let root = self.tree.root_node();
        let mut place = Place { line: at, function: root, body: root, blocks: Vec::new() };
        let mut body = root;
        while let Some(statement) = children(body).into_iter().find(|s| has(*s, at)) {
            let defined = part(statement, "definition").unwrap_or(statement);
            if matches!(defined.kind(), "function_definition" | "class_definition") {
                body = part(defined, "body").filter(|b| has(*b, at))?;
                (place.function, place.body, place.blocks) = (defined, body, Vec::new());
            } else if let Some((clause, block)) = block(statement, at)? {
                let is_loop = LOOPS.contains(&statement.kind());
                if is_loop || BRANCHES.contains(&statement.kind()) {
                    place.blocks.push(Block { place: (statement.id(), clause), is_loop, body: block });
                }
                body = block;
            } else if below(statement, &|_| true).into_iter().any(|n| is_repeated(n) && has(n, at)) {
                return None;
            } else {
                break;
            }
        }
        let name = part(place.function, "name").map_or("<module>", |n| &self.text[n.byte_range()]);
        Some(place).filter(|_| function.rsplit('.').next() == Some(name))
    }
}

impl Place<'_> {
    /// How a pass that comes to this place, behind `common` blocks, comes to one in a block beside it.
    fn beside(&self, branch: &Block<'_>, common: usize, line: u32) -> Option<InPass> {
        if branch.is_loop {
            return None;
        }
        let is_before = line < self.line;
        let ends_pass = |b: &Block<'_>| children(b.body).last().is_some_and(|s| JUMPS.contains(&s.kind()));
        if is_before && ends_pass(branch) {
            return Some(InPass::Either);
        }
        (!self.may_be_left_out(common, 0)).then_some(InPass::FirstAlways)
    }

    /// The same for two places of one block: a pass may end between them.
    fn before(&self, other: &Place<'_>, common: usize) -> Option<(InPass, bool)> {
        let is_second = other.line < self.line;
        let (first, second) = if is_second { (other, self) } else { (self, other) };
        let is_sometimes = !first.may_be_left_out(common, 0) && second.may_be_left_out(common, first.line);
        is_sometimes.then_some((InPass::FirstAlways, is_second))
    }

    /// Whether a pass may end behind a line, before it comes here, and the loop goes on, or the function is called again. `common`: how many blocks the
    /// places that are compared have in common.
    fn may_be_left_out(&self, common: usize, behind: u32) -> bool {
        let body = common.checked_sub(1).map_or(self.body, |i| self.blocks[i].body);
        let leaves = |kind: &'static str, inside: &'static [&'static str]| {
            let enters = |n: Node<'_>| !inside.contains(&n.kind());
            let is_it = |n: &Node<'_>| n.kind() == kind && line(*n) > behind && line(*n) < self.line;
            below(body, &enters).iter().any(is_it)
        };
        leaves("return_statement", &["function_definition", "lambda"])
            || leaves("continue_statement", &["function_definition", "for_statement", "while_statement"])
    }
}

/// Whether a node has a part of a line.
fn has(node: Node<'_>, at: u32) -> bool {
    (line(node)..=last_line(node)).contains(&at)
}

/// What runs its parts more than once, or later.
fn is_repeated(n: Node<'_>) -> bool {
    n.kind().ends_with("_comprehension") || matches!(n.kind(), "generator_expression" | "lambda")
}

/// The block of a statement that has a line, and its number; `Some(None)`: the statement has none, or it is its first line, which runs once for all
/// of them. `None`: whether the line runs cannot be told.
fn block(statement: Node<'_>, at: u32) -> Option<Option<(usize, Node<'_>)>> {
    fn body<'t>(of: Node<'t>, name: &str, at: u32) -> Option<Node<'t>> {
        part(of, name).filter(|b| has(*b, at))
    }
    let is_loop = LOOPS.contains(&statement.kind());
    let first = body(statement, if statement.kind() == "if_statement" { "consequence" } else { "body" }, at);
    if statement.kind() == "match_statement" {
        let cases = children(part(statement, "body")?);
        let case = cases.iter().position(|c| has(*c, at));
        let Some(n) = case else { return Some(None) };
        return Some(Some((n, body(cases[n], "consequence", at)?)));
    }
    if first.is_some() {
        return Some(first.map(|b| (0, b)));
    }
    let clauses = children(statement).into_iter().filter(|c| c.kind().ends_with("_clause"));
    let Some((n, clause)) = clauses.enumerate().find(|(_, c)| has(*c, at)) else {
        return if statement.kind() == "while_statement" { None } else { Some(None) };
    };
    match clause.kind() {
        "else_clause" if !is_loop => Some(Some((n + 1, body(clause, "body", at)?))),
        "elif_clause" => Some(Some((n + 1, body(clause, "consequence", at)?))),
        "finally_clause" => Some(Some((n + 1, children(clause).into_iter().find(|b| has(*b, at))?))),
        "with_clause" => Some(None),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use InPass::{Either, FirstAlways};

    /// How a pass comes to the lines that end with `A` and `B`.
    fn told(text: &str) -> Option<(InPass, bool)> {
        let at = |mark: &str| text.lines().position(|l| l.ends_with(mark)).map(|n| n as u32 + 1).expect(mark);
        let parsed = Parsed::of(text.to_owned()).expect("Python");
        let function = if text.contains("def fit") { "Trainer.fit" } else { "<module>" };
        parsed.in_pass(function, [at("# A"), at("# B")])
    }

    #[test]
    fn branches() {
        let either = Some((Either, false));
        assert_eq!(told("for i in n:\n  if i % 2:\n    a() # A\n  else:\n    b() # B\n"), either);
        assert_eq!(
            told("for i in n:\n  if i:\n    a() # A\n  elif j:\n    with x:\n      b() # B\n"),
            either
        );
        assert_eq!(
            told("for i in n:\n  match i:\n    case 0:\n      a() # A\n    case _:\n      b() # B\n"),
            either
        );
        assert_eq!(told("for i in n:\n  if i: a() # A\n  else: b() # B\n"), either);
        let jumps =
            "def fit(self):\n  for i in n:\n    if i % 2:\n      a() # A\n      continue\n    b() # B\n";
        assert_eq!(told(jumps), Some((Either, true)));
        assert_eq!(
            told(&jumps.replace("for i in n", "if x").replace("continue", "return")),
            Some((Either, true))
        );
    }

    #[test]
    fn what_some_passes_run_beside_what_each_runs() {
        let first = "for i in n:\n  a() # A\n  if i % 2:\n    b() # B\n";
        assert_eq!(told(first), Some((FirstAlways, false)));
        assert_eq!(told(&first.replace("for i in n", "while True")), Some((FirstAlways, false)));
        assert_eq!(told("for i in n:\n  if i % 2:\n    a() # A\n  b() # B\n"), Some((FirstAlways, true)));
        let loops = "for i in n:\n  a(\n    x) # A\n  if i % 2:\n    for _ in 'ab':\n      b() # B\n";
        assert_eq!(told(loops), Some((FirstAlways, false)));
        let method = "class Trainer:\n  def fit(self, i):\n    try:\n      a() # A\n    finally: pass\n    if i:\n      b() # B\n";
        assert_eq!(told(method), Some((FirstAlways, false)));
        let stops =
            "for i in n:\n  if i > 5:\n    break\n  a() # A\n  if i % 2:\n    b() # B\n    continue\n  c()\n";
        assert_eq!(told(stops), Some((FirstAlways, false)));
    }

    #[test]
    fn what_a_jump_leaves_out() {
        let left = "for i in n:\n  a() # A\n  if i % 2:\n    continue\n  b() # B\n";
        assert_eq!(told(left), Some((FirstAlways, false)));
        let updates =
            "class Trainer:\n  def fit(self, i):\n    b() # B\n    if i:\n      return\n    a() # A\n";
        assert_eq!(told(updates), Some((FirstAlways, true)));
        assert_eq!(told(&left.replace("a() # A\n", "if x: continue\n  a() # A\n")), None);
    }

    #[test]
    fn what_cannot_be_told() {
        for text in [
            "for i in n:\n  a() # A\n  b() # B\n",
            "for i in n:\n  for j in m:\n    a() # A\n  b() # B\n",
            "for i in n:\n  if i:\n    a() # A\n  if j:\n    b() # B\n",
            "for i in n:\n  if i == 3:\n    continue\n  a() # A\n  if i % 2:\n    b() # B\n",
            "for i in n:\n  while a(): # A\n    pass\n  if i % 2:\n    b() # B\n",
            "for i in n:\n  [a() for _ in m] # A\n  if i % 2:\n    b() # B\n",
            "for i in n:\n  try:\n    a() # A\n  except E:\n    b() # B\n",
            "for i in n:\n  if x:\n    pass\n  elif a(): # A\n    pass\n  b() # B\n",
            "def fit(self):\n  a() # A\ndef other():\n  if x:\n    b() # B\n",
            "def other(self):\n  a() # A\n  if x:\n    def fit():\n      b() # B\n",
        ] {
            assert_eq!(told(text), None, "{text}");
        }
    }

    #[test]
    fn loops() {
        let text = "def f():\n  a()\n  for x in y:\n    if x:\n      b()\n  while c():\n    o.step()\n";
        let parsed = Parsed::of(text.to_owned()).unwrap();
        let all = |steps: bool| [2, 3, 5, 6, 7].map(|line| parsed.loops("f", line, &mut steps.clone()));
        assert_eq!(all(false), [Some(0), Some(0), Some(0), None, Some(1)]);
        assert_eq!(all(true), [Some(0), Some(0), Some(1), None, Some(1)]);
        let mut steps = false;
        assert_eq!(parsed.loops("g", 2, &mut steps), None);
        parsed.loops("f", 2, &mut steps);
        assert!(steps, "it has a step");
        let chosen = Parsed::of("a() if x else b()\nc()\n".to_owned()).unwrap();
        assert_eq!([1, 2].map(|line| chosen.chooses(line)), [true, false]);
    }
}
