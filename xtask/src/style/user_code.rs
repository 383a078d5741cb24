//! Rules `under-lock` and `uncontained`: where code of a program may not run (B1 and B2 of
//! `engine/src/protocol/discard.rs`).
//!
//! `under-lock`, in the crates that hold values of a program: while a lock's guard lives, nothing
//! is dropped that may be a program's, and no closure is called. A guard is what `let` binds to a
//! call of `lock` or of a function of the same file that returns a guard, or a parameter of
//! that type. It lives until it is moved (`drop(guard)`, an argument) or its block ends. Reported
//! within its life are
//! - a value taken out and dropped in the same statement: `guard.queue.pop_front();`, `.clear();`
//! - an assignment that drops what was there: `guard.entries = Vec::new();`, `= None`, `= Some(…)`
//! - a name that is only there to be dropped: `let _taken = …`
//! - a call of a closure: `(self.act)(…)`, `on_event()`
//!
//! `uncontained`, in the files of the engine that call a program on a network thread: these calls
//! stand within the parentheses of `contain` or of a function that contains its closure (`with`).
//!
//! What is not a program's has `// OURS: reason` in the line or before it; a call that someone else
//! contains `// CONTAINED: by whom`.
//!
//! What it cannot see: types, so a drop at the end of a block, in `*place = value` or in a function
//! that is called with the guard's content; guards within expressions (`lock().field`), in fields
//! and in other crates; and whether a drop may block. The tests `discards` of the engine, `drops`
//! of HTTP and `owners` of WebSocket are for those.

use std::collections::HashSet;

use super::Fault;
use super::source::Source;

/// Where values of a program lie under locks.
const LOCKED: &[&str] = &["engine/src/", "protocols/", "pairing/src/"];

/// Methods whose result is the value that they take out, or that drop it themselves.
const TAKING: &[&str] = &[
    "clear",
    "drain",
    "insert",
    "pop",
    "pop_back",
    "pop_front",
    "remove",
    "replace",
    "retain",
    "split_off",
    "split_to",
    "swap_remove",
    "take",
    "truncate",
];

/// What an assignment begins with that may drop a value.
const DROPPING: &[&[&str]] = &[
    &["None"],
    &["Some", "("],
    &["Vec", ":", ":", "new"],
    &["VecDeque", ":", ":", "new"],
    &["HashMap", ":", ":", "new"],
    &["Default", ":", ":", "default"],
];

/// Calls of a program's code, by the file that they stand in.
const CALLS: &[(&str, &[&str])] = &[
    ("engine/src/protocol/erased.rs", &["protocol", "."]),
    ("engine/src/protocol/erased.rs", &["options_of", "("]),
    (
        "engine/src/protocol/erased.rs",
        &["ThreadState", ":", ":", "new"],
    ),
    (
        "engine/src/observe/access_log.rs",
        &["output", ".", "write"],
    ),
    (
        "engine/src/observe/access_log.rs",
        &["sink", ".", "dropped"],
    ),
    ("engine/src/observe/access_log.rs", &["sink", ".", "open"]),
    ("engine/src/network/", &["signalled", ")", "("]),
    ("engine/src/protocol/successor.rs", &["begun", ".", "make"]),
];

/// Functions that contain the closure they are given.
const CONTAINING: &[&str] = &["contain", "with"];

pub(super) fn check(source: &Source, faults: &mut Vec<Fault>) {
    if LOCKED.iter().any(|place| source.path.starts_with(place)) {
        check_locks(source, faults);
    }
    check_calls(source, faults);
}

fn is_marked(source: &Source, line: usize, mark: &str) -> bool {
    source.comment(line).contains(mark) || source.comment(line - 1).contains(mark)
}

fn check_locks(source: &Source, faults: &mut Vec<Fault>) {
    let locking = locking(source);
    for index in 0..source.tokens.len() {
        if source.is_test(source.tokens[index].line) {
            continue;
        }
        if let Some((guard, from)) = guard_at(source, index, &locking) {
            check_life(source, guard, from, faults);
        }
    }
}

/// The types of guards: of `flatpath::lock`, and of `std`.
const GUARDS: [&str; 2] = ["Guard", "MutexGuard"];

/// Names of the functions of a file that return a guard; `lock` in any case.
fn locking(source: &Source) -> HashSet<&str> {
    let mut names = HashSet::from(["lock"]);
    for index in 0..source.tokens.len() {
        if source.word(index) != "fn" {
            continue;
        }
        let signature = (index..).take_while(|at| !matches!(source.word(*at), "{" | ";" | ""));
        let is_arrow = |at: &usize| {
            let mut guards = GUARDS.iter();
            guards.any(|guard| source.spells(*at, &["-", ">", guard]))
        };
        if signature.into_iter().any(|at| is_arrow(&at)) {
            names.insert(source.word(index + 1));
        }
    }
    names
}

