//! Rules for Rust: every file has a `//!`, functions are short, names have a meaning, no test is ignored, no code is missing.
//!
//! A function is measured from its `fn` to its closing brace, so documentation does not count. Functions inside a macro call
//! are not measured.

use proc_macro2::{Delimiter, Spacing, Span, TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, BinOp, Block, Expr, Ident, Lit, Signature, Token};

use super::Violation;
use super::names::empty_word;
use super::tree::Tree;

/// The most lines of a function; aim at 30.
const MAX_FUNCTION_LINES: usize = 70;

/// The most lines of a test, which is one sequence of steps.
const MAX_TEST_LINES: usize = 100;

/// Folders that contain only test code.
const TEST_FOLDERS: [&str; 2] = ["tests", "benches"];

/// Checks every file of Rust.
pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    tree.texts(".rs").flat_map(|(path, text)| check_file(path, text)).collect()
}

fn check_file(path: &str, text: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    if !text.starts_with("//!") {
        violations.push(Violation::new(path, 1, "does not start with `//!`: write what the file is for"));
    }
    match (syn::parse_file(text), text.parse::<TokenStream>()) {
        (Ok(file), Ok(tokens)) => {
            let in_tests = path.split('/').any(|part| TEST_FOLDERS.contains(&part));
            let mut review = Review { path, in_tests, violations };
            review.visit_file(&file);
            review.tokens(tokens);
            review.violations
        }
        (Err(error), _) => [violations, vec![unparsed(path, error.span(), &error)]].concat(),
        (_, Err(error)) => [violations, vec![unparsed(path, error.span(), &error)]].concat(),
    }
}

fn unparsed(path: &str, span: Span, error: &impl std::fmt::Display) -> Violation {
    Violation::new(path, span.start().line, format!("does not parse: {error}"))
}

/// Visits one file.
struct Review<'a> {
    path: &'a str,
    in_tests: bool,
    violations: Vec<Violation>,
}

impl Review<'_> {
    fn find(&mut self, span: Span, message: String) {
        self.violations.push(Violation::new(self.path, span.start().line, message));
    }

    fn function(&mut self, attributes: &[Attribute], signature: &Signature, block: &Block) {
        let first = signature.fn_token.span.start().line;
        let lines = block.brace_token.span.close().end().line + 1 - first;
        let is_test = self.in_tests || attributes.iter().any(is_test);
        let limit = if is_test { MAX_TEST_LINES } else { MAX_FUNCTION_LINES };
        if lines > limit {
            self.find(signature.fn_token.span, format!("`{}` has {lines} lines, more than {limit}", signature.ident));
        }
    }

    fn name(&mut self, ident: &Ident) {
        if let Some(word) = empty_word(&ident.to_string()) {
            self.find(ident.span(), format!("`{ident}`: `{word}` has no meaning: name it after what it is"));
        }
    }

    /// Checks tokens, which includes macro calls and leaves out comments and strings.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut before = None;
        for token in tokens {
            if let Some(message) = unfinished(before.as_ref(), &token) {
                self.find(token.span(), message.to_owned());
            }
            if let TokenTree::Group(group) = &token {
                self.tokens(group.stream());
            }
            before = Some(token);
        }
    }
}

impl<'ast> Visit<'ast> for Review<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.name(&item.ident);
        let outer = self.in_tests;
        self.in_tests |= item.attrs.iter().any(is_test);
        visit::visit_item_mod(self, item);
        self.in_tests = outer;
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.attrs, &item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    /// `assert!(x || true)` cannot fail.
    fn visit_expr_binary(&mut self, expression: &'ast syn::ExprBinary) {
        let is_true =
            matches!(&*expression.right, Expr::Lit(literal) if matches!(&literal.lit, Lit::Bool(bool) if bool.value));
        if let (BinOp::Or(or), true) = (&expression.op, is_true) {
            self.find(or.spans[0], "`|| true` makes the condition always true: remove it".to_owned());
        }
        visit::visit_expr_binary(self, expression);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        // The arguments of most macros are expressions.
        if let Ok(arguments) = call.parse_body_with(Punctuated::<Expr, Token![,]>::parse_terminated) {
            let mut review = Review { path: self.path, in_tests: self.in_tests, violations: Vec::new() };
            arguments.iter().for_each(|argument| review.visit_expr(argument));
            self.violations.append(&mut review.violations);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.name(&item.ident);
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.name(&item.ident);
        visit::visit_item_enum(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.name(&item.ident);
        visit::visit_item_trait(self, item);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.name(&item.ident);
        visit::visit_item_type(self, item);
    }
}

/// `#[test]`, `#[tokio::test]`, `#[cfg(test)]`.
fn is_test(attribute: &Attribute) -> bool {
    let named = attribute.path().segments.last().is_some_and(|segment| segment.ident == "test");
    let configured = attribute.path().is_ident("cfg") && attribute.parse_args::<Ident>().is_ok_and(|it| it == "test");
    named || configured
}

/// The start of the command that runs tests with special requirements.
const RUN_COMMAND: &str = "cargo xtask test --";

/// Why two adjacent tokens are a violation: an ignored test, or unwritten code.
fn unfinished(before: Option<&TokenTree>, token: &TokenTree) -> Option<&'static str> {
    match (before?, token) {
        (TokenTree::Punct(hash), TokenTree::Group(group))
            if hash.as_char() == '#' && group.delimiter() == Delimiter::Bracket && ignores(group.stream()) =>
        {
            Some("an ignored test checks nothing: fix it, remove it, or name the command that runs it")
        }
        (TokenTree::Ident(name), TokenTree::Punct(bang))
            if name == "todo" && bang.as_char() == '!' && bang.spacing() == Spacing::Alone =>
        {
            Some("`todo!` is code that is not written")
        }
        _ => None,
    }
}

