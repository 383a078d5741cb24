//! What this build has of what `Cargo.toml` lets a build leave out, and how to get the rest.
//!
//! An entry of the settings names the feature that it needs (`built_with`), and a value of a list
//! its own. The parser then refuses it wherever it stands, so nothing after it meets a setting that
//! this build cannot carry out.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command, Error};

use crate::settings::{Archive, Compress};

/// A feature of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Feature {
    name: &'static str,
    is_built: bool,
}

macro_rules! features {
    ($($constant:ident = $name:literal;)+) => {
        $(pub(crate) const $constant: Feature = Feature {
            name: $name,
            is_built: cfg!(feature = $name),
        };)+
    };
}

features! {
    ACME = "acme";
    ARCHIVES = "archives";
    BROTLI = "brotli";
    GZIP = "gzip";
    PASSWORDS = "passwords";
    TLS = "tls";
    ZSTD = "zstd";
}

impl Feature {
    /// Nothing where this build has it.
    ///
    /// # Errors
    /// How to get it.
    pub(crate) fn require(self) -> Result<(), String> {
        let Self { name, is_built } = self;
        match is_built {
            true => Ok(()),
            false => Err(format!(
                "this build is without `{name}`: build flatpath-cli with `--features {name}`, or \
                 with `--features full`, as packages are"
            )),
        }
    }
}

/// The coding, if this build has it.
pub(crate) fn coding(coding: Compress) -> Result<Compress, String> {
    match coding {
        Compress::Zstd => ZSTD.require()?,
        Compress::Br => BROTLI.require()?,
        Compress::Gzip => GZIP.require()?,
        Compress::Off => {}
    }
    Ok(coding)
}

/// The format, if this build has archives.
pub(crate) fn archive(format: Archive) -> Result<Archive, String> {
    ARCHIVES.require().map(|()| format)
}

/// Reads a value as another parser does, in a build that has a feature.
#[derive(Clone, Debug)]
pub(crate) struct BuiltWith<P> {
    pub(crate) feature: Feature,
    pub(crate) parser: P,
}

impl<P: TypedValueParser> TypedValueParser for BuiltWith<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Self::Value, Error> {
        if let Err(why) = self.feature.require() {
            let argument = argument.map(ToString::to_string).unwrap_or_default();
            let why = format!("'{argument}': {why}");
            return Err(Error::raw(ErrorKind::ValueValidation, why).with_cmd(command));
        }
        self.parser.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        self.parser.possible_values()
    }
}

#[cfg(test)]
mod tests {
    use clap::builder::PathBufValueParser;

    use super::*;

    fn parsed(is_built: bool) -> Result<(), String> {
        let parser = BuiltWith {
            feature: Feature {
                name: "tls",
                is_built,
            },
            parser: PathBufValueParser::new(),
        };
        let argument = Arg::new("tls_cert").long("tls-cert").value_name("FILE");
        // Complete, so that the argument can be shown.
        let mut command = Command::new("flatpath").arg(argument);
        command.build();
        let argument = command.get_arguments().next();
        let value = parser.parse_ref(&command, argument, OsStr::new("pem"));
        value.map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn a_setting_of_a_feature_that_is_missing_says_how_to_get_it() {
        assert_eq!(parsed(true), Ok(()));
        let why = parsed(false).expect_err("it is not built");
        for part in ["--tls-cert", "without `tls`", "--features tls", "full"] {
            assert!(why.contains(part), "{part}: {why}");
        }
    }

    #[test]
    fn tests_have_every_feature() {
        for feature in [ACME, ARCHIVES, BROTLI, GZIP, PASSWORDS, TLS, ZSTD] {
            assert_eq!(feature.require(), Ok(()), "{feature:?}");
        }
    }
}
