//! The types of a crate with their fields and methods, as far as names show them.
//!
//! This is no type checker. A type is the last name of its path and the file that defines it; its
//! generic arguments count only where they are all that is ours: `Vec<Listener>` is *around* a
//! `Listener`. Types of other crates are all the same: foreign.

use std::collections::{BTreeSet, HashMap};

use syn::visit::Visit;

use super::imports::Module;
use crate::style::source::Source;

/// A type or trait of the crate: its name, and the number of the file that defines it.
pub(super) type Name = (String, usize);

/// What is known of an expression's type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Ours(Name),
    /// A foreign type with one of ours in it, such as an `Option`.
    Around(Name),
    Foreign,
    Unknown,
}

/// Foreign types that stand for what they hold: a method called on them is its method.
const TRANSPARENT: &[&str] = &[
    "Arc",
    "Box",
    "Guard",
    "ManuallyDrop",
    "MutexGuard",
    "Pin",
    "Rc",
    "Ref",
    "RefMut",
];

impl Type {
    /// What is inside, as of an `Option` that was unwrapped.
    pub(super) fn inside(self) -> Self {
        match self {
            Type::Around(name) => Type::Ours(name),
            other => other,
        }
    }

    /// Something foreign with this inside.
    fn around(self) -> Self {
        match self {
            Type::Ours(name) => Type::Around(name),
            other => other,
        }
    }
}

/// The names of a path, with their arguments.
pub(super) type Path<'a> = &'a [&'a syn::PathSegment];

pub(super) fn names(path: &syn::Path) -> Vec<&syn::PathSegment> {
    path.segments.iter().collect()
}

/// Where a type is written: what its names mean there.
#[derive(Clone, Default)]
pub(super) struct Place {
    pub(super) file: usize,
    /// What `Self` is.
    pub(super) home: Option<Name>,
    /// Type parameters, by the first trait that bounds them.
    parameters: HashMap<String, Type>,
}

impl Place {
    /// Outside of every item of a file.
    pub(super) fn outside(file: usize) -> Self {
        Self {
            file,
            ..Self::default()
        }
    }
}

/// A method or an associated function.
pub(super) struct Method {
    /// Where it is implemented: several files for one of a trait, or with `cfg`.
    pub(super) files: BTreeSet<usize>,
    pub(super) returns: Type,
    /// It stands in an `impl` of a type alone or in the trait itself.
    is_own: bool,
}

/// All types of one crate.
pub(super) struct Types<'a> {
    /// Last names of the files' modules.
    modules: Vec<String>,
    /// Per file, what it imports: where it is defined, if in this crate.
    imported: &'a [HashMap<String, Option<usize>>],
    /// Types, traits and functions outside of an `impl`, with the files that define them.
    items: HashMap<String, BTreeSet<usize>>,
    /// By type and name; of an enum by `Variant.name`.
    fields: HashMap<(Name, String), Type>,
    functions: HashMap<Name, Type>,
    methods: HashMap<(Name, String), Method>,
    /// The traits that a type implements, and what it dereferences to.
    above: HashMap<Name, Vec<Type>>,
}

impl<'a> Types<'a> {
    /// Reads the definitions of a crate's files.
    pub(super) fn read(
        files: &[(Module, &Source)],
        parsed: &[syn::File],
        imported: &'a [HashMap<String, Option<usize>>],
    ) -> Self {
        let modules = files.iter().map(|(module, _)| module.last().cloned());
        let mut types = Self {
            modules: modules.map(Option::unwrap_or_default).collect(),
            imported,
            items: HashMap::new(),
            fields: HashMap::new(),
            functions: HashMap::new(),
            methods: HashMap::new(),
            above: HashMap::new(),
        };
        // First the names, since what is defined may name what is defined later.
        for names_only in [true, false] {
            for (file, ((_, source), parsed)) in files.iter().zip(parsed).enumerate() {
                let types = &mut types;
                let mut reader = Reader {
                    types,
                    source,
                    file,
                    names_only,
                };
                reader.visit_file(parsed);
            }
        }
        types
    }

    /// The method that a call on a type runs: its own, one of a trait, or of what it dereferences
    /// to.
    pub(super) fn method(&self, home: &Name, name: &str) -> Option<(&Name, &Method)> {
        let key = (home.clone(), name.to_owned());
        if let Some(((home, _), method)) = self.methods.get_key_value(&key) {
            return Some((home, method));
        }
        let above = self.above.get(home)?.iter();
        above
            .filter_map(|above| match above {
                Type::Ours(above) if above != home => self.method(above, name),
                _ => None,
            })
            .next()
    }

