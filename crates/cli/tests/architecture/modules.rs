//! Which modules of a crate use which, read from its sources: an edge is a path that is used.
//!
//! What does not count: `mod` lines, re-exports, tests, and a parent's use of its own children. A path through a
//! re-export leads to the module that defines the item. Method calls are not seen: they name no path.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

/// Segments from the crate's root; the root itself is empty.
type Name = Vec<String>;

/// How many re-exports a path is followed through.
const MOST_HOPS: usize = 16;

#[derive(Default)]
struct Module {
    /// Local name to what it stands for, as written.
    imports: BTreeMap<String, Name>,
    globs: Vec<Name>,
    items: BTreeSet<String>,
    /// The items that are types.
    types: BTreeSet<String>,
    /// Paths that make edges.
    used: Vec<Name>,
}

/// The modules of one crate and the paths that each uses.
pub(super) struct Modules(BTreeMap<Name, Module>);

/// Modules that reach each other, and for each edge between two of them its ends.
pub(super) struct Ring {
    pub(super) modules: BTreeSet<String>,
    pub(super) edges: Vec<(String, String)>,
}

impl Modules {
    /// Reads the crate whose root file is `root`.
    pub(super) fn read(root: &Path) -> Self {
        let mut modules = Self(BTreeMap::new());
        modules.read_file(root, Vec::new());
        modules
    }

    /// Reads a crate of one file, for the tests of this scanner.
    pub(super) fn parse(text: &str) -> Self {
        let mut modules = Self(BTreeMap::new());
        modules.add(syn::parse_file(text).expect("the source parses").items, Vec::new(), None);
        modules
    }

    fn read_file(&mut self, file: &Path, name: Name) {
        let text = fs::read_to_string(file).expect("the source can be read");
        let source = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let folder =
            if matches!(stem, "lib" | "main" | "mod") { file.with_file_name("") } else { file.with_extension("") };
        self.add(source.items, name, Some(&folder));
    }

    fn add(&mut self, items: Vec<syn::Item>, name: Name, folder: Option<&Path>) {
        let mut module = Module::default();
        for item in items {
            if is_test(attributes(&item)) {
                continue;
            }
            match item {
                syn::Item::Mod(child) => {
                    let ident = child.ident.to_string();
                    let below: Name = name.iter().cloned().chain([ident.clone()]).collect();
                    match (child.content, folder) {
                        (Some((_, items)), _) => self.add(items, below, folder.map(|f| f.join(&ident)).as_deref()),
                        (None, Some(folder)) => self.read_file(&child_file(folder, &ident), below),
                        (None, None) => {}
                    }
                }
                syn::Item::Use(line) => {
                    let counts = matches!(line.vis, syn::Visibility::Inherited);
                    module.import(&line.tree, &mut Vec::new(), counts);
                }
                other => {
                    module.items.extend(defined(&other));
                    module.types.extend(defined(&other).filter(|_| is_type(&other)));
                    Paths(&mut module).visit_item(&other);
                }
            }
        }
        self.0.insert(name, module);
    }

    /// The module that defines what `path` names in `from`; nothing where it is not of this crate.
    fn resolve(&self, from: &Name, path: &[String], hops: usize) -> Option<Name> {
        let module = self.0.get(from)?;
        let (first, rest) = path.split_first()?;
        if hops == 0 {
            return None;
        }
        match first.as_str() {
            "crate" => self.descend(Vec::new(), rest, hops),
            "self" => self.descend(from.clone(), rest, hops),
            "super" => self.descend(from[..from.len().checked_sub(1)?].to_vec(), rest, hops),
            _ if self.has_child(from, first) => self.descend(from.clone(), path, hops),
            _ => {
                let import = module.imports.get(first).filter(|import| *import != path)?;
                let whole: Name = import.iter().chain(rest).cloned().collect();
                self.resolve(from, &whole, hops - 1)
            }
        }
    }

    fn descend(&self, mut at: Name, path: &[String], hops: usize) -> Option<Name> {
        for (place, segment) in path.iter().enumerate() {
            if segment == "super" {
                at.pop();
                continue;
            }
            if self.has_child(&at, segment) {
                at.push(segment.clone());
                continue;
            }
            let module = self.0.get(&at)?;
            if module.items.contains(segment) {
                return Some(at);
            }
            if let Some(import) = module.imports.get(segment) {
                let whole: Name = import.iter().chain(&path[place + 1..]).cloned().collect();
                // Re-exported from another crate: nothing of ours is used but the module that names it.
                return self.resolve(&at, &whole, hops - 1).or(Some(at));
            }
            let globbed = module.globs.iter().find_map(|glob| {
                let target = self.resolve(&at, glob, hops - 1)?;
                self.0.get(&target)?.items.contains(segment).then_some(target)
            });
            return globbed.or(Some(at));
        }
        Some(at)
    }

    fn has_child(&self, parent: &Name, name: &str) -> bool {
        let child: Name = parent.iter().cloned().chain([name.to_owned()]).collect();
        self.0.contains_key(&child)
    }

