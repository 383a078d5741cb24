//! Cookies that clients cannot change, or not read either: jars with keys.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use cookie::Key;
use http::HeaderMap;

use super::{Cookie, CookieJar, with_defaults};
use crate::extract::peer::Tls;
use crate::extract::{Asks, FromRequestParts};
use crate::message::{Request, Response};
use crate::respond::into_response::{IntoHeaders, IntoResponse, InvalidHeader};

/// The shortest secret that keys are derived from: as long as the keys (RFC 5869 section 3.3).
const SECRET_BYTES_MIN: usize = 32;

/// What a signature takes in front of a value: 32 bytes in base64.
const SIGNATURE_BYTES: usize = 44;

/// The keys of signed and private cookies: one that signs and encrypts, and older ones whose
/// cookies are still accepted. A clone shares them.
///
/// To change keys without losing sessions, give every server the new secret as an accepted one,
/// then make it the first and accept the old one, and leave that out once its cookies have expired.
///
/// ```
/// use flatpath_http::cookies::Keys;
///
/// # fn main() -> Result<(), flatpath_http::cookies::ShortSecret> {
/// # let (new, old) = ([1; 32], [2; 32]);
/// // Secrets of at least 32 random bytes each, from files, say.
/// let keys = Keys::new(&new)?.accept(&old)?;
/// # let _ = keys;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Keys(Arc<[Key]>);

impl Keys {
    /// Keys that are derived from this secret.
    ///
    /// # Errors
    /// It has fewer than 32 bytes.
    pub fn new(secret: &[u8]) -> Result<Self, ShortSecret> {
        Ok(Self([derived(secret)?].into()))
    }

    /// Accepts cookies of another secret as well.
    ///
    /// # Errors
    /// It has fewer than 32 bytes.
    pub fn accept(self, secret: &[u8]) -> Result<Self, ShortSecret> {
        let older = derived(secret)?;
        Ok(Self(self.0.iter().cloned().chain([older]).collect()))
    }

    /// Random keys: their cookies end with the process.
    #[must_use]
    pub fn random() -> Self {
        Self([Key::generate()].into())
    }

    /// The key that signs and encrypts.
    fn first(&self) -> &Key {
        &self.0[0]
    }
}

fn derived(secret: &[u8]) -> Result<Key, ShortSecret> {
    match secret.len() {
        SECRET_BYTES_MIN.. => Ok(Key::derive_from(secret)),
        _ => Err(ShortSecret(())),
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Keys({})", self.0.len())
    }
}

/// A secret that is too short for keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortSecret(());

flatpath::impl_error! {
    ShortSecret {
        Self(..) => "a secret for cookies has at least {SECRET_BYTES_MIN} bytes",
    }
}

/// State that has the keys of cookies: `Keys` itself, what implements it, and an `Arc` of that.
///
/// ```
/// use flatpath_http::cookies::{HasKeys, Keys};
///
/// struct App {
///     keys: Keys,
/// }
///
/// impl HasKeys for App {
///     fn keys(&self) -> &Keys {
///         &self.keys
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "the state `{Self}` has no keys for cookies",
    note = "implement `flatpath_http::cookies::HasKeys` for it, and give it to `with_state`"
)]
pub trait HasKeys {
    /// The keys.
    fn keys(&self) -> &Keys;
}

impl HasKeys for Keys {
    fn keys(&self) -> &Keys {
        self
    }
}

impl<T: HasKeys + ?Sized> HasKeys for Arc<T> {
    fn keys(&self) -> &Keys {
        (**self).keys()
    }
}

impl<T: HasKeys + ?Sized> HasKeys for &T {
    fn keys(&self) -> &Keys {
        (**self).keys()
    }
}

