//! The programs of Kubernetes and CRI-O, from the directories that `KUBERNETES_BIN` and `CRIO_BIN` name. The guest with a cluster has those of
//! the first directory; the contract tests use each.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::Runtime;
use crate::paths::find_program;
use crate::setup::guest_root::image_of;

/// Programs that the guest starts, and where they come from.
struct Source {
    variable: &'static str,
    programs: &'static [&'static str],
    /// Directories of the unpacked archive that may hold the programs.
    inside: &'static [&'static str],
    /// The advice when the variable is not set.
    advice: &'static str,
}

/// The advice when there is no release of Kubernetes, or not the wanted one.
pub const ADVICE: &str = "the programs of Kubernetes are needed: unpack kubernetes-server-linux-amd64.tar.gz of a release, and set KUBERNETES_BIN \
                          to its directory kubernetes/server/bin";

const KUBERNETES: Source = Source {
    variable: "KUBERNETES_BIN",
    programs: &["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"],
    inside: &["", "server/bin", "kubernetes/server/bin"],
    advice: ADVICE,
};

/// The contract tests need fewer programs.
const API_SERVER: Source = Source { programs: &["kube-apiserver", "kubectl"], ..KUBERNETES };

const CRIO: Source = Source {
    variable: "CRIO_BIN",
    programs: &["crio", "pinns"],
    inside: &["", "bin", "cri-o/bin"],
    advice: "a cluster with CRI-O needs its programs: unpack cri-o.amd64.VERSION.tar.gz of a release, and set CRIO_BIN to its directory \
             cri-o/bin",
};

/// MiB for file system structures beside the programs.
const SPARE_MIB: u64 = 64;

impl Source {
    /// Returns the directories that the variable names.
    fn named(&self) -> Vec<PathBuf> {
        let value = env::var_os(self.variable).unwrap_or_default();
        env::split_paths(&value).filter(|directory| !directory.as_os_str().is_empty()).collect()
    }

    /// Returns the directory with the programs, which is this one or inside it.
    fn directory(&self, named: &Path) -> Result<PathBuf> {
        let has_all = |directory: &PathBuf| self.programs.iter().all(|program| directory.join(program).is_file());
        self.inside.iter().map(|inside| named.join(inside)).find(has_all).with_context(|| {
            format!("{}: {}: the directory does not hold {}", self.variable, named.display(), self.programs.join(", "))
        })
    }

    /// Returns the paths of the programs.
    fn paths(&self) -> Result<Vec<PathBuf>> {
        let Some(named) = self.named().into_iter().next() else { bail!("{}", self.advice) };
        let directory = self.directory(&named)?;
        Ok(self.programs.iter().map(|program| directory.join(program)).collect())
    }
}

const fn sources(runtime: Runtime) -> &'static [Source] {
    match runtime {
        Runtime::Containerd | Runtime::Containerd2 => &[KUBERNETES],
        Runtime::Crio => &[KUBERNETES, CRIO],
    }
}

/// Returns the advice for the first variable that a cluster with this runtime needs and that is not set.
pub fn unset(runtime: Runtime) -> Option<&'static str> {
    sources(runtime).iter().find(|source| source.named().is_empty()).map(|source| source.advice)
}

/// Returns each directory with an API server; none if the variable is not set.
///
/// # Errors
/// When a named directory lacks a program.
pub fn api_servers() -> Result<Vec<PathBuf>> {
    API_SERVER.named().iter().map(|named| API_SERVER.directory(named)).collect()
}

/// Returns the paths of the programs that a cluster with this runtime needs.
///
/// # Errors
/// When a variable is not set, or a program is missing.
fn programs(runtime: Runtime) -> Result<Vec<PathBuf>> {
    let paths: Vec<_> = sources(runtime).iter().map(Source::paths).collect::<Result<_>>()?;
    Ok(paths.concat())
}

/// Returns the path of Helm, if the variable `HELM` names it or it is in `PATH`. Only the installation of the chart needs it.
fn helm() -> Option<PathBuf> {
    let named = env::var_os("HELM").map(PathBuf::from);
    named.or_else(|| find_program("helm")).filter(|path| path.is_file())
}

/// Makes the image of a file system with the programs.
pub fn image_of_programs(runtime: Runtime, scratch: &Path) -> Result<PathBuf> {
    let tree = scratch.join("kubernetes");
    fs::create_dir_all(&tree).with_context(|| format!("creating {}", tree.display()))?;
    let mut bytes = 0;
    for from in programs(runtime)?.into_iter().chain(helm()) {
        let to = tree.join(from.file_name().unwrap_or_default());
        bytes += fs::copy(&from, &to).with_context(|| format!("copying {}", from.display()))?;
    }
    let image = scratch.join("kubernetes.img");
    image_of(&tree, &image, &format!("{}M", bytes / 1024 / 1024 + SPARE_MIB))?;
    fs::remove_dir_all(&tree).with_context(|| format!("removing {}", tree.display()))?;
    Ok(image)
}
