//! Rules `unfinished`, `shim`, `sans-io`, `unsafe`, `decides` and `poison`: words that must not
//! stand everywhere.
//!
//! - `unfinished`: no ignored test and no note to come back later.
//! - `shim`: inside structures only `sync.rs` names the atomics, cells, locks and parking of std,
//!   loom or shuttle: what the model checker cannot see it cannot check.
//! - `sans-io`: protocol code has no descriptor, no clock and no thread.
//! - `unsafe`: unsafe code lives in sys, in the driver and in the one file of structures that hands
//!   out memory. The lint `unsafe_code` is denied everywhere, and only there it may be allowed.
//! - `decides`: what decides on memory, on places and on pairs knows numbers, and neither a driver
//!   nor the network thread.
//! - `poison`: what becomes of a lock after a panic is decided once, in `Lock`.

use super::Fault;
use super::source::Source;

/// Words that may not stand below a directory, but for the files of which these begin the paths.
struct Rule {
    name: &'static str,
    words: &'static [&'static str],
    below: &'static str,
    except: &'static [&'static str],
    in_tests: bool,
    message: &'static str,
}

const SHIM: Rule = Rule {
    name: "shim",
    words: &[
        "std::sync::atomic",
        "std::sync::Mutex",
        "std::sync::Condvar",
        "std::cell::UnsafeCell",
        "std::thread::park",
        "core::sync::atomic",
        "core::cell::UnsafeCell",
        "loom::",
        "shuttle::",
    ],
    below: "structures/src/",
    except: &["structures/src/sync.rs"],
    in_tests: false,
    message: "inside structures only sync.rs names this; use crate::sync",
};

const SANS_IO: Rule = Rule {
    name: "sans-io",
    words: &[
        "TcpStream",
        "TcpListener",
        "UdpSocket",
        "OwnedFd",
        "std::fs",
        "std::thread",
        "Instant::now",
        "SystemTime::now",
    ],
    below: "protocols/",
    // Layers are code of programs: they measure, count by the clock, and read files of passwords.
    except: &[
        "protocols/layers/src/clock.rs",
        "protocols/layers/src/htpasswd.rs",
    ],
    in_tests: false,
    message: "protocols have no descriptor, no clock and no thread",
};

const UNSAFE: Rule = Rule {
    name: "unsafe",
    words: &["unsafe"],
    below: "",
    except: &["sys/src/", "driver/src/", "structures/src/memory.rs"],
    in_tests: true,
    message: "unsafe code belongs in sys, in driver or in structures' memory.rs",
};

const DECIDES_ON_MEMORY: Rule = Rule {
    name: "decides",
    words: &[
        "flatpath_driver",
        "crate::network",
        "crate::connection",
        "Instant::now",
    ],
    below: "engine/src/memory/",
    except: &[],
    in_tests: true,
    message: "what decides takes numbers and returns a verdict; network/ acts",
};

const DECIDES_ON_PLACES: Rule = Rule {
    below: "engine/src/admission",
    // A worker waits there, for caches to give descriptors back.
    except: &["engine/src/admission/descriptors.rs"],
    ..DECIDES_ON_MEMORY
};

const DECIDES_ON_PAIRS: Rule = Rule {
    below: "engine/src/pairs",
    ..DECIDES_ON_MEMORY
};

const IGNORED: Rule = Rule {
    name: "unfinished",
    words: &["#[ignore"],
    below: "",
    except: &[],
    in_tests: true,
    message: "an ignored test tests nothing",
};

const POISON: Rule = Rule {
    name: "poison",
    words: &["PoisonError", "TryLockError"],
    below: "",
    except: &["structures/src/sync.rs", "sys/src/shared_memory.rs"],
    in_tests: true,
    message: "use `Lock`, `ReadWriteLock` and `Condition` (`flatpath::lock`)",
};

const NOTES: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), "XXX"];

pub(super) fn check(source: &Source, faults: &mut Vec<Fault>) {
    let decides = [DECIDES_ON_MEMORY, DECIDES_ON_PLACES, DECIDES_ON_PAIRS];
    for rule in [SHIM, SANS_IO, UNSAFE, IGNORED, POISON]
        .into_iter()
        .chain(decides)
    {
        check_words(source, &rule, faults);
    }
    for (line, _) in source.lines() {
        if NOTES.iter().any(|note| source.comment(line).contains(note)) {
            let message = "do it, or describe it in an issue";
            faults.push(source.fault(line, "unfinished", message));
        }
    }
}

