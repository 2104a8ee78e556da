//! What a user can say about his own workloads. It moves the choice among them, never to the workload of somebody else.

use serde::{Deserialize, Serialize};

use super::candidacy::user_of_manager;

/// The place of a workload among those of its user. A later one goes only once no earlier one is worth an eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub enum OwnPlace {
    #[default]
    Ordinary,
    /// The user has marked it with `user.oomd_avoid`.
    Avoid,
    /// It serves the user's session or a mount: a unit of `session.slice`, the session bus, a FUSE daemon.
    Serving,
    /// The user has marked it with `user.oomd_omit`.
    Omit,
}

impl OwnPlace {
    pub const fn words(self) -> Option<&'static str> {
        match self {
            Self::Ordinary => None,
            Self::Avoid => Some("its user marks it user.oomd_avoid: after the others of this user"),
            Self::Serving => Some("serves the session of its user: after the others of this user"),
            Self::Omit => Some("its user marks it user.oomd_omit: the last of this user"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AmongOwn {
    /// The owner of the cgroup, or the user whose manager it is below.
    pub user: u32,
    pub place: OwnPlace,
}

/// Returns the user whose choice the workload is part of; `None` for a workload of the system.
pub(super) fn user(place: &str, owner_uid: u32) -> Option<u32> {
    if owner_uid == 0 { user_of_manager(place) } else { Some(owner_uid).filter(|_| !is_system_service(place)) }
}

/// Returns whether the place is that of a service of the system manager. systemd gives the cgroup of one with `Delegate=` and `User=` to that
/// user, who can make cgroups in it, but none beside it.
fn is_system_service(place: &str) -> bool {
    let Some((above, name)) = place.rsplit_once('/') else { return false };
    let mut above = above.split('/');
    above.next() == Some("system.slice") && above.all(|it| it.ends_with(".slice")) && name.ends_with(".service")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_own_session_is_a_users_too() {
        assert_eq!(user("user.slice/user-0.slice/user@0.service/app.slice/a.service", 0), Some(0));
        for (place, owner_uid, expected) in [
            ("system.slice/a.service", 0, None),
            ("system.slice/a.service", 998, None),
            ("system.slice/system-a.slice/a@1.service", 998, None),
            ("system.slice/a.service/b.service", 998, Some(998)),
            ("machine.slice/a.service", 998, Some(998)),
        ] {
            assert_eq!(user(place, owner_uid), expected, "{place}");
        }
        assert_eq!(user("user.slice/user-7.slice/user@7.service/app.slice/a.service", 7), Some(7));
    }
}