/// `ignore`, `ignore = "…"`, and `cfg_attr(…, ignore)`; but not if the reason contains the command that runs the test.
fn ignores(attribute: TokenStream) -> bool {
    let mut tokens = attribute.into_iter();
    match tokens.next() {
        Some(TokenTree::Ident(name)) if name == "ignore" => {
            !matches!(tokens.nth(1), Some(TokenTree::Literal(reason)) if reason.to_string().contains(RUN_COMMAND))
        }
        Some(TokenTree::Ident(name)) if name == "cfg_attr" => tokens.any(|token| match token {
            TokenTree::Group(group) => {
                group.stream().into_iter().any(|token| matches!(token, TokenTree::Ident(name) if name == "ignore"))
            }
            _ => false,
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::violations;
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        violations(check, &[(path, text)])
    }

    /// A function with this many lines.
    fn function(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    step();\n".repeat(lines - 2))
    }

    #[test]
    fn file_without_docs_is_reported() {
        assert_eq!(found("a.rs", "fn f() {}").len(), 1);
        assert!(found("a.rs", "//! F.\nfn f() {}").is_empty());
    }

    #[test]
    fn long_function_is_reported() {
        let text = format!("//! F.\n/// Long.\n{}", function(71));
        assert_eq!(found("a.rs", &text), ["a.rs:3: `long` has 71 lines, more than 70"]);
        assert!(found("a.rs", &format!("//! F.\n{}", function(70))).is_empty());
    }

    #[test]
    fn long_nested_functions_are_reported() {
        for outer in ["impl S", "trait T", "fn outer() { inner(); mod m"] {
            let close = if outer.starts_with("fn") { "} }" } else { "}" };
            let text = format!("//! F.\n{outer} {{\n{}{close}", function(71));
            assert!(found("a.rs", &text).iter().any(|violation| violation.contains("`long` has 71 lines")), "{outer}");
        }
    }

    #[test]
    fn tests_have_a_higher_limit() {
        let inside = |lines| format!("//! F.\n#[cfg(test)]\nmod tests {{\n{}}}", function(lines));
        assert!(found("a.rs", &inside(100)).is_empty());
        assert_eq!(found("a.rs", &inside(101)).len(), 1);
        assert!(found("a.rs", &format!("//! F.\n#[tokio::test]\nasync {}", function(100))).is_empty());
        assert!(found("tests/src/a.rs", &format!("//! F.\n{}", function(100))).is_empty());
    }

    #[test]
    fn code_after_the_tests_is_measured_as_code() {
        let text = format!("//! F.\n#[cfg(test)]\nmod tests {{}}\n{}", function(71));
        assert_eq!(found("a.rs", &text).len(), 1);
    }

    #[test]
    fn empty_names_are_reported() {
        for item in ["struct HubManager;", "enum BeatHelper {}", "trait Common {}", "mod utils {}", "type Misc = u8;"] {
            assert_eq!(found("a.rs", &format!("//! F.\n{item}")).len(), 1, "{item}");
        }
    }

    #[test]
    fn ignored_test_is_reported() {
        for attribute in ["#[ignore]", "#[ignore = \"slow\"]", "#[cfg_attr(miri, ignore)]"] {
            let text =
                format!("//! F.\n#[test]\n{attribute}\nfn f() {{}}\nmacro_of_tests! {{ {attribute} fn g() {{}} }}");
            assert_eq!(found("a.rs", &text).len(), 2, "{attribute}");
        }
        assert!(found("a.rs", "//! F.\n// #[ignore]\nconst A: &str = \"#[ignore]\";").is_empty());
        let with_spin = "//! F.\n#[test]\n#[ignore = \"it needs Spin: cargo xtask test --spin\"]\nfn f() {}";
        assert!(found("a.rs", with_spin).is_empty());
    }

    #[test]
    fn condition_that_cannot_fail_is_reported() {
        for condition in ["assert!(a || true, \"{a}\")", "if a || true {}", "assert!((|| b() || true)())"] {
            assert_eq!(found("a.rs", &format!("//! F.\nfn f() {{\n    {condition};\n}}")).len(), 1, "{condition}");
        }
        assert!(found("a.rs", "//! F.\nfn f() { g(|| true); assert!(a || b); h!(a => true); }").is_empty());
    }

    #[test]
    fn unwritten_code_is_reported() {
        assert_eq!(found("a.rs", "//! F.\nfn f() {\n    todo!()\n}"), ["a.rs:3: `todo!` is code that is not written"]);
        assert!(found("a.rs", "//! F.\n// todo!()\nfn f(todo: u8) -> bool { todo != 1 }").is_empty());
    }

    #[test]
    fn parse_error_is_reported_with_line() {
        let found = found("a.rs", "//! F.\nfn f() {}\nfn fn");
        assert!(
            found.iter().all(|violation| violation.starts_with("a.rs:3: does not parse")) && found.len() == 1,
            "{found:?}"
        );
    }
}
