//! Debian's packages that a virtual machine needs, unpacked, never installed; and among them a kernel with its headers.
//!
//! In: the mirror of this machine's apt sources. Out: folders `target/vm/packages/SET/KEY`, one per set of archives.
//! Versions move, and a mirror deletes old ones: which are current is asked once a day, and nothing is pinned.
//! What can go wrong: a mirror has dropped a suite, or cannot be reached; what was brought before is used then, and if
//! there is nothing, the error names the remedy.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::kernel::Kernel;
use crate::debian::{Suite, View, extract};

/// How long an answer of the mirror holds.
const HOLDS: Duration = Duration::from_secs(24 * 3600);

/// A kernel's files.
#[derive(Debug)]
pub(crate) struct KernelFiles {
    /// `uname -r`.
    pub(crate) release: String,
    /// The kernel itself.
    pub(crate) image: PathBuf,
    /// The folder to build modules in.
    pub(crate) headers: PathBuf,
}

/// Brings a kernel.
pub(crate) fn kernel(kernel: Kernel, kept: &Path) -> Result<KernelFiles> {
    let root = current(&format!("linux-{}", kernel.name()), kept, |work| {
        let mut refused = Vec::new();
        for suite in kernel.suites() {
            match of_kernel(kernel, *suite, work) {
                Ok(found) => return Ok(found),
                Err(e) => refused.push(format!("{}: {e:#}", suite.name)),
            }
        }
        let names: Vec<&str> = kernel.suites().iter().map(|suite| suite.name).collect();
        bail!(
            "no kernel {} ({}); a mirror drops old suites: let this machine's apt sources name one that has {}, or \
             leave this kernel out with --kernel",
            kernel.name(),
            refused.join("; "),
            names.join(" or ")
        )
    })?;
    let image = only(&root.join("boot"), "vmlinuz-")?;
    let name = image.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let release = name.trim_start_matches("vmlinuz-").to_owned();
    let headers = root.join("usr/src").join(format!("linux-headers-{release}"));
    ensure!(headers.is_dir(), "{}: not there", headers.display());
    Ok(KernelFiles { release, image, headers })
}

fn of_kernel(kernel: Kernel, suite: Suite<'_>, work: &Path) -> Result<Found> {
    let view = View::new(&work.join(suite.name), &[suite], "main")?;
    view.update()?;
    let image = newest_image(&view.dependencies("linux-image-cloud-amd64")?, kernel.name())
        .with_context(|| format!("its linux-image-cloud-amd64 is no {}", kernel.name()))?;
    let headers = image.replacen("linux-image-", "linux-headers-", 1);
    let mut packages = vec![image, headers.clone()];
    let built_with = |name: &String| ["linux-headers-", "linux-kbuild-"].iter().any(|p| name.starts_with(p));
    packages.extend(view.dependencies(&headers)?.into_iter().filter(built_with));
    let names = view.names(&packages)?;
    Ok(Found { names, download: Box::new(move || view.download(&packages)) })
}

/// The concrete package that the metapackage stands for today, such as `linux-image-6.1.0-57-cloud-amd64`.
fn newest_image(dependencies: &[String], kernel: &str) -> Option<String> {
    let start = format!("linux-image-{kernel}.");
    dependencies.iter().find(|name| name.starts_with(&start)).cloned()
}

/// The archives of today: their files' names, and how to get them.
pub(super) struct Found {
    pub(super) names: Vec<String>,
    pub(super) download: Box<dyn FnOnce() -> Result<Vec<PathBuf>>>,
}

/// The folder with today's archives of a set, or with those brought before where today's cannot be had.
pub(super) fn current(set: &str, kept: &Path, find: impl FnOnce(&Path) -> Result<Found>) -> Result<PathBuf> {
    let folder = kept.join(set);
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    // the key of the folder that was last found to be current
    let stamp = folder.join("current");
    let known = fs::read_to_string(&stamp).ok().map(|key| folder.join(key)).filter(|root| root.is_dir());
    let age = fs::metadata(&stamp).and_then(|data| data.modified()).ok().and_then(|time| time.elapsed().ok());
    if let Some(known) = &known
        && age.is_some_and(|age| age < HOLDS)
    {
        return Ok(known.clone());
    }
    match bring(set, &folder, find) {
        Ok(key) => {
            fs::write(&stamp, &key).with_context(|| format!("writing {}", stamp.display()))?;
            Ok(folder.join(key))
        }
        Err(e) => match known {
            Some(known) => {
                println!("vm-test: an earlier {set} is used, since the current one cannot be had: {e:#}");
                Ok(known)
            }
            None => Err(e),
        },
    }
}

