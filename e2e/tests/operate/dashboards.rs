//! What is shipped for Prometheus and Grafana fits what `/metrics` gives: every name that a query
//! has is there, `promtool` accepts the files, and the alerts come when they should.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use flatpath_testkit::{Client, Driver, Launch, Site, tools};
use serde_json::Value;

const TIMEOUT: Duration = Duration::from_secs(60);

fn dist(name: &str) -> String {
    format!("{}/../dist/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    std::fs::read_to_string(dist(name)).expect("the file is there")
}

fn dashboard() -> Value {
    serde_json::from_str(&read("grafana/flatpath.json")).expect("it is JSON")
}

/// Every value of a member with this name, wherever it is.
fn members<'a>(value: &'a Value, name: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(object) => {
            found.extend(object.get(name).and_then(Value::as_str));
            object
                .values()
                .for_each(|value| members(value, name, found));
        }
        Value::Array(array) => array.iter().for_each(|value| members(value, name, found)),
        _ => {}
    }
}

fn expressions(dashboard: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    members(dashboard, "expr", &mut found);
    found
}

/// The names of metrics in a query.
fn names(query: &str) -> BTreeSet<&str> {
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    query
        .split(|character| !is_part(character))
        .filter(|word| word.starts_with("flatpath_") || word.starts_with("process_"))
        .collect()
}

/// All names that a scrape gives, those of a histogram with their endings.
fn exported() -> BTreeSet<String> {
    let site = Site::new();
    let server = Launch::serve(Driver::Epoll)
        .directory(site.path())
        .with(["--admin", "127.0.0.1:0"])
        .start();
    let metrics = Client::connect(server.address("admin")).get("/metrics");
    let types = metrics.text().lines();
    let types = types.filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let names = types.flat_map(|(name, kind)| match kind {
        "histogram" => ["_bucket", "_sum", "_count"]
            .map(|end| format!("{name}{end}"))
            .to_vec(),
        _ => vec![name.to_owned()],
    });
    names.collect()
}

#[test]
fn every_name_in_a_query_is_exported() {
    let exported = exported();
    let (dashboard, rules) = (dashboard(), read("prometheus/flatpath.rules.yml"));
    let mut asked: BTreeSet<&str> = expressions(&dashboard)
        .into_iter()
        .flat_map(names)
        .collect();
    let (in_rules, in_dashboard) = (names(&rules).len(), asked.len());
    assert!(
        in_rules >= 8 && in_dashboard >= 30,
        "{in_rules}, {in_dashboard}"
    );
    asked.extend(names(&rules));
    let unknown: Vec<_> = asked
        .iter()
        .filter(|name| !exported.contains(**name))
        .collect();
    assert!(unknown.is_empty(), "no such metric: {unknown:?}");
}

#[test]
fn the_dashboard_is_one_that_grafana_can_show() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().expect("panels");
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        let title = panel["title"].as_str().expect("a title");
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{title}");
        let at = |name: &str| panel["gridPos"][name].as_u64().expect("a place");
        assert!(at("x") + at("w") <= 24, "{title} is too wide");
        for cell in (0..at("w") * at("h")).map(|cell| (cell % at("w"), cell / at("w"))) {
            assert!(
                cells.insert((at("x") + cell.0, at("y") + cell.1)),
                "{title} is over another"
            );
        }
        if panel["type"] == "row" {
            continue;
        }
        assert!(
            panel["description"]
                .as_str()
                .is_some_and(|it| it.ends_with('.')),
            "{title}"
        );
        let targets = panel["targets"].as_array().expect("queries");
        let letters: BTreeSet<_> = targets.iter().map(|it| it["refId"].as_str()).collect();
        assert!(
            !targets.is_empty() && letters.len() == targets.len(),
            "{title}"
        );
    }
    // Whatever the name of the data source is.
    let mut sources = Vec::new();
    members(&dashboard, "uid", &mut sources);
    let sources = sources.iter().filter(|uid| **uid != "flatpath");
    assert!(sources.clone().count() > 20);
    assert_eq!(sources.clone().find(|uid| **uid != "${datasource}"), None);
    let variables = dashboard["templating"]["list"]
        .as_array()
        .expect("variables");
    let variables: Vec<_> = variables.iter().map(|it| it["name"].as_str()).collect();
    assert_eq!(variables, [Some("datasource"), Some("instance")]);
    assert!(
        expressions(&dashboard)
            .iter()
            .all(|it| it.contains("{instance=~\"$instance\""))
    );
}

fn promtool(directory: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(tools::find("promtool")?);
    let output = tools::run(command.args(arguments).current_dir(directory), TIMEOUT);
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{said}");
    Some(said)
}

#[test]
fn prometheus_takes_the_configuration_and_the_alerts_come() {
    let directory = dist("prometheus");
    let directory = Path::new(&directory);
    promtool(directory, &["check", "config", "prometheus.yml"]);
    promtool(directory, &["test", "rules", "flatpath.test.yml"]);
}

/// The dashboard's queries as rules, which `promtool` parses.
#[test]
fn every_query_of_the_dashboard_is_one() {
    let dashboard = dashboard();
    let queries = expressions(&dashboard).into_iter().enumerate();
    let rules = queries.map(|(number, query)| {
        let query = query
            .replace("$__rate_interval", "1m")
            .replace("$instance", ".*");
        let query = serde_json::to_string(&query).expect("text");
        format!("      - record: dashboard:query{number}\n        expr: {query}\n")
    });
    let rules: String = rules.collect();
    let rules = format!("groups:\n  - name: dashboard\n    rules:\n{rules}");
    let site = Site::new().with("rules.yml", rules);
    let Some(said) = promtool(site.path(), &["check", "rules", "rules.yml"]) else {
        return;
    };
    let count = expressions(&dashboard).len();
    assert!(said.contains(&format!("{count} rules found")), "{said}");
}
