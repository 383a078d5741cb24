//! Certificates by themselves (`--acme`): ordered of an ACME authority (RFC 8555), and renewed.
//!
//! | file            | what it does                                                      |
//! |-----------------|-------------------------------------------------------------------|
//! | `plan.rs`       | what the settings ask for                                         |
//! | `decision.rs`   | what is to be done now, as a value                                |
//! | `order.rs`      | an order, step by step                                            |
//! | `client.rs`     | requests to the authority                                         |
//! | `challenges.rs` | what is answered at the listeners meanwhile                       |
//! | `storage.rs`    | account and certificates in a directory that servers share        |
//!
//! A certificate is in one of these states; none of them is kept, because the files and the clock
//! say which it is, also after a restart:
//!
//! | state          | served meanwhile                      | what ends it                       |
//! |----------------|---------------------------------------|------------------------------------|
//! | no certificate | one that signs itself                 | an order                           |
//! | ordering       | the one before, or one that signs     | valid; or a failure: pause         |
//! |                | itself                                |                                    |
//! | valid          | it                                    | two thirds of its life: due        |
//! | due            | it, until it ends                     | an order                           |
//! | pause          | the one before, to its end and beyond | its time, SIGHUP: ordering         |
//!
//! One thread decides ([`decision::next`]) and acts in one `match`; requests to the authority block
//! it, and nothing else. What was issued is a file like any other: `renewal.rs` reads it. The
//! server that orders has a lock in the storage; one that waits for it reads what the other got. A
//! successor takes over: the order in progress is dropped, the lock is free at once, and nothing
//! waits for the thread.

mod challenges;
mod client;
mod decision;
mod order;
mod plan;
mod storage;

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, SystemTime};

use flatpath::lock::Lock;

use self::client::{Client, LastReply};
use self::decision::{Facts, Held, Reason, Step, Trouble, Until};
use self::order::{End, Issued, Stop, Stopped};
use self::storage::Storage;
use super::certificate::{Certificate, when};
use super::source::Pair;
use crate::reach::Reach;

pub(crate) use self::challenges::Challenges;
pub(crate) use self::plan::Plan;

/// The longest sleep: clocks are set, machines are suspended, and other servers order, too.
const SLEEP_MAX: Duration = Duration::from_secs(60 * 60);

/// While another server orders.
const LOOK_AT_LOCK: Duration = Duration::from_secs(1);

impl Plan {
    /// Where the certificate is, once there is one.
    pub(super) fn pair(&self) -> Pair {
        Storage::of(self).pair()
    }

    /// Makes the storage.
    ///
    /// # Errors
    /// It cannot be written; the path is named.
    pub(super) fn prepare(&self) -> Result<(), String> {
        Storage::of(self).prepare()
    }

    /// What it asks for; of the storage what is to be warned of, and why it cannot be used.
    pub(super) fn found(&self) -> (String, Option<String>, Option<String>) {
        let names = self.named();
        let mut words = format!("certificate for {names}, ordered at {}", self.directory);
        if let Ok(certificate) = Certificate::from_files(&self.pair()) {
            words += &format!("; the one by now is valid until {}", certificate.end());
        }
        let storage = Storage::of(self);
        (words, storage.warning(), storage.mismatch())
    }

    /// Whether a certificate has all names that are asked for.
    fn is_met_by(&self, certificate: &Certificate) -> bool {
        self.names
            .iter()
            .all(|name| certificate.names.contains(name))
    }
}

/// The thread that orders, until this is dropped or handed over.
#[derive(Clone, Debug)]
pub(super) struct Orders(Arc<Control>);

#[derive(Debug)]
struct Control {
    is_stopped: AtomicBool,
    /// Wakes the thread.
    wake: Sender<Wake>,
    /// Of the order in progress. It is free when this is, wherever the thread is.
    lock: Lock<Option<File>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    Stop,
    /// SIGHUP.
    Hurry,
}

