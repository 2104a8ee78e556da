//! The program and the server that learn of each incident: `notifications` of a `MonitorConfiguration`.

use std::path::PathBuf;
use std::time::Duration;

use super::document_walk::{Field, Fields, Shape, Walk};
use crate::units::named_enum;

/// Where programs lie, unless an argument of the agent names another directory.
const COMMANDS: &str = "/etc/node-pressure-monitor/commands.d";
/// Where the configuration usually lies.
const DIRECTORY: &str = "/etc/node-pressure-monitor";
/// A shorter timeout would end most programs before they have started.
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(100);
/// During a longer timeout, one hanging program would keep all other notifications waiting.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(300);

named_enum! {
    /// The subject of an incident.
    pub enum NoticeKind {
        Eviction = "eviction",
        /// An eviction that observe mode only recorded.
        DryRun = "dryRun",
        OomKill = "oomKill",
    }
}

/// Without a command and a webhook there are no notifications.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotificationOptions {
    /// The program and its arguments; empty: none.
    pub command: Vec<String>,
    /// The program must lie in this directory. Not a field of the file: who may write the file must not choose what runs.
    pub commands: PathBuf,
    /// The directory of the configuration file, in which the token file must lie.
    pub directory: PathBuf,
    pub webhook: Option<Webhook>,
    pub kinds: Vec<NoticeKind>,
    /// How long the program may run, and how long the server may take.
    pub timeout: Duration,
    /// Further incidents are only counted.
    pub max_per_minute: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    pub url: http::Uri,
    /// Certificates in PEM of the authorities that are trusted; none: those of the system.
    pub authorities: Option<PathBuf>,
    /// A file with the token that each request carries. The agent reads the file for each request.
    pub token_file: Option<PathBuf>,
}

impl Default for NotificationOptions {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            commands: COMMANDS.into(),
            directory: DIRECTORY.into(),
            webhook: None,
            kinds: NoticeKind::ALL.to_vec(),
            timeout: Duration::from_secs(10),
            max_per_minute: 6,
        }
    }
}

impl NotificationOptions {
    pub fn is_off(&self) -> bool {
        self.command.is_empty() && self.webhook.is_none()
    }

    pub fn read(walk: &mut Walk<'_>, fields: &Fields<'_>) -> Self {
        let mut options = Self::default();
        let inner = walk.section(fields, "notifications", "command webhook kinds timeout maxPerMinute");
        walk.set(&mut options.command, inner.get("command"), read_command);
        options.webhook = read_webhook(walk, &inner);
        walk.set(&mut options.kinds, inner.get("kinds"), |walk, field| {
            let items = walk.list(field, "kinds", "write e.g. [eviction, oomKill]");
            Some(items.iter().filter_map(|item| walk.choice(item, &NoticeKind::CHOICES)).collect())
        });
        walk.set(&mut options.timeout, inner.get("timeout"), |walk, field| {
            let timeout = walk.duration(field, "10s")?;
            if timeout < SHORTEST_TIMEOUT || timeout > LONGEST_TIMEOUT {
                walk.error(field, "not between 100ms and 5m", "write e.g. 10s");
            }
            Some(timeout)
        });
        walk.set(&mut options.max_per_minute, inner.get("maxPerMinute"), |walk, field| {
            walk.whole_number(field, 1..=600, "6")
        });
        options
    }
}

/// Reads the program, an absolute path, and its arguments.
fn read_command(walk: &mut Walk<'_>, field: &Field<'_>) -> Option<Vec<String>> {
    const FIX: &str = "write e.g. [/etc/node-pressure-monitor/commands.d/tell, --urgent]";
    let words = walk.texts(field, FIX);
    if words.first().is_some_and(|program| !program.starts_with('/')) {
        walk.error(field, "the program must be an absolute path: the agent starts it without a shell", FIX);
        return None;
    }
    Some(words)
}

