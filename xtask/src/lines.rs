//! `cargo xtask lines`: counts the source, and shows how its files import each other.

mod imports;
mod source;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::paths::Workspace;
use source::Source;

/// Counts the lines of Rust by crate and by room, and lists long files, large structs, equal file names and import circles.
///
/// Counted is every line, blank or not, of the crates monitor, monitor-ebpf and xtask. Not counted are the crates under tests/,
/// directories named tests, benches and fuzz, files named *_tests.rs, and inline `mod tests`. Helpers of tests (fake.rs, fixtures.rs)
/// are counted. By this definition commit 6575d4f has about 59,200 lines.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Count another checkout.
    #[arg(value_name = "DIRECTORY")]
    root: Option<std::path::PathBuf>,
}

const CRATES: [&str; 3] = ["monitor", "monitor-ebpf", "xtask"];
const MONITOR: &str = "monitor/src";
const LONGEST_FILE: usize = 400;
const STRUCTS_SHOWN: usize = 10;
const STEMS_OFTEN: usize = 3;
/// Reads of a clock, as written in the source.
const CLOCK_READS: [&str; 7] = [
    "Monotonic::now(",
    "Instant::now(",
    "SystemTime::now(",
    "Moment::now(",
    "Timestamp::now(",
    "clock_gettime(",
    "boottime(",
];

pub fn run(options: &Options, workspace: &Workspace) -> Result<ExitCode> {
    let root = options.root.as_deref().unwrap_or(&workspace.root);
    let mut total = 0;
    println!("{:<28} {:>6} {:>6}", "crate", "files", "lines");
    let mut monitor = Vec::new();
    for name in CRATES {
        let sources = Source::read_all(root, name).with_context(|| format!("counting {name}"))?;
        total += print_row(name, &sources.iter().collect::<Vec<_>>());
        if name == "monitor" {
            monitor = sources.into_iter().filter(|source| source.path.starts_with(MONITOR)).collect();
        }
    }
    println!("{:<28} {:>6} {total:>6}", "total", "");
    print_rooms(&monitor);
    let code: Vec<Source> = monitor.into_iter().filter(|source| !source.is_test_helper()).collect();
    print_long_files(&code);
    print_large_structs(&code);
    print_equal_stems(&code);
    print_circles(&code);
    Ok(ExitCode::SUCCESS)
}

fn print_row(name: &str, sources: &[&Source]) -> usize {
    let lines = sources.iter().map(|source| source.lines.len()).sum();
    println!("{name:<28} {:>6} {lines:>6}", sources.len());
    lines
}

fn print_rooms(sources: &[Source]) {
    let mut rooms: BTreeMap<String, Vec<&Source>> = BTreeMap::new();
    for source in sources {
        let room = source.module(Path::new(MONITOR)).into_iter().next();
        rooms.entry(room.unwrap_or_else(|| "(root)".to_owned())).or_default().push(source);
    }
    println!("\n{:<28} {:>6} {:>6} {:>12}", "room of monitor/src", "files", "lines", "clock reads");
    for (room, sources) in rooms {
        let lines: usize = sources.iter().map(|source| source.lines.len()).sum();
        let is_clock_read = |line: &&String| CLOCK_READS.iter().any(|call| line.contains(call));
        let reads = sources.iter().flat_map(|source| &source.lines).filter(is_clock_read).count();
        println!("{room:<28} {:>6} {lines:>6} {reads:>12}", sources.len());
    }
}

fn print_long_files(sources: &[Source]) {
    println!("\nfiles of monitor/src longer than {LONGEST_FILE} lines");
    for source in sources.iter().filter(|source| source.lines.len() > LONGEST_FILE) {
        println!("{:>6}  {}", source.lines.len(), source.path.display());
    }
}

fn print_large_structs(sources: &[Source]) {
    let mut structs: Vec<(usize, String)> = sources
        .iter()
        .flat_map(|source| {
            let named = |(name, fields)| (fields, format!("{name}  {}", source.path.display()));
            structs_of(&source.lines).into_iter().map(named)
        })
        .collect();
    structs.sort_by_key(|(fields, _)| std::cmp::Reverse(*fields));
    println!("\nstructs of monitor/src with most fields");
    for (fields, name) in structs.iter().take(STRUCTS_SHOWN) {
        println!("{fields:>6}  {name}");
    }
}

/// Names of structs with named fields, and how many fields each has.
fn structs_of(lines: &[String]) -> Vec<(String, usize)> {
    let mut structs = Vec::new();
    let mut rest = lines.iter();
    while let Some(line) = rest.next() {
        let Some((_, declaration)) = line.split_once("struct ") else { continue };
        if !line.ends_with('{') || line.trim_start().starts_with("//") {
            continue;
        }
        let indentation = line.len() - line.trim_start().len();
        let name = declaration.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next();
        let body =
            rest.by_ref().take_while(|line| line.len() - line.trim_start().len() > indentation || line.is_empty());
        let fields = body.filter(|line| is_field(line, indentation + 4)).count();
        structs.push((name.unwrap_or_default().to_owned(), fields));
    }
    structs
}

fn is_field(line: &str, indentation: usize) -> bool {
    let text = line.trim_start();
    let name = text.rsplit_once("pub ").map_or(text, |(_, rest)| rest);
    let name = name.split_once(") ").filter(|_| text.starts_with("pub(")).map_or(name, |(_, rest)| rest);
    line.len() - text.len() == indentation
        && name.split_once(": ").is_some_and(|(name, _)| {
            name.chars().all(|letter| letter.is_alphanumeric() || letter == '_') && !name.is_empty()
        })
}

fn print_equal_stems(sources: &[Source]) {
    let mut stems: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.stem() != "mod") {
        stems.entry(source.stem()).or_default().push(source.path.display().to_string());
    }
    println!("\nfile names of monitor/src that stand {STEMS_OFTEN} times or more");
    for (stem, paths) in stems.iter().filter(|(_, paths)| paths.len() >= STEMS_OFTEN) {
        println!("{:>6}  {stem}: {}", paths.len(), paths.join(", "));
    }
}

fn print_circles(sources: &[Source]) {
    let circles = imports::circles(sources, Path::new(MONITOR));
    println!("\n{} circles of files of monitor/src that import each other", circles.len());
    for circle in circles {
        let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
        println!("{:>6}  {}", names.len(), names.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted() {
        let text = "/// struct of the past {\npub struct A<T> {\n    /// Doc: of a field.\n    pub a: T,\n\n    pub(crate) b: Vec<u8>,\n    c: u8,\n}\nstruct B(u8);\n    struct C {\n        a: u8,\n    }";
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        assert_eq!(structs_of(&lines), [("A".to_owned(), 3), ("C".to_owned(), 1)]);
    }
}
