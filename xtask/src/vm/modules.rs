//! The driver's double as modules of a kernel.
//!
//! In: the sources (`tests/nvidia-sim`), the kernel's headers. Out: `nvidia.ko` and `nvidia-uvm.ko`, with the description
//! of their types where the kernel takes one, and in a folder of each of [`VARIANTS`] both of that variant; kept by kernel
//! and sources. The host's own compiler builds them.
//! What can go wrong: the compiler is missing or refuses; its words are shown.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use object::{Object as _, ObjectSection as _};

use super::bzimage;
use super::kernel::Kernel;
use super::packages::KernelFiles;
use super::tools::Tools;
use crate::shell;

/// The compiler that Debian 12 builds its kernels with does for all of ours.
const COMPILERS: [&str; 2] = ["gcc-12", "gcc"];
/// What a build leaves that is packed.
pub(crate) const NAMES: [&str; 2] = ["nvidia.ko", "nvidia-uvm.ko"];
/// Folders of variants, and the variable of the sources' Makefile that makes each: one whose RM cannot be traced, as
/// the vendor's cannot; one with the function names from before branch 545.
pub(crate) const VARIANTS: [(&str, &str); 2] =
    [("untraced", "SIM_UNTRACED=1"), ("branch-535", "SIM_BRANCH=535")];

/// Builds the modules, or finds those that were built of the same.
pub(crate) fn build(
    kernel: Kernel,
    files: &KernelFiles,
    sources: &Path,
    tools: &Tools,
    kept: &Path,
) -> Result<PathBuf> {
    let key = format!("{}-{:016x}", files.release, hash_of(sources)?);
    let done = kept.join(&key);
    let has_all = |folder: &Path| NAMES.iter().all(|name| folder.join(name).is_file());
    if has_all(&done) && VARIANTS.iter().all(|(variant, _)| has_all(&done.join(variant))) {
        return Ok(done);
    }
    // built beside its place and moved: an interrupted run leaves nothing that looks complete
    let work = kept.join(format!("{}.partial", files.release));
    if work.exists() {
        fs::remove_dir_all(&work).with_context(|| format!("removing {}", work.display()))?;
    }
    let sources = files_in(sources)?;
    build_in(&work, "", kernel, files, &sources, tools)?;
    for (folder, variable) in VARIANTS {
        build_in(&work.join(folder), variable, kernel, files, &sources, tools)?;
    }
    if done.exists() {
        fs::remove_dir_all(&done).with_context(|| format!("removing {}", done.display()))?;
    }
    fs::rename(&work, &done).with_context(|| format!("moving {}", work.display()))?;
    remove_former(kept, &files.release, &key)?;
    Ok(done)
}

/// One variant, in a folder of its own. `variant`: a variable of the sources' Makefile.
fn build_in(
    work: &Path,
    variant: &str,
    kernel: Kernel,
    files: &KernelFiles,
    sources: &[PathBuf],
    tools: &Tools,
) -> Result<()> {
    fs::create_dir_all(work).with_context(|| format!("making {}", work.display()))?;
    for path in sources {
        fs::copy(path, work.join(path.file_name().unwrap_or_default()))
            .with_context(|| format!("copying {}", path.display()))?;
    }
    compile(files, work, variant, tools)?;
    for name in NAMES {
        let module = work.join(name);
        if kernel.has_module_btf() && !has_btf(&module)? {
            describe_types(&module, files, work, tools)?;
            ensure!(has_btf(&module)?, "{}: pahole has not described its types", module.display());
        }
        shell::output(Command::new("objcopy").arg("--strip-debug").arg(&module))?;
    }
    Ok(())
}

fn compile(files: &KernelFiles, work: &Path, variant: &str, tools: &Tools) -> Result<()> {
    relocate(&files.headers)?;
    let compiler = COMPILERS.iter().find(|name| shell::which(name).is_some()).context("no gcc on PATH")?;
    let mut make = Command::new("make");
    make.arg("-s").arg("-C").arg(&files.headers).arg(format!("M={}", work.display()));
    make.arg(format!("CC={compiler}")).args((!variant.is_empty()).then_some(variant)).arg("modules");
    tools.add_to(&mut make);
    shell::output(&mut make).map(drop)
}

