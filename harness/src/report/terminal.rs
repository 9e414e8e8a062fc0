//! Tables whose lines are printed as they come, on a terminal of any width: where it is narrow, the columns that matter least are left out.
//!
//! Widths are fixed, because lines are printed long before the last one is known.

use crate::out::visible;

/// A column.
#[derive(Debug)]
pub struct Column<R: 'static> {
    /// Its name, over two lines.
    pub name: [&'static str; 2],
    /// How wide it is, in characters. Longer cells push what follows to the right.
    pub width: usize,
    /// Text begins on the left, figures end on the right.
    pub is_text: bool,
    /// Whether it says what the line is about, and stands also where nothing was measured.
    pub is_label: bool,
    /// When it is left out: the highest first, never where it is zero.
    pub spare: u8,
    /// What it shows of a record; colours take no room.
    pub cell: fn(&R) -> String,
}

impl<R> Column<R> {
    /// A label of text.
    #[must_use]
    pub const fn text(name: &'static str, width: usize, cell: fn(&R) -> String) -> Self {
        Self {
            is_text: true,
            ..Self::label(name, width, cell)
        }
    }

    /// A label that is a number.
    #[must_use]
    pub const fn label(name: &'static str, width: usize, cell: fn(&R) -> String) -> Self {
        Self {
            is_label: true,
            ..Self::figure([name, ""], width, cell)
        }
    }

    /// A figure.
    #[must_use]
    pub const fn figure(name: [&'static str; 2], width: usize, cell: fn(&R) -> String) -> Self {
        Self {
            name,
            width,
            is_text: false,
            is_label: false,
            spare: 0,
            cell,
        }
    }

    /// The same column, which is left out where there is no room for it.
    #[must_use]
    pub const fn spare(self, spare: u8) -> Self {
        Self { spare, ..self }
    }

    fn padded(&self, cell: &str) -> String {
        let room = " ".repeat(self.width.saturating_sub(visible(cell)));
        if self.is_text {
            format!("{cell}{room}")
        } else {
            format!("{room}{cell}")
        }
    }
}

/// The columns for which a terminal has room; all of them where there is none.
fn fitting<R>(columns: &[Column<R>], width: Option<usize>) -> impl Iterator<Item = &Column<R>> {
    let taken = |most: u8| {
        let shown = columns.iter().filter(|column| column.spare <= most);
        shown
            .map(|column| column.width + 1)
            .sum::<usize>()
            .saturating_sub(1)
    };
    let most = (0..=u8::MAX)
        .rev()
        .find(|most| width.is_none_or(|width| taken(*most) <= width));
    let most = most.unwrap_or(0);
    columns.iter().filter(move |column| column.spare <= most)
}

/// The names of the columns, in two lines.
#[must_use]
pub fn head<R>(columns: &[Column<R>], width: Option<usize>) -> String {
    let line = |at: usize| {
        let names = fitting(columns, width).map(|column| column.padded(column.name[at]));
        names.collect::<Vec<_>>().join(" ").trim_end().to_owned()
    };
    format!("{}\n{}\n", line(0), line(1))
}

/// The line of a record; where it could not be measured, its labels and why.
#[must_use]
pub fn line<R>(
    columns: &[Column<R>],
    width: Option<usize>,
    record: &R,
    why_not: Option<&str>,
) -> String {
    let shown = fitting(columns, width).filter(|column| why_not.is_none() || column.is_label);
    let mut cells: Vec<String> = shown
        .map(|column| column.padded(&(column.cell)(record)))
        .collect();
    cells.extend(why_not.map(|why| format!("not measured: {why}")));
    cells.join(" ").trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::out::BAD;

    const COLUMNS: &[Column<u32>] = &[
        Column::text("name", 6, |number| format!("n{number}")),
        Column::figure(["time", "us"], 5, |number| format!("{BAD}{number}{BAD:#}")),
        Column::figure(["least", "us"], 5, |_| "1".to_owned()).spare(2),
        Column::figure(["most", "us"], 5, |_| "9".to_owned()).spare(1),
    ];

    #[test]
    fn what_matters_least_is_left_out_where_the_terminal_is_narrow() {
        let first = |width| {
            let head = head(COLUMNS, width);
            head.lines().next().expect("a line").to_owned()
        };
        assert_eq!(first(None), "name    time least  most");
        assert_eq!(first(Some(24)), "name    time least  most");
        assert_eq!(first(Some(23)), "name    time  most");
        assert_eq!(first(Some(17)), "name    time");
        assert_eq!(first(Some(3)), "name    time");
    }

    #[test]
    fn colours_take_no_room_and_what_was_not_measured_says_why() {
        let text = line(COLUMNS, None, &7, None);
        let plain = anstream::adapter::strip_str(&text).to_string();
        assert_eq!(plain, "n7         7     1     9\n");
        let text = line(COLUMNS, Some(10), &7, Some("no such type"));
        assert_eq!(text, "n7     not measured: no such type\n");
    }
}
