//! An image as one file: an OCI image layout in a tar archive, which `ctr`, `podman`, `skopeo` (`oci-archive:`) and, by the
//! `manifest.json` beside it, `docker load` read.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::tar::Archive;
use crate::arch::Arch;

/// Configuration of an image besides its files.
#[derive(Debug)]
pub struct Description<'a> {
    /// Name of the image with its tag: `localhost/node-pressure-monitor:0.1.0`.
    pub reference: &'a str,
    /// The value of the variable `PATH` in the image.
    pub path: &'a str,
    pub entrypoint: &'a [&'a str],
    /// The default arguments of the entrypoint; without one, the program and its arguments.
    pub command: &'a [&'a str],
    /// The labels as a JSON object.
    pub labels: &'a str,
}

/// Returns an archive of one image with one layer for each architecture, and the digest by which a registry knows the image.
pub fn archive(description: &Description<'_>, layers: &[(Arch, Vec<u8>)]) -> Result<(Vec<u8>, String)> {
    let images = layers.iter().map(|(arch, layer)| Image::of(description, *arch, layer)).collect::<Result<Vec<_>>>()?;
    let first = images.first().context("an image needs a layer")?;
    let Description { reference, .. } = description;
    // Readers look for the name in different annotations: podman in the first, containerd in the second.
    let name = format!(
        r#","annotations":{{"org.opencontainers.image.ref.name":"{reference}","io.containerd.image.name":"{reference}"}}"#
    );
    let mut blobs: BTreeMap<&str, &[u8]> = images.iter().flat_map(Image::blobs).collect();
    // Several architectures are one index, which has the name.
    let inner = index(&images.iter().map(|image| image.descriptor("")).collect::<Vec<_>>());
    let inner_digest = digest(inner.as_bytes())?;
    let (outer, digest) = if images.len() == 1 {
        (index(&[first.descriptor(&name)]), &first.manifest_digest)
    } else {
        blobs.insert(&inner_digest, inner.as_bytes());
        let descriptor = format!(
            r#"{{"mediaType":"application/vnd.oci.image.index.v1+json","digest":"sha256:{inner_digest}","size":{}{name}}}"#,
            inner.len()
        );
        (index(&[descriptor]), &inner_digest)
    };
    // Docker loads one image: that of this machine.
    let of_host = images.iter().find(|image| image.arch.is_host()).unwrap_or(first);
    let for_docker = format!(
        r#"[{{"Config":"blobs/sha256/{}","RepoTags":["{reference}"],"Layers":["blobs/sha256/{}"]}}]"#,
        of_host.config_digest, of_host.layer_digest
    );
    let write = || {
        let mut archive = Archive::new(Vec::new());
        archive.directory("blobs", 0o755)?;
        archive.directory("blobs/sha256", 0o755)?;
        for (digest, content) in &blobs {
            archive.file(&format!("blobs/sha256/{digest}"), 0o644, content)?;
        }
        archive.file("index.json", 0o644, outer.as_bytes())?;
        archive.file("manifest.json", 0o644, for_docker.as_bytes())?;
        archive.file("oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        archive.finish()
    };
    Ok((write().context("writing the archive")?, format!("sha256:{digest}")))
}

fn index(manifests: &[String]) -> String {
    format!(
        r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{}]}}"#,
        manifests.join(",")
    )
}

/// The image for one architecture.
struct Image {
    arch: Arch,
    config: String,
    packed: Vec<u8>,
    manifest: String,
    config_digest: String,
    layer_digest: String,
    manifest_digest: String,
}

impl Image {
    fn of(description: &Description<'_>, arch: Arch, layer: &[u8]) -> Result<Self> {
        let packed = filter("gzip", &["-n", "-9", "-c"], layer)?;
        let config = config(description, arch, &digest(layer)?);
        let (config_digest, layer_digest) = (digest(config.as_bytes())?, digest(&packed)?);
        let manifest = format!(
            r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:{config_digest}","size":{}}},"layers":[{{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"sha256:{layer_digest}","size":{}}}]}}"#,
            config.len(),
            packed.len()
        );
        let manifest_digest = digest(manifest.as_bytes())?;
        Ok(Self { arch, config, packed, manifest, config_digest, layer_digest, manifest_digest })
    }

    fn blobs(&self) -> [(&str, &[u8]); 3] {
        [
            (&self.config_digest, self.config.as_bytes()),
            (&self.layer_digest, &self.packed),
            (&self.manifest_digest, self.manifest.as_bytes()),
        ]
    }

