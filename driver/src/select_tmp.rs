//! Temporary selection until the probe lands.
#![allow(missing_docs)]
use crate::{DriverConfig, Refusal};
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice { Auto, Uring, Epoll }
pub struct Selection(bool, String);
impl Selection { pub fn name(&self) -> &'static str { if self.0 { "uring" } else { "epoll" } } pub fn reason(&self) -> &str { &self.1 } pub fn is_uring(&self) -> bool { self.0 } }
pub fn select(choice: Choice, config: &DriverConfig) -> Result<Selection, Refusal> {
    if choice == Choice::Epoll { return Ok(Selection(false, "asked for".into())); }
    match crate::uring::Uring::new(config) { Ok(_) => Ok(Selection(true, "works".into())), Err(r) if choice == Choice::Auto => Ok(Selection(false, r.to_string())), Err(r) => Err(r) }
}
