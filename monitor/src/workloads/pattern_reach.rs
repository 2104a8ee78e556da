//! What the patterns of the configuration match on this machine. A pattern that matches nothing protects nothing, which is to be said.

use serde::Serialize;

use crate::config::NamePattern;

/// So many of the matching workloads are named.
const EXAMPLES: usize = 3;

/// A workload as patterns see it: its name, its path below its service manager, and the user whose cgroup it is.
#[derive(Debug, Clone, Copy)]
pub struct Named<'w> {
    pub name: &'w str,
    pub place: &'w str,
    pub owner_uid: u32,
}

/// What one pattern matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PatternReach {
    /// `protected` or `evictions.services`.
    pub field: &'static str,
    pub pattern: String,
    /// The number of workloads that match.
    pub matches: usize,
    /// The first of them.
    pub examples: Vec<String>,
    /// Why none matches, as far as that can be told.
    pub hint: Option<String>,
}

impl PatternReach {
    /// Returns what the pattern matches, in words: `matches a.service, b.service, and 3 more`.
    pub fn sentence(&self) -> String {
        let Self { matches, examples, .. } = self;
        match (*matches, examples.len()) {
            (0, _) => "matches nothing".to_owned(),
            (all, shown) if all > shown => format!("matches {}, and {} more", examples.join(", "), all - shown),
            _ => format!("matches {}", examples.join(", ")),
        }
    }
}

/// Returns whether the pattern matches. In a cgroup that belongs to a user only the whole name counts.
pub(super) fn matches(pattern: &NamePattern, Named { name, place, owner_uid }: Named<'_>) -> bool {
    let matches = if owner_uid == 0 { NamePattern::matches } else { NamePattern::matches_name_of_user };
    matches(pattern, name) || matches(pattern, place)
}

/// Returns what each pattern of a field matches among these workloads. `matches` is the rule that the field goes by.
pub(super) fn reach_of<'w>(
    field: &'static str,
    patterns: &[NamePattern],
    workloads: &(impl Iterator<Item = Named<'w>> + Clone),
    matches: fn(&NamePattern, Named<'_>) -> bool,
) -> Vec<PatternReach> {
    let of = |pattern: &NamePattern| {
        let mut matching = workloads.clone().filter(|workload| matches(pattern, *workload));
        let examples: Vec<String> = matching.by_ref().take(EXAMPLES).map(|workload| workload.name.to_owned()).collect();
        let matches = examples.len() + matching.count();
        let hint = if matches == 0 { hint(pattern, workloads.clone()) } else { None };
        PatternReach { field, pattern: pattern.as_str().to_owned(), matches, examples, hint }
    };
    patterns.iter().map(of).collect()
}

/// Returns why the pattern matches none of these workloads.
fn hint<'w>(pattern: &NamePattern, mut workloads: impl Iterator<Item = Named<'w>> + Clone) -> Option<String> {
    // A workload of a user that would match by its last component, or by a pattern that begins with a wildcard.
    if let Some(Named { name, owner_uid, .. }) =
        workloads.clone().find(|it| it.owner_uid != 0 && pattern.matches(it.name))
    {
        return Some(format!(
            "{name} belongs to user {owner_uid}: there only the whole name counts, and no pattern that begins with a wildcard"
        ));
    }
    // systemd writes `-` in a name as `\x2d`, and YAML reads that in double quotes as `-` again.
    let plain = |text: &str| text.replace("\\x2d", "-");
    let unescaped = NamePattern::new(&plain(pattern.as_str())).ok()?;
    let escaped = workloads.find(|it| it.name.contains("\\x2d") && unescaped.matches(&plain(it.name)))?;
    Some(format!(
        "the workload is called {}: write its name in single quotes, because YAML reads \\x2d in double quotes as -",
        escaped.name
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(pattern: &str, workloads: &[(&str, u32)]) -> PatternReach {
        let workloads = workloads.iter().map(|(name, owner_uid)| Named { name, place: name, owner_uid: *owner_uid });
        reach_of("protected", &[NamePattern::new(pattern).unwrap()], &workloads, matches).remove(0)
    }

    #[test]
    fn a_pattern_tells_how_many_workloads_it_matches() {
        let found =
            reach("postgresql@*.service", &[("system.slice/postgresql@15.service", 0), ("system.slice/a.service", 0)]);
        assert_eq!((found.matches, found.hint), (1, None));
        assert_eq!(found.examples, ["system.slice/postgresql@15.service"]);
        let names: Vec<String> = (0..7).map(|number| format!("machine.slice/vm-{number}.scope")).collect();
        let many: Vec<(&str, u32)> = names.iter().map(|name| (name.as_str(), 0)).collect();
        let found = reach("machine.slice/*", &many);
        assert_eq!((found.matches, found.examples.len()), (7, 3));
        let three = ["machine.slice/vm-0.scope", "machine.slice/vm-1.scope", "machine.slice/vm-2.scope"].join(", ");
        assert_eq!(found.sentence(), format!("matches {three}, and 4 more"));
        assert_eq!(reach("machine.slice/*", &many[..3]).sentence(), format!("matches {three}"));
        assert_eq!(reach("none", &many).sentence(), "matches nothing");
    }

    #[test]
    fn a_pattern_without_effect_says_why() {
        let vm = r"machine.slice/machine-qemu\x2d1\x2ddb.scope";
        let of_user = "user.slice/user-1000.slice/user@1000.service/app.slice/db.service";
        for (pattern, workload, owner_uid, expected) in [
            ("machine-qemu-1-db.scope", vm, 0, "single quotes"),
            ("machine.slice/machine-qemu-*-db.scope", vm, 0, "single quotes"),
            ("db.service", of_user, 1000, "user 1000"),
            ("*/db.service", of_user, 1000, "wildcard"),
        ] {
            let found = reach(pattern, &[(workload, owner_uid)]);
            assert_eq!(found.matches, 0, "{pattern}");
            assert!(found.hint.as_ref().is_some_and(|hint| hint.contains(expected)), "{pattern}: {:?}", found.hint);
        }
        let found = reach("mysql.service", &[("system.slice/postgresql.service", 0)]);
        assert_eq!((found.matches, found.hint), (0, None));
    }
}
