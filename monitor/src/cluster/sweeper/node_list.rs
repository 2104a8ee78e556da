//! The list of all nodes, read one by one: with thousands of nodes it has some 15 KiB for each.

use super::super::api_call::TIMEOUT;
use super::super::list_page::{self, escaped};
use super::super::status::node_object::NodeObject;

/// Nodes in a page that is read from the store.
const PAGE: u32 = 100;

/// Where the API server reads the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// Its watch cache, which costs it much less than the store. The cache ignores the limit: the list is one page.
    Cache,
    Store,
}

/// Calls `take` with every node, or with `only` one.
///
/// # Errors
/// When the API server refuses a page, or a node cannot be read.
pub(super) async fn read(
    client: &kube::Client,
    only: Option<&str>,
    from: Source,
    mut take: impl FnMut(NodeObject),
) -> Result<(), String> {
    let mut path = path(only, from, "");
    loop {
        let mut unreadable = None;
        let parse = |item: &[u8]| match serde_json::from_slice(item) {
            Ok(node) => take(node),
            Err(error) => unreadable = Some(format!("a node cannot be read: {error}")),
        };
        let page = list_page::read(client, &path, TIMEOUT, parse).await.map_err(|refusal| refusal.reason)?;
        if let Some(reason) = unreadable {
            return Err(reason);
        }
        if page.next.is_empty() {
            return Ok(());
        }
        path = self::path(only, from, &page.next);
    }
}

/// Returns the path of the first page, or of that which `next` names. The API server refuses a resource version beside that name.
fn path(only: Option<&str>, from: Source, next: &str) -> String {
    let mut path = format!("/api/v1/nodes?limit={PAGE}");
    if let Some(node) = only {
        path.push_str(&format!("&fieldSelector={}", escaped(&format!("metadata.name={node}"))));
    }
    if !next.is_empty() {
        path.push_str(&format!("&continue={}", escaped(next)));
    } else if from == Source::Cache {
        path.push_str("&resourceVersion=0&resourceVersionMatch=NotOlderThan");
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_page_names_a_resource_version() {
        let cached = "/api/v1/nodes?limit=100&resourceVersion=0&resourceVersionMatch=NotOlderThan";
        assert_eq!(path(None, Source::Cache, ""), cached);
        assert_eq!(path(None, Source::Store, ""), "/api/v1/nodes?limit=100");
        for from in [Source::Cache, Source::Store] {
            let next = "/api/v1/nodes?limit=100&fieldSelector=metadata.name%3Da&continue=b%3D";
            assert_eq!(path(Some("a"), from, "b="), next);
        }
    }
}
