//! The README's examples, run as they stand there.

use std::path::Path;
use std::process::Command;

const BINARY: &str = env!("CARGO_BIN_EXE_node-pressure-monitor");

/// Each `$ node-pressure-monitor …` in a block of code, and what is shown below it.
fn examples(readme: &str) -> Vec<(String, Vec<String>)> {
    let mut examples: Vec<(String, Vec<String>)> = Vec::new();
    let (mut in_block, mut in_example) = (false, false);
    for line in readme.lines() {
        if line.starts_with("```") {
            in_block = !in_block;
            in_example = false;
        } else if let Some(command) = line.strip_prefix("$ node-pressure-monitor ").filter(|_| in_block) {
            examples.push((command.to_owned(), Vec::new()));
            in_example = true;
        } else if let Some((_, shown)) = examples.last_mut().filter(|_| in_example) {
            shown.push(line.to_owned());
        }
    }
    examples
}

/// `…` stands for anything within a line, and alone on a line for any lines.
fn matches(shown: &[String], printed: &[&str]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((line, rest)) if line == "…" => (0..=printed.len()).any(|skipped| matches(rest, &printed[skipped..])),
        Some((line, rest)) => {
            printed.split_first().is_some_and(|(first, others)| is_like(line, first) && matches(rest, others))
        }
    }
}

fn is_like(shown: &str, printed: &str) -> bool {
    match shown.split_once('…') {
        None => shown == printed,
        Some((start, end)) => printed.starts_with(start) && printed.ends_with(end),
    }
}

#[test]
fn every_example_prints_what_is_shown() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let examples = examples(&readme);
    assert!(examples.len() >= 3, "{} examples", examples.len());
    for (command, shown) in examples {
        let output = Command::new(BINARY)
            .args(command.split_whitespace())
            .current_dir(root.join("tests/fixtures"))
            .output()
            .unwrap();
        // As on a terminal, where notes come first.
        let printed = String::from_utf8(output.stderr).unwrap() + &String::from_utf8(output.stdout).unwrap();
        let printed: Vec<&str> = printed.lines().collect();
        assert!(
            matches(&shown, &printed),
            "{command}\n\nprinted\n{}\n\nREADME shows\n{}",
            printed.join("\n"),
            shown.join("\n")
        );
    }
}

#[test]
fn an_ellipsis_is_any_text_or_any_lines() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    for (shown, printed, expected) in [
        ("a\nb", "a\nb", true),
        ("a\nb", "a\nc", false),
        ("a\n…", "a\nb\nc", true),
        ("…\nc", "a\nb\nc", true),
        ("…\nb", "a\nb\nc", false),
        ("a … c", "a b c", true),
        ("a … c", "a b d", false),
    ] {
        assert_eq!(matches(&lines(shown), &printed.lines().collect::<Vec<_>>()), expected, "{shown:?} {printed:?}");
    }
}
