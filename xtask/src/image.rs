//! `cargo xtask image`: the image's file system, and the agent running in it, without any container tool.
//!
//! In: `deploy/image/rootfs.sh` and `deploy/daemonset.yaml`. Out: `target/image/rootfs`; or a process that sees that file
//! system and exactly the mounts of the manifest, in a mount namespace of its own. Needs root.
//! What can go wrong: no Debian mirror; a mount is refused. Both are said. Nothing of the host's own mounts changes.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;

use crate::daemonset::{self, Mount, Pod};
use crate::{shell, workspace};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Make target/image/rootfs from Debian's packages
    Build,
    /// Run the agent in it, with the mounts, environment and arguments of the DaemonSet
    Run {
        /// Another directory of the host than the manifest's, as `FROM=TO`; may be given again
        #[arg(long, value_name = "FROM=TO")]
        instead: Vec<String>,
        /// The agent [default: the development build]
        #[arg(long, value_name = "FILE")]
        program: Option<PathBuf>,
        /// More arguments for the agent
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

/// Sets the mounts up as a container runtime does, and becomes the agent. Arguments: the file system, the program,
/// `ro` or `rw`, then source, place, `ro` or `rw` and propagation of each mount, `--`, and the agent's arguments.
const SCRIPT: &str = r#"set -eu
root=$1 program=$2 mode=$3
shift 3
mount --bind "$root" "$root"
mount --bind "$program" "$root/usr/bin/warpgauge"
while [ "$1" != -- ]; do
    mount --rbind "$1" "$root$2"
    mount "--make-$4" "$root$2"
    [ "$3" = rw ] || mount -o remount,bind,ro "$root$2"
    shift 4
done
shift
mount -t proc proc "$root/proc"
[ "$mode" = rw ] || mount -o remount,bind,ro "$root"
exec chroot "$root" /usr/bin/warpgauge "$@"
"#;

/// Runs the command.
pub(crate) fn run(command: Command) -> Result<()> {
    match command {
        Command::Build => build().map(|at| println!("{}", at.display())),
        Command::Run { instead, program, args } => {
            let rootfs = build()?;
            let program = program.unwrap_or_else(|| workspace::program("warpgauge"));
            become_agent(&rootfs, &program, &instead, &args)
        }
    }
}

/// The file system; `None` where it cannot be made, which is said.
pub(crate) fn build_if_possible() -> Option<PathBuf> {
    let built = if shell::is_root() { build() } else { Err(anyhow::anyhow!("that is for root")) };
    built.map_err(|e| println!("The image's file system cannot be made here: {e:#}")).ok()
}

/// Made anew when the script is newer.
fn build() -> Result<PathBuf> {
    let (script, rootfs) =
        (workspace::path("deploy/image/rootfs.sh"), workspace::path("target/image/rootfs"));
    let modified = |path: &Path| fs::metadata(path).and_then(|m| m.modified()).ok();
    // the mount point of the program is made last
    let done = rootfs.join("usr/bin/warpgauge");
    if modified(&done).is_some_and(|made| modified(&script) <= Some(made)) {
        return Ok(rootfs);
    }
    if rootfs.exists() {
        fs::remove_dir_all(&rootfs).with_context(|| format!("removing {}", rootfs.display()))?;
    }
    shell::run(process::Command::new("sh").arg(&script).arg(&rootfs))?;
    fs::write(&done, "").with_context(|| format!("making {}", done.display()))?;
    Ok(rootfs)
}

/// Only returns when it fails: the process is then the agent, and gets its signals.
fn become_agent(rootfs: &Path, program: &Path, instead: &[String], args: &[String]) -> Result<()> {
    let manifest = workspace::path("deploy/daemonset.yaml");
    let text = fs::read_to_string(&manifest).with_context(|| format!("reading {}", manifest.display()))?;
    // as on a cluster of one node, where this is the node
    let node = |field: &str| match field {
        "spec.nodeName" => Some("this-node".to_owned()),
        "status.hostIP" => Some("127.0.0.1".to_owned()),
        _ => None,
    };
    let mut pod = daemonset::read(&text, node).with_context(|| manifest.display().to_string())?;
    replace_sources(&mut pod.mounts, instead)?;
    for mount in pod.mounts.iter().filter(|mount| mount.create) {
        fs::create_dir_all(&mount.source).with_context(|| format!("making {}", mount.source))?;
    }
    let error = command(rootfs, program, &pod, args).exec();
    Err(error).context("cannot start unshare")
}

fn replace_sources(mounts: &mut [Mount], instead: &[String]) -> Result<()> {
    for pair in instead {
        let (from, to) = pair.split_once('=').with_context(|| format!("{pair}: must be FROM=TO"))?;
        let Some(mount) = mounts.iter_mut().find(|mount| mount.source == from) else {
            bail!("{from}: the DaemonSet does not mount it");
        };
        to.clone_into(&mut mount.source);
    }
    Ok(())
}

fn command(rootfs: &Path, program: &Path, pod: &Pod, args: &[String]) -> process::Command {
    let mode = |read_only| if read_only { "ro" } else { "rw" };
    let mut command = process::Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", SCRIPT, "image"]);
    command.arg(rootfs).arg(program).arg(mode(pod.read_only));
    for mount in &pod.mounts {
        // As container runtimes do it, with all mounts below.
        let propagation = if mount.follows { "rslave" } else { "rprivate" };
        command.args([mount.source.as_str(), &mount.place, mode(mount.read_only), propagation]);
    }
    command.arg("--").args(&pod.args).args(args);
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    command.env_clear().env("PATH", path).envs(pod.env.iter().map(|(name, value)| (name, value)));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_daemonset_mounts_can_be_replaced() {
        let mount = |source: &str| Mount {
            source: source.to_owned(),
            place: "/state".to_owned(),
            read_only: false,
            create: true,
            follows: false,
        };
        let mut mounts = [mount("/sys"), mount("/var/lib/warpgauge")];
        replace_sources(&mut mounts, &["/var/lib/warpgauge=/tmp/x".to_owned()]).expect("mounted");
        assert_eq!([&mounts[0].source, &mounts[1].source], ["/sys", "/tmp/x"]);
        for wrong in ["/etc=/tmp/x", "/sys"] {
            assert!(replace_sources(&mut mounts, &[wrong.to_owned()]).is_err(), "{wrong}");
        }
    }
}
