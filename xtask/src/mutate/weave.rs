//! Weaving: the mutants of one file in one text, each behind a switch.
//!
//! `a + b` becomes `(if on(7) { (a) - (b) } else { a + b })`. The mutated branch has the plain
//! operands, and only the last one is woven further, so the text grows with the number of mutants.
//! A function begins with `if on(8) { return VALUE; }`, an arm of a `match` gets a guard.
//!
//! cargo-mutants replaces text, so `a + b * c` with `*` as `+` adds all three; woven, the operands
//! of an operator are what they were.
//!
//! Not woven: what is evaluated by the compiler (`const fn`, constants, patterns, lengths of
//! arrays), where no switch can be asked; arms of a `match` without an arm for the rest.

use std::collections::HashMap;
use std::ops::Range;

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// What is changed, as cargo-mutants calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Deserialize)]
pub(super) enum Genre {
    FnValue,
    BinaryOperator,
    UnaryOperator,
    MatchArm,
    MatchArmGuard,
    StructField,
}

/// Where a mutant's change begins: line and column, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Deserialize)]
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// A mutant of the file that is woven. Its number is what the switch is asked for.
#[derive(Debug)]
pub(super) struct Mutant<'a> {
    pub(super) id: usize,
    pub(super) genre: Genre,
    pub(super) start: Place,
    pub(super) replacement: &'a str,
}

/// A woven text, and what of it is whose.
#[derive(Debug, Default)]
pub(super) struct Woven {
    pub(super) text: String,
    /// By mutant: the text that only it runs.
    pub(super) changed: Vec<(usize, Range<usize>)>,
    /// What encloses changes: expressions and functions.
    enclosing: Vec<Range<usize>>,
    /// Mutants that the grammar refuses: `||` in a chain with `let`.
    pub(super) refused: Vec<usize>,
}

/// Whom the compiler's error is about.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Blamed {
    /// The change of this mutant does not compile.
    Change(usize),
    /// The place does not stand being woven, for these mutants.
    Weaving(Vec<usize>),
}

impl Woven {
    /// Whom an error is about that names these ranges of the woven text, the main one first.
    pub(super) fn blame(&self, named: &[Range<usize>]) -> Option<Blamed> {
        let within = |inner: &Range<usize>, outer: &Range<usize>| {
            outer.start <= inner.start && inner.end <= outer.end
        };
        let change = |range| self.changed.iter().find(|(_, text)| within(range, text));
        if let Some((id, _)) = named.iter().find_map(change) {
            return Some(Blamed::Change(*id));
        }
        let ids_in = |range: &Range<usize>| {
            let inside = self.changed.iter().filter(|(_, text)| within(text, range));
            inside.map(|(id, _)| *id).collect::<Vec<_>>()
        };
        let around = |error| {
            let around = self.enclosing.iter().filter(|range| within(error, range));
            let around = around.filter(|range| !ids_in(range).is_empty());
            around.min_by_key(|range| range.len())
        };
        let smallest = named.iter().find_map(around)?;
        Some(Blamed::Weaving(ids_in(smallest)))
    }
}

/// Weaves `mutants` into `text`. Those of them that are neither in what was changed nor refused
/// could not be woven.
pub(super) fn weave(text: &str, mutants: &[Mutant]) -> syn::Result<Woven> {
    let mut weaver = Weaver {
        text,
        mutants: HashMap::new(),
        is_fixed: false,
        wraps: Vec::new(),
        refused: Vec::new(),
    };
    for mutant in mutants {
        let key = (mutant.genre, mutant.start);
        weaver.mutants.entry(key).or_default().push(mutant);
    }
    weaver.visit_file(&syn::parse_file(text)?);
    Ok(weaver.finish())
}

/// Text that is put before and after a range of the original.
struct Wrap {
    range: Range<usize>,
    /// Before it; a part that belongs to a mutant names it.
    before: Vec<(Option<usize>, String)>,
    after: &'static str,
}

struct Weaver<'a> {
    text: &'a str,
    mutants: HashMap<(Genre, Place), Vec<&'a Mutant<'a>>>,
    /// Whether the compiler evaluates what is visited.
    is_fixed: bool,
    /// The outer ones before the inner ones.
    wraps: Vec<Wrap>,
    refused: Vec<usize>,
}

impl<'a> Weaver<'a> {
    /// The mutants of this kind that begin at `span`.
    fn at(&self, genre: Genre, span: Span) -> Vec<&'a Mutant<'a>> {
        let start = span.start();
        let place = Place {
            line: start.line,
            column: start.column + 1,
        };
        let found = self.mutants.get(&(genre, place));
        found
            .filter(|_| !self.is_fixed)
            .cloned()
            .unwrap_or_default()
    }