    /// The only method of this name in the crate.
    pub(super) fn only_method(&self, name: &str) -> Option<(&Name, &Method)> {
        let is_one = |((_, one), method): &(&(Name, String), &Method)| one == name && method.is_own;
        let mut found = self.methods.iter().filter(is_one);
        let ((home, _), method) = found.next()?;
        found.next().is_none().then_some((home, method))
    }

    /// Whether a type or a trait of the crate has a method of this name.
    pub(super) fn has_method(&self, name: &str) -> bool {
        self.methods.keys().any(|(_, one)| one == name)
    }

    pub(super) fn field(&self, home: &Name, name: &str) -> Type {
        let field = self.fields.get(&(home.clone(), name.to_owned()));
        field.cloned().unwrap_or(Type::Unknown)
    }

    /// A function outside of an `impl`, and what it returns.
    pub(super) fn function(&self, place: &Place, path: Path<'_>) -> Option<(&Name, &Type)> {
        let name = path.last()?.ident.to_string();
        let file = self.locate(place.file, path)?;
        self.functions.get_key_value(&(name, file))
    }

    /// The file that defines what a path names.
    fn locate(&self, file: usize, path: Path<'_>) -> Option<usize> {
        let mut names = path.iter().rev().map(|one| one.ident.to_string());
        let name = names.next()?;
        let files = self.items.get(&name)?;
        match names.next() {
            None if files.contains(&file) => Some(file),
            None => *self.imported[file].get(&name)?,
            Some(above) if ["crate", "self", "super"].contains(&above.as_str()) => {
                files.first().copied().filter(|_| files.len() == 1)
            }
            Some(module) => files
                .iter()
                .copied()
                .find(|file| self.modules[*file] == module),
        }
    }

    /// What a type means where it is written.
    pub(super) fn of(&self, place: &Place, written: &syn::Type) -> Type {
        match written {
            syn::Type::Path(path) => self.of_path(place, &names(&path.path)),
            syn::Type::Reference(reference) => self.of(place, &reference.elem),
            syn::Type::Paren(paren) => self.of(place, &paren.elem),
            syn::Type::Group(group) => self.of(place, &group.elem),
            syn::Type::Slice(slice) => self.of(place, &slice.elem).around(),
            syn::Type::Array(array) => self.of(place, &array.elem).around(),
            syn::Type::ImplTrait(some) => self.of_bounds(place, some.bounds.iter()),
            syn::Type::TraitObject(some) => self.of_bounds(place, some.bounds.iter()),
            syn::Type::Tuple(tuple) if !tuple.elems.is_empty() => Type::Unknown,
            _ => Type::Foreign,
        }
    }

    fn of_bounds<'b>(
        &self,
        place: &Place,
        bounds: impl Iterator<Item = &'b syn::TypeParamBound>,
    ) -> Type {
        let traits = bounds.filter_map(|bound| match bound {
            syn::TypeParamBound::Trait(bound) => Some(self.of_path(place, &names(&bound.path))),
            _ => None,
        });
        let mut known = traits.filter(|one| !matches!(one, Type::Foreign | Type::Unknown));
        known.next().unwrap_or(Type::Foreign)
    }

    pub(super) fn of_path(&self, place: &Place, path: Path<'_>) -> Type {
        let Some(last) = path.last() else {
            return Type::Unknown;
        };
        let name = last.ident.to_string();
        if path.len() == 1 {
            if name == "Self" {
                return place.home.clone().map_or(Type::Unknown, Type::Ours);
            }
            if let Some(bound) = place.parameters.get(&name) {
                return bound.clone();
            }
        } else if path[0].ident == "Self" {
            // An associated type.
            return Type::Unknown;
        }
        if let Some(file) = self.locate(place.file, path) {
            return Type::Ours((name, file));
        }
        let syn::PathArguments::AngleBracketed(arguments) = &last.arguments else {
            return Type::Foreign;
        };
        let arguments = arguments.args.iter().filter_map(|argument| match argument {
            syn::GenericArgument::Type(one) => Some(self.of(place, one)),
            syn::GenericArgument::AssocType(one) => Some(self.of(place, &one.ty)),
            _ => None,
        });
        let inside = arguments.reduce(|one, other| match (one, other) {
            (Type::Foreign, other) => other,
            (one, _) => one,
        });
        match inside.unwrap_or(Type::Foreign) {
            one if TRANSPARENT.contains(&name.as_str()) => one,
            one => one.around(),
        }
    }

    /// A place with these type parameters in addition.
    pub(super) fn with_parameters(&self, mut place: Place, generics: &syn::Generics) -> Place {
        for parameter in generics.type_params() {
            let bound = self.of_bounds(&place, parameter.bounds.iter());
            let bound = if bound == Type::Foreign {
                Type::Unknown
            } else {
                bound
            };
            place.parameters.insert(parameter.ident.to_string(), bound);
        }
        for condition in generics.where_clause.iter().flat_map(|one| &one.predicates) {
            if let syn::WherePredicate::Type(condition) = condition
                && let syn::Type::Path(path) = &condition.bounded_ty
                && let Some(name) = path.path.get_ident()
            {
                let bound = self.of_bounds(&place, condition.bounds.iter());
                place.parameters.insert(name.to_string(), bound);
            }
        }
        place
    }

    /// The place within an `impl`.
    pub(super) fn within_impl(&self, file: usize, item: &syn::ItemImpl) -> Place {
        let mut place = self.with_parameters(Place::outside(file), &item.generics);
        if let Type::Ours(home) = self.of(&place, &item.self_ty) {
            place.home = Some(home);
        }
        place
    }

    /// The place within a trait.
    pub(super) fn within_trait(&self, file: usize, item: &syn::ItemTrait) -> Place {
        let mut place = Place::outside(file);
        place.home = Some((item.ident.to_string(), file));
        self.with_parameters(place, &item.generics)
    }

    fn returned(&self, place: &Place, signature: &syn::Signature) -> Type {
        let place = self.with_parameters(place.clone(), &signature.generics);
        match &signature.output {
            syn::ReturnType::Default => Type::Foreign,
            syn::ReturnType::Type(_, written) => self.of(&place, written),
        }
    }
}

