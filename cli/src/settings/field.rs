//! The field of a setting in [`Settings`]: an optional value, or a list.

use std::ffi::OsStr;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Error};
use flatpath::{Limits, ListenerLimits};

use super::{Alone, LINE, ListenerLimit, ServerLimit, Settings};

/// The kind of a field: an optional value, or a list.
pub(super) trait Holder<T>: Clone + PartialEq + 'static {
    const IS_LIST: bool;

    fn of(values: Vec<T>) -> Self;

    fn values(&self) -> &[T];

    /// Takes over another one, if that says something.
    fn replace_by(&mut self, other: &Self);
}

impl<T: Clone + PartialEq + 'static> Holder<T> for Option<T> {
    const IS_LIST: bool = false;

    fn of(mut values: Vec<T>) -> Self {
        values.pop()
    }

    fn values(&self) -> &[T] {
        self.as_slice()
    }

    fn replace_by(&mut self, other: &Self) {
        if other.is_some() {
            self.clone_from(other);
        }
    }
}

impl<T: Clone + PartialEq + 'static> Holder<T> for Vec<T> {
    const IS_LIST: bool = true;

    fn of(values: Vec<T>) -> Self {
        values
    }

    fn values(&self) -> &[T] {
        self
    }

    /// An empty list replaces another one, too.
    fn replace_by(&mut self, other: &Self) {
        self.clone_from(other);
    }
}

/// The field of a setting, whatever its type.
pub(super) trait Field: Send + Sync {
    fn parse(
        &self,
        settings: &mut Settings,
        argument: &Arg,
        values: &[String],
    ) -> Result<(), Error>;
    fn take(&self, id: &str, settings: &mut Settings, matches: &ArgMatches);
    /// Why its values cannot stand together.
    fn conflict(&self, settings: &Settings) -> Option<String>;
    fn copy(&self, from: &Settings, to: &mut Settings);
    fn assign(&self, from: &Settings, to: &mut Settings);
    fn is_same(&self, one: &Settings, other: &Settings) -> bool;
    fn limit(&self, settings: &Settings, limits: &mut Limits);
    fn limit_listener(&self, settings: &Settings, limits: &mut ListenerLimits);
}

pub(super) struct FieldOf<P: TypedValueParser, H> {
    pub(super) parser: P,
    pub(super) read: fn(&Settings) -> &H,
    pub(super) write: fn(&mut Settings) -> &mut H,
    pub(super) server_limit: Option<ServerLimit<P::Value>>,
    pub(super) listener_limit: Option<ListenerLimit<P::Value>>,
    pub(super) alone: Option<Alone<P::Value>>,
}

impl<P, H> Field for FieldOf<P, H>
where
    P: TypedValueParser<Value: 'static>,
    H: Holder<P::Value>,
{
    fn parse(
        &self,
        settings: &mut Settings,
        argument: &Arg,
        values: &[String],
    ) -> Result<(), Error> {
        let values: Vec<&str> = match (H::IS_LIST, values) {
            (true, values) => values.iter().flat_map(|it| it.split(',')).collect(),
            (false, [] | [_]) => values.iter().map(|it| &**it).collect(),
            (false, _) => {
                let why = format!("the argument '{argument}' cannot be used multiple times");
                return Err(Error::raw(ErrorKind::ArgumentConflict, why));
            }
        };
        let read = values.into_iter().map(|value| {
            self.parser
                .parse_ref(&LINE, Some(argument), OsStr::new(value))
        });
        *(self.write)(settings) = H::of(read.collect::<Result<_, _>>()?);
        match self.conflict(settings) {
            Some(why) => Err(Error::raw(
                ErrorKind::ArgumentConflict,
                format!("'{argument}': {why}"),
            )),
            None => Ok(()),
        }
    }

    fn conflict(&self, settings: &Settings) -> Option<String> {
        let (word, is_it) = self.alone?;
        let values = (self.read)(settings).values();
        let is_conflict = values.iter().any(is_it) && !values.iter().all(is_it);
        is_conflict
            .then(|| format!("{word} excludes other values: name those, or {word} and no other"))
    }

    fn assign(&self, from: &Settings, to: &mut Settings) {
        (self.write)(to).clone_from((self.read)(from));
    }

    fn take(&self, id: &str, settings: &mut Settings, matches: &ArgMatches) {
        // A command line may lack what all commands have.
        if let Ok(Some(values)) = matches.try_get_many::<P::Value>(id) {
            *(self.write)(settings) = H::of(values.cloned().collect());
        }
    }

    fn copy(&self, from: &Settings, to: &mut Settings) {
        (self.write)(to).replace_by((self.read)(from));
    }

    fn is_same(&self, one: &Settings, other: &Settings) -> bool {
        (self.read)(one) == (self.read)(other)
    }

    fn limit(&self, settings: &Settings, limits: &mut Limits) {
        if let (Some(limit), [value]) = (self.server_limit, (self.read)(settings).values()) {
            *limit(limits) = value.clone();
        }
    }

    fn limit_listener(&self, settings: &Settings, limits: &mut ListenerLimits) {
        if let (Some(limit), [value]) = (self.listener_limit, (self.read)(settings).values()) {
            *limit(limits) = Some(value.clone());
        }
    }
}
