//! Plots: one SVG per picture, readable without the table.
//!
//! Two kinds: lines over a load that grows (both axes logarithmic, so that "flat" looks flat and
//! "linear" looks like a slope), and bars side by side. Text is left to the viewer's font; widths
//! leave room for it.

use std::path::{Path, PathBuf};

use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

use crate::error::Error;
use crate::report::{BenchReport, Role, Table};
use crate::text::figure;

const SIZE: (u32, u32) = (960, 600);
const FONT: &str = "sans-serif";
const COLOURS: [RGBColor; 10] = [
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0xE6, 0x9F, 0x00),
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0x56, 0xB4, 0xE9),
    RGBColor(0xCC, 0x79, 0xA7),
    RGBColor(0x77, 0x77, 0x77),
    RGBColor(0x99, 0x4F, 0x00),
    RGBColor(0x5D, 0x3A, 0x9B),
    RGBColor(0x00, 0x00, 0x00),
];

/// One picture.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    /// Names the file, after the bench.
    pub(crate) name: &'static str,
    /// Above the picture.
    pub(crate) title: String,
    /// Below the picture.
    pub(crate) x: &'static str,
    /// Left of the picture.
    pub(crate) y: &'static str,
    /// How it is drawn.
    pub(crate) shape: Shape,
    /// What is compared.
    pub(crate) series: Vec<Series>,
}

/// How a picture is drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Points by their load, joined.
    Lines,
    /// Groups of bars: the place of a point is the number of its group.
    Bars(Vec<String>),
}

/// One candidate.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) points: Vec<(f64, f64)>,
}

impl Plot {
    /// Lines of every column over the first label, in the rows whose other labels are `others`.
    pub(crate) fn lines(
        name: &'static str,
        table: &Table,
        others: &[&str],
        x: &'static str,
    ) -> Self {
        let rows = || table.rows.iter().filter(|row| row.labels[1..] == *others);
        let series = table
            .columns
            .iter()
            .enumerate()
            .map(|(index, column)| Series {
                name: column.name.clone(),
                role: column.role,
                points: rows()
                    .filter_map(|row| Some((number(&row.labels[0])?, row.figures[index]?.median)))
                    .collect(),
            });
        Self {
            name,
            title: table.title.clone(),
            x,
            y: table.unit,
            shape: Shape::Lines,
            series: shown(series),
        }
    }

    /// Bars of every column, one group per row.
    pub(crate) fn bars(name: &'static str, table: &Table, x: &'static str) -> Self {
        let groups = table.rows.iter().map(|row| row.labels.join(" "));
        let series = table
            .columns
            .iter()
            .enumerate()
            .map(|(index, column)| Series {
                name: column.name.clone(),
                role: column.role,
                points: (0..)
                    .zip(&table.rows)
                    .filter_map(|(place, row)| Some((f64::from(place), row.figures[index]?.median)))
                    .collect(),
            });
        Self {
            name,
            title: table.title.clone(),
            x,
            y: table.unit,
            shape: Shape::Bars(groups.collect()),
            series: shown(series),
        }
    }
}

/// Details are not drawn, nor is what was not measured.
fn shown(series: impl Iterator<Item = Series>) -> Vec<Series> {
    series
        .filter(|series| series.role != Role::Detail && !series.points.is_empty())
        .collect()
}

fn number(label: &str) -> Option<f64> {
    label.replace(',', "").parse().ok()
}

/// Draws every picture of a bench into `directory`; returns the files.
pub(crate) fn write(bench: &BenchReport, directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for plot in &bench.plots {
        if plot.series.iter().all(|series| series.points.is_empty()) {
            continue;
        }
        let file = directory.join(format!("{}-{}.svg", bench.name, plot.name));
        let drawn = draw(plot);
        let written = drawn.and_then(|svg| std::fs::write(&file, svg).map_err(|e| e.to_string()));
        written.map_err(|cause| Error::Plot(format!("{}: {cause}", file.display())))?;
        files.push(file);
    }
    Ok(files)
}

