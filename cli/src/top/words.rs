//! Numbers in few digits, in ASCII: every terminal shows them.

/// A number: `0.25`, `12`, `45.6k`.
pub(super) fn amount(number: f64) -> String {
    scaled(number, 1000.0, &["", "k", "M", "G", "T"])
}

/// Bytes: `12B`, `45.6K`, by powers of 1024.
pub(super) fn bytes(number: f64) -> String {
    scaled(number, 1024.0, &["B", "K", "M", "G", "T"])
}

fn scaled(mut number: f64, base: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while number >= base - 0.5 && unit + 1 < units.len() {
        number /= base;
        unit += 1;
    }
    format!("{}{}", digits(number), units[unit])
}

/// A short time with one unit, a long one with two: `8.2us`, `1m40s`.
pub(super) fn time(seconds: f64) -> String {
    const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
    if seconds <= 0.0 {
        return "0s".into();
    }
    if seconds < 1e-3 {
        return format!("{}us", digits(seconds * 1e6));
    }
    if seconds < 1.0 {
        return format!("{}ms", digits(seconds * 1e3));
    }
    if seconds < 100.0 {
        return format!("{}s", digits(seconds));
    }
    let mut left = seconds as u64;
    let first = UNITS.iter().position(|(_, size)| left >= *size);
    let units = &UNITS[first.unwrap_or(0)..];
    let words = units.iter().take(2).map(|(unit, size)| {
        let count = left / size;
        left %= size;
        format!("{count}{unit}")
    });
    words.collect()
}

/// Three digits that count; whole numbers as they are.
fn digits(number: f64) -> String {
    let places = match number {
        whole if whole.fract().abs() < 1e-9 => 0,
        small if small < 10.0 => 2,
        middle if middle < 100.0 => 1,
        _ => 0,
    };
    format!("{number:.places$}")
}

/// Text that may come from another process, without characters that a terminal would act on.
pub(super) fn printable(text: &str) -> String {
    let shown = |character: char| {
        if character.is_control() {
            '?'
        } else {
            character
        }
    };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (number, words) in [
            (0.0, "0"),
            (0.254, "0.25"),
            (12.345, "12.3"),
            (999.4, "999"),
            (999.6, "1.00k"),
            (1234.0, "1.23k"),
            (45_600_000.0, "45.6M"),
        ] {
            assert_eq!(amount(number), words);
        }
        assert_eq!(bytes(1023.0), "1023B");
        assert_eq!(bytes(1024.0), "1K");
        assert_eq!(bytes(1.5 * 1024.0 * 1024.0), "1.50M");
        for (seconds, words) in [
            (0.0, "0s"),
            (8.192e-6, "8.19us"),
            (0.25, "250ms"),
            (59.0, "59s"),
            (100.0, "1m40s"),
            (7_261.0, "2h1m"),
            (200_000.0, "2d7h"),
        ] {
            assert_eq!(time(seconds), words);
        }
    }

    #[test]
    fn a_name_moves_no_cursor() {
        assert_eq!(printable("unix:/a\u{1b}[2J\n\u{9b}x"), "unix:/a?[2J??x");
    }
}
