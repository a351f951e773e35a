//! Device ids of device plugins and DRA drivers → what they name.
//!
//! In: an id as the kubelet has it, in whatever form its plugin gives: the form is seen from the id alone, so that no
//! option has to say it. Out: [`DeviceId`]. Pure, and allocates nothing.
//! What can go wrong: an id of no known form, or of something that is no GPU; each has its [`Refusal`].
//!
//! | form | whose |
//! |---|---|
//! | `GPU-…`, `MIG-…`, `MIG-GPU-…/gi/ci` | NVIDIA's device plugin, by UUID (the last one: drivers before 470) |
//! | `0`, `0:1` | the same, by NVML's index: a GPU, a MIG device of it |
//! | `…::7` | the same, shared: replica (time-slicing) or slot (MPS) 7 of any of these |
//! | `nvidia0`, `nvidia0/gi7`, `…/vgpu1` | GKE's device plugin: device minor, GPU instance, share |
//! | `gpu-0`, `gpu-0-mig-1g18gb-19-2`, `gpu-0-mig-19-2-1` | NVIDIA's DRA driver: minor, profile, first slice (, slices) |
//! | `nvidia.com/gpu=…` | a CDI device of any of these; `k8s.gpu.nvidia.com/claim=…` has the claim's uid before it |

/// Longest id read; the longest real one (a claim's CDI device) has about 100 bytes.
const BYTES_MAX: usize = 256;
/// A Kubernetes uid, `8-4-4-4-12` digits.
const UID_BYTES: usize = 36;

/// What an id names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceId<'a> {
    /// The device.
    pub named: Named<'a>,
    /// The share of it (replica, slot, virtual GPU); `None`: all of it.
    pub share: Option<u32>,
}

/// A device by one of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named<'a> {
    /// A GPU or a MIG device: `GPU-…` or `MIG-…`, as NVML has it.
    Uuid(&'a str),
    /// A whole GPU.
    Board(Board<'a>),
    /// A MIG device by NVML's index on its GPU.
    MigIndex(Board<'a>, u32),
    /// A GPU instance by its id, and where `compute` is there one compute instance of it.
    Instance {
        /// Its GPU.
        board: Board<'a>,
        /// NVML's id of the GPU instance.
        instance: u32,
        /// NVML's id of the compute instance.
        compute: Option<u32>,
    },
    /// A GPU instance by where it begins.
    Slice {
        /// Its GPU.
        board: Board<'a>,
        /// Its first memory slice.
        start: u32,
        /// Its profile without dots, such as `1g18gb`, where the name has it.
        profile: Option<&'a str>,
    },
}

/// A GPU by one of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Board<'a> {
    /// `GPU-…`.
    Uuid(&'a str),
    /// NVML's index.
    Index(u32),
    /// The minor of /dev/nvidiaN.
    Minor(u32),
}

/// Why an id names no device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// It has no known form.
    Malformed,
    /// It names something that is no GPU of this driver: another vendor's, an IMEX channel, a GPU that a virtual
    /// machine has.
    NotADevice,
}

/// What an id names.
///
/// # Errors
/// [`Refusal`].
pub fn parse(text: &str) -> Result<DeviceId<'_>, Refusal> {
    if BYTES_MAX < text.len() || !text.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(Refusal::Malformed);
    }
    match text.split_once('=') {
        None => shared(text),
        Some((kind, name)) => {
            let (vendor, class) = kind.split_once('/').ok_or(Refusal::Malformed)?;
            let ours = vendor == "nvidia.com" || vendor.ends_with(".nvidia.com");
            match class {
                _ if !ours => Err(Refusal::NotADevice),
                "gpu" | "mig" | "device" => shared(name),
                "claim" => {
                    shared(name.get(UID_BYTES..).and_then(|rest| rest.strip_prefix('-')).unwrap_or(""))
                }
                _ => Err(Refusal::NotADevice),
            }
        }
    }
}

/// Whether the form is NVIDIA's own, whatever the resource is called: a number alone says nothing.
pub fn is_telling(text: &str) -> bool {
    ["GPU-", "MIG-", "nvidia"].iter().any(|begin| text.starts_with(begin))
}

/// The device, and after `::` a share of it.
fn shared(text: &str) -> Result<DeviceId<'_>, Refusal> {
    let Some((device, share)) = text.split_once("::") else { return named(text) };
    let share = number(share).ok_or(Refusal::Malformed)?;
    match named(device)? {
        DeviceId { named, share: None } => Ok(DeviceId { named, share: Some(share) }),
        _ => Err(Refusal::Malformed),
    }
}

