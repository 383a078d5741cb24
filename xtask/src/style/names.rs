//! Rules `get-prefix` and `test-name`: what a thing is called.
//!
//! No public function starts with `get_`, but for names that everybody knows from the standard
//! library; a test's name is a sentence.

use super::Fault;
use super::source::{Source, closing};

/// The standard library's own.
const WELL_KNOWN: &[&str] = &["get_mut", "get_or_init", "get_or_insert_with"];
/// A sentence has at least so many words.
const TEST_NAME_WORDS_MIN: usize = 3;

/// Reports public `get_` functions and tests whose names say nothing.
pub fn check(source: &Source, faults: &mut Vec<Fault>) {
    for index in 0..source.tokens.len() {
        if source.word(index) != "fn" {
            continue;
        }
        let name = source.word(index + 1);
        let fault = if name.starts_with("get_")
            && !WELL_KNOWN.contains(&name)
            && is_public(source, index)
        {
            (
                "get-prefix",
                format!("`{name}`: name what it returns, without `get_`"),
            )
        } else if is_test_function(source, index) && !is_sentence(name) {
            (
                "test-name",
                format!("`{name}`: a test's name is a sentence about what holds"),
            )
        } else {
            continue;
        };
        let (file, line) = (source.path.clone(), source.tokens[index].line);
        faults.push(Fault {
            file,
            line,
            rule: fault.0,
            message: fault.1,
        });
    }
}

fn is_sentence(name: &str) -> bool {
    name.split('_').filter(|word| !word.is_empty()).count() >= TEST_NAME_WORDS_MIN
        && !name.starts_with("test_")
}

/// Whether the words before `fn` hold `pub`.
fn is_public(source: &Source, index: usize) -> bool {
    let before = source.tokens[..index].iter().rev();
    let mut head = before.take_while(|token| !matches!(token.text.as_str(), ";" | "{" | "}"));
    head.any(|token| token.text == "pub")
}

/// Whether an attribute of the function at `index` is `#[test]`.
fn is_test_function(source: &Source, index: usize) -> bool {
    let ends = |text: &str| matches!(text, ";" | "{" | "}");
    let start = source.tokens[..index]
        .iter()
        .rposition(|token| ends(&token.text));
    (start.map_or(0, |end| end + 1)..index).any(|at| {
        source.spells(at, &["#", "[", "test", "]"]) && closing(&source.tokens, at + 1) < index
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn rules(text: &str) -> Vec<(usize, &'static str)> {
        let mut faults = Vec::new();
        check(
            &Source::new(Path::new("engine/src/a.rs"), text),
            &mut faults,
        );
        faults
            .into_iter()
            .map(|fault| (fault.line, fault.rule))
            .collect()
    }

    #[test]
    fn a_public_get_is_a_fault() {
        assert_eq!(rules("pub fn get_head(&self) {}"), [(1, "get-prefix")]);
        assert_eq!(
            rules("pub(crate) const fn get_head(&self) {}"),
            [(1, "get-prefix")]
        );
        assert_eq!(
            rules("pub fn head(&self) {}\nfn get_inner() {}\npub fn get(&self) {}"),
            []
        );
    }

    #[test]
    fn a_test_is_named_by_a_sentence() {
        assert_eq!(rules("#[test]\nfn works() {}"), [(2, "test-name")]);
        assert_eq!(
            rules("#[test]\n#[should_panic]\nfn test_push_and_pop() {}"),
            [(3, "test-name")]
        );
        assert_eq!(
            rules("#[test]\nfn push_to_empty_reports_empty() {}\nfn helper() {}"),
            []
        );
    }
}
