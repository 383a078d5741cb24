//! Plots: one SVG per picture, readable without the table.
//!
//! Two kinds: lines over a load that grows (both axes logarithmic, so that "flat" looks flat and
//! "linear" looks like a slope), and bars side by side. An axis has one unit, and says which end of
//! it is the better one. Below is where and when it was measured, and what disturbed it. Text is
//! left to the viewer's font; widths leave room for it.

use std::io;
use std::path::{Path, PathBuf};

use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::report::{BenchReport, OTHERS_PERCENT_MAX, Role, Row, Table};
use crate::text::figure;

const SIZE: (u32, u32) = (1_120, 600);
/// Left of the legend.
const CHART_WIDTH: u32 = 900;
/// Below both: where the figures are from.
const FOOTER_HEIGHT: u32 = 24;
/// For the text below the axis: of lines, and of bars, which have three lines.
const LOADS_HEIGHT: u32 = 52;
const NAMES_HEIGHT: u32 = 84;
/// For the figures left of the axis, and its title.
const FIGURES_WIDTH: u32 = 66;
/// Between two loads that are both named at the axis.
const LOADS_APART: i32 = 44;
/// Loads nearer than this are one point, at their mean: joined, they would look like a spike.
const ONE_LOAD: f64 = 1.03;
const FONT: &str = "sans-serif";
const OURS: RGBColor = RGBColor(0x00, 0x72, 0xB2);
const OLD: [RGBColor; 2] = [RGBColor(0xD5, 0x5E, 0x00), RGBColor(0x99, 0x4F, 0x00)];
const FIXED: RGBColor = RGBColor(0xE6, 0x9F, 0x00);
const OTHERS: [RGBColor; 7] = [
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0xCC, 0x79, 0xA7),
    RGBColor(0x77, 0x77, 0x77),
    RGBColor(0x56, 0xB4, 0xE9),
    RGBColor(0x5D, 0x3A, 0x9B),
    RGBColor(0x00, 0x00, 0x00),
    RGBColor(0xB8, 0xB0, 0x40),
];
/// Bars that differ by more than this have a logarithmic axis; others begin at 0.
const LINEAR_MAX: f64 = 30.0;

#[derive(Clone, Debug)]
pub struct Plot {
    /// Names the file, after the bench.
    pub name: String,
    /// Above the picture.
    pub title: String,
    /// Below the picture.
    pub x: &'static str,
    /// Left of the picture.
    pub y: String,
    pub better: Better,
    pub shape: Shape,
    pub series: Vec<Series>,
}

/// Which end of the axis is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    Lower,
    Higher,
    /// Figures that are shares of each other.
    Neither,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Points by their load, joined.
    Lines,
    /// Groups of bars: the place of a point is the number of its group.
    Bars(Vec<String>),
}

/// One candidate.
#[derive(Clone, Debug)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// Decides its colour.
    pub role: Role,
    /// Load, or number of the group, and figure.
    pub points: Vec<(f64, f64)>,
}

impl Plot {
    /// Lines of every column over the first label, in the rows whose other labels are `others`.
    pub fn lines(name: &'static str, table: &Table, others: &[&str], x: &'static str) -> Self {
        let rows = table.rows.iter().filter(|row| row.labels[1..] == *others);
        let placed = rows.filter_map(|row| Some((number(&row.labels[0])?, row)));
        Self::of(name, table, x, Shape::Lines, placed.collect())
    }

    /// Bars of every column, one group per row.
    pub fn bars(name: &'static str, table: &Table, x: &'static str) -> Self {
        Self::bars_of(name, table, x, |_| true)
    }

    /// Bars of every column, one group for each row that is picked by its labels: those of one
    /// unit, in a table of several.
    pub fn bars_of(
        name: &'static str,
        table: &Table,
        x: &'static str,
        mut is_picked: impl FnMut(&[String]) -> bool,
    ) -> Self {
        let rows = table.rows.iter().filter(|row| is_picked(&row.labels));
        let rows: Vec<_> = rows.collect();
        let groups = rows.iter().map(|row| row.labels.join(", "));
        let shape = Shape::Bars(groups.collect());
        let placed = (0..).map(f64::from).zip(rows);
        Self::of(name, table, x, shape, placed.collect())
    }

