//! Counts of responses by route, for a page of metrics.
//!
//! Cost: one lock and one look into a table for a request, two readings of the clock; what the
//! table holds is bounded by routes times methods times statuses.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use flatpath_http::flatpath::lock::Lock;
use flatpath_http::flatpath::metrics::{Family, Histogram, Metric, Samples, Value, read};
use flatpath_http::http::Method;
use flatpath_http::{Answer, Layer, MatchedPath, Next, Request, Response};

use crate::clock;

/// Upper bounds of the ranges of times, in seconds: those that clients of Prometheus use unless
/// told otherwise, and two below, as a handler may take microseconds.
const BOUNDS: [f64; 13] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
];

/// Counts responses by route, method and status, and how long each took to be made.
///
/// `route` is the path of the route ([`MatchedPath`]), so it has a bound: what has none counts as
/// `none`. Of the methods that RFC 9110 does not name, all count as `OTHER`. The time is that from
/// here to the response, its body aside if that is streamed.
///
/// A clone counts with the layer. [`RouteMetrics::read`] gives the numbers, for
/// `Admin::source` of the crate `flatpath-admin`, say:
///
/// ```
/// use flatpath_http::Router;
/// use flatpath_layers::RouteMetrics;
///
/// let metrics = RouteMetrics::new();
/// let router: Router = Router::new().get("/users/{id}", || "a user\n").layer(metrics.clone());
/// // admin.source(move || metrics.read());
/// assert_eq!(metrics.read()[0].name, "http_responses_total");
/// ```
#[derive(Clone, Default)]
pub struct RouteMetrics(Arc<Table>);

#[derive(Default)]
struct Table(Lock<Rows>);

type Rows = HashMap<Option<MatchedPath>, Vec<Row>>;

/// What was counted of a route's responses to one method, with one status.
struct Row {
    method: &'static str,
    status: u16,
    counts: [u64; BOUNDS.len() + 1],
    sum: Duration,
}

#[rustfmt::skip]
const METRICS: &[Metric<Table>] = &[
    Metric::counter("http_responses_total",
        "Responses, by route.", &["route", "method", "status"],
        |table, out| table.put(out, |row| row.counts.iter().sum::<u64>().into())),
    Metric::histogram("http_response_seconds",
        "How long responses took to be made, without bodies that are streamed.",
        &["route", "method", "status"],
        |table, out| table.put(out, |row| Histogram {
            bounds: BOUNDS.to_vec(),
            counts: row.counts.to_vec(),
            sum: row.sum.as_secs_f64(),
        }.into())),
];

impl RouteMetrics {
    /// A layer that has counted nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What was counted so far: `http_responses_total` and `http_response_seconds`.
    #[must_use]
    pub fn read(&self) -> Vec<Family> {
        read(METRICS, &*self.0)
    }
}

impl Table {
    fn count(
        &self,
        route: Option<MatchedPath>,
        (method, status): (&'static str, u16),
        took: Duration,
    ) {
        let mut rows = self.0.lock();
        let rows = rows.entry(route).or_default();
        let is_it = |row: &Row| row.method == method && row.status == status;
        let at = rows.iter().position(is_it).unwrap_or_else(|| {
            rows.push(Row {
                method,
                status,
                counts: [0; BOUNDS.len() + 1],
                sum: Duration::ZERO,
            });
            rows.len() - 1
        });
        let seconds = took.as_secs_f64();
        rows[at].counts[BOUNDS.partition_point(|bound| *bound < seconds)] += 1;
        rows[at].sum += took;
    }

    fn put(&self, out: &mut Samples, value: impl Fn(&Row) -> Value) {
        for (route, rows) in &*self.0.lock() {
            let route = route.as_ref().map_or("none", MatchedPath::as_str);
            for row in rows {
                out.put(&[route, row.method, &row.status.to_string()], value(row));
            }
        }
    }
}

/// The method, where RFC 9110 names it or RFC 5789.
fn known(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        "CONNECT" => "CONNECT",
        "OPTIONS" => "OPTIONS",
        "TRACE" => "TRACE",
        "PATCH" => "PATCH",
        _ => "OTHER",
    }
}

impl fmt::Debug for RouteMetrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RouteMetrics")
            .finish_non_exhaustive()
    }
}

impl Layer for RouteMetrics {
    fn call(&self, request: Request, next: &Next<'_>) -> Answer {
        let took = clock::since_now();
        let method = known(request.method());
        let route = MatchedPath::of(&request).cloned();
        let table = Arc::clone(&self.0);
        next.run(request).map(move |response: Response| {
            table.count(route, (method, response.status().as_u16()), took());
            response
        })
    }
}
