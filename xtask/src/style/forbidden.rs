//! Rules `unfinished`, `shim` and `sans-io`: words that must not stand in certain places.
//!
//! - `unfinished`: no ignored test, no `todo!`, no `unimplemented!`, no note to come back later.
//! - `shim`: inside structures only `sync.rs` names the atomics, cells, locks and parking of std,
//!   loom or shuttle: what the model checker cannot see it cannot check.
//! - `sans-io`: protocol code has no descriptor, no clock and no thread.

use super::Fault;
use super::source::Source;

/// The one file that names them.
const SHIM: &str = "structures/src/sync.rs";
const SHIMMED: &[&[&str]] = &[
    &["sync", ":", ":", "atomic"],
    &["sync", ":", ":", "Mutex"],
    &["sync", ":", ":", "Condvar"],
    &["cell", ":", ":", "UnsafeCell"],
    &["thread", ":", ":", "park"],
    &["loom", ":", ":"],
    &["shuttle", ":", ":"],
];
const STANDARD: &[&str] = &["std", "core"];

const PROTOCOLS: &str = "protocols/";
const INPUT_OUTPUT: &[&[&str]] = &[
    &["TcpStream"],
    &["TcpListener"],
    &["UdpSocket"],
    &["OwnedFd"],
    &["std", ":", ":", "fs"],
    &["std", ":", ":", "thread"],
    &["Instant", ":", ":", "now"],
    &["SystemTime", ":", ":", "now"],
];

/// Reports words out of place.
pub fn check(source: &Source, faults: &mut Vec<Fault>) {
    let mut report = |line: usize, rule: &'static str, message: &str| {
        let (file, message) = (source.path.clone(), message.to_string());
        faults.push(Fault {
            file,
            line,
            rule,
            message,
        });
    };
    let shimmed = source.path.starts_with("structures/src/") && source.path != SHIM;
    let sans_io = source.path.starts_with(PROTOCOLS);
    for index in 0..source.tokens.len() {
        let line = source.tokens[index].line;
        if source.spells(index, &["#", "[", "ignore"]) {
            report(line, "unfinished", "an ignored test tests nothing");
        }
        if matches!(source.word(index), "todo" | "unimplemented") && source.word(index + 1) == "!" {
            report(line, "unfinished", "finish it or leave it out");
        }
        if shimmed && !source.is_test(line) && is_shimmed(source, index) {
            report(
                line,
                "shim",
                "inside structures only sync.rs names this; use crate::sync",
            );
        }
        let spells_io = INPUT_OUTPUT.iter().any(|words| source.spells(index, words));
        if sans_io && !source.is_test(line) && spells_io {
            report(
                line,
                "sans-io",
                "protocols have no descriptor, no clock and no thread",
            );
        }
    }
    for line in 1..=source.lines.len() {
        let comment = source.comment(line);
        if [concat!("TO", "DO"), concat!("FIX", "ME"), "XXX"]
            .iter()
            .any(|mark| comment.contains(mark))
        {
            report(line, "unfinished", "do it, or describe it in an issue");
        }
    }
}

fn is_shimmed(source: &Source, index: usize) -> bool {
    let named = SHIMMED.iter().any(|words| source.spells(index, words));
    let before = |back: usize| index.checked_sub(back).map_or("", |at| source.word(at));
    let outside = matches!(source.word(index), "loom" | "shuttle");
    // `crate::sync::atomic` is the shim itself; `std::sync::atomic` goes round it.
    named && (outside && before(1) != ":" || STANDARD.contains(&before(3)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn rules(path: &str, text: &str) -> Vec<(usize, &'static str)> {
        let mut faults = Vec::new();
        check(&Source::new(Path::new(path), text), &mut faults);
        faults
            .into_iter()
            .map(|fault| (fault.line, fault.rule))
            .collect()
    }

    #[test]
    fn unfinished_work_is_a_fault() {
        assert_eq!(
            rules("a/src/a.rs", "#[test]\n#[ignore]\nfn a() {}"),
            [(2, "unfinished")]
        );
        assert_eq!(
            rules("a/src/a.rs", "fn a() { todo!() }"),
            [(1, "unfinished")]
        );
        assert_eq!(
            rules("a/src/a.rs", "fn a() {\n unimplemented!(\"x\") }"),
            [(2, "unfinished")]
        );
        assert_eq!(
            rules("a/src/a.rs", concat!("// FIX", "ME later")),
            [(1, "unfinished")]
        );
        assert_eq!(
            rules("a/src/a.rs", "const A: &str = \"todo!()\"; // ignored"),
            []
        );
    }

    #[test]
    fn structures_go_through_the_shim() {
        let text = "use std::sync::atomic::AtomicU64;\n";
        assert_eq!(rules("structures/src/stack.rs", text), [(1, "shim")]);
        assert_eq!(
            rules("structures/src/stack.rs", "use loom::thread;"),
            [(1, "shim")]
        );
        assert_eq!(
            rules("structures/src/stack.rs", "use core::cell::UnsafeCell;"),
            [(1, "shim")]
        );
        assert_eq!(
            rules(
                "structures/src/stack.rs",
                "use crate::sync::atomic::AtomicU64;"
            ),
            []
        );
        assert_eq!(rules("structures/src/sync.rs", text), []);
        assert_eq!(rules("engine/src/a.rs", text), []);
        let test = format!("#[cfg(test)]\nmod tests {{\n    {text}}}");
        assert_eq!(rules("structures/src/stack.rs", &test), []);
    }

    #[test]
    fn protocols_have_no_clock() {
        assert_eq!(
            rules("protocols/http/src/a.rs", "let a = Instant::now();"),
            [(1, "sans-io")]
        );
        assert_eq!(
            rules("protocols/http/src/a.rs", "use std::net::TcpStream;"),
            [(1, "sans-io")]
        );
        assert_eq!(rules("engine/src/a.rs", "use std::net::TcpStream;"), []);
    }
}
