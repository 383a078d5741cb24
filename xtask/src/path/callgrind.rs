//! Reading what callgrind wrote: how often each function was called, and which of its lines ran.
//!
//! The format: "Callgrind Format Specification" in valgrind's manual. `fl`, `fi` and `fe` name the
//! file of the cost lines that follow, `fn` the function, `cfi` (or `cfl`) and `cfn` the called
//! one, `calls=` how often. Names are written once, as `(ID) NAME`, and then as `(ID)`. A cost line
//! begins with a line number, which may be relative to the last one.

use std::collections::{BTreeSet, HashMap};

/// One function of the program.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Function {
    /// The file it is in.
    pub(super) file: String,
    /// How often it was called.
    pub(super) calls: u64,
    /// Its own lines that ran.
    pub(super) lines: BTreeSet<u64>,
}

/// The functions of a trace, by name.
pub(super) fn parse(text: &str) -> HashMap<String, Function> {
    let mut reader = Reader::default();
    for line in text.lines() {
        reader.read(line);
    }
    reader.functions
}

#[derive(Default)]
struct Reader {
    functions: HashMap<String, Function>,
    files: HashMap<String, String>,
    names: HashMap<String, String>,
    /// The file in which the function of the cost lines begins, and the one they are of.
    home: String,
    file: String,
    function: String,
    called_file: Option<String>,
    called: String,
    line: u64,
}

impl Reader {
    fn read(&mut self, line: &str) {
        match line.split_once('=') {
            Some(("fl", value)) => {
                self.home = named(&mut self.files, value);
                self.file.clone_from(&self.home);
            }
            Some(("fi" | "fe", value)) => self.file = named(&mut self.files, value),
            Some(("fn", value)) => {
                self.function = named(&mut self.names, value);
                let function = self.functions.entry(self.function.clone()).or_default();
                function.file.clone_from(&self.home);
                self.called_file = None;
            }
            Some(("cfi" | "cfl", value)) => {
                self.called_file = Some(named(&mut self.files, value));
            }
            Some(("cfn", value)) => self.called = named(&mut self.names, value),
            Some(("calls", value)) => {
                let file = self.called_file.take().unwrap_or(self.file.clone());
                let called = self.functions.entry(self.called.clone()).or_default();
                if called.file.is_empty() {
                    called.file = file;
                }
                let count = value.split(' ').next().and_then(|count| count.parse().ok());
                called.calls += count.unwrap_or(0);
            }
            Some(_) => {}
            None => self.cost(line),
        }
    }

    fn cost(&mut self, line: &str) {
        let Some(at) = line.split(' ').next() else {
            return;
        };
        let number = |text: &str| text.parse::<u64>().ok();
        let moved = match at.split_at_checked(1) {
            Some(("+", by)) => number(by).map(|by| self.line.saturating_add(by)),
            Some(("-", by)) => number(by).map(|by| self.line.saturating_sub(by)),
            Some(("*", "")) => Some(self.line),
            _ => number(at),
        };
        let Some(moved) = moved else {
            return;
        };
        self.line = moved;
        if self.file == self.home
            && let Some(function) = self.functions.get_mut(&self.function)
        {
            function.lines.insert(moved);
        }
    }
}

/// `(ID) NAME`, which is remembered, or `(ID)`.
fn named(known: &mut HashMap<String, String>, value: &str) -> String {
    match value.split_once(") ") {
        Some((id, name)) => {
            known.insert(format!("{id})"), name.to_owned());
            name.to_owned()
        }
        None => known
            .get(value)
            .cloned()
            .unwrap_or_else(|| value.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_added_up_and_lines_are_those_of_the_functions_own_file() {
        let text = "events: Ir\n\nfl=(1) /a/one.rs\nfn=(1) one\n10 5\n+2 3\n\
                    fi=(2) /a/inlined.rs\n100 1\nfe=(1)\n-1 2\n\
                    cfi=(3) /a/two.rs\ncfn=(2) two\ncalls=4 7\n* 50\n\n\
                    fl=(3)\nfn=(2)\n7 1\ncfi=(1)\ncfn=(1)\ncalls=2 10\n+1 9\n\
                    cfn=(2)\ncalls=1 7\n9 1\n";
        let functions = parse(text);
        assert_eq!(functions.len(), 2);
        let one = &functions["one"];
        assert_eq!((one.file.as_str(), one.calls), ("/a/one.rs", 2));
        assert!(one.lines.contains(&10) && one.lines.contains(&12));
        assert!(!one.lines.contains(&100));
        let two = &functions["two"];
        assert_eq!((two.file.as_str(), two.calls), ("/a/two.rs", 5));
        assert_eq!(two.lines, BTreeSet::from([7, 8, 9]));
    }
}