/// The text of an SVG file.
pub(crate) fn draw(plot: &Plot) -> Result<String, String> {
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
    let outcome = match &plot.shape {
        Shape::Lines => draw_lines(plot, &root),
        Shape::Bars(groups) => draw_bars(plot, groups, &root),
    };
    outcome
        .and_then(|()| Ok(root.present()?))
        .map_err(|error| error.to_string())?;
    drop(root);
    Ok(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw_lines(plot: &Plot, root: &Area<'_>) -> Drawn {
    root.fill(&WHITE)?;
    let x = bounds(
        plot.series
            .iter()
            .flat_map(|s| s.points.iter().map(|p| p.0)),
    );
    let y = bounds(
        plot.series
            .iter()
            .flat_map(|s| s.points.iter().map(|p| p.1)),
    );
    let y = y.0 / 1.5..y.1 * 1.5;
    let mut chart = builder(plot, root)
        .build_cartesian_2d((x.0 / 1.1..x.1 * 1.1).log_scale(), y.log_scale())?;
    chart
        .configure_mesh()
        .x_desc(plot.x)
        .y_desc(plot.y)
        .label_style((FONT, 15))
        .axis_desc_style((FONT, 17))
        .light_line_style(RGBColor(0xEE, 0xEE, 0xEE))
        .x_label_formatter(&|value| figure_short(*value))
        .y_label_formatter(&|value| figure_short(*value))
        .draw()?;
    for (index, series) in plot.series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let style = colour.stroke_width(width(series.role));
        chart
            .draw_series(LineSeries::new(series.points.iter().copied(), style).point_size(4))?
            .label(series.name.clone())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], style));
    }
    legend(&mut chart)
}

fn draw_bars(plot: &Plot, groups: &[String], root: &Area<'_>) -> Drawn {
    root.fill(&WHITE)?;
    let y = bounds(
        plot.series
            .iter()
            .flat_map(|s| s.points.iter().map(|p| p.1)),
    );
    let floor = y.0 / 2.0;
    let count = groups.len() as f64;
    let mut chart = builder(plot, root)
        .build_cartesian_2d(-0.5..count - 0.5, (floor..y.1 * 1.5).log_scale())?;
    let name = |value: &f64| {
        let is_whole = (value - value.round()).abs() < 0.01;
        let group = is_whole
            .then(|| groups.get(value.round() as usize))
            .flatten();
        group.cloned().unwrap_or_default()
    };
    chart
        .configure_mesh()
        .x_desc(plot.x)
        .y_desc(plot.y)
        .x_labels(groups.len() * 2 + 1)
        .disable_x_mesh()
        .label_style((FONT, 15))
        .axis_desc_style((FONT, 17))
        .light_line_style(RGBColor(0xEE, 0xEE, 0xEE))
        .x_label_formatter(&name)
        .y_label_formatter(&|value| figure_short(*value))
        .draw()?;
    let step = 0.84 / plot.series.len().max(1) as f64;
    for (index, series) in plot.series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let left = -0.42 + step * index as f64;
        let bars = series.points.iter().map(|(place, value)| {
            let from = place + left;
            Rectangle::new(
                [(from, floor), (from + step * 0.9, *value)],
                colour.filled(),
            )
        });
        chart
            .draw_series(bars)?
            .label(series.name.clone())
            .legend(move |(x, y)| Rectangle::new([(x, y - 6), (x + 20, y + 6)], colour.filled()));
    }
    legend(&mut chart)
}

fn builder<'a, 'b>(plot: &Plot, root: &'a Area<'b>) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut builder = ChartBuilder::on(root);
    builder
        .caption(&plot.title, (FONT, 20))
        .margin(14)
        .margin_right(30)
        .x_label_area_size(52)
        .y_label_area_size(92);
    builder
}

fn legend<'a, 'b: 'a, X, Y>(
    chart: &mut ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>,
) -> Drawn
where
    X: Ranged<ValueType = f64> + AsRangedCoord + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + AsRangedCoord + ValueFormatter<f64>,
{
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(0xBB, 0xBB, 0xBB))
        .label_font((FONT, 15))
        .draw()?;
    Ok(())
}

fn width(role: Role) -> u32 {
    if role == Role::Ours { 4 } else { 2 }
}

/// Least and most, never the same and never 0.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let folded = values
        .filter(|value| *value > 0.0)
        .fold(None, |bounds, value| {
            let (least, most) = bounds.unwrap_or((value, value));
            Some((value.min(least), value.max(most)))
        });
    let (least, most) = folded.unwrap_or((1.0, 10.0));
    (least, if most > least { most } else { least * 2.0 })
}

/// `1,000,000` takes too much room at an axis.
fn figure_short(value: f64) -> String {
    let trimmed = |value: f64, unit: &str| {
        let text = figure(value);
        let text = match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.'),
            false => &text,
        };
        format!("{text}{unit}")
    };
    match value {
        value if value >= 1e9 => trimmed(value / 1e9, "G"),
        value if value >= 1e6 => trimmed(value / 1e6, "M"),
        value if value >= 1e4 => trimmed(value / 1e3, "k"),
        value => trimmed(value, ""),
    }
}
