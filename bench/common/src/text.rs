//! Reports as text: tables that fit a terminal, with the published figures.

use std::fmt::Write as _;

use crate::report::{BenchReport, Figure, Report, Role, Row, Table, Target, Wanted};

/// The whole report.
pub fn report(report: &Report) -> String {
    let mut text = format!("{}\n{} run", report.machine.words(), report.profile);
    let _ = writeln!(text, ", {:.1} s\n", report.seconds);
    for bench in &report.benches {
        text += &of_bench(bench);
    }
    text
}

pub(crate) fn of_bench(bench: &BenchReport) -> String {
    let mut text = format!("== {}: {}\n\n", bench.name, bench.about);
    for table in &bench.tables {
        let title = [&*table.title, table.unit].into_iter();
        let title: Vec<&str> = title.filter(|part| !part.is_empty()).collect();
        if !title.is_empty() {
            let _ = writeln!(text, "{}", title.join(", "));
        }
        text += &of_table(table);
        text.push('\n');
    }
    if !bench.targets.is_empty() {
        text += &of_targets(&bench.targets);
        text.push('\n');
    }
    for note in &bench.notes {
        let _ = writeln!(text, "  note: {note}");
    }
    text.push('\n');
    text
}

fn of_table(table: &Table) -> String {
    let is_compared = compares(table);
    let is_beside = has(table, Role::Ours) && has(table, Role::Competitor);
    let is_published = table.rows.iter().any(|row| row.published.is_some());
    let mut headings: Vec<String> = table.labels.iter().map(|&label| label.into()).collect();
    headings.extend(table.columns.iter().map(|column| column.name.clone()));
    if is_compared {
        headings.push("ours against baseline".into());
    }
    if is_beside {
        headings.push("ours / best crate".into());
    }
    headings.extend(
        table
            .ratios
            .iter()
            .map(|ratio| format!("{} / {}", ratio.column, ratio.to)),
    );
    let spread = table.ratios.first().filter(|_| is_repeated(table));
    headings.extend(spread.map(|_| "spread".into()));
    if is_published {
        headings.push("published before".into());
        headings.push("after".into());
    }
    let cells = |row: &Row| {
        let mut cells = row.labels.clone();
        cells.extend(row.figures.iter().map(|cell| match cell {
            Some(cell) => figure(cell.value),
            None => "-".into(),
        }));
        if is_compared {
            cells.push(verdict(table, row));
        }
        if is_beside {
            cells.push(beside(table, row));
        }
        cells.extend(table.ratios.iter().map(|ratio| {
            let value = table.ratio(row, ratio);
            value.map_or_else(String::new, figure)
        }));
        cells.extend(spread.map(|ratio| {
            let figure = table.cell(row, &ratio.column);
            let percent = figure.and_then(Figure::spread_percent);
            percent.map_or_else(String::new, |percent| format!("{percent:.0} %"))
        }));
        if is_published {
            let (before, after) = row.published.map_or(("", ""), |p| (p.before, p.after));
            cells.push(before.into());
            cells.push(after.into());
        }
        cells
    };
    let rows: Vec<_> = table.rows.iter().map(cells).collect();
    render(&headings, &rows, table.labels.len())
}

fn is_repeated(table: &Table) -> bool {
    let mut figures = table
        .rows
        .iter()
        .flat_map(|row| row.figures.iter().flatten());
    figures.any(|figure| figure.runs.len() > 1)
}

fn compares(table: &Table) -> bool {
    has(table, Role::Baseline) && has(table, Role::Ours)
}

fn has(table: &Table, role: Role) -> bool {
    table.columns.iter().any(|column| column.role == role)
}

/// Which part ours is of the best crate's figure, and which crate that is.
fn beside(table: &Table, row: &Row) -> String {
    let ours = table.best_of(row, Role::Ours);
    match (ours, table.best_of(row, Role::Competitor)) {
        (Some((_, ours)), Some((name, best))) if best > 0.0 => {
            format!("{} x {name}", figure(ours / best))
        }
        _ => "-".into(),
    }
}

/// How ours stands against the old way, fixed or not, whichever is better. Says so where it loses.
fn verdict(table: &Table, row: &Row) -> String {
    let labels: Vec<&str> = row.labels.iter().map(String::as_str).collect();
    let of = |role| table.best(&labels, role).filter(|figure| *figure > 0.0);
    let Some(ours) = of(Role::Ours) else {
        return "-".into();
    };
    let times = |before: Option<f64>| match before {
        None => String::new(),
        Some(before) if before < ours => format!("{} x, baseline wins", figure(before / ours)),
        Some(before) => format!("{} x", figure(before / ours)),
    };
    match (of(Role::Baseline), of(Role::Fixed)) {
        (before, None) => times(before),
        (None, fixed) => times(fixed),
        (before, fixed) => format!("{}; fixed {}", times(before), times(fixed)),
    }
}

