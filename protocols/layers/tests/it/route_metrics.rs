//! Counts by route: each response counts once, whatever has made it.

use flatpath_http::flatpath::metrics::{Family, Value};
use flatpath_http::{Router, routing};
use flatpath_layers::RouteMetrics;

use crate::{Site, upload};

/// `route method status count` of each sample.
fn counted(family: &Family) -> Vec<String> {
    let mut lines = Vec::new();
    for sample in &family.samples {
        let count = match &sample.value {
            Value::Whole(count) => *count,
            Value::Histogram(it) => it.count(),
            Value::Real(_) => panic!("a count"),
        };
        lines.push(format!("{} {count}", sample.labels.join(" ")));
    }
    lines.sort_unstable();
    lines
}

#[test]
fn sim_every_response_counts_for_its_route() {
    for seed in 0..4 {
        let metrics = RouteMetrics::new();
        let router = Router::new()
            .get("/users/{id}", || "a user\n")
            .route("/inline", routing::get(|| "inline\n").inline())
            .get("/panics", || -> &'static str { panic!("for the test") })
            .route("/upload", routing::put(upload).streamed())
            .layer(metrics.clone());
        let mut site = Site::new(seed, router);
        for line in [
            "GET /users/1",
            "GET /users/2?a=b",
            "GET /inline",
            "GET /none",
            "PATCH /users/3",
            "BREW /users/3",
            "GET /panics",
            "PUT /upload",
        ] {
            site.ask(line, &[]);
        }
        let families = metrics.read();
        let expected = [
            "/inline GET 200 1",
            "/panics GET 500 1",
            "/upload PUT 200 1",
            "/users/{id} GET 200 2",
            "/users/{id} OTHER 405 1",
            "/users/{id} PATCH 405 1",
            "none GET 404 1",
        ];
        for family in &families {
            assert_eq!(counted(family), expected, "{}, seed {seed}", family.name);
        }
        let names = families
            .iter()
            .map(|family| family.name)
            .collect::<Vec<_>>();
        assert_eq!(names, ["http_responses_total", "http_response_seconds"]);
    }
}
