//! What a process may see of devices, by its environment.
//!
//! In: the bytes of /proc/PID/environ. Out: the values of two variables, `NVIDIA_VISIBLE_DEVICES` and
//! `CUDA_VISIBLE_DEVICES`, as lists of devices; no other variable is looked at, and no text is kept that does not name a
//! device. What can go wrong: a value of another form; then what it means is not known.

use crate::model::open_nodes::{Visible, VisibleDevice, VisibleList};

/// Devices of one list: more than any node has.
const LISTED_MAX: usize = 256;
/// The longest name is the older form of a MIG device's, with some 60 bytes.
const NAME_MAX: usize = 96;

/// `None`: neither variable is set.
pub fn of(environ: &[u8]) -> Option<Visible> {
    let value = |name: &[u8]| {
        let mut variables = environ.split(|byte| *byte == 0);
        // as getenv(3) has it, the first one counts
        let value = variables.find_map(|variable| variable.strip_prefix(name)?.strip_prefix(b"="))?;
        Some(str::from_utf8(value).unwrap_or("?").trim())
    };
    let runtime = value(b"NVIDIA_VISIBLE_DEVICES").map(by_runtime);
    let cuda = value(b"CUDA_VISIBLE_DEVICES").map(by_cuda);
    (runtime.is_some() || cuda.is_some()).then_some(Visible { runtime, cuda })
}

/// `all`, `none`, a list; with `void`, without a value, or with a folder (devices as volume mounts), the devices come by
/// other means. Source: documentation of NVIDIA's container toolkit.
fn by_runtime(text: &str) -> VisibleList {
    match text {
        "all" => VisibleList::All,
        "none" => VisibleList::Listed(Vec::new()),
        "" | "void" => VisibleList::Elsewhere,
        list => {
            let devices: Option<Vec<_>> = list.split(',').take(LISTED_MAX).map(device).collect();
            devices.map_or(VisibleList::Elsewhere, VisibleList::Listed)
        }
    }
}

/// Devices up to the first that is none, such as `-1`. Source: CUDA's programming guide.
fn by_cuda(text: &str) -> VisibleList {
    let is_cudas = |device: &VisibleDevice| !matches!(device, VisibleDevice::MigIndex(..));
    let named = text.split(',').take(LISTED_MAX).map_while(device).take_while(is_cudas);
    VisibleList::Listed(named.collect())
}

fn device(text: &str) -> Option<VisibleDevice> {
    let text = text.trim();
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().ok()).flatten()
    };
    if let Some(rest) = text.strip_prefix("GPU-").or_else(|| text.strip_prefix("MIG-")) {
        let of_name = |byte: u8| byte.is_ascii_hexdigit() || b"-/GPU".contains(&byte);
        let is_name = !rest.is_empty() && text.len() <= NAME_MAX && rest.bytes().all(of_name);
        return is_name.then(|| VisibleDevice::Uuid(text.to_owned()));
    }
    match text.split_once(':') {
        None => number(text).map(VisibleDevice::Index),
        Some((gpu, mig)) => Some(VisibleDevice::MigIndex(number(gpu)?, number(mig)?)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, proptest};

    use super::*;
    use VisibleDevice::{Index, MigIndex, Uuid};
    use VisibleList::{All, Elsewhere, Listed};

    #[track_caller]
    fn check(environ: &str, runtime: Option<VisibleList>, cuda: Option<VisibleList>) {
        let want = (runtime.is_some() || cuda.is_some()).then_some(Visible { runtime, cuda });
        assert_eq!(of(environ.as_bytes()), want, "{environ:?}");
    }

    #[test]
    fn only_the_two_variables_are_looked_at() {
        check("", None, None);
        check(
            "PATH=/bin\0XCUDA_VISIBLE_DEVICES=1\0CUDA_VISIBLE_DEVICES_=1\0CUDA_VISIBLE_DEVICES\0",
            None,
            None,
        );
        let both = "A=b\0CUDA_VISIBLE_DEVICES=1,0\0NVIDIA_VISIBLE_DEVICES=all\0CUDA_VISIBLE_DEVICES=7\0";
        check(both, Some(All), Some(Listed(vec![Index(1), Index(0)])));
    }

    #[test]
    fn each_form_of_the_runtimes_value() {
        let uuid = |text: &str| Uuid(text.to_owned());
        for (value, want) in [
            ("all", All),
            ("none", Listed(vec![])),
            ("void", Elsewhere),
            ("", Elsewhere),
            ("/var/run/nvidia-container-devices", Elsewhere),
            ("0, 3", Listed(vec![Index(0), Index(3)])),
            ("0:1,GPU-9f8e-1", Listed(vec![MigIndex(0, 1), uuid("GPU-9f8e-1")])),
            ("MIG-GPU-9f8e/7/0", Listed(vec![uuid("MIG-GPU-9f8e/7/0")])),
            ("0,hunter2", Elsewhere),
            ("0,GPU-hunter2", Elsewhere),
            ("-1", Elsewhere),
        ] {
            check(&format!("NVIDIA_VISIBLE_DEVICES={value}\0"), Some(want), None);
        }
    }

    #[test]
    fn cuda_takes_devices_up_to_the_first_that_is_none() {
        for (value, want) in [
            ("2,0", vec![Index(2), Index(0)]),
            ("", vec![]),
            ("-1", vec![]),
            ("1,-1,0", vec![Index(1)]),
            ("NoDevFiles", vec![]),
            ("1,0:1,2", vec![Index(1)]),
            ("GPU-9f8e", vec![Uuid("GPU-9f8e".to_owned())]),
            ("99999999999", vec![]),
        ] {
            check(&format!("X=1\0CUDA_VISIBLE_DEVICES={value}"), None, Some(Listed(want)));
        }
    }

    proptest! {
        /// Whatever an environment holds, nothing is kept but names of devices.
        #[test]
        fn any_environment_is_taken(value in any::<Vec<u8>>(), text in "[\\PC,:-]{0,300}") {
            of(&value);
            let visible = of(format!("CUDA_VISIBLE_DEVICES={text}\0NVIDIA_VISIBLE_DEVICES={text}").as_bytes());
            let visible = visible.unwrap();
            for list in [visible.runtime, visible.cuda].into_iter().flatten() {
                let Listed(devices) = list else { continue };
                prop_assert!(devices.len() <= LISTED_MAX);
                for device in devices {
                    let Uuid(name) = device else { continue };
                    prop_assert!(name.len() <= NAME_MAX && (name.starts_with("GPU-") || name.starts_with("MIG-")));
                }
            }
        }
    }
}
