//! One request on its way through the rules of a site, and what it comes to.

use flatpath_http::{Mount, Request, Response};
use http::header::{self, HeaderMap};
use http::{HeaderValue, StatusCode};

use crate::freshness::Observation;
use crate::listing;
use crate::responses::{status_text, with};
use crate::root::Opened;
use crate::rules::{Changes, Extent, Held, InForce, led_to};
use crate::target::{Hidden, PathForm, Target};
use crate::writing::{public_address, raw_target};

/// One request on its way through the rules.
pub(crate) struct Visit<'r> {
    pub(crate) request: &'r Request,
    pub(crate) rules: InForce<'r>,
    /// Whether there are any.
    pub(crate) has_rules: bool,
    /// The path that was asked for, as rules see it; empty without rules.
    pub(crate) address: Vec<u8>,
    /// What of the changes of headers the answer gets.
    pub(crate) extent: Extent,
    /// What the choice of the file depended on.
    pub(crate) observations: Vec<Observation>,
    /// Whether checks would notice every change.
    pub(crate) is_checkable: bool,
    /// Whether nothing is there as long as the observations hold.
    pub(crate) is_absent: bool,
    /// Whether the answer depends on whether the client wants a page.
    pub(crate) is_page_or_none: bool,
}

/// What a path leads to.
pub(crate) enum Found {
    File(Vec<u8>, Opened),
    /// To be listed.
    Directory(Vec<u8>, Opened),
    /// The other address of the same page.
    Elsewhere(Vec<u8>, PathForm),
}

impl<'r> Visit<'r> {
    pub(crate) fn of(request: &'r Request, held: Held<'r>) -> Self {
        let Held {
            rules,
            observations,
            is_checkable,
        } = held;
        Self {
            request,
            has_rules: !rules.set.is_empty(),
            rules,
            address: Vec::new(),
            extent: Extent::All,
            observations,
            is_checkable,
            is_absent: false,
            is_page_or_none: false,
        }
    }

    /// The same for another request, whose answer is a body for this one.
    pub(crate) fn aside<'a>(&self, request: &'a Request) -> Visit<'a>
    where
        'r: 'a,
    {
        Visit {
            request,
            rules: self.rules.clone(),
            has_rules: self.has_rules,
            address: self.address.clone(),
            extent: Extent::NotKept,
            observations: Vec::new(),
            is_checkable: false,
            is_absent: false,
            is_page_or_none: false,
        }
    }

    /// The changes of headers of whatever answers the request, wherever that is made.
    pub(crate) fn changes(&self, hidden: Hidden) -> Changes {
        if !self.has_rules {
            return Changes::default();
        }
        let target = Target::parse(raw_target(self.request).as_bytes(), hidden);
        let address = target.map_or_else(|_| sent(self.request), |it| it.address());
        self.rules.changes(&address)
    }

    /// Changes headers as the rules say.
    pub(crate) fn change(&self, headers: &mut HeaderMap) {
        if self.has_rules && !self.address.is_empty() {
            self.rules.change(&self.address, self.extent, headers);
        }
    }

    /// The same of a response that this crate makes.
    pub(crate) fn change_own(&self, headers: &mut HeaderMap) {
        if self.has_rules && !self.address.is_empty() {
            self.rules.change_own(&self.address, self.extent, headers);
        }
    }

    /// What a rule has served where nothing is found, if one does.
    pub(crate) fn fallback(&self) -> Option<String> {
        let rules = self.has_rules.then_some(&self.rules)?;
        let hit = rules.falling_back(&self.address)?;
        led_to(&self.address, &hit)
    }

    /// The response of a rule that redirects the path that was asked for.
    pub(crate) fn redirect(&self) -> Option<Response> {
        let prefix = Mount::of(self.request).map_or("", Mount::prefix);
        let query = self.request.uri().query();
        let (status, location) = self.rules.redirect(&self.address, query, prefix)?;
        Some(located(status, location))
    }
}

/// The path of a target that names nothing, as it was sent; empty where it has none.
pub(crate) fn sent(request: &Request) -> Vec<u8> {
    let path = request.uri().path();
    match path.starts_with('/') {
        true => path.into(),
        false => Vec::new(),
    }
}

/// 301 to another address of the same page.
pub(crate) fn elsewhere(request: &Request, path: &[u8], form: PathForm) -> Response {
    let address = match form {
        PathForm::Directory => listing::directory_address(path),
        PathForm::Plain => listing::file_address(path),
    };
    moved(request, &address)
}

/// 301 to an address of this service, with the query of the request.
pub(crate) fn moved(request: &Request, address: &str) -> Response {
    let mut address = public_address(request, address);
    if let Some(query) = request.uri().query() {
        address.push('?');
        address.push_str(query);
    }
    located(StatusCode::MOVED_PERMANENTLY, address)
}

fn located(status: StatusCode, location: String) -> Response {
    let response = status_text(status);
    match HeaderValue::try_from(location) {
        Ok(location) => with(response, header::LOCATION, location),
        Err(_) => response,
    }
}
