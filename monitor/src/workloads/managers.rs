//! The cgroups of service managers (systemd): the machine's own at the root, and those below any cgroup, as in WSL (`wsl-user/distro-1/systemd`)
//! or a system container. What a unit is follows from its path below its manager. No I/O.

use super::candidacy::is_user_manager;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Managers(Vec<String>);

/// The cgroup of a system manager and of a user's manager itself.
pub(super) const OWN_CGROUP: &str = "init.scope";

impl Managers {
    /// Notes that root's cgroup at `path`, outside pods and containers, holds an `init.scope`. A user's manager has one too, but is a part
    /// of the system manager's tree.
    pub(super) fn note(&mut self, path: &str) {
        if !is_user_manager(self.place(path)) && !self.0.iter().any(|known| known == path) {
            self.0.push(path.to_owned());
        }
    }

    /// Returns the path below the innermost manager.
    pub fn place<'p>(&self, path: &'p str) -> &'p str {
        let below = |manager: &String| path.strip_prefix(manager.as_str())?.strip_prefix('/');
        self.0.iter().filter_map(below).min_by_key(|place| place.len()).unwrap_or(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_below_the_innermost_manager() {
        let mut managers = Managers::default();
        for path in ["wsl-user/distro-7/systemd", "wsl-user/distro-7/systemd/machine.slice/a.service/payload"] {
            managers.note(path);
        }
        managers.note("wsl-user/distro-7/systemd/user.slice/user-0.slice/user@0.service");
        for (path, place) in [
            ("system.slice/a.service", "system.slice/a.service"),
            ("wsl-user/distro-7/systemd/system.slice/a.service", "system.slice/a.service"),
            (
                "wsl-user/distro-7/systemd/machine.slice/a.service/payload/system.slice/b.service",
                "system.slice/b.service",
            ),
            (
                "wsl-user/distro-7/systemd/user.slice/user-0.slice/user@0.service/app.slice/a.service",
                "user.slice/user-0.slice/user@0.service/app.slice/a.service",
            ),
            ("wsl-user/distro-71/systemd/system.slice/a.service", "wsl-user/distro-71/systemd/system.slice/a.service"),
        ] {
            assert_eq!(managers.place(path), place);
        }
    }
}
