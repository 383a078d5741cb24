//! Parses the values of settings, and finds the words that misspelt ones are similar to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs, UdpSocket};
use std::ops::RangeInclusive;
use std::time::Duration;

use flatpath::NetworkThreads;
use flatpath::sockets::ListenAddress;
use flatpath_http::http::HeaderValue;

const SIZE: &str = "write bytes, or a number with K, M, G or T for powers of 1024, such as 256M";
const TIME: &str = "write seconds, or a time with units, such as 30, 0.5, 500ms or 1h 30m; at \
                    least 1ms and at most 365 days";
const WORKERS: &str = "write MIN..MAX or one number for both, such as 2..128; MIN must be at \
                       least 1, and MAX at least MIN";
const RATE: &str = "write a number and the time for it, such as 10/s, 600/m or 1000/1h";
const RATE_OF_BYTES: &str = "write bytes and the time for them, such as 1M/s, 100M/m or 10G/1day";
const ADDRESS: &str = "write HOST:PORT, such as 127.0.0.1:8080 or [::1]:0, a port alone for \
                       127.0.0.1, or :PORT for every IPv4 address";

const TIMES: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(365 * 24 * 3600);

/// Bytes: `4096`, `64K`, `256MiB`. Units are binary, whichever way they are written.
pub(crate) fn size<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let end = text.find(|it: char| it.is_ascii_alphabetic());
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let number = number.trim_end();
    let factor: u64 = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KB" | "KIB" => 1 << 10,
        "M" | "MB" | "MIB" => 1 << 20,
        "G" | "GB" | "GIB" => 1 << 30,
        "T" | "TB" | "TIB" => 1 << 40,
        _ => return Err(SIZE.into()),
    };
    let is_number = number.bytes().all(|it| it.is_ascii_digit() || it == b'.');
    let bytes = match number.split_once('.') {
        _ if !is_number => None,
        None => number
            .parse()
            .ok()
            .and_then(|it: u64| it.checked_mul(factor)),
        Some((whole, fraction)) => with_fraction(whole, fraction, factor),
    };
    let most = u64::MAX >> (64 - 8 * size_of::<T>());
    // The first size that does not fit is a round number.
    T::try_from(bytes.ok_or(SIZE)?)
        .map_err(|_| format!("it must be less than {}", size_text(most as usize + 1)))
}

/// `WHOLE.FRACTION` times the factor, rounded down.
fn with_fraction(whole: &str, fraction: &str, factor: u64) -> Option<u64> {
    let ten = 10_u128.checked_pow(fraction.len().try_into().ok()?)?;
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    u64::try_from(digits.checked_mul(factor.into())? / ten).ok()
}

/// Bytes as the user would write them: exact, with the largest unit that needs no fraction.
pub(crate) fn size_text(bytes: usize) -> String {
    let units = [
        (1 << 40, "T"),
        (1 << 30, "G"),
        (1 << 20, "M"),
        (1 << 10, "K"),
    ];
    let whole = units
        .iter()
        .find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit));
    let (factor, unit) = whole.unwrap_or(&(1, ""));
    format!("{}{unit}", bytes / factor)
}

/// A time: seconds, or with units.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let time = match text.parse() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => humantime::parse_duration(text).ok(),
    };
    time.filter(|time| TIMES.contains(time))
        .ok_or_else(|| TIME.into())
}

/// So much in a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) amount: u64,
    pub(crate) time: Duration,
}

/// Requests in a time: `10/s`, `10r/s` as nginx has it, `1000/1h`.
pub(crate) fn rate(text: &str) -> Result<Rate, String> {
    let requests = |text: &str| {
        let text = text.strip_suffix('r').unwrap_or(text);
        count::<u32>(text).map(u64::from)
    };
    amount_and_time(text, requests).ok_or_else(|| RATE.into())
}

/// Bytes in a time: `100M/m`.
pub(crate) fn rate_of_bytes(text: &str) -> Result<Rate, String> {
    amount_and_time(text, size::<u64>).ok_or_else(|| RATE_OF_BYTES.into())
}