    fn source(&self, node: &impl Spanned) -> &'a str {
        &self.text[node.span().byte_range()]
    }

    /// An expression that is another one with a mutant.
    fn choose(&mut self, range: Range<usize>, others: Vec<(usize, String)>) {
        if others.is_empty() {
            return;
        }
        let mut before = vec![(None, "(".to_string())];
        for (id, other) in others {
            let branch = format!("if crate::woven::on({id}) {{ {other} }} else ");
            before.push((Some(id), branch));
        }
        before.push((None, "{ ".to_string()));
        self.wraps.push(Wrap {
            range,
            before,
            after: " })",
        });
    }

    fn insert(&mut self, at: usize, id: usize, text: String) {
        self.wraps.push(Wrap {
            range: at..at,
            before: vec![(Some(id), text)],
            after: "",
        });
    }

    fn fixed(&mut self, visit: impl FnOnce(&mut Self)) {
        let was_fixed = std::mem::replace(&mut self.is_fixed, true);
        visit(self);
        self.is_fixed = was_fixed;
    }

    fn function(&mut self, sig: &syn::Signature, body: &syn::Block, visit: impl FnOnce(&mut Self)) {
        let was_fixed = std::mem::replace(&mut self.is_fixed, sig.constness.is_some());
        if let Some(first) = body.stmts.first().map(Spanned::span) {
            self.wraps.push(Wrap {
                range: body.span().byte_range(),
                before: Vec::new(),
                after: "",
            });
            for mutant in self.at(Genre::FnValue, first) {
                let (id, value) = (mutant.id, mutant.replacement);
                let text = format!("if crate::woven::on({id}) {{ return {value}; }} ");
                self.insert(first.byte_range().start, id, text);
            }
        }
        visit(self);
        self.is_fixed = was_fixed;
    }

    fn finish(self) -> Woven {
        // At one place what is inside ends first, and what is outside begins first.
        let mut edges = Vec::new();
        for (number, Wrap { range, .. }) in self.wraps.iter().enumerate() {
            edges.push((range.start, 1, number));
            if !range.is_empty() {
                edges.push((range.end, 0, usize::MAX - number));
            }
        }
        edges.sort_unstable();
        let mut woven = Woven {
            refused: self.refused,
            ..Woven::default()
        };
        let mut starts = vec![0; self.wraps.len()];
        let mut copied = 0;
        for (at, is_start, number) in edges {
            woven.text += &self.text[copied..at];
            copied = at;
            if is_start == 0 {
                let number = usize::MAX - number;
                woven.text += self.wraps[number].after;
                woven.enclosing.push(starts[number]..woven.text.len());
                continue;
            }
            starts[number] = woven.text.len();
            for (id, part) in &self.wraps[number].before {
                let start = woven.text.len();
                woven.text += part;
                let range = start..woven.text.len();
                woven.changed.extend(id.map(|id| (id, range)));
            }
        }
        woven.text += &self.text[copied..];
        woven
    }
}

/// Whether `expression` is a chain of `&&` with a `let` in it.
fn has_let(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(chain) if matches!(chain.op, syn::BinOp::And(_)) => {
            has_let(&chain.left) || has_let(&chain.right)
        }
        _ => false,
    }
}

/// What the compiler evaluates.
macro_rules! visit_fixed {
    ($($visit:ident: $node:ident),*) => {
        $(fn $visit(&mut self, node: &'ast syn::$node) {
            self.fixed(|weaver| visit::$visit(weaver, node));
        })*
    };
}