impl Orders {
    /// Begins: the listeners answer from now on. `issued` is called when there is another file.
    pub(super) fn begin(
        plan: Plan,
        challenges: &Challenges,
        reach: Reach,
        issued: impl Fn() + Send + 'static,
    ) -> io::Result<Orders> {
        let (wake, woken) = mpsc::channel();
        let control = Arc::new(Control {
            is_stopped: AtomicBool::new(false),
            wake,
            lock: Lock::new(None),
        });
        let thread = Thread {
            storage: Storage::of(&plan),
            plan,
            reach,
            challenges: challenges.clone(),
            issued: Box::new(issued),
            control: Arc::clone(&control),
            woken,
            last: LastReply::default(),
            jitter: jitter(),
        };
        let builder = thread::Builder::new().name("flatpath-acme".into());
        builder.spawn(move || thread.run())?;
        Ok(Orders(control))
    }

    /// SIGHUP: no pause is waited for but one that the authority has asked for.
    pub(super) fn hurry(&self) {
        let _ = self.0.wake.send(Wake::Hurry);
    }

    /// Another server orders from now on, or none. Returns at once.
    pub(super) fn stop(&self) {
        // ORDER: Release: the thread stores nothing after it has seen this.
        self.0.is_stopped.store(true, Ordering::Release);
        let _ = self.0.wake.send(Wake::Stop);
        drop(self.0.lock.lock().take());
    }
}