/// The headers' Makefile includes another one by the path that it has when it is installed.
fn relocate(headers: &Path) -> Result<()> {
    let makefile = headers.join("Makefile");
    let text = fs::read_to_string(&makefile).with_context(|| format!("reading {}", makefile.display()))?;
    let folder = headers.parent().unwrap_or(headers).to_string_lossy();
    fs::write(&makefile, relocated(&text, &folder)).with_context(|| format!("writing {}", makefile.display()))
}

fn relocated(makefile: &str, folder: &str) -> String {
    let line = |line: &str| match line
        .strip_prefix("include ")
        .and_then(|path| path.split_once("/linux-headers-"))
    {
        Some((_, rest)) => format!("include {folder}/linux-headers-{rest}\n"),
        None => format!("{line}\n"),
    };
    makefile.lines().map(line).collect()
}

/// Where the headers have no kernel to describe the module's types against, it is cut out of the packed one.
fn describe_types(module: &Path, files: &KernelFiles, work: &Path, tools: &Tools) -> Result<()> {
    let base = work.join("vmlinux");
    if !base.is_file() {
        let image = fs::read(&files.image).with_context(|| format!("reading {}", files.image.display()))?;
        let elf = bzimage::vmlinux(&image, tools).with_context(|| files.image.display().to_string())?;
        fs::write(&base, elf).with_context(|| format!("writing {}", base.display()))?;
    }
    shell::output(tools.command("pahole").arg("-J").arg(format!("--btf_base={}", base.display())).arg(module))
        .map(drop)
}

fn has_btf(module: &Path) -> Result<bool> {
    let bytes = fs::read(module).with_context(|| format!("reading {}", module.display()))?;
    let file = object::File::parse(&*bytes).with_context(|| module.display().to_string())?;
    Ok(file.section_by_name(".BTF").is_some_and(|section| 0 < section.size()))
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let is_source = |path: &PathBuf| {
        let named = |name: &str| path.file_name().is_some_and(|n| n == name);
        path.is_file()
            && (named("Makefile")
                || named("Kbuild")
                || path.extension().is_some_and(|e| e == "c" || e == "h"))
    };
    let mut paths: Vec<PathBuf> = paths.into_iter().filter(is_source).collect();
    paths.sort();
    Ok(paths)
}

fn hash_of(sources: &Path) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    for path in files_in(sources)? {
        path.file_name().hash(&mut hasher);
        fs::read(&path).with_context(|| format!("reading {}", path.display()))?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}

/// Builds of the same kernel of other sources.
fn remove_former(kept: &Path, release: &str, key: &str) -> Result<()> {
    for entry in fs::read_dir(kept)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(&format!("{release}-")) && name != key {
            fs::remove_dir_all(entry.path()).with_context(|| format!("removing {name}"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_makefile_includes_the_one_beside_it() {
        let installed = "include /usr/src/linux-headers-6.1.0-57-common/Makefile\n";
        let moved = relocated(installed, "/a/usr/src");
        assert_eq!(moved, "include /a/usr/src/linux-headers-6.1.0-57-common/Makefile\n");
        assert_eq!(
            relocated(&moved, "/b/usr/src"),
            "include /b/usr/src/linux-headers-6.1.0-57-common/Makefile\n"
        );
        assert_eq!(relocated("include x.mk\nall:\n", "/a"), "include x.mk\nall:\n");
    }

    #[test]
    fn a_change_of_the_sources_is_another_build() {
        let folder = std::env::temp_dir().join(format!("vm-modules-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).expect("written");
        write("nvidia.c", "int a;");
        let first = hash_of(&folder).expect("a hash");
        write("README.md", "what it is");
        assert_eq!(hash_of(&folder).expect("a hash"), first, "no source");
        write("nvidia.c", "int b;");
        assert_ne!(hash_of(&folder).expect("a hash"), first);
        fs::remove_dir_all(folder).expect("removed");
    }
}
