//! The documents: every command line in them is run, every link leads somewhere.
//!
//! A block of commands that a test cannot run names the reason in its fence: `needs=root`,
//! `needs=build` (it builds for minutes) or `needs=host` (another machine or program). A program
//! with `lines-60` in its fence has 60 lines, without empty ones, comments and what the book hides;
//! one with `of-FILE` stands in that file of the repository, word for word.

mod apart;
mod page;
mod session;

use std::fs;
use std::path::Path;

use flatpath_testkit::{Driver, each_driver};

use page::{Block, Page};
use session::Session;

/// Why a block may be left out. One that can be run is not to be marked.
const REASONS: [&str; 3] = ["root", "build", "host"];

/// Where the repository is on the web: the book, which is read elsewhere, links to files there.
const REPOSITORY: &str = "https://github.com/flatpath/flatpath/blob/main/";

fn run_page(page: &Page, driver: Driver) -> Result<(), String> {
    let mut session = Session::new(driver);
    for block in page::blocks(&page.text) {
        if let Some(name) = block.mark("file") {
            session.write(name, &block);
        }
        if !block.is_run() {
            continue;
        }
        for step in block.steps() {
            match session.run(&step) {
                // A tool that is missing here: what follows may rest on it.
                Err(reason) if reason.is_empty() => return session.finish(),
                result => result.map_err(|reason| {
                    format!("{}:{}: {}: {reason}", page.name, step.line, step.command)
                })?,
            }
        }
    }
    session
        .finish()
        .map_err(|reason| format!("{}: {reason}", page.name))
}

fn every_command_does_what_its_page_says(driver: Driver) {
    let pages = page::all();
    if let Some(name) = apart::page() {
        apart::within();
        let page = pages.iter().find(|page| page.name == name).expect("a page");
        return run_page(page, driver).unwrap_or_else(|why| panic!("{why}"));
    }
    if !apart::can_be() {
        return;
    }
    let thread = std::thread::current();
    let test = thread.name().expect("a test's thread has its name");
    let has_commands = |page: &&Page| !page::commands(&page.text).is_empty();
    let failures: Vec<String> = std::thread::scope(|scope| {
        let runs = pages
            .iter()
            .filter(has_commands)
            .map(|page| scope.spawn(move || apart::run(&page.name, test)));
        // All are started before the first is waited for.
        let runs: Vec<_> = runs.collect();
        let ends = runs.into_iter().map(|run| run.join().expect("no panic"));
        ends.filter_map(Result::err).collect()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

each_driver!(every_command_does_what_its_page_says);

#[test]
fn blocks_are_left_out_for_known_reasons_alone() {
    for page in page::all() {
        for block in page::blocks(&page.text) {
            let reason = block.mark("needs");
            let is_known = reason.is_none_or(|reason| REASONS.contains(&reason));
            assert!(is_known, "{}:{}: needs={reason:?}", page.name, block.line);
        }
    }
}

#[test]
fn programs_are_as_long_as_their_fences_say() {
    let mut counted = 0;
    for page in page::all() {
        for block in page::blocks(&page.text) {
            if let Some(said) = block.mark("lines") {
                let code = |line: &&&str| !matches!(line.trim(), "" | "#") && !is_comment(line);
                let count = block.lines.iter().filter(code).count();
                assert_eq!(said, count.to_string(), "{}:{}", page.name, block.line);
                counted += 1;
            }
        }
    }
    assert!(counted > 1, "the book counts its programs");
}

#[test]
fn programs_of_a_file_are_in_it() {
    let mut compared = 0;
    for page in page::all() {
        for block in page::blocks(&page.text) {
            if let Some(file) = block.mark("of") {
                let program = block.lines.join("\n");
                let text = fs::read_to_string(page::root().join(file)).expect(file);
                assert!(text.contains(&program), "{}:{}", page.name, block.line);
                compared += 1;
            }
        }
    }
    assert!(compared > 1, "the book shows examples of the repository");
}

/// A comment, or a line that the book hides.
fn is_comment(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("//") || line.starts_with("# ")
}

#[test]
fn commands_stand_in_console_blocks_only() {
    let is_command = |line: &str| {
        let programs = [
            "$ ",
            "flatpath ",
            "cargo ",
            "curl ",
            "mount ",
            "kill ",
            "sudo ",
        ];
        programs.iter().any(|program| line.starts_with(program))
    };
    for page in page::all() {
        for block in page::blocks(&page.text) {
            let Block {
                line,
                language,
                lines,
                ..
            } = &block;
            let found = lines.iter().find(|line| is_command(line));
            assert!(
                ["console", "toml"].contains(language) || found.is_none(),
                "{}:{line}: {found:?} is not run",
                page.name
            );
            assert!(
                *language != "console" || !block.steps().is_empty(),
                "{}:{line}: a console without a command",
                page.name
            );
        }
    }
}

#[test]
fn every_relative_link_leads_somewhere() {
    let mut missing = Vec::new();
    for page in page::all() {
        let file = page::root().join(&page.name);
        let folder = file.parent().expect("a file is in a folder");
        for target in page::links(&page.text) {
            let ours = target
                .strip_prefix(REPOSITORY)
                .map(|path| page::root().join(path));
            if target.contains("://") && ours.is_none() {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = match ours {
                Some(path) => path,
                None if path.is_empty() => file.clone(),
                None => folder.join(path),
            };
            if !path.exists() || !anchor.is_empty() && !has_heading(&path, anchor) {
                missing.push(format!("{}: {target}", page.name));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Whether a page has the heading that an anchor names.
fn has_heading(path: &Path, anchor: &str) -> bool {
    let text = fs::read_to_string(path).unwrap_or_default();
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchors = headings.map(|heading| {
        let words = heading
            .trim_start_matches('#')
            .trim()
            .to_lowercase()
            .replace(' ', "-");
        words.replace(
            |letter: char| !letter.is_alphanumeric() && letter != '-',
            "",
        )
    });
    anchors.into_iter().any(|found| found == anchor)
}

#[test]
fn the_summary_of_the_book_names_every_chapter() {
    let pages = page::all();
    let summary = pages.iter().find(|page| page.name == "book/src/SUMMARY.md");
    let summary = &summary.expect("the book has a summary").text;
    for page in &pages {
        let Some(chapter) = page.name.strip_prefix("book/src/") else {
            continue;
        };
        assert!(
            chapter == "SUMMARY.md" || summary.contains(&format!("({chapter})")),
            "{chapter} is not in the summary"
        );
    }
}