/// A jar whose cookies are made with keys: its documentation, and what makes and checks a cookie.
macro_rules! jars {
    ($($(#[$doc:meta])+ $jar:ident, $seal:ident, $open:ident;)+) => {$(
        $(#[$doc])+
        #[derive(Clone, Debug)]
        pub struct $jar {
            jar: CookieJar,
            keys: Keys,
        }

        impl $jar {
            /// The cookies of this request, for a layer.
            #[must_use]
            pub fn of(request: &Request, keys: &Keys) -> Self {
                let (jar, keys) = (CookieJar::of(request), keys.clone());
                Self { jar, keys }
            }

            /// The cookie of this name, if one of the keys has made it: of the request, or one that
            /// was added since.
            #[must_use]
            pub fn get(&self, name: &str) -> Option<Cookie<'static>> {
                let cookie = self.jar.get(name)?;
                self.keys.0.iter().find_map(|key| $open(cookie, key))
            }

            /// Its value.
            #[must_use]
            pub fn value(&self, name: &str) -> Option<String> {
                Some(self.get(name)?.value().to_owned())
            }

            /// As [`CookieJar::add`].
            #[expect(
                clippy::should_implement_trait,
                reason = "a jar is no sum of it and a cookie"
            )]
            #[must_use = "the jar has to be returned with the response"]
            pub fn add(mut self, cookie: impl Into<Cookie<'static>>) -> Self {
                let cookie = with_defaults(cookie.into(), self.jar.is_secure);
                self.jar = self.jar.add($seal(cookie, self.keys.first()));
                self
            }

            /// As [`CookieJar::remove`].
            #[must_use = "the jar has to be returned with the response"]
            pub fn remove(mut self, cookie: impl Into<Cookie<'static>>) -> Self {
                self.jar = self.jar.remove(cookie);
                self
            }

            /// As [`CookieJar::secure`].
            #[must_use = "the jar has to be returned with the response"]
            pub fn secure(mut self) -> Self {
                self.jar = self.jar.secure();
                self
            }
        }

        impl<S: HasKeys> FromRequestParts<S> for $jar {
            type Rejection = Infallible;

            const ASKS: Asks = <Tls as FromRequestParts<S>>::ASKS;

            fn from_request_parts(request: &mut Request, state: &S) -> Result<Self, Infallible> {
                Ok(Self::of(request, state.keys()))
            }
        }

        impl IntoHeaders for $jar {
            fn set(self, headers: &mut HeaderMap) -> Result<(), InvalidHeader> {
                self.jar.set(headers)
            }
        }

        impl IntoResponse for $jar {
            fn into_response(self) -> Response {
                (self, ()).into_response()
            }
        }
    )+};
}

jars! {
    /// Cookies that their client can read and cannot change (HMAC-SHA256, of the crate `cookie`).
    /// What was changed, or was made for another name or by another key, is not there. With the
    /// feature `secure-cookies`.
    ///
    /// The name is signed with the value, which the crate's own jar does not do: so its cookies and
    /// these are not exchanged.
    ///
    /// ```
    /// use flatpath_http::Router;
    /// use flatpath_http::cookies::{Keys, SignedJar};
    /// use flatpath_http::http::StatusCode;
    ///
    /// fn log_in(jar: SignedJar) -> SignedJar {
    ///     jar.add(("user", "7"))
    /// }
    ///
    /// fn greet(jar: SignedJar) -> Result<String, StatusCode> {
    ///     let user = jar.value("user").ok_or(StatusCode::UNAUTHORIZED)?;
    ///     Ok(format!("hello, {user}\n"))
    /// }
    ///
    /// let router: Router =
    ///     Router::new().post("/log-in", log_in).get("/", greet).with_state(Keys::random());
    /// ```
    SignedJar, sign, verify;

    /// Cookies that their client can neither read nor change (AES-256-GCM, of the crate `cookie`;
    /// their length can be seen). What was changed, or was made for another name or by another key,
    /// is not there. With the feature `secure-cookies`.
    ///
    /// ```
    /// use flatpath_http::Router;
    /// use flatpath_http::cookies::{Keys, PrivateJar};
    ///
    /// fn remember(jar: PrivateJar) -> PrivateJar {
    ///     jar.add(("cart", "tea,cocoa"))
    /// }
    ///
    /// let router: Router = Router::new().post("/", remember).with_state(Keys::random());
    /// ```
    PrivateJar, encrypt, decrypt;
}

