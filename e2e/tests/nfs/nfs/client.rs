//! A Rust client that others wrote, driving every procedure.

use flatpath_testkit::{Driver, Site, each_driver};
use nfs3_client::tokio::{TokioConnector, TokioIo};
use nfs3_client::{Nfs3Connection, Nfs3ConnectionBuilder};
use nfs3_types::nfs3::{
    ACCESS3args, COMMIT3args, CREATE3args, FSINFO3args, FSSTAT3args, GETATTR3args, LINK3args,
    LOOKUP3args, MKDIR3args, MKNOD3args, Nfs3Option, Nfs3Result, PATHCONF3args, READ3args,
    READDIR3args, READDIRPLUS3args, READLINK3args, REMOVE3args, RENAME3args, RMDIR3args,
    SETATTR3args, SYMLINK3args, WRITE3args, cookieverf3, createhow3, diropargs3, mknoddata3,
    nfs_fh3, nfspath3, nfsstat3, sattr3, stable_how, symlinkdata3,
};
use nfs3_types::xdr_codec::Opaque;

use crate::nfs::serve;

each_driver!(every_procedure_works_for_a_client_of_others);

pub(crate) type Mounted = Nfs3Connection<TokioIo<tokio::net::TcpStream>>;

pub(crate) fn at<'a>(dir: &nfs_fh3, name: &'a str) -> diropargs3<'a> {
    diropargs3 {
        dir: dir.clone(),
        name: name.as_bytes().into(),
    }
}

fn every_procedure_works_for_a_client_of_others(driver: Driver) {
    let (site, state) = (Site::new(), Site::new());
    let server = serve(driver, &site, &state, &[]);
    let port = server.address("nfs").port();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(drive(port));
    assert_eq!(std::fs::read(site.at("name")).expect("made"), b"hello");
}

async fn drive(port: u16) {
    let mut nfs = Nfs3ConnectionBuilder::new(TokioConnector, "127.0.0.1", "/")
        .connect_from_privileged_port(false)
        .portmapper_port(port)
        .mount()
        .await
        .expect("mounted, ports found through the portmapper");
    let root = nfs.root_nfs_fh3();
    nfs.null().await.expect("NULL");

    let file = move_data(&mut nfs, &root).await;
    look_up(&mut nfs, &root, &file).await;
    let dir = make_kinds(&mut nfs, &root, &file).await;
    list(&mut nfs, &dir).await;
    take_away(&mut nfs, &root, &dir).await;
    ask(&mut nfs, root).await;
    nfs.unmount().await.expect("UMNT");
}

async fn move_data(nfs: &mut Mounted, root: &nfs_fh3) -> nfs_fh3 {
    let how = createhow3::UNCHECKED(sattr3::default());
    let made = nfs
        .create(&CREATE3args {
            where_: at(root, "file"),
            how,
        })
        .await;
    let made = made.expect("CREATE").unwrap();
    let Nfs3Option::Some(file) = made.obj else {
        panic!("CREATE gives a handle")
    };
    let data = Opaque::borrowed(b"hello");
    let stable = stable_how::UNSTABLE;
    let wanted = WRITE3args {
        file: file.clone(),
        offset: 0,
        count: 5,
        stable,
        data,
    };
    let written = nfs.write(&wanted).await.expect("WRITE").unwrap();
    let commit = COMMIT3args {
        file: file.clone(),
        offset: 0,
        count: 0,
    };
    let committed = nfs.commit(&commit).await.expect("COMMIT").unwrap();
    assert_eq!((written.count, written.verf), (5, committed.verf));
    let wanted = READ3args {
        file: file.clone(),
        offset: 1,
        count: 100,
    };
    let read = nfs.read(&wanted).await.expect("READ").unwrap();
    assert_eq!((read.data.as_ref(), read.eof), (&b"ello"[..], true));

    file
}

async fn look_up(nfs: &mut Mounted, root: &nfs_fh3, file: &nfs_fh3) {
    let found = nfs
        .lookup(&LOOKUP3args {
            what: at(root, "file"),
        })
        .await;
    assert_eq!(found.expect("LOOKUP").unwrap().object, *file);
    let missing = nfs
        .lookup(&LOOKUP3args {
            what: at(root, "none"),
        })
        .await;
    let missing = missing.expect("LOOKUP");
    assert!(
        matches!(missing, Nfs3Result::Err((nfsstat3::NFS3ERR_NOENT, _))),
        "{missing:?}"
    );
    let forged = nfs_fh3 {
        data: Opaque::borrowed(&[7; 40]),
    };
    let refused = nfs
        .getattr(&GETATTR3args { object: forged })
        .await
        .expect("GETATTR");
    assert!(
        matches!(refused, Nfs3Result::Err((nfsstat3::NFS3ERR_BADHANDLE, _))),
        "{refused:?}"
    );
    let rights = nfs
        .access(&ACCESS3args {
            object: file.clone(),
            access: 0x3f,
        })
        .await;
    assert_eq!(rights.expect("ACCESS").unwrap().access & 1, 1);
    let new_attributes = sattr3 {
        mode: Nfs3Option::Some(0o640),
        ..sattr3::default()
    };
    let object = file.clone();
    let set = SETATTR3args {
        object,
        new_attributes,
        guard: Nfs3Option::None,
    };
    nfs.setattr(&set).await.expect("SETATTR").unwrap();
    let found = nfs
        .getattr(&GETATTR3args {
            object: file.clone(),
        })
        .await;
    assert_eq!(
        found.expect("GETATTR").unwrap().obj_attributes.mode & 0o777,
        0o640
    );
}

