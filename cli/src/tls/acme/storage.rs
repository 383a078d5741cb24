//! The storage: the key of the account, and each certificate with its key, in a directory that
//! several servers may share.
//!
//! | path                    | what                                                     |
//! |-------------------------|----------------------------------------------------------|
//! | `DIR/CA/account.json`   | the account and its key, as `instant-acme` writes it     |
//! | `DIR/CA/NAME.pem`       | the key, the certificate, and what leads to an authority |
//! | `DIR/CA/lock`           | locked (`flock`) by the server that orders               |
//!
//! `CA` is made of the directory's address, so certificates of a staging authority are never those
//! of another. `NAME` is the first name that is asked for: a server that is started with another
//! name more uses the certificate until it has the next.
//!
//! Invariants
//! - A key and its certificate are one file, which is written under another name, synced and
//!   renamed: no reader sees a half of it, nor the key of another certificate.
//! - Directories have the mode 0700, files 0600, from the moment at which they exist.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use instant_acme::AccountCredentials;
use rustix::fs::{Access, FlockOperation};

use super::plan::Plan;
use crate::bounded_file;
use crate::tls::source::Pair;

const ACCOUNT: &str = "account.json";
const LOCK: &str = "lock";

/// The storage of a plan.
#[derive(Clone, Debug)]
pub(super) struct Storage {
    directory: PathBuf,
    certificate: PathBuf,
}

impl Storage {
    /// Where that of a plan is. Nothing is looked at.
    pub(super) fn of(plan: &Plan) -> Storage {
        let directory = plan.storage.join(name_of(&plan.directory));
        let first = plan.names.first().map_or("", String::as_str);
        Storage {
            certificate: directory.join(format!("{first}.pem")),
            directory,
        }
    }

    /// Makes the directories, and tries whether files can be written there.
    ///
    /// # Errors
    /// They cannot; the path is named.
    pub(super) fn prepare(&self) -> Result<(), String> {
        let named = |cause: io::Error| format!("{}: {cause}", self.directory.display());
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.directory);
        made.map_err(named)?;
        self.put("probe", b"").map_err(named)?;
        fs::remove_file(self.directory.join("probe")).map_err(named)
    }

    /// Where the certificate is, and its key: one file.
    pub(super) fn pair(&self) -> Pair {
        Pair {
            certificate: self.certificate.clone(),
            key: self.certificate.clone(),
        }
    }

    /// Locks it for an order; `None` while another server has it.
    pub(super) fn try_lock(&self) -> io::Result<Option<File>> {
        let path = self.directory.join(LOCK);
        // For writing: NFS makes locks of bytes of it, and gives out no other ones.
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(false).write(true).mode(0o600);
        let file = options.open(path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(cause) => Err(cause.into()),
        }
    }

    /// The account that was made before, if there is one.
    pub(super) fn account(&self) -> io::Result<Option<AccountCredentials>> {
        match bounded_file::read(&self.directory.join(ACCOUNT)) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(cause),
        }
    }

    pub(super) fn put_account(&self, account: &AccountCredentials) -> io::Result<()> {
        self.put(ACCOUNT, &serde_json::to_vec(account)?)
    }

    /// The authority knows it no more.
    pub(super) fn forget_account(&self) {
        if let Err(cause) = fs::remove_file(self.directory.join(ACCOUNT)) {
            log::error!("{}: {ACCOUNT}: {cause}", self.directory.display());
        }
    }

    /// The key first, then the certificate with those that lead to an authority.
    pub(super) fn put_certificate(&self, key: &str, chain: &str) -> io::Result<()> {
        let name = self.certificate.file_name().unwrap_or_default();
        self.put(&name.to_string_lossy(), format!("{key}{chain}").as_bytes())
    }

    /// Writes a file as a whole: it has its old content or this one, whatever ends in between.
    fn put(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let _writing = bounded_file::begin(self.directory.display().to_string());
        let unfinished = self
            .directory
            .join(format!(".{name}.{}", std::process::id()));
        // What a process with this number has left, that was killed.
        match fs::remove_file(&unfinished) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let mut file = options
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&unfinished)?;
        let written = file.write_all(content).and_then(|()| file.sync_all());
        let renamed = written.and_then(|()| fs::rename(&unfinished, self.directory.join(name)));
        if renamed.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        renamed?;
        File::open(&self.directory)?.sync_all()
    }

    /// Why it cannot be written, for those that write nothing (`check`, `doctor`).
    pub(super) fn mismatch(&self) -> Option<String> {
        let mut existing = self.directory.as_path();
        while !existing.exists() {
            let parent = existing.parent().filter(|it| !it.as_os_str().is_empty());
            existing = parent.unwrap_or(Path::new("."));
        }
        let tried = rustix::fs::access(existing, Access::WRITE_OK | Access::EXEC_OK);
        let cause = tried.err()?;
        let shown = existing.display();
        Some(format!("--acme-storage: {shown} is not writable: {cause}"))
    }

    /// What had better be otherwise.
    pub(super) fn warning(&self) -> Option<String> {
        let mode = fs::metadata(&self.directory).map_or(0, |it| it.mode());
        let shown = self.directory.display();
        (mode & 0o077 != 0).then(|| {
            format!("--acme-storage: others may look into {shown}, where keys are: chmod 700 it")
        })
    }
}

