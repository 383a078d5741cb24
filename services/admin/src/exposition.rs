//! The text format of Prometheus, 0.0.4 (prometheus/docs: `exposition_formats.md`).
//!
//! A family is announced once, with its meaning and kind, and its samples follow. Every family is
//! there in every scrape, also without a sample, so that a reader learns all names at once.

use std::fmt::Write;

use crate::flatpath::metrics::{Family, Histogram, Value};

/// The media type of the format.
pub(crate) const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All families.
pub(crate) fn text(families: &[Family]) -> String {
    let mut text = String::new();
    for family in families {
        let Family { name, help, .. } = family;
        let kind = family.kind.name();
        put(
            &mut text,
            format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"),
        );
        for sample in &family.samples {
            let values = sample.labels.iter().map(String::as_str);
            let labels: Vec<_> = family.labels.iter().copied().zip(values).collect();
            match &sample.value {
                Value::Whole(count) => line(&mut text, name, "", &labels, format_args!("{count}")),
                Value::Real(number) => line(&mut text, name, "", &labels, format_args!("{number}")),
                Value::Histogram(histogram) => buckets(&mut text, name, &labels, histogram),
            }
        }
    }
    text
}

fn put(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // A string takes whatever is written to it.
    let _ = text.write_fmt(arguments);
}

/// A sample; the name may have an ending.
fn line(
    text: &mut String,
    name: &str,
    suffix: &str,
    labels: &[(&str, &str)],
    value: std::fmt::Arguments<'_>,
) {
    text.push_str(name);
    text.push_str(suffix);
    let mut open = '{';
    for (name, value) in labels {
        put(text, format_args!("{open}{name}=\""));
        escape(text, value);
        text.push('"');
        open = ',';
    }
    if !labels.is_empty() {
        text.push('}');
    }
    put(text, format_args!(" {value}\n"));
}

fn buckets(text: &mut String, name: &str, labels: &[(&str, &str)], histogram: &Histogram) {
    let bounds = histogram.bounds.iter().map(f64::to_string);
    let bounds = bounds.chain(["+Inf".to_owned()]);
    let mut below = 0;
    for (bound, count) in bounds.zip(&histogram.counts) {
        below += count;
        let labels = [labels, &[("le", &*bound)]].concat();
        line(text, name, "_bucket", &labels, format_args!("{below}"));
    }
    line(
        text,
        name,
        "_sum",
        labels,
        format_args!("{}", histogram.sum),
    );
    line(text, name, "_count", labels, format_args!("{below}"));
}

/// Appends the value of a label, with a backslash before what needs one.
fn escape(out: &mut String, value: &str) {
    for character in value.chars() {
        if matches!(character, '\\' | '"' | '\n') {
            out.push('\\');
        }
        out.push(if character == '\n' { 'n' } else { character });
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::flatpath::metrics::{Metric, read};

    const TABLE: &[Metric<()>] = &[
        Metric::gauge("a", "What it is.", &["b", "c"], |(), out| {
            out.put(&["x\"y\\z\n", ""], u64::MAX);
            out.put(&["", ""], 0.25);
        }),
        Metric::histogram("d_seconds", "How long.", &["e"], |(), out| {
            let (bounds, counts) = (vec![0.5, 1.0], vec![2, 0, 1]);
            out.put(
                &["f"],
                Histogram {
                    bounds,
                    counts,
                    sum: 4.5,
                },
            );
        }),
        Metric::counter("none_total", "Nothing.", &[], |(), _| {}),
    ];

    #[test]
    fn a_table_is_written_in_the_format() {
        expect![[r##"
            # HELP a What it is.
            # TYPE a gauge
            a{b="x\"y\\z\n",c=""} 18446744073709551615
            a{b="",c=""} 0.25
            # HELP d_seconds How long.
            # TYPE d_seconds histogram
            d_seconds_bucket{e="f",le="0.5"} 2
            d_seconds_bucket{e="f",le="1"} 2
            d_seconds_bucket{e="f",le="+Inf"} 3
            d_seconds_sum{e="f"} 4.5
            d_seconds_count{e="f"} 3
            # HELP none_total Nothing.
            # TYPE none_total counter
        "##]]
        .assert_eq(&text(&read(TABLE, &())));
    }
}
