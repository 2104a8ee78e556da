//! The workloads outside pods that can be candidates at all, by the configuration and by name. No I/O.

use crate::config::{CandidateOptions, Candidates, NamePattern};

use super::pattern_reach::Named;
use super::workload::{Kind, Workload};

/// The configured rule, and what this node is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Candidacy {
    pub options: CandidateOptions,
    /// An API server is configured.
    pub has_api_server: bool,
    /// A scan of this run has found a kubepods tree. It stays true: a kubelet that restarts may leave the tree empty for a moment.
    pub has_kubepods: bool,
}

impl Candidacy {
    pub fn is_pods_only(&self) -> bool {
        match self.options.candidates {
            Some(candidates) => candidates == Candidates::Pods,
            None => self.has_kubepods || self.has_api_server,
        }
    }

    /// Returns whether the workload is a candidate only while it leaks: a service of the system that the configuration does not list.
    /// `place` is its path below its manager.
    pub fn is_only_as_leaker(&self, kind: &Kind, name: &str, place: &str) -> bool {
        let is_of_systemd = *kind == Kind::Service && place.starts_with("system.slice/");
        (is_of_systemd || *kind == Kind::Cgroup && is_of_openrc(place)) && !self.is_listed(name, place)
    }

    /// Returns whether `evictions.services` lists the workload.
    pub fn is_listed(&self, name: &str, place: &str) -> bool {
        let named = Named { name, place, owner_uid: 0 };
        self.options.services.iter().any(|pattern| Self::lists(pattern, named))
    }

    /// Returns whether a pattern of `evictions.services` lists the workload, whoever owns its cgroup: systemd gives that of a service with
    /// `Delegate=` to the service's user, and to be listed spares nobody.
    pub(super) fn lists(pattern: &NamePattern, Named { name, place, .. }: Named<'_>) -> bool {
        pattern.matches(name) || pattern.matches(place)
    }
}

/// Returns whether the cgroup is the tree of all pods: `kubepods`, `kubepods.slice`, or a nested one such as `kubelet/kubepods`.
pub fn is_kubepods(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    matches!(name, "kubepods" | "kubepods.slice") || name.ends_with("-kubepods.slice")
}

