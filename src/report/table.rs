//! Aligned columns.

/// Which side of a column its texts keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Texts.
    Left,
    /// Numbers.
    Right,
}

/// Rows whose columns line up. Widths are counted in characters.
#[derive(Clone, Debug)]
pub struct Table {
    align: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these columns.
    pub fn new(align: impl IntoIterator<Item = Align>) -> Table {
        Table { align: align.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row; missing cells are empty.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The lines, each after `indent` spaces, without trailing spaces. Columns are two spaces apart.
    pub fn lines(&self, indent: usize) -> Vec<String> {
        let width =
            |c: usize| self.rows.iter().map(|r| r.get(c).map_or(0, |s| s.chars().count())).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.align.len()).map(width).collect();
        let line = |row: &Vec<String>| {
            let mut out = " ".repeat(indent);
            for (c, (&w, &align)) in widths.iter().zip(&self.align).enumerate() {
                if c > 0 {
                    out.push_str("  ");
                }
                let text = row.get(c).map_or("", String::as_str);
                let pad = " ".repeat(w - text.chars().count());
                match align {
                    Align::Left => out.extend([text, &pad]),
                    Align::Right => out.extend([&pad, text]),
                }
            }
            out.trim_end().to_owned()
        };
        self.rows.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_whatever_the_characters() {
        let mut t = Table::new([Align::Left, Align::Right, Align::Left]);
        t.row(["step", "GiB", "what"]);
        t.row(["1", "17.4", "µ·x"]);
        t.row(["1,875", "0.1"]);
        assert_eq!(t.lines(2), ["  step    GiB  what", "  1      17.4  µ·x", "  1,875   0.1"]);
    }
}
