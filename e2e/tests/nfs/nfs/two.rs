//! Two clients on the same files: what one does the other meets at its next call.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use flatpath_testkit::noise;
use flatpath_testkit::{Driver, Server, Site, each_driver, tools};
use nfs3_client::Nfs3ConnectionBuilder;
use nfs3_client::tokio::TokioConnector;
use nfs3_types::nfs3::{
    CREATE3args, GETATTR3args, LOOKUP3args, Nfs3Option, Nfs3Result, READ3args, REMOVE3args,
    RENAME3args, WRITE3args, createhow3, nfs_fh3, nfsstat3, sattr3, stable_how,
};
use nfs3_types::xdr_codec::Opaque;

use crate::nfs::client::{Mounted, at};
use crate::nfs::tools::{run, url};
use crate::nfs::{serve, serve_by_name};

each_driver!(
    two_clients_share_files,
    two_clients_share_files_that_are_found_by_name,
    two_clients_write_one_file_in_turns_and_side_by_side,
    libnfs_and_another_client_see_each_others_files,
);

const BLOCK: usize = 10_000;
const BLOCKS: u64 = 60;

async fn mount(port: u16) -> Mounted {
    Nfs3ConnectionBuilder::new(TokioConnector, "127.0.0.1", "/")
        .connect_from_privileged_port(false)
        .portmapper_port(port)
        .mount()
        .await
        .expect("mounted")
}

fn block_on(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(future);
}

/// Both at the same time.
async fn both<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> (A, B) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let (mut first, mut second) = (None, None);
    poll_fn(move |context| {
        if first.is_none()
            && let Poll::Ready(done) = one.as_mut().poll(context)
        {
            first = Some(done);
        }
        if second.is_none()
            && let Poll::Ready(done) = other.as_mut().poll(context)
        {
            second = Some(done);
        }
        match (first.take(), second.take()) {
            (Some(one), Some(other)) => Poll::Ready((one, other)),
            (one, other) => {
                (first, second) = (one, other);
                Poll::Pending
            }
        }
    })
    .await
}

/// GUARDED create: the handle, or `None` when another client has made it.
async fn create(nfs: &mut Mounted, root: &nfs_fh3, name: &str) -> Option<nfs_fh3> {
    let made = nfs
        .create(&CREATE3args {
            where_: at(root, name),
            how: createhow3::GUARDED(sattr3::default()),
        })
        .await;
    match made.expect("CREATE") {
        Nfs3Result::Ok(made) => match made.obj {
            Nfs3Option::Some(file) => Some(file),
            Nfs3Option::None => panic!("CREATE gives a handle"),
        },
        Nfs3Result::Err((nfsstat3::NFS3ERR_EXIST, _)) => None,
        Nfs3Result::Err(other) => panic!("{other:?}"),
    }
}

async fn write(nfs: &mut Mounted, file: &nfs_fh3, offset: u64, data: &[u8]) {
    let count = u32::try_from(data.len()).expect("short");
    let wanted = WRITE3args {
        file: file.clone(),
        offset,
        count,
        stable: stable_how::UNSTABLE,
        data: Opaque::borrowed(data),
    };
    let written = nfs.write(&wanted).await.expect("WRITE").unwrap();
    assert_eq!(written.count, count);
}

async fn read(nfs: &mut Mounted, file: &nfs_fh3) -> Vec<u8> {
    let wanted = READ3args {
        file: file.clone(),
        offset: 0,
        count: 1 << 20,
    };
    let read = nfs.read(&wanted).await.expect("READ").unwrap();
    assert!(read.eof);
    read.data.as_ref().to_vec()
}

async fn check_stale(nfs: &mut Mounted, file: &nfs_fh3) {
    let object = file.clone();
    let found = nfs.getattr(&GETATTR3args { object }).await;
    let found = found.expect("GETATTR");
    let stale = matches!(found, Nfs3Result::Err((nfsstat3::NFS3ERR_STALE, _)));
    assert!(stale, "{found:?}");
}

fn two_clients_share_files(driver: Driver) {
    let (site, state) = (Site::new(), Site::new());
    share_files(&site, &serve(driver, &site, &state, &[]));
}

fn two_clients_share_files_that_are_found_by_name(driver: Driver) {
    let (site, state) = (Site::new(), Site::new());
    if let Some(server) = serve_by_name(driver, &site, &state) {
        share_files(&site, &server);
    }
}

