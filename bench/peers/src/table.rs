//! Tables of text: the first column to the left, figures to the right.

/// Renders a table; every row has as many cells as there are headings.
pub(crate) fn render(headings: &[String], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells
            .chain(headings.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    let mut text = String::new();
    for row in [headings, &rule[..]]
        .into_iter()
        .chain(rows.iter().map(Vec::as_slice))
    {
        text.push_str(&line(row, &widths));
        text.push('\n');
    }
    text
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let mut text = String::new();
    for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
        if column == 0 {
            text.push_str(&format!("{cell}{padding}"));
        } else {
            text.push_str(&format!("  {padding}{cell}"));
        }
    }
    text.truncate(text.trim_end().len());
    text
}

/// A figure with thousands apart: `12,345.6`.
pub(crate) fn figure(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (position, digit) in whole.char_indices() {
        if position > 0 && (whole.len() - position) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let sign = if value < 0.0 { "-" } else { "" };
    format!("{sign}{grouped}{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            cells(&["nginx", "1,000", "2"]),
            cells(&["a longer name", "3", ""]),
        ];
        let text = render(&cells(&["server", "req/s", "p99"]), &rows);
        let expected = "\
server         req/s  p99
-------------  -----  ---
nginx          1,000    2
a longer name      3
";
        assert_eq!(text, expected);
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(figure(0.0, 0), "0");
        assert_eq!(figure(999.0, 0), "999");
        assert_eq!(figure(1000.0, 0), "1,000");
        assert_eq!(figure(1_234_567.891, 2), "1,234,567.89");
        assert_eq!(figure(-4096.4, 0), "-4,096");
        assert_eq!(figure(3.456, 2), "3.46");
    }
}