/// The guard that begins to live at `index`, and the first token of its life.
fn guard_at<'a>(
    source: &'a Source,
    index: usize,
    locking: &HashSet<&str>,
) -> Option<(&'a str, usize)> {
    let mut guards = GUARDS.iter();
    if guards.any(|guard| source.spells(index + 1, &[":", guard])) {
        let body = (index..).find(|at| matches!(source.word(*at), "{" | ";" | ""))?;
        return (source.word(body) == "{").then(|| (source.word(index), body + 1));
    }
    if source.word(index) != "let" {
        return None;
    }
    let name = index + 1 + usize::from(source.word(index + 1) == "mut");
    if source.word(name + 1) != "=" {
        return None;
    }
    let end = end_of_statement(source, name);
    // The call is the end of the expression, but for what is done about a poisoned lock.
    let mut close = end - 1;
    loop {
        let open = opening(source, close)?;
        let called = source.word(open.checked_sub(1)?);
        if locking.contains(called) {
            return Some((source.word(name), end + 1));
        }
        let is_adapter = matches!(called, "unwrap_or_else" | "expect" | "unwrap");
        if !is_adapter || source.word(open - 2) != "." {
            return None;
        }
        close = open - 3;
    }
}

/// The `;` of the statement that the token at `index` is in, or the end of its block.
fn end_of_statement(source: &Source, index: usize) -> usize {
    let mut depth = 0;
    for at in index..source.tokens.len() {
        match source.word(at) {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" if depth == 0 => return at,
            ")" | "]" | "}" => depth -= 1,
            ";" if depth == 0 => return at,
            _ => {}
        }
    }
    source.tokens.len()
}