    /// One series per column, of rows in their places. Details are not drawn, nor is what was not
    /// measured.
    fn of(
        name: &'static str,
        table: &Table,
        x: &'static str,
        shape: Shape,
        rows: Vec<(f64, &Row)>,
    ) -> Self {
        let series = table
            .columns
            .iter()
            .enumerate()
            .map(|(index, column)| Series {
                name: column.name.clone(),
                role: column.role,
                points: rows
                    .iter()
                    .filter_map(|(place, row)| Some((*place, row.figures[index].as_ref()?.value)))
                    .collect(),
            });
        let is_shown = |it: &Series| it.role != Role::Detail && !it.points.is_empty();
        Self {
            name: name.into(),
            title: table.title.clone(),
            x,
            // How the unit was measured stands behind a colon, and in the table.
            y: table.unit.split(": ").next().unwrap_or_default().into(),
            better: Better::Lower,
            shape,
            series: series.filter(is_shown).collect(),
        }
    }

    /// Bars of one metric, one for each server.
    pub fn servers(about: &str, table: &Table, metric: &str) -> Self {
        let value = |row| table.cell(row, metric).map(|figure| figure.value);
        let points = (0..).zip(&table.rows);
        let points = points.filter_map(|(place, row)| Some((f64::from(place), value(row)?)));
        Self {
            name: about.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-"),
            title: about.into(),
            x: "server",
            y: metric.into(),
            better: match metric.contains("/s") || metric.contains("per second") {
                true => Better::Higher,
                false => Better::Lower,
            },
            shape: Shape::Bars(table.rows.iter().map(|row| row.labels[0].clone()).collect()),
            series: vec![Series {
                name: metric.into(),
                role: Role::Ours,
                points: points.collect(),
            }],
        }
    }
}

impl Plot {
    fn y_title(&self) -> String {
        let y = &self.y;
        match self.better {
            Better::Lower => format!("{y} (lower is better)"),
            Better::Higher => format!("{y} (higher is better)"),
            Better::Neither => y.clone(),
        }
    }
}

fn number(label: &str) -> Option<f64> {
    label.replace(',', "").parse().ok()
}

/// Draws every picture of a bench into `directory`; returns the files. `source` is where and when
/// its figures were measured.
pub fn write(bench: &BenchReport, source: &str, directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut source = source.to_owned();
    if bench.others_percent > OTHERS_PERCENT_MAX {
        source += "; disturbed by other processes";
    }
    for plot in &bench.plots {
        if plot.series.iter().all(|series| series.points.is_empty()) {
            continue;
        }
        let file = directory.join(format!("{}-{}.svg", bench.name, plot.name));
        let drawn = draw(plot, &source);
        let written = drawn.and_then(|svg| std::fs::write(&file, svg).map_err(|e| e.to_string()));
        let named = |cause| io::Error::other(format!("{}: {cause}", file.display()));
        written.map_err(named)?;
        files.push(file);
    }
    Ok(files)
}