fn amount_and_time(text: &str, amount: impl Fn(&str) -> Result<u64, String>) -> Option<Rate> {
    let (units, each) = text.split_once('/')?;
    let amount = amount(units.trim_end()).ok().filter(|it| *it > 0)?;
    let each = each.trim_start();
    // A unit alone is one of it.
    let time = match each.starts_with(|it: char| it.is_ascii_alphabetic()) {
        true => time(&format!("1{each}")),
        false => time(each),
    };
    let time = time.ok()?;
    Some(Rate { amount, time })
}

/// A time that may also be 0.
pub(crate) fn delay(text: &str) -> Result<Duration, String> {
    match text {
        "0" => Ok(Duration::ZERO),
        text => time(text),
    }
}

/// How many network threads: `auto` or a number.
pub(crate) fn network_threads(text: &str) -> Result<NetworkThreads, String> {
    match text {
        "auto" => Ok(NetworkThreads::Auto),
        number => match count(number) {
            Ok(count) => Ok(NetworkThreads::Exactly(count)),
            Err(why) => Err(format!("{why}, or auto")),
        },
    }
}

/// Fewest and most workers: `2..128`, or one number for both.
pub(crate) fn workers(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (min, max) = text.split_once("..").unwrap_or((text, text));
    match (min.parse(), max.parse()) {
        (Ok(min), Ok(max)) if 0 < min && min <= max => Ok(min..=max),
        _ => Err(WORKERS.into()),
    }
}

/// Where to listen; port 0 picks a free one. A port alone is one of 127.0.0.1, `:PORT` one of every
/// IPv4 address of the machine.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    if let Some(Ok(port)) = text.strip_prefix(':').map(str::parse) {
        return Ok(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
    }
    if let Some((scheme, _)) = text.split_once("://") {
        return Err(format!("leave {scheme}:// out; {ADDRESS}"));
    }
    if let Some(address) = with_zone(text)? {
        return Ok(address);
    }
    let mut found = text
        .to_socket_addrs()
        .map_err(|cause| format!("{cause}; {ADDRESS}"))?;
    found
        .next()
        .ok_or_else(|| format!("the host has no address; {ADDRESS}"))
}

/// An address that is one of an interface alone, with its zone (RFC 4007 section 11):
/// `[fe80::1%eth0]:80`.
fn with_zone(text: &str) -> Result<Option<SocketAddr>, String> {
    let parts = text.strip_prefix('[').and_then(|it| it.split_once("]:"));
    let Some((host, port)) = parts else {
        return Ok(None);
    };
    let Some((host, zone)) = host.split_once('%') else {
        return Ok(None);
    };
    let wrong = || ADDRESS.to_owned();
    let (host, port): (Ipv6Addr, u16) = match (host.parse(), port.parse()) {
        (Ok(host), Ok(port)) => (host, port),
        _ => return Err(wrong()),
    };
    let index = match zone.parse() {
        Ok(index) => index,
        Err(_) => interface(zone).map_err(|cause| format!("{zone}: {cause}; {ADDRESS}"))?,
    };
    Ok(Some(SocketAddrV6::new(host, port, 0, index).into()))
}

/// The number of a network interface.
fn interface(name: &str) -> std::io::Result<u32> {
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))
        .or_else(|_| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
    Ok(rustix::net::netdevice::name_to_index(socket, name)?)
}

/// Where to listen: an internet address, `unix:PATH`, or `fd:NAME` for sockets that a service
/// manager has passed.
pub(crate) fn listen_address(text: &str) -> Result<ListenAddress, String> {
    match ListenAddress::from_prefix(text) {
        Some(address) => Ok(address),
        None => address(text).map(ListenAddress::from),
    }
}

/// Where rpcbind is, and clients ask.
pub(crate) const PORTMAPPER_PORT: u16 = 111;

/// Where the portmapper listens: as [`address`], or a host alone.
pub(crate) fn portmapper_address(text: &str) -> Result<SocketAddr, String> {
    let host = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    if let Ok(ip) = host.unwrap_or(text).parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, PORTMAPPER_PORT));
    }
    let is_port = text.parse::<u16>().is_ok();
    match text.is_empty() || is_port || text.contains(':') {
        true => address(text),
        false => address(&format!("{text}:{PORTMAPPER_PORT}")),
    }
}

