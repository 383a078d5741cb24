//! Who is signed in: a signed cookie with a name, and when the session ends.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use flatpath_http::cookies::{Cookie, SignedJar, time};
use flatpath_http::http::StatusCode;
use flatpath_http::{FromRequestParts, Json, Request, State};
use serde::Deserialize;

use crate::error::Error;
use crate::{App, is_correct};

const COOKIE: &str = "session";
const DURATION: time::Duration = time::Duration::days(7);

#[derive(Deserialize)]
pub(crate) struct Credentials {
    name: String,
    password: String,
}

/// The name of the user who is signed in.
pub(crate) struct User(pub(crate) String);

impl FromRequestParts<Arc<App>> for User {
    type Rejection = Error;

    fn from_request_parts(request: &mut Request, app: &Arc<App>) -> Result<Self, Error> {
        let session = SignedJar::of(request, &app.keys).value(COOKIE);
        let session = session.ok_or(Error::SignedOut)?;
        let (ends, name) = session.split_once('.').ok_or(Error::SignedOut)?;
        match ends.parse::<i64>() {
            Ok(ends) if ends > now() => Ok(Self(name.to_owned())),
            _ => Err(Error::SignedOut),
        }
    }
}

pub(crate) fn sign_in(
    State(app): State<Arc<App>>,
    jar: SignedJar,
    Json(Credentials { name, password }): Json<Credentials>,
) -> Result<(SignedJar, StatusCode), Error> {
    if !is_correct(&password, app.database.user(&name)?.as_ref()) {
        return Err(Error::WrongPassword);
    }
    let session = format!("{}.{name}", now() + DURATION.whole_seconds());
    let cookie = Cookie::build((COOKIE, session)).max_age(DURATION);
    Ok((jar.add(cookie), StatusCode::NO_CONTENT))
}

pub(crate) fn sign_out(jar: SignedJar) -> (SignedJar, StatusCode) {
    (jar.remove(COOKIE), StatusCode::NO_CONTENT)
}

fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs() as i64
}