fn check_words(source: &Source, rule: &Rule, faults: &mut Vec<Fault>) {
    let is_exempt = rule
        .except
        .iter()
        .any(|place| source.path.starts_with(place));
    if is_exempt || !source.path.starts_with(rule.below) {
        return;
    }
    let mut last_line = 0;
    for index in 0..source.tokens.len() {
        let line = source.tokens[index].line;
        let is_wanted = line != last_line && (rule.in_tests || !source.is_test(line));
        if is_wanted && rule.words.iter().any(|words| begins(source, index, words)) {
            faults.push(source.fault(line, rule.name, rule.message));
            last_line = line;
        }
    }
}

/// Whether the code from the token at `index` on begins with `words`. A name that ends with `::` is
/// a crate's: it begins its path.
fn begins(source: &Source, index: usize, words: &str) -> bool {
    let (mut rest, mut at) = (words, index);
    while !rest.is_empty() {
        match rest.strip_prefix(source.word(at)) {
            Some(behind) if behind.len() < rest.len() => (rest, at) = (behind, at + 1),
            _ => return false,
        }
    }
    let is_inside = index > 0 && source.word(index - 1) == ":";
    !(is_inside && words.ends_with(':'))
}

#[cfg(test)]
mod tests {
    use super::super::tests::faults;
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<(usize, &'static str)> {
        faults(check, path, text)
    }

    #[test]
    fn unfinished_work_is_a_fault() {
        let ignored = "#[test]\n#[ignore]\nfn a() {}";
        assert_eq!(rules("a/src/a.rs", ignored), [(2, "unfinished")]);
        let note = concat!("// FIX", "ME later");
        assert_eq!(rules("a/src/a.rs", note), [(1, "unfinished")]);
        let text = concat!("const A: &str = \"TO", "DO\"; // ignored");
        assert_eq!(rules("a/src/a.rs", text), []);
    }

    #[test]
    fn structures_go_through_the_shim() {
        let stack = "structures/src/stack.rs";
        let text = "use std::sync::atomic::AtomicU64;\n";
        for text in [text, "use loom::thread;", "use core::cell::UnsafeCell;"] {
            assert_eq!(rules(stack, text), [(1, "shim")]);
        }
        for text in ["use crate::sync::atomic::AtomicU64;", "use crate::loom::a;"] {
            assert_eq!(rules(stack, text), []);
        }
        assert_eq!(rules("structures/src/sync.rs", text), []);
        assert_eq!(rules("engine/src/a.rs", text), []);
        let test = format!("#[cfg(test)]\nmod tests {{\n    {text}}}");
        assert_eq!(rules(stack, &test), []);
    }

    #[test]
    fn protocols_have_no_clock() {
        for text in ["let a = Instant::now();", "use std::net::TcpStream;"] {
            assert_eq!(rules("protocols/http/src/a.rs", text), [(1, "sans-io")]);
            assert_eq!(rules("engine/src/a.rs", text), []);
        }
    }

    #[test]
    fn what_decides_knows_no_driver_and_no_network_thread() {
        for text in ["use flatpath_driver::Driver;", "use crate::network::After;"] {
            assert_eq!(rules("engine/src/memory/pages.rs", text), [(1, "decides")]);
            assert_eq!(rules("engine/src/memory.rs", text), []);
            assert_eq!(
                rules("engine/src/admission/claim.rs", text),
                [(1, "decides")]
            );
            assert_eq!(rules("engine/src/admission.rs", text), [(1, "decides")]);
            assert_eq!(rules("engine/src/pairs/ends.rs", text), [(1, "decides")]);
            assert_eq!(rules("engine/src/network/admission.rs", text), []);
        }
        assert_eq!(
            rules("engine/src/memory/pages.rs", "use crate::lists::List;"),
            []
        );
    }

    #[test]
    fn unsafe_code_out_of_place_is_a_fault_even_in_tests() {
        let text = "fn a() { unsafe { b() } }";
        for path in [
            "engine/src/a.rs",
            "structures/src/pool.rs",
            "structures/tests/a.rs",
        ] {
            assert_eq!(rules(path, text), [(1, "unsafe")]);
        }
        for path in ["driver/src/uring/ring.rs", "structures/src/memory.rs"] {
            assert_eq!(rules(path, text), []);
        }
        let words = "#![forbid(unsafe_code)]\n// unsafe\nconst A: &str = \"unsafe\";";
        assert_eq!(rules("engine/src/lib.rs", words), []);
    }

    #[test]
    fn a_lock_that_a_panic_left_is_dealt_with_in_one_place() {
        let text = "fn a() { b.lock().unwrap_or_else(PoisonError::into_inner); }";
        for path in [
            "engine/src/a.rs",
            "structures/src/pool.rs",
            "bench/src/a.rs",
        ] {
            assert_eq!(rules(path, text), [(1, "poison")]);
        }
        assert_eq!(rules("structures/src/sync.rs", text), []);
    }
}
