//! Modules of a crate and their imports, parsed from its sources. Tests are excluded.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Expr, File, Item, ItemMod, Lit, Meta, UseTree, Visibility};

/// Maximum number of re-exports that are followed for a name.
const INDIRECTIONS_MAX: usize = 8;

/// The path of a module within its crate: `["core", "calls"]`.
type ModulePath = Vec<String>;

/// Imports between the files of a crate, with its source folder `src`. Imports from parent modules
/// are omitted, because a module is part of its parents.
pub(crate) fn imports_of(src: &Path) -> BTreeMap<PathBuf, BTreeSet<PathBuf>> {
    let mut modules = Modules::default();
    for root in ["lib.rs", "main.rs"] {
        let file = src.join(root);
        if file.exists() {
            modules.read(&file, src, Vec::new());
            break;
        }
    }
    let mut imports: BTreeMap<PathBuf, BTreeSet<PathBuf>> = BTreeMap::new();
    for (path, module) in &modules.all {
        let from = imports.entry(module.file.clone()).or_default();
        let targets = module.paths.iter();
        let targets = targets.filter_map(|target| modules.file_of(path, target, 0));
        let is_around = |target: &PathBuf| {
            let mut around = (0..=path.len()).filter_map(|len| path.get(..len));
            around.any(|around| is_file_of(&modules, around, target))
        };
        from.extend(targets.filter(|target| !is_around(target)));
    }
    imports
}

fn is_file_of(modules: &Modules, path: &[String], file: &Path) -> bool {
    modules
        .all
        .get(path)
        .is_some_and(|module| module.file == file)
}

#[derive(Debug, Default)]
struct Modules {
    all: BTreeMap<ModulePath, Module>,
}

#[derive(Debug, Default)]
struct Module {
    file: PathBuf,
    /// Paths in its code, as written.
    paths: BTreeSet<Vec<String>>,
    /// Names imported from elsewhere, each with its path.
    taken: BTreeMap<String, Vec<String>>,
    handed_on: BTreeSet<String>,
}

impl Modules {
    fn read(&mut self, file: &Path, children: &Path, path: ModulePath) {
        let text = fs::read_to_string(file).unwrap();
        let parsed: File = syn::parse_file(&text).unwrap();
        self.add(file, children, path, &parsed.items);
    }

    fn add(&mut self, file: &Path, children: &Path, path: ModulePath, items: &[Item]) {
        let mut names = Names::default();
        for item in items {
            match item {
                Item::Mod(module) if !is_test(&module.attrs) => {
                    self.add_child(file, children, &path, module);
                }
                Item::Use(item) if !is_test(&item.attrs) => {
                    let is_handed_on = !matches!(item.vis, Visibility::Inherited);
                    names.add_use(&item.tree, &mut Vec::new(), is_handed_on);
                }
                Item::Mod(_) | Item::Use(_) => {}
                other => names.visit_item(other),
            }
        }
        let module = Module {
            file: file.to_owned(),
            paths: names.paths,
            taken: names.taken,
            handed_on: names.handed_on,
        };
        self.all.insert(path, module);
    }

    fn add_child(&mut self, file: &Path, children: &Path, path: &ModulePath, module: &ItemMod) {
        let name = module.ident.to_string();
        let mut child = path.clone();
        child.push(name.clone());
        if let Some((_, items)) = &module.content {
            return self.add(file, &children.join(name), child, items);
        }
        let own = match path_attribute(&module.attrs) {
            Some(renamed) => file.with_file_name(renamed),
            None => children.join(format!("{name}.rs")),
        };
        self.read(&own, &children.join(&name), child);
    }

