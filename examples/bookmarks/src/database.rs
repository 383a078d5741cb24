//! Bookmarks and users in SQLite.
//!
//! Each thread that reads has a connection of its own, opened when it first needs it; all that
//! write take turns at one. SQLite has one writer at a time, and lets others look again after
//! sleeps of a millisecond and more; a lock wakes the next one at once. Readers do not wait for it.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use flatpath::lock::Lock;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};
use thread_local::ThreadLocal;

/// How long a connection waits for another process.
const BUSY_WAIT: Duration = Duration::from_secs(5);

/// `AUTOINCREMENT`: a number that was used identifies an event, so it is never used again.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS users (
        name TEXT PRIMARY KEY, salt BLOB NOT NULL, hash BLOB NOT NULL, iterations INTEGER NOT NULL
    );
    CREATE TABLE IF NOT EXISTS bookmarks (
        id INTEGER PRIMARY KEY AUTOINCREMENT, url TEXT NOT NULL, title TEXT NOT NULL,
        tags TEXT NOT NULL, added_by TEXT NOT NULL, added_at INTEGER NOT NULL
    );
    PRAGMA journal_mode = WAL;";

const INSERT: &str = "INSERT INTO bookmarks (url, title, tags, added_by, added_at) \
                      VALUES (?1, ?2, ?3, ?4, ?5) RETURNING *";

/// A bookmark as it is stored and sent.
#[derive(Debug, Serialize)]
pub struct Bookmark {
    pub id: i64,
    pub url: String,
    pub title: String,
    pub tags: Vec<String>,
    pub added_by: String,
    /// Seconds since 1970.
    pub added_at: i64,
}

/// What a client sends of one.
#[derive(Debug, Deserialize)]
pub struct Draft {
    url: String,
    title: String,
    #[serde(default)]
    tags: Vec<String>,
}

impl Draft {
    /// # Errors
    /// Why it cannot be stored, for its client.
    pub fn check(&self) -> Result<(), &'static str> {
        let is_link = ["http://", "https://"]
            .iter()
            .any(|it| self.url.starts_with(it));
        match self {
            _ if !is_link => Err("the url begins with http:// or https://"),
            _ if self.url.len() > 2048 => Err("the url has at most 2048 bytes"),
            _ if self.title.trim().is_empty() => Err("the title is empty"),
            _ if self.title.len() > 500 => Err("the title has at most 500 bytes"),
            _ if self.tags.len() > 20 => Err("there are at most 20 tags"),
            _ => Ok(()),
        }
    }
}

/// Which bookmarks a client asks for.
#[derive(Debug, Deserialize)]
pub struct Wanted {
    #[serde(default)]
    after: i64,
    #[serde(default = "Wanted::limit")]
    limit: usize,
    tag: Option<String>,
}

impl Wanted {
    /// The longest page, and how long one is unless asked.
    const LIMITS: (usize, usize) = (100, 50);

    fn limit() -> usize {
        Self::LIMITS.1
    }
}

/// Some bookmarks, in the order of their numbers, and where the next ones begin.
#[derive(Debug, Serialize)]
pub struct Page {
    bookmarks: Vec<Bookmark>,
    next: Option<i64>,
}

/// What is stored of a user.
#[derive(Debug)]
pub struct User {
    pub salt: [u8; 16],
    pub hash: [u8; 32],
    /// What the hash has cost: of a user of old less than of one of today.
    pub iterations: NonZeroU32,
}

/// A database file. Threads call it at the same time; each call may block.
#[derive(Debug)]
pub struct Database {
    path: PathBuf,
    readers: ThreadLocal<Connection>,
    writer: Lock<Connection>,
}

impl Database {
    /// Opens the file, and makes it and its tables if need be.
    ///
    /// # Errors
    /// What SQLite reports, as all functions here do.
    pub fn open(path: PathBuf) -> rusqlite::Result<Self> {
        let writer = connect(&path)?;
        writer.execute_batch(TABLES)?;
        Ok(Self {
            path,
            readers: ThreadLocal::new(),
            writer: Lock::new(writer),
        })
    }

    fn reader(&self) -> rusqlite::Result<&Connection> {
        self.readers.get_or_try(|| connect(&self.path))
    }

