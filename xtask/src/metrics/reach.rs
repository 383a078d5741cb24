//! How many fields a function can reach: those that its file may name, of all that it is given.
//!
//! It is given what the types of its parameters name, `self` among them. Of each struct of the
//! crate among these the fields count that the function's file may name, and each is followed to
//! what its type names in turn. An enum is followed and has no fields to count: one sees a variant
//! at a time. What a method of another folder does with its own private fields is out of reach,
//! which is why a part that keeps its state to itself makes the number small.
//!
//! Values are not taken apart: a struct of numbers, flags and times says one thing, and counts as
//! the field that holds it, as a `Duration` does. So `Limits`, of which each field is a number, is
//! one field.
//!
//! Types are known by name: the one in the same file, else the one that the file imports by that
//! name, else the only one in the crate, unless it imports the name from another crate.

use std::collections::{BTreeMap, HashMap, HashSet};

use syn::visit::Visit;

use super::imports::Module;
use crate::style::source::Source;

/// A field, or what a variant holds.
struct Field {
    /// The module within which it may be named.
    visible_in: Module,
    /// The names in its type.
    names: Vec<String>,
}

/// What the fields of a value are made of.
const PLAIN: [&str; 13] = [
    "bool", "char", "u8", "u16", "u32", "u64", "usize", "i32", "i64", "f64", "Duration", "Instant",
    // Of a table: two numbers.
    "Key",
];

/// What the place of a type of another crate begins with.
const OTHER_CRATE: &str = "::";

/// A struct or an enum.
struct Type {
    file: usize,
    name: String,
    is_struct: bool,
    fields: Vec<Field>,
}

impl Type {
    /// See the module.
    fn is_value(&self) -> bool {
        let mut names = self.fields.iter().flat_map(|field| &field.names);
        self.is_struct && names.all(|name| PLAIN.contains(&name.as_str()))
    }
}

/// What a function reaches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reached {
    pub(super) function: String,
    /// The fields of each struct.
    of: Vec<(String, usize)>,
}

impl Reached {
    /// The fields of one struct.
    #[cfg(test)]
    pub(super) fn of(name: &str, fields: usize) -> Reached {
        Reached {
            function: "a".into(),
            of: vec![(name.into(), fields)],
        }
    }

    pub(super) fn fields(&self) -> usize {
        self.of.iter().map(|(_, fields)| fields).sum()
    }

    /// The structs with most fields first.
    pub(super) fn parts(&self) -> String {
        let mut of = self.of.clone();
        of.sort_by_key(|(_, fields)| std::cmp::Reverse(*fields));
        let parts: Vec<String> = of
            .iter()
            .map(|(name, fields)| format!("{name} {fields}"))
            .collect();
        parts.join(", ")
    }
}

/// A function with a body or without.
struct Function {
    file: usize,
    name: String,
    /// The names in the types of its parameters.
    names: Vec<String>,
}

/// What a crate's files declare.
#[derive(Default)]
pub(super) struct Reach {
    modules: Vec<Module>,
    types: Vec<Type>,
    by_name: HashMap<String, Vec<usize>>,
    functions: Vec<Function>,
    /// By file: what is imported under which name, from which module.
    imported: Vec<HashMap<String, Vec<String>>>,
}

impl Reach {
    /// Reads the files of a crate, which are parsed.
    pub(super) fn read(files: &[(Module, &Source)], parsed: &[syn::File]) -> Self {
        let mut reach = Self::default();
        for (file, ((module, source), parsed)) in files.iter().zip(parsed).enumerate() {
            reach.modules.push(module.clone());
            reach.imported.push(HashMap::new());
            let mut collector = Collector {
                source,
                file,
                of: None,
                reach: &mut reach,
            };
            collector.visit_file(parsed);
        }
        reach
    }

    /// For each folder of the crate, the function that reaches most.
    pub(super) fn largest(&self) -> BTreeMap<String, Reached> {
        let mut largest: BTreeMap<String, Reached> = BTreeMap::new();
        for function in &self.functions {
            let module = &self.modules[function.file];
            let folder = module.first().cloned().unwrap_or_default();
            let found = self.reached_by(function);
            let kept = largest.entry(folder).or_default();
            if found.fields() > kept.fields() {
                *kept = found;
            }
        }
        largest
    }

    fn reached_by(&self, function: &Function) -> Reached {
        let from = &self.modules[function.file];
        let mut reached = Reached {
            function: function.name.clone(),
            of: Vec::new(),
        };
        let mut seen = HashSet::new();
        let mut pending: Vec<usize> = self.named(function.file, &function.names).collect();
        while let Some(number) = pending.pop() {
            let found = &self.types[number];
            if !seen.insert(number) || found.is_value() {
                continue;
            }
            let visible = |field: &&Field| from.starts_with(&field.visible_in);
            let fields = found.fields.iter().filter(visible);
            let count = fields.clone().count();
            pending.extend(fields.flat_map(|field| self.named(found.file, &field.names)));
            if found.is_struct && count > 0 {
                reached.of.push((found.name.clone(), count));
            }
        }
        reached
    }

