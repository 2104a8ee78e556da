//! Debian's packages: installs some, and unpacks others into the cache only.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::completeness;
use crate::arch::Arch;
use crate::cmd;
use crate::paths::{find_program, is_root};

/// The apt-get of this machine. It updates the package lists at most once, and only when a package is needed.
#[derive(Debug)]
pub struct Apt {
    updated: bool,
    /// Options that select other package lists than this machine's.
    options: Vec<String>,
}

impl Apt {
    pub fn find() -> Option<Self> {
        ["apt-get", "apt-cache", "dpkg"]
            .iter()
            .all(|name| find_program(name).is_some())
            .then_some(Self { updated: false, options: Vec::new() })
    }

    /// Returns an apt-get with package lists of its own, kept in the cache: those of an architecture, and of this machine's sources or of
    /// one line of a `sources.list`. It only downloads.
    pub fn elsewhere(&self, cache: &Path, arch: Arch, source: Option<&str>) -> Result<Self> {
        let name = source.and_then(|line| line.split_whitespace().rev().nth(1)).unwrap_or("here");
        let dir = cache.join("apt").join(format!("{name}-{arch}"));
        fs::create_dir_all(dir.join("lists/partial")).with_context(|| format!("creating {}", dir.display()))?;
        let mut options = vec![
            format!("APT::Architecture={arch}"),
            format!("APT::Architectures={arch}"),
            format!("Dir::State::lists={}", dir.join("lists").display()),
            format!("Dir::Cache={}", dir.display()),
        ];
        if let Some(line) = source {
            let list = dir.join("sources.list");
            fs::write(&list, format!("{line}\n")).with_context(|| format!("writing {}", list.display()))?;
            options.push(format!("Dir::Etc::sourcelist={}", list.display()));
            options.push("Dir::Etc::sourceparts=/dev/null".to_owned());
        }
        Ok(Self { updated: false, options })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(self.options.iter().flat_map(|option| ["-o", option]));
        command
    }

    fn get(&self) -> Command {
        let mut command = self.command("apt-get");
        // apt's sandbox user cannot write below root's home directory, and apt would warn at every download.
        command.env("DEBIAN_FRONTEND", "noninteractive").args([
            "-q",
            "-o",
            "Dpkg::Use-Pty=0",
            "-o",
            "APT::Sandbox::User=root",
            // Waits for another apt, which may run for minutes on a new cloud machine.
            "-o",
            "DPkg::Lock::Timeout=300",
        ]);
        command
    }

    fn update(&mut self) {
        if !self.updated && (is_root() || !self.options.is_empty()) {
            self.updated = true;
            // One of several repositories may be broken, and the existing lists may still have the packages.
            if let Err(error) = cmd::output(self.get().arg("update")) {
                eprintln!("warning: {error:#}; going on with the package lists at hand");
            }
        }
    }

    pub fn install(&mut self, packages: &[&str]) -> Result<()> {
        self.update();
        cmd::output(self.get().args(["install", "-y", "--no-install-recommends"]).args(packages))?;
        Ok(())
    }

    /// Downloads packages and unpacks them to `dir`, which it returns. The directory appears only when it is complete.
    pub fn unpack(&mut self, packages: &[&str], dir: &Path) -> Result<PathBuf> {
        let mut part = dir.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        if part.exists() {
            fs::remove_dir_all(&part).with_context(|| format!("removing {}", part.display()))?;
        }
        let debs = part.join("debs");
        let files = part.join("files");
        for dir in [&debs, &files] {
            fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        }
        self.update();
        cmd::output(self.get().arg("download").args(packages).current_dir(&debs))?;
        for deb in fs::read_dir(&debs).with_context(|| format!("reading {}", debs.display()))? {
            let deb = deb.with_context(|| format!("reading {}", debs.display()))?.path();
            cmd::output(Command::new("dpkg").arg("-x").arg(&deb).arg(&files))?;
        }
        completeness::record(&files)?;
        if dir.exists() {
            fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))?;
        }
        fs::rename(&files, dir).with_context(|| format!("moving {} to {}", files.display(), dir.display()))?;
        fs::remove_dir_all(&part).with_context(|| format!("removing {}", part.display()))?;
        Ok(dir.to_owned())
    }

    /// Returns the package that a metapackage depends on at present.
    pub fn resolve(&mut self, metapackage: &str, prefix: &str) -> Result<String> {
        self.update();
        let depends =
            cmd::output(self.command("apt-cache").args(["depends", metapackage])).with_context(|| {
                match self.options.is_empty() {
                    true => "the package lists may be empty: run `apt-get update` as root".to_owned(),
                    false => format!("the package lists may be empty: {}", self.options.join(" ")),
                }
            })?;
        match dependency(&depends, prefix) {
            Some(package) => Ok(package.to_owned()),
            None => bail!("{metapackage} depends on no package {prefix}*: `apt-cache depends` printed {depends:?}"),
        }
    }
}

/// Returns the newest package called `prefix…` among the `Depends:` lines of `apt-cache depends`.
fn dependency<'a>(depends: &'a str, prefix: &str) -> Option<&'a str> {
    depends
        .lines()
        .filter_map(|line| line.trim().trim_start_matches('|').strip_prefix("Depends: "))
        .filter(|package| package.starts_with(prefix))
        .max_by_key(|package| numbers(package))
}

/// Returns the numbers in a name, to compare versions: 6.12.9 is older than 6.12.117.
fn numbers(text: &str) -> Vec<u64> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metapackage_resolves_to_its_kernel() {
        let text = "linux-image-6.12-cloud-amd64\n  Depends: linux-image-6.12.117+deb12-cloud-amd64\n";
        assert_eq!(dependency(text, "linux-image-6.12"), Some("linux-image-6.12.117+deb12-cloud-amd64"));
        assert_eq!(dependency(text, "linux-image-6.1."), None);
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let text = "m\n |Depends: linux-image-6.1.0-9-cloud-amd64\n  Depends: linux-image-6.1.0-56-cloud-amd64\n  Suggests: x\n";
        assert_eq!(dependency(text, "linux-image-6.1."), Some("linux-image-6.1.0-56-cloud-amd64"));
    }

    #[test]
    fn a_package_without_dependency_resolves_to_none() {
        assert_eq!(dependency("linux-image-cloud-amd64\n", "linux-image-6.1."), None);
    }
}
