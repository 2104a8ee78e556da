//! Container images for the guest's containerd: OCI archives with busybox.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::arch::Arch;
use crate::image::layout::{self, Description};
use crate::image::tar::Archive;

/// Programs that the containers' shell scripts call.
const APPLETS: [&str; 15] =
    ["cat", "dd", "echo", "head", "ls", "mkdir", "rm", "sed", "seq", "sh", "sleep", "tail", "timeout", "tr", "usleep"];
/// The number of unused images. The next constant is the unpacked size of each.
const JUNK: u8 = 3;
const JUNK_MIB: usize = 32;

/// Writes every archive below `scratch`: the image of sandboxes, the image of the pods, and the unused images. Containers have no libraries, so
/// busybox is static.
pub fn make(busybox: &Path, scratch: &Path) -> Result<Vec<PathBuf>> {
    let busybox = fs::read(busybox).with_context(|| format!("reading {}", busybox.display()))?;
    let dir = scratch.join("archives");
    fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    let programs = programs(&busybox).context("writing the layer of busybox")?;
    let mut archives =
        vec![write(&dir, "busybox", &["sh"], &programs)?, write(&dir, "pause", &["sleep", "2147483647"], &programs)?];
    for number in 1..=JUNK {
        let mut layer = Archive::new(Vec::new());
        // The repeated byte compresses well, and differs from that of the next image.
        layer.file("filler", 0o644, &vec![number; JUNK_MIB << 20]).context("writing a layer of junk")?;
        let layer = layer.finish().context("writing a layer of junk")?;
        archives.push(write(&dir, &format!("junk-{number}"), &["sh"], &layer)?);
    }
    Ok(archives)
}

fn programs(busybox: &[u8]) -> io::Result<Vec<u8>> {
    let mut layer = Archive::new(Vec::new());
    for directory in ["bin", "dev", "etc", "proc", "sys", "tmp"] {
        layer.directory(directory, 0o755)?;
    }
    layer.file("bin/busybox", 0o755, busybox)?;
    for applet in APPLETS {
        layer.symlink(&format!("bin/{applet}"), "busybox")?;
    }
    layer.file("etc/passwd", 0o644, b"root:x:0:0:root:/:/bin/sh\n")?;
    layer.finish()
}

/// Writes the archive of `localhost/NAME:1`, which has one layer.
fn write(dir: &Path, name: &str, command: &[&str], layer: &[u8]) -> Result<PathBuf> {
    let reference = &format!("localhost/{name}:1");
    let description = Description { reference, path: "/bin", entrypoint: &[], command, labels: "{}" };
    let (archive, _) = layout::archive(&description, &[(Arch::host(), layer.to_vec())])?;
    let path = dir.join(format!("{name}.tar"));
    fs::write(&path, archive).with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}