    /// The types that these names mean in this file.
    fn named<'a>(&'a self, file: usize, names: &'a [String]) -> impl Iterator<Item = usize> + 'a {
        names.iter().filter_map(move |name| {
            let found = self.by_name.get(name)?;
            let here = found.iter().find(|it| self.types[**it].file == file);
            let from = self.imported[file].get(name);
            if from.is_some_and(|from| from.first().is_some_and(|it| it == OTHER_CRATE)) {
                return None;
            }
            let imported = found.iter().find(|it| {
                let module = &self.modules[self.types[**it].file];
                from.is_some_and(|from| !from.is_empty() && module.ends_with(from))
            });
            let only = found.first().filter(|_| found.len() == 1);
            here.or(imported).or(only).copied()
        })
    }
}

/// Walks a file.
struct Collector<'a> {
    source: &'a Source,
    file: usize,
    /// The type whose methods these are.
    of: Option<(String, Vec<String>)>,
    reach: &'a mut Reach,
}

impl Collector<'_> {
    fn add(&mut self, name: &syn::Ident, is_struct: bool, fields: Vec<Field>) {
        if self.source.is_test(name.span().start().line) {
            return;
        }
        let number = self.reach.types.len();
        self.reach.types.push(Type {
            file: self.file,
            name: name.to_string(),
            is_struct,
            fields,
        });
        let of_name = self.reach.by_name.entry(name.to_string()).or_default();
        of_name.push(number);
    }

    fn visible_in(&self, visibility: &syn::Visibility) -> Module {
        let here = &self.reach.modules[self.file];
        let above = |count: usize| here[..here.len().saturating_sub(count)].to_vec();
        match visibility {
            syn::Visibility::Public(_) => Module::new(),
            syn::Visibility::Inherited => here.clone(),
            syn::Visibility::Restricted(restricted) => {
                let segments = restricted.path.segments.iter();
                let names: Vec<String> = segments.map(|it| it.ident.to_string()).collect();
                match names.first().map(String::as_str) {
                    Some("self") => here.clone(),
                    Some("super") => above(names.len()),
                    _ => names[1..].to_vec(),
                }
            }
        }
    }

    fn function(&mut self, signature: &syn::Signature) {
        if self.source.is_test(signature.ident.span().start().line) {
            return;
        }
        let mut names = Vec::new();
        let mut name = signature.ident.to_string();
        for input in &signature.inputs {
            match (input, &self.of) {
                (syn::FnArg::Receiver(_), Some((_, own))) => names.extend(own.iter().cloned()),
                (syn::FnArg::Receiver(_), None) => {}
                (syn::FnArg::Typed(typed), _) => names.extend(names_in(&typed.ty)),
            }
        }
        if let Some((of, _)) = &self.of {
            name = format!("{of}::{name}");
        }
        self.reach.functions.push(Function {
            file: self.file,
            name,
            names,
        });
    }

    fn import(&mut self, tree: &syn::UseTree, before: &[String]) {
        match tree {
            syn::UseTree::Path(path) => {
                let name = path.ident.to_string();
                let is_place = !["crate", "self", "super"].contains(&name.as_str());
                let next = is_place.then_some(name);
                let module: Vec<String> = before.iter().cloned().chain(next).collect();
                self.import(&path.tree, &module);
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, before);
                }
            }
            syn::UseTree::Name(name) => {
                let known_as = name.ident.to_string();
                self.reach.imported[self.file].insert(known_as, before.to_vec());
            }
            syn::UseTree::Glob(_) | syn::UseTree::Rename(_) => {}
        }
    }
}

impl<'ast> Visit<'ast> for Collector<'_> {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_ours = match &item.tree {
            syn::UseTree::Path(path) => ["crate", "self", "super"]
                .iter()
                .any(|ours| path.ident == ours),
            _ => false,
        };
        let before = match is_ours {
            true => Vec::new(),
            false => vec![OTHER_CRATE.to_owned()],
        };
        self.import(&item.tree, &before);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let field = |field: &syn::Field| Field {
            visible_in: self.visible_in(&field.vis),
            names: names_in(&field.ty),
        };
        let fields = item.fields.iter().map(field).collect();
        self.add(&item.ident, true, fields);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        let held = item.variants.iter().flat_map(|variant| &variant.fields);
        let field = |field: &syn::Field| Field {
            visible_in: Module::new(),
            names: names_in(&field.ty),
        };
        let fields = held.map(field).collect();
        self.add(&item.ident, false, fields);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let names = names_in(&item.self_ty);
        let of = names.first().cloned().unwrap_or_default();
        let outer = self.of.replace((of, names));
        syn::visit::visit_item_impl(self, item);
        self.of = outer;
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        self.function(signature);
    }
}