/// Walks a file for what it defines.
struct Reader<'a, 'b> {
    types: &'a mut Types<'b>,
    source: &'a Source,
    file: usize,
    names_only: bool,
}

impl Reader<'_, '_> {
    /// Notes an item outside of an `impl`; whether its contents are to be read.
    fn item(&mut self, name: &syn::Ident) -> bool {
        if self.source.is_test(name.span().start().line) {
            return false;
        }
        let files = self.types.items.entry(name.to_string()).or_default();
        files.insert(self.file);
        !self.names_only
    }

    fn fields(
        &mut self,
        home: &syn::Ident,
        generics: &syn::Generics,
        before: &str,
        fields: &syn::Fields,
    ) {
        let home = (home.to_string(), self.file);
        let mut place = Place::outside(self.file);
        place.home = Some(home.clone());
        let place = self.types.with_parameters(place, generics);
        for (number, field) in fields.iter().enumerate() {
            let name = field
                .ident
                .as_ref()
                .map_or(number.to_string(), ToString::to_string);
            let written = self.types.of(&place, &field.ty);
            self.types
                .fields
                .insert((home.clone(), format!("{before}{name}")), written);
        }
    }

    fn method(&mut self, place: &Place, signature: &syn::Signature, is_own: bool) {
        let Some(home) = place.home.clone() else {
            return;
        };
        if self.source.is_test(signature.ident.span().start().line) {
            return;
        }
        let returns = self.types.returned(place, signature);
        let method = Method {
            files: BTreeSet::new(),
            returns,
            is_own,
        };
        let key = (home, signature.ident.to_string());
        let method = self.types.methods.entry(key).or_insert(method);
        method.files.insert(self.file);
    }
}

impl<'ast> Visit<'ast> for Reader<'_, '_> {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        if self.item(&item.ident) {
            self.fields(&item.ident, &item.generics, "", &item.fields);
        }
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        if self.item(&item.ident) {
            for variant in &item.variants {
                let before = format!("{}.", variant.ident);
                self.fields(&item.ident, &item.generics, &before, &variant.fields);
            }
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if self.item(&item.sig.ident) {
            let returns = self.types.returned(&Place::outside(self.file), &item.sig);
            let name = (item.sig.ident.to_string(), self.file);
            self.types.functions.insert(name, returns);
        }
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        if self.item(&item.ident) {
            let place = self.types.within_trait(self.file, item);
            for member in &item.items {
                if let syn::TraitItem::Fn(function) = member {
                    self.method(&place, &function.sig, true);
                }
            }
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if self.names_only {
            return;
        }
        let place = self.types.within_impl(self.file, item);
        for member in &item.items {
            match member {
                syn::ImplItem::Fn(function) => {
                    self.method(&place, &function.sig, item.trait_.is_none());
                }
                syn::ImplItem::Type(target) if target.ident == "Target" => {
                    let target = self.types.of(&place, &target.ty);
                    if let Some(home) = place.home.clone() {
                        self.types.above.entry(home).or_default().push(target);
                    }
                }
                _ => {}
            }
        }
        if let (Some(home), Some((path, _))) = (&place.home, &item.trait_) {
            let above = self.types.of_path(&place, &names(path));
            self.types
                .above
                .entry(home.clone())
                .or_default()
                .push(above);
        }
    }
}
