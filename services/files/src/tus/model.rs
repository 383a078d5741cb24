//! A model of uploads: random requests, several bodies at once, and what each may see.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::writing::WriteOptions;

use super::patch::Patch;
use super::tests::{Site, header, sha1_of};

/// The expected state of an upload.
struct Expected {
    address: String,
    name: String,
    length: Option<u64>,
    bytes: Vec<u8>,
    unverified: Vec<u8>,
    /// The body that may write.
    current: Option<u64>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Receiving,
    Finished,
    Removed,
}

/// A body under way.
struct Flight {
    number: u64,
    upload: usize,
    patch: Box<Patch>,
    rest: Vec<u8>,
    checksum: Option<bool>,
    offset: u64,
    length: Option<u64>,
    has_begun: bool,
}

impl Flight {
    /// Its first byte, or its end: whether it may write from here on.
    fn begin(&mut self, upload: &mut Expected) -> bool {
        if !self.has_begun && upload.state == State::Receiving {
            let is_other = self.length.is_some()
                && upload
                    .length
                    .is_some_and(|length| Some(length) != self.length);
            if self.offset == upload.bytes.len() as u64 && !is_other {
                self.has_begun = true;
                upload.current = Some(self.number);
                upload.length = upload.length.or(self.length);
                upload.unverified.clear();
            }
        }
        upload.current == Some(self.number) && upload.state == State::Receiving
    }
}

struct Model {
    site: Site,
    random: fastrand::Rng,
    uploads: Vec<Expected>,
    flights: Vec<Flight>,
    flights_begun: u64,
    files: BTreeMap<String, Vec<u8>>,
}

impl Model {
    fn draw(&mut self, below: u64) -> u64 {
        self.random.u64(..below)
    }

    fn create(&mut self) {
        let name = ["a", "b", "c"][self.draw(3) as usize].to_owned();
        let length = match self.draw(4) {
            0 => None,
            _ => Some(self.draw(30)),
        };
        let metadata = format!("filename {}", STANDARD.encode(&name));
        let announced = length.unwrap_or(1).to_string();
        let name_of_length = match length {
            Some(_) => "Upload-Length",
            None => "Upload-Defer-Length",
        };
        let headers = [
            (name_of_length, &announced[..]),
            ("Upload-Metadata", &metadata),
        ];
        let response = self.site.ask("POST", "/", &headers);
        assert_eq!(response.status(), 201);
        let address = header(&response, "location").expect("an address");
        self.uploads.push(Expected {
            address,
            name,
            length,
            bytes: Vec::new(),
            unverified: Vec::new(),
            current: None,
            state: State::Receiving,
        });
        let last = self.uploads.len() - 1;
        self.complete(last);
    }

    /// The oracle's publication.
    fn complete(&mut self, index: usize) {
        let upload = &mut self.uploads[index];
        if upload.state == State::Receiving && upload.length == Some(upload.bytes.len() as u64) {
            upload.state = State::Finished;
            self.files.insert(upload.name.clone(), upload.bytes.clone());
        }
    }

    fn begin(&mut self, index: usize) {
        let is_right = self.draw(4) > 0;
        let here = self.uploads[index].bytes.len() as u64;
        let offset = if is_right { here } else { self.draw(40) };
        let room = self.uploads[index]
            .length
            .map_or(20, |length| length - here);
        let count = self.draw(room + 1);
        let body: Vec<u8> = (0..count).map(|_| self.draw(256) as u8).collect();
        let checksum = [None, Some(true), Some(false)][self.draw(3) as usize];
        let digest = match checksum {
            Some(false) => sha1_of(b"something else"),
            _ => sha1_of(&body),
        };
        let (count, offset_text) = (count.to_string(), offset.to_string());
        let length_text = (here + 20).to_string();
        let mut headers = vec![
            ("Upload-Offset", &offset_text[..]),
            ("Content-Length", &count),
        ];
        if checksum.is_some() {
            headers.push(("Upload-Checksum", &digest));
        }
        let tells_length = self.uploads[index].length.is_none() && self.draw(2) == 0;
        if tells_length {
            headers.push(("Upload-Length", &length_text));
        }
        let begun = self
            .site
            .begin("PATCH", &self.uploads[index].address, &headers);
        let upload = &mut self.uploads[index];
        match (upload.state, offset == here, begun) {
            (State::Receiving, true, Ok(patch)) => {
                self.flights_begun += 1;
                self.flights.push(Flight {
                    number: self.flights_begun,
                    upload: index,
                    patch,
                    rest: body,
                    checksum,
                    offset,
                    length: tells_length.then_some(here + 20),
                    has_begun: false,
                });
            }
            (State::Receiving, false, Err(response)) => {
                assert!([409, 413].contains(&response.status().as_u16()));
            }
            (State::Finished, _, Err(response)) => assert_eq!(response.status(), 409),
            (State::Removed, _, Err(response)) => assert_eq!(response.status(), 404),
            (state, is_right, begun) => panic!("{state:?} {is_right} {}", begun.is_ok()),
        }
    }

