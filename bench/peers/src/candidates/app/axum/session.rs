//! Who is signed in: a signed cookie with a name, and when the session ends.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum_extra::extract::SignedCookieJar;
use axum_extra::extract::cookie::{Cookie, SameSite};
use cookie::time;
use flatpath_example_bookmarks::database::Database;
use flatpath_example_bookmarks::is_correct;
use serde::Deserialize;

use super::App;
use super::error::Error;

const COOKIE: &str = "session";
const DURATION: time::Duration = time::Duration::days(7);

#[derive(Deserialize)]
pub(super) struct Credentials {
    name: String,
    password: String,
}

/// The name of the user who is signed in.
pub(super) struct User(pub(super) String);

impl FromRequestParts<App> for User {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        let jar = SignedCookieJar::from_headers(&parts.headers, app.0.key.clone());
        let session = jar.get(COOKIE).ok_or(Error::SignedOut)?;
        let (ends, name) = session.value().split_once('.').ok_or(Error::SignedOut)?;
        match ends.parse::<i64>() {
            Ok(ends) if ends > now() => Ok(Self(name.to_owned())),
            _ => Err(Error::SignedOut),
        }
    }
}

pub(super) async fn sign_in(
    State(app): State<App>,
    jar: SignedCookieJar,
    Json(Credentials { name, password }): Json<Credentials>,
) -> Result<(SignedCookieJar, StatusCode), Error> {
    let session = format!("{}.{name}", now() + DURATION.whole_seconds());
    let is_correct = move |database: &Database| {
        let user = database.user(&name)?;
        Ok(is_correct(&password, user.as_ref()))
    };
    if !app.database(is_correct).await? {
        return Err(Error::WrongPassword);
    }
    let cookie = Cookie::build((COOKIE, session))
        .http_only(true)
        .same_site(SameSite::Lax)
        .path("/")
        .max_age(DURATION);
    Ok((jar.add(cookie), StatusCode::NO_CONTENT))
}

pub(super) async fn sign_out(jar: SignedCookieJar) -> (SignedCookieJar, StatusCode) {
    let cookie = Cookie::build(COOKIE).path("/");
    (jar.remove(cookie), StatusCode::NO_CONTENT)
}

fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs() as i64
}
