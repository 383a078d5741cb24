//! Walks a file for its calls, with what is known of the types of its variables.
//!
//! Variables are known by name, the latest of each: a block that ends gives none of them back.

use std::collections::HashMap;

use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::visit::Visit;

use super::Calls;
use crate::metrics::types::{Method, Name, Place, Type, Types, names};
use crate::style::source::Source;

/// Names of methods that types of the standard library have.
const COMMON: &[&str] = &[
    "accept",
    "all",
    "any",
    "as_bytes",
    "as_ref",
    "bytes",
    "clear",
    "close",
    "collect",
    "connect",
    "contains",
    "count",
    "drain",
    "end",
    "entry",
    "extend",
    "fill",
    "find",
    "finish",
    "first",
    "flush",
    "get",
    "id",
    "insert",
    "is_empty",
    "is_none",
    "iter",
    "join",
    "kind",
    "last",
    "len",
    "load",
    "lock",
    "name",
    "next",
    "open",
    "parse",
    "path",
    "pop",
    "pop_front",
    "push",
    "push_back",
    "read",
    "remove",
    "replace",
    "reserve",
    "reset",
    "retain",
    "send",
    "set",
    "spawn",
    "start",
    "store",
    "take",
    "to_bits",
    "truncate",
    "unpark",
    "wait",
    "wake",
    "write",
];

/// Methods of foreign types that give what is inside, such as those of `Option` and `Lock`.
const OPENING: &[&str] = &[
    "borrow",
    "borrow_mut",
    "deref",
    "expect",
    "lock",
    "unwrap",
    "unwrap_or",
    "unwrap_or_default",
    "unwrap_or_else",
];

/// Walks a file for its calls.
pub(super) struct Caller<'a> {
    source: &'a Source,
    types: &'a Types<'a>,
    calls: &'a mut Calls,
    place: Place,
    /// The variables of the function, the latest of each name.
    variables: HashMap<String, Type>,
    /// What the next closure is given first.
    argument: Type,
}

impl<'a> Caller<'a> {
    /// Adds the calls of a file to those of its crate.
    pub(super) fn walk(
        file: usize,
        source: &'a Source,
        parsed: &syn::File,
        types: &'a Types<'a>,
        calls: &'a mut Calls,
    ) {
        let mut caller = Self {
            source,
            types,
            calls,
            place: Place::outside(file),
            variables: HashMap::new(),
            argument: Type::Unknown,
        };
        caller.visit_file(parsed);
    }

