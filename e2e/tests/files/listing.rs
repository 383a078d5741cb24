//! Listings as people use them: with a browser, with its script and without, on a desktop and on a
//! phone; and with curl, which sends the same forms.

use std::path::Path;
use std::process::Command;

use flatpath_testkit::deadline::patience;
use flatpath_testkit::{Driver, Launch, Server, Site, each_driver, tools};

each_driver!(
    a_browser_filters_stores_and_makes_directories_with_its_script_and_without,
    curl_stores_files_and_makes_directories_by_forms,
    a_form_is_refused_where_a_put_is,
);

/// A README that would do all it could.
const README: &str = "# Title\n\n<script>fooled = 1</script>\n\n\
    <img src=x onerror=\"fooled = 1\">\n\n\
    ![picture](alpha.txt) [run](javascript:fooled=1)\n\n<style>#entries{display:none}</style>\n";

fn serve(driver: Driver, site: &Site, options: &[&str]) -> Server {
    site.settle();
    let launch = Launch::serve(driver).directory(site.path());
    launch.with(options).start()
}

fn read(site: &Site, name: &str) -> String {
    std::fs::read_to_string(site.at(name)).unwrap_or_else(|why| panic!("{name}: {why}"))
}

fn a_browser_filters_stores_and_makes_directories_with_its_script_and_without(driver: Driver) {
    let (Some(node), Some(chromium)) =
        (tools::find("node"), tools::find("chromium-headless-shell"))
    else {
        return;
    };
    let site = Site::new()
        .with("alpha.txt", "a")
        .with("beta.txt", "b")
        .with("README.md", README);
    let server = serve(driver, &site, &["--writable"]);
    let folder = Site::new().with("one.txt", "one").with("two.txt", "two");
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/browser.cjs");
    let mut command = Command::new(node);
    command.arg(program).arg(chromium);
    command.arg(format!("http://{}", server.address("http")));
    let output = tools::run(command.arg(folder.path()), patience());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    for (name, content) in [
        ("one.txt", "one"),
        ("two.txt", "two"),
        ("a & b %.txt", "dropped"),
        ("new dir/one.txt", "one"),
        ("new dir/two.txt", "two"),
    ] {
        assert_eq!(read(&site, name), content, "{name}");
    }
    assert!(
        !site.at("foreign").exists(),
        "another site made a directory"
    );
    for picture in ["desktop.png", "phone.png", "refused.png"] {
        assert!(folder.at(picture).exists(), "{picture}");
    }
}

/// What curl gets for a form: the status, and where it leads.
fn curl(server: &Server, target: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(tools::find("curl")?);
    command.args([
        "-s",
        "-o",
        "/dev/null",
        "-w",
        "%{response_code} %{redirect_url}",
    ]);
    command.args(arguments);
    command.arg(format!("http://{}{target}", server.address("http")));
    let output = tools::run(&mut command, patience());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = format!("http://{}", server.address("http"));
    Some(said.replace(&host, ""))
}

fn curl_stores_files_and_makes_directories_by_forms(driver: Driver) {
    let site = Site::new().with("old", "old");
    let server = serve(driver, &site, &["--writable", "--put-max", "2M"]);
    let from = Site::new()
        .with("a", "a")
        .with("b", "b".repeat(1_500_000))
        .with("old", "new")
        .with("long", "x".repeat(2_100_000));
    let file = |name: &str| format!("file=@{}", from.at(name).display());
    let (a, b, old, long) = (file("a"), file("b"), file("old"), file("long"));
    for (target, arguments, expected) in [
        ("/", &["-F", "directory=sub"][..], "303 /sub/"),
        ("/", &["-F", "directory=sub"], "409 "),
        ("/sub/", &["-F", &a, "-F", &b], "303 /sub/"),
        ("/", &["-F", &a, "-F", &old], "412 "),
        ("/", &["-F", &a, "-F", &long], "413 "),
        ("/", &["-F", &old, "-F", "replace=yes"], "303 /"),
        ("/none/", &["-F", &a], "409 "),
        // From a page of another site, which a listener refuses by itself.
        (
            "/",
            &["-F", &a, "-H", "Origin: http://evil.example"],
            "403 ",
        ),
    ] {
        let Some(said) = curl(&server, target, arguments) else {
            return;
        };
        assert_eq!(said, expected, "{target} {arguments:?}");
    }
    assert_eq!(read(&site, "sub/a"), "a");
    assert_eq!(read(&site, "sub/b").len(), 1_500_000);
    assert_eq!(read(&site, "old"), "new");
    assert!(!site.at("a").exists() && !site.at("long").exists());
}

fn a_form_is_refused_where_a_put_is(driver: Driver) {
    let site = Site::new();
    site.write("public/x", "");
    site.write("private/x", "");
    // The password is `secret`.
    let users = "ada:$2b$05$abcdefghijklmnopqrstuuS0fKpG0L2wNpMMwfQKLJYLTHCQyQb0e\n";
    site.write("users", users);
    let config = format!(
        "http = \"127.0.0.1:0\"\n[[site]]\ndir = \"{0}/public\"\n\
         [[site]]\nprefix = \"/private\"\ndir = \"{0}/private\"\nwritable = true\n\
         auth-file = \"{0}/users\"\n\
         [[site]]\nprefix = \"/nets\"\ndir = \"{0}/private\"\nwritable = true\n\
         allow = \"192.0.2.0/24\"\n",
        site.path().display()
    );
    site.write("flatpath.toml", config);
    let launch = Launch::new(flatpath_testkit::binary::flatpath().to_path_buf());
    let launch = launch.with(["serve", "--driver", driver.name(), "--config"]);
    let server = launch.with([site.at("flatpath.toml")]).start();
    let form = ["-F", "directory=made"];
    for (target, arguments, expected) in [
        ("/", &form[..], "405 "),
        ("/private/", &form, "401 "),
        (
            "/private/",
            &["-F", "directory=made", "-u", "ada:wrong"],
            "401 ",
        ),
        ("/nets/", &form, "403 "),
    ] {
        let Some(said) = curl(&server, target, arguments) else {
            return;
        };
        assert_eq!(said, expected, "{target} {arguments:?}");
    }
    for place in ["public/made", "private/made"] {
        assert!(!site.at(place).exists(), "{place}");
    }
}