/// From 0 to 1, of this process.
fn jitter() -> f64 {
    let random = RandomState::new().hash_one(std::process::id());
    f64::from(u32::try_from(random >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}

struct Thread {
    plan: Plan,
    storage: Storage,
    reach: Reach,
    challenges: Challenges,
    issued: Box<dyn Fn() + Send>,
    control: Arc<Control>,
    woken: Receiver<Wake>,
    last: LastReply,
    jitter: f64,
}

impl Stop for Thread {
    fn wait(&self, time: Duration) -> Result<(), Stopped> {
        match self.sleep(time) {
            Some(Wake::Stop) => Err(Stopped),
            // An order is in progress: it hurries already.
            Some(Wake::Hurry) | None => Ok(()),
        }
    }
}

impl Thread {
    fn run(self) {
        let (mut trouble, mut announced) = (None, None);
        loop {
            let facts = self.facts(trouble);
            let woken = match decision::next(&facts) {
                Step::Wait(until, end) => {
                    if announced.replace((until, end)) != Some((until, end)) {
                        self.announce(until, end);
                    }
                    let left = end.duration_since(facts.now).unwrap_or_default();
                    self.sleep(left.min(SLEEP_MAX))
                }
                Step::Order(..) => match self.order_alone(trouble) {
                    Ok(outcome) => {
                        trouble = outcome;
                        announced = None;
                        self.sleep(Duration::ZERO)
                    }
                    Err(Stopped) => Some(Wake::Stop),
                },
            };
            match woken {
                Some(Wake::Stop) => return,
                Some(Wake::Hurry) => trouble = trouble.map(Trouble::hurried),
                None => {}
            }
        }
    }

    /// Sleeps, unless it is woken, or the server has stopped.
    fn sleep(&self, time: Duration) -> Option<Wake> {
        // ORDER: Acquire: see `Orders::stop`.
        if self.control.is_stopped.load(Ordering::Acquire) {
            return Some(Wake::Stop);
        }
        match self.woken.recv_timeout(time) {
            Ok(wake) => Some(wake),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Wake::Stop),
        }
    }

    fn facts(&self, trouble: Option<Trouble>) -> Facts {
        let held = Certificate::from_files(&self.storage.pair()).ok();
        Facts {
            now: SystemTime::now(),
            held: held.map(|it| Held {
                begins: it.begins,
                ends: it.ends,
                has_names: self.plan.is_met_by(&it),
            }),
            trouble,
            reach: self.reach,
            jitter: self.jitter,
        }
    }

    /// Orders, if no other server does, and if it is still needed then. Returns what has failed.
    fn order_alone(&self, trouble: Option<Trouble>) -> Result<Option<Trouble>, Stopped> {
        let mut is_told = false;
        let locked = loop {
            match self.storage.try_lock() {
                Ok(Some(file)) => break Ok(file),
                Ok(None) => {
                    if !std::mem::replace(&mut is_told, true) {
                        log::info!("acme: {}: another server orders it", self.plan.named());
                    }
                    self.wait(LOOK_AT_LOCK)?;
                }
                Err(cause) => break Err(cause),
            }
        };
        let outcome = match locked {
            Ok(file) => {
                *self.control.lock.lock() = Some(file);
                let outcome = self.order(trouble);
                drop(self.control.lock.lock().take());
                outcome
            }
            Err(cause) => Err(End::Failed(failed("the storage", cause.to_string()))),
        };
        match outcome {
            Ok(()) => {
                (self.issued)();
                Ok(None)
            }
            Err(End::Stopped) => Err(Stopped),
            Err(End::Failed(failure)) => Ok(Some(self.after(trouble, &failure))),
        }
    }

    /// Orders with the storage locked. What another server got meanwhile is as good.
    fn order(&self, trouble: Option<Trouble>) -> Result<(), End> {
        self.wait(Duration::ZERO)?;
        let Step::Order(reason, challenge) = decision::next(&self.facts(trouble)) else {
            log::info!("acme: {}: another server has got it", self.plan.named());
            return Ok(());
        };
        let (names, at) = (self.plan.named(), &self.plan.directory);
        let (why, by) = (reason.words(), challenge.name());
        log::info!("acme: {names}: {why}: an order at {at} by {by}");
        let http = Client::new(&self.plan, &self.last);
        let http = http.map_err(|cause| End::Failed(failed("the client", cause)))?;
        let attempt = order::Attempt {
            plan: &self.plan,
            storage: &self.storage,
            challenges: &self.challenges,
            last: &self.last,
            stop: self,
        };
        let Issued { key, chain } = attempt.run(Box::new(http), challenge)?;
        // After this the certificate is stored, whatever comes.
        self.wait(Duration::ZERO)?;
        let put = self.storage.put_certificate(&key, &chain);
        put.map_err(|cause| End::Failed(failed("the storage", cause.to_string())))?;
        if let Step::Order(reason, _) = decision::next(&self.facts(None)) {
            // Another order would be no better.
            let cause = format!("what was issued is of no use: {}", reason.words());
            return Err(End::Failed(failed("the certificate", cause)));
        }
        log::info!("acme: {names}: issued");
        Ok(())
    }

    fn after(&self, before: Option<Trouble>, failure: &order::Failure) -> Trouble {
        let order::Failure { step, cause, .. } = failure;
        let told = (failure.kind, failure.retry_after);
        let trouble = Trouble::after(before, told, SystemTime::now(), self.reach);
        let names = self.plan.named();
        let meanwhile = match self.facts(None).held {
            Some(held) => format!(
                "the certificate before is used, valid until {}",
                when(held.ends)
            ),
            None => "a certificate is used that signs itself".into(),
        };
        log::error!("acme: {names}: {step}: {cause}; {meanwhile}");
        trouble
    }

    fn announce(&self, until: Until, end: SystemTime) {
        let (names, end) = (self.plan.named(), when(end));
        match until {
            Until::Due => log::info!("acme: {names}: to be renewed {end}"),
            Until::Pause => log::warn!("acme: {names}: the next order is {end}, or at SIGHUP"),
            Until::RetryAfter => {
                log::warn!("acme: {names}: the authority takes the next order {end}");
            }
        }
    }
}

/// What fails here, and not at the authority.
fn failed(step: &str, cause: String) -> order::Failure {
    order::Failure {
        step: step.into(),
        kind: decision::Kind::Other,
        cause,
        retry_after: None,
    }
}

impl Reason {
    fn words(self) -> &'static str {
        match self {
            Reason::Missing => "there is no certificate",
            Reason::OtherNames => "the certificate has other names",
            Reason::Expired => "the certificate has ended",
            Reason::Due => "the certificate is due",
        }
    }
}