    /// Walks what has a meaning of `Self`, parameters and variables of its own.
    fn within(&mut self, place: Place, walk: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.place, place);
        let variables = self.variables.clone();
        walk(self);
        self.place = outer;
        self.variables = variables;
    }

    fn function(&mut self, signature: &syn::Signature, walk: impl FnOnce(&mut Self)) {
        let place = self
            .types
            .with_parameters(self.place.clone(), &signature.generics);
        self.within(place, |caller| {
            for input in &signature.inputs {
                match input {
                    syn::FnArg::Receiver(_) => {
                        let home = caller.place.home.clone();
                        let home = home.map_or(Type::Unknown, Type::Ours);
                        caller.variables.insert("self".to_owned(), home);
                    }
                    syn::FnArg::Typed(input) => {
                        let written = caller.types.of(&caller.place, &input.ty);
                        caller.bind(&input.pat, written);
                    }
                }
            }
            walk(caller);
        });
    }

    /// What the variables of a pattern are, if it takes a value of a type apart.
    fn bind(&mut self, pattern: &syn::Pat, value: Type) {
        match pattern {
            syn::Pat::Ident(one) => {
                self.variables.insert(one.ident.to_string(), value);
            }
            syn::Pat::Reference(one) => self.bind(&one.pat, value),
            syn::Pat::Paren(one) => self.bind(&one.pat, value),
            syn::Pat::Type(one) => {
                let written = self.types.of(&self.place, &one.ty);
                self.bind(&one.pat, written);
            }
            syn::Pat::Or(one) => one
                .cases
                .iter()
                .for_each(|case| self.bind(case, value.clone())),
            syn::Pat::TupleStruct(one) => {
                for (number, part) in one.elems.iter().enumerate() {
                    let inside = self.part(&one.path, &number.to_string(), &value);
                    self.bind(part, inside);
                }
            }
            syn::Pat::Struct(one) => {
                for part in &one.fields {
                    let name = match &part.member {
                        syn::Member::Named(name) => name.to_string(),
                        syn::Member::Unnamed(index) => index.index.to_string(),
                    };
                    let inside = self.part(&one.path, &name, &value);
                    self.bind(&part.pat, inside);
                }
            }
            syn::Pat::Tuple(one) => one
                .elems
                .iter()
                .for_each(|part| self.bind(part, Type::Unknown)),
            syn::Pat::Slice(one) => {
                let inside = value.inside();
                one.elems
                    .iter()
                    .for_each(|part| self.bind(part, inside.clone()));
            }
            _ => {}
        }
    }

    /// A field of the struct, or of the variant of an enum, that a pattern names.
    fn part(&self, path: &syn::Path, field: &str, value: &Type) -> Type {
        let mut names = path.segments.iter().rev().map(|one| one.ident.to_string());
        let variant = names.next().unwrap_or_default();
        match value {
            Type::Around(_) => value.clone().inside(),
            Type::Ours(home) if home.0 == variant || variant == "Self" => {
                self.types.field(home, field)
            }
            Type::Ours(home) => self.types.field(home, &format!("{variant}.{field}")),
            Type::Foreign => Type::Foreign,
            Type::Unknown => match self.types.of_path(&self.place, &parent(path)) {
                Type::Ours(home) => self.types.field(&home, &format!("{variant}.{field}")),
                _ => Type::Unknown,
            },
        }
    }

    /// What is known of an expression.
    fn type_of(&self, expression: &syn::Expr) -> Type {
        match expression {
            syn::Expr::Path(path) => match path.path.get_ident() {
                Some(name) => {
                    let variable = self.variables.get(&name.to_string());
                    variable.cloned().unwrap_or(Type::Unknown)
                }
                None => match self.types.of_path(&self.place, &parent(&path.path)) {
                    // A variant of an enum, or a constant.
                    Type::Ours(name) => Type::Ours(name),
                    _ => Type::Unknown,
                },
            },
            syn::Expr::Reference(one) => self.type_of(&one.expr),
            syn::Expr::Paren(one) => self.type_of(&one.expr),
            syn::Expr::Group(one) => self.type_of(&one.expr),
            syn::Expr::Unary(one) => self.type_of(&one.expr),
            syn::Expr::Try(one) => self.type_of(&one.expr).inside(),
            syn::Expr::Index(one) => self.type_of(&one.expr).inside(),
            syn::Expr::Cast(_) | syn::Expr::Lit(_) | syn::Expr::Binary(_) => Type::Foreign,
            syn::Expr::Struct(one) => self.types.of_path(&self.place, &names(&one.path)),
            syn::Expr::Field(one) => match (self.type_of(&one.base), &one.member) {
                (Type::Ours(home), syn::Member::Named(name)) => {
                    self.types.field(&home, &name.to_string())
                }
                (Type::Ours(home), syn::Member::Unnamed(index)) => {
                    self.types.field(&home, &index.index.to_string())
                }
                _ => Type::Unknown,
            },
            syn::Expr::MethodCall(call) => self.result(call),
            syn::Expr::Call(call) => match &*call.func {
                syn::Expr::Path(path) => self.result_of_path(&path.path, call),
                _ => Type::Unknown,
            },
            _ => Type::Unknown,
        }
    }

    fn result(&self, call: &syn::ExprMethodCall) -> Type {
        let name = call.method.to_string();
        match self.type_of(&call.receiver) {
            Type::Foreign => Type::Foreign,
            Type::Around(inside) if OPENING.contains(&name.as_str()) => Type::Ours(inside),
            Type::Around(inside) => Type::Around(inside),
            on => match self.resolve(&on, &name) {
                Some((_, method)) => method.returns.clone(),
                None if name == "clone" => on,
                None => Type::Unknown,
            },
        }
    }

    fn result_of_path(&self, path: &syn::Path, call: &syn::ExprCall) -> Type {
        let last = path
            .segments
            .last()
            .map(|one| one.ident.to_string())
            .unwrap_or_default();
        if ["Some", "Ok"].contains(&last.as_str()) {
            return match call.args.first().map(|one| self.type_of(one)) {
                Some(Type::Ours(name)) => Type::Around(name),
                other => other.unwrap_or(Type::Unknown),
            };
        }
        if let Some((_, returns)) = self.types.function(&self.place, &names(path)) {
            return returns.clone();
        }
        if path.segments.len() == 1 {
            return self.types.of_path(&self.place, &names(path));
        }
        match self.types.of_path(&self.place, &parent(path)) {
            Type::Ours(home) => match self.types.method(&home, &last) {
                Some((_, method)) => method.returns.clone(),
                None => Type::Ours(home),
            },
            // `Arc::clone(&it)`, `Box::new(it)`.
            Type::Foreign if ["clone", "new"].contains(&last.as_str()) && call.args.len() == 1 => {
                self.type_of(&call.args[0])
            }
            other => other,
        }
    }

    /// The method that a call runs.
    fn resolve(&self, on: &Type, name: &str) -> Option<(&'a Name, &'a Method)> {
        match on {
            Type::Ours(home) => self.types.method(home, name),
            Type::Unknown if !COMMON.contains(&name) => self.types.only_method(name),
            Type::Around(_) | Type::Foreign | Type::Unknown => None,
        }
    }

    /// Follows a call of a method, or a mention of one.
    fn call(&mut self, on: &Type, name: &syn::Ident) {
        let line = name.span().start().line;
        if self.source.is_test(line) {
            return;
        }
        let name = name.to_string();
        let Some((home, method)) = self.resolve(on, &name) else {
            let is_missed = *on == Type::Unknown && self.types.has_method(&name);
            self.calls.missed += usize::from(is_missed);
            return;
        };
        self.calls.followed += 1;
        for to in &method.files {
            self.note(*to, format!("{}::{name}", home.0), line);
        }
    }

    fn note(&mut self, to: usize, name: String, line: usize) {
        if to != self.place.file {
            let called = self.calls.edges.entry((self.place.file, to)).or_default();
            called.entry(name).or_default().push(line);
        }
    }
}