fn of_targets(targets: &[Target]) -> String {
    let headings = ["to reach", "wanted", "by", "reached", ""].map(String::from);
    let row = |target: &Target| {
        let wanted = match target.wanted {
            Wanted::AtMost(bound) => format!("at most {} {}", figure(bound), target.unit),
            Wanted::AtLeast(bound) => format!("at least {} {}", figure(bound), target.unit),
            Wanted::Below(bound) => format!("below {} {}", figure(bound), target.unit),
        };
        let met = if target.met { "met" } else { "MISSED" };
        let reached = format!("{} {}", figure(target.reached), target.unit);
        let by = target.measured_on.unwrap_or("this run").into();
        vec![target.what.clone(), wanted, by, reached, met.into()]
    };
    let rows: Vec<_> = targets.iter().map(row).collect();
    render(&headings, &rows, 1)
}

/// Labels to the left, figures to the right.
fn render(headings: &[String], rows: &[Vec<String>], labels: usize) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let widths = cells
            .chain(headings.get(column))
            .map(|cell| cell.chars().count());
        widths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    let mut text = String::new();
    let lines = [headings, &rule[..]].into_iter();
    for row in lines.chain(rows.iter().map(Vec::as_slice)) {
        let mut line = String::from("  ");
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
            let _ = if column < labels {
                write!(line, "{gap}{cell}{padding}")
            } else {
                write!(line, "{gap}{padding}{cell}")
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// Three significant digits below a thousand, whole numbers with thousands apart above.
pub fn figure(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (position, digit) in whole.char_indices() {
        if position > 0 && (whole.len() - position).is_multiple_of(3) {
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
    use crate::report::{Column, Published};

    fn table(before: f64, fixed: f64, ours: f64) -> Table {
        Table {
            title: "walked list".into(),
            unit: "ns",
            labels: vec!["in use"],
            columns: vec![
                Column::new("baseline", Role::Baseline),
                Column::new("fixed", Role::Fixed),
                Column::new("ours", Role::Ours),
            ],
            rows: vec![Row {
                labels: vec!["196".into()],
                figures: [before, fixed, ours]
                    .map(|value| Some(Figure::once(value)))
                    .to_vec(),
                published: Some(Published {
                    before: "5,528",
                    after: "75-147",
                }),
                failure: None,
            }],
            ratios: Vec::new(),
        }
    }

    #[test]
    fn published_figures_stand_next_to_ours() {
        let text = of_table(&table(1000.0, 500.0, 10.0));
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| {
                line.split("  ")
                    .map(str::trim)
                    .filter(|cell| !cell.is_empty())
                    .collect()
            })
            .collect();
        let headings = [
            "in use",
            "baseline",
            "fixed",
            "ours",
            "ours against baseline",
            "published before",
            "after",
        ];
        assert_eq!(lines[0], headings);
        let row = [
            "196",
            "1,000",
            "500",
            "10.0",
            "100 x; fixed 50.0 x",
            "5,528",
            "75-147",
        ];
        assert_eq!(lines[2], row);
    }

    #[test]
    fn where_the_baseline_wins_the_table_says_so() {
        let text = of_table(&table(5.0, 4.0, 10.0));
        assert!(
            text.contains("0.50 x, baseline wins; fixed 0.40 x, baseline wins"),
            "{text}"
        );
    }

    #[test]
    fn three_digits_are_enough() {
        let written = [0.0, 0.456, 9.999, 12.34, 123.4, 1_234_567.8, -4096.4].map(figure);
        let expected = ["0", "0.46", "10.00", "12.3", "123", "1,234,568", "-4,096"];
        assert_eq!(written, expected.map(String::from));
    }

    #[test]
    fn a_missed_target_stands_out() {
        let target = |met| Target {
            what: "flat".into(),
            reached: 1.5,
            wanted: Wanted::AtMost(1.2),
            unit: "x",
            met,
            measured_on: None,
        };
        let text = of_targets(&[target(false)]);
        assert!(
            text.contains("at most 1.20 x") && text.contains("1.50 x") && text.contains("MISSED")
        );
        assert!(text.contains("this run"), "{text}");
        let measured_on = Some("a machine");
        let text = of_targets(&[Target {
            measured_on,
            ..target(true)
        }]);
        assert!(text.contains("a machine") && text.contains("met"), "{text}");
    }

    #[test]
    fn a_row_names_the_best_crate_and_which_part_of_its_figure_ours_is() {
        let mut table = table(5.0, 4.0, 2.0);
        assert!(!of_table(&table).contains("best crate"), "there is none");
        for (name, value) in [("slow", Some(9.0)), ("quick", Some(8.0)), ("absent", None)] {
            table.columns.push(Column::new(name, Role::Competitor));
            table.rows[0].figures.push(value.map(Figure::once));
        }
        let text = of_table(&table);
        assert!(text.contains("ours / best crate"), "{text}");
        assert!(text.contains("0.25 x quick"), "{text}");
    }
}
