//! A minimal Markdown reader: fenced blocks, inline code, links, headings.

use std::fmt;
use std::path::{Path, PathBuf};

/// A Markdown file of the repository.
#[derive(Debug)]
pub struct Document {
    /// The path relative to the repository.
    pub path: PathBuf,
    pub text: String,
}

/// A command line in a fenced block, and the output shown below it.
#[derive(Debug, PartialEq, Eq)]
pub struct Example {
    pub command: String,
    pub shown: Vec<String>,
    /// Index of the first line of output in the document.
    pub first_line: usize,
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

impl Document {
    /// Returns every `*.md` below `root`, sorted; build output and hidden directories are skipped.
    pub fn all(root: &Path) -> Vec<Self> {
        let mut documents = Vec::new();
        let mut directories = vec![root.to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(&directory).unwrap().map(Result::unwrap) {
                let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
                if entry.file_type().unwrap().is_dir() {
                    if !name.starts_with('.') && name != "target" {
                        directories.push(path);
                    }
                } else if name.ends_with(".md") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    documents.push(Self { path: path.strip_prefix(root).unwrap().to_owned(), text });
                }
            }
        }
        documents.sort_by(|a, b| a.path.cmp(&b.path));
        documents
    }

    pub fn directory(&self) -> &Path {
        self.path.parent().unwrap()
    }

    /// Returns each line with whether it is inside a fenced block; fences themselves are left out.
    fn lines(&self) -> Vec<(usize, &str, Option<&str>)> {
        let mut language = None;
        let mut lines = Vec::new();
        for (index, line) in self.text.lines().enumerate() {
            match line.strip_prefix("```") {
                Some(_) if language.is_some() => language = None,
                Some(opened) => language = Some(opened),
                None => lines.push((index, line, language)),
            }
        }
        lines
    }

    /// Returns each line that begins with `$ ` in a block, with the lines below it up to the next one or the end of the block.
    pub fn examples(&self) -> Vec<Example> {
        let mut examples: Vec<Example> = Vec::new();
        let mut next_line = None;
        for (index, line, language) in self.lines() {
            // A fence is not among the lines and ends an example.
            let continues = language.is_some() && next_line == Some(index);
            if let Some(command) = line.strip_prefix("$ ").filter(|_| language.is_some()) {
                examples.push(Example { command: command.to_owned(), shown: Vec::new(), first_line: index + 1 });
                next_line = Some(index + 1);
            } else if let Some(example) = examples.last_mut().filter(|_| continues) {
                example.shown.push(line.trim_end().to_owned());
                next_line = Some(index + 1);
            }
        }
        examples
    }

    /// Returns the text of each block in a language.
    pub fn blocks(&self, wanted: &str) -> Vec<String> {
        let mut blocks: Vec<String> = Vec::new();
        let mut last = None;
        for (index, line, _) in self.lines().into_iter().filter(|(.., language)| *language == Some(wanted)) {
            if last.is_none_or(|last| last + 1 != index) {
                blocks.push(String::new());
            }
            *blocks.last_mut().unwrap() += &format!("{line}\n");
            last = Some(index);
        }
        blocks
    }

    /// Returns code: each line of a block, without its prompt, and each piece of inline code.
    pub fn code(&self) -> Vec<String> {
        let lines = self.lines();
        let blocks = lines.iter().filter(|(.., language)| language.is_some());
        let lines = blocks.map(|(_, line, _)| line.trim_start_matches(['$', '#', ' ']).to_owned());
        lines.chain(self.inline_code()).collect()
    }

    pub fn inline_code(&self) -> Vec<String> {
        let prose = self.prose();
        prose.split('`').skip(1).step_by(2).map(|code| code.replace('\n', " ")).collect()
    }

    fn prose(&self) -> String {
        let lines = self.lines();
        let prose = lines.iter().filter(|(.., language)| language.is_none());
        prose.map(|(_, line, _)| *line).collect::<Vec<_>>().join("\n")
    }

    /// Returns the target of each link within the repository.
    pub fn links(&self) -> Vec<String> {
        let prose = self.prose();
        let targets = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
        targets.filter(|target| !target.contains("://")).map(str::to_owned).collect()
    }

    /// Returns the anchor of each heading, as GitHub makes them.
    pub fn anchors(&self) -> Vec<String> {
        let prose = self.prose();
        let headings = prose.lines().filter(|line| line.starts_with('#'));
        headings
            .map(|line| {
                let kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
                let heading = line.trim_start_matches('#').trim().to_lowercase();
                heading.chars().filter(kept).map(|c| if c == ' ' { '-' } else { c }).collect()
            })
            .collect()
    }
}

/// Returns whether the output is as shown. `…` stands for any text within a line, and alone on a line for any lines.
pub fn matches(shown: &[String], printed: &[&str]) -> bool {
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

#[test]
fn blocks_code_and_links_are_found() {
    let text = "# A `b` c!\n[x](y.md#z) `in line`\n```\n$ ls\na\n\nb\n```\n```yaml\nk: v\n```\n```yaml\nl: w\n```\n";
    let document = Document { path: "a.md".into(), text: text.to_owned() };
    let shown = ["a", "", "b"].map(str::to_owned).to_vec();
    assert_eq!(document.examples(), [Example { command: "ls".to_owned(), shown, first_line: 4 }]);
    assert_eq!(document.blocks("yaml"), ["k: v\n", "l: w\n"]);
    assert_eq!(document.links(), ["y.md#z"]);
    assert_eq!(document.anchors(), ["a-b-c"]);
    assert_eq!(document.inline_code(), ["b", "in line"]);
}
