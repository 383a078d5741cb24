//! READDIR and READDIRPLUS (RFC 1813 sections 3.3.16, 3.3.17).
//!
//! A cookie is the file system's own position after an entry, so it stays right when entries come
//! and go, and after a restart. The verifier belongs to the directory and never changes: with a
//! verifier that changed with the directory, a client could not list on after
//! it has removed what it listed.
//!
//! Entries are collected first, because they are looked up as the caller while the reply's buffer
//! is borrowed; one that does not fit is listed again from the cookie before it.
//!
//! Cost of an entry of READDIRPLUS: two system calls, by its name in the directory. Between them
//! another file could get the name. That changes the directory, so a page during which it was
//! changed is made again, and where a change could leave no trace because the last one was a
//! moment ago, each name is opened, which takes four. The caller's identity is taken on once for a
//! page, and once more for a page with `..`, which the server looks up.

use flatpath_rpc::xdr::{Reader, Writer};
use rustix::fd::OwnedFd;
use rustix::fs::{Access, AtFlags, OFlags, RawDir, RawDirEntry, SeekFrom};

use crate::attributes::{Attributes, POST_OP_BYTES, write_after};
use crate::export::LookBy;
use crate::limits::{DIRECTORY_BYTES_MAX, ENTRIES_BYTES_MIN, GRANT_AGE_MIN};
use crate::node::Node;
use crate::request::{Failure, Made, Outcome, Request, read_handle};
use crate::status::Status;

/// Results around the entries: attributes, verifier, end of list, end of directory.
const AROUND_BYTES: usize = POST_OP_BYTES + 8 + 4 + 4;

struct Asked {
    cookie: u64,
    verifier: u64,
    /// Names, numbers and cookies together, in bytes.
    names_max: usize,
    /// The results together, in bytes.
    results_max: usize,
    /// Attributes and handles too.
    plus: bool,
}

/// READDIRPLUS with `plus`, else READDIR.
pub(super) fn read(request: &mut Request<'_>, reader: &mut Reader<'_>, plus: bool) -> Outcome {
    let handle = read_handle(reader)?;
    let (cookie, verifier) = (reader.u64()?, reader.u64()?);
    let names_max = if plus {
        reader.u32()? as usize
    } else {
        usize::MAX
    };
    let count = reader.u32()? as usize;
    let asked = Asked {
        cookie,
        verifier,
        names_max,
        results_max: count.min(DIRECTORY_BYTES_MAX),
        plus,
    };
    let directory = request.resolve_directory(handle)?;
    let before = directory.attributes().ok();
    let lister = Lister {
        request,
        directory: &directory,
        asked: &asked,
    };
    let listed = lister.list_unchanged(before.as_ref());
    let after = directory.attributes().ok();
    let entries = listed.map_err(|status| Failure::in_directory(status, after))?;
    let verifier = request.state.export.cookie_verifier(directory.key);
    let answered = request.answer_within(4 + asked.results_max, |writer, system| {
        writer.u32(0);
        write_after(writer, after.as_ref(), system);
        writer.u64(verifier);
        writer.raw(&entries.bytes);
        writer.boolean(false);
        writer.boolean(entries.ended);
    });
    answered.map_err(|_| Failure::Status(Status::Later, after))
}

/// Entries as they go into the reply.
struct Entries {
    bytes: Vec<u8>,
    written: usize,
    names_bytes: usize,
    ended: bool,
}

/// An entry, with attributes and handle as far as the caller may know them.
struct Entry<'a> {
    inode: u64,
    name: &'a [u8],
    cookie: u64,
    found: Option<Made>,
}

/// Why [`Lister::fill`] ended.
enum Pause {
    /// At `..`, which has this cookie: the server goes up, not the caller.
    Above(u64),
    Full,
    End,
}

struct Lister<'a, 'b> {
    request: &'a Request<'b>,
    directory: &'a Node,
    asked: &'a Asked,
}

impl Lister<'_, '_> {
    /// Lists a directory that had these attributes before.
    fn list_unchanged(&self, before: Option<&Attributes>) -> Result<Entries, Status> {
        let list = self.open()?;
        // A second change within a moment may leave no trace.
        let changed = before
            .map(|before| before.changed)
            .filter(|changed| !changed.is_recent(GRANT_AGE_MIN));
        if let Some(changed) = changed {
            let entries = self.list(&list, LookBy::Name)?;
            if self.directory.attributes()?.changed == changed {
                return Ok(entries);
            }
            self.go_to_cookie(&list)?;
        }
        self.list(&list, LookBy::Descriptor)
    }

