//! What a pickle holds, in about as many bytes as it has itself.
//!
//! A value is one word: a kind and a number, which is the value itself where it is small, else its place in the list of its kind. So an
//! entry of a history, 70 bytes of a pickle, takes 100 here, and what is shared is there once.

use super::value::Value;

/// A value in four bytes: four bits of kind, 28 of number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell(u32);

/// Numbers that a cell can hold.
pub(super) const MOST: usize = 1 << 28;
const NONE: u32 = 0;
const BOOL: u32 = 1;
const SMALL: u32 = 2;
const INT: u32 = 3;
const LONG: u32 = 4;
const FLOAT: u32 = 5;
const TEXT: u32 = 6;
const LIST: u32 = 7;
const DICT: u32 = 8;
const TUPLE: u32 = 9;

impl Cell {
    /// No value: what a memo holds that was never written.
    pub(super) const EMPTY: Cell = Cell(u32::MAX);

    fn new(kind: u32, number: usize) -> Cell {
        Cell(kind << 28 | (number as u32 & (MOST as u32 - 1)))
    }

    fn kind(self) -> u32 {
        self.0 >> 28
    }

    fn number(self) -> usize {
        (self.0 & (MOST as u32 - 1)) as usize
    }
}

/// Where the cells of a list, dict or tuple lie.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: u32,
    /// [`GROWN`]: they have grown, and `start` numbers them.
    cells: u32,
}

const GROWN: u32 = u32::MAX;

/// What was read, and which opcodes it took.
#[derive(Debug, Default)]
pub struct Tree {
    ints: Vec<i64>,
    longs: Vec<i128>,
    floats: Vec<f64>,
    /// All texts one after the other, and where each ends.
    text: String,
    text_ends: Vec<u32>,
    spans: Vec<Span>,
    cells: Vec<Cell>,
    /// What was appended to more than once.
    grown: Vec<Vec<Cell>>,
    /// Cells of all of them.
    grown_cells: usize,
    pub(super) root: Option<Cell>,
    pub(super) opcodes: Vec<bool>,
    /// The pickle protocol it was written in.
    pub protocol: u8,
    /// Most items that one opcode appended or set.
    pub longest_batch: usize,
}

/// Values of a list or a tuple in their order.
#[derive(Clone, Copy, Debug)]
pub struct Items<'a> {
    tree: &'a Tree,
    cells: &'a [Cell],
}

impl<'a> Items<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// The value at this place.
    pub fn get(&self, at: usize) -> Option<Value> {
        self.cells.get(at).map(|c| self.tree.value(*c))
    }

    /// One after the other.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Value> + ExactSizeIterator + use<'a> {
        let tree = self.tree;
        self.cells.iter().map(|c| tree.value(*c))
    }
}

impl Tree {
    /// The outermost value.
    pub fn root(&self) -> Value {
        self.root.map_or(Value::None, |c| self.value(c))
    }

