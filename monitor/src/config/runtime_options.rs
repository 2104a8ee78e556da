//! The container runtime's endpoint, and the garbage collection in it: `runtime` of a `MonitorConfiguration`, and the same settings of
//! a `KubeletConfiguration`.

use std::path::PathBuf;
use std::time::Duration;

use super::document_walk::{Field, Fields, Shape, Walk};

const ENDPOINT_FIX: &str = "write auto, none, or e.g. unix:///run/containerd/containerd.sock";
const SCHEME: &str = "unix://";

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RuntimeEndpoint {
    /// The first of the usual sockets that answers.
    #[default]
    Auto,
    Off,
    Unix(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeOptions {
    pub endpoint: RuntimeEndpoint,
    /// A call that takes longer has failed. Calls that remove or stop something have more time.
    pub timeout: Duration,
    /// A dead container or sandbox is kept for so long after its end: the kubelet may still decide by it whether to restart the pod.
    pub minimum_container_age: Duration,
    /// An image first seen while the agent runs is kept for so long (`imageMinimumGCAge`).
    pub image_minimum_gc_age: Duration,
}

impl Default for RuntimeOptions {
    fn default() -> Self {
        Self {
            endpoint: RuntimeEndpoint::default(),
            timeout: Duration::from_secs(5),
            minimum_container_age: Duration::from_secs(60),
            image_minimum_gc_age: Duration::from_secs(120),
        }
    }
}

impl RuntimeOptions {
    pub fn read(walk: &mut Walk<'_>, fields: &Fields<'_>) -> Self {
        let mut options = Self::default();
        let inner = walk.section(fields, "runtime", "endpoint timeout minimumContainerAge imageMinimumGCAge");
        walk.set(&mut options.endpoint, inner.get("endpoint"), endpoint);
        walk.set(&mut options.timeout, inner.get("timeout"), |walk, field| walk.positive_duration(field, "5s"));
        for (name, target, example) in [
            ("minimumContainerAge", &mut options.minimum_container_age, "1m"),
            ("imageMinimumGCAge", &mut options.image_minimum_gc_age, "2m"),
        ] {
            walk.set(target, inner.get(name), |walk, field| walk.duration(field, example));
        }
        options
    }

    /// Reads the fields of a `KubeletConfiguration`, where empty and zero mean the default.
    pub fn read_kubelet(walk: &mut Walk<'_>, fields: &Fields<'_>) -> Self {
        let mut options = Self::default();
        walk.set(&mut options.endpoint, fields.get("containerRuntimeEndpoint"), |walk, field| {
            let text = walk.text(field, ENDPOINT_FIX)?;
            // The kubelet takes a path without a scheme for a Unix socket.
            let path = text.strip_prefix(SCHEME).unwrap_or(text);
            path.starts_with('/').then(|| RuntimeEndpoint::Unix(PathBuf::from(path)))
        });
        walk.set(&mut options.image_minimum_gc_age, fields.get("imageMinimumGCAge"), |walk, field| {
            walk.duration(field, "2m").filter(|age| !age.is_zero())
        });
        options
    }
}

/// Reads `auto`, `none`, or a Unix socket.
fn endpoint(walk: &mut Walk<'_>, field: &Field<'_>) -> Option<RuntimeEndpoint> {
    walk.describe(field, || Shape::Pattern("^(auto|none|unix:///.*[^/])$"));
    let text = walk.text(field, ENDPOINT_FIX)?;
    match text {
        "auto" => return Some(RuntimeEndpoint::Auto),
        "none" => return Some(RuntimeEndpoint::Off),
        _ => {}
    }
    let socket = text.strip_prefix(SCHEME).filter(|path| path.starts_with('/') && !path.ends_with('/'));
    if socket.is_none() {
        walk.error(field, "must be the absolute path of a Unix socket behind unix://", ENDPOINT_FIX);
    }
    socket.map(|path| RuntimeEndpoint::Unix(PathBuf::from(path)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MonitorConfig;

    fn parse(text: &str) -> Result<RuntimeOptions, String> {
        let text = format!("apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\nruntime: {text}\n");
        MonitorConfig::parse("m.yaml", &text)
            .map(|loaded| loaded.config.runtime)
            .map_err(|errors| errors.to_string().trim_end().to_owned())
    }

    #[test]
    fn every_field_is_read() {
        let text =
            "{endpoint: unix:///run/crio/crio.sock, timeout: 1s, minimumContainerAge: 0s, imageMinimumGCAge: 5m}";
        let expected = RuntimeOptions {
            endpoint: RuntimeEndpoint::Unix(PathBuf::from("/run/crio/crio.sock")),
            timeout: Duration::from_secs(1),
            minimum_container_age: Duration::ZERO,
            image_minimum_gc_age: Duration::from_secs(300),
        };
        assert_eq!(parse(text), Ok(expected));
        for (text, endpoint) in [
            ("{}", RuntimeEndpoint::Auto),
            ("{endpoint: auto}", RuntimeEndpoint::Auto),
            ("{endpoint: none}", RuntimeEndpoint::Off),
        ] {
            assert_eq!(parse(text), Ok(RuntimeOptions { endpoint, ..RuntimeOptions::default() }), "{text}");
        }
    }

    #[test]
    fn the_kubelet_is_told_of_the_same_runtime() {
        let parse = |text: &str| {
            let text = format!("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{text}\n");
            MonitorConfig::parse("k.yaml", &text).unwrap().config.runtime
        };
        let default = RuntimeOptions::default;
        let socket = || RuntimeEndpoint::Unix(PathBuf::from("/run/crio/crio.sock"));
        for (text, expected) in [
            ("", default()),
            ("containerRuntimeEndpoint: \"\"\nimageMinimumGCAge: 0s", default()),
            (
                "containerRuntimeEndpoint: unix:///run/crio/crio.sock",
                RuntimeOptions { endpoint: socket(), ..default() },
            ),
            ("containerRuntimeEndpoint: /run/crio/crio.sock", RuntimeOptions { endpoint: socket(), ..default() }),
            ("imageMinimumGCAge: 1h", RuntimeOptions { image_minimum_gc_age: Duration::from_secs(3600), ..default() }),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_unix_socket_is_refused() {
        for text in ["/run/crio/crio.sock", "unix://run/crio.sock", "tcp://localhost:1", "unix:///", "\"\"", "[a]"] {
            let error = parse(&format!("{{endpoint: {text}}}")).unwrap_err();
            assert!(error.starts_with("m.yaml:3: runtime.endpoint: ") && error.ends_with(ENDPOINT_FIX), "{error}");
        }
        let error = parse("{timeout: 0s}").unwrap_err();
        assert!(error.contains("runtime.timeout") && error.contains("longer than zero"), "{error}");
        assert!(parse("{endpont: auto}").unwrap_err().contains("endpoint"), "the nearest name is proposed");
    }
}