    /// Opens the directory as the caller and goes to where the client stopped.
    fn open(&self) -> Result<OwnedFd, Status> {
        // Through the descriptor: listing needs no right to pass.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let list = self
            .request
            .act(|| self.request.reopen(self.directory, flags))?;
        if self.asked.cookie != 0 {
            let verifier = self
                .request
                .state
                .export
                .cookie_verifier(self.directory.key);
            if self.asked.verifier != verifier || i64::try_from(self.asked.cookie).is_err() {
                return Err(Status::BadCookie);
            }
            self.go_to_cookie(&list)?;
        }
        Ok(list)
    }

    fn go_to_cookie(&self, list: &OwnedFd) -> Result<(), Status> {
        let place = SeekFrom::Start(self.asked.cookie);
        rustix::fs::seek(list, place).map_err(|_| Status::BadCookie)?;
        Ok(())
    }

    fn list(&self, list: &OwnedFd, by: LookBy) -> Result<Entries, Status> {
        let room = self
            .asked
            .results_max
            .checked_sub(AROUND_BYTES)
            .ok_or(Status::TooSmall)?;
        let mut entries = Entries {
            bytes: vec![0; room],
            written: 0,
            names_bytes: 0,
            ended: false,
        };
        // With attributes and handle, an entry is at least four times what the kernel writes for a
        // short name; what was read and does not fit is read again.
        let asked_bytes = if self.asked.plus { room / 4 } else { room };
        let mut buffer = Vec::with_capacity(asked_bytes.max(ENTRIES_BYTES_MIN));
        let mut kernel = RawDir::new(list, buffer.spare_capacity_mut());
        loop {
            let filled = match self.asked.plus {
                true => self
                    .request
                    .act(|| self.fill(&mut entries, &mut kernel, by))?,
                false => self.fill(&mut entries, &mut kernel, by)?,
            };
            match filled {
                Pause::Above(cookie) if self.add_above(&mut entries, cookie)? => {}
                Pause::Above(_) | Pause::Full => break,
                Pause::End => {
                    entries.ended = true;
                    break;
                }
            }
        }
        if entries.written == 0 && !entries.ended {
            return Err(Status::TooSmall);
        }
        entries.bytes.truncate(entries.written);
        Ok(entries)
    }

    /// Adds entries until `..` or one that does not fit. As the caller, where they are looked up.
    fn fill(
        &self,
        entries: &mut Entries,
        kernel: &mut RawDir<'_, &OwnedFd>,
        by: LookBy,
    ) -> Result<Pause, Status> {
        while let Some(entry) = kernel.next() {
            let entry = entry?;
            let cookie = entry.next_entry_cookie();
            if entry.file_name() == c".." {
                return Ok(Pause::Above(cookie));
            }
            let found = match self.asked.plus {
                true => self.look_up(&entry, by).ok(),
                false => None,
            };
            // A mount covers another inode, which is not for the client.
            let inode = found
                .as_ref()
                .map_or(entry.ino(), |found| found.0.key.inode);
            let name = entry.file_name().to_bytes();
            let entry = Entry {
                inode,
                name,
                cookie,
                found,
            };
            if !self.add(entries, &entry) {
                return Ok(Pause::Full);
            }
        }
        Ok(Pause::End)
    }

    fn look_up(&self, entry: &RawDirEntry<'_>, by: LookBy) -> Result<Made, Status> {
        let name = entry.file_name();
        if name != c"." {
            let export = &self.request.state.export;
            return export.describe_in(self.directory, name, by);
        }
        let path = &self.directory.path;
        rustix::fs::accessat(path, name, Access::EXISTS, AtFlags::EACCESS)?;
        Ok((self.directory.attributes()?, self.directory.handle))
    }

    /// Adds `..` as the server; false when it does not fit. What lies above the root is not for the
    /// client.
    fn add_above(&self, entries: &mut Entries, cookie: u64) -> Result<bool, Status> {
        let export = &self.request.state.export;
        let above = export.describe(export.parent(self.directory)?)?;
        let entry = Entry {
            inode: above.0.key.inode,
            name: b"..",
            cookie,
            found: self.asked.plus.then_some(above),
        };
        Ok(self.add(entries, &entry))
    }