    /// Each type's name, and the modules that define a type of this name. A type within a function does not count.
    pub(super) fn types(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut types: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (name, module) in &self.0 {
            for defined in &module.types {
                types.entry(defined.clone()).or_default().insert(shown(name));
            }
        }
        types
    }

    /// Which module uses which, without a parent's use of its own children.
    pub(super) fn edges(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (name, module) in &self.0 {
            let targets = module.used.iter().filter_map(|path| self.resolve(name, path, MOST_HOPS));
            let outside = targets.filter(|target| !target.starts_with(name)).map(|target| shown(&target));
            edges.entry(shown(name)).or_default().extend(outside);
        }
        edges
    }

    /// Every set of modules that reach each other.
    pub(super) fn rings(&self) -> Vec<Ring> {
        let edges = self.edges();
        let reached: BTreeMap<&String, BTreeSet<&String>> =
            edges.keys().map(|from| (from, reach(&edges, from))).collect();
        let mut rings: BTreeMap<BTreeSet<String>, Vec<(String, String)>> = BTreeMap::new();
        for (from, targets) in &edges {
            let ring = |to: &String| reached[from].contains(to) && reached[to].contains(from);
            let members: BTreeSet<String> = edges.keys().filter(|to| ring(to)).cloned().collect();
            if members.is_empty() {
                continue;
            }
            let within: Vec<_> =
                targets.iter().filter(|to| members.contains(*to)).map(|to| (from.clone(), to.clone())).collect();
            rings.entry(members).or_default().extend(within);
        }
        rings.into_iter().map(|(modules, edges)| Ring { modules, edges }).collect()
    }
}

impl Module {
    fn import(&mut self, tree: &syn::UseTree, prefix: &mut Name, counts: bool) {
        match tree {
            syn::UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.import(&path.tree, prefix, counts);
                prefix.pop();
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.import(item, prefix, counts)),
            syn::UseTree::Name(name) => {
                self.import_as(prefix, &name.ident.to_string(), &name.ident.to_string(), counts);
            }
            syn::UseTree::Rename(name) => {
                self.import_as(prefix, &name.ident.to_string(), &name.rename.to_string(), counts);
            }
            syn::UseTree::Glob(_) => {
                self.globs.push(prefix.clone());
                self.used.extend(counts.then(|| prefix.clone()));
            }
        }
    }

    fn import_as(&mut self, prefix: &[String], name: &str, local: &str, counts: bool) {
        let (mut path, mut local) = (prefix.to_vec(), local.to_owned());
        if name != "self" {
            path.push(name.to_owned());
        } else if local == "self" {
            local = prefix.last().cloned().unwrap_or_default();
        }
        self.used.extend(counts.then(|| path.clone()));
        self.imports.insert(local, path);
    }
}

/// Collects the paths of an item, also inside the arguments of macros.
struct Paths<'a>(&'a mut Module);

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.0.used.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let arguments =
            call.parse_body_with(syn::punctuated::Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated);
        for argument in arguments.iter().flatten() {
            self.visit_expr(argument);
        }
        visit::visit_macro(self, call);
    }

    /// `pub(in super::super)` uses nothing.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_item_use(&mut self, line: &'ast syn::ItemUse) {
        self.0.import(&line.tree, &mut Vec::new(), true);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }
}

fn reach<'a>(edges: &'a BTreeMap<String, BTreeSet<String>>, from: &String) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut waiting: Vec<&String> = edges[from].iter().collect();
    while let Some(module) = waiting.pop() {
        if reached.insert(module) {
            waiting.extend(&edges[module]);
        }
    }
    reached
}

fn shown(name: &Name) -> String {
    if name.is_empty() { "crate".to_owned() } else { name.join("::") }
}

fn child_file(folder: &Path, name: &str) -> PathBuf {
    let flat = folder.join(format!("{name}.rs"));
    if flat.exists() { flat } else { folder.join(name).join("mod.rs") }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Meta>().is_ok_and(|meta| meta.path().is_ident("test"))
    })
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Const(item) => &item.attrs,
        _ => &[],
    }
}

fn is_type(item: &syn::Item) -> bool {
    matches!(
        item,
        syn::Item::Struct(_) | syn::Item::Enum(_) | syn::Item::Trait(_) | syn::Item::Type(_) | syn::Item::Union(_)
    )
}

fn defined(item: &syn::Item) -> Option<String> {
    let ident = match item {
        syn::Item::Struct(item) => &item.ident,
        syn::Item::Enum(item) => &item.ident,
        syn::Item::Trait(item) => &item.ident,
        syn::Item::Type(item) => &item.ident,
        syn::Item::Const(item) => &item.ident,
        syn::Item::Static(item) => &item.ident,
        syn::Item::Union(item) => &item.ident,
        syn::Item::Fn(item) => &item.sig.ident,
        syn::Item::Macro(item) => return item.ident.as_ref().map(ToString::to_string),
        _ => return None,
    };
    Some(ident.to_string())
}