/// Returns whether the cgroup is a login session, or manages them. The whole path counts, because a user may give any name to cgroups below
/// the manager of that user.
pub fn is_of_sessions(path: &str) -> bool {
    let mut parts = path.split('/');
    let (Some("user.slice"), Some(user), Some(unit)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let is_user = user.strip_prefix("user-").is_some_and(|rest| rest.ends_with(".slice"));
    let is_session = unit.starts_with("session-") && unit.ends_with(".scope");
    let is_manager = is_manager_name(unit);
    match (parts.next(), parts.next()) {
        (None, _) => is_user && (is_session || is_manager),
        (Some("init.scope"), None) => is_user && is_manager,
        _ => false,
    }
}

/// Returns whether the cgroup is a service of OpenRC: `rc/NAME`, before that `openrc.NAME`, or `openrc_NAME` in a hierarchy of cgroup v1
/// (`sh/rc-cgroup.sh`).
fn is_of_openrc(place: &str) -> bool {
    let is_old = place.starts_with("openrc.") || place.starts_with("openrc_");
    place.strip_prefix("rc/").is_some_and(|name| !name.contains('/')) || is_old && !place.contains('/')
}

/// Returns whether the name is one that elogind gives the cgroup of a session: `2`, or `c2` for a greeter.
pub fn is_session_id(name: &str) -> bool {
    let digits = name.strip_prefix('c').unwrap_or(name);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns whether the unit stands for something that the kernel or systemd serves, and not for a program: systemd gives a `.mount` unit the
/// daemon of a FUSE filesystem.
pub fn is_mount_unit(path: &str) -> bool {
    let end = path.rsplit('/').next().and_then(|name| name.rsplit_once('.'));
    matches!(end, Some((_, "mount" | "automount" | "swap" | "socket")))
}

/// Returns whether the cgroup is below `session.slice` of a user's manager: `man 7 systemd.special` has it for what is essential to the session.
pub fn is_in_session_slice(place: &str) -> bool {
    user_of_manager(place).is_some() && place.split('/').nth(3) == Some("session.slice")
}

/// Returns the user whose manager the cgroup is below.
pub fn user_of_manager(place: &str) -> Option<u32> {
    let mut parts = place.split('/');
    let manager = parts.nth(2).filter(|_| place.starts_with("user.slice/"))?;
    let uid = manager.strip_prefix("user@")?.strip_suffix(".service")?;
    parts.next().and_then(|_| uid.parse().ok())
}

/// Returns whether the workload is the manager of one user's services, `user@1000.service`.
pub fn is_user_manager(path: &str) -> bool {
    path.rsplit_once('/').is_some_and(|(_, unit)| is_manager_name(unit)) && is_of_sessions(path)
}

fn is_manager_name(unit: &str) -> bool {
    unit.starts_with("user@") && unit.ends_with(".service")
}

pub fn is_outside_pods(workload: &Workload) -> bool {
    workload.kind.pod_uid().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NamePattern;
    use crate::workloads::PodUid;

    #[test]
    fn pods_are_the_only_candidates_where_there_are_pods() {
        use Candidates::{Everything, Pods};
        for (candidates, has_kubepods, has_api_server, expected) in [
            (None, false, false, false),
            (None, true, false, true),
            (None, false, true, true),
            (Some(Everything), true, true, false),
            (Some(Pods), false, false, true),
        ] {
            let options = CandidateOptions { candidates, services: Vec::new() };
            let candidacy = Candidacy { options, has_api_server, has_kubepods };
            assert_eq!(candidacy.is_pods_only(), expected, "{candidacy:?}");
        }
    }

    #[test]
    fn kubepods_trees_of_every_driver_are_found() {
        for (path, expected) in [
            ("kubepods", true),
            ("kubepods.slice", true),
            ("kubelet/kubepods", true),
            ("kubelet.slice/kubelet-kubepods.slice", true),
            ("kubepods.slice/kubepods-burstable.slice", false),
            ("system.slice/kubepods-exporter.service", false),
            ("notkubepods.slice", false),
        ] {
            assert_eq!(is_kubepods(path), expected, "{path}");
        }
    }

    #[test]
    fn sessions_are_found_by_their_whole_path() {
        let user = "user.slice/user-1000.slice";
        for (path, expected) in [
            ("session-3.scope", true),
            ("session-c1.scope", true),
            ("user@1000.service", true),
            ("user@1000.service/init.scope", true),
            ("user@1000.service/app.slice/a.service", false),
            ("user@1000.service/app.slice/session-3.scope", false),
            ("user@1000.service/app.slice/a.service/init.scope", false),
            ("user@1000.service/init.scope/x", false),
        ] {
            assert_eq!(is_of_sessions(&format!("{user}/{path}")), expected, "{path}");
        }
        assert!(!is_of_sessions("lxc/web/user.slice/user-0.slice/session-3.scope"));
        assert!(is_user_manager(&format!("{user}/user@1000.service")));
        assert!(!is_user_manager(&format!("{user}/session-3.scope")));
    }

    #[test]
    fn a_system_service_that_is_not_listed_is_a_candidate_only_as_a_leaker() {
        let services =
            ["postgresql@*.service", "openrc.postgresql"].map(|text| NamePattern::new(text).unwrap()).to_vec();
        let options = CandidateOptions { services, ..CandidateOptions::default() };
        let candidacy = Candidacy { options, ..Candidacy::default() };
        for (kind, name, expected) in [
            (Kind::Service, "system.slice/nginx.service", true),
            (Kind::Service, "system.slice/system-a.slice/a@1.service", true),
            (Kind::Service, "system.slice/system-postgresql.slice/postgresql@15.service", false),
            (Kind::Container("x".to_owned()), "system.slice/docker-x.scope", false),
            (Kind::Scope, "system.slice/run-1.scope", false),
            (Kind::Service, "user.slice/user-1.slice/user@1.service/app.slice/a.service", false),
            (Kind::Service, "machine.slice/a.service", false),
            (Kind::Pod(PodUid("u".to_owned())), "system.slice/x", false),
            (Kind::Cgroup, "openrc.nginx", true),
            (Kind::Cgroup, "openrc_nginx", true),
            (Kind::Cgroup, "rc/nginx", true),
            (Kind::Cgroup, "rc/nginx/worker", false),
            (Kind::Cgroup, "openrc.postgresql", false),
            (Kind::Cgroup, "lxc/openrc.nginx", false),
        ] {
            assert_eq!(candidacy.is_only_as_leaker(&kind, name, name), expected, "{name}");
        }
    }

    #[test]
    fn places_of_other_inits_and_of_sessions_are_known() {
        for (name, expected) in [("2", true), ("c1", true), ("c", false), ("", false), ("2a", false)] {
            assert_eq!(is_session_id(name), expected, "{name}");
        }
        for (path, expected) in [
            ("system.slice/mnt-data.mount", true),
            ("system.slice/proc-sys-fs-binfmt_misc.automount", true),
            ("system.slice/dev-sda2.swap", true),
            ("system.slice/mount.service", false),
        ] {
            assert_eq!(is_mount_unit(path), expected, "{path}");
        }
        let manager = "user.slice/user-1000.slice/user@1000.service";
        for (path, expected) in [
            ("session.slice/org.gnome.Shell@wayland.service", true),
            ("session.slice/plasma-kwin_wayland.service", true),
            ("app.slice/a.service", false),
            ("app.slice/session.slice", false),
        ] {
            assert_eq!(is_in_session_slice(&format!("{manager}/{path}")), expected, "{path}");
        }
        assert_eq!((user_of_manager(&format!("{manager}/a")), user_of_manager(manager)), (Some(1000), None));
    }
}