    /// Adds an entry; false when it does not fit.
    fn add(&self, entries: &mut Entries, entry: &Entry<'_>) -> bool {
        let mut writer = Writer::new(&mut entries.bytes[entries.written..]);
        writer.boolean(true);
        writer.u64(entry.inode);
        writer.opaque(entry.name);
        writer.u64(entry.cookie);
        let names_bytes = entries.names_bytes + writer.written();
        if self.asked.plus {
            let found = entry.found.as_ref();
            write_after(
                &mut writer,
                found.map(|made| &made.0),
                self.request.system(),
            );
            writer.boolean(found.is_some());
            if let Some((_, handle)) = found {
                writer.opaque(handle.as_slice());
            }
        }
        if writer.overflowed() || names_bytes > self.asked.names_max {
            return false;
        }
        entries.written += writer.written();
        entries.names_bytes = names_bytes;
        true
    }
}

#[cfg(test)]
mod tests {
    use flatpath_rpc::Reply;
    use flatpath_testkit::until_true;

    use super::*;
    use crate::attributes::Time;
    use crate::identity::Who;
    use crate::request::Scope;
    use crate::rights::Rights;
    use crate::testing::Fixture;

    /// Calls `with` for a page of the root from `cookie` on.
    fn listing<T>(fixture: &Fixture, cookie: u64, with: impl FnOnce(&Lister<'_, '_>) -> T) -> T {
        let state = &*fixture.state();
        let directory = state.export.root().expect("open");
        let asked = Asked {
            cookie,
            verifier: state.export.cookie_verifier(directory.key),
            names_max: usize::MAX,
            results_max: DIRECTORY_BYTES_MAX,
            plus: true,
        };
        let request = Request {
            scope: Scope::Worker,
            state,
            rights: Rights::default(),
            who: state
                .server
                .acting(Who::new(&fixture.credential, &Rights::default(), None)),
            reply: &mut Reply::for_tests((&fixture.pool).into()),
            pool: (&fixture.pool).into(),
        };
        with(&Lister {
            request: &request,
            directory: &directory,
            asked: &asked,
        })
    }

    fn filled() -> Fixture {
        let fixture = Fixture::new();
        for number in 0..50 {
            std::fs::write(fixture.path().join(format!("file-{number}")), b"").expect("a file");
        }
        std::fs::create_dir(fixture.path().join("dir")).expect("a directory");
        std::os::unix::fs::symlink("file-1", fixture.path().join("link")).expect("a link");
        fixture
    }

    fn cookie_of_third(fixture: &Fixture) -> u64 {
        let root = std::fs::File::open(fixture.path()).expect("open");
        let mut room = Vec::with_capacity(ENTRIES_BYTES_MIN);
        let mut kernel = RawDir::new(&root, room.spare_capacity_mut());
        let mut cookie = 0;
        for _ in 0..3 {
            let entry = kernel.next().expect("an entry").expect("read");
            cookie = entry.next_entry_cookie();
        }
        cookie
    }

    /// Who reads a directory that has changed sets its time of access, and within the same tick of
    /// the kernel's clock the next reader does so again: then the times differ.
    #[test]
    fn entries_are_the_same_by_name_as_opened() {
        let fixture = filled();
        let page = |by| {
            listing(&fixture, 0, |lister| {
                lister
                    .list(&lister.open().expect("open"), by)
                    .expect("listed")
                    .bytes
            })
        };
        until_true("the same entries", || {
            page(LookBy::Name) == page(LookBy::Descriptor)
        });
    }

    #[test]
    fn a_page_of_a_directory_that_changed_meanwhile_is_made_again_from_its_cookie() {
        let fixture = filled();
        let cookie = cookie_of_third(&fixture);
        listing(&fixture, cookie, |lister| {
            let open = lister.open().expect("open");
            let expected = lister.list(&open, LookBy::Descriptor).expect("listed");
            let mut before = lister.directory.attributes().expect("stat");
            before.changed = Time {
                seconds: 1,
                nanoseconds: 0,
            };
            let again = lister.list_unchanged(Some(&before)).expect("listed");
            assert!(again.ended && expected.ended);
            assert!(again.bytes == expected.bytes);
        });
    }
}
