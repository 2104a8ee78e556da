//! Finds which files of a crate import each other, and which of them form circles.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::source::Source;

type Module = Vec<String>;

/// Returns the groups of modules that import each other directly or through others, the largest first. Re-exports do not count.
pub fn circles(sources: &[Source], crate_source: &Path) -> Vec<Vec<Module>> {
    let modules: BTreeSet<Module> = sources.iter().map(|source| source.module(crate_source)).collect();
    let mut imports: BTreeMap<&Module, BTreeSet<Module>> = BTreeMap::new();
    for source in sources {
        let module = source.module(crate_source);
        let targets = imported_paths(&source.lines).filter_map(|path| resolve(&module, &path, &modules));
        let targets: BTreeSet<Module> = targets.filter(|target| *target != module).collect();
        if let Some(module) = modules.get(&module) {
            imports.entry(module).or_default().extend(targets);
        }
    }
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        modules.iter().map(|module| (module, reachable(module, &imports))).collect();
    let mut circles: Vec<Vec<Module>> = Vec::new();
    for module in &modules {
        let is_mutual = |other: &&&Module| reached.get(**other).is_some_and(|back| back.contains(module));
        let mut circle: Vec<Module> =
            reached.get(module).into_iter().flatten().filter(is_mutual).map(|&other| other.clone()).collect();
        circle.sort();
        if circle.len() > 1 && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

fn reachable<'a>(from: &'a Module, imports: &'a BTreeMap<&Module, BTreeSet<Module>>) -> BTreeSet<&'a Module> {
    let mut seen = BTreeSet::new();
    let mut waiting = vec![from];
    while let Some(module) = waiting.pop() {
        for next in imports.get(module).into_iter().flatten() {
            if seen.insert(next) {
                waiting.push(next);
            }
        }
    }
    seen
}

/// Returns the paths of all private `use` statements, one for each leaf of a tree.
fn imported_paths(lines: &[String]) -> impl Iterator<Item = String> {
    let text: Vec<&str> = lines.iter().map(|line| line.trim()).filter(|line| !line.starts_with("//")).collect();
    let mut paths = Vec::new();
    let mut statement = String::new();
    for line in text {
        if statement.is_empty() && !line.starts_with("use ") {
            continue;
        }
        statement.push_str(line);
        if line.ends_with(';') {
            let tree = statement.trim_start_matches("use ").trim_end_matches(';');
            leaves("", tree, &mut paths);
            statement.clear();
        }
    }
    paths.into_iter()
}

fn leaves(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let Some((head, rest)) = tree.split_once('{') else {
        return paths.push(format!("{prefix}{}", tree.trim()));
    };
    let prefix = format!("{prefix}{}", head.trim());
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut depth, mut start) = (0, 0);
    for (at, character) in inner.char_indices().chain([(inner.len(), ',')]) {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if let Some(part) = inner.get(start..at).filter(|part| !part.trim().is_empty()) {
                    leaves(&prefix, part, paths);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// Returns the deepest module of this crate that the path names; `None` for other crates.
fn resolve(from: &Module, path: &str, modules: &BTreeSet<Module>) -> Option<Module> {
    let mut segments = path.split("::").map(str::trim).peekable();
    let mut module = match *segments.peek()? {
        "crate" => {
            segments.next();
            Vec::new()
        }
        "self" => {
            segments.next();
            from.clone()
        }
        "super" => {
            let mut module = from.clone();
            while segments.next_if_eq(&"super").is_some() {
                module.pop();
            }
            module
        }
        first => {
            let child: Module = from.iter().cloned().chain([first.to_owned()]).collect();
            modules.contains(&child).then(|| from.clone())?
        }
    };
    for segment in segments {
        module.push(segment.to_owned());
        if !modules.contains(&module) {
            module.pop();
            break;
        }
    }
    Some(module)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.into(), lines: text.lines().map(str::to_owned).collect() }
    }

    #[test]
    fn files_that_import_each_other_form_a_circle() {
        let sources = [
            source("src/lib.rs", "mod a;\npub use a::A;"),
            source("src/a/mod.rs", "use b::{B, C};\nmod b;"),
            source("src/a/b.rs", "use super::A;\nuse std::{fs, io::{self, Read}};"),
            source("src/c.rs", "use crate::{\n    a::A,\n    d,\n};"),
            source("src/d.rs", "// use crate::c;"),
        ];
        let module = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Module>();
        assert_eq!(circles(&sources, Path::new("src")), [vec![module(&["a"]), module(&["a", "b"])]]);
    }
}
