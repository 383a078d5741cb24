//! Metrics that a program adds to those of its server: what a service counts for itself.

/// One metric with all its samples, made at each scrape.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) help: &'static str,
    pub(crate) samples: Vec<Sample>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) value: f64,
}

impl Family {
    /// What only grows; its name ends in `_total`. `help` is one line.
    pub fn counter(name: &'static str, help: &'static str) -> Family {
        Family::new(name, Kind::Counter, help)
    }

    /// What goes up and down. `help` is one line.
    pub fn gauge(name: &'static str, help: &'static str) -> Family {
        Family::new(name, Kind::Gauge, help)
    }

    fn new(name: &'static str, kind: Kind, help: &'static str) -> Family {
        Family {
            name,
            kind,
            help,
            samples: Vec::new(),
        }
    }

    /// With one more sample. Its labels are unlike those of the other samples; values of labels may
    /// have any character.
    #[must_use]
    pub fn sample(mut self, labels: &[(&'static str, &str)], value: f64) -> Family {
        let labels = labels.iter();
        let labels = labels.map(|(name, value)| (*name, (*value).to_owned()));
        self.samples.push(Sample {
            labels: labels.collect(),
            value,
        });
        self
    }
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        }
    }
}