fn share_files(site: &Site, server: &Server) {
    let port = server.address("nfs").port();
    block_on(async {
        let (mut one, mut other) = (mount(port).await, mount(port).await);
        let root = one.root_nfs_fh3();
        assert_eq!(root, other.root_nfs_fh3(), "one file, one handle");
        // Both want to make every file at the same time: one of them does.
        for number in 0..30 {
            let name = format!("file-{number}");
            let (first, second) = both(
                create(&mut one, &root, &name),
                create(&mut other, &root, &name),
            )
            .await;
            assert_ne!(first.is_some(), second.is_some(), "exactly one made it");
            let file = first.or(second).expect("one of them");
            write(&mut one, &file, 0, name.as_bytes()).await;
            assert_eq!(read(&mut other, &file).await, name.as_bytes());
            // One renames it over the last one, the other removes it.
            let to = at(&root, "kept");
            let from = at(&root, &name);
            let renamed = other.rename(&RENAME3args { from, to }).await;
            renamed.expect("RENAME").unwrap();
            assert_eq!(read(&mut one, &file).await, name.as_bytes());
            let object = at(&root, "kept");
            let removed = one.remove(&REMOVE3args { object }).await;
            removed.expect("REMOVE").unwrap();
            check_stale(&mut other, &file).await;
            check_stale(&mut one, &file).await;
        }
    });
    let left = std::fs::read_dir(site.path()).expect("there").count();
    assert_eq!(left, 0);
}

fn two_clients_write_one_file_in_turns_and_side_by_side(driver: Driver) {
    let (site, state) = (Site::new(), Site::new());
    let server = serve(driver, &site, &state, &[]);
    let port = server.address("nfs").port();
    let content = noise(3, BLOCK * usize::try_from(BLOCKS).expect("small"));
    block_on(async {
        let (mut one, mut other) = (mount(port).await, mount(port).await);
        let root = one.root_nfs_fh3();
        let file = create(&mut one, &root, "file").await.expect("new");
        let blocks: Vec<(u64, &[u8])> = (0..).zip(content.chunks(BLOCK)).collect();
        // Blocks share pages: neither client may take the other's bytes along.
        for pair in blocks.chunks(2) {
            let [(first, mine), (second, theirs)] = pair else {
                panic!("an even number of blocks")
            };
            let size = BLOCK as u64;
            both(
                write(&mut one, &file, first * size, mine),
                write(&mut other, &file, second * size, theirs),
            )
            .await;
        }
        let (seen, also) = both(read(&mut one, &file), read(&mut other, &file)).await;
        assert!(seen == content && also == content);
    });
    assert!(std::fs::read(site.at("file")).expect("there") == content);
}

fn libnfs_and_another_client_see_each_others_files(driver: Driver) {
    if tools::find("nfs-cat").is_none() || tools::find("nfs-cp").is_none() {
        return;
    }
    let (site, state) = (Site::new(), Site::new());
    let server = serve(driver, &site, &state, &[]);
    let port = server.address("nfs").port();
    let text = noise(5, 300_001);
    state.write("local", &text);
    let local = state.at("local");
    let local = local.to_str().expect("a path in text");
    block_on(async {
        let mut client = mount(port).await;
        let root = client.root_nfs_fh3();
        let file = create(&mut client, &root, "mine").await.expect("new");
        for round in 1_u8..4 {
            write(&mut client, &file, 0, &[round; 5000]).await;
            let seen = run("nfs-cat", &[&url(&server, "//mine")]).expect("installed");
            assert!(seen.stdout == [round; 5000], "{:?}", seen.status);
        }
        // Its CREATE is guarded, so the name has to be new.
        let copied = run("nfs-cp", &[local, &url(&server, "//theirs")]).expect("installed");
        assert!(copied.status.success(), "{copied:?}");
        let what = at(&root, "theirs");
        let found = client.lookup(&LOOKUP3args { what }).await.expect("LOOKUP");
        let theirs = found.unwrap().object;
        assert!(read(&mut client, &theirs).await == text);
        write(&mut client, &theirs, 300_001, b"more").await;
        let seen = run("nfs-cat", &[&url(&server, "//theirs")]).expect("installed");
        assert!(seen.stdout == [&text[..], b"more"].concat());
    });
}
