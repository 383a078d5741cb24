//! How downloads end that do not end by themselves: the server is relieved, the disk fails or takes
//! long, or the client stops.

use std::fs::File;
use std::time::Duration;

use flatpath_testkit::deadline::long_patience;
use flatpath_testkit::image::{Format, Image};
use flatpath_testkit::lossy::{Cache, Lossy, Operation};
use flatpath_testkit::{
    Client, Driver, Launch, Server, Site, each_driver, noise, tools, until_true,
};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;

use crate::sent_files::{BROKEN_OFF, LARGE_BYTES, begin};
use flatpath_testkit::https::{curl, serving, url};

each_driver!(
    a_relieved_server_sends_to_the_end_and_cuts_off_what_is_not_read,
    a_disk_that_fails_ends_the_downloads_of_its_file_and_no_other,
    a_disk_that_fails_ends_downloads_over_tls_as_well,
    a_disk_that_takes_long_keeps_those_waiting_that_read_from_it,
    downloads_that_stand_still_cost_no_buffers_and_give_all_back,
    a_file_that_has_no_name_is_served_by_none,
);

fn a_relieved_server_sends_to_the_end_and_cuts_off_what_is_not_read(driver: Driver) {
    let content = noise(7, LARGE_BYTES);
    let site = Site::new().with("large", &content).with("small", "small");
    let run = Site::new();
    let start = || {
        let launch = Launch::serve(driver).directory(site.path());
        let launch = launch.with(["--handover".as_ref(), run.at("next").as_os_str()]);
        let drain = ["--drain-idle-timeout", "60", "--drain-timeout", "10"];
        launch.with(drain).start()
    };
    let old = start();
    // By a worker first, then by the network thread, which has it open.
    let mut reading: Vec<_> = (0..3).map(|_| begin(&old, "/large")).collect();
    let mut unread = begin(&old, "/large");
    let mut begun: Vec<_> = reading.iter_mut().map(|it| it.exactly(1_000)).collect();
    let new = start();
    old.await_log("draining");
    assert_eq!(new.client().get("/small").text(), "small");
    for (client, begun) in reading.iter_mut().zip(&mut begun) {
        begun.extend(client.exactly(LARGE_BYTES - begun.len()));
        assert!(*begun == content, "no byte is lost, and none comes twice");
    }
    old.ended_well();
    let (received, _) = unread.rest();
    assert!(received.len() < LARGE_BYTES && received == content[..received.len()]);
    let mut client = new.client().patient(long_patience());
    assert!(client.get("/large").body == content);
    drop(client);
    new.end();
}

/// A site on a disk that fails or waits on request.
struct Failing {
    site: Site,
    image: Image,
    lossy: Lossy,
    content: Vec<u8>,
}

impl Failing {
    fn try_new(seed: u64) -> Option<Failing> {
        let site = Site::new();
        let lossy = Lossy::try_mount(&site.at("lossy"), Cache::Through)?;
        let format = Format {
            bytes: 64 << 20,
            ..Format::EXT4
        };
        let image = Image::try_new_in(lossy.path(), format)?;
        let content = noise(seed, LARGE_BYTES);
        std::fs::write(image.path().join("large"), &content).expect("room");
        std::fs::write(image.path().join("small"), "small").expect("room");
        Some(Failing {
            site,
            image,
            lossy,
            content,
        })
    }

    fn serve(&self, driver: Driver) -> Server {
        let launch = Launch::serve(driver).with(["--network-threads", "1"]);
        launch.directory(self.image.path()).start()
    }

    /// A client that is answered whatever the disk does.
    fn neighbour(server: &Server) -> Client {
        let mut neighbour = server.client();
        (0..3).for_each(|_| assert_eq!(neighbour.get("/small").text(), "small"));
        neighbour
    }

    /// Nothing of the large file is in memory, and after a third of it the disk has none.
    fn fails_soon(&self) {
        self.image.forget("large");
        let read_bytes_max = 128 << 10;
        let before = (LARGE_BYTES / 3 / read_bytes_max) as u64;
        self.lossy
            .fail_after(Operation::Read, before, u64::MAX, Errno::IO.raw_os_error());
    }

    /// Unmounted in this order.
    fn end(self) {
        let Failing {
            site, image, lossy, ..
        } = self;
        drop(image);
        drop(lossy);
        drop(site);
    }
}

fn a_disk_that_fails_ends_the_downloads_of_its_file_and_no_other(driver: Driver) {
    let Some(disk) = Failing::try_new(8) else {
        return;
    };
    let server = disk.serve(driver);
    let mut neighbour = Failing::neighbour(&server);
    disk.fails_soon();
    let mut broken_off = 0;
    // By a worker, and twice by the network thread, which has the file open.
    for _ in 0..3 {
        let mut client = begin(&server, "/large");
        let (received, _) = client.rest();
        assert!(received.len() < LARGE_BYTES && received == disk.content[..received.len()]);
        broken_off += 1;
        until_true("one line for it", || {
            server.log().matches(BROKEN_OFF).count() == broken_off
        });
        assert_eq!(neighbour.get("/small").text(), "small");
    }
    disk.lossy.heal();
    let mut client = server.client().patient(long_patience());
    assert!(client.get("/large").body == disk.content, "it is whole");
    let log = server.end();
    assert_eq!(log.matches(BROKEN_OFF).count(), broken_off, "{log}");
    disk.end();
}