/// A count that may also be 0.
pub(crate) fn count_or_zero<T: TryFrom<u64> + Default>(text: &str) -> Result<T, String> {
    match text {
        "0" => Ok(T::default()),
        text => count(text).map_err(|why| format!("{why}, or 0")),
    }
}

/// A count of at least one, and at most what a number in TOML can be.
pub(crate) fn count<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let most = (u64::MAX >> (64 - 8 * size_of::<T>())).min(i64::MAX as u64);
    let count: u64 = text.parse().unwrap_or(0);
    let count = T::try_from(count)
        .ok()
        .filter(|_| 0 < count && count <= most);
    count.ok_or_else(|| match u32::try_from(most) {
        Ok(most) => format!("write a whole number from 1 to {most}"),
        Err(_) => "write a whole number of at least 1, and less than 2^63".into(),
    })
}

/// The most similar of `words`, if its similarity is above `least`.
pub(crate) fn similar(
    word: &str,
    words: impl Iterator<Item = String>,
    least: f64,
) -> Option<String> {
    most_similar(word, words, least).map(|(_, it)| it)
}

/// The same, with its similarity: identical words have 1.
pub(crate) fn most_similar(
    word: &str,
    words: impl Iterator<Item = String>,
    least: f64,
) -> Option<(f64, String)> {
    words
        .map(|it| (strsim::jaro(word, &it), it))
        .filter(|(similarity, _)| *similarity > least)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
}

/// `--proxy-host`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProxyHost {
    Client,
    Server,
    Named(HeaderValue),
}

/// Reads the value of `--proxy-host`.
pub(crate) fn proxy_host(text: &str) -> Result<ProxyHost, String> {
    let is_of_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    match text {
        "client" => Ok(ProxyHost::Client),
        "server" => Ok(ProxyHost::Server),
        name if !name.is_empty() && name.bytes().all(is_of_host) => {
            let value = HeaderValue::from_str(name).map_err(|why| why.to_string())?;
            Ok(ProxyHost::Named(value))
        }
        _ => Err("write client, server, or a host such as app.example.org or app:8080".into()),
    }
}