    fn advance(&mut self, index: usize) {
        let count = (1 + self.draw(9)) as usize;
        let flight = &mut self.flights[index];
        let upload = &mut self.uploads[flight.upload];
        let is_current = flight.begin(upload);
        if flight.rest.is_empty() {
            let flight = self.flights.swap_remove(index);
            return self.finish(flight, is_current);
        }
        let count = count.min(flight.rest.len());
        let piece: Vec<u8> = flight.rest.drain(..count).collect();
        let taken = self.site.append(&mut flight.patch, &piece);
        if !is_current {
            let status = taken.expect_err("another one continues");
            assert!([400, 404, 409].contains(&status), "{status}");
            self.flights.swap_remove(index);
            return;
        }
        let there = upload.bytes.len() + upload.unverified.len() + piece.len();
        if upload.length.is_some_and(|length| there as u64 > length) {
            assert_eq!(taken, Err(413), "another one gave the length meanwhile");
            self.flights.swap_remove(index);
            return;
        }
        assert_eq!(taken, Ok(()));
        match flight.checksum {
            Some(_) => upload.unverified.extend(piece),
            None => upload.bytes.extend(piece),
        }
    }

    fn finish(&mut self, flight: Flight, is_current: bool) {
        let status = flight.patch.conclude().status().as_u16();
        let upload = &mut self.uploads[flight.upload];
        // A HEAD may have published what this one sent.
        let is_published = upload.current == Some(flight.number)
            && upload.state == State::Finished
            && flight.checksum.is_none();
        if !is_current && !is_published {
            assert!([400, 404, 409].contains(&status), "{status}");
            return;
        }
        let unverified = std::mem::take(&mut upload.unverified);
        match flight.checksum {
            Some(false) => {
                assert_eq!(status, 460);
                return;
            }
            Some(true) => {
                assert_eq!(status, 204);
                upload.bytes.extend(unverified);
            }
            None => assert_eq!(status, 204),
        }
        self.complete(flight.upload);
    }

    fn ask(&mut self, index: usize) {
        let found = self.site.offset(&self.uploads[index].address);
        let upload = &self.uploads[index];
        match upload.state {
            State::Removed => assert_eq!(found, Err(404)),
            _ => assert_eq!(found, Ok(upload.bytes.len() as u64)),
        }
        self.complete(index);
    }

    fn remove(&mut self, index: usize) {
        let upload = &mut self.uploads[index];
        let status = self.site.ask("DELETE", &upload.address, &[]).status();
        let expected = match upload.state {
            State::Receiving => 204,
            State::Finished => 403,
            State::Removed => 404,
        };
        assert_eq!(status, expected);
        if upload.state == State::Receiving {
            upload.state = State::Removed;
        }
    }

    fn step(&mut self) {
        if self.uploads.is_empty() || self.draw(12) == 0 {
            return self.create();
        }
        // The newest few, so that uploads meet each other.
        let newest = self.uploads.len().min(4) as u64;
        let upload = self.uploads.len() - 1 - self.draw(newest) as usize;
        match self.draw(20) {
            0..4 => self.begin(upload),
            4..6 => self.ask(upload),
            6 => self.remove(upload),
            7 if !self.flights.is_empty() => {
                // Its client goes away.
                let index = self.draw(self.flights.len() as u64) as usize;
                self.flights.swap_remove(index);
            }
            _ if !self.flights.is_empty() => {
                let index = self.draw(self.flights.len() as u64) as usize;
                self.advance(index);
            }
            _ => self.begin(upload),
        }
        assert_eq!(self.site.published(), self.files);
    }
}

#[test]
fn model_uploads_agree_with_an_oracle_whatever_comes_between() {
    let random = std::collections::hash_map::RandomState::new();
    let seed = std::hash::BuildHasher::hash_one(&random, 0);
    println!("seed {seed}");
    for round in 0..8 {
        let mut model = Model {
            site: Site::new(WriteOptions::default()),
            random: fastrand::Rng::with_seed(seed.wrapping_add(round)),
            uploads: Vec::new(),
            flights: Vec::new(),
            flights_begun: 0,
            files: BTreeMap::new(),
        };
        for _ in 0..300 {
            model.step();
        }
        for index in 0..model.uploads.len() {
            model.ask(index);
        }
        assert_eq!(model.site.published(), model.files);
        // All that is left hidden belongs to uploads that can continue.
        let unfinished = model.uploads.iter();
        let unfinished = unfinished.filter(|upload| upload.state == State::Receiving);
        assert_eq!(model.site.hidden_files(), unfinished.count() + 1);
    }
}
