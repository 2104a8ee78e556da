//! Makes the volumes of a pod's object, as the kubelet makes them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::storage::KUBELET;
use super::translation::{items, text};

/// File contents by file name.
pub type Files = BTreeMap<String, String>;

/// The data that the volumes contain but the pod's object does not.
#[derive(Debug)]
pub struct Sources {
    /// The contents of ConfigMaps, by name.
    pub config_maps: BTreeMap<String, Files>,
    /// The token of the pod's service account.
    pub token: String,
}

/// Makes the volumes that the object names; returns their directories.
pub fn make(pod: &Value, sources: &Sources) -> Result<BTreeMap<String, PathBuf>> {
    let mut places = BTreeMap::new();
    for volume in items(&pod["spec"]["volumes"]) {
        let name = text(volume, "name")?;
        let place = if volume["hostPath"].is_object() {
            host_path(&volume["hostPath"]).with_context(|| format!("volume {name}"))?
        } else if volume["configMap"].is_object() {
            let place = directory(pod, "configmap", name)?;
            publish(&place, sources.config_map(text(&volume["configMap"], "name")?)?)?;
            place
        } else if volume["projected"].is_object() {
            let place = directory(pod, "projected", name)?;
            publish(&place, &projected(pod, &volume["projected"], sources)?)?;
            place
        } else if volume["emptyDir"].is_object() {
            let place = directory(pod, "empty-dir", name)?;
            fs::create_dir_all(&place).with_context(|| format!("create {}", place.display()))?;
            place
        } else {
            bail!("volume {name} is of a kind that is not known here: {volume}");
        };
        places.insert(name.to_owned(), place);
    }
    Ok(places)
}

/// Publishes files into a volume in one step: a new link `..data` replaces the last one by a rename
/// (pkg/volume/util/atomic_writer.go).
pub fn publish(place: &Path, files: &Files) -> Result<()> {
    fs::create_dir_all(place).with_context(|| format!("create {}", place.display()))?;
    let before = fs::read_link(place.join("..data")).ok();
    let number = before.iter().filter_map(|name| name.to_str()?.strip_prefix("..")?.parse::<u32>().ok()).next();
    let version = format!("..{}", number.map_or(1, |number| number + 1));
    let new = place.join(&version);
    fs::create_dir(&new).with_context(|| format!("create {}", new.display()))?;
    for (name, content) in files {
        fs::write(new.join(name), content).with_context(|| format!("write {name}"))?;
        let link = place.join(name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new("..data").join(name), &link).with_context(|| format!("link {}", link.display()))?;
        }
    }
    let (next, data) = (place.join("..data_tmp"), place.join("..data"));
    symlink(&version, &next).with_context(|| format!("link {}", next.display()))?;
    fs::rename(&next, &data).with_context(|| format!("rename to {}", data.display()))?;
    if let Some(before) = before {
        let old = place.join(before);
        fs::remove_dir_all(&old).with_context(|| format!("remove {}", old.display()))?;
    }
    Ok(())
}

impl Sources {
    fn config_map(&self, name: &str) -> Result<&Files> {
        self.config_maps.get(name).with_context(|| format!("there is no ConfigMap {name}"))
    }
}

/// Returns the files of a projected volume, such as the one with which the admission plugin gives a pod its token.
fn projected(pod: &Value, volume: &Value, sources: &Sources) -> Result<Files> {
    let mut files = Files::new();
    for source in items(&volume["sources"]) {
        if source["serviceAccountToken"].is_object() {
            files.insert(text(&source["serviceAccountToken"], "path")?.to_owned(), sources.token.clone());
        } else if source["configMap"].is_object() {
            let content = sources.config_map(text(&source["configMap"], "name")?)?;
            for item in items(&source["configMap"]["items"]) {
                let key = text(item, "key")?;
                let content = content.get(key).with_context(|| format!("the ConfigMap has no {key}"))?;
                files.insert(text(item, "path")?.to_owned(), content.clone());
            }
        } else {
            for item in items(&source["downwardAPI"]["items"]) {
                let "metadata.namespace" = text(&item["fieldRef"], "fieldPath")? else {
                    bail!("{item} is not known here");
                };
                files.insert(text(item, "path")?.to_owned(), text(&pod["metadata"], "namespace")?.to_owned());
            }
        }
    }
    Ok(files)
}

fn directory(pod: &Value, kind: &str, name: &str) -> Result<PathBuf> {
    let uid = text(&pod["metadata"], "uid")?;
    Ok(PathBuf::from(format!("{KUBELET}/pods/{uid}/volumes/kubernetes.io~{kind}/{name}")))
}

fn host_path(volume: &Value) -> Result<PathBuf> {
    let path = PathBuf::from(text(volume, "path")?);
    let is_so = match volume["type"].as_str() {
        None | Some("") => true,
        Some("Directory") => path.is_dir(),
        Some("File") => path.is_file(),
        Some("DirectoryOrCreate") => {
            fs::create_dir_all(&path).with_context(|| format!("create {}", path.display()))?;
            true
        }
        Some(other) => bail!("hostPath of type {other} is not known here"),
    };
    if !is_so {
        bail!("{} is not of type {}", path.display(), volume["type"]);
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_version_replaces_the_last_in_one_step() {
        let place = std::env::temp_dir().join(format!("volumes-{}", std::process::id()));
        let files = |content: &str| Files::from([("monitor.yaml".to_owned(), content.to_owned())]);
        publish(&place, &files("a")).unwrap();
        assert_eq!(fs::read_to_string(place.join("monitor.yaml")).unwrap(), "a");
        publish(&place, &files("b")).unwrap();
        assert_eq!(fs::read_to_string(place.join("monitor.yaml")).unwrap(), "b");
        assert_eq!(fs::read_link(place.join("..data")).unwrap(), Path::new("..2"));
        assert!(!place.join("..1").exists());
        fs::remove_dir_all(&place).unwrap();
    }
}