/// A path without its last name.
fn parent(path: &syn::Path) -> Vec<&syn::PathSegment> {
    let mut names = names(path);
    names.pop();
    names
}

impl<'ast> Visit<'ast> for Caller<'_> {
    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let place = self.types.within_impl(self.place.file, item);
        self.within(place, |caller| syn::visit::visit_item_impl(caller, item));
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        let place = self.types.within_trait(self.place.file, item);
        self.within(place, |caller| syn::visit::visit_item_trait(caller, item));
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, |caller| syn::visit::visit_item_fn(caller, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, |caller| {
            syn::visit::visit_impl_item_fn(caller, item);
        });
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.function(&item.sig, |caller| {
            syn::visit::visit_trait_item_fn(caller, item);
        });
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        syn::visit::visit_local(self, local);
        let value = local.init.as_ref().map(|init| self.type_of(&init.expr));
        self.bind(&local.pat, value.unwrap_or(Type::Unknown));
    }

    fn visit_expr_let(&mut self, one: &'ast syn::ExprLet) {
        syn::visit::visit_expr_let(self, one);
        let value = self.type_of(&one.expr);
        self.bind(&one.pat, value);
    }

    fn visit_expr_match(&mut self, one: &'ast syn::ExprMatch) {
        self.visit_expr(&one.expr);
        let value = self.type_of(&one.expr);
        for arm in &one.arms {
            self.bind(&arm.pat, value.clone());
            self.visit_arm(arm);
        }
    }

    fn visit_expr_for_loop(&mut self, one: &'ast syn::ExprForLoop) {
        self.visit_expr(&one.expr);
        let value = self.type_of(&one.expr).inside();
        self.bind(&one.pat, value);
        self.visit_block(&one.body);
    }

    fn visit_expr_closure(&mut self, closure: &'ast syn::ExprClosure) {
        let mut argument = std::mem::replace(&mut self.argument, Type::Unknown);
        for input in &closure.inputs {
            self.bind(input, argument);
            argument = Type::Unknown;
        }
        syn::visit::visit_expr_closure(self, closure);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let on = self.type_of(&call.receiver);
        self.call(&on, &call.method);
        self.visit_expr(&call.receiver);
        for argument in &call.args {
            if let (Type::Around(_), syn::Expr::Closure(_)) = (&on, argument) {
                self.argument = on.clone().inside();
            }
            self.visit_expr(argument);
        }
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        if let Some((name, _)) = self.types.function(&self.place, &names(&path.path)) {
            let line = path.path.segments[0].ident.span().start().line;
            if !self.source.is_test(line) {
                self.note(name.1, name.0.clone(), line);
            }
        }
        if path.path.segments.len() > 1
            && let Some(name) = path.path.segments.last()
            && let on @ Type::Ours(_) = self.types.of_path(&self.place, &parent(&path.path))
        {
            self.call(&on, &name.ident);
        }
        syn::visit::visit_expr_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let arguments = Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated;
        if let Ok(arguments) = arguments.parse2(call.tokens.clone()) {
            arguments.iter().for_each(|one| self.visit_expr(one));
        }
    }
}
