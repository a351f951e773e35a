//! Cgroup id → path, by walking the hierarchy: for processes that are gone when somebody asks.
//!
//! In: an id that a probe took. Out: the path of the directory with that inode number.
//! What can go wrong: the cgroup was removed already, or the tree is larger than the walk's bound; both give `None`.

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::model::CgroupId;

/// Most directories looked at in one walk: ten times what a full node of 500 pods has.
const DIRECTORIES_MAX: usize = 20_000;

/// Whether `path`, below the mount point, is the cgroup of this id.
pub fn is_at(mount: &Path, path: &str, id: CgroupId) -> bool {
    fs::metadata(below(mount, path)).is_ok_and(|m| m.ino() == id.0)
}

/// The path of `id` below the mount point, breadth first.
pub fn find(mount: &Path, id: CgroupId) -> Option<String> {
    if fs::metadata(mount).is_ok_and(|m| m.ino() == id.0) {
        return Some("/".to_owned());
    }
    let mut queue = VecDeque::from([mount.to_path_buf()]);
    for _ in 0..DIRECTORIES_MAX {
        let dir = queue.pop_front()?;
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
            if entry.ino() == id.0 {
                let path = entry.path();
                return path.strip_prefix(mount).ok().map(|p| format!("/{}", p.to_string_lossy()));
            }
            queue.push_back(entry.path());
        }
    }
    None
}

fn below(mount: &Path, path: &str) -> PathBuf {
    mount.join(path.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_found_by_its_inode_number() {
        let root = std::env::temp_dir().join(format!("warpgauge-cgroup-tree-{}", std::process::id()));
        let inner = root.join("kubepods/pod1/c1");
        fs::create_dir_all(&inner).unwrap();
        fs::write(root.join("kubepods/tasks"), "").unwrap();
        let id = CgroupId(fs::metadata(&inner).unwrap().ino());
        assert_eq!(find(&root, id).as_deref(), Some("/kubepods/pod1/c1"));
        assert!(is_at(&root, "/kubepods/pod1/c1", id));
        assert!(!is_at(&root, "/kubepods/pod1", id));
        assert_eq!(find(&root, CgroupId(u64::MAX)), None);
        let root_id = CgroupId(fs::metadata(&root).unwrap().ino());
        assert_eq!(find(&root, root_id).as_deref(), Some("/"));
        fs::remove_dir_all(&root).unwrap();
    }
}
