//! `flatpath doctor` as its users and their scripts meet it.

use crate::support::run;

#[test]
fn the_report_is_text_for_people() {
    let ended = run(&["doctor"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    for part in [
        "machine\n",
        "features of io_uring\n",
        "flatpath serve will use\n",
        "driver ",
    ] {
        assert!(ended.stdout.contains(part), "{part} in {}", ended.stdout);
    }
}

#[test]
fn the_report_is_json_for_programs() {
    let ended = run(&["doctor", "--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let driver = report["verdict"]["driver"].as_str().expect("a driver");
    assert!(driver == "uring" || driver == "epoll");
    let first = &report["probe"]["findings"][0];
    assert_eq!(first["feature"], "io_uring");
    let is_refused = !first["refusal"].is_null();
    assert!(
        driver == "epoll" || !is_refused,
        "io_uring is not used where it is refused"
    );
    assert!(
        report["limits"]["descriptors"]["now"]
            .as_u64()
            .is_some_and(|now| now > 0)
    );
    assert!(
        report["verdict"]["connections_max"]
            .as_u64()
            .is_some_and(|most| most > 0)
    );
}
