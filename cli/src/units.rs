//! Values of flags and of the configuration file: each is read from the same text in both places.

use std::fmt::Display;
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error};

/// Bytes. Written as a number, with `K`, `M` or `G` for 1024, 1024² or 1024³.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) usize);

/// Fewest and most workers. Written `MIN..MAX`, or as one number for both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Workers(pub(crate) RangeInclusive<u32>);

/// A span of time. Written in seconds, with decimals if need be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seconds {
    pub(crate) ns: u64,
}

/// Where to listen. Written `HOST:PORT`; port 0 picks a free one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address(pub(crate) SocketAddr);

/// A count that is at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count(pub(crate) usize);

/// A count that may be zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Amount(pub(crate) usize);

/// A network that NFS clients may come from. Written `ADDRESS` or `ADDRESS/BITS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowed(pub(crate) flatpath_nfs::Network);

/// What a size looks like.
const SIZE: &str = "write bytes, or a whole number with K, M or G, such as 256M";

/// What a number of workers looks like.
const WORKERS: &str = "write MIN..MAX or one number for both, such as 2..128; MIN must be at \
                       least 1, and MAX at least MIN";

/// The longest time-out: a year.
const SECONDS_MAX: f64 = 365.0 * 24.0 * 3600.0;

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let factor: usize = match unit.to_ascii_uppercase().as_str() {
            "" | "B" => 1,
            "K" | "KB" | "KIB" => 1 << 10,
            "M" | "MB" | "MIB" => 1 << 20,
            "G" | "GB" | "GIB" => 1 << 30,
            _ => return Err(SIZE.into()),
        };
        let too_large = || format!("no machine has that much; {SIZE}");
        if digits == 0 {
            return Err(SIZE.into());
        }
        let number: usize = number.parse().map_err(|_| too_large())?;
        number.checked_mul(factor).map(Self).ok_or_else(too_large)
    }
}

/// As the user would write it: with the largest unit that needs no fraction.
impl Display for Size {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let units = [(1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K"), (1, "")];
        let is_whole = |(factor, _): &&(usize, &str)| self.0 > 0 && self.0.is_multiple_of(*factor);
        let (factor, unit) = units.iter().find(is_whole).unwrap_or(&(1, ""));
        write!(formatter, "{}{unit}", self.0 / factor)
    }
}

impl FromStr for Workers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (min, max) = text.split_once("..").unwrap_or((text, text));
        let number = |text: &str| text.parse::<u32>().map_err(|_| WORKERS);
        let (min, max) = (number(min)?, number(max)?);
        if min == 0 || min > max {
            return Err(WORKERS.into());
        }
        Ok(Self(min..=max))
    }
}

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let seconds: f64 = text
            .parse()
            .map_err(|_| "write seconds without a unit, such as 30 or 0.5")?;
        if !(0.001..=SECONDS_MAX).contains(&seconds) {
            return Err("write between 0.001 and 31536000 seconds (a year)".into());
        }
        Ok(Self {
            ns: (seconds * 1e9) as u64,
        })
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse() {
            return Ok(Self(address));
        }
        let explained = |cause: &dyn Display| {
            format!("{cause}; write HOST:PORT, such as 127.0.0.1:8080 or [::1]:0")
        };
        let mut found = text.to_socket_addrs().map_err(|cause| explained(&cause))?;
        found
            .next()
            .map(Self)
            .ok_or_else(|| explained(&"the host has no address"))
    }
}

impl FromStr for Allowed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse()
            .map(Self)
            .map_err(|_| "write ADDRESS or ADDRESS/BITS, such as 10.0.0.0/8 or fd00::/8".into())
    }
}

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(0) | Err(_) => Err("write a whole number of at least 1".into()),
            Ok(count) => Ok(Self(count)),
        }
    }
}

impl FromStr for Amount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let amount = text.parse().map(Self);
        amount.map_err(|_| "write a whole number, or 0 for no limit".into())
    }
}

/// A value of a TOML file, which may be a number where no unit is needed.
#[derive(serde::Deserialize)]
#[serde(
    untagged,
    expecting = "one value was expected: a number, or a text such as \"256M\""
)]
enum Text {
    Integer(i64),
    Decimal(f64),
    String(String),
}

/// Reads a value as the command line would.
pub(crate) fn from_text<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err = String>,
{
    let text = match Text::deserialize(deserializer)? {
        Text::Integer(number) => number.to_string(),
        Text::Decimal(number) => number.to_string(),
        Text::String(text) => text,
    };
    text.parse()
        .map(Some)
        .map_err(|cause| D::Error::custom(format!("{text:?}: {cause}")))
}

/// Reads one value or a list of them.
pub(crate) fn several<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err = String>,
{
    #[derive(serde::Deserialize)]
    #[serde(
        untagged,
        expecting = "a text was expected, or a list of them: [\"127.0.0.1:80\", \"[::1]:80\"]"
    )]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    let texts = match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(text) => vec![text],
        OneOrMany::Many(texts) => texts,
    };
    let value = |text: &String| {
        text.parse()
            .map_err(|cause| D::Error::custom(format!("{text:?}: {cause}")))
    };
    texts.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4_096),
            ("4096B", 4_096),
            ("64K", 64 << 10),
            ("256M", 256 << 20),
            ("256MiB", 256 << 20),
            ("2g", 2 << 30),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in [
            "",
            "M",
            "-1",
            "1.5G",
            "1T",
            "256 M",
            "18446744073709551615K",
        ] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_size_is_shown_as_it_is_written() {
        for text in ["0", "1", "4097", "3K", "1025K", "256M", "2G", "1025M"] {
            let size: Size = text.parse().expect("a size");
            assert_eq!(size.to_string(), text);
        }
    }

    #[test]
    fn workers_are_a_range_that_is_not_empty() {
        assert_eq!("2..128".parse(), Ok(Workers(2..=128)));
        assert_eq!("8".parse(), Ok(Workers(8..=8)));
        for text in [
            "", "0..4", "4..2", "2..", "..4", "2..4..8", "a..b", "0", "-1..2",
        ] {
            assert!(text.parse::<Workers>().is_err(), "{text}");
        }
    }

    #[test]
    fn seconds_may_have_decimals_and_are_never_zero() {
        assert_eq!("30".parse(), Ok(Seconds { ns: 30_000_000_000 }));
        assert_eq!("0.5".parse(), Ok(Seconds { ns: 500_000_000 }));
        for text in ["", "0", "-1", "nan", "inf", "1e30", "30s"] {
            assert!(text.parse::<Seconds>().is_err(), "{text}");
        }
    }

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for text in ["127.0.0.1:8080", "[::1]:0", "0.0.0.0:80"] {
            let address: Address = text.parse().expect("an address");
            assert_eq!(address.0.to_string(), text);
        }
        for text in ["", "8080", ":8080x", "127.0.0.1", "::1", "host:99999"] {
            let error = text.parse::<Address>().expect_err(text);
            assert!(error.contains("HOST:PORT"), "{error}");
        }
    }

    #[test]
    fn counts_start_at_one() {
        assert_eq!("1".parse(), Ok(Count(1)));
        for text in ["0", "-1", "", "many"] {
            assert!(text.parse::<Count>().is_err(), "{text}");
        }
    }
}