    /// Adds a user, or changes the password of one.
    pub fn put_user(&self, name: &str, user: &User) -> rusqlite::Result<()> {
        let query =
            "INSERT OR REPLACE INTO users (name, salt, hash, iterations) VALUES (?1, ?2, ?3, ?4)";
        let writer = self.writer.lock();
        writer
            .execute(query, (name, user.salt, user.hash, user.iterations))
            .map(drop)
    }

    pub fn user(&self, name: &str) -> rusqlite::Result<Option<User>> {
        let query = "SELECT salt, hash, iterations FROM users WHERE name = ?1";
        let mut statement = self.reader()?.prepare_cached(query)?;
        let user = statement.query_row([name], |row| {
            Ok(User {
                salt: row.get(0)?,
                hash: row.get(1)?,
                iterations: row.get(2)?,
            })
        });
        user.optional()
    }

    pub fn list(&self, wanted: &Wanted) -> rusqlite::Result<Page> {
        let query = "SELECT * FROM bookmarks WHERE id > ?1 AND (?2 IS NULL OR EXISTS
                     (SELECT 1 FROM json_each(tags) WHERE value = ?2)) ORDER BY id";
        let mut statement = self.reader()?.prepare_cached(query)?;
        let limit = wanted.limit.clamp(1, Wanted::LIMITS.0);
        // SQLite makes each row when it is asked for it. A `LIMIT ?` would have it plan the query
        // anew each time, as the plan depends on the value.
        let rows = statement.query_map(params![wanted.after, wanted.tag], bookmark)?;
        let bookmarks: Vec<Bookmark> = rows.take(limit).collect::<Result<_, _>>()?;
        let last = bookmarks.last().filter(|_| bookmarks.len() == limit);
        let next = last.map(|bookmark| bookmark.id);
        Ok(Page { bookmarks, next })
    }

    pub fn find(&self, id: i64) -> rusqlite::Result<Option<Bookmark>> {
        let query = "SELECT * FROM bookmarks WHERE id = ?1";
        let mut statement = self.reader()?.prepare_cached(query)?;
        statement.query_row([id], bookmark).optional()
    }

    pub fn insert(&self, draft: &Draft, user: &str) -> rusqlite::Result<Bookmark> {
        insert(&self.writer.lock(), draft, user)
    }

    /// Inserts all or none: how many, and the number of the last.
    pub fn import(&self, drafts: &[Draft], user: &str) -> rusqlite::Result<(usize, Option<i64>)> {
        let mut writer = self.writer.lock();
        let transaction = writer.transaction()?;
        let mut last = None;
        for draft in drafts {
            last = Some(insert(&transaction, draft, user)?.id);
        }
        transaction.commit()?;
        Ok((drafts.len(), last))
    }

    pub fn replace(&self, id: i64, draft: &Draft) -> rusqlite::Result<Option<Bookmark>> {
        let query =
            "UPDATE bookmarks SET url = ?2, title = ?3, tags = ?4 WHERE id = ?1 RETURNING *";
        let writer = self.writer.lock();
        let mut statement = writer.prepare_cached(query)?;
        let values = params![id, draft.url, draft.title, text(&draft.tags)];
        statement.query_row(values, bookmark).optional()
    }

    /// Whether it was there.
    pub fn remove(&self, id: i64) -> rusqlite::Result<bool> {
        let writer = self.writer.lock();
        let mut statement = writer.prepare_cached("DELETE FROM bookmarks WHERE id = ?1")?;
        Ok(statement.execute([id])? > 0)
    }
}

fn connect(path: &PathBuf) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY_WAIT)?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    Ok(connection)
}

fn insert(writer: &Connection, draft: &Draft, user: &str) -> rusqlite::Result<Bookmark> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.unwrap_or_default().as_secs() as i64;
    let mut statement = writer.prepare_cached(INSERT)?;
    let values = params![draft.url, draft.title, text(&draft.tags), user, now];
    statement.query_row(values, bookmark)
}

/// Tags are stored as JSON, which SQLite reads.
fn text(tags: &[String]) -> String {
    serde_json::json!(tags).to_string()
}

fn bookmark(row: &Row<'_>) -> rusqlite::Result<Bookmark> {
    let tags = row.get_ref(3)?.as_str()?;
    Ok(Bookmark {
        id: row.get(0)?,
        url: row.get(1)?,
        title: row.get(2)?,
        tags: serde_json::from_str(tags).unwrap_or_default(),
        added_by: row.get(4)?,
        added_at: row.get(5)?,
    })
}
