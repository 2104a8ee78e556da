//! The guest's root: init, the agent, busybox, earlyoom, their shared libraries, and kernel modules.

use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result};

use super::cpio::Archive;
use super::modules::Module;
use crate::files::Files;

/// Empty directories: mount points, and directories for files that the guest's programs create.
const DIRECTORIES: [&str; 7] = ["/dev", "/etc", "/mnt", "/proc", "/run", "/sys", "/tmp"];

/// Files of the guest's first root file system.
#[derive(Debug, Default)]
pub struct Initramfs {
    pub files: Files,
}

impl Initramfs {
    pub fn script(&mut self, guest_path: &str, text: &str) {
        self.files.put(guest_path, 0o755, text.as_bytes().to_vec());
    }

    /// Adds the modules as `/modules/NAME.ko`, and their load order as `/modules/order`.
    pub fn modules(&mut self, modules: Vec<Module>) {
        let mut order = String::new();
        for Module { name, content } in modules {
            let file = format!("{name}.ko");
            order.push_str(&file);
            order.push('\n');
            self.files.put(&format!("/modules/{file}"), 0o644, content);
        }
        self.files.put("/modules/order", 0o644, order.into_bytes());
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        let context = || format!("writing {}", path.display());
        let mut archive = Archive::new(BufWriter::new(fs::File::create(path).with_context(context)?));
        for directory in self.files.directories(&DIRECTORIES) {
            archive.directory(&directory).with_context(context)?;
        }
        archive.character_device("/dev/console", 5, 1).with_context(context)?;
        for (name, permissions, content) in self.files.iter() {
            archive.file(name, permissions, content).with_context(context)?;
        }
        archive.finish().and_then(|mut out| out.flush()).with_context(context)
    }
}
