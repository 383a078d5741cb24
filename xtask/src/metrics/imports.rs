//! Which file of a crate imports from which, and the circles among them.
//!
//! An edge leads from a file to the file that defines what it names: by `use`, or by a path in the
//! code that begins with `crate`, `super`, `self` or a module of its own. Re-exports are followed
//! to the definition, so a root that only re-exports is in no circle. What is for tests only is
//! left out, and so are calls of methods: they need no import.
//!
//! A circle is a strongly connected component of at least two files.

use std::collections::{BTreeSet, HashMap};

use syn::visit::Visit;

use crate::style::source::Source;

/// A module's path below the crate's root; empty for the root.
pub(super) type Module = Vec<String>;

/// A file's imports, as written and completed to paths from the crate's root.
#[derive(Default)]
struct Found {
    /// Absolute paths with the line they stand in.
    paths: Vec<(Vec<String>, usize)>,
    /// What `pub use` and `pub(crate) use` make known under which name.
    exports: HashMap<String, Vec<String>>,
}

/// The files of one crate and their edges.
pub(super) struct Imports {
    /// By number: the path as given.
    files: Vec<String>,
    edges: Vec<BTreeSet<usize>>,
    /// Where a file imports through the crate's root what a sibling defines: file, line, name.
    pub(super) through_root: Vec<(String, usize, String)>,
}

impl Imports {
    /// Reads the files of a crate, which are parsed.
    pub(super) fn read(files: &[(Module, &Source)], parsed: &[syn::File]) -> Self {
        let numbers: HashMap<&Module, usize> =
            files.iter().map(|(module, _)| module).zip(0..).collect();
        let mut found = Vec::new();
        for ((module, source), parsed) in files.iter().zip(parsed) {
            let mut collector = Collector {
                source,
                module: module.clone(),
                inner: 0,
                numbers: &numbers,
                found: Found::default(),
            };
            collector.visit_file(parsed);
            found.push(collector.found);
        }
        let mut imports = Self {
            files: files
                .iter()
                .map(|(_, source)| source.path.clone())
                .collect(),
            edges: vec![BTreeSet::new(); files.len()],
            through_root: Vec::new(),
        };
        for (from, file) in found.iter().enumerate() {
            for (path, line) in &file.paths {
                let Some(to) = definer(path, &numbers, &found) else {
                    continue;
                };
                if to != from {
                    imports.edges[from].insert(to);
                }
                let is_root = |at: usize| files[at].0.is_empty();
                let named_at_root = split(path, &numbers).is_some_and(|(at, _)| is_root(at));
                if named_at_root && !is_root(to) && !is_root(from) {
                    let place = (imports.files[from].clone(), *line, path.join("::"));
                    imports.through_root.push(place);
                }
            }
        }
        imports
    }

    /// The circles, the largest first, each with its files in order.
    pub(super) fn circles(&self) -> Vec<Vec<&str>> {
        let mut graph = petgraph::graph::DiGraph::<usize, ()>::new();
        let nodes: Vec<_> = (0..self.files.len())
            .map(|file| graph.add_node(file))
            .collect();
        for (from, edges) in self.edges.iter().enumerate() {
            for to in edges {
                graph.add_edge(nodes[from], nodes[*to], ());
            }
        }
        let mut circles: Vec<Vec<&str>> = petgraph::algo::tarjan_scc(&graph)
            .into_iter()
            .filter(|component| component.len() > 1)
            .map(|component| {
                let mut files: Vec<&str> = component
                    .iter()
                    .map(|node| self.files[graph[*node]].as_str())
                    .collect();
                files.sort_unstable();
                files
            })
            .collect();
        circles.sort_by_key(|circle| (usize::MAX - circle.len(), circle[0]));
        circles
    }
}

/// The file whose module is the longest beginning of `path`, and the segments behind it.
fn split<'a>(
    path: &'a [String],
    numbers: &HashMap<&Module, usize>,
) -> Option<(usize, &'a [String])> {
    let longest = (0..=path.len())
        .rev()
        .find(|end| numbers.contains_key(&path[..*end].to_vec()))?;
    let file = numbers.get(&path[..longest].to_vec())?;
    Some((*file, &path[longest..]))
}

/// The file that defines what `path` names, with re-exports followed.
fn definer(path: &[String], numbers: &HashMap<&Module, usize>, found: &[Found]) -> Option<usize> {
    const REEXPORTS_MAX: usize = 8;
    let mut path = path.to_vec();
    for _ in 0..REEXPORTS_MAX {
        let (file, rest) = split(&path, numbers)?;
        let Some(name) = rest.first() else {
            return Some(file);
        };
        let Some(target) = found[file].exports.get(name) else {
            return Some(file);
        };
        // A name from another crate is defined in none of these files.
        if target.is_empty() {
            return None;
        }
        if *target == path {
            return Some(file);
        }
        path = target.iter().chain(&rest[1..]).cloned().collect();
    }
    split(&path, numbers).map(|(file, _)| file)
}

/// Walks a file.
struct Collector<'a> {
    source: &'a Source,
    module: Module,
    /// Modules within the file around the place.
    inner: usize,
    numbers: &'a HashMap<&'a Module, usize>,
    found: Found,
}

