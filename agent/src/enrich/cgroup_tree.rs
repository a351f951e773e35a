//! Cgroup id → path, from walks of the hierarchy: for processes that are gone when somebody asks.
//!
//! In: an id that a probe took. Out: the path of the directory with that inode number.
//! One walk answers for all ids, and walks are seconds apart: a node with many short-lived pods must not walk for each.
//! What can go wrong: the cgroup was removed already, or the tree is larger than the walk's bound; both give `None`.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::model::{CgroupId, MonoNs};

/// Most directories looked at in one walk: ten times what a full node of 500 pods has.
const DIRECTORIES_MAX: usize = 20_000;
/// The shortest time between two walks.
const WALK_AGAIN: Duration = Duration::from_secs(5);

/// What the last walk found.
#[derive(Debug, Default)]
pub struct CgroupTree {
    paths: HashMap<CgroupId, String>,
    walked: Option<MonoNs>,
}

impl CgroupTree {
    /// The path of `id` below the mount point; walks when it is not known and the last walk is old enough.
    pub fn find(&mut self, mount: &Path, id: CgroupId, now: MonoNs) -> Option<String> {
        if let Some(path) = self.paths.get(&id) {
            // Inode numbers of a hierarchy are not used again, but paths are.
            return is_at(mount, path, id).then(|| path.clone());
        }
        if self.walked.is_some_and(|walked| now.since(walked).is_none_or(|age| age < WALK_AGAIN)) {
            return None;
        }
        self.walked = Some(now);
        self.paths = walk(mount);
        self.paths.get(&id).cloned()
    }
}

/// Whether `path`, below the mount point, is the cgroup of this id.
pub fn is_at(mount: &Path, path: &str, id: CgroupId) -> bool {
    fs::metadata(below(mount, path)).is_ok_and(|m| m.ino() == id.0)
}

/// Ids and paths of the whole tree, breadth first.
fn walk(mount: &Path) -> HashMap<CgroupId, String> {
    let mut paths = HashMap::new();
    if let Ok(root) = fs::metadata(mount) {
        paths.insert(CgroupId(root.ino()), "/".to_owned());
    }
    let mut queue = VecDeque::from([mount.to_path_buf()]);
    for _ in 0..DIRECTORIES_MAX {
        let Some(dir) = queue.pop_front() else { break };
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
            let path = entry.path();
            if let Ok(below) = path.strip_prefix(mount) {
                paths.insert(CgroupId(entry.ino()), format!("/{}", below.to_string_lossy()));
            }
            queue.push_back(path);
        }
    }
    paths
}

fn below(mount: &Path, path: &str) -> PathBuf {
    mount.join(path.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_dir::TestDir;

    #[test]
    fn a_directory_is_found_by_its_inode_number() {
        let root = TestDir::new();
        let second = |s: u64| MonoNs(s * 1_000_000_000);
        let id_of = |path: &Path| CgroupId(fs::metadata(path).unwrap().ino());
        let inner = root.path().join("kubepods/pod1/c1");
        fs::create_dir_all(&inner).unwrap();
        fs::write(root.path().join("kubepods/tasks"), "").unwrap();
        let mut tree = CgroupTree::default();
        let id = id_of(&inner);
        assert_eq!(tree.find(root.path(), id, second(1)).as_deref(), Some("/kubepods/pod1/c1"));
        assert!(is_at(root.path(), "/kubepods/pod1/c1", id) && !is_at(root.path(), "/kubepods/pod1", id));
        assert_eq!(tree.find(root.path(), id_of(root.path()), second(1)).as_deref(), Some("/"));
        assert_eq!(tree.find(root.path(), CgroupId(u64::MAX), second(1)), None);

        let late = root.path().join("kubepods/pod2");
        fs::create_dir(&late).unwrap();
        let late_id = id_of(&late);
        assert_eq!(
            tree.find(root.path(), late_id, second(3)),
            None,
            "the last walk is too young for another"
        );
        assert_eq!(tree.find(root.path(), late_id, second(7)).as_deref(), Some("/kubepods/pod2"));
        fs::remove_dir(&late).unwrap();
        assert_eq!(tree.find(root.path(), late_id, second(8)), None, "a removed one is not found any more");
    }
}
