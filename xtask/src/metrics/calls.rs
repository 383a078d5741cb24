//! Which file of a crate calls functions of which other, and the circles among them.
//!
//! An edge leads from file A to file B when code of A names a method, an associated function or a
//! plain function that B implements. A method that is called through a trait stands where the trait
//! is declared. Imports show no such edge for methods: a call of one needs none. What is for tests
//! only is left out.
//!
//! A method is found by the type of what it is called on, as far as `caller.rs` and `types.rs`
//! follow it through fields, parameters, `let`, patterns and results. Where the type is unknown, a
//! method counts if no other type of the crate has one of its name, and the name is not a common
//! one.
//!
//! Missed are other calls on an unknown type (their number is printed), and what runs by an
//! operator, by `Drop`, or as a closure of another file. A method of a foreign type with a name of
//! ours on an unknown type may add an edge.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::graph::DiGraph;

use super::imports::{Imports, Module};
use super::types::Types;
use crate::style::source::Source;

mod caller;

use caller::Caller;

/// A circle of files, with the calls between them.
pub(super) struct Circle<'a> {
    pub(super) files: Vec<&'a str>,
    /// Without these calls the files would be in an order: from, to, what is called where.
    pub(super) closing: Vec<(&'a str, &'a str, &'a Called)>,
}

/// What one file calls in another: `Type::name`, and the lines of the calls.
pub(super) type Called = BTreeMap<String, Vec<usize>>;

/// The files of one crate and the calls between them.
pub(super) struct Calls {
    /// By number: the path as given.
    files: Vec<String>,
    edges: BTreeMap<(usize, usize), Called>,
    /// Calls of methods that lead to a method of the crate.
    pub(super) followed: usize,
    /// Calls of a name that methods of the crate have, on an unknown type.
    pub(super) missed: usize,
}

impl Calls {
    /// Reads the files of a crate, parsed, whose imports are known.
    pub(super) fn read(
        files: &[(Module, &Source)],
        parsed: &[syn::File],
        imports: &Imports,
    ) -> Self {
        let types = Types::read(files, parsed, &imports.names);
        let mut calls = Self {
            files: files
                .iter()
                .map(|(_, source)| source.path.clone())
                .collect(),
            edges: BTreeMap::new(),
            followed: 0,
            missed: 0,
        };
        for (file, ((_, source), parsed)) in files.iter().zip(parsed).enumerate() {
            Caller::walk(file, source, parsed, &types, &mut calls);
        }
        calls
    }

