//! The rooms of `monitor/src` stand in one order: a room imports only from rooms before it, so no rooms form a circle.
#![expect(clippy::unwrap_used, reason = "a source tree that cannot be read fails the test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const ROOMS: [&str; 15] = [
    "units",
    "config",
    "kernel",
    "node",
    "workloads",
    "disk",
    "runtime",
    "cluster",
    "eviction",
    "sensors",
    "actions",
    "incidents",
    "report",
    "agent",
    "commands",
];

/// Imports against the order that are still to be removed: the importing room and the imported one. Nothing may be added.
const EXCEPTIONS: [(&str, &str); 0] = [];

/// Files that only tests use.
const TEST_ONLY: [&str; 3] = ["tests", "fixtures", "fake"];

#[test]
fn a_room_imports_only_from_rooms_before_it() {
    let mut found = BTreeSet::new();
    let mut stories = Vec::new();
    let mut imports = 0;
    for (path, room) in files() {
        for imported in imported_rooms(&code_of(&path)) {
            imports += 1;
            let (Some(from), Some(to)) = (position(&room), position(&imported)) else { continue };
            if to > from {
                stories.push(format!("{}: {room} imports from {imported}", path.display()));
                found.insert((room.clone(), imported));
            }
        }
    }
    assert!(imports > 100, "only {imports} imports between rooms were found");
    let allowed: BTreeSet<_> = EXCEPTIONS.iter().map(|&(from, to)| (from.to_owned(), to.to_owned())).collect();
    assert!(found.is_subset(&allowed), "against the order {ROOMS:?}:\n{}", stories.join("\n"));
    let unused: Vec<_> = allowed.difference(&found).collect();
    assert!(unused.is_empty(), "no longer needed, remove from EXCEPTIONS: {unused:?}");
}

#[test]
fn every_room_has_a_place_in_the_order() {
    let strangers: BTreeSet<String> =
        files().into_iter().map(|(_, room)| room).filter(|room| position(room).is_none()).collect();
    assert_eq!(strangers, BTreeSet::new());
}

#[test]
fn imports_are_recognized_in_all_their_forms() {
    let code = "use crate::node::A;\nuse crate::{\n    disk::{b, c},\n    kernel,\n};\nfn f() -> crate::config::D {}";
    assert_eq!(imported_rooms(code), ["node", "disk", "kernel", "config"]);
}

fn position(room: &str) -> Option<usize> {
    ROOMS.iter().position(|name| *name == room)
}

/// Returns all files but those of tests and the crate's roots, each with its room.
fn files() -> Vec<(PathBuf, String)> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    collect(&source, &mut files);
    let room = |path: &Path| {
        let first = path.strip_prefix(&source).unwrap().iter().next().unwrap();
        Path::new(first).file_stem().unwrap().to_str().unwrap().to_owned()
    };
    let files = files.into_iter().map(|path| (path.clone(), room(&path)));
    files.filter(|(_, room)| room != "lib" && room != "main").collect()
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        if TEST_ONLY.contains(&stem) || stem.ends_with("_tests") {
            continue;
        }
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// Returns the file's text without comments and without its `mod tests`, which rustfmt ends with a brace at the start of a line.
fn code_of(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let mut is_test = false;
    let mut code = String::new();
    for line in text.lines() {
        is_test = (is_test || line == "mod tests {") && line != "}";
        if !is_test && !line.trim_start().starts_with("//") {
            code.push_str(line);
            code.push('\n');
        }
    }
    code
}

/// Returns the first segment of each path that starts with `crate::`, one for each branch of a tree.
fn imported_rooms(code: &str) -> Vec<String> {
    let mut rooms = Vec::new();
    for after in code.split("crate::").skip(1) {
        if !after.starts_with('{') {
            rooms.push(identifier(after));
            continue;
        }
        let mut depth = 0_usize;
        for (at, character) in after.char_indices() {
            let is_branch = match character {
                '{' => {
                    depth += 1;
                    depth == 1
                }
                '}' => {
                    depth -= 1;
                    false
                }
                ',' => depth == 1,
                _ => false,
            };
            if is_branch {
                rooms.push(identifier(after[at + 1..].trim_start()));
            }
            if depth == 0 {
                break;
            }
        }
    }
    rooms.retain(|room| !room.is_empty());
    rooms
}

fn identifier(text: &str) -> String {
    text.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
}
