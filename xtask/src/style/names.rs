//! Rules `get-prefix` and `test-name`: what a thing is called.
//!
//! No public function starts with `get_`, but for names that everybody knows from the standard
//! library; a test's name is a sentence.

use super::Fault;
use super::source::Source;

/// The standard library's own.
const WELL_KNOWN: &[&str] = &["get_mut", "get_or_init", "get_or_insert_with"];
/// A sentence has at least so many words.
const TEST_NAME_WORDS_MIN: usize = 3;

pub(super) fn check(source: &Source, faults: &mut Vec<Fault>) {
    for index in (0..source.tokens.len()).filter(|&index| source.word(index) == "fn") {
        let (line, name) = (source.tokens[index].line, source.word(index + 1));
        // Attributes and visibility: what stands after the item before.
        let mut before = source.tokens[..index].iter();
        let start = before.rposition(|token| matches!(token.text.as_str(), ";" | "{" | "}"));
        let mut head = start.map_or(0, |end| end + 1)..index;
        let is_public = head.clone().any(|at| source.word(at) == "pub");
        if name.starts_with("get_") && !WELL_KNOWN.contains(&name) && is_public {
            let message = format!("`{name}`: name what it returns, without `get_`");
            faults.push(source.fault(line, "get-prefix", &message));
        }
        let is_test = head.any(|at| source.spells(at, &["#", "[", "test", "]"]));
        let words = name.split('_').filter(|word| !word.is_empty()).count();
        if is_test && (words < TEST_NAME_WORDS_MIN || name.starts_with("test_")) {
            let message = format!("`{name}`: a test's name is a sentence about what holds");
            faults.push(source.fault(line, "test-name", &message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::faults;
    use super::*;

    fn rules(text: &str) -> Vec<(usize, &'static str)> {
        faults(check, "engine/src/a.rs", text)
    }

    #[test]
    fn a_public_get_is_a_fault() {
        assert_eq!(rules("pub fn get_head(&self) {}"), [(1, "get-prefix")]);
        let head = "pub(crate) const fn get_head(&self) {}";
        assert_eq!(rules(head), [(1, "get-prefix")]);
        let fine = "pub fn head(&self) {}\nfn get_inner() {}\npub fn get(&self) {}";
        assert_eq!(rules(fine), []);
    }

    #[test]
    fn a_test_is_named_by_a_sentence() {
        assert_eq!(rules("#[test]\nfn works() {}"), [(2, "test-name")]);
        let prefixed = "#[test]\n#[should_panic]\nfn test_push_and_pop() {}";
        assert_eq!(rules(prefixed), [(3, "test-name")]);
        let fine = "#[test]\nfn push_to_empty_reports_empty() {}\nfn helper() {}";
        assert_eq!(rules(fine), []);
    }
}
