//! The files of a new root directory: that of the VM, and that of the image.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::arch::Arch;
use crate::cmd;
use crate::image::layout::filter;
use crate::libraries;

/// Files by their path in the root directory, with their permissions.
#[derive(Debug, Clone, Default)]
pub struct Files(BTreeMap<String, (u32, Vec<u8>)>);

impl Files {
    pub fn put(&mut self, path: &str, permissions: u32, content: Vec<u8>) {
        self.0.insert(path.to_owned(), (permissions, content));
    }

    /// Adds a copy of a file of this machine.
    pub fn file(&mut self, path: &str, from: &Path) -> Result<()> {
        self.copy(path, 0o644, from)
    }

    /// Adds a copy of a file of this machine, compressed by gzip without name and time.
    pub fn compressed(&mut self, path: &str, from: &Path) -> Result<()> {
        self.put_compressed(path, &fs::read(from).with_context(|| format!("reading {}", from.display()))?)
    }

    /// Adds a file with this content, compressed in the same way.
    pub fn put_compressed(&mut self, path: &str, content: &[u8]) -> Result<()> {
        self.put(path, 0o644, filter("gzip", &["-n", "-9", "-c"], content)?);
        Ok(())
    }

    /// Writes the files below a directory of this machine.
    pub fn write_to(&self, directory: &Path) -> Result<()> {
        for (path, permissions, content) in self.iter() {
            let path = directory.join(path.trim_start_matches('/'));
            let context = || format!("writing {}", path.display());
            fs::create_dir_all(path.parent().unwrap_or(directory)).with_context(context)?;
            fs::write(&path, content).with_context(context)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(permissions)).with_context(context)?;
        }
        Ok(())
    }

    /// Adds copies of all files below a directory of this machine.
    pub fn tree(&mut self, path: &str, from: &Path) -> Result<()> {
        for entry in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
            let entry = entry.with_context(|| format!("reading {}", from.display()))?.path();
            let path = format!("{path}/{}", entry.file_name().unwrap_or_default().to_string_lossy());
            if entry.is_dir() { self.tree(&path, &entry)? } else { self.file(&path, &entry)? }
        }
        Ok(())
    }

    /// Adds a program. The libraries of a dynamically linked program are added at the paths that they have on this machine.
    pub fn program(&mut self, path: &str, from: &Path) -> Result<()> {
        for library in libraries::of(from)? {
            self.copy(&library.to_string_lossy(), 0o755, &library)?;
        }
        self.copy(path, 0o755, from)
    }

    /// Adds a program of this project without its debug information, which is half of the file. The names of functions stay.
    pub fn own_program(&mut self, path: &str, (from, arch): (&Path, Arch), scratch: &Path) -> Result<()> {
        let stripped = scratch.join(format!("stripped-{}", std::process::id()));
        cmd::output(Command::new(arch.tool("strip")).arg("--strip-debug").arg("-o").arg(&stripped).arg(from))?;
        self.program(path, &stripped)?;
        fs::remove_file(&stripped).with_context(|| format!("removing {}", stripped.display()))
    }

    fn copy(&mut self, path: &str, permissions: u32, from: &Path) -> Result<()> {
        let content = fs::read(from).with_context(|| format!("reading {}", from.display()))?;
        self.put(path, permissions, content);
        Ok(())
    }

    /// Returns the path, the permissions and the content of each file.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u32, &[u8])> {
        self.0.iter().map(|(path, (permissions, content))| (path.as_str(), *permissions, content.as_slice()))
    }

    /// Returns `others` and the parent directories of all files and of `others`. A parent comes before its children.
    pub fn directories(&self, others: &[&str]) -> BTreeSet<String> {
        let mut directories: BTreeSet<String> = others.iter().copied().map(str::to_owned).collect();
        for path in self.0.keys().map(String::as_str).chain(others.iter().copied()) {
            for (index, _) in path.match_indices('/').skip(1) {
                directories.insert(path[..index].to_owned());
            }
        }
        directories
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_directories_come_before_their_children() {
        let mut files = Files::default();
        files.put("/lib/x86_64-linux-gnu/a", 0o755, Vec::new());
        let directories: Vec<String> = files.directories(&["/var/lib/b"]).into_iter().collect();
        let position = |name: &str| directories.iter().position(|directory| directory == name).unwrap();
        assert!(position("/lib") < position("/lib/x86_64-linux-gnu"));
        assert!(position("/var") < position("/var/lib") && position("/var/lib") < position("/var/lib/b"));
        assert!(!directories.contains(&String::new()));
    }
}