impl<'ast> Visit<'ast> for Weaver<'_> {
    visit_fixed! {
        visit_item_const: ItemConst, visit_item_static: ItemStatic, visit_variant: Variant,
        visit_impl_item_const: ImplItemConst, visit_trait_item_const: TraitItemConst,
        visit_type: Type, visit_generic_argument: GenericArgument, visit_expr_const: ExprConst
    }

    fn visit_expr_repeat(&mut self, node: &'ast syn::ExprRepeat) {
        self.visit_expr(&node.expr);
        self.fixed(|weaver| weaver.visit_expr(&node.len));
    }

    fn visit_pat(&mut self, node: &'ast syn::Pat) {
        let syn::Pat::Guard(guarded) = node else {
            return self.fixed(|weaver| visit::visit_pat(weaver, node));
        };
        self.visit_pat(&guarded.pat);
        let span = guarded.guard.span();
        let mutants = self.at(Genre::MatchArmGuard, span);
        let others = mutants
            .iter()
            .map(|mutant| (mutant.id, mutant.replacement.to_string()));
        self.choose(span.byte_range(), others.collect());
        self.visit_expr(&guarded.guard);
    }

    fn visit_item_fn(&mut self, node: &'ast syn::ItemFn) {
        let visit = |weaver: &mut Self| visit::visit_item_fn(weaver, node);
        self.function(&node.sig, &node.block, visit);
    }

    fn visit_impl_item_fn(&mut self, node: &'ast syn::ImplItemFn) {
        let visit = |weaver: &mut Self| visit::visit_impl_item_fn(weaver, node);
        self.function(&node.sig, &node.block, visit);
    }

    fn visit_trait_item_fn(&mut self, node: &'ast syn::TraitItemFn) {
        if let Some(body) = &node.default {
            let visit = |weaver: &mut Self| visit::visit_trait_item_fn(weaver, node);
            self.function(&node.sig, body, visit);
        }
    }

    fn visit_expr_binary(&mut self, node: &'ast syn::ExprBinary) {
        let mutants = self.at(Genre::BinaryOperator, node.op.span());
        let is_and = matches!(node.op, syn::BinOp::And(_));
        if is_and && (has_let(&node.left) || has_let(&node.right)) {
            self.refused.extend(mutants.iter().map(|mutant| mutant.id));
        } else {
            let (left, right) = (self.source(&node.left), self.source(&node.right));
            let other = |operator| format!("({left}) {operator} ({right})");
            let others = mutants
                .iter()
                .map(|mutant| (mutant.id, other(mutant.replacement)));
            self.choose(node.span().byte_range(), others.collect());
        }
        visit::visit_expr_binary(self, node);
    }

    fn visit_expr_unary(&mut self, node: &'ast syn::ExprUnary) {
        let mutants = self.at(Genre::UnaryOperator, node.op.span());
        let operand = self.source(&node.expr).to_string();
        let others = mutants.iter().map(|mutant| (mutant.id, operand.clone()));
        self.choose(node.span().byte_range(), others.collect());
        visit::visit_expr_unary(self, node);
    }

    fn visit_expr_match(&mut self, node: &'ast syn::ExprMatch) {
        // With a guard an arm covers nothing: another one must be there for all.
        let is_rest = |arm: &syn::Arm| matches!(arm.pat, syn::Pat::Wild(_));
        let arms = node.arms.iter().filter(|_| node.arms.iter().any(is_rest));
        for arm in arms {
            for mutant in self.at(Genre::MatchArm, arm.span()) {
                let arrow = arm.fat_arrow_token.span().byte_range().start;
                let text = format!("if !crate::woven::on({}) ", mutant.id);
                self.insert(arrow, mutant.id, text);
            }
        }
        visit::visit_expr_match(self, node);
    }

    fn visit_expr_struct(&mut self, node: &'ast syn::ExprStruct) {
        let whole = node.span().byte_range();
        let mut others = Vec::new();
        for field in node.fields.pairs() {
            let left_out = field.span().byte_range();
            for mutant in self.at(Genre::StructField, field.span()) {
                let before = &self.text[whole.start..left_out.start];
                let rest = &self.text[left_out.end..whole.end];
                others.push((mutant.id, format!("{before}{rest}")));
            }
        }
        self.choose(whole, others);
        visit::visit_expr_struct(self, node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use Genre::{BinaryOperator, FnValue, MatchArm, MatchArmGuard, StructField, UnaryOperator};

    /// Weaves into `marked`: each `@` stands where the next of `changes` begins.
    fn weave_marked(marked: &str, changes: &[(Genre, &str)]) -> Woven {
        let mut text = String::new();
        let mut mutants = Vec::new();
        for (part, next) in marked.split('@').zip(0..) {
            text += part;
            if let Some(&(genre, replacement)) = changes.get(next) {
                let column = text.len() + 1;
                let start = Place { line: 1, column };
                mutants.push(Mutant {
                    id: next,
                    genre,
                    start,
                    replacement,
                });
            }
        }
        weave(&text, &mutants).expect("is Rust")
    }

    /// The woven text, which is Rust as well, with a shorter switch.
    fn woven(marked: &str, changes: &[(Genre, &str)]) -> String {
        let text = weave_marked(marked, changes).text;
        syn::parse_file(&text).expect("stays Rust");
        text.replace("crate::woven::on", "on")
    }

    #[test]
    fn operands_keep_their_precedence_and_the_mutated_branch_is_plain() {
        assert_eq!(
            woven(
                "fn f() { x = a @+ b @* c; }",
                &[(BinaryOperator, "-"), (BinaryOperator, "+")]
            ),
            "fn f() { x = (if on(0) { (a) - (b * c) } else { \
             a + (if on(1) { (b) + (c) } else { b * c }) }); }"
        );
    }

    #[test]
    fn an_operator_with_several_mutants_has_a_branch_for_each() {
        let text = "fn f() { a(); x @< y }";
        let first = weave_marked(text, &[(BinaryOperator, "<=")]);
        let start = Place {
            line: 1,
            column: text.find('@').expect("marked") + 1,
        };
        let mutant = |id, replacement| Mutant {
            id,
            genre: BinaryOperator,
            start,
            replacement,
        };
        let both = weave(&text.replace('@', ""), &[mutant(0, "<="), mutant(1, ">")]);
        let both = both.expect("is Rust").text;
        assert!(first.text.contains("{ (x) <= (y) } else { x < y })"));
        assert!(both.contains("{ (x) <= (y) } else if crate::woven::on(1) { (x) > (y) } else {"));
    }

    #[test]
    fn assignments_and_nested_operands_of_one_start_are_woven_from_outside() {
        assert_eq!(
            woven(
                "fn f() { @!a @== b; c @+= 1 }",
                &[
                    (UnaryOperator, ""),
                    (BinaryOperator, "!="),
                    (BinaryOperator, "-=")
                ]
            ),
            "fn f() { (if on(1) { (!a) != (b) } else { (if on(0) { a } else { !a }) == b }); \
             (if on(2) { (c) -= (1) } else { c += 1 }) }"
        );
    }

    #[test]
    fn a_function_begins_with_its_values() {
        assert_eq!(
            woven("fn f() -> u8 { @a + 1 }", &[(FnValue, "0")]),
            "fn f() -> u8 { if on(0) { return 0; } a + 1 }"
        );
    }

    #[test]
    fn guards_are_chosen_and_arms_get_one() {
        assert_eq!(
            woven(
                "fn f() { match a { A if @b @&& c => 1, @(B | C) => 2, _ => 3 } }",
                &[
                    (MatchArmGuard, "true"),
                    (BinaryOperator, "||"),
                    (MatchArm, "")
                ]
            ),
            "fn f() { match a { A if (if on(0) { true } else { \
             (if on(1) { (b) || (c) } else { b && c }) }) => 1, \
             (B | C) if !on(2) => 2, _ => 3 } }"
        );
    }

    #[test]
    fn a_field_is_left_out_with_its_comma() {
        assert_eq!(
            woven("fn f() { S { @a: 1, b: 2, ..c } }", &[(StructField, "")]),
            "fn f() { (if on(0) { S {  b: 2, ..c } } else { S { a: 1, b: 2, ..c } }) }"
        );
    }

    #[test]
    fn chains_with_let_are_refused_and_the_rest_of_them_is_woven() {
        let text = "fn f() { if a @== b @&& let Some(c) = d {} }";
        let changes = [(BinaryOperator, "!="), (BinaryOperator, "||")];
        assert_eq!(weave_marked(text, &changes).refused, [1]);
        assert_eq!(
            woven(text, &changes),
            "fn f() { if (if on(0) { (a) != (b) } else { a == b }) && let Some(c) = d {} }"
        );
    }

    #[test]
    fn what_the_compiler_evaluates_stays() {
        for text in [
            "const A: u8 = 1 @+ 2;",
            "const fn f() -> u8 { 1 @+ 2 }",
            "fn f() { let a = [0; 1 @+ 2]; }",
            "fn f(a: [u8; 1 @+ 2]) {}",
            "enum A { B = 1 @+ 2 }",
        ] {
            let left = woven(text, &[(BinaryOperator, "-")]);
            assert_eq!(left, text.replace('@', ""));
        }
    }

    #[test]
    fn an_arm_stays_where_no_other_is_for_the_rest() {
        let text = "fn f() { match a { _ if b => 1, @A => 2, B => 3 } }";
        assert_eq!(woven(text, &[(MatchArm, "")]), text.replace('@', ""));
    }

    #[test]
    fn an_error_is_blamed_on_the_change_or_on_what_is_woven_around_it() {
        let changes = [(BinaryOperator, "-"), (BinaryOperator, "+")];
        let woven = weave_marked("fn f() { x(a @+ b @* c, d); } fn g() {}", &changes);
        let at = |part: &str| {
            let start = woven.text.rfind(part).expect("is there");
            start..start + part.len()
        };
        let blame = |part| woven.blame(&[at(part)]);
        assert_eq!(blame("(a) - (b * c)"), Some(Blamed::Change(0)));
        assert_eq!(blame("b * c }"), Some(Blamed::Weaving(vec![1])));
        assert_eq!(blame("a + (if"), Some(Blamed::Weaving(vec![0, 1])));
        assert_eq!(blame("d"), Some(Blamed::Weaving(vec![0, 1])));
        assert_eq!(blame("g()"), None);
        let main_first = woven.blame(&[at("d"), at("(b) + (c)")]);
        assert_eq!(main_first, Some(Blamed::Change(1)));
    }
}
