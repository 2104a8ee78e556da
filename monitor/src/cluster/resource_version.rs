//! Resource versions of the API server.

/// Compares resource versions as numbers, which Kubernetes 1.35 specifies (KEP-5504) and earlier versions allowed in practice. A version
/// that is no number is not older.
pub(super) fn is_older(now: &str, seen: &str) -> bool {
    matches!((now.parse::<u64>(), seen.parse::<u64>()), (Ok(now), Ok(seen)) if now < seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_store_is_known_by_its_version() {
        assert!(is_older("5", "1000"));
        for (now, seen) in [("1000", "1000"), ("1001", "1000"), ("x", "1"), ("1", "")] {
            assert!(!is_older(now, seen), "{now} {seen}");
        }
    }
}
