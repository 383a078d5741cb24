//! kill -9 in the middle of writing: what was promised is there, handles stay valid, and the
//! verifier tells what was not promised.

use flatpath_testkit::nfs::{Connection, commit, read, write};
use flatpath_testkit::{Driver, Site, each_driver};
use rustix::process::Signal;

use crate::nfs::serve;

each_driver!(
    what_was_acknowledged_survives_a_kill,
    the_verifier_changes_when_the_server_does,
);

const BLOCK: usize = 4096;

fn block(number: u32) -> Vec<u8> {
    number.to_be_bytes().repeat(BLOCK / 4)
}

fn what_was_acknowledged_survives_a_kill(driver: Driver) {
    let (site, state) = (Site::new(), Site::new());
    let mut server = serve(driver, &site, &state, &[]);
    let mut client = Connection::open(server.address("nfs"));
    let root = client.root();
    let file = client.create(&root, "file");
    let mut writer = client.another();
    let target = file.clone();
    let sender = std::thread::spawn(move || {
        for number in 1..u32::MAX {
            let offset = u64::from(number) * BLOCK as u64;
            let record = write(&target, offset, &block(number), 2).record(number);
            if std::io::Write::write_all(&mut writer.stream, &record).is_err() {
                return;
            }
        }
    });
    let mut acknowledged = Vec::new();
    for _ in 0..300 {
        let reply = client.reply();
        assert_eq!(reply.status(), 0);
        acknowledged.push(reply.xid);
    }
    server.process().signal(Signal::KILL);
    server.exit_status();
    sender.join().expect("the sender saw the end");
    let server = serve(driver, &site, &state, &[]);
    let mut client = Connection::open(server.address("nfs"));
    for number in acknowledged {
        let offset = u64::from(number) * BLOCK as u64;
        let reply = client.call(&read(&file, offset, u32::try_from(BLOCK).expect("short")));
        assert!(reply.data() == block(number), "block {number} was promised");
    }
    // Every block is whole or absent: none is half of one and half of another.
    let contents = std::fs::read(site.at("file")).expect("there");
    for (number, found) in (0..).zip(contents.chunks(BLOCK)) {
        let whole = found == &block(number)[..found.len()];
        assert!(
            whole || found.iter().all(|byte| *byte == 0),
            "block {number}"
        );
    }
}

fn the_verifier_changes_when_the_server_does(driver: Driver) {
    let (site, state) = (Site::new(), Site::new());
    let verifier = |file: &mut Option<Vec<u8>>| {
        let mut server = serve(driver, &site, &state, &[]);
        let mut client = Connection::open(server.address("nfs"));
        let root = client.root();
        let file = file
            .get_or_insert_with(|| client.create(&root, "file"))
            .clone();
        let written = client.call(&write(&file, 0, b"text", 0)).verifier();
        let again = client.call(&write(&file, 0, b"text", 0)).verifier();
        let committed = client.call(&commit(&file)).verifier();
        assert_eq!((written, written), (again, committed));
        server.process().signal(Signal::KILL);
        server.exit_status();
        written
    };
    let mut file = None;
    assert_ne!(verifier(&mut file), verifier(&mut file));
}
