//! REST with SQLite: items in JSON, read by their number and inserted.
//!
//! | request | reply |
//! |---|---|
//! | `GET /items/ID` | 200 with the item, or 404 |
//! | `POST /items` with a new item | 201 with the item and its number, or 400 |
//!
//! Both servers share what is here: types, statements, settings, and a connection for each thread
//! that may block. They differ in who receives, routes and calls. 500 is for what SQLite reports.

pub(super) mod axum;
pub(super) mod ours;

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::time::Duration;

use flatpath::lock::Lock;
use rusqlite::{Connection, OptionalExtension};
use serde::{Deserialize, Serialize};

/// Items that are there at the start, numbered from 1.
pub(crate) const ITEMS: i64 = 1000;
/// How long a writer waits for the others.
const BUSY: Duration = Duration::from_secs(5);
const CREATE: &str = "CREATE TABLE items (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, cents INTEGER NOT NULL)";
const INSERT: &str = "INSERT INTO items (name, cents) VALUES (?1, ?2)";
const SELECT: &str = "SELECT name, cents FROM items WHERE id = ?1";

/// Held by the thread that writes. SQLite has one writer at a time, and the others look again after
/// sleeps of a millisecond and more; a mutex wakes the next one at once.
static WRITER: Lock<()> = Lock::new(());

thread_local! {
    static CONNECTION: RefCell<Option<Connection>> = const { RefCell::new(None) };
}

#[derive(Debug, Deserialize, Serialize)]
struct NewItem {
    name: String,
    cents: u32,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Item {
    id: i64,
    name: String,
    cents: u32,
}

/// Makes the table and its items.
///
/// # Errors
/// What SQLite reports.
fn create(database: &Path) -> io::Result<()> {
    let made = || {
        let mut connection = open(database)?;
        connection.execute_batch(CREATE)?;
        let all = connection.transaction()?;
        for number in 1..=ITEMS {
            all.execute(INSERT, (format!("item {number}"), number))?;
        }
        all.commit()
    };
    made().map_err(io::Error::other)
}

fn open(database: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(database)?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    Ok(connection)
}

/// Works with this thread's connection, which the first call opens.
fn with<T>(
    database: &Path,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    CONNECTION.with_borrow_mut(|slot| match slot {
        Some(connection) => work(connection),
        None => work(slot.insert(open(database)?)),
    })
}

fn find(database: &Path, id: i64) -> rusqlite::Result<Option<Item>> {
    with(database, |connection| {
        let mut select = connection.prepare_cached(SELECT)?;
        let item = select.query_row([id], |row| {
            let (name, cents) = (row.get(0)?, row.get(1)?);
            Ok(Item { id, name, cents })
        });
        item.optional()
    })
}

fn insert(database: &Path, new: NewItem) -> rusqlite::Result<Item> {
    let _alone = WRITER.lock();
    with(database, |connection| {
        let NewItem { name, cents } = new;
        let mut insert = connection.prepare_cached(INSERT)?;
        let id = insert.insert((&name, cents))?;
        Ok(Item { id, name, cents })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_found_by_their_number_and_new_ones_get_the_next() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let database = directory.path().join("items.db");
        create(&database).expect("created");
        let new = |name: &str| NewItem {
            name: name.into(),
            cents: 250,
        };
        let ids = ["tea", "cup"].map(|name| insert(&database, new(name)).expect("inserted").id);
        assert_eq!(ids, [ITEMS + 1, ITEMS + 2]);
        let found = find(&database, ids[0]).expect("read").expect("it is there");
        assert_eq!((found.name.as_str(), found.cents), ("tea", 250));
        let first = find(&database, 1).expect("read").expect("it is there");
        assert_eq!((first.name.as_str(), first.cents), ("item 1", 1));
        assert_eq!(find(&database, ITEMS + 3).expect("read"), None);
    }
}