async fn make_kinds(nfs: &mut Mounted, root: &nfs_fh3, file: &nfs_fh3) -> nfs_fh3 {
    let attributes = sattr3::default();
    let made = nfs
        .mkdir(&MKDIR3args {
            where_: at(root, "dir"),
            attributes,
        })
        .await;
    let Nfs3Option::Some(dir) = made.expect("MKDIR").unwrap().obj else {
        panic!("a handle")
    };
    let symlink_data = nfspath3(Opaque::borrowed(b"where"));
    let symlink = symlinkdata3 {
        symlink_attributes: sattr3::default(),
        symlink_data,
    };
    let made = nfs
        .symlink(&SYMLINK3args {
            where_: at(&dir, "link"),
            symlink,
        })
        .await;
    let Nfs3Option::Some(link) = made.expect("SYMLINK").unwrap().obj else {
        panic!("a handle")
    };
    let read = nfs
        .readlink(&READLINK3args { symlink: link })
        .await
        .expect("READLINK")
        .unwrap();
    assert_eq!(read.data.0.as_ref(), b"where");
    let what = mknoddata3::NF3FIFO(sattr3::default());
    nfs.mknod(&MKNOD3args {
        where_: at(&dir, "pipe"),
        what,
    })
    .await
    .expect("MKNOD")
    .unwrap();
    let link = LINK3args {
        file: file.clone(),
        link: at(&dir, "hard"),
    };
    nfs.link(&link).await.expect("LINK").unwrap();

    dir
}

async fn list(nfs: &mut Mounted, dir: &nfs_fh3) {
    let cookieverf = cookieverf3::default();
    let wanted = READDIR3args {
        dir: dir.clone(),
        cookie: 0,
        cookieverf,
        count: 8192,
    };
    let listed = nfs.readdir(&wanted).await.expect("READDIR").unwrap();
    assert_eq!(listed.reply.entries.into_inner().len(), 5);
    let (dircount, maxcount) = (8192, 8192);
    let wanted = READDIRPLUS3args {
        dir: dir.clone(),
        cookie: 0,
        cookieverf,
        dircount,
        maxcount,
    };
    let listed = nfs
        .readdirplus(&wanted)
        .await
        .expect("READDIRPLUS")
        .unwrap();
    assert_eq!(listed.reply.entries.into_inner().len(), 5);
}

async fn take_away(nfs: &mut Mounted, root: &nfs_fh3, dir: &nfs_fh3) {
    for name in ["link", "pipe"] {
        let object = at(dir, name);
        nfs.remove(&REMOVE3args { object })
            .await
            .expect("REMOVE")
            .unwrap();
    }
    let full = nfs
        .rmdir(&RMDIR3args {
            object: at(root, "dir"),
        })
        .await
        .expect("RMDIR");
    assert!(
        matches!(full, Nfs3Result::Err((nfsstat3::NFS3ERR_NOTEMPTY, _))),
        "{full:?}"
    );
    let rename = RENAME3args {
        from: at(dir, "hard"),
        to: at(root, "name"),
    };
    nfs.rename(&rename).await.expect("RENAME").unwrap();
    nfs.rmdir(&RMDIR3args {
        object: at(root, "dir"),
    })
    .await
    .expect("RMDIR")
    .unwrap();
}

async fn ask(nfs: &mut Mounted, root: nfs_fh3) {
    let space = nfs
        .fsstat(&FSSTAT3args {
            fsroot: root.clone(),
        })
        .await
        .expect("FSSTAT")
        .unwrap();
    assert!(space.tbytes >= space.fbytes);
    let fixed = nfs
        .fsinfo(&FSINFO3args {
            fsroot: root.clone(),
        })
        .await
        .expect("FSINFO")
        .unwrap();
    assert_eq!(fixed.rtmax, 1 << 20);
    let path = nfs
        .pathconf(&PATHCONF3args { object: root })
        .await
        .expect("PATHCONF")
        .unwrap();
    assert_eq!(path.name_max, 255);
}
