//! A page of Markdown as its fenced blocks, and a `console` block as its commands.

use std::fs;
use std::path::{Path, PathBuf};

/// One file.
pub(crate) struct Page {
    /// Its path from the root of the repository.
    pub(crate) name: String,
    pub(crate) text: String,
}

/// A fenced block.
pub(crate) struct Block<'a> {
    /// Of its fence, from 1.
    pub(crate) line: usize,
    /// The first word of the info string.
    pub(crate) language: &'a str,
    /// The others, `key=value` each; `key-value` where rustdoc reads them too.
    marks: Vec<(&'a str, &'a str)>,
    pub(crate) lines: Vec<&'a str>,
}

/// One command and the output that the page shows for it.
pub(crate) struct Step {
    pub(crate) line: usize,
    pub(crate) command: String,
    pub(crate) output: Vec<String>,
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// README, `docs/`, the book and the list of examples.
pub(crate) fn all() -> Vec<Page> {
    let root = root();
    let mut paths = vec![root.join("README.md")];
    for folder in ["docs", "book/src", "examples"] {
        collect(&root.join(folder), &mut paths);
    }
    paths.sort();
    let page = |path: PathBuf| Page {
        name: path
            .strip_prefix(&root)
            .expect("below")
            .display()
            .to_string(),
        text: fs::read_to_string(&path).expect("a page is text"),
    };
    paths.into_iter().map(page).collect()
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder is there").flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            paths.push(path);
        }
    }
}

/// The commands of a page that are run.
pub(crate) fn commands(text: &str) -> Vec<Step> {
    let blocks = blocks(text).into_iter().filter(Block::is_run);
    blocks.flat_map(|block| block.steps()).collect()
}

/// The targets of the links of a page, without those in fenced blocks.
pub(crate) fn links(text: &str) -> Vec<&str> {
    // What is between fences is every other part.
    let prose = text.split("```").step_by(2);
    let links = prose.flat_map(|part| part.split("](").skip(1));
    links
        .filter_map(|rest| rest.split([')', ' ']).next())
        .collect()
}

/// The fenced blocks of a page, in order.
pub(crate) fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut is_open = false;
    for (index, line) in text.lines().enumerate() {
        let Some(info) = line.trim_start().strip_prefix("```") else {
            if let (true, Some(block)) = (is_open, blocks.last_mut()) {
                block.lines.push(line);
            }
            continue;
        };
        is_open = !is_open;
        if is_open {
            let mut words = info.split(',').map(str::trim);
            blocks.push(Block {
                line: index + 1,
                language: words.next().unwrap_or_default(),
                marks: words
                    .map(|word| word.split_once(['=', '-']).unwrap_or((word, "")))
                    .collect(),
                lines: Vec::new(),
            });
        }
    }
    blocks
}

impl Block<'_> {
    /// The value of a mark, such as `needs=root`.
    pub(crate) fn mark(&self, key: &str) -> Option<&str> {
        let mut marks = self.marks.iter();
        marks.find_map(|(name, value)| (*name == key).then_some(*value))
    }

    /// Whether its commands can be run by a test.
    pub(crate) fn is_run(&self) -> bool {
        self.language == "console" && self.mark("needs").is_none()
    }

    /// Its commands: a line after `$ `, with the next one as long as it ends in a backslash.
    pub(crate) fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        for (index, line) in self.lines.iter().enumerate() {
            let line = line.trim_end();
            let continued = steps.last_mut().filter(|step| step.command.ends_with('\\'));
            if let Some(command) = line.strip_prefix("$ ") {
                steps.push(Step {
                    line: self.line + index + 1,
                    command: command.to_string(),
                    output: Vec::new(),
                });
            } else if let Some(step) = continued {
                step.command.pop();
                step.command.push_str(line.trim_start());
            } else if let Some(step) = steps.last_mut().filter(|_| !line.is_empty()) {
                step.output.push(line.to_string());
            }
        }
        steps
    }
}