fn bring(set: &str, folder: &Path, find: impl FnOnce(&Path) -> Result<Found>) -> Result<String> {
    let work = folder.join("apt");
    let found = find(&work)?;
    ensure!(!found.names.is_empty(), "{set}: apt names no files");
    let key = key_of(&found.names);
    let root = folder.join(&key);
    if !root.is_dir() {
        eprintln!("vm-test: bringing {set} ({} packages)", found.names.len());
        // unpacked beside its place and moved: an interrupted run leaves nothing that looks complete
        let partial = folder.join("partial");
        if partial.exists() {
            fs::remove_dir_all(&partial).with_context(|| format!("removing {}", partial.display()))?;
        }
        fs::create_dir_all(&partial).with_context(|| format!("making {}", partial.display()))?;
        for archive in (found.download)()? {
            extract(&archive, &partial)?;
        }
        // a guest boots without the distribution's modules, which are most of it
        let _ = fs::remove_dir_all(partial.join("lib/modules")); // not in every set
        fs::rename(&partial, &root).with_context(|| format!("moving {}", partial.display()))?;
    }
    fs::remove_dir_all(&work).with_context(|| format!("removing {}", work.display()))?;
    remove_others(folder, &key)?;
    Ok(key)
}

/// Former versions.
fn remove_others(folder: &Path, key: &str) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() && entry.file_name() != key {
            fs::remove_dir_all(entry.path())
                .with_context(|| format!("removing {}", entry.path().display()))?;
        }
    }
    Ok(())
}

fn key_of(names: &[String]) -> String {
    let mut names = names.to_vec();
    names.sort();
    let mut hasher = DefaultHasher::new();
    names.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// The one file of a folder whose name begins so.
fn only(folder: &Path, start: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    let is = |path: &&PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start));
    let mut found = paths.iter().filter(is);
    let first = found.next().with_context(|| format!("{}: no {start}*", folder.display()))?;
    ensure!(found.next().is_none(), "{}: several {start}*", folder.display());
    Ok(first.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metapackage_says_which_kernel_is_current() {
        let names = ["linux-image-6.1.0-57-cloud-amd64".to_owned(), "linux-base".to_owned()];
        assert_eq!(newest_image(&names, "6.1").as_ref(), Some(&names[0]));
        assert_eq!(newest_image(&names, "6.12"), None, "6.1 is not 6.12");
        assert_eq!(newest_image(&["linux-image-6.12.95+deb12-cloud-amd64".to_owned()], "6.1"), None);
        assert_eq!(newest_image(&names[1..], "6.1"), None);
    }

    #[test]
    fn a_key_is_of_the_names_in_any_order() {
        let names = |list: &[&str]| key_of(&list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(names(&["a_1.deb", "b_1.deb"]), names(&["b_1.deb", "a_1.deb"]));
        assert_ne!(names(&["a_1.deb", "b_1.deb"]), names(&["a_1.deb", "b_2.deb"]));
    }

    fn found(name: &str) -> Found {
        Found { names: vec![name.to_owned()], download: Box::new(|| Ok(Vec::new())) }
    }

    #[test]
    fn an_earlier_version_serves_where_the_mirror_does_not() {
        let kept = std::env::temp_dir().join(format!("vm-packages-{}", std::process::id()));
        let refused = || -> Result<Found> { bail!("the mirror is away") };
        assert!(current("set", &kept, |_| refused()).is_err(), "nothing is there yet");
        let work = |at: &Path| fs::create_dir_all(at).expect("a folder");
        let first = current("set", &kept, |at| {
            work(at);
            Ok(found("a_1.deb"))
        })
        .expect("brought");
        assert_eq!(current("set", &kept, |_| refused()).expect("not asked within a day"), first);
        let stamp = fs::File::options().write(true).open(kept.join("set/current")).expect("a stamp");
        let old = std::time::SystemTime::now() - HOLDS;
        stamp.set_modified(old).expect("older");
        assert_eq!(current("set", &kept, |_| refused()).expect("the earlier one"), first);
        let second = current("set", &kept, |at| {
            work(at);
            Ok(found("a_2.deb"))
        })
        .expect("brought");
        assert_ne!(second, first);
        assert!(second.is_dir() && !first.exists(), "the earlier one is removed");
        fs::remove_dir_all(kept).expect("removed");
    }
}
