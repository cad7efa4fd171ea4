//! The memory that this process may use: the smallest limit of its control groups, or the memory of the machine.

use std::{fs, io::Read, path::Path};

/// The most bytes that are read of a file.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// Returns the limit in bytes; `None` where the system does not tell. Reads files of the kernel.
pub(super) fn read_memory_limit() -> Option<u64> {
    memory_limit_below(Path::new("/"))
}

fn memory_limit_below(root: &Path) -> Option<u64> {
    let machine = read(&root.join("proc/meminfo")).as_deref().and_then(machine_memory);
    let groups = read(&root.join("proc/self/cgroup")).unwrap_or_default();
    groups.lines().filter_map(|line| group_limit(root, line)).chain(machine).min()
}

/// Reads `MemTotal:       16384256 kB`.
fn machine_memory(meminfo: &str) -> Option<u64> {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    total.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the smallest limit of a control group and those above it. `line` is `HIERARCHY:CONTROLLERS:PATH`; version 2 has
/// no controllers. A container sees its own group as the root, whatever path it reads.
fn group_limit(root: &Path, line: &str) -> Option<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    let (mount, file) = match controllers {
        "" => ("sys/fs/cgroup", "memory.max"),
        _ if controllers.split(',').any(|name| name == "memory") => ("sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        _ => return None,
    };
    let limit = |group: &Path| read(&root.join(mount).join(group).join(file))?.trim().parse::<u64>().ok();
    // A group above the root of the container is written as `/../..`, and is not visible.
    let is_visible = |group: &&Path| !group.starts_with("..");
    Path::new(path.trim_start_matches('/')).ancestors().filter(is_visible).filter_map(limit).min()
}

fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    fs::File::open(path).ok()?.take(MAX_FILE_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::memory_limit_below;

    /// Returns the limit of a machine with these files.
    fn limit(files: &[(&str, &str)]) -> Option<u64> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        memory_limit_below(root.path())
    }

    const MACHINE: (&str, &str) = ("proc/meminfo", "MemTotal:       2048 kB\nMemFree:         1024 kB\n");

    #[test]
    fn the_limit_is_the_smallest_of_the_control_groups_and_the_machine() {
        assert_eq!(limit(&[]), None);
        assert_eq!(limit(&[MACHINE]), Some(2 << 20));
        let unit = ("proc/self/cgroup", "0::/system.slice/gatepost.service\n");
        let unlimited = ("sys/fs/cgroup/system.slice/gatepost.service/memory.max", "max\n");
        assert_eq!(limit(&[MACHINE, unit, unlimited]), Some(2 << 20));
        let slice = ("sys/fs/cgroup/system.slice/memory.max", "1000000\n");
        assert_eq!(limit(&[MACHINE, unit, unlimited, slice]), Some(1_000_000));
        let huge = ("sys/fs/cgroup/system.slice/gatepost.service/memory.max", "9000000000\n");
        assert_eq!(limit(&[MACHINE, unit, huge]), Some(2 << 20));
    }

    #[test]
    fn a_container_reads_the_limit_at_the_root_of_what_it_sees() {
        for groups in ["0::/\n", "0::/../../kubepods/pod1\n", "0::/kubepods/burstable/pod1/c1\n"] {
            let own = ("sys/fs/cgroup/memory.max", "536870912\n");
            let large = ("proc/meminfo", "MemTotal: 64000000 kB\n");
            assert_eq!(limit(&[large, ("proc/self/cgroup", groups), own]), Some(536_870_912), "{groups}");
        }
        let first = ("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/docker/1\n1:name=systemd:/a\n0::/a\n");
        let own = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576\n");
        assert_eq!(limit(&[MACHINE, first, own]), Some(1_048_576));
    }
}
