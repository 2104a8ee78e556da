//! Finds the shared libraries of a program. Callers copy them to the VM's root and to the image.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::cmd;

/// Returns the libraries that a program needs, by `ldd`.
pub fn of(program: &Path) -> Result<Vec<PathBuf>> {
    let mut command = Command::new("ldd");
    command.arg(program);
    let output = command.output().with_context(|| format!("cannot run `{}`", cmd::shown(&command)))?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    // ldd fails for a static program, which has no libraries.
    if format!("{stdout}{stderr}").contains("not a dynamic executable") {
        return Ok(Vec::new());
    }
    if !output.status.success() {
        bail!("`{}` failed: {}", cmd::shown(&command), stderr.trim());
    }
    parse_ldd(&stdout).with_context(|| format!("libraries of {}", program.display()))
}

fn parse_ldd(text: &str) -> Result<Vec<PathBuf>> {
    let mut libraries = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some((name, "not found")) = line.split_once(" => ") {
            bail!("{name} is not installed");
        }
        let place = line.split_once(" => ").map_or(line, |(_, place)| place);
        if place.starts_with('/') {
            libraries.push(PathBuf::from(place.split_once(" (").map_or(place, |(path, _)| path)));
        }
    }
    Ok(libraries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ldd_lists_libraries_and_the_loader_but_not_the_vdso() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(parse_ldd(text).unwrap(), expected);
        assert!(parse_ldd("\tstatically linked\n").unwrap().is_empty());
    }

    #[test]
    fn a_missing_library_is_named() {
        let error = parse_ldd("\tlibbpf.so.1 => not found\n").unwrap_err().to_string();
        assert!(error.contains("libbpf.so.1"), "{error}");
    }
}
