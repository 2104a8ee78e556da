//! The files of a package, before they are packed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::NAME;
use super::package::Packaging;
use crate::arch::Arch;
use crate::files::Files;
use crate::paths::Workspace;

/// The program under the name by which kubectl finds its plugins.
const PLUGIN: &str = "kubectl-node_pressure";
/// The default configuration. It may later hold names of credentials, so that only root reads it.
const CONFIGURATION: (&str, u32) = ("/etc/node-pressure-monitor/monitor.yaml", 0o600);
/// The schema that an editor checks the configuration with. Beside the configuration it would be one more file of the administrator's.
const SCHEMA: &str = "/usr/share/node-pressure-monitor/monitor.schema.json";
const SCHEMA_LINE: &str = "$schema=monitor.schema.json";
pub const DOCUMENTS: &str = "/usr/share/doc/node-pressure-monitor";

/// The rules of the alerts and their pages, which link to each other.
const ALERTS: [(&str, &str); 2] = [
    ("/usr/share/doc/node-pressure-monitor/prometheus", "config/prometheus"),
    ("/usr/share/doc/node-pressure-monitor/runbooks", "config/runbooks"),
];

/// Where a family of distributions keeps files whose places differ.
#[derive(Debug, Clone, Copy)]
pub struct Places {
    pub zsh: &'static str,
}

pub const DEBIAN: Places = Places { zsh: "/usr/share/zsh/vendor-completions" };
pub const RED_HAT: Places = Places { zsh: "/usr/share/zsh/site-functions" };

/// The files that all packages of one architecture have.
#[derive(Debug)]
pub struct Content {
    /// Files with the places of a package; completions and manual pages are added by `files`.
    common: Files,
    pages: Vec<(String, Vec<u8>)>,
    completions: [Vec<u8>; 3],
}

impl Content {
    pub fn collect(workspace: &Workspace, packaging: &Packaging, arch: Arch, agent: &Path) -> Result<Self> {
        let scratch = &packaging.scratch;
        let mut common = Files::default();
        common.own_program(&format!("/usr/bin/{NAME}"), (agent, arch), scratch)?;
        let root = &workspace.root;
        let (path, permissions) = CONFIGURATION;
        common.put(path, permissions, read(&root.join("config/monitor.yaml"))?);
        common.file(SCHEMA, &root.join("config/monitor.schema.json"))?;
        let example = format!("{DOCUMENTS}/examples/desktop.sh");
        common.put(&example, 0o755, read(&root.join("config/notifications/desktop.sh"))?);
        common.file(
            &format!("/usr/lib/systemd/system/{NAME}.service"),
            &root.join(format!("config/systemd/{NAME}.service")),
        )?;
        for license in ["LICENSE-APACHE", "LICENSE-MIT"] {
            common.file(&format!("{DOCUMENTS}/{license}"), &root.join(license))?;
        }
        for (directory, from) in ALERTS {
            common.tree(directory, &root.join(from))?;
        }
        let pages = scratch.join("pages");
        packaging.pages(&pages)?;
        let of_shell = |file: &str| read(&pages.join("completions").join(file));
        let completions = [
            of_shell("node-pressure-monitor.bash")?,
            of_shell("_node-pressure-monitor")?,
            of_shell("node-pressure-monitor.fish")?,
        ];
        let mut found = Vec::new();
        let directory = pages.join("man");
        for entry in fs::read_dir(&directory).with_context(|| format!("reading {}", directory.display()))? {
            let path = entry.with_context(|| format!("reading {}", directory.display()))?.path();
            found.push((path.file_name().unwrap_or_default().to_string_lossy().into_owned(), read(&path)?));
        }
        found.sort();
        Ok(Self { common, pages: found, completions })
    }

    /// Returns all files of a package for one family of distributions.
    pub fn files(&self, places: Places) -> Result<Files> {
        let mut files = Files::default();
        for (path, permissions, content) in self.common.iter() {
            let content = if path == CONFIGURATION.0 { with_schema(content)? } else { content.to_vec() };
            files.put(path, permissions, content);
        }
        for (name, page) in &self.pages {
            files.put_compressed(&format!("/usr/share/man/man1/{name}.gz"), page)?;
        }
        let [bash, zsh, fish] = &self.completions;
        files.put(&format!("/usr/share/bash-completion/completions/{NAME}"), 0o644, bash.clone());
        files.put(&format!("{}/_{NAME}", places.zsh), 0o644, zsh.clone());
        files.put(&format!("/usr/share/fish/vendor_completions.d/{NAME}.fish"), 0o644, fish.clone());
        Ok(files)
    }

    /// Returns the files of the archive, below a directory of this name.
    pub fn archive(&self, directory: &str) -> Files {
        let mut files = Files::default();
        for (path, permissions, content) in self.common.iter() {
            let is_of_alerts = ALERTS.iter().any(|(directory, _)| path.starts_with(directory));
            let place = if is_of_alerts { path.strip_prefix(DOCUMENTS) } else { path.rsplit('/').next() };
            let name = place.unwrap_or_default().trim_start_matches('/');
            // In an archive the configuration belongs to the user who unpacks it.
            let permissions = if permissions == CONFIGURATION.1 { 0o644 } else { permissions };
            files.put(&format!("{directory}/{name}"), permissions, content.to_vec());
        }
        for (name, page) in &self.pages {
            files.put(&format!("{directory}/man/{name}"), 0o644, page.clone());
        }
        let names = ["node-pressure-monitor.bash", "_node-pressure-monitor", "node-pressure-monitor.fish"];
        for (name, script) in names.iter().zip(&self.completions) {
            files.put(&format!("{directory}/completions/{name}"), 0o644, script.clone());
        }
        files
    }
}

/// Returns the configuration with the place of its schema in a package.
fn with_schema(configuration: &[u8]) -> Result<Vec<u8>> {
    let text = std::str::from_utf8(configuration).context("config/monitor.yaml is no text")?;
    ensure!(text.contains(SCHEMA_LINE), "config/monitor.yaml has no line with {SCHEMA_LINE}");
    Ok(text.replacen(SCHEMA_LINE, &format!("$schema={SCHEMA}"), 1).into_bytes())
}

/// Writes the files of a package, and its links, below a directory of this machine. Removes what was there.
pub fn stage(files: &Files, directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory).with_context(|| format!("removing {}", directory.display()))?;
    }
    files.write_to(directory)?;
    let link = directory.join("usr/bin").join(PLUGIN);
    symlink(NAME, &link).with_context(|| format!("linking {}", link.display()))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("reading {}", path.display()))
}
