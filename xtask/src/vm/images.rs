//! Container images as OCI archives, made from busybox: what the guest's containerd imports.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::cmd;
use crate::paths::find_program;

/// Programs that the containers' shell scripts call.
const APPLETS: [&str; 12] = ["cat", "dd", "echo", "head", "ls", "mkdir", "rm", "seq", "sh", "sleep", "tail", "usleep"];
/// Names of unused images, and the unpacked size of each.
const JUNK: u8 = 3;
const JUNK_MIB: usize = 32;

/// Writes every archive below `scratch`: the sandbox's image, the image of the pods, and unused ones.
pub fn make(scratch: &Path) -> Result<Vec<PathBuf>> {
    let busybox = find_program("busybox").context("busybox is not there: run `cargo xtask setup`")?;
    let dir = scratch.join("archives");
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    let shell = Image { dir: &dir, name: "busybox", command: &["sh"] };
    let pause = Image { dir: &dir, name: "pause", command: &["sleep", "2147483647"] };
    let mut archives =
        vec![shell.write(&|root| programs(root, &busybox))?, pause.write(&|root| programs(root, &busybox))?];
    for number in 1..=JUNK {
        let name = format!("junk-{number}");
        let image = Image { dir: &dir, name: &name, command: &["sh"] };
        // One byte over and over: small in the archive, and not the same as the next image's.
        archives.push(image.write(&|root| write(&root.join("filler"), &vec![number; JUNK_MIB << 20]))?);
    }
    Ok(archives)
}

fn programs(root: &Path, busybox: &Path) -> Result<()> {
    let bin = root.join("bin");
    for name in ["bin", "tmp", "proc", "sys", "dev", "etc"] {
        let dir = root.join(name);
        fs::create_dir(&dir).with_context(|| format!("creating {}", dir.display()))?;
    }
    fs::copy(busybox, bin.join("busybox")).with_context(|| format!("copying {}", busybox.display()))?;
    for applet in APPLETS {
        symlink("busybox", bin.join(applet)).with_context(|| format!("linking {applet}"))?;
    }
    write(&root.join("etc/passwd"), b"root:x:0:0:root:/:/bin/sh\n")
}

fn write(path: &Path, content: &[u8]) -> Result<()> {
    fs::write(path, content).with_context(|| format!("writing {}", path.display()))
}

/// `localhost/NAME:1`, of one layer.
#[derive(Debug)]
struct Image<'a> {
    dir: &'a Path,
    name: &'a str,
    command: &'a [&'a str],
}

/// A file named by its content.
#[derive(Debug)]
struct Blob {
    digest: String,
    size: u64,
}

impl Image<'_> {
    /// The image layout of opencontainers/image-spec 1.0: blobs, an index, and the mark `oci-layout`; all in one tar.
    fn write(&self, fill: &dyn Fn(&Path) -> Result<()>) -> Result<PathBuf> {
        let base = self.dir.join(self.name);
        let (root, layout) = (base.join("root"), base.join("layout"));
        let blobs = layout.join("blobs/sha256");
        for dir in [&root, &blobs] {
            fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        }
        fill(&root)?;
        let layer = base.join("layer.tar");
        tar(&root, &layer)?;
        let plain = digest(&layer)?;
        cmd::output(Command::new("gzip").args(["-n", "-1"]).arg(&layer))?;
        let layer = adopt(&blobs, &base.join("layer.tar.gz"))?;
        let config = base.join("config");
        write(&config, config_json(&plain, self.command).as_bytes())?;
        let config = adopt(&blobs, &config)?;
        let manifest = base.join("manifest");
        write(&manifest, manifest_json(&config, &layer).as_bytes())?;
        let manifest = adopt(&blobs, &manifest)?;
        write(&layout.join("index.json"), index_json(&manifest, self.name).as_bytes())?;
        write(&layout.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        let archive = self.dir.join(format!("{}.tar", self.name));
        tar(&layout, &archive)?;
        fs::remove_dir_all(&base).with_context(|| format!("removing {}", base.display()))?;
        Ok(archive)
    }
}

/// The same bytes from the same files.
fn tar(dir: &Path, archive: &Path) -> Result<()> {
    let mut command = Command::new("tar");
    command.args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner", "-cf"]);
    cmd::output(command.arg(archive).arg("-C").arg(dir).arg("."))?;
    Ok(())
}

fn digest(file: &Path) -> Result<String> {
    let output = cmd::output(Command::new("sha256sum").arg(file))?;
    let digest = output.split_whitespace().next().with_context(|| format!("no digest from sha256sum: {output:?}"))?;
    Ok(digest.trim_start_matches('\\').to_owned())
}

/// Moves a file among the blobs, under the name that its content gives it.
fn adopt(blobs: &Path, file: &Path) -> Result<Blob> {
    let digest = digest(file)?;
    let size = file.metadata().with_context(|| format!("reading {}", file.display()))?.len();
    let to = blobs.join(&digest);
    fs::rename(file, &to).with_context(|| format!("moving {} to {}", file.display(), to.display()))?;
    Ok(Blob { digest, size })
}

fn config_json(plain_layer: &str, command: &[&str]) -> String {
    let words: Vec<String> = command.iter().map(|word| format!("{word:?}")).collect();
    format!(
        r#"{{"architecture":"amd64","os":"linux","config":{{"Cmd":[{}],"Env":["PATH=/bin"]}},"rootfs":{{"type":"layers","diff_ids":["sha256:{plain_layer}"]}}}}"#,
        words.join(",")
    )
}

fn manifest_json(config: &Blob, layer: &Blob) -> String {
    format!(
        r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:{}","size":{}}},"layers":[{{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"sha256:{}","size":{}}}]}}"#,
        config.digest, config.size, layer.digest, layer.size
    )
}

fn index_json(manifest: &Blob, name: &str) -> String {
    format!(
        r#"{{"schemaVersion":2,"manifests":[{{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:{}","size":{},"annotations":{{"io.containerd.image.name":"localhost/{name}:1","org.opencontainers.image.ref.name":"1"}},"platform":{{"architecture":"amd64","os":"linux"}}}}]}}"#,
        manifest.digest, manifest.size
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_files_give_equal_archives() {
        let scratch = std::env::temp_dir().join(format!("xtask-images-{}", std::process::id()));
        let make = |name: &str| {
            let dir = scratch.join(name);
            let image = Image { dir: &dir, name: "x", command: &["sh"] };
            let archive = image.write(&|root| write(&root.join("filler"), b"content")).unwrap();
            fs::read(archive).unwrap()
        };
        let (first, second) = (make("a"), make("b"));
        fs::remove_dir_all(&scratch).unwrap();
        assert!(!first.is_empty());
        assert!(first == second);
    }

    #[test]
    fn a_manifest_names_its_parts_by_content() {
        let blob = |digest: &str, size| Blob { digest: digest.to_owned(), size };
        let text = manifest_json(&blob("c0", 7), &blob("1a", 9));
        assert!(text.contains(r#""digest":"sha256:c0","size":7"#), "{text}");
        assert!(index_json(&blob("3d", 4), "junk-1").contains(r#""io.containerd.image.name":"localhost/junk-1:1""#));
        assert!(config_json("ff", &["sleep", "1"]).contains(r#""Cmd":["sleep","1"]"#));
    }
}
