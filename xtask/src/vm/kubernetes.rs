//! The programs of Kubernetes for the guest with a cluster, from the directory that `KUBERNETES_BIN` names.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::setup::guest_root::image_of;

const VARIABLE: &str = "KUBERNETES_BIN";
/// The programs that the guest starts. All are in a release's archive of the server, `kubernetes-server-linux-amd64.tar.gz`.
const PROGRAMS: [&str; 5] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"];
/// Directories of the unpacked archive that hold the programs.
const INSIDE: [&str; 3] = ["", "server/bin", "kubernetes/server/bin"];
/// MiB for file system structures beside the programs.
const SPARE_MIB: u64 = 64;

/// Returns the directory of the programs.
///
/// # Errors
/// When the variable is not set, or a program is missing there.
pub fn directory() -> Result<PathBuf> {
    let Some(named) = env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from) else {
        bail!(
            "a cluster needs the programs of Kubernetes: unpack kubernetes-server-linux-amd64.tar.gz of a release, and set {VARIABLE} to its \
             directory kubernetes/server/bin"
        );
    };
    let has_all = |directory: &PathBuf| PROGRAMS.iter().all(|program| directory.join(program).is_file());
    INSIDE
        .iter()
        .map(|inside| named.join(inside))
        .find(has_all)
        .with_context(|| format!("{VARIABLE}={}: the directory does not hold {}", named.display(), PROGRAMS.join(", ")))
}

/// Makes the image of a file system with the programs.
pub fn programs(directory: &Path, scratch: &Path) -> Result<PathBuf> {
    let tree = scratch.join("kubernetes");
    fs::create_dir_all(&tree).with_context(|| format!("creating {}", tree.display()))?;
    let mut bytes = 0;
    for program in PROGRAMS {
        let (from, to) = (directory.join(program), tree.join(program));
        bytes += fs::copy(&from, &to).with_context(|| format!("copying {}", from.display()))?;
    }
    let image = scratch.join("kubernetes.img");
    image_of(&tree, &image, &format!("{}M", bytes / 1024 / 1024 + SPARE_MIB))?;
    fs::remove_dir_all(&tree).with_context(|| format!("removing {}", tree.display()))?;
    Ok(image)
}