fn named(text: &str) -> Result<DeviceId<'_>, Refusal> {
    let whole = |named| Ok(DeviceId { named, share: None });
    if let Some(parts) = text.strip_prefix("MIG-GPU-") {
        return whole(by_instance(text, parts).ok_or(Refusal::Malformed)?);
    }
    if text.starts_with("GPU-") || text.starts_with("MIG-") {
        return if is_uuid(text) { whole(Named::Uuid(text)) } else { Err(Refusal::Malformed) };
    }
    if let Some(rest) = text.strip_prefix("nvidia") {
        return by_node(rest).ok_or(Refusal::Malformed);
    }
    if let Some(rest) = text.strip_prefix("gpu-") {
        let of_a_guest = rest.starts_with("vfio-");
        let refusal = if of_a_guest { Refusal::NotADevice } else { Refusal::Malformed };
        return whole(by_claim(rest).ok_or(refusal)?);
    }
    let by_index = match text.split_once(':') {
        None => number(text).map(|gpu| Named::Board(Board::Index(gpu))),
        Some((gpu, mig)) => number(gpu).zip(number(mig)).map(|(g, m)| Named::MigIndex(Board::Index(g), m)),
    };
    whole(by_index.ok_or(Refusal::Malformed)?)
}

/// `MIG-GPU-…/gi/ci`; the GPU's own name begins after the first four bytes.
fn by_instance<'a>(text: &'a str, parts: &'a str) -> Option<Named<'a>> {
    let mut numbers = parts.splitn(3, '/').skip(1).map(number);
    let (instance, compute) = (numbers.next()??, numbers.next()??);
    let uuid = text.get("MIG-".len()..)?.split('/').next()?;
    let board = Board::Uuid(Some(uuid).filter(|uuid| is_uuid(uuid))?);
    Some(Named::Instance { board, instance, compute: Some(compute) })
}

/// `0`, `0/gi7`, `0/vgpu1`, `0/gi7/vgpu1`.
fn by_node(rest: &str) -> Option<DeviceId<'_>> {
    let mut parts = rest.split('/');
    let board = Board::Minor(number(parts.next()?)?);
    let mut named = Named::Board(board);
    let mut part = parts.next();
    if let Some(instance) = part.and_then(|part| part.strip_prefix("gi")) {
        named = Named::Instance { board, instance: number(instance)?, compute: None };
        part = parts.next();
    }
    let share = match part {
        None => None,
        Some(part) => Some(number(part.strip_prefix("vgpu")?)?),
    };
    parts.next().is_none().then_some(DeviceId { named, share })
}

/// `0`, `0-mig-19-2-1` (profile, start, size) or `0-mig-1g18gb-19-2` (name of the profile, profile, start).
fn by_claim(rest: &str) -> Option<Named<'_>> {
    let Some((minor, instance)) = rest.split_once("-mig-") else {
        return Some(Named::Board(Board::Minor(number(rest)?)));
    };
    let board = Board::Minor(number(minor)?);
    let mut from_the_end = instance.rsplitn(3, '-');
    let (last, middle, first) = (from_the_end.next()?, from_the_end.next()?, from_the_end.next()?);
    let (last, middle) = (number(last)?, number(middle)?);
    Some(match number(first) {
        Some(_) => Named::Slice { board, start: middle, profile: None },
        None => Named::Slice { board, start: last, profile: Some(first) },
    })
}

