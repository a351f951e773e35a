//! Which character-device majors are watched, and which driver each belongs to.
//!
//! In: the text of /proc/devices, or a configured list. Out: [`Majors`], as the kernel program's array and by name.
//! What can go wrong: UVM's major is dynamic and changes when the driver is loaded again, so this is looked at again
//! and again; more majors than the array has room for are left out, and said.

use warpgauge_ebpf::maps::MAJOR_SLOTS;

/// NVIDIA's own major, fixed in the kernel's list of devices: watched even before the driver is loaded.
const NVIDIA: u32 = 195;

/// The watched majors, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Majors {
    watched: Vec<(u32, Option<&'static str>)>,
    /// Majors that found no room.
    pub left_out: usize,
}

impl Majors {
    /// NVIDIA's, from the text of /proc/devices.
    pub fn of_nvidia(proc_devices: &str) -> Self {
        let characters = proc_devices.split("Block devices:").next().unwrap_or_default();
        let named = characters.lines().filter_map(|line| {
            let (number, name) = line.trim().split_once(' ')?;
            let driver = match name.trim() {
                "nvidia-uvm" => "uvm",
                name if name.starts_with("nvidia") => "nvidia",
                _ => return None,
            };
            Some((number.parse().ok()?, Some(driver)))
        });
        Self::new(named.chain([(NVIDIA, Some("nvidia"))]).collect())
    }

    /// As configured; such devices have no driver name.
    pub fn configured(numbers: &[u32]) -> Self {
        Self::new(numbers.iter().map(|number| (*number, None)).collect())
    }

    fn new(mut watched: Vec<(u32, Option<&'static str>)>) -> Self {
        watched.retain(|(number, _)| *number != 0);
        watched.sort_unstable();
        watched.dedup_by_key(|(number, _)| *number);
        let left_out = watched.len().saturating_sub(MAJOR_SLOTS);
        watched.truncate(MAJOR_SLOTS);
        Self { watched, left_out }
    }

    /// The driver's short name.
    pub fn driver(&self, major: u32) -> Option<&'static str> {
        self.watched.iter().find(|(number, _)| *number == major).and_then(|(_, driver)| *driver)
    }

    /// The driver of a node that has not been opened yet, by its name.
    pub fn driver_of_node(&self, node: &str) -> Option<&'static str> {
        let by_config = self.watched.iter().all(|(_, driver)| driver.is_none());
        match node {
            _ if by_config => None,
            node if node.starts_with("nvidia-uvm") => Some("uvm"),
            node if node.starts_with("nvidia") => Some("nvidia"),
            _ => None,
        }
    }

    /// As the kernel program wants them: 0 where unused.
    pub fn array(&self) -> [u32; MAJOR_SLOTS] {
        let mut array = [0; MAJOR_SLOTS];
        for (slot, (number, _)) in array.iter_mut().zip(&self.watched) {
            *slot = *number;
        }
        array
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOADED: &str = "Character devices:\n  1 mem\n  4 tty\n195 nvidia\n195 nvidiactl\n195 nvidia-modeset\n\
        234 nvidia-nvswitch\n235 nvidia-caps\n236 nvidia-caps-imex-channels\n237 nvidia-nvlink\n511 nvidia-uvm\n\n\
        Block devices:\n  7 loop\n259 nvidia-not-this\n";

    #[test]
    fn all_regions_of_the_driver_are_watched() {
        let majors = Majors::of_nvidia(LOADED);
        assert_eq!(majors.array(), [195, 234, 235, 236, 237, 511, 0, 0]);
        assert_eq!(majors.driver(511), Some("uvm"));
        assert_eq!(majors.driver(195), Some("nvidia"));
        assert_eq!(majors.driver(235), Some("nvidia"));
        assert_eq!(majors.driver(259), None);
        assert_eq!(majors.left_out, 0);
    }

    #[test]
    fn the_fixed_major_is_watched_before_the_driver_is_there() {
        for text in ["", "Character devices:\n  1 mem\n", "195", "x y\n999999999999 nvidia\n"] {
            assert_eq!(Majors::of_nvidia(text).array(), [195, 0, 0, 0, 0, 0, 0, 0], "{text}");
        }
        assert_eq!(Majors::of_nvidia("195 nvidia-frontend\n").driver(195), Some("nvidia"));
    }

    #[test]
    fn configured_majors_have_no_driver_and_too_many_are_counted() {
        let majors = Majors::configured(&[4, 4, 0, 10]);
        assert_eq!(majors.array(), [4, 10, 0, 0, 0, 0, 0, 0]);
        assert_eq!(majors.driver(4), None);
        assert_eq!(majors.driver_of_node("nvidia0"), None);
        let many: Vec<u32> = (1..=10).collect();
        assert_eq!(Majors::configured(&many).left_out, 2);
    }

    #[test]
    fn nodes_name_their_driver() {
        let majors = Majors::of_nvidia("");
        for (node, want) in [
            ("nvidia0", Some("nvidia")),
            ("nvidiactl", Some("nvidia")),
            ("nvidia-uvm-tools", Some("uvm")),
            ("null", None),
        ] {
            assert_eq!(majors.driver_of_node(node), want, "{node}");
        }
    }
}
