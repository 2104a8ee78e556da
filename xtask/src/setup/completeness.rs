//! Whether unpacked packages are complete. A file in each tree has the number of the other files and their bytes, as they were after the
//! unpacking: a crash or a full disk can leave empty files.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::need::Lack;

const RECORD: &str = ".unpacked";

/// Writes the record of a tree that is complete.
pub fn record(tree: &Path) -> Result<()> {
    let sum = sum(tree).with_context(|| format!("reading {}", tree.display()))?;
    fs::write(tree.join(RECORD), sum).with_context(|| format!("writing the record of {}", tree.display()))
}

/// Fails if a tree is not as its record has it.
pub fn check(tree: &Path) -> Result<(), Lack> {
    if !tree.exists() {
        return Err(Lack::Absent);
    }
    let refused = |why: String| Lack::Refused(format!("{} is not used: {why}", tree.display()));
    let recorded = fs::read_to_string(tree.join(RECORD))
        .map_err(|_| refused("its unpacking is not known to be complete".to_owned()))?;
    match sum(tree) {
        Ok(sum) if sum == recorded => Ok(()),
        Ok(sum) => Err(refused(format!("it has {sum}, and {recorded} were unpacked"))),
        Err(error) => Err(refused(error.to_string())),
    }
}

/// Returns `812 files with 63452100 bytes`.
fn sum(tree: &Path) -> std::io::Result<String> {
    let (mut files, mut bytes) = (0_u64, 0);
    let mut directories = vec![tree.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                directories.push(entry.path());
            } else if entry.file_name() != RECORD {
                files += 1;
                bytes += metadata.len();
            }
        }
    }
    Ok(format!("{files} files with {bytes} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_with_a_truncated_or_missing_file_is_refused() {
        let tree = std::env::temp_dir().join(format!("completeness-{}", std::process::id()));
        assert_eq!(check(&tree), Err(Lack::Absent));
        fs::create_dir_all(tree.join("boot")).unwrap();
        fs::write(tree.join("boot/vmlinuz-6.12"), "kernel").unwrap();
        assert!(check(&tree).unwrap_err().to_string().contains("not known to be complete"));
        record(&tree).unwrap();
        assert_eq!(check(&tree), Ok(()));
        fs::write(tree.join("boot/vmlinuz-6.12"), "ker").unwrap();
        let story = check(&tree).unwrap_err().to_string();
        assert!(story.ends_with("it has 1 files with 3 bytes, and 1 files with 6 bytes were unpacked"), "{story}");
        fs::remove_file(tree.join("boot/vmlinuz-6.12")).unwrap();
        assert!(check(&tree).is_err());
        fs::remove_dir_all(tree).unwrap();
    }
}