fn a_disk_that_fails_ends_downloads_over_tls_as_well(driver: Driver) {
    let (Some(_), Some(disk)) = (tools::find("curl"), Failing::try_new(9)) else {
        return;
    };
    let options = ["--network-threads", "1"];
    let (server, authority) = serving(driver, disk.image.path(), &options);
    for version in ["1.2", "1.3"] {
        let get = |name: &str| {
            let mut curl = curl(&authority.at("site.crt")).expect("it is there");
            curl.args(["--tls-max", version]);
            tools::run(curl.arg(url(&server, name)), long_patience())
        };
        assert_eq!(get("/small").stdout, b"small");
        disk.fails_soon();
        let broken = get("/large");
        assert!(!broken.status.success(), "the end is no regular one");
        let received = broken.stdout;
        assert!(received.len() < LARGE_BYTES && received == disk.content[..received.len()]);
        server.await_log(BROKEN_OFF);
        assert_eq!(get("/small").stdout, b"small");
        disk.lossy.heal();
        assert!(get("/large").stdout == disk.content, "it is whole");
    }
    let log = server.end();
    assert_eq!(log.matches(BROKEN_OFF).count(), 2, "{log}");
    disk.end();
}

fn a_disk_that_takes_long_keeps_those_waiting_that_read_from_it(driver: Driver) {
    let Some(disk) = Failing::try_new(10) else {
        return;
    };
    let server = disk.serve(driver);
    let mut neighbour = Failing::neighbour(&server);
    disk.image.forget("large");
    // Far longer than all that is asked meanwhile takes.
    disk.lossy.delay(Operation::Read, Duration::from_secs(4));
    let mut waiting: Vec<_> = (0..4).map(|_| server.client()).collect();
    for client in &mut waiting {
        client.request("GET", "/large", &[]);
    }
    for _ in 0..50 {
        assert_eq!(neighbour.get("/small").text(), "small");
        assert_eq!(server.client().get("/none").status, 404);
    }
    assert!(waiting.iter_mut().all(Client::is_quiet), "the disk is read");
    disk.lossy.delay(Operation::Read, Duration::ZERO);
    for client in waiting {
        let mut client = client.patient(long_patience());
        assert!(client.reply().body == disk.content);
    }
    assert!(!server.end().contains(BROKEN_OFF));
    disk.end();
}

/// The buffers that replies are in, in bytes.
fn buffer_bytes(server: &Server) -> u64 {
    let metrics = Client::connect(server.address("admin")).get("/metrics");
    let in_use = metrics.text().lines().filter(|line| {
        line.starts_with("flatpath_buffer_bytes{") && line.contains("state=\"in_use\"")
    });
    in_use
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

fn downloads_that_stand_still_cost_no_buffers_and_give_all_back(driver: Driver) {
    const DOWNLOADS: usize = 60;
    let site = Site::new().with("large", noise(11, LARGE_BYTES));
    site.settle();
    let launch = Launch::serve(driver).with(["--admin", "127.0.0.1:0"]);
    let server = launch.directory(site.path()).start();
    assert_eq!(server.client().get("/large").body.len(), LARGE_BYTES);
    let descriptors = server.settled_descriptors();
    let bytes = buffer_bytes(&server);
    let mut clients: Vec<_> = (0..DOWNLOADS).map(|_| begin(&server, "/large")).collect();
    // As one does that reads a byte in each second.
    for client in &mut clients {
        client.exactly(1);
    }
    until_true("nothing is held for them", || {
        buffer_bytes(&server) <= bytes
    });
    for (number, client) in clients.into_iter().enumerate() {
        match number % 2 {
            0 => client.reset(),
            _ => drop(client),
        }
    }
    until_true("the descriptors are back", || {
        server.process().descriptors() <= descriptors + 1
    });
    until_true("no connection is left", || {
        let metrics = Client::connect(server.address("admin")).get("/metrics");
        let mut lines = metrics.text().lines();
        lines.any(|line| {
            line.starts_with("flatpath_connections{listener=\"http\"") && line.ends_with(" 0")
        })
    });
    server.end();
}

/// What a process has open without a name, such as a sealed memfd, has one in `/proc`, by which
/// nothing is served: where it leads is no place beneath a directory.
fn a_file_that_has_no_name_is_served_by_none(driver: Driver) {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("sealed", flags).expect("memory");
    let file = File::from(file);
    file.set_len(LARGE_BYTES as u64).expect("memory");
    let seals = rustix::fs::SealFlags::SHRINK | rustix::fs::SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&file, seals).expect("sealed");
    let number = std::os::fd::AsRawFd::as_raw_fd(&file);
    let open = format!("/proc/{}/fd", std::process::id());
    let linked = Site::new().with("small", "small");
    std::os::unix::fs::symlink(format!("{open}/{number}"), linked.at("link")).expect("linked");
    for (directory, target) in [
        (linked.path(), "/link".to_owned()),
        (open.as_ref(), format!("/{number}")),
    ] {
        let server = Launch::serve(driver).directory(directory).start();
        for _ in 0..2 {
            let status = server.client().get(&target).status;
            assert!(matches!(status, 403 | 404), "{target}: {status}");
        }
        server.end();
    }
}
