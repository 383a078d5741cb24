//! A server with an ingest listener: how it is started, what is sent to it, and what it tells.

use std::collections::HashMap;
use std::ops::Index;
use std::path::Path;

use rustix::process::Signal;

use crate::seeds::noise;
use crate::{Driver, Launch, Server, binary, until};

/// The command line of a server with an ingest listener whose socket is `ingest` in `directory`.
pub fn launch(driver: Driver, directory: &Path) -> Launch {
    let socket = directory.join("ingest");
    Launch::new(binary::flatpath().to_path_buf())
        .with([
            "serve",
            "--driver",
            driver.name(),
            "--ingest",
            "127.0.0.1:0",
        ])
        .with([Path::new("--ingest-socket"), &socket])
}

/// A message that can be checked, with its length in front: a seed, and the noise that it makes.
pub fn message(seed: u64, length: usize) -> Vec<u8> {
    let framed = u32::try_from(8 + length).expect("short").to_be_bytes();
    [&framed[..], &seed.to_be_bytes(), &noise(seed, length)].concat()
}

/// Metrics by name and labels, as a line of the log has them: `flatpath_jobs{state=queued}`. Those
/// that are not in the line are 0.
#[derive(Debug)]
pub struct Counts(HashMap<String, u64>);

impl Index<&str> for Counts {
    type Output = u64;

    fn index(&self, name: &str) -> &u64 {
        self.0.get(name).unwrap_or(&0)
    }
}

/// The metrics of the last line of a log that has `title`, such as `ingest: `, in it.
pub fn figures(log: &str, title: &str) -> Option<Counts> {
    let (_, line) = log.lines().rev().find_map(|line| line.split_once(title))?;
    let pairs = line.split(' ').filter_map(|pair| pair.rsplit_once('='));
    let counted = pairs.filter_map(|(name, count)| Some((name.into(), count.parse().ok()?)));
    Some(Counts(counted.collect()))
}

/// What a server tells of a subject (`server`, `http`) when it is asked by SIGUSR1.
pub fn told(server: &Server, subject: &str) -> Counts {
    let title = format!("metrics of {subject}");
    let before = server.log().len();
    server.process().signal(Signal::USR1);
    until("the server to tell its metrics", || {
        // Whole lines only.
        let log = server.log();
        let new = log.get(before..)?;
        figures(&new[..=new.rfind('\n')?], &title)
    })
}
