//! Reading what a Rust test binary prints: how many tests ran, and which failed.
//!
//! A filter that matches nothing passes silently; a command that proves something must count what
//! ran.

/// What the test binaries of one run reported.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TestSummary {
    /// Tests that passed.
    pub(crate) passed: u32,
    /// Tests that failed.
    pub(crate) failed: u32,
    /// Tests that were left out, as Miri's that need the kernel.
    pub(crate) ignored: u32,
}

impl TestSummary {
    /// Adds up the result lines in `lines`.
    pub(crate) fn of(lines: &[String]) -> Self {
        let mut summary = Self::default();
        for line in lines {
            let Some(figures) = line.trim_start().strip_prefix("test result: ") else {
                continue;
            };
            summary.passed += figure(figures, " passed");
            summary.failed += figure(figures, " failed");
            summary.ignored += figure(figures, " ignored");
        }
        summary
    }

    /// How many tests ran.
    pub(crate) fn ran(&self) -> u32 {
        self.passed + self.failed
    }
}

/// The number in front of `unit`, or 0.
fn figure(figures: &str, unit: &str) -> u32 {
    let before = figures.split(unit).next().unwrap_or_default();
    before
        .rsplit(' ')
        .next()
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(0)
}

/// What a failing test says first: the line after `panicked at`. That a destructor panicked as well
/// is no reason, nor the place of the next panic, unless there is no other.
pub(crate) fn first_panic(lines: &[String]) -> Option<String> {
    let places = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| line.contains("panicked at"));
    let said = places.filter_map(|(at, _)| {
        let said = lines[at + 1..]
            .iter()
            .find(|line| !line.trim().is_empty())?;
        Some(said.trim().to_string())
    });
    let said: Vec<String> = said.collect();
    let reason = said
        .iter()
        .find(|line| !line.contains("panic in a destructor") && !line.contains("panicked at"));
    reason.or(said.first()).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(String::from).collect()
    }

    #[test]
    fn several_binaries_are_added_up() {
        let output = lines(
            "running 2 tests\n\
             test result: ok. 2 passed; 0 failed; 1 ignored; 7 filtered out\n\
             test result: FAILED. 1 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out",
        );
        assert_eq!(
            TestSummary::of(&output),
            TestSummary {
                passed: 3,
                failed: 3,
                ignored: 1
            }
        );
        assert_eq!(TestSummary::of(&output).ran(), 6);
    }

    #[test]
    fn an_empty_filter_counts_as_nothing_ran() {
        let output = lines("test result: ok. 0 passed; 0 failed; 0 ignored; 9 filtered out");
        assert_eq!(TestSummary::of(&output).ran(), 0);
    }

    #[test]
    fn the_first_panic_is_the_line_after_its_place() {
        let output = lines(
            "thread 'stack::tests::loom_pop' (12) panicked at structures/src/stack.rs:40:9:\n\
             slot 1 is owned twice\n\
             note: run with `RUST_BACKTRACE=1`",
        );
        assert_eq!(
            first_panic(&output).as_deref(),
            Some("slot 1 is owned twice")
        );
        assert_eq!(first_panic(&lines("all well")), None);
        let second = lines("x panicked at a:\npanic in a destructor during cleanup\n");
        assert!(first_panic(&second).is_some());
        let both = [second, lines("y panicked at b:\n"), output].concat();
        assert_eq!(first_panic(&both).as_deref(), Some("slot 1 is owned twice"));
    }
}