/// The text of an SVG file.
pub fn draw(plot: &Plot, source: &str) -> Result<String, String> {
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
    let drawn = || -> Drawn {
        root.fill(&WHITE)?;
        let (picture, footer) = root.split_vertically(SIZE.1 - FOOTER_HEIGHT);
        match &plot.shape {
            Shape::Lines => draw_lines(plot, &picture)?,
            Shape::Bars(groups) => draw_bars(plot, groups, &picture)?,
        }
        let style = (FONT, 12).into_font().color(&RGBColor(0x66, 0x66, 0x66));
        footer.draw(&Text::new(source, (14, 4), style))?;
        Ok(root.present()?)
    };
    drawn().map_err(|error| error.to_string())?;
    drop(root);
    Ok(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw_lines(plot: &Plot, root: &Area<'_>) -> Drawn {
    let (left, right) = root.split_horizontally(CHART_WIDTH);
    let x = bounds(points(plot).map(|point| point.0));
    let y = bounds(points(plot).map(|point| point.1));
    let mut chart = builder(plot, &left, LOADS_HEIGHT)
        .build_cartesian_2d((x.0 / 1.1..x.1 * 1.1).log_scale(), decades(y).log_scale())?;
    chart
        .configure_mesh()
        .x_desc(plot.x)
        .y_desc(plot.y_title())
        .x_labels(0)
        // An axis of its own keeps one label all the same.
        .x_label_formatter(&|_| String::new())
        .disable_x_mesh()
        .label_style((FONT, 15))
        .axis_desc_style((FONT, 17))
        .light_line_style(RGBColor(0xEE, 0xEE, 0xEE))
        .y_label_formatter(&|value| figure_short(*value))
        .draw()?;
    let colours = colours(&plot.series);
    for (series, colour) in plot.series.iter().zip(&colours) {
        let style = colour.stroke_width(width(series.role));
        let points = merged(&series.points);
        chart.draw_series(LineSeries::new(points, style).point_size(4))?;
    }
    let area = chart.plotting_area();
    let floor = decades(y).start;
    let place = |load: f64| area.map_coordinate(&(load, floor));
    for (load, x) in named_loads(plot, |load| place(load).0) {
        let style = (FONT, 15).into_text_style(root);
        let style = style.pos(Pos::new(HPos::Center, VPos::Top));
        root.draw(&Text::new(
            figure_short(load),
            (x, place(load).1 + 8),
            style,
        ))?;
    }
    legend(plot, &colours, &right)
}

/// The loads that were measured, as far as there is room for their figures; powers of ten first.
fn named_loads(plot: &Plot, x: impl Fn(f64) -> i32) -> Vec<(f64, i32)> {
    let mut loads: Vec<f64> = points(plot).map(|point| point.0).collect();
    let is_round = |load: &f64| load.log10().fract() == 0.0;
    loads.sort_by(|a, b| is_round(b).cmp(&is_round(a)).then(a.total_cmp(b)));
    let mut named: Vec<(f64, i32)> = Vec::new();
    for load in loads {
        let at = x(load);
        if named
            .iter()
            .all(|(_, other)| (at - other).abs() >= LOADS_APART)
        {
            named.push((load, at));
        }
    }
    named
}

/// The points by load, with loads that are nearly the same as one.
fn merged(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let near = |a: &(f64, f64), b: &(f64, f64)| b.0 <= a.0 * ONE_LOAD;
    let mean = |points: &[(f64, f64)], part: fn(&(f64, f64)) -> f64| {
        points.iter().map(part).sum::<f64>() / points.len() as f64
    };
    let groups = points.chunk_by(near);
    groups
        .map(|near| (mean(near, |it| it.0), mean(near, |it| it.1)))
        .collect()
}

fn draw_bars(plot: &Plot, groups: &[String], root: &Area<'_>) -> Drawn {
    let (left, right) = root.split_horizontally(CHART_WIDTH);
    let y = bounds(points(plot).map(|point| point.1));
    let places = -0.5..groups.len() as f64 - 0.5;
    let mut builder = builder(plot, &left, NAMES_HEIGHT);
    if y.1 / y.0 <= LINEAR_MAX {
        let chart = builder.build_cartesian_2d(places, 0.0..y.1 * 1.08)?;
        bars(plot, groups, chart, (root, 0.0))?;
    } else {
        let floor = decades((y.0 / 2.0, y.1)).start;
        let heights = (floor..y.1 * 1.5).log_scale();
        let chart = builder.build_cartesian_2d(places, heights)?;
        bars(plot, groups, chart, (root, floor))?;
    }
    legend(plot, &colours(&plot.series), &right)
}

/// Bars that stand on `floor`, with the names of their groups below, on the whole picture.
fn bars<'b, Y>(
    plot: &Plot,
    groups: &[String],
    mut chart: ChartContext<'_, SVGBackend<'b>, Cartesian2d<RangedCoordf64, Y>>,
    (picture, floor): (&Area<'b>, f64),
) -> Drawn
where
    Y: Ranged<ValueType = f64> + AsRangedCoord + ValueFormatter<f64>,
{
    // The length of a bar on a logarithmic axis depends on the start of the axis.
    let axis = match floor {
        0.0 => plot.y_title(),
        floor => format!(
            "{}; logarithmic, from {}",
            plot.y_title(),
            figure_short(floor)
        ),
    };
    chart
        .configure_mesh()
        .x_desc(plot.x)
        .y_desc(axis)
        .x_labels(0)
        .disable_x_mesh()
        .label_style((FONT, 15))
        .axis_desc_style((FONT, 17))
        .light_line_style(RGBColor(0xEE, 0xEE, 0xEE))
        .y_label_formatter(&|value| figure_short(*value))
        .draw()?;
    let step = 0.84 / plot.series.len().max(1) as f64;
    let colours = colours(&plot.series);
    for (index, (series, colour)) in plot.series.iter().zip(&colours).enumerate() {
        let left = -0.42 + step * index as f64;
        let bars = series.points.iter().map(|(place, value)| {
            let from = place + left;
            let corners = [(from, floor), (from + step * 0.9, *value)];
            Rectangle::new(corners, colour.filled())
        });
        chart.draw_series(bars)?;
    }
    let area = chart.plotting_area();
    let room = 700 / groups.len().max(1);
    for (place, group) in groups.iter().enumerate() {
        let (x, y) = area.map_coordinate(&(place as f64, floor));
        for (line, text) in wrapped(group, room / 7).into_iter().enumerate() {
            let style = (FONT, 13)
                .into_text_style(picture)
                .pos(Pos::new(HPos::Center, VPos::Top));
            let at = (x, y + 8 + 16 * line as i32);
            picture.draw(&Text::new(text, at, style))?;
        }
    }
    Ok(())
}

/// Words in lines of at most `letters_max` letters, if they can be.
fn wrapped(text: &str, letters_max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= letters_max => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

fn builder<'a, 'b>(
    plot: &Plot,
    area: &'a Area<'b>,
    below: u32,
) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut builder = ChartBuilder::on(area);
    builder
        .caption(&plot.title, (FONT, 19))
        .margin(14)
        .x_label_area_size(below)
        .y_label_area_size(FIGURES_WIDTH);
    builder
}

/// Which colour is whose, to the right of the chart.
fn legend(plot: &Plot, colours: &[RGBColor], area: &Area<'_>) -> Drawn {
    const FIRST: i32 = 60;
    const STEP: i32 = 24;
    for ((series, colour), line) in plot.series.iter().zip(colours).zip(0..) {
        let y = FIRST + STEP * line;
        area.draw(&Rectangle::new([(0, y), (18, y + 12)], colour.filled()))?;
        area.draw(&Text::new(series.name.clone(), (26, y - 2), (FONT, 15)))?;
    }
    Ok(())
}

/// One for each: ours always the same, the old ways warm ones, and others for the others.
fn colours(series: &[Series]) -> Vec<RGBColor> {
    let (mut old, mut others) = (OLD.iter().cycle(), OTHERS.iter().cycle());
    let colour = |series: &Series| match series.role {
        Role::Ours => OURS,
        Role::Fixed => FIXED,
        Role::Baseline => *old.next().unwrap_or(&BLACK),
        Role::Competitor | Role::Detail => *others.next().unwrap_or(&BLACK),
    };
    series.iter().map(colour).collect()
}

fn points(plot: &Plot) -> impl Iterator<Item = (f64, f64)> {
    plot.series
        .iter()
        .flat_map(|series| series.points.iter().copied())
}

/// Whole decades around: an axis with at least two figures.
fn decades((least, most): (f64, f64)) -> std::ops::Range<f64> {
    let floor = 10_f64.powf(least.log10().floor());
    let ceiling = 10_f64.powf(most.log10().ceil());
    floor..if ceiling > floor {
        ceiling
    } else {
        floor * 10.0
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(loads: &[f64]) -> Plot {
        let points = loads.iter().map(|load| (*load, 2.0 * load)).collect();
        Plot {
            name: "name".into(),
            title: "title".into(),
            x: "load",
            y: "ns".into(),
            better: Better::Lower,
            shape: Shape::Lines,
            series: vec![Series {
                name: "ours".into(),
                role: Role::Ours,
                points,
            }],
        }
    }

    #[test]
    fn loads_are_named_where_there_is_room_and_powers_of_ten_always() {
        let plot = plot(&[80.0, 90.0, 95.0, 100.0, 110.0, 200.0]);
        let named = named_loads(&plot, |load| load as i32);
        let mut loads: Vec<f64> = named.into_iter().map(|(load, _)| load).collect();
        loads.sort_by(f64::total_cmp);
        assert_eq!(loads, [100.0, 200.0]);
    }

    #[test]
    fn loads_that_are_nearly_the_same_are_one_point() {
        let points = [(10.0, 1.0), (199.0, 5.0), (200.0, 7.0), (1000.0, 9.0)];
        assert_eq!(merged(&points), [(10.0, 1.0), (199.5, 6.0), (1000.0, 9.0)]);
    }

    #[test]
    fn a_picture_says_what_is_better_and_where_it_is_from() {
        let svg = draw(&plot(&[1.0, 10.0]), "a machine, a day").expect("it can be drawn");
        for part in ["ns (lower is better)", "a machine, a day", "title", "load"] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
    }
}