fn is_uuid(text: &str) -> bool {
    text.len() > "GPU-".len() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// Digits only: a sign is none.
fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};

    const A: &str = "GPU-aaaaaaaa-0000-0000-0000-000000000003";

    #[test]
    fn every_form_says_itself_what_it_is() {
        use {Board::*, Named as N};
        let mig = format!("MIG-{A}/12/0");
        let cdi = format!("k8s.device-plugin.nvidia.com/gpu={A}");
        let claim =
            |name: &str| format!("k8s.gpu.nvidia.com/claim=dab5ab50-d59a-42a6-af16-cfd4628c0f7a{name}");
        let (whole, part) = (claim("-gpu-3"), claim("-gpu-0-mig-1g18gb-19-2"));
        let instance = |board, instance, compute| N::Instance { board, instance, compute };
        let slice = |start, profile| N::Slice { board: Minor(0), start, profile };
        for (text, named, share) in [
            (A, N::Uuid(A), None),
            ("GPU-a::0", N::Uuid("GPU-a"), Some(0)),
            ("MIG-b", N::Uuid("MIG-b"), None),
            ("MIG-b::7", N::Uuid("MIG-b"), Some(7)),
            (&mig, instance(Uuid(A), 12, Some(0)), None),
            ("MIG-GPU-a/3/1::2", instance(Uuid("GPU-a"), 3, Some(1)), Some(2)),
            ("0", N::Board(Index(0)), None),
            ("15::3", N::Board(Index(15)), Some(3)),
            ("0:1", N::MigIndex(Index(0), 1), None),
            ("0:1::2", N::MigIndex(Index(0), 1), Some(2)),
            ("nvidia2", N::Board(Minor(2)), None),
            ("nvidia0/gi7", instance(Minor(0), 7, None), None),
            ("nvidia0/gi8/vgpu1", instance(Minor(0), 8, None), Some(1)),
            ("nvidia1/vgpu2", N::Board(Minor(1)), Some(2)),
            ("gpu-0", N::Board(Minor(0)), None),
            ("gpu-0-mig-19-2-1", slice(2, None), None),
            ("gpu-0-mig-1g18gb-19-2", slice(2, Some("1g18gb")), None),
            ("gpu-0-mig-1g10gb-me-20-0", slice(0, Some("1g10gb-me")), None),
            ("nvidia.com/gpu=0", N::Board(Index(0)), None),
            ("nvidia.com/gpu=0:2", N::MigIndex(Index(0), 2), None),
            (&cdi, N::Uuid(A), None),
            ("k8s.gpu.nvidia.com/device=gpu-3", N::Board(Minor(3)), None),
            (&whole, N::Board(Minor(3)), None),
            (&part, slice(2, Some("1g18gb")), None),
        ] {
            assert_eq!(parse(text), Ok(DeviceId { named, share }), "{text}");
        }
    }

    #[test]
    fn what_names_no_gpu_is_refused_with_its_reason() {
        let long = format!("GPU-{}", "a".repeat(BYTES_MAX));
        for text in [
            "",
            "GPU-",
            "GPU-a b",
            "GPU-a\n",
            "GPU-é",
            "GPU-a::",
            "GPU-a::x",
            "GPU-a::-1",
            "GPU-a::1::2",
            "MIG-",
            "MIG-GPU-a",
            "MIG-GPU-a/1",
            "MIG-GPU-a/1/2/3",
            "MIG-GPU-a/x/0",
            "MIG-GPU-/1/0/",
            "nvidia",
            "nvidia+1",
            "nvidia0/",
            "nvidia0/gi",
            "nvidia0/vgpu1/gi7",
            "nvidia0/gi7/vgpu1/x",
            "nvidia0/vgpu1::2",
            "nvidiactl",
            "gpu-",
            "gpu-0-mig-",
            "gpu-0-mig-19-2",
            "gpu-0-mig-a-b-c",
            "0000:03:00.0",
            "1:",
            ":1",
            "-1",
            "99999999999",
            "card0",
            "=",
            "x=y",
            "nvidia.com/gpu=",
            "nvidia.com/gpu=all",
            "k8s.gpu.nvidia.com/claim=dab5ab50",
            &long,
        ] {
            assert_eq!(parse(text), Err(Refusal::Malformed), "{text}");
        }
        for text in [
            "amd.com/gpu=0",
            "notnvidia.com/gpu=0",
            "k8s.device-plugin.nvidia.com/imex-channel=0",
            "nvidia.com/pgpu=1",
            "gpu-vfio-1",
        ] {
            assert_eq!(parse(text), Err(Refusal::NotADevice), "{text}");
        }
    }

    /// A form with its numbers put in, and what must come out of it.
    fn forms() -> impl Strategy<Value = (String, Option<u32>)> {
        let share = prop_oneof![Just(None), any::<u32>().prop_map(Some)];
        let base = prop_oneof![
            "GPU-[0-9a-f]{1,12}(-[0-9a-f]{4}){0,3}",
            "MIG-[0-9a-f]{8}(-[0-9a-f]{4}){0,3}",
            "MIG-GPU-[0-9a-f]{8}/[0-9]{1,4}/[0-9]{1,4}",
            "[0-9]{1,3}(:[0-9]{1,2})?",
            "gpu-[0-9]{1,3}(-mig-([1-7]g[0-9]{1,3}gb-)?[0-9]{1,2}-[0-7])?".prop_filter("3 parts", |text| {
                text.split_once("-mig-").is_none_or(|(_, parts)| parts.split('-').count() == 3)
            }),
        ];
        let plugin = (base, share.clone()).prop_map(|(base, share)| {
            let text = share.map_or(base.clone(), |share| format!("{base}::{share}"));
            (text, share)
        });
        let node = ("nvidia[0-9]{1,3}(/gi[0-9]{1,3})?", share).prop_map(|(base, share)| {
            (share.map_or(base.clone(), |share| format!("{base}/vgpu{share}")), share)
        });
        prop_oneof![plugin, node]
    }

    proptest! {
        #[test]
        fn a_form_with_any_numbers_is_read_and_a_cdi_name_says_the_same((text, share) in forms()) {
            let read = parse(&text);
            prop_assert!(read.is_ok_and(|id| id.share == share), "{} {:?}", text, read);
            let cdi = format!("k8s.device-plugin.nvidia.com/gpu={text}");
            prop_assert_eq!(parse(&cdi), read);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,40}|(GPU-|MIG-|MIG-GPU-|nvidia|gpu-|[a-z.]{0,9}/gpu=)[-:/=a-z0-9]{0,40}") {
            if let Ok(id) = parse(&text) {
                prop_assert!(text.is_ascii() && id.share.is_none_or(|share| text.contains(&share.to_string()) || text.contains("::0")|| text.contains("vgpu0")));
            }
        }
    }
}
