//! Which requests for what is not there get the page of an application.

use http::StatusCode;

use super::rules::site;
use super::*;
use crate::{Pattern, RootFiles, Rules};

fn rules() -> Result<Rules, crate::RuleError> {
    let except = "/api/*".parse().expect("a pattern");
    Rules::new()
        .fallback(Pattern::any(), "/index.html")
        .and_then(|rules| rules.without_fallback(except))
}

#[test]
fn a_page_is_no_answer_to_a_request_for_a_part_of_one() {
    let mut site = site(&["index.html", "assets/a.js"], rules());
    let document = "Sec-Fetch-Dest: document\r\n";
    let script = "Sec-Fetch-Dest: script\r\n";
    for (target, headers, status) in [
        ("/users/7", "", "200"),
        ("/users/7", document, "200"),
        ("/users/7", script, "404"),
        ("/users/7", "Accept: application/json\r\n", "404"),
        ("/assets/x.js", "", "404"),
        ("/assets/x.js", "Accept: */*\r\n", "404"),
        ("/assets/x.js", script, "404"),
        ("/assets/x.js", document, "200"),
        ("/assets/a.js", script, "200"),
        // Left out by the pattern, whatever is asked for.
        ("/api/users", document, "404"),
        ("/api/users", "", "404"),
    ] {
        let answer = site.ask("GET", target, headers);
        assert_eq!(answer.status(), status, "{target} {headers}");
        let is_page = answer.body == b"index.html";
        assert_eq!(is_page, status == "200" && !target.contains("a.js"));
        let head = site.ask("HEAD", target, headers);
        assert_eq!(head.status(), status, "HEAD {target} {headers}");
    }
}

/// A shared cache must not give a script's request the page, nor a page's the 404.
#[test]
fn both_answers_say_what_they_depend_on() {
    let mut site = site(&["index.html", "a"], rules());
    for (target, varies) in [
        ("/users/7", true),
        ("/assets/x.js", true),
        ("/a", false),
        ("/api/x", false),
    ] {
        let lines = site.get(target).lines();
        let vary = "vary: accept, sec-fetch-dest".to_owned();
        assert_eq!(lines.contains(&vary), varies, "{target} {lines:?}");
    }
}

#[test]
fn a_fallback_that_is_no_page_answers_every_request() {
    let rules = Rules::new().fallback(Pattern::any(), "/none.png");
    let mut site = site(&["none.png"], rules);
    let answer = site.ask("GET", "/x.png", "Sec-Fetch-Dest: image\r\n");
    assert_eq!((answer.status(), answer.text()), ("200", "none.png"));
}

#[test]
fn a_fallback_of_a_rule_file_is_left_out_as_well() {
    let except = "/api/*".parse().expect("a pattern");
    let rules = Rules::new().root_files(RootFiles::Read);
    let mut site = site(&["index.html"], rules.without_fallback(except));
    site.write("_redirects", "/* /index.html 200\n");
    wait_until_stable();
    assert_eq!(site.get("/users/7").status(), "200");
    assert_eq!(site.get("/users/7.css").status(), "404");
    assert_eq!(site.get("/api/users").status(), "404");
}

#[test]
fn an_error_page_is_sent_in_place_of_the_page_of_the_application() {
    let rules = rules().and_then(|it| it.error_page(StatusCode::NOT_FOUND, "/404.html"));
    let mut site = site(&["index.html", "404.html"], rules);
    let answer = site.get("/assets/x.js");
    assert_eq!((answer.status(), answer.text()), ("404", "404.html"));
}
