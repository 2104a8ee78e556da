//! The guest's root: init, the agent, busybox, earlyoom, the shared libraries they need, and kernel modules.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::cpio::Archive;
use super::modules::Module;
use crate::cmd;
use crate::libraries;

/// Files by their path in the guest.
#[derive(Debug, Default)]
pub struct Initramfs {
    files: BTreeMap<String, (u32, Vec<u8>)>,
}

impl Initramfs {
    /// A program and, where it is dynamically linked, its libraries at the paths they have here.
    pub fn program(&mut self, guest_path: &str, host_path: &Path) -> Result<()> {
        for library in libraries::of(host_path)? {
            let path = library.to_string_lossy().into_owned();
            let content = fs::read(&library).with_context(|| format!("reading {path}"))?;
            self.files.insert(path, (0o755, content));
        }
        let content = fs::read(host_path).with_context(|| format!("reading {}", host_path.display()))?;
        self.files.insert(guest_path.to_owned(), (0o755, content));
        Ok(())
    }

    /// A program of ours, without its debug information: that would only take the guest's memory.
    pub fn own_program(&mut self, guest_path: &str, host_path: &Path, scratch: &Path) -> Result<()> {
        let stripped = scratch.join("stripped");
        cmd::output(Command::new("strip").arg("--strip-debug").arg("-o").arg(&stripped).arg(host_path))?;
        self.program(guest_path, &stripped)?;
        fs::remove_file(&stripped).with_context(|| format!("removing {}", stripped.display()))
    }

    pub fn script(&mut self, guest_path: &str, text: &str) {
        self.files.insert(guest_path.to_owned(), (0o755, text.as_bytes().to_vec()));
    }

    pub fn file(&mut self, guest_path: &str, host_path: &Path) -> Result<()> {
        let content = fs::read(host_path).with_context(|| format!("reading {}", host_path.display()))?;
        self.files.insert(guest_path.to_owned(), (0o644, content));
        Ok(())
    }

    /// `/modules/NAME.ko` and their load order in `/modules/order`.
    pub fn modules(&mut self, modules: Vec<Module>) {
        let mut order = String::new();
        for Module { name, content } in modules {
            let file = format!("{name}.ko");
            order.push_str(&file);
            order.push('\n');
            self.files.insert(format!("/modules/{file}"), (0o644, content));
        }
        self.files.insert("/modules/order".to_owned(), (0o644, order.into_bytes()));
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        let context = || format!("writing {}", path.display());
        let mut archive = Archive::new(BufWriter::new(fs::File::create(path).with_context(context)?));
        for directory in self.directories() {
            archive.directory(&directory).with_context(context)?;
        }
        archive.character_device("/dev/console", 5, 1).with_context(context)?;
        for (name, (permissions, content)) in &self.files {
            archive.file(name, *permissions, content).with_context(context)?;
        }
        archive.finish().and_then(|mut out| out.flush()).with_context(context)
    }

    /// Every directory on the way to a file, and the mount points; parents sort before their children.
    fn directories(&self) -> BTreeSet<String> {
        let mut directories: BTreeSet<String> =
            ["/dev", "/etc", "/mnt", "/proc", "/run", "/sys", "/tmp"].map(str::to_owned).into();
        for file in self.files.keys() {
            for (index, _) in file.match_indices('/').skip(1) {
                directories.insert(file[..index].to_owned());
            }
        }
        directories
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parent_directory_is_there_before_its_children() {
        let mut root = Initramfs::default();
        root.script("/lib/x86_64-linux-gnu/a", "");
        let directories: Vec<String> = root.directories().into_iter().collect();
        let position = |name: &str| directories.iter().position(|directory| directory == name).unwrap();
        assert!(position("/lib") < position("/lib/x86_64-linux-gnu"));
    }
}
