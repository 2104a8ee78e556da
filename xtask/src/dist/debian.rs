//! The package for Debian, made by `dpkg-deb`.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::content::{self, DEBIAN, DOCUMENTS};
use super::package::Package;
use super::{NAME, dpkg_deb};
use crate::cmd;
use crate::paths::Workspace;

const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];
/// Where the scripts are in the repository.
const SCRIPTS_DIRECTORY: &str = "config/packages/deb";

const DESCRIPTION: &str = "Description: evicts the right workload before the OOM killer kills the wrong one
 An agent that watches a Linux or Kubernetes node for pressure on memory, disks
 and process ids. It receives kernel events through eBPF, and evicts one whole
 workload within milliseconds after a threshold is crossed.
 .
 After the installation it only observes. mode: enforce in
 /etc/node-pressure-monitor/monitor.yaml lets it evict.
";

const COPYRIGHT: &str = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: node-pressure-monitor

Files: *
Copyright: the developers of the node pressure monitor
License: MIT or Apache-2.0
 The texts are in LICENSE-MIT and LICENSE-APACHE in this directory.
Comment:
 The program is linked statically with the GNU C Library (LGPL-2.1-or-later,
 /usr/share/common-licenses/LGPL-2.1), and with the crates that the bill of
 materials of the release lists with their licenses. The eBPF programs declare
 Dual MIT/GPL to the kernel.
";

pub fn write(package: &Package<'_>, workspace: &Workspace, output: &Path) -> Result<PathBuf> {
    let Package { release, packaging, content, arch, is_quick } = package;
    let mut files = content.files(DEBIAN)?;
    files.put(&format!("{DOCUMENTS}/copyright"), 0o644, COPYRIGHT.into());
    files.compressed(&format!("{DOCUMENTS}/changelog.gz"), &workspace.root.join("CHANGELOG.md"))?;
    let bytes: usize = files.iter().map(|(_, _, content)| content.len()).sum();
    let mut conffiles = String::new();
    for (path, _, _) in files.iter().filter(|(path, _, _)| path.starts_with("/etc/")) {
        let _ = writeln!(conffiles, "{path}");
    }
    files.put("/DEBIAN/control", 0o644, control(&release.version, &arch.to_string(), bytes).into_bytes());
    files.put("/DEBIAN/conffiles", 0o644, conffiles.into_bytes());
    for script in SCRIPTS {
        let path = workspace.root.join(SCRIPTS_DIRECTORY).join(script);
        let text = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        files.put(&format!("/DEBIAN/{script}"), 0o755, text);
    }
    let root = packaging.scratch.join("deb");
    content::stage(&files, &root)?;
    let sums = sums(&root)?;
    let path = root.join("DEBIAN/md5sums");
    fs::write(&path, sums).with_context(|| format!("writing {}", path.display()))?;
    // Directories get the permissions of the umask.
    for directory in directories(&root)? {
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("setting the permissions of {}", directory.display()))?;
    }
    let path = output.join(format!("{NAME}_{}_{arch}.deb", release.version));
    let mut build = Command::new(dpkg_deb()?);
    // One thread: with several, the compressed bytes depend on their number.
    build.args(["--root-owner-group", "-Zxz", if *is_quick { "-z0" } else { "-z9" }, "--threads-max=1", "--build"]);
    build.arg(&root).arg(&path);
    cmd::output(build.env("SOURCE_DATE_EPOCH", release.epoch.to_string()))?;
    Ok(path)
}

fn control(version: &str, arch: &str, bytes: usize) -> String {
    format!(
        "Package: {NAME}\nVersion: {version}\nArchitecture: {arch}\nMaintainer: {}\n\
         Installed-Size: {}\nSection: admin\nPriority: optional\n{DESCRIPTION}",
        env!("CARGO_PKG_AUTHORS"),
        bytes.div_ceil(1024)
    )
}

/// Returns the MD5 sums of all files but the control files, in the format of `md5sums`.
fn sums(root: &Path) -> Result<String> {
    let mut find = Command::new("sh");
    find.args(["-c", "find etc usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum"]).current_dir(root);
    cmd::output(&mut find)
}

fn directories(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = vec![directory.to_owned()];
    for entry in fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))? {
        let path = entry.with_context(|| format!("reading {}", directory.display()))?.path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(directories(&path)?);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_file_has_every_mandatory_field() {
        let text = control("1.0", "arm64", 2049);
        for line in ["Package: node-pressure-monitor", "Version: 1.0", "Architecture: arm64", "Installed-Size: 3"] {
            assert!(text.lines().any(|it| it == line), "{line}: {text}");
        }
        assert!(text.lines().any(|line| line.starts_with("Maintainer: ") && line.ends_with('>')), "{text}");
        assert!(text.ends_with('\n') && !text.contains("\n\n"), "{text}");
    }

    #[test]
    fn scripts_are_valid_shell() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(SCRIPTS_DIRECTORY);
        for script in SCRIPTS {
            cmd::output(Command::new("sh").arg("-n").arg(directory.join(script))).unwrap();
        }
        for script in ["post", "preun", "postun"] {
            cmd::output(Command::new("sh").arg("-n").arg(directory.join("../rpm").join(script))).unwrap();
        }
    }
}
