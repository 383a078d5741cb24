//! Certificates in use: loaded at the start, and read again when their files change.
//!
//! A look compares what the paths lead to now (device, inode, size and times of the real file) with
//! what they led to when they were read last, so a link that is set to another file is seen, as
//! ACME clients and Kubernetes set them. SIGHUP reads all of them, changed or not. A pair that
//! cannot be used leaves the one before in use; other pairs do not depend on it. So it is with the
//! files that say which clients are taken and how sessions are resumed (`watched.rs`).
//!
//! The housekeeper's task says when a look is due. The look itself is on a thread for as long as it
//! takes, because the files may lie on a disk that does not answer; meanwhile no other one begins.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use flatpath::housekeeper::{Next, Task};
use flatpath::lock::Lock;
use flatpath::metrics::Metric;
use flatpath::tls::TlsConfig;
use flatpath_http::HttpChallenges;

use super::acme::{Challenges, Orders, Plan};
use super::certificate::Certificate;
use super::choice::Choice;
use super::clients::ClientFiles;
use super::self_signed;
use super::source::{Pair, Secured, Source};
use super::tickets::TicketFiles;
use super::watched::{self, Identity, Reads, Watched};
use crate::bounded_file;
use crate::failure::Failure;
use crate::reach::Reach;

/// How often a certificate that ends soon is warned of.
const REMINDER: Duration = Duration::from_secs(24 * 60 * 60);

/// The certificates of all listeners. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Certificates(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Locked while files are read, which may take any time.
    groups: Lock<Vec<Group>>,
    /// Those of the groups, for those that do not wait.
    choices: Lock<Vec<Arc<Choice>>>,
    /// What an authority is to issue, if it is, and the thread that orders it.
    plan: Lock<Option<Plan>>,
    orders: Lock<Option<Orders>>,
    /// Of that authority.
    challenges: Challenges,
}

/// What is shown of them, by pair of files.
pub(crate) const METRICS: &[Metric<Certificates>] = &[Metric::gauge(
    "flatpath_tls_certificate_seconds_left",
    "Time until a certificate ends; below 0 it has expired.",
    &["name", "file"],
    |all, out| {
        let now = SystemTime::now();
        for certificate in all.distinct() {
            let labels = [certificate.name(), &*certificate.origin];
            out.put(&labels, certificate.seconds_left(now));
        }
    },
)];

/// The certificates of one listener, or of several that share them.
#[derive(Debug)]
struct Group {
    choice: Arc<Choice>,
    /// Where each is from; none of one that is self-signed.
    files: Vec<Pair>,
    /// What the files were when they were read last.
    seen: Vec<Seen>,
    /// An authority issues them: they may not be there yet.
    is_ordered: bool,
    config: TlsConfig,
    clients: Option<Watched<ClientFiles>>,
    tickets: Option<Watched<TicketFiles>>,
}

/// What the two paths of a pair lead to.
type Seen = [Option<Identity>; 2];

fn identities(pair: &Pair) -> Seen {
    [Identity::of(&pair.certificate), Identity::of(&pair.key)]
}

