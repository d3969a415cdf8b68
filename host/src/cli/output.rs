//! Output for people: tables, fields and lines. Control characters are replaced, so that no text from outside can
//! drive a terminal.

use std::fmt::Write as _;
use std::io::{self, Write as _};

/// The most characters of a cell.
const CELL_CHARS_MAX: usize = 60;
/// The cell of a missing value.
pub(super) const NONE: &str = "–";

/// Writes text to standard output.
pub(super) fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Rows under a header, in columns as wide as their cells.
pub(super) struct Table<const COLUMNS: usize> {
    rows: Vec<[String; COLUMNS]>,
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    pub(super) fn new(header: [&str; COLUMNS]) -> Self {
        Self { rows: vec![header.map(str::to_owned)] }
    }

    pub(super) fn row(&mut self, cells: [&str; COLUMNS]) {
        self.rows.push(cells.map(|cell| cut(&printable(cell))));
    }

    pub(super) fn render(&self) -> String {
        let mut widths = [0; COLUMNS];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(widths) {
                let _ = write!(line, "{cell:<width$}  ");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Names and values, a pair per line. Pairs without a value are left out.
pub(super) fn fields(pairs: &[(&str, Option<&str>)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in pairs {
        if let Some(value) = value {
            let _ = writeln!(text, "{name:<width$}  {}", printable(value));
        }
    }
    text
}

/// A generation as people write it: `orders@3`.
pub(super) fn generation(pack: &str, number: u32) -> String {
    format!("{pack}@{number}")
}

/// The last line of a page, if another page follows.
pub(super) fn next_page(next: Option<&str>) -> String {
    next.map(|next| format!("\nmore: add --after {next}\n")).unwrap_or_default()
}

/// Text without control characters.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { '\u{fffd}' } else { character }).collect()
}

/// Text without control characters other than line ends and tabs.
pub(super) fn printable_lines(text: &str) -> String {
    let shown = |character: char| character == '\n' || character == '\t' || !character.is_control();
    text.chars().map(|character| if shown(character) { character } else { '\u{fffd}' }).collect()
}

fn cut(text: &str) -> String {
    if text.chars().count() <= CELL_CHARS_MAX {
        return text.to_owned();
    }
    text.chars().take(CELL_CHARS_MAX - 1).chain(std::iter::once('…')).collect()
}