/// Reads the value of `--proxy-tls-name`.
pub(crate) fn tls_name(text: &str) -> Result<String, String> {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    match !text.is_empty() && text.bytes().all(is_of_name) {
        true => Ok(text.to_owned()),
        false => Err("write a name such as app.example.org, or an address".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_amounts_in_a_time() {
        let of = |amount, seconds| {
            let time = Duration::from_secs(seconds);
            Ok(Rate { amount, time })
        };
        assert_eq!(rate("10/s"), of(10, 1));
        assert_eq!(rate("10r/s"), of(10, 1));
        assert_eq!(rate("600 / m"), of(600, 60));
        assert_eq!(rate("1000/2h"), of(1000, 7200));
        assert_eq!(rate("5/30"), of(5, 30));
        assert_eq!(rate_of_bytes("1.5K/s"), of(1536, 1));
        assert_eq!(rate_of_bytes("10G/day"), of(10 << 30, 24 * 3600));
        for text in [
            "",
            "10",
            "/s",
            "10/",
            "0/s",
            "-1/s",
            "10/0",
            "10/x",
            "5000000000/s",
            "1/s/s",
        ] {
            assert_eq!(rate(text), Err(RATE.into()), "{text}");
        }
        for text in ["", "1M", "0/s", "xM/s", "1M/"] {
            assert_eq!(rate_of_bytes(text), Err(RATE_OF_BYTES.into()), "{text}");
        }
    }

    #[test]
    fn sizes_have_binary_units() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4_096),
            ("4096B", 4_096),
            ("64K", 64 << 10),
            ("64kb", 64 << 10),
            ("256M", 256 << 20),
            ("256MiB", 256 << 20),
            ("256 MiB", 256 << 20),
            ("1.5G", 3 << 29),
            (".5K", 512),
            ("18446744073709551615", u64::MAX),
            ("2g", 2 << 30),
            ("1T", 1 << 40),
            ("9007199254740993", 9_007_199_254_740_993),
        ] {
            assert_eq!(size::<u64>(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "M",
            "-1",
            "+1",
            ".",
            "1.-5K",
            "1Q",
            "1BK",
            "1.5.G",
            "18446744073709551615K",
            "18446744073709551616",
        ] {
            assert!(size::<u64>(text).is_err(), "{text}");
        }
        assert_eq!(size::<u32>("4294967295"), Ok(u32::MAX));
        assert!(size::<u32>("4G").is_err_and(|why| why.contains("less than 4G")));
    }

    #[test]
    fn a_size_is_shown_as_it_is_written() {
        for text in ["0", "1", "4097", "3K", "1025K", "256M", "2G", "1025M"] {
            assert_eq!(size_text(size(text).expect("a size")), text);
        }
    }

    #[test]
    fn network_threads_are_a_number_or_auto() {
        assert_eq!(network_threads("auto"), Ok(NetworkThreads::Auto));
        assert_eq!(network_threads("3"), Ok(NetworkThreads::Exactly(3)));
        for text in ["", "0", "-1", "Auto", "many"] {
            let why = network_threads(text).expect_err(text);
            assert!(why.ends_with(", or auto"), "{why}");
        }
    }

    #[test]
    fn workers_are_a_range_that_is_not_empty() {
        assert_eq!(workers("2..128"), Ok(2..=128));
        assert_eq!(workers("8"), Ok(8..=8));
        for text in [
            "", "0..4", "4..2", "2..", "..4", "2..4..8", "a..b", "0", "-1..2",
        ] {
            assert!(workers(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_time_is_seconds_or_has_units_and_is_never_zero() {
        for (text, ms) in [
            ("30", 30_000),
            ("0.5", 500),
            ("1e3", 1_000_000),
            ("30s", 30_000),
            ("500ms", 500),
            ("1h 30m", 5_400_000),
            ("365d", 31_536_000_000),
        ] {
            assert_eq!(time(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in [
            "", "0", "0s", "-1", "nan", "inf", "1e30", "366d", "30x", "s",
        ] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for (text, whole) in [
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("[::1]:0", "[::1]:0"),
            ("8080", "127.0.0.1:8080"),
            (":80", "0.0.0.0:80"),
            ("[fe80::1%7]:80", "[fe80::1%7]:80"),
            ("[fe80::1%lo]:80", "[fe80::1%1]:80"),
        ] {
            assert_eq!(address(text).map(|it| it.to_string()), Ok(whole.into()));
        }
        for text in [
            "",
            "8080x",
            ":8080x",
            "99999",
            "127.0.0.1",
            "::1",
            "host:99999",
            "[fe80::1%no-such-interface]:80",
            "[fe80::1%lo]:99999",
            "[127.0.0.1%lo]:80",
            "http://127.0.0.1:80",
        ] {
            let error = address(text).expect_err(text);
            assert!(error.contains("HOST:PORT"), "{error}");
        }
    }

    #[test]
    fn counts_start_at_one() {
        assert_eq!(count("1"), Ok(1_u32));
        for text in ["0", "-1", "", "many", "4294967296"] {
            assert!(count::<u32>(text).is_err(), "{text}");
        }
        // The greatest below the bound is taken, on the command line and in the file.
        let bound = 1_usize << 63;
        let why = count::<usize>(&bound.to_string()).expect_err("too many");
        assert!(why.contains("less than 2^63"), "{why}");
        let most = bound - 1;
        assert_eq!(count(&most.to_string()), Ok(most));
        let file = crate::config::Configuration::from_text(&format!("max-connections = {most}"));
        assert_eq!(
            file.map(|file| file.settings.max_connections),
            Ok(Some(most))
        );
    }

    #[test]
    fn a_host_is_a_word_or_a_name() {
        let named = |name| Ok(ProxyHost::Named(HeaderValue::from_static(name)));
        assert_eq!(proxy_host("client"), Ok(ProxyHost::Client));
        assert_eq!(proxy_host("server"), Ok(ProxyHost::Server));
        assert_eq!(proxy_host("app.example.org"), named("app.example.org"));
        assert_eq!(proxy_host("[::1]:8080"), named("[::1]:8080"));
        for text in ["", "a b", "a/b", "a\r\nX: y", "user@host", "ä"] {
            assert!(proxy_host(text).is_err(), "{text:?}");
        }
    }
}