impl Certificates {
    /// Loads those of a listener, says what they are, and makes its configuration.
    pub(crate) fn add(&self, secured: &Secured) -> Result<TlsConfig, Failure> {
        let source = &secured.certificates;
        let files = match source {
            Source::Files(pairs) => pairs.clone(),
            Source::Authority(plan) => {
                plan.prepare()
                    .map_err(|cause| cannot(format!("--acme-storage: {cause}")))?;
                *self.0.plan.lock() = Some(plan.clone());
                vec![plan.pair()]
            }
            Source::SelfSigned => Vec::new(),
        };
        // Before they are read: what changes meanwhile is seen at the next look.
        let seen = files.iter().map(identities).collect();
        let certificates = source.load()?;
        for certificate in &certificates {
            match source {
                Source::Files(_) | Source::Authority(_) => {
                    log::info!("certificate {certificate}");
                }
                Source::SelfSigned => log::warn!(
                    "certificate {certificate}, made for trying out: no client trusts it unasked; \
                     SHA-256 {}",
                    certificate.fingerprint()
                ),
            }
            warn(certificate);
        }
        let certificates = certificates.into_iter().map(Arc::new).collect();
        let choice = Arc::new(Choice::new(certificates));
        let resolver = match secured.plan() {
            Some(_) => self.0.challenges.beside(&choice),
            None => Arc::clone(&choice) as _,
        };
        let config = TlsConfig::from_resolver(resolver);
        let config = config.map_err(|cause| Failure::Failed(format!("TLS: {cause}")))?;
        if secured.plan().is_some() {
            config.answer_challenges();
        }
        let clients = secured.clients.as_ref();
        let clients = clients.map(|files| Watched::begin(files, &config));
        let clients = clients.transpose().map_err(cannot)?;
        let tickets = secured.tickets.as_ref();
        let tickets = tickets.map(|files| Watched::begin(files, &config));
        let tickets = tickets.transpose().map_err(cannot)?;
        self.0.choices.lock().push(Arc::clone(&choice));
        self.0.groups.lock().push(Group {
            choice,
            files,
            seen,
            is_ordered: secured.plan().is_some(),
            config: config.clone(),
            clients,
            tickets,
        });
        Ok(config)
    }

    /// Whether no listener has any.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.choices.lock().is_empty()
    }

    /// SIGHUP: reads all of them, and orders what is due.
    pub(crate) fn reload(&self) {
        self.read(Reads::All);
        if let Some(orders) = &*self.0.orders.lock() {
            orders.hurry();
        }
    }

    /// What an authority may ask listeners without TLS.
    pub(crate) fn http_challenges(&self) -> Option<&HttpChallenges> {
        Some(self.0.challenges.http())
    }

    /// The listeners answer: what an authority is to issue is ordered from now on.
    pub(crate) fn order(&self, reach: Reach) {
        let Some(plan) = self.0.plan.lock().clone() else {
            return;
        };
        let all = self.clone();
        let issued = move || all.read(Reads::Changed);
        match Orders::begin(plan, &self.0.challenges, reach, issued) {
            Ok(orders) => *self.0.orders.lock() = Some(orders),
            Err(cause) => log::error!("acme: cannot start a thread: {cause}"),
        }
    }

    /// Another process accepts in place of this one, and orders; or the server ends.
    pub(crate) fn hand_over(&self) {
        if let Some(orders) = self.0.orders.lock().take() {
            orders.stop();
        }
    }

    fn read(&self, reads: Reads) {
        for group in &mut *self.0.groups.lock() {
            group.read(reads);
        }
    }

    /// Those in use, each once.
    fn distinct(&self) -> Vec<Arc<Certificate>> {
        let mut known = HashSet::new();
        let choices = self.0.choices.lock().clone();
        let all = choices.iter().flat_map(|it| it.certificates());
        all.filter(|it| known.insert((it.name().to_owned(), it.origin.clone())))
            .collect()
    }

    fn warn(&self) {
        for certificate in self.distinct() {
            warn(&certificate);
        }
        for group in &*self.0.groups.lock() {
            if let Some(clients) = &group.clients {
                clients.warn();
            }
        }
    }
}

impl Group {
    fn read(&mut self, reads: Reads) {
        let mut certificates = self.choice.certificates();
        let mut is_changed = false;
        let pairs = self.files.iter().zip(&mut self.seen);
        for ((pair, seen), current) in pairs.zip(&mut certificates) {
            let now = identities(pair);
            if reads == Reads::Changed && now == *seen {
                continue;
            }
            *seen = now;
            if self.is_ordered && seen.iter().all(Option::is_none) {
                continue;
            }
            match Certificate::from_files(pair) {
                Ok(read) => {
                    let read = match self.is_ordered {
                        true => read.renewed_by_itself(),
                        false => read,
                    };
                    log::info!("certificate {read}: read again");
                    warn(&read);
                    *current = Arc::new(read);
                    is_changed = true;
                }
                Err(cause) => log::error!(
                    "{cause}; the certificate before is still used, valid until {}",
                    current.end()
                ),
            }
        }
        if is_changed {
            self.choice.replace(certificates);
        }
        if let Some(clients) = &mut self.clients {
            clients.read(reads, &self.config);
        }
        if let Some(tickets) = &mut self.tickets {
            tickets.read(reads, &self.config);
        }
    }
}

