//! io_uring refused for whatever reason: epoll serves and the log says why; who insists is told.

use flatpath_testkit::{Driver, Launch, Site, binary, tools};

/// The errors with which io_uring is refused in the field, and their numbers.
const ERRORS: [(&str, i32); 6] = [
    ("ENOSYS", 38),
    ("EPERM", 1),
    ("ENOMEM", 12),
    ("EOPNOTSUPP", 95),
    ("EACCES", 13),
    ("EMFILE", 24),
];

#[test]
fn with_io_uring_refused_epoll_serves_and_the_log_says_why() {
    let site = Site::new().with("file", "contents");
    for (error, number) in ERRORS {
        let launch = Launch::new(binary::flatpath().to_path_buf())
            .with(["serve", "--http", "127.0.0.1:0"])
            .refused_uring(error);
        let server = launch.echo().directory(site.path()).start();
        assert_eq!(server.client().get("/file").text(), "contents", "{error}");
        let mut echo = server.echo_client();
        echo.send(b"echo");
        assert_eq!(echo.exactly(4), b"echo", "{error}");
        let log = server.log();
        let reason = format!("os error {number}");
        assert!(
            log.contains("epoll") && log.contains(&reason),
            "{error}: {log}"
        );
    }
}

#[test]
fn who_insists_on_io_uring_is_told_the_cause_and_the_cure() {
    let site = Site::new();
    for (error, number) in ERRORS {
        let launch = Launch::serve(Driver::Uring)
            .refused_uring(error)
            .directory(site.path());
        let Err(failed) = launch.try_start() else {
            panic!("{error}: it started")
        };
        assert_eq!(failed.status.code(), Some(1), "{error}: {}", failed.log);
        let reason = format!("os error {number}");
        assert!(
            failed.log.contains(&reason),
            "{error}: the cause: {}",
            failed.log
        );
        // After the cause comes what helps: a limit, a setting, a kernel or the other driver.
        let cures = ["ulimit", "sysctl", "seccomp", "kernel", "epoll"];
        let words = failed.log.to_lowercase();
        assert!(
            cures.iter().any(|cure| words.contains(cure)),
            "{error}: {}",
            failed.log
        );
    }
}

#[test]
fn the_doctor_says_what_will_be_used_and_why() {
    use flatpath_testkit::patience;
    for (error, number) in ERRORS {
        let doctor = Launch::new(binary::flatpath().to_path_buf()).refused_uring(error);
        // Asked for, it is a mismatch.
        let asked = doctor.clone().with(["doctor", "--driver", "uring"]);
        let output = tools::run(&mut asked.command(), patience());
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(3), "{text}");
        assert!(text.contains("driver uring is asked for: "), "{text}");
        let output = tools::run(&mut doctor.clone().with(["doctor"]).command(), patience());
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{error}: {text}");
        let reason = format!("os error {number}");
        assert!(
            text.contains("epoll") && text.contains(&reason),
            "{error}: {text}"
        );

        let output = tools::run(&mut doctor.with(["doctor", "--json"]).command(), patience());
        let report: serde_json::Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{error}: {why}"));
        assert!(report.is_object(), "{error}: {report}");
        assert!(report.to_string().contains("epoll"), "{error}: {report}");
    }
}
