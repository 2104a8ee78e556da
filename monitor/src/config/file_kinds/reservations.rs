//! What is kept from pods, and what swap does: the same words in every kind of file.

use crate::config::document_walk::{Fields, Walk};
use crate::config::yaml::Node;
use crate::units::quantity::Quantity;

/// What can be reserved.
const RESOURCES: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];

/// What node allocatable can be enforced on.
const ENFORCED: [&str; 6] =
    ["none", "pods", "system-reserved", "kube-reserved", "system-reserved-compressible", "kube-reserved-compressible"];

/// Said where swap is allowed.
pub const SWAP: &str = "swap may be used on this node, and evictions are blind to it: swap neither adds to memory.available nor counts as \
                        used; what is swapped out leaves the working set, so memory.available stays high while the node thrashes, \
                        and MemoryPressure may never be seen";
/// What to do about it.
pub const SWAP_FIX: &str = "switch swap off where evictions are to protect memory";

/// One item of a list, and where it stands.
#[derive(Debug, Clone)]
pub struct Item<'n> {
    /// The path to it.
    pub field: String,
    /// Where it stands.
    pub node: &'n Node,
    /// What is said.
    pub text: &'n str,
    /// What is shown of it in messages.
    pub shown: &'n str,
}

/// Reads a map from resources to amounts.
pub fn reserved_map(walk: &mut Walk<'_>, fields: &Fields<'_>, name: &str) -> Vec<(String, Quantity)> {
    let Some((path, node)) = fields.get(name) else {
        return Vec::new();
    };
    let map = walk.fields_or(&path, node, &RESOURCES, |name| format!("{name} cannot be reserved"));
    let mut amounts = Vec::new();
    for (resource, field, node) in map.iter() {
        let text = walk.text(&field, node, "write e.g. 1Gi");
        let amount = text.and_then(|text| reserved(walk, resource, &Item { field, node, text, shown: text }));
        amounts.extend(amount.map(|amount| (resource.to_owned(), amount)));
    }
    amounts
}

/// Reads the amount that is reserved of a resource.
pub fn reserved(walk: &mut Walk<'_>, resource: &str, item: &Item<'_>) -> Option<Quantity> {
    const FIX: &str = "write e.g. 500m for cpu, 1Gi for memory, 1000 for pid";
    let error = if RESOURCES.contains(&resource) {
        match Quantity::parse(item.text) {
            Ok(amount) if amount.is_negative() => "what is reserved cannot be negative".to_owned(),
            Ok(amount) => return Some(amount),
            Err(error) => error.to_string(),
        }
    } else {
        format!("{resource} cannot be reserved")
    };
    let fix = if RESOURCES.contains(&resource) { FIX } else { "what can: cpu, memory, ephemeral-storage, pid" };
    walk.error_in(&item.field, item.node, Some(item.shown), error, fix);
    None
}

/// Reads the items of a list of plain values.
pub fn items<'n>(walk: &mut Walk<'_>, path: &str, list: &'n [Node], fix: &str) -> Vec<Item<'n>> {
    let mut items = Vec::new();
    for (index, node) in list.iter().enumerate() {
        let field = format!("{path}[{index}]");
        if let Some(text) = walk.text(&field, node, fix) {
            items.push(Item { field, node, text, shown: text });
        }
    }
    items
}

/// Reads what node allocatable is enforced on; tells whether the pods' own cgroup is limited.
pub fn pods_enforced(walk: &mut Walk<'_>, items: &[Item<'_>]) -> bool {
    let others = items.iter().any(|item| item.text != "none");
    for item in items {
        if !ENFORCED.contains(&item.text) {
            let fix = format!("write {}", ENFORCED.join(" or "));
            walk.error_in(&item.field, item.node, Some(item.shown), "not one of the choices", &fix);
        } else if item.text == "none" && others {
            let fix = "leave out either none or everything else";
            walk.error_in(&item.field, item.node, Some(item.shown), "cannot stand with others", fix);
        }
    }
    items.iter().any(|item| item.text == "pods")
}

/// Reads `enforceNodeAllocatable`.
pub fn enforced_field(walk: &mut Walk<'_>, fields: &Fields<'_>, absent: bool) -> bool {
    const FIX: &str = "write e.g. [pods], or [] for nothing";
    let Some((path, node)) = fields.get("enforceNodeAllocatable") else {
        return absent;
    };
    let list = walk.list(&path, node, "names", FIX);
    let items = items(walk, &path, list, FIX);
    pods_enforced(walk, &items)
}