    /// File that defines the item of a path in module `from`; none for paths outside of this crate.
    fn file_of(&self, from: &ModulePath, path: &[String], depth: usize) -> Option<PathBuf> {
        let (mut at, mut rest) = match path.first()?.as_str() {
            "crate" => (Vec::new(), &path[1..]),
            "self" => (from.clone(), &path[1..]),
            "super" => {
                let (_, parent) = from.split_last()?;
                (parent.to_vec(), &path[1..])
            }
            _ => (from.clone(), path),
        };
        let is_relative = at == *from && rest.len() == path.len();
        while rest.first().is_some_and(|part| part == "super") {
            at.pop();
            rest = &rest[1..];
        }
        let start = at.len();
        while let Some((first, behind)) = rest.split_first() {
            let mut below = at.clone();
            below.push(first.clone());
            if !self.all.contains_key(&below) {
                break;
            }
            (at, rest) = (below, behind);
        }
        if rest.is_empty() {
            // The name of a module alone is not an import, but a function may have the same name.
            let (name, around) = at.split_last()?;
            let is_function = self.all.get(around)?.handed_on.contains(name);
            return is_function.then(|| self.all[&at].file.clone());
        }
        let module = self.all.get(&at)?;
        let name = rest.first()?;
        let is_own = is_relative && at.len() == start;
        let further = module.taken.get(name);
        let further = further.filter(|_| is_own || module.handed_on.contains(name));
        match further.filter(|_| depth < INDIRECTIONS_MAX) {
            Some(further) => {
                let further: Vec<_> = further.iter().chain(&rest[1..]).cloned().collect();
                self.file_of(&at, &further, depth + 1)
            }
            // A name of another crate, or of this module itself.
            None if is_own => None,
            None => Some(module.file.clone()),
        }
    }
}

#[derive(Debug, Default)]
struct Names {
    paths: BTreeSet<Vec<String>>,
    taken: BTreeMap<String, Vec<String>>,
    handed_on: BTreeSet<String>,
}

impl Names {
    fn add_use(&mut self, tree: &UseTree, before: &mut Vec<String>, is_handed_on: bool) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.add_use(&path.tree, before, is_handed_on);
                before.pop();
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_use(tree, before, is_handed_on);
                }
            }
            UseTree::Name(name) => {
                let name = name.ident.to_string();
                self.add_name(&name, &name, before, is_handed_on);
            }
            UseTree::Rename(rename) => {
                let (name, new) = (rename.ident.to_string(), rename.rename.to_string());
                self.add_name(&name, &new, before, is_handed_on);
            }
            UseTree::Glob(_) => {
                let mut path = before.clone();
                path.push("*".to_owned());
                self.paths.insert(path);
            }
        }
    }

    fn add_name(&mut self, name: &str, new: &str, before: &[String], is_handed_on: bool) {
        let mut path = before.to_vec();
        let mut new = new;
        if name != "self" {
            path.push(name.to_owned());
        } else if let Some(module) = before.last().filter(|_| new == "self") {
            new = module;
        }
        if is_handed_on {
            self.handed_on.insert(new.to_owned());
        } else {
            self.paths.insert(path.clone());
        }
        self.taken.insert(new.to_owned(), path);
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts = path.segments.iter().map(|part| part.ident.to_string());
        let parts: Vec<_> = parts.collect();
        if parts.len() > 1 {
            self.paths.insert(parts);
        }
        visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_use(&item.tree, &mut Vec::new(), false);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        type Arguments = syn::punctuated::Punctuated<Expr, syn::Token![,]>;
        if let Ok(arguments) = mac.parse_body_with(Arguments::parse_terminated) {
            for argument in &arguments {
                self.visit_expr(argument);
            }
        }
        visit::visit_macro(self, mac);
    }
}

/// True if an item is compiled only for tests.
pub(crate) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => list
            .tokens
            .to_string()
            .split(|c: char| !c.is_alphanumeric())
            .any(|word| word == "test"),
        _ => false,
    })
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes
        .iter()
        .find_map(|attribute| match &attribute.meta {
            Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
                Expr::Lit(lit) => match &lit.lit {
                    Lit::Str(text) => Some(text.value()),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        })
}