fn read_webhook(walk: &mut Walk<'_>, fields: &Fields<'_>) -> Option<Webhook> {
    let inner = walk.section(fields, "webhook", "url certificateAuthority bearerTokenFile");
    let path = |walk: &mut Walk<'_>, name, example| inner.get(name).and_then(|field| walk.path(&field, example));
    let authorities = path(walk, "certificateAuthority", "/etc/node-pressure-monitor/webhook-ca.crt");
    let token_file = path(walk, "bearerTokenFile", "/etc/node-pressure-monitor/webhook-token");
    let field = inner.get("url")?;
    let url = read_url(walk, &field)?;
    if token_file.is_some() && url.scheme_str() == Some("http") {
        walk.warning(&field, "without TLS the token can be read on the network", "write https://");
    }
    Some(Webhook { url, authorities, token_file })
}

fn read_url(walk: &mut Walk<'_>, field: &Field<'_>) -> Option<http::Uri> {
    const FIX: &str = "write e.g. https://alerts.example.com/hook";
    walk.describe(field, || Shape::Pattern("^https?://[^/@]+"));
    let url: Result<http::Uri, _> = walk.text(field, FIX)?.parse();
    let is_usable = |url: &http::Uri| {
        let has_host = url.host().is_some_and(|host| !host.is_empty());
        let has_user = url.authority().is_some_and(|authority| authority.as_str().contains('@'));
        has_host && !has_user && matches!(url.scheme_str(), Some("http" | "https"))
    };
    let usable = url.ok().filter(is_usable);
    if usable.is_none() {
        walk.error(field, "must be a URL with http or https and a host, and without a user", FIX);
    }
    usable
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::yaml::parse_document;

    fn read(text: &str) -> (NotificationOptions, String) {
        let document = parse_document(text).unwrap();
        let mut walk = Walk::new("m.yaml");
        let root = Field { path: String::new(), node: &document };
        let fields = walk.fields(&root, "notifications");
        let options = NotificationOptions::read(&mut walk, &fields);
        let (errors, warnings) = walk.finish();
        let problems = errors.iter().map(ToString::to_string).chain(warnings.iter().map(ToString::to_string));
        (options, problems.collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn notifications_are_off_unless_a_receiver_is_named() {
        for text in ["notifications: {}", "notifications: {timeout: 1s, kinds: [eviction]}", "notifications:"] {
            let (options, problems) = read(text);
            assert!(options.is_off() && problems.is_empty(), "{text}: {problems}");
        }
        let (options, problems) = read(
            "notifications: {command: [/bin/tell, now], webhook: {url: \"https://a.example/x?y=1\", \
             certificateAuthority: /ca.crt, bearerTokenFile: /token}, kinds: [oomKill], timeout: 2s, maxPerMinute: 1}",
        );
        assert_eq!(problems, "");
        let webhook = Webhook {
            url: "https://a.example/x?y=1".parse().unwrap(),
            authorities: Some("/ca.crt".into()),
            token_file: Some("/token".into()),
        };
        let expected = NotificationOptions {
            command: vec!["/bin/tell".to_owned(), "now".to_owned()],
            webhook: Some(webhook),
            kinds: vec![NoticeKind::OomKill],
            timeout: Duration::from_secs(2),
            max_per_minute: 1,
            ..NotificationOptions::default()
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn values_that_cannot_work_are_refused() {
        for (inner, problem) in [
            ("command: [tell]", "absolute path"),
            ("command: /bin/tell", "must be a list"),
            ("webhook: {url: alerts.example.com}", "must be a URL"),
            ("webhook: {url: \"ftp://alerts.example.com\"}", "must be a URL"),
            ("webhook: {url: \"http://user:secret@a.example/\"}", "without a user"),
            ("webhook: {url: \"http://a.example/\", bearerTokenFile: /t}", "the token can be read on the network"),
            ("webhook: {uri: \"http://a.example/\"}", "did you mean url?"),
            ("kinds: [evictions]", "write eviction or dryRun or oomKill"),
            ("timeout: 10m", "between 100ms and 5m"),
            ("maxPerMinute: 0", "from 1 to 600"),
        ] {
            let (_, problems) = read(&format!("notifications: {{{inner}}}"));
            assert!(problems.contains(problem), "{inner}: {problems}");
        }
    }
}
