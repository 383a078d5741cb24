//! The text format of Prometheus, 0.0.4 (prometheus/docs: `exposition_formats.md`).
//!
//! A family is announced once, with its meaning and kind, and its samples follow. Every family is
//! there in every scrape, also without a sample, so that a reader learns all names at once.

use std::fmt::Write;

use crate::family::Family;

/// The media type of the format.
pub(crate) const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Metrics being written; see the module.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    text: String,
    name: &'static str,
}

impl Exposition {
    /// Begins one of the families, which are listed in a file with their kinds and meanings.
    pub(crate) fn family(&mut self, name: &'static str) -> &mut Self {
        let mut lines = include_str!("families.txt").lines();
        let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let (kind, help) = line
            .and_then(|line| line.split_once(' '))
            .unwrap_or_default();
        debug_assert!(!help.is_empty(), "{name} is in the file");
        self.begin(name, kind, help)
    }

    /// Writes a family that is not in the file.
    pub(crate) fn added(&mut self, family: &Family) {
        self.begin(family.name, family.kind.name(), family.help);
        for sample in &family.samples {
            let labels = sample.labels.iter();
            let labels: Vec<_> = labels
                .map(|(name, value)| (*name, value.as_str()))
                .collect();
            self.sample(&labels, sample.value);
        }
    }

    fn begin(&mut self, name: &'static str, kind: &str, help: &str) -> &mut Self {
        self.name = name;
        self.put(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        self
    }

    /// A sample of the family begun last.
    pub(crate) fn sample(&mut self, labels: &[(&str, &str)], value: f64) -> &mut Self {
        self.line("", labels, format_args!("{value}"))
    }

    /// The same, of a whole number.
    pub(crate) fn count(&mut self, labels: &[(&str, &str)], value: u64) -> &mut Self {
        self.line("", labels, format_args!("{value}"))
    }

    /// A sample whose name has an ending: those of a histogram.
    pub(crate) fn line(
        &mut self,
        suffix: &str,
        labels: &[(&str, &str)],
        value: std::fmt::Arguments<'_>,
    ) -> &mut Self {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        let mut open = '{';
        for (name, value) in labels {
            self.put(format_args!("{open}{name}=\""));
            escape(&mut self.text, value);
            self.text.push('"');
            open = ',';
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        self.put(format_args!(" {value}\n"));
        self
    }

    fn put(&mut self, arguments: std::fmt::Arguments<'_>) {
        // A string takes whatever is written to it.
        let _ = self.text.write_fmt(arguments);
    }

    /// All that was written.
    pub(crate) fn into_text(self) -> String {
        self.text
    }
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
    use super::*;

    #[test]
    fn values_of_labels_are_escaped() {
        let mut out = Exposition::default();
        out.family("flatpath_ready")
            .count(&[("b", "x\"y\\z\n"), ("c", "")], u64::MAX)
            .sample(&[], 0.25);
        let text = out.into_text();
        let (head, samples) = text.split_once(" gauge\n").expect("its type");
        assert!(head.starts_with("# HELP flatpath_ready "), "{text}");
        assert!(head.ends_with("\n# TYPE flatpath_ready"), "{text}");
        assert_eq!(
            samples,
            "flatpath_ready{b=\"x\\\"y\\\\z\\n\",c=\"\"} 18446744073709551615\n\
             flatpath_ready 0.25\n"
        );
    }
}