/// The last names of all paths in a type.
fn names_in(found: &syn::Type) -> Vec<String> {
    struct Names(Vec<String>);
    impl<'ast> Visit<'ast> for Names {
        fn visit_path(&mut self, path: &'ast syn::Path) {
            let last = path.segments.last();
            self.0.extend(last.map(|it| it.ident.to_string()));
            syn::visit::visit_path(self, path);
        }
    }
    let mut names = Names(Vec::new());
    names.visit_type(found);
    names.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest reach in each folder of a crate whose files are given by module and text.
    fn largest(files: &[(&str, &str)]) -> Vec<(String, usize, String)> {
        let source = |path: &str, text| {
            let path = format!("{}.rs", path.replace("::", "/"));
            Source::new(path.as_ref(), text).expect("Rust")
        };
        let sources: Vec<Source> = files
            .iter()
            .map(|(path, text)| source(path, text))
            .collect();
        let modules = files
            .iter()
            .map(|(path, _)| path.split("::").map(String::from).collect::<Module>());
        let parsed: Vec<syn::File> = files
            .iter()
            .map(|(_, text)| syn::parse_file(text).expect("Rust"))
            .collect();
        let files: Vec<_> = modules.zip(&sources).collect();
        let largest = Reach::read(&files, &parsed).largest();
        let each = largest.into_iter();
        each.map(|(folder, reached)| (folder, reached.fields(), reached.function))
            .collect()
    }

    fn found(folder: &str, fields: usize, name: &str) -> (String, usize, String) {
        (folder.to_owned(), fields, name.to_owned())
    }

    #[test]
    fn private_fields_of_another_folder_are_out_of_reach() {
        let part = "pub(crate) struct Part { a: Vec<u8>, b: Inner } struct Inner { c: Vec<u8> }
            impl Part { fn all(&self) {} }";
        let whole =
            "struct Whole { part: Box<Part>, d: Vec<u8> } impl Whole { fn turn(&mut self) {} }";
        assert_eq!(
            largest(&[("memory", part), ("network", whole)]),
            [
                found("memory", 3, "Part::all"),
                found("network", 2, "Whole::turn")
            ]
        );
        let open = part.replace("a: Vec", "pub(crate) a: Vec");
        let reached = largest(&[("memory", &open), ("network", whole)]);
        assert_eq!(reached[1], found("network", 3, "Whole::turn"));
    }

    #[test]
    fn visibility_counts_modules() {
        let part =
            "pub struct Part { pub(super) a: String, pub(in crate::x) b: u8, pub(self) c: u8 }";
        let near = "fn near(part: &mut Part) {}";
        let far = "fn far(part: Option<&Part>) {}";
        assert_eq!(
            largest(&[("x::y::part", part), ("x::y::near", near), ("z", far)]),
            [found("x", 2, "near"), found("z", 0, "")]
        );
        let reached = largest(&[("x::y::part", part), ("x::other", near)]);
        assert_eq!(reached, [found("x", 1, "near")]);
    }

    #[test]
    fn all_parameters_count_each_type_once_and_enums_are_followed() {
        let text = "struct A { a: u8, b: State } enum State { On(B), Off } struct B { c: String }
            impl A { fn both(&self, other: &A, b: [B; 2]) {} fn none(a: u8) {} }";
        assert_eq!(largest(&[("x", text)]), [found("x", 3, "A::both")]);
    }

    #[test]
    fn a_name_means_the_own_type_then_the_imported_one() {
        let a = "pub struct State { pub a: String }";
        let b = "pub struct State { pub a: String, pub b: u8 }";
        let user = "use crate::b::State; fn user(state: &State) {}";
        let own = "struct State {} use crate::b::{State as Other}; fn own(state: &State) {}";
        assert_eq!(
            largest(&[("a", a), ("b", b), ("c", user), ("d", own)]),
            [found("c", 2, "user"), found("d", 0, "")]
        );
    }

    #[test]
    fn a_value_is_one_field_and_what_another_crate_has_is_none_of_ours() {
        let value = "pub struct Limits { pub a: u8, pub b: Duration }";
        let whole = "struct Whole { limits: Limits, c: u8 } fn whole(whole: &Whole) {}";
        let files = [("limits", value), ("network", whole)];
        assert_eq!(largest(&files), [found("network", 2, "whole")]);
        let open = "pub struct Limits { pub a: u8, pub b: String }";
        let files = [("limits", open), ("network", whole)];
        assert_eq!(largest(&files), [found("network", 4, "whole")]);
        let other = format!("use other::Limits; {whole}");
        let files = [("limits", open), ("network", other.as_str())];
        assert_eq!(largest(&files), [found("network", 2, "whole")]);
    }

    #[test]
    fn the_parts_of_a_reach_are_named_the_largest_first() {
        let of = vec![("A".to_owned(), 1), ("B".to_owned(), 3)];
        let reached = Reached {
            function: "both".into(),
            of,
        };
        assert_eq!((reached.fields(), reached.parts()), (4, "B 3, A 1".into()));
    }
}
