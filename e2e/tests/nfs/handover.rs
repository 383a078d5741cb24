//! A server hands over to the next: file handles stay valid, and a client that is connected is
//! served until it is told to come again.

use flatpath_testkit::{Driver, Site, each_driver};

use crate::calls::{Connection, Words, data, read};
use crate::serve;

each_driver!(handles_are_valid_after_a_handover);

fn lookup(client: &mut Connection, directory: &[u8], name: &str) -> Vec<u8> {
    let words = Words::default().opaque(directory).opaque(name.as_bytes());
    let reply = client.nfs(3, &words);
    assert_eq!(reply.status(), 0, "{name}");
    reply.opaque(4)
}

fn handles_are_valid_after_a_handover(driver: Driver) {
    let (site, state, run) = (Site::new(), Site::new(), Site::new());
    for number in 0..20 {
        site.write(&format!("a/b{number}"), format!("text {number}"));
    }
    let path = run.at("next");
    let path = path.to_str().expect("a path in text");
    let start = || serve(driver, &site, &state, &["--handover", path]);
    let mut first = start();
    let address = first.address("nfs");
    let mut client = Connection::open(address);
    let root = client.root();
    let directory = lookup(&mut client, &root, "a");
    let files: Vec<Vec<u8>> = (0..20)
        .map(|number| lookup(&mut client, &directory, &format!("b{number}")))
        .collect();
    for _ in 0..3 {
        let next = start();
        assert_eq!(next.address("nfs"), address);
        assert_eq!(first.exit_status().code(), Some(0), "{}", first.log());
        // A client connects again by itself, and has its handles still.
        let mut client = Connection::open(address);
        for (number, file) in files.iter().enumerate() {
            let reply = client.nfs(6, &read(file, 0, 100));
            assert_eq!(data(&reply), format!("text {number}").into_bytes());
        }
        assert_eq!(client.root(), root);
        assert_eq!(lookup(&mut client, &root, "a"), directory);
        first = next;
    }
}