    /// Returns the entry of an index, with these further fields.
    fn descriptor(&self, further: &str) -> String {
        let Self { arch, manifest, manifest_digest, .. } = self;
        format!(
            r#"{{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:{manifest_digest}","size":{},"platform":{{"architecture":"{arch}","os":"linux"}}{further}}}"#,
            manifest.len()
        )
    }
}

fn config(description: &Description<'_>, arch: Arch, layer: &str) -> String {
    let Description { path, entrypoint, command, labels, .. } = description;
    format!(
        r#"{{"created":"1970-01-01T00:00:00Z","architecture":"{arch}","os":"linux","config":{{"User":"0:0","Env":["PATH={path}"],"Entrypoint":{entrypoint:?},"Cmd":{command:?},"WorkingDir":"/","Labels":{labels}}},"rootfs":{{"type":"layers","diff_ids":["sha256:{layer}"]}},"history":[{{"created":"1970-01-01T00:00:00Z","created_by":"cargo xtask image"}}]}}"#
    )
}

/// Returns the SHA-256 in hexadecimal digits.
fn digest(bytes: &[u8]) -> Result<String> {
    let output = filter("sha256sum", &[], bytes)?;
    let digits = output.split(|byte| *byte == b' ').next().unwrap_or_default();
    Ok(String::from_utf8_lossy(digits).into_owned())
}

/// Pipes `input` through a program that every Debian has. A crate instead would first have to be compiled on a fresh clone.
pub fn filter(program: &str, args: &[&str], input: &[u8]) -> Result<Vec<u8>> {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {program}"))?;
    let mut stdin = child.stdin.take().context("standard input of a child")?;
    // Another thread writes while this one reads: a pipe holds only 64 KiB.
    let output = std::thread::scope(|scope| {
        let fed = scope.spawn(move || stdin.write_all(input));
        let output = child.wait_with_output();
        let fed = fed.join().unwrap_or_else(|_| Err(std::io::Error::other("the writer panicked")));
        fed.and(output)
    });
    let output = output.with_context(|| format!("running {program}"))?;
    if !output.status.success() {
        bail!("{program} failed: {}", output.status);
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESCRIPTION: Description<'_> = Description {
        reference: "localhost/a:1",
        path: "/usr/bin",
        entrypoint: &["/usr/bin/a"],
        command: &["run", "-v"],
        labels: "{}",
    };

    #[test]
    fn a_digest_agrees_with_the_standard() {
        // FIPS 180-2, appendix B.1.
        assert_eq!(digest(b"abc").unwrap(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn equal_layers_give_equal_archives() {
        let layers = [(Arch::Amd64, vec![1; 200_000])];
        let first = archive(&DESCRIPTION, &layers).unwrap();
        assert_eq!(first, archive(&DESCRIPTION, &layers).unwrap());
        assert_ne!(first.1, archive(&DESCRIPTION, &[(Arch::Amd64, b"other".to_vec())]).unwrap().1);
    }

    #[test]
    fn entrypoint_and_command_are_json_arrays() {
        let text = config(&DESCRIPTION, Arch::Amd64, "ff");
        assert!(text.contains(r#""Entrypoint":["/usr/bin/a"],"Cmd":["run", "-v"],"#), "{text}");
        let text = config(&Description { entrypoint: &[], ..DESCRIPTION }, Arch::Amd64, "ff");
        assert!(text.contains(r#""Entrypoint":[],"Cmd""#), "{text}");
    }

    #[test]
    fn the_manifest_is_stored_under_its_digest() {
        let (bytes, digest) = archive(&DESCRIPTION, &[(Arch::Arm64, b"layer".to_vec())]).unwrap();
        let name = digest.replace("sha256:", "blobs/sha256/");
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains(&name), "{name}");
        assert!(text.contains(&format!(r#""digest":"{digest}""#)), "the index names it");
    }

    #[test]
    fn architectures_are_one_index_under_the_name() {
        let layers = [Arch::Amd64, Arch::Arm64].map(|arch| (arch, arch.to_string().into_bytes()));
        let (bytes, digest) = archive(&DESCRIPTION, &layers).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(text.matches(&digest).count(), 1, "only index.json names it");
        assert_eq!(text.matches("io.containerd.image.name").count(), 1);
        for arch in ["amd64", "arm64"] {
            let platform = format!(r#""platform":{{"architecture":"{arch}","os":"linux"}}}}"#);
            assert_eq!(text.matches(&platform).count(), 1, "{arch}");
        }
    }
}
