//! Rules of a site: from a path to an answer.
//!
//! A rule is a function of the path alone, so the caches of network threads remember what it led
//! to: a small file that is answered from there evaluates no rule. The steps of a GET or HEAD:
//!
//! 1. Redirects: those that were set, then those of `_redirects`. The first that is for the path
//!    is the answer.
//! 2. Rewrites, then lines of `_redirects` with `200!`: the first gives the path for steps 3 and 4.
//! 3. Lists of files: the first file that exists is the answer; if none does, nothing is found.
//! 4. Without such a list the file of the path, with clean addresses and slashes; of a directory
//!    its index, or a listing.
//! 5. Where nothing was found: lines of `_redirects` with `200`, then fallbacks, with status 200;
//!    none for paths that are left out, and no page for a client that wants none (`fallback`).
//! 6. Of an error the page for its status.
//! 7. Headers: all rules for the path that was asked for, then those of `_headers`, in their order.
//!
//! In a list the rule that was added first wins. Requests with other methods get the redirects and
//! step 7; a PUT or an upload gets step 7 and no other. A target that names nothing (`/.git`,
//! `//a`, `/%`) gets the steps 6 and 7, the latter by the path as it was sent.
//!
//! Invariants
//! - What a rule makes of a path is parsed as the target of a client is: no dot segments, no hidden
//!   names, decoded once.
//! - A redirect to the address that was asked for does not apply, and no redirect of step 4 leads
//!   to a path that a rule redirects.
//! - Nothing of a client but percent-encoded text gets into `Location`, and nothing into other
//!   headers.
//! - The policy (`Content-Security-Policy`) of a page that this crate makes is its own.
//!
//! Cost: nothing for a file from the cache of a network thread. Else one lookup by hash for all
//! exact paths, one for each directory above, and up to `EXPRESSIONS_MAX` expressions of each kind.
//! On a network thread no expression sees a path longer than `CACHE_TARGET_BYTES_MAX`.

mod set;
mod changes;
mod error;
mod explain;
mod file_format;
mod in_force;
mod list;
mod pattern;
mod plain_text;
mod root_files;
mod template;
#[cfg(test)]
mod tests;

pub use changes::HeaderChange;
pub use error::RuleError;
pub use explain::{Explanation, Outcome, Step};
pub use pattern::Pattern;
pub use set::{CleanUrls, RootFiles, Rules, TrailingSlash};

pub(crate) use changes::{Changes, Extent};
pub(crate) use in_force::{InForce, led_to};
pub(crate) use root_files::{Held, RuleFiles};