/// The cookie with a signature of `name=value` in front of its value.
fn sign(mut cookie: Cookie<'static>, key: &Key) -> Cookie<'static> {
    let (name, value) = (cookie.name().to_owned(), cookie.value().to_owned());
    let mut jar = cookie::CookieJar::new();
    jar.signed_mut(key)
        .add((name.clone(), format!("{name}={value}")));
    let signed = jar.get(&name).map_or("", Cookie::value);
    let signature = signed.get(..SIGNATURE_BYTES).unwrap_or_default();
    cookie.set_value(format!("{signature}{value}"));
    cookie
}

fn verify(cookie: &Cookie<'static>, key: &Key) -> Option<Cookie<'static>> {
    let (signature, value) = cookie.value().split_at_checked(SIGNATURE_BYTES)?;
    let mut cookie = cookie.clone();
    let mut signed = cookie.clone();
    signed.set_value(format!("{signature}{}={value}", cookie.name()));
    cookie::CookieJar::new().signed(key).verify(signed)?;
    let value = value.to_owned();
    cookie.set_value(value);
    Some(cookie)
}

fn encrypt(mut cookie: Cookie<'static>, key: &Key) -> Cookie<'static> {
    let (name, value) = (cookie.name().to_owned(), cookie.value().to_owned());
    let mut jar = cookie::CookieJar::new();
    jar.private_mut(key).add((name.clone(), value));
    let encrypted = jar.get(&name).map_or("", Cookie::value).to_owned();
    cookie.set_value(encrypted);
    cookie
}

fn decrypt(cookie: &Cookie<'static>, key: &Key) -> Option<Cookie<'static>> {
    cookie::CookieJar::new()
        .private(key)
        .decrypt(cookie.clone())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{request, told};
    use super::*;

    fn keys(byte: u8) -> Keys {
        Keys::new(&[byte; SECRET_BYTES_MIN]).expect("long enough")
    }

    /// What a client sends back of a cookie that it was given.
    fn sent_back(answer: impl IntoResponse) -> String {
        let lines = told(answer);
        let line = lines.first().expect("one line");
        assert!(line.ends_with("; HttpOnly; SameSite=Lax; Path=/"), "{line}");
        line.split(';').next().expect("a value").to_owned()
    }

    /// Tests of both jars.
    macro_rules! tests_of_jars {
        ($($module:ident: $jar:ident, $shows_value:literal;)+) => {$(
            mod $module {
                use super::*;

                fn jar(lines: &[&str], keys: &Keys) -> $jar {
                    $jar::of(&request(lines), keys)
                }

                #[test]
                fn a_cookie_comes_back_as_it_was_made() {
                    for value in ["", "7", "é; \"=\"\r\n%3B", &"x".repeat(1000)] {
                        let made = jar(&[], &keys(1)).add(("user", value.to_owned()));
                        assert_eq!(made.value("user").as_deref(), Some(value));
                        let sent = sent_back(made);
                        assert_eq!(jar(&[&sent], &keys(1)).value("user").as_deref(), Some(value));
                    }
                    let sent = sent_back(jar(&[], &keys(1)).add(("user", "somebody")));
                    assert_eq!(sent.contains("somebody"), $shows_value, "{sent}");
                }

                #[test]
                fn what_was_tampered_with_is_not_there() {
                    let sent = sent_back(jar(&[], &keys(1)).add(("user", "bob")));
                    let (_, value) = sent.split_once('=').expect("a value");
                    for at in 0..value.len() {
                        let mut bytes = value.as_bytes().to_vec();
                        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
                        let other = String::from_utf8(bytes).expect("ASCII");
                        let shorter = [&value[..at], &value[at + 1..]].concat();
                        for tampered in [&*other, &*shorter, &value[..at]] {
                            let found = jar(&[&format!("user={tampered}")], &keys(1)).get("user");
                            assert_eq!(found, None, "{tampered} instead of {value}");
                        }
                    }
                    for tampered in [format!("{value}A"), "bob".into(), "é".repeat(40)] {
                        let found = jar(&[&format!("user={tampered}")], &keys(1)).get("user");
                        assert_eq!(found, None, "{tampered}");
                    }
                    let for_another = format!("admin={value}");
                    assert_eq!(jar(&[&for_another], &keys(1)).get("admin"), None);
                    assert_eq!(jar(&[&sent], &keys(2)).get("user"), None);
                }

                #[test]
                fn old_keys_are_accepted_and_new_ones_sign() {
                    let old = sent_back(jar(&[], &keys(1)).add(("user", "bob")));
                    let rotated = keys(2).accept(&[1; SECRET_BYTES_MIN]).expect("long enough");
                    let found = jar(&[&old], &rotated);
                    assert_eq!(found.value("user").as_deref(), Some("bob"));
                    let new = sent_back(found.add(("user", "bob")));
                    assert!(jar(&[&new], &keys(2)).get("user").is_some());
                    assert!(jar(&[&new], &keys(1)).get("user").is_none());
                }

                #[test]
                fn a_cookie_is_forgotten() {
                    let sent = sent_back(jar(&[], &keys(1)).add(("user", "bob")));
                    let jar = jar(&[&sent], &keys(1)).secure().remove("user");
                    assert_eq!(jar.get("user"), None);
                    let line = "user=; HttpOnly; SameSite=Lax; Secure; Path=/; Max-Age=0; ";
                    assert!(told(jar)[0].starts_with(line));
                }
            }
        )+};
    }

    tests_of_jars! {
        signed: SignedJar, true;
        private: PrivateJar, false;
    }

    #[test]
    fn secrets_are_long_and_not_shown() {
        assert!(Keys::new(&[7; SECRET_BYTES_MIN - 1]).is_err());
        assert!(keys(1).accept(&[7; SECRET_BYTES_MIN - 1]).is_err());
        let text = format!("{:?}", SignedJar::of(&request(&[]), &keys(7)));
        assert!(text.contains("Keys(1)"), "{text}");
    }

    #[test]
    fn jars_take_their_keys_from_what_has_them() {
        fn has_keys(state: &impl HasKeys) -> &Keys {
            state.keys()
        }
        assert_eq!(has_keys(&keys(1)).0.len(), 1);
        assert_eq!(has_keys(&Arc::new(keys(1))).0.len(), 1);
        assert_eq!(has_keys(&&keys(1)).0.len(), 1);
    }
}
