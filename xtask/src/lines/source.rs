//! The Rust files of a directory, without their tests.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Directories that contain only tests, or no source.
const SKIPPED_DIRECTORIES: [&str; 5] = ["tests", "benches", "fuzz", "target", ".git"];
/// Modules that only tests use, compiled under `#[cfg(test)]`.
const TEST_MODULES: [&str; 3] = ["tests", "fixtures", "fake"];

/// One file with its `mod tests` cut out.
#[derive(Debug)]
pub struct Source {
    /// The path, relative to the directory that was read.
    pub path: PathBuf,
    pub lines: Vec<String>,
}

impl Source {
    /// Reads all files below a directory except `*_tests.rs`, sorted by path.
    pub fn read_all(root: &Path, directory: &str) -> Result<Vec<Self>> {
        let mut sources = Vec::new();
        collect(&root.join(directory), root, &mut sources)?;
        sources.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(sources)
    }

    pub fn stem(&self) -> &str {
        self.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default()
    }

    /// Returns whether only tests use this file.
    pub fn is_test_helper(&self) -> bool {
        TEST_MODULES.contains(&self.stem())
    }

    /// Returns the path of the module in its crate: `["eviction", "rank"]`, and nothing for the crate's root.
    pub fn module(&self, crate_source: &Path) -> Vec<String> {
        let inner = self.path.strip_prefix(crate_source).unwrap_or(&self.path).with_extension("");
        let mut module: Vec<String> = inner.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
            module.pop();
        }
        module
    }
}

fn collect(directory: &Path, root: &Path, sources: &mut Vec<Source>) -> Result<()> {
    let entries = fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if !SKIPPED_DIRECTORIES.contains(&name.as_ref()) {
                collect(&path, root, sources)?;
            }
        } else if name.ends_with(".rs") && !name.ends_with("_tests.rs") {
            let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            let path = path.strip_prefix(root).unwrap_or(&path).to_owned();
            sources.push(Source { path, lines: without_tests(&text) });
        }
    }
    Ok(())
}

/// Removes each `mod tests { … }`. The files are formatted, so the closing brace has the indentation of `mod`.
fn without_tests(text: &str) -> Vec<String> {
    let mut kept = Vec::new();
    let mut end_of_tests: Option<String> = None;
    for line in text.lines() {
        match &end_of_tests {
            Some(end) if line == end => end_of_tests = None,
            Some(_) => {}
            None if line.trim_end().ends_with("mod tests {") => {
                let indentation = line.len() - line.trim_start().len();
                end_of_tests = Some(format!("{:indentation$}}}", ""));
            }
            None => kept.push(line.to_owned()),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_tests_are_cut_out() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {\n    }\n}\nfn c() {}\n";
        assert_eq!(without_tests(text), ["fn a() {}", "#[cfg(test)]", "fn c() {}"]);
    }

    #[test]
    fn modules_are_named_after_their_files() {
        for (path, module) in
            [("s/src/lib.rs", vec![]), ("s/src/a/mod.rs", vec!["a"]), ("s/src/a/b.rs", vec!["a", "b"])]
        {
            let source = Source { path: path.into(), lines: Vec::new() };
            assert_eq!(source.module(Path::new("s/src")), module);
        }
    }
}
