//! Functions are short: one that is longer than a screen begins with a comment that explains why,
//! `// Long: …`.

use std::fs;
use std::path::Path;

use syn::visit::{self, Visit};

use crate::imports::modules::is_test;
use crate::pages::repository;
use crate::sources::{CRATES, rust_files};

/// Maximum lines of a function, from its signature to its last brace.
const LINES_MAX: usize = 70;

/// Functions that exceed even that limit. None may be added.
const KNOWN: [&str; 0] = [];

#[test]
fn no_function_is_longer_than_a_screen() {
    let mut found = Vec::new();
    for (_, dir) in CRATES.iter().filter(|(_, dir)| *dir != "tests") {
        for file in rust_files(&repository().join(dir).join("src")) {
            let name = file.strip_prefix(repository()).unwrap();
            let functions = long_functions(&file).into_iter();
            found.extend(functions.map(|function| format!("{}: {function}", name.display())));
        }
    }
    let long: Vec<_> = found.iter().map(String::as_str).collect();
    assert_eq!(long, KNOWN);
}

fn long_functions(file: &Path) -> Vec<String> {
    let name = file.file_stem().unwrap().to_string_lossy();
    let is_of_tests = file
        .components()
        .any(|part| part.as_os_str() == "simulation");
    if name == "tests" || name.ends_with("_tests") || name == "simulation" || is_of_tests {
        return Vec::new();
    }
    let text = fs::read_to_string(file).unwrap();
    let mut found = LongFunctions {
        lines: text.lines().collect(),
        functions: Vec::new(),
    };
    found.visit_file(&syn::parse_file(&text).unwrap());
    found.functions
}

struct LongFunctions<'t> {
    lines: Vec<&'t str>,
    functions: Vec<String>,
}

impl LongFunctions<'_> {
    fn look_at(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let start = signature.fn_token.span.start();
        let end = block.brace_token.span.close().end();
        let lines = end.line + 1 - start.line;
        let body = block.brace_token.span.open().end().line;
        let first = self.lines.get(body).map_or("", |line| line.trim());
        if lines > LINES_MAX && !first.starts_with("// Long: ") {
            self.functions.push(signature.ident.to_string());
        }
    }
}

impl<'ast> Visit<'ast> for LongFunctions<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.look_at(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.look_at(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }
}
