//! curl downloads a large tree; every byte is compared.

use std::process::Command;

use flatpath_testkit::deadline::long_patience;
use flatpath_testkit::noise;
use flatpath_testkit::site::files_below;
use flatpath_testkit::{Driver, Launch, Site, each_driver, tools};

each_driver!(
    curl_downloads_a_large_tree,
    curl_resumes_a_broken_download,
    a_file_of_many_gib_streams_with_bounded_memory,
);

const SMALL_FILES: u64 = 400;
const LARGE_FILES: u64 = 6;

/// Small files of every size round the borders of buffers, large ones, and names that need escapes.
fn tree() -> Site {
    const BORDERS: [usize; 10] = [
        0, 1, 4095, 4096, 4097, 16_384, 65_535, 65_536, 65_537, 262_145,
    ];
    let site = Site::new();
    for number in 0..SMALL_FILES {
        let index = usize::try_from(number).expect("a small number");
        let length = BORDERS.get(index).copied().unwrap_or(index * 37 % 20_000);
        site.write(
            &format!("small/{}/{number}.bin", number % 7),
            noise(number, length),
        );
    }
    for number in 0..LARGE_FILES {
        let length = 3_000_000 + 1_234_567 * usize::try_from(number).expect("a small number");
        site.write(
            &format!("large/{number}.bin"),
            noise(1_000 + number, length),
        );
    }
    for name in [
        "with space.txt",
        "per%cent.txt",
        "plus+sign.txt",
        "Ünïcode.txt",
        "a?b#c.txt",
    ] {
        site.write(&format!("names/{name}"), name);
    }
    site
}

fn curl_downloads_a_large_tree(driver: Driver) {
    let Some(curl) = tools::find("curl") else {
        return;
    };
    let site = tree();
    let server = Launch::serve(driver).directory(site.path()).start();
    let into = Site::new();
    let mut list = String::new();
    let files = files_below(site.path());
    for (name, _) in &files {
        let url = escape(name.to_str().expect("names are text"));
        let output = into.at(name.to_str().expect("names are text"));
        list.push_str(&format!(
            "url = \"http://{}/{url}\"\n",
            server.address("http")
        ));
        list.push_str(&format!("output = \"{}\"\n", output.display()));
    }
    into.write("list", &list);
    let mut command = Command::new(curl);
    command.args([
        "--no-progress-meter",
        "--fail",
        "--create-dirs",
        "--parallel",
    ]);
    command
        .args(["--parallel-max", "16", "--config"])
        .arg(into.at("list"));
    let output = tools::run(&mut command, long_patience());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "curl: {}: {errors}", output.status);
    std::fs::remove_file(into.at("list")).expect("the list is there");
    let received = files_below(into.path());
    assert_eq!(
        received.len(),
        files.len(),
        "curl wrote another number of files"
    );
    for (have, want) in received.iter().zip(&files) {
        assert_eq!(have.0, want.0);
        assert!(
            have.1 == want.1,
            "{} differs from what was served",
            want.0.display()
        );
    }
}

fn curl_resumes_a_broken_download(driver: Driver) {
    let Some(curl) = tools::find("curl") else {
        return;
    };
    let contents = noise(7, 5_000_000);
    let site = Site::new().with("file.bin", &contents);
    let server = Launch::serve(driver).directory(site.path()).start();
    let into = Site::new().with("file.bin", &contents[..1_234_567]);
    let mut command = Command::new(curl);
    command.args([
        "--no-progress-meter",
        "--fail",
        "--continue-at",
        "-",
        "--output",
    ]);
    command
        .arg(into.at("file.bin"))
        .arg(format!("http://{}/file.bin", server.address("http")));
    let output = tools::run(&mut command, long_patience());
    assert!(
        output.status.success(),
        "curl: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let received = std::fs::read(into.at("file.bin")).expect("curl wrote it");
    assert!(received == contents, "the resumed file differs");
}

fn a_file_of_many_gib_streams_with_bounded_memory(driver: Driver) {
    const FILE_BYTES: u64 = 6 << 30;
    const READ_BYTES: u64 = 400 << 20;
    const GROWTH_BYTES_MAX: u64 = 24 << 20;
    let site = Site::new();
    let file = std::fs::File::create(site.at("huge")).expect("a file can be made");
    file.set_len(FILE_BYTES).expect("a file may have holes");
    std::os::unix::fs::FileExt::write_all_at(&file, b"the end", FILE_BYTES - 7)
        .expect("it is open");
    let server = Launch::serve(driver).directory(site.path()).start();

    let mut client = server.client().patient(long_patience());
    let tail = client.ask("/huge", &[("Range", "bytes=-7")]);
    assert_eq!((tail.status, tail.text()), (206, "the end"));
    let before = server.process().memory_bytes();
    client.request("GET", "/huge", &[]);
    let head = client.exactly(1);
    assert_eq!(head, b"H");
    let mut left = READ_BYTES;
    let mut most = 0;
    while left > 0 {
        const STEP: u64 = 1 << 20;
        let bytes = client.exactly(usize::try_from(STEP).expect("it fits"));
        left -= STEP;
        if left.is_multiple_of(64 * STEP) {
            most = most.max(server.process().memory_bytes());
        }
        let zeros = bytes.iter().rev().take(1000).all(|byte| *byte == 0);
        assert!(zeros, "the file holds zeros only");
    }
    let growth = most.saturating_sub(before);
    assert!(
        growth <= GROWTH_BYTES_MAX,
        "{growth} bytes more while streaming"
    );
}

/// Escapes what must not stand in a path.
fn escape(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    name.bytes()
        .fold(String::new(), |text, byte| match plain(byte) {
            true => text + &char::from(byte).to_string(),
            false => text + &format!("%{byte:02X}"),
        })
}