    /// The circles, the largest first.
    pub(super) fn circles(&self) -> Vec<Circle<'_>> {
        let mut graph = DiGraph::<usize, ()>::new();
        let nodes: Vec<_> = (0..self.files.len())
            .map(|file| graph.add_node(file))
            .collect();
        for (from, to) in self.edges.keys() {
            graph.add_edge(nodes[*from], nodes[*to], ());
        }
        let components = petgraph::algo::tarjan_scc(&graph);
        let circles = components.into_iter().filter(|one| one.len() > 1);
        let mut circles: Vec<_> = circles
            .map(|component| self.circle(component.iter().map(|node| graph[*node]).collect()))
            .collect();
        circles.sort_by_key(|circle| (usize::MAX - circle.files.len(), circle.files[0]));
        circles
    }

    fn circle(&self, members: BTreeSet<usize>) -> Circle<'_> {
        let mut graph = DiGraph::<usize, &(usize, usize)>::new();
        let nodes: BTreeMap<usize, _> = members
            .iter()
            .map(|file| (*file, graph.add_node(*file)))
            .collect();
        for edge @ (from, to) in self.edges.keys() {
            if let (Some(from), Some(to)) = (nodes.get(from), nodes.get(to)) {
                graph.add_edge(*from, *to, edge);
            }
        }
        let closing = petgraph::algo::greedy_feedback_arc_set(&graph);
        let closing: BTreeSet<_> = closing.map(|edge| *edge.weight()).collect();
        let name = |file: usize| self.files[file].as_str();
        Circle {
            files: members.iter().map(|file| name(*file)).collect(),
            closing: closing
                .into_iter()
                .map(|edge| (name(edge.0), name(edge.1), &self.edges[edge]))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::imports::tests::parsed;
    use super::*;

    fn read(files: &[(&str, &str)]) -> Calls {
        parsed(files, |files, parsed| {
            Calls::read(files, parsed, &Imports::read(files, parsed))
        })
    }

    /// The files of each circle, and what closes it.
    fn circles(files: &[(&str, &str)]) -> Vec<(Vec<String>, Vec<String>)> {
        let calls = read(files);
        let circles = calls.circles().into_iter().map(|circle| {
            let closing = circle
                .closing
                .iter()
                .flat_map(|(_, _, called)| called.keys());
            let names = circle.files.iter().map(ToString::to_string);
            (names.collect(), closing.cloned().collect())
        });
        circles.collect()
    }

    /// A type of which two files implement a part, as `Network` of the engine.
    const PARTS: [(&str, &str); 3] = [
        ("", "mod thread; mod accept; mod send;"),
        (
            "thread",
            "pub(crate) struct Thread { list: Vec<Entry> } struct Entry;
             impl Thread { fn turn(&mut self) { self.admit(); } }
             impl Entry { fn new(&self) {} }",
        ),
        (
            "accept",
            "use crate::thread::Thread; impl Thread { fn admit(&mut self) { self.turn(); } }",
        ),
    ];

    #[test]
    fn files_that_call_each_others_methods_are_a_circle_without_any_import() {
        let send =
            "use crate::thread::Thread; impl Thread { fn send(&mut self) { self.admit(); } }";
        let files = [PARTS[0], PARTS[1], PARTS[2], ("send", send)];
        let circles = circles(&files);
        let (names, closing) = &circles[0];
        assert_eq!(names, &["thread.rs", "accept.rs"]);
        assert_eq!((circles.len(), closing.len()), (1, 1));
    }

    #[test]
    fn a_call_is_followed_through_fields_parameters_variables_and_results() {
        for call in [
            "fn f(&self) { self.owned.act(); }",
            "fn f(&self) { for one in &self.many { one.act(); } }",
            "fn f(&self) { let Some(one) = self.many.first() else { return }; one.act(); }",
            "fn f(&self) { self.many.iter().for_each(|one| one.act()); }",
            "fn f(&self) { match self.one_of { Of::Them(one) => one.act(), } }",
            "fn f(&self, b: &mut B) { b.act(); }",
            "fn f<T: Deref<Target = B>>(&self) { let b = B::new(); assert!(b.act()); }",
            "fn f(&self) { self.found().unwrap().act(); }",
            "fn f(&self) { self.many.iter().map(B::act); }",
            "fn f(&self) { unknown(|b| b.only_here()); }",
            "fn f(&self) { super::b::plain(); }",
        ] {
            let a = format!(
                "use super::b::B;
                 pub(super) struct A {{ owned: Box<B>, many: Vec<Arc<B>>, one_of: Of }}
                 enum Of {{ Them(B) }}
                 impl A {{ pub(super) fn new() -> A {{ A }} fn found(&self) -> Option<&B> {{ None }}
                 {call} }}"
            );
            let b = "use super::a::A; pub(super) struct B; pub(super) fn plain() {}
                     impl B { fn new() -> B { B } fn act(&self) { let _ = A::new(); }
                     fn only_here(&self) {} }";
            let c = "struct C; impl C { fn act(&self) {} }";
            let files = [("", "mod a; mod b; mod c;"), ("a", &a), ("b", b), ("c", c)];
            assert_eq!(circles(&files).len(), 1, "{call}");
        }
    }

    #[test]
    fn names_of_foreign_types_and_tests_make_no_edge() {
        for call in [
            "fn f(&self) { self.list.push(3); }",
            "fn f(&self) { unknown(|one| one.len()); }",
            "fn f(&self) { unknown(|one| one.act()); }",
            "#[cfg(test)] fn f(&self, b: &B) { b.act(); }",
        ] {
            let a = format!(
                "use super::b::B; pub(super) struct A {{ list: Vec<u8> }}
                 impl A {{ pub(super) fn new() -> A {{ A }} {call} }}"
            );
            let b = "use super::a::A; pub(super) struct B;
                     impl B { fn push(&self) { A::new(); } fn len(&self) {} fn act(&self) {} }";
            let c = "struct C; impl C { fn act(&self) {} }";
            let files = [("", "mod a; mod b; mod c;"), ("a", &a), ("b", b), ("c", c)];
            assert_eq!(circles(&files), [], "{call}");
        }
    }

    #[test]
    fn a_method_of_a_trait_stands_where_the_trait_is_declared() {
        let files = [
            ("", "mod a; mod b;"),
            (
                "a",
                "pub(crate) trait Driver { fn send(&self); }
                 fn run<D: Driver>(driver: &D) { driver.send(); crate::b::start(); }",
            ),
            (
                "b",
                "use crate::a::Driver; pub(crate) fn start() {} struct Ring;
                 impl Driver for Ring { fn send(&self) {} }",
            ),
        ];
        assert_eq!(circles(&files), []);
        let calls = read(&files);
        assert_eq!((calls.followed, calls.missed), (1, 0));
    }
}