impl Source {
    /// The certificates; an error names the file.
    pub(crate) fn load(&self) -> Result<Vec<Certificate>, Failure> {
        let loaded: Result<Vec<_>, _> = match self {
            Source::Files(pairs) => pairs.iter().map(Certificate::from_files).collect(),
            Source::Authority(plan) => issued_or_own(plan).map(|it| vec![it]),
            Source::SelfSigned => self_signed::make().map(|it| vec![it]),
        };
        loaded.map_err(cannot)
    }
}

/// What an authority has issued before; else one that signs itself, for the time being.
fn issued_or_own(plan: &Plan) -> Result<Certificate, String> {
    let pair = plan.pair();
    match Certificate::from_files(&pair) {
        Ok(read) => return Ok(read.renewed_by_itself()),
        Err(cause) if Identity::of(&pair.certificate).is_some() => {
            log::error!("{cause}; another one is ordered");
        }
        Err(_) => {}
    }
    self_signed::make()
}

impl Secured {
    /// What its files say beside the certificates, each with what is to be warned of.
    pub(crate) fn check(&self) -> Result<Vec<(String, Vec<String>)>, Failure> {
        let clients = self.clients.as_ref().map(watched::check);
        let tickets = self.tickets.as_ref().map(watched::check);
        let all: Result<_, _> = clients.into_iter().chain(tickets).collect();
        all.map_err(cannot)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn cannot(cause: String) -> Failure {
    Failure::Failed(format!("cannot use TLS: {cause}"))
}

fn warn(certificate: &Certificate) {
    if let Some(words) = certificate.warning(SystemTime::now()) {
        log::warn!("{words}");
    }
}

/// Looks at the files from time to time, until it is dropped.
pub(crate) struct Renewal {
    /// Of the housekeeper.
    _task: Option<Task>,
}

impl Renewal {
    /// Begins, with this time between two looks; without one, it only warns.
    pub(crate) fn begin(certificates: &Certificates, period: Option<Duration>) -> Renewal {
        if certificates.is_empty() {
            return Renewal { _task: None };
        }
        let certificates = certificates.clone();
        let (is_busy, mut reminded) = (Arc::new(AtomicBool::new(false)), Instant::now());
        let mut is_first = true;
        let task = Task::begin("certificates", move |_| {
            let is_reminder = reminded.elapsed() >= REMINDER;
            if is_reminder {
                reminded = Instant::now();
            }
            // The first time is the start, where they were just loaded.
            if !std::mem::take(&mut is_first)
                && let Err(cause) = look(&certificates, &is_busy, period.is_some(), is_reminder)
            {
                log::error!("certificates: cannot start a thread: {cause}");
            }
            Next::After(period.unwrap_or(REMINDER).min(REMINDER))
        });
        if let Err(cause) = &task {
            log::error!("certificates are read again on SIGHUP only: {cause}");
        }
        Renewal { _task: task.ok() }
    }
}

/// Looks once, unless the look before still does.
fn look(
    certificates: &Certificates,
    is_busy: &Arc<AtomicBool>,
    reads: bool,
    warns: bool,
) -> io::Result<()> {
    // ORDER: AcqRel, and Release below: one look after the other.
    if is_busy.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    let (certificates, busy) = (certificates.clone(), Arc::clone(is_busy));
    let thread = thread::Builder::new().name("flatpath-tls".into());
    let started = thread.spawn(move || {
        let _reading = bounded_file::begin("the look at certificates".into());
        if reads {
            certificates.read(Reads::Changed);
        }
        if warns {
            certificates.warn();
        }
        // ORDER: Release: see above.
        busy.store(false, Ordering::Release);
    });
    if started.is_err() {
        // ORDER: Relaxed: nothing was begun.
        is_busy.store(false, Ordering::Relaxed);
    }
    started.map(drop)
}