/// The bracket that the one at `close` closes.
fn opening(source: &Source, close: usize) -> Option<usize> {
    if source.word(close) != ")" {
        return None;
    }
    let mut depth = 0;
    for at in (0..=close).rev() {
        match source.word(at) {
            ")" | "]" | "}" => depth += 1,
            "(" | "[" | "{" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// Reports what is dropped or called from a token on while the guard lives.
fn check_life(source: &Source, guard: &str, from: usize, faults: &mut Vec<Fault>) {
    let mut depth = 0;
    for at in from..source.tokens.len() {
        match source.word(at) {
            "{" => depth += 1,
            "}" if depth == 0 => return,
            "}" => depth -= 1,
            _ => {}
        }
        let is_argument = matches!(source.word(at.wrapping_sub(1)), "(" | ",");
        if source.word(at) == guard && is_argument && matches!(source.word(at + 1), ")" | ",") {
            // Within a branch it is moved there only.
            if depth == 0 || ends_branch(source, at) {
                return;
            }
        }
        let line = source.tokens[at].line;
        if let Some(message) = dropped_at(source, guard, at)
            && !is_marked(source, line, "OURS:")
        {
            let message = format!("under the lock of `{guard}`: {message}");
            faults.push(source.fault(line, "under-lock", &message));
        }
    }
}

/// Whether the block ends after this statement, in which the guard was moved: then what comes after
/// the block has another branch's guard, which this rule takes for moved as well.
fn ends_branch(source: &Source, at: usize) -> bool {
    let end = end_of_statement(source, at + 2);
    source.word(end) == "}" && source.word(end + 1) == "else"
}

/// What the statement at `at` drops or calls, if it does.
fn dropped_at(source: &Source, guard: &str, at: usize) -> Option<&'static str> {
    let begins = matches!(source.word(at.wrapping_sub(1)), ";" | "{" | "}");
    if source.spells(at, &["let"]) && source.word(at + 1).starts_with('_') {
        return Some("a value that is only there to be dropped");
    }
    if is_closure_call(source, at) {
        return Some("a closure is called");
    }
    let is_field = source.word(at) == guard && source.word(at + 1) == ".";
    if !is_field {
        return None;
    }
    let end = end_of_statement(source, at);
    let mut place = at + 2;
    while source.word(place + 1) == "." {
        place += 2;
    }
    let is_assigned = source.word(place + 1) == "=" && source.word(place + 2) != "=";
    if begins && is_assigned {
        let drops = DROPPING.iter().any(|words| source.spells(place + 2, words));
        return drops.then_some("an assignment drops what was there");
    }
    let is_statement = begins && source.word(end) == ";" && source.word(end - 1) == ")";
    let open = is_statement.then(|| opening(source, end - 1)).flatten()?;
    let taking = TAKING.contains(&source.word(open - 1)) && source.word(open - 2) == ".";
    taking.then_some("what is taken out is dropped")
}

/// `(self.act)(…)` and `on_event(…)`.
fn is_closure_call(source: &Source, at: usize) -> bool {
    let before = source.word(at.wrapping_sub(1));
    let word = source.word(at);
    if word.starts_with("on_") && source.word(at + 1) == "(" {
        return word != "on_network_thread" && !matches!(before, "." | ":" | "fn");
    }
    if !source.spells(at, &[")", "("]) {
        return false;
    }
    let Some(open) = opening(source, at) else {
        return false;
    };
    let path = open + 1..at;
    let is_path = path.clone().all(|at| {
        let word = source.word(at);
        word == "." || word.chars().all(|one| one == '_' || one.is_alphanumeric())
    });
    is_path && path.clone().any(|at| source.word(at) == ".")
}

fn check_calls(source: &Source, faults: &mut Vec<Fault>) {
    for (file, words) in CALLS {
        if !source.path.starts_with(file) {
            continue;
        }
        for at in 0..source.tokens.len() {
            let line = source.tokens[at].line;
            if source.is_test(line) || !source.spells(at, words) {
                continue;
            }
            // A field, a path, or a call of something else that has it.
            let is_call =
                (at + words.len() - 1..=at + words.len() + 1).any(|next| source.word(next) == "(");
            if is_call && !is_contained(source, at) && !is_marked(source, line, "CONTAINED:") {
                let message = "code of a program is called on a network thread outside `contain`";
                faults.push(source.fault(line, "uncontained", message));
            }
        }
    }
}

/// Whether a token stands within the parentheses of a function that contains.
fn is_contained(source: &Source, at: usize) -> bool {
    let mut depth = 0;
    for before in (1..at).rev() {
        match source.word(before) {
            ")" | "}" | "]" => depth += 1,
            "(" | "{" | "[" if depth > 0 => depth -= 1,
            "(" if CONTAINING.contains(&source.word(before - 1)) => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::tests::faults;
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let found = faults(check, path, text);
        found.into_iter().map(|(line, _)| line).collect()
    }

    /// As it stood in `protocols/websocket/src/socket.rs`, where it hung the network thread.
    const FLUSH: &str = "
impl Socket {
    fn state(&self) -> MutexGuard<'_, State> { self.0.lock().expect(\"sound\") }
    fn flush(&self, io: &mut Io<'_>) {
        let mut state = self.state();
        state.is_called = false;
        while let Some(frame) = state.queue.front() {
            state.bytes -= frame.bytes();
            state.queue.pop_front();
        }
        if state.queue.is_empty() {
            state.queue = VecDeque::new();
        }
    }
    fn end(&self) {
        let mut state = self.state();
        let frames = std::mem::take(&mut state.queue);
        drop(state);
        state.queue.clear();
    }
}";

    #[test]
    fn what_is_dropped_under_a_lock_is_found() {
        assert_eq!(lines("protocols/websocket/src/socket.rs", FLUSH), [9, 12]);
        assert_eq!(lines("services/files/src/a.rs", FLUSH), [0; 0]);
    }

    #[test]
    fn every_form_of_it_is_found() {
        let under = |statement: &str| {
            let text = format!(
                "fn a() {{\nlet mut it = lock(&b);\n{statement}\ndrop(it);\nit.c.clear();}}"
            );
            lines("engine/src/a.rs", &text)
        };
        for dropped in [
            "it.entries = Vec::new();",
            "it.on_event = Some(act);",
            "it.connection = None;",
            "it.kept.retain(|one| one.is_open());",
            "let _taken = piece.split_to(3);",
            "(entry.signalled)(3);",
            "on_event();",
            "if c { it.a.b.truncate(1); }",
        ] {
            assert_eq!(under(dropped), [3], "{dropped}");
        }
        for kept in [
            "it.bytes = 0;",
            "let taken = it.queue.pop_front();",
            "it.queue.push_back(one);",
            "if it.a == None {}",
            "it.kept.retain(|one| one.is_open()); // OURS: numbers",
            "let act = it.on_event.clone();",
        ] {
            assert_eq!(under(kept), [0; 0], "{kept}");
        }
    }

    #[test]
    fn a_guard_ends_where_it_is_moved() {
        let text =
            "fn a(b: &B, mut it: MutexGuard<'_, S>) {\nit.x.clear();\nb.c(it);\nit.y.clear();\n}";
        assert_eq!(lines("engine/src/a.rs", text), [2]);
    }

    #[test]
    fn calls_of_a_program_outside_contain_are_found() {
        let log = "engine/src/observe/access_log.rs";
        let bare = "fn flush(&mut self) { self.output.write(&mut self.lines); }";
        assert_eq!(lines(log, bare), [1]);
        let contained = "fn flush(&mut self) { contain(|| output.write(&mut self.lines)); }";
        assert_eq!(lines(log, contained), [0; 0]);
        let name = "fn name(&self) -> &'static str { self.protocol.name() }";
        assert_eq!(lines("engine/src/protocol/erased.rs", name), [1]);
        let with = "fn a(&mut self) { self.with(io, |protocol, c| { protocol.connected(c); }); }";
        assert_eq!(lines("engine/src/protocol/erased.rs", with), [0; 0]);
        let watch = "fn call(&self) { (watched.signalled)(count); }";
        assert_eq!(lines("engine/src/network/watch.rs", watch), [1]);
        let marked = "fn new() {\n// CONTAINED: by the start\nprotocol.options(); }";
        assert_eq!(lines("engine/src/protocol/erased.rs", marked), [0; 0]);
    }
}