    /// The opcodes that occurred.
    pub fn opcodes(&self) -> impl Iterator<Item = u8> + '_ {
        self.opcodes.iter().enumerate().filter(|(_, seen)| **seen).map(|(op, _)| op as u8)
    }

    /// The text, where the value is one.
    pub fn text(&self, v: Value) -> Option<&str> {
        let Value::Text(i) = v else { return None };
        let i = i as usize;
        let from = if i == 0 { 0 } else { *self.text_ends.get(i - 1)? as usize };
        self.text.get(from..*self.text_ends.get(i)? as usize)
    }

    /// The items, where the value is a list or a tuple, each made as it is asked for.
    pub fn items(&self, v: Value) -> Option<Items<'_>> {
        match v {
            Value::List(i) | Value::Tuple(i) => Some(Items { tree: self, cells: self.cells(i)? }),
            _ => None,
        }
    }

    /// All items, where the value is a list.
    pub fn list(&self, v: Value) -> Option<Vec<Value>> {
        self.items(v).filter(|_| matches!(v, Value::List(_))).map(|items| items.iter().collect())
    }

    /// All members, where the value is a tuple.
    pub fn tuple(&self, v: Value) -> Option<Vec<Value>> {
        self.items(v).filter(|_| matches!(v, Value::Tuple(_))).map(|items| items.iter().collect())
    }

    /// All keys and values in the order they were set, where the value is a dict.
    pub fn dict(&self, v: Value) -> Option<Vec<(Value, Value)>> {
        Some(self.pairs(v)?.iter().map(|[k, v]| (self.value(*k), self.value(*v))).collect())
    }

    /// What a dict has under a text key; a later setting wins, as in Python.
    pub fn get(&self, v: Value, key: &str) -> Option<Value> {
        let found = self.pairs(v)?.iter().rev().find(|[k, _]| self.text(self.value(*k)) == Some(key));
        found.map(|[_, v]| self.value(*v))
    }

    fn pairs(&self, v: Value) -> Option<&[[Cell; 2]]> {
        if let Value::Dict(i) = v { Some(self.cells(i)?.as_chunks().0) } else { None }
    }

    fn cells(&self, number: u32) -> Option<&[Cell]> {
        let span = self.spans.get(number as usize)?;
        match span.cells {
            GROWN => self.grown.get(span.start as usize).map(Vec::as_slice),
            n => self.cells.get(span.start as usize..)?.get(..n as usize),
        }
    }

    fn value(&self, c: Cell) -> Value {
        let n = c.number();
        match c.kind() {
            BOOL => Value::Bool(n == 1),
            SMALL => Value::Int(n as i128),
            INT => Value::Int(self.ints.get(n).copied().unwrap_or(0).into()),
            LONG => Value::Int(self.longs.get(n).copied().unwrap_or(0)),
            FLOAT => Value::Float(self.floats.get(n).copied().unwrap_or(0.0)),
            TEXT => Value::Text(n as u32),
            LIST => Value::List(n as u32),
            DICT => Value::Dict(n as u32),
            TUPLE => Value::Tuple(n as u32),
            _ => Value::None,
        }
    }

    pub(super) fn new() -> Tree {
        Tree { opcodes: vec![false; 256], ..Tree::default() }
    }

    /// About how many bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        self.ints.len() * 8
            + self.longs.len() * 16
            + self.floats.len() * 8
            + self.text.len()
            + (self.text_ends.len() + self.cells.len() + self.grown_cells) * 4
            + (self.spans.len()) * size_of::<Span>()
            + self.grown.len() * 2 * size_of::<Vec<Cell>>()
    }

    pub(super) fn none() -> Cell {
        Cell::new(NONE, 0)
    }

    pub(super) fn bool(value: bool) -> Cell {
        Cell::new(BOOL, usize::from(value))
    }

    pub(super) fn add_int(&mut self, value: i128) -> Cell {
        if let Some(small) = usize::try_from(value).ok().filter(|n| *n < MOST) {
            return Cell::new(SMALL, small);
        }
        match i64::try_from(value) {
            Ok(int) => {
                self.ints.push(int);
                Cell::new(INT, self.ints.len() - 1)
            }
            Err(_) => {
                self.longs.push(value);
                Cell::new(LONG, self.longs.len() - 1)
            }
        }
    }

    pub(super) fn add_float(&mut self, value: f64) -> Cell {
        self.floats.push(value);
        Cell::new(FLOAT, self.floats.len() - 1)
    }

    /// `None`: there is more text than can be numbered.
    pub(super) fn add_text(&mut self, bytes: &[u8]) -> Option<Cell> {
        self.text.push_str(&String::from_utf8_lossy(bytes));
        self.text_ends.push(u32::try_from(self.text.len()).ok()?);
        Some(Cell::new(TEXT, self.text_ends.len() - 1))
    }

    pub(super) fn add_list(&mut self, items: &[Cell]) -> Cell {
        Cell::new(LIST, self.add_span(items))
    }

    pub(super) fn add_dict(&mut self) -> Cell {
        Cell::new(DICT, self.add_span(&[]))
    }

    pub(super) fn add_tuple(&mut self, items: &[Cell]) -> Cell {
        Cell::new(TUPLE, self.add_span(items))
    }

    fn add_span(&mut self, items: &[Cell]) -> usize {
        // No more cells than values that were pushed, of which there are fewer than 2^28.
        self.spans.push(Span { start: self.cells.len() as u32, cells: items.len() as u32 });
        self.cells.extend_from_slice(items);
        self.spans.len() - 1
    }

    pub(super) fn is_list(c: Cell) -> bool {
        c.kind() == LIST
    }

    pub(super) fn is_dict(c: Cell) -> bool {
        c.kind() == DICT
    }

    /// Adds to what has cells. Most have all of theirs at once; others move where they can grow.
    pub(super) fn extend(&mut self, container: Cell, items: &[Cell]) {
        let end = self.cells.len();
        let Some(span) = self.spans.get_mut(container.number()) else { return };
        if span.cells == GROWN {
            if let Some(cells) = self.grown.get_mut(span.start as usize) {
                cells.extend_from_slice(items);
                self.grown_cells += items.len();
            }
            return;
        }
        let (start, n) = (span.start as usize, span.cells as usize);
        if n == 0 || start + n == end {
            let start = if n == 0 { end } else { start };
            *span = Span { start: start as u32, cells: (n + items.len()) as u32 };
            self.cells.extend_from_slice(items);
            return;
        }
        *span = Span { start: self.grown.len() as u32, cells: GROWN };
        let mut cells = self.cells.get(start..start + n).unwrap_or_default().to_vec();
        cells.extend_from_slice(items);
        self.grown_cells += cells.len();
        self.grown.push(cells);
    }
}