impl Collector<'_> {
    /// The path from the crate's root; `None` for one into another crate or to something local.
    fn complete(&self, path: &[String]) -> Option<Vec<String>> {
        let (first, mut rest) = path.split_first()?;
        let mut base = match first.as_str() {
            "crate" => Vec::new(),
            "self" => self.module.clone(),
            "super" => self.above(1)?,
            name => {
                let mut child = self.module.clone();
                child.push(name.to_string());
                if self.inner > 0 || !self.numbers.contains_key(&child) {
                    return None;
                }
                return Some(self.module.iter().chain(path).cloned().collect());
            }
        };
        let mut supers = 1;
        while first == "super" && rest.first().is_some_and(|next| next == "super") {
            supers += 1;
            rest = &rest[1..];
            base = self.above(supers)?;
        }
        base.extend(rest.iter().cloned());
        Some(base)
    }

    fn above(&self, supers: usize) -> Option<Module> {
        let outside = supers.saturating_sub(self.inner);
        let length = self.module.len().checked_sub(outside)?;
        Some(self.module[..length].to_vec())
    }

    fn note(&mut self, path: &[String], line: usize) {
        if let Some(path) = self.complete(path).filter(|_| !self.source.is_test(line)) {
            self.found.paths.push((path, line));
        }
    }

    fn walk(&mut self, tree: &syn::UseTree, before: &[String], is_public: bool) {
        let with = |ident: &syn::Ident| -> Vec<String> {
            before.iter().cloned().chain([ident.to_string()]).collect()
        };
        match tree {
            syn::UseTree::Path(path) => self.walk(&path.tree, &with(&path.ident), is_public),
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.walk(tree, before, is_public);
                }
            }
            syn::UseTree::Glob(glob) => self.note(before, glob.star_token.span.start().line),
            syn::UseTree::Name(name) if name.ident == "self" => {
                let known_as = before.last().map_or("self", String::as_str);
                self.import(before, known_as, &name.ident, is_public);
            }
            syn::UseTree::Name(name) => {
                let known_as = name.ident.to_string();
                self.import(&with(&name.ident), &known_as, &name.ident, is_public);
            }
            syn::UseTree::Rename(rename) => {
                let known_as = rename.rename.to_string();
                self.import(&with(&rename.ident), &known_as, &rename.ident, is_public);
            }
        }
    }

    fn import(&mut self, path: &[String], known_as: &str, place: &syn::Ident, is_public: bool) {
        self.note(path, place.span().start().line);
        if self.inner == 0 && is_public {
            let target = self.complete(path).unwrap_or_default();
            self.found.exports.insert(known_as.to_owned(), target);
        }
    }
}

impl<'ast> Visit<'ast> for Collector<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.inner += 1;
        syn::visit::visit_item_mod(self, item);
        self.inner -= 1;
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_public = !matches!(item.vis, syn::Visibility::Inherited);
        self.walk(&item.tree, &[], is_public);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            let names: Vec<String> = path
                .segments
                .iter()
                .map(|segment| segment.ident.to_string())
                .collect();
            self.note(&names, path.segments[0].ident.span().start().line);
        }
        syn::visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The imports of a crate whose files are given by module and text.
    fn read(files: &[(&str, &str)]) -> Imports {
        let source = |path: String, text| Source::new(path.as_ref(), text).expect("Rust");
        let sources: Vec<Source> = files
            .iter()
            .map(|(module, text)| source(format!("{module}.rs"), text))
            .collect();
        let modules = files.iter().map(|(module, _)| -> Module {
            let parts = module.split("::").filter(|part| !part.is_empty());
            parts.map(String::from).collect()
        });
        let parse = |(_, text): &(&str, &str)| syn::parse_file(text).expect("Rust");
        let parsed: Vec<syn::File> = files.iter().map(parse).collect();
        let files: Vec<_> = modules.zip(&sources).collect();
        Imports::read(&files, &parsed)
    }

    #[test]
    fn files_that_import_each_other_are_a_circle() {
        let imports = read(&[
            ("", "mod a; mod b; mod c; mod d;"),
            ("a", "use crate::b::B; pub(super) struct A;"),
            ("b", "pub(super) struct B; fn b() { let _ = super::c::C; }"),
            ("c", "pub(super) struct C; use crate::a::A as Other;"),
            ("d", "use crate::{a::A, b::{self, B}};"),
        ]);
        assert_eq!(imports.circles(), [["a.rs", "b.rs", "c.rs"]]);
        assert_eq!(imports.through_root, []);
    }

    #[test]
    fn a_parent_that_uses_its_child_and_is_used_by_it_is_one_too() {
        let imports = read(&[
            ("", "mod a;"),
            ("a", "mod b; use b::B; pub(super) struct A;"),
            ("a::b", "use super::A; pub(super) struct B;"),
        ]);
        assert_eq!(imports.circles(), [["a.rs", "a::b.rs"]]);
    }

    #[test]
    fn an_import_through_the_root_leads_to_the_file_that_defines() {
        let imports = read(&[
            ("", "mod a; mod b; pub use a::A; pub use other::Other;"),
            ("a", "use crate::b::B; pub(super) struct A;"),
            ("b", "use crate::A; use crate::Other; pub(super) struct B;"),
        ]);
        assert_eq!(imports.circles(), [["a.rs", "b.rs"]]);
        let through = [("b.rs".to_string(), 1, "A".to_string())];
        assert_eq!(imports.through_root, through);
    }

    #[test]
    fn tests_and_other_crates_make_no_edges() {
        let imports = read(&[
            ("", "mod a; mod b;"),
            ("a", "use crate::b::B; use std::io;"),
            (
                "b",
                "pub(super) struct B; #[cfg(all(test, not(loom)))] mod tests { use crate::a::A; }",
            ),
        ]);
        assert!(imports.circles().is_empty());
    }

    #[test]
    fn a_module_within_a_file_looks_up_to_its_file() {
        let imports = read(&[
            ("", "mod a; mod b;"),
            ("a", "pub(super) struct A; use crate::b::B;"),
            (
                "b",
                "pub(super) struct B; mod inner { use super::super::a::A; }",
            ),
        ]);
        assert_eq!(imports.circles(), [["a.rs", "b.rs"]]);
    }
}
