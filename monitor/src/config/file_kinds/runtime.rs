//! `runtime` of our own kind of file, and what a KubeletConfiguration says of the same.

use std::path::PathBuf;

use crate::config::document_walk::{Fields, Walk};
use crate::config::runtime_options::{RuntimeEndpoint, RuntimeOptions};
use crate::config::yaml::Node;

const FIELDS: [&str; 4] = ["endpoint", "timeout", "minimumContainerAge", "imageMinimumGCAge"];
const ENDPOINT_FIX: &str = "write auto, none, or e.g. unix:///run/containerd/containerd.sock";
const SCHEME: &str = "unix://";

/// Reads the map. What is wrong with it is noted in `walk`.
pub fn read(walk: &mut Walk<'_>, fields: &Fields<'_>) -> RuntimeOptions {
    let mut options = RuntimeOptions::default();
    let Some((path, node)) = fields.get("runtime") else { return options };
    let inner = walk.fields(&path, node, &FIELDS);
    if let Some((field, node)) = inner.get("endpoint")
        && let Some(endpoint) = endpoint(walk, &field, node)
    {
        options.endpoint = endpoint;
    }
    if let Some((field, node)) = inner.get("timeout")
        && let Some(timeout) = walk.positive_duration(&field, node, "5s")
    {
        options.timeout = timeout;
    }
    for (name, target, example) in [
        ("minimumContainerAge", &mut options.minimum_container_age, "1m"),
        ("imageMinimumGCAge", &mut options.image_minimum_gc_age, "2m"),
    ] {
        if let Some((field, node)) = inner.get(name)
            && let Some(age) = walk.duration(&field, node, example)
        {
            *target = age;
        }
    }
    options
}

/// Reads what the kubelet is told of it. Empty and zero mean the default there.
pub fn read_kubelet(walk: &mut Walk<'_>, fields: &Fields<'_>) -> RuntimeOptions {
    let mut options = RuntimeOptions::default();
    if let Some((field, node)) = fields.get("containerRuntimeEndpoint")
        && let Some(text) = walk.text(&field, node, ENDPOINT_FIX)
    {
        // Without a scheme it is a Unix socket too.
        let path = text.strip_prefix(SCHEME).unwrap_or(text);
        if path.starts_with('/') {
            options.endpoint = RuntimeEndpoint::Unix(PathBuf::from(path));
        }
    }
    if let Some((field, node)) = fields.get("imageMinimumGCAge")
        && let Some(age) = walk.duration(&field, node, "2m").filter(|age| !age.is_zero())
    {
        options.image_minimum_gc_age = age;
    }
    options
}

/// `auto`, `none`, or a Unix socket.
fn endpoint(walk: &mut Walk<'_>, field: &str, node: &Node) -> Option<RuntimeEndpoint> {
    let text = walk.text(field, node, ENDPOINT_FIX)?;
    match text {
        "auto" => return Some(RuntimeEndpoint::Auto),
        "none" => return Some(RuntimeEndpoint::Off),
        _ => {}
    }
    let socket = text.strip_prefix(SCHEME).filter(|path| path.starts_with('/') && !path.ends_with('/'));
    if socket.is_none() {
        walk.error(field, node, "must be the absolute path of a Unix socket behind unix://", ENDPOINT_FIX);
    }
    socket.map(|path| RuntimeEndpoint::Unix(PathBuf::from(path)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
