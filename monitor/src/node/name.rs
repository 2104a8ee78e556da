//! The name of this node.

/// Returns the configured name, or else the `NODE_NAME` of the environment, or else the host's name. In a pod the host's name is the
/// pod's.
pub fn of(configured: Option<&str>) -> String {
    let from_environment = || std::env::var("NODE_NAME").ok().filter(|name| !name.is_empty());
    let of_host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    configured.map(str::to_owned).or_else(from_environment).unwrap_or_else(of_host)
}
