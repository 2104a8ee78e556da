//! The package for RPM.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rpm::{BuildConfig, CompressionType, Dependency, FileOptions, PackageBuilder};

const NAME: &str = "node-pressure-monitor";
const LICENSE: &str = "(MIT OR Apache-2.0) AND LGPL-2.1-or-later";
const SUMMARY: &str = "Evicts the right workload before the OOM killer kills the wrong one";
const DESCRIPTION: &str = "An agent that watches a Linux or Kubernetes node for pressure on memory, disks and process ids. After the installation \
it only observes; mode: enforce in /etc/node-pressure-monitor/monitor.yaml lets it evict.";
/// Files below this directory are configuration, which an upgrade does not replace.
const CONFIGURATION: &str = "/etc/";
/// Directories that belong to this package alone.
const OWN_DIRECTORIES: [&str; 6] = [
    "/etc/node-pressure-monitor",
    "/usr/share/doc/node-pressure-monitor",
    "/usr/share/doc/node-pressure-monitor/examples",
    "/usr/share/doc/node-pressure-monitor/prometheus",
    "/usr/share/doc/node-pressure-monitor/runbooks",
    "/usr/share/node-pressure-monitor",
];

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Version of the package
    #[arg(long)]
    version: String,
    /// Architecture, by RPM's name
    #[arg(long)]
    arch: String,
    /// Time of the package and its files, in seconds since 1970
    #[arg(long)]
    epoch: u32,
    /// Directory with the files of the package
    #[arg(long)]
    root: PathBuf,
    /// Directory with the scripts post, preun and postun
    #[arg(long)]
    scripts: PathBuf,
    /// Package to write
    #[arg(long)]
    output: PathBuf,
}

pub fn write(options: &Options) -> Result<()> {
    let script = |name: &str| {
        let path = options.scripts.join(name);
        fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    };
    let config = BuildConfig::v4().compression(CompressionType::Gzip).source_date(options.epoch);
    let mut builder = PackageBuilder::new(NAME, &options.version, LICENSE, &options.arch, SUMMARY);
    builder
        .using_config(config)
        .release("1")
        .description(DESCRIPTION)
        .packager(env!("CARGO_PKG_AUTHORS"))
        // The name of the machine must not be in the package.
        .build_host("localhost")
        .post_install_script(script("post")?)
        .pre_uninstall_script(script("preun")?)
        .post_uninstall_script(script("postun")?)
        .requires(Dependency::script_post("systemd"))
        .requires(Dependency::script_preun("systemd"))
        .requires(Dependency::script_postun("systemd"));
    for directory in OWN_DIRECTORIES {
        builder.with_dir_entry(FileOptions::dir(directory).permissions(0o755))?;
    }
    for path in files(&options.root)? {
        let inside = path.strip_prefix(&options.root).with_context(|| format!("{}", path.display()))?;
        let inside = format!("/{}", inside.display());
        let meta = path.symlink_metadata().with_context(|| format!("reading {}", path.display()))?;
        if meta.is_symlink() {
            let target = fs::read_link(&path).with_context(|| format!("reading {}", path.display()))?;
            builder.with_symlink(FileOptions::symlink(&inside, target.to_string_lossy()))?;
            continue;
        }
        let permissions = u16::try_from(meta.permissions().mode() & 0o7777).unwrap_or(0o644);
        let mut file = FileOptions::new(&inside).permissions(permissions);
        if inside.starts_with(CONFIGURATION) {
            file = file.config().noreplace();
        } else if inside.contains("/LICENSE") {
            file = file.license();
        } else if inside.starts_with("/usr/share/man/") || inside.starts_with("/usr/share/doc/") {
            file = file.doc();
        }
        builder.with_file(&path, file).with_context(|| format!("adding {inside}"))?;
    }
    let package = builder.build().context("building the package")?;
    package.write_file(&options.output).with_context(|| format!("writing {}", options.output.display()))
}

/// Lists the files and links below a directory, sorted.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))? {
        let path = entry.with_context(|| format!("reading {}", directory.display()))?.path();
        let is_directory = path.is_dir() && !path.is_symlink();
        if is_directory { found.extend(files(&path)?) } else { found.push(path) }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_files_give_equal_bytes_whatever_their_times() {
        let directory = std::env::temp_dir().join(format!("packaging-rpm-{}", std::process::id()));
        let root = directory.join("root");
        for file in ["etc/node-pressure-monitor/monitor.yaml", "usr/bin/node-pressure-monitor"] {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, file).unwrap();
        }
        std::os::unix::fs::symlink("node-pressure-monitor", root.join("usr/bin/kubectl-node_pressure")).unwrap();
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/packages/rpm");
        let package = |name: &str| {
            let output = directory.join(name);
            let (version, arch) = ("1.0".to_owned(), "x86_64".to_owned());
            let (root, scripts) = (root.clone(), scripts.clone());
            write(&Options { version, arch, epoch: 1_700_000_000, root, scripts, output: output.clone() }).unwrap();
            fs::read(output).unwrap()
        };
        let first = package("a.rpm");
        std::thread::sleep(std::time::Duration::from_millis(1100));
        let binary = root.join("usr/bin/node-pressure-monitor");
        fs::write(&binary, fs::read(&binary).unwrap()).unwrap();
        assert!(first == package("b.rpm"), "the packages differ");
        let parsed = rpm::Package::open(directory.join("a.rpm")).unwrap();
        let entries = parsed.metadata.get_file_entries().unwrap();
        let files = 3;
        assert_eq!(entries.len(), files + OWN_DIRECTORIES.len(), "{entries:?}");
        fs::remove_dir_all(directory).unwrap();
    }
}
