//! What a command needs of a program. A name in `PATH` proves little: the program may be too old, lack a feature, or be a stub. Each need is
//! one short run of the program whose output is judged.

use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::paths::find_program;

/// The seconds after which a run has failed.
const LIMIT: &str = "20";

/// A program of this machine: the first of its name in `PATH`, which is the one that other programs start too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    pub name: &'static str,
    pub needs: &'static [Need],
}

/// A run of the program, and the result that shows that the program is usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    arguments: &'static [&'static str],
    input: &'static [u8],
    result: Expected,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// The exit status 0.
    Success,
    /// These bytes on the standard output.
    Bytes(&'static [u8]),
    /// A version behind this text. Of several versions each is the least one of its series (major and minor number), and the last one is that
    /// of all later series too.
    Version(&'static str, &'static [&'static [u32]]),
    /// Any output without this text.
    Without(&'static str),
    /// The output of this program for `--version`.
    VersionOf(&'static str),
}

impl Need {
    const fn new(arguments: &'static [&'static str], result: Expected) -> Self {
        Self { arguments, input: b"", result }
    }

    /// Returns the need to exit with 0.
    pub const fn runs(arguments: &'static [&'static str]) -> Self {
        Self::new(arguments, Expected::Success)
    }

    /// Returns the need to read this input and exit with 0.
    pub const fn takes(input: &'static str, arguments: &'static [&'static str]) -> Self {
        Self { input: input.as_bytes(), ..Self::runs(arguments) }
    }

    /// Returns the need to make these bytes of the input.
    pub const fn filters(input: &'static [u8], arguments: &'static [&'static str], into: &'static [u8]) -> Self {
        Self { input, ..Self::new(arguments, Expected::Bytes(into)) }
    }

    /// Returns the need to print, behind a text, a version that is late enough.
    pub const fn version(
        arguments: &'static [&'static str],
        behind: &'static str,
        least: &'static [&'static [u32]],
    ) -> Self {
        Self::new(arguments, Expected::Version(behind, least))
    }

    /// Returns the need to print something without this text.
    pub const fn prints_no(text: &'static str, arguments: &'static [&'static str]) -> Self {
        Self::new(arguments, Expected::Without(text))
    }

    /// Returns the need to be of the same version as a compiler.
    pub const fn version_of(compiler: &'static str, arguments: &'static [&'static str]) -> Self {
        Self::new(arguments, Expected::VersionOf(compiler))
    }

    /// Returns what is wrong with the program at this path.
    fn examine(&self, path: &Path) -> Result<(), String> {
        let shown = format!("`{} {}`", path.display(), self.arguments.join(" "));
        let output = run(path, self.arguments, self.input).map_err(|error| format!("{shown} does not run: {error}"))?;
        if !output.status.success() {
            return Err(format!("{shown} fails: {}", complaint(&output)));
        }
        let text = text(&output);
        match self.result {
            Expected::Success => Ok(()),
            Expected::Bytes(bytes) if output.stdout == bytes => Ok(()),
            Expected::Bytes(_) => Err(format!("{shown} returns something else than it should")),
            Expected::Version(behind, least) => match version(&text, behind) {
                Some(version) if is_enough(&version, least) => Ok(()),
                Some(version) => {
                    Err(format!("{shown} prints version {}; needed is {}", dotted(&version), either(least)))
                }
                None => Err(format!("{shown} prints no version: {}", first_line(&output))),
            },
            Expected::Without(word) if !text.contains(word) => Ok(()),
            Expected::Without(_) => Err(format!("{shown} prints {}", first_line(&output))),
            Expected::VersionOf(compiler) => {
                let own =
                    run(Path::new(compiler), &["--version"], b"").map_err(|error| format!("{compiler}: {error}"))?;
                let (is, wanted) = (first_line(&output), first_line(&own));
                if is == wanted { Ok(()) } else { Err(format!("{shown} prints {is}, and {compiler} is {wanted}")) }
            }
        }
    }
}

impl Program {
    /// Returns the path of the program if it is usable.
    pub fn find(&self) -> Result<PathBuf, Lack> {
        let path = find_program(self.name).ok_or(Lack::Absent)?;
        self.examine(&path).map(|()| path)
    }

    /// Checks a program at this path.
    pub fn examine(&self, path: &Path) -> Result<(), Lack> {
        self.needs.iter().try_for_each(|need| need.examine(path)).map_err(Lack::Refused)
    }
}

/// Why a part cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lack {
    Absent,
    /// Some pieces of the part are absent, which the text lists.
    Pieces(String),
    /// The part is there, and a need is not met. The sentence names both.
    Refused(String),
}

impl Lack {
    /// Returns what there is to say besides the name of the part.
    pub fn details(&self) -> Option<&str> {
        match self {
            Self::Absent => None,
            Self::Pieces(text) | Self::Refused(text) => Some(text),
        }
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent | Self::Pieces(_) => "missing",
            Self::Refused(reason) => reason,
        })
    }
}

impl std::error::Error for Lack {}

fn run(program: &Path, arguments: &[&str], input: &[u8]) -> std::io::Result<Output> {
    let mut command = Command::new("timeout");
    command.arg(LIMIT).arg(program).args(arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program may exit before it has read everything. Its exit status and its output tell more than this error.
        let _ = stdin.write_all(input);
    }
    child.wait_with_output()
}

/// Returns the standard output and the standard error: some programs print their version to the second one.
fn text(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Returns the first line that the program printed.
fn first_line(output: &Output) -> String {
    line_of(&text(output)).unwrap_or("nothing").to_owned()
}

/// Returns the first line of the program's standard error, or its exit status.
fn complaint(output: &Output) -> String {
    line_of(&String::from_utf8_lossy(&output.stderr)).map_or_else(|| output.status.to_string(), str::to_owned)
}

fn line_of(text: &str) -> Option<&str> {
    text.lines().map(str::trim).find(|line| !line.is_empty())
}

/// Returns the numbers of the version behind the first occurrence of a text.
fn version(text: &str, behind: &str) -> Option<Vec<u32>> {
    let (_, rest) = text.split_once(behind)?;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let numbers = rest[..end].split('.').filter(|digits| !digits.is_empty()).map(|digits| digits.parse().ok());
    numbers.collect::<Option<Vec<u32>>>().filter(|numbers| !numbers.is_empty())
}

fn is_enough(version: &[u32], least: &[&[u32]]) -> bool {
    let is_of_series = |bound: &[u32]| version.get(..2).is_some_and(|series| bound.get(..2) == Some(series));
    let is_newest = |bound: &[u32]| least.last() == Some(&bound);
    least.iter().any(|bound| version >= *bound && (is_newest(bound) || is_of_series(bound)))
}

fn dotted(version: &[u32]) -> String {
    version.iter().map(u32::to_string).collect::<Vec<_>>().join(".")
}

fn either(versions: &[&[u32]]) -> String {
    format!("{} or later", versions.iter().map(|version| dotted(version)).collect::<Vec<_>>().join(" or "))
}

#[cfg(test)]
#[path = "need_tests.rs"]
mod tests;