/// The name of an authority's directory: what its address has in it that a name can have.
fn name_of(address: &str) -> String {
    let address = address.strip_prefix("https://").unwrap_or(address);
    let is_kept = |character: char| character.is_ascii_alphanumeric() || "-.".contains(character);
    let kept = |character| if is_kept(character) { character } else { '-' };
    let name: String = address.chars().map(kept).take(200).collect();
    name.trim_matches(['.', '-']).into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn storage(directory: &Path) -> Storage {
        Storage::of(&Plan {
            names: vec!["a.example".into(), "b.example".into()],
            contacts: Vec::new(),
            directory: "https://ca.example:14000/../dir".into(),
            storage: directory.join("new/acme"),
            ca: None,
        })
    }

    #[test]
    fn what_is_stored_is_this_users_alone_and_whole() {
        let directory = tempfile::tempdir().expect("a directory");
        let storage = storage(directory.path());
        assert_eq!(storage.mismatch(), None, "it can be made");
        storage.prepare().expect("made");
        storage.put_certificate("key\n", "chain\n").expect("stored");
        storage
            .put_certificate("key 2\n", "chain 2\n")
            .expect("replaced");
        let own = directory.path().join("new/acme/ca.example-14000-..-dir");
        let pem = own.join("a.example.pem");
        assert_eq!(fs::read(&pem).expect("there"), b"key 2\nchain 2\n");
        assert_eq!(storage.pair().key, pem);
        let mode = |path: &Path| fs::metadata(path).expect("there").mode() & 0o777;
        assert_eq!((mode(&own), mode(&pem)), (0o700, 0o600));
        let count = fs::read_dir(&own).expect("a directory").count();
        assert_eq!(count, 1, "nothing unfinished is left");
        assert_eq!((storage.mismatch(), storage.warning()), (None, None));
        fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).expect("set");
        let why = storage.warning().expect("others may look");
        assert!(why.contains("chmod 700"), "{why}");
    }

    #[test]
    fn one_server_orders_at_a_time() {
        let directory = tempfile::tempdir().expect("a directory");
        let storage = storage(directory.path());
        storage.prepare().expect("made");
        let lock = storage.try_lock().expect("a file");
        assert!(lock.is_some());
        assert!(storage.try_lock().expect("a file").is_none(), "it is taken");
        drop(lock);
        assert!(storage.try_lock().expect("a file").is_some());
    }

    #[test]
    fn what_cannot_be_written_names_its_path() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("new"), "a file").expect("written");
        let why = storage(directory.path())
            .prepare()
            .expect_err("no directory");
        assert!(why.contains("new/acme/ca.example"), "{why}");
        assert!(storage(directory.path()).account().is_err());
    }

    #[test]
    fn an_authority_has_a_directory_of_its_own() {
        for (address, name) in [
            (
                "https://acme-v02.api.letsencrypt.org/directory",
                "acme-v02.api.letsencrypt.org-directory",
            ),
            ("https://localhost:14000/dir", "localhost-14000-dir"),
            ("https://../../a", "a"),
        ] {
            assert_eq!(name_of(address), name);
        }
    }
}
