//! What the operating system says of this machine and this process. `None`: it cannot be found out.

use std::path::Path;

use rustix::process::{Resource, getrlimit};

use crate::model::room::Room;

/// Where the open descriptors of this process are listed.
const OPEN_DESCRIPTORS: &str = "/proc/self/fd";

/// The disk that a directory is on, in bytes, as far as this user may fill it.
pub fn disk(directory: &Path) -> Option<Room> {
    let found = rustix::fs::statvfs(directory).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Some(Room { free: bytes(found.f_bavail), total: bytes(found.f_blocks) })
}

/// The file descriptors that this process may have.
pub fn descriptors() -> Option<Room> {
    let total = getrlimit(Resource::Nofile).current?;
    let open = std::fs::read_dir(OPEN_DESCRIPTORS).ok()?.count() as u64;
    Some(Room { free: total.saturating_sub(open), total })
}

#[cfg(test)]
mod tests {
    use super::*;

    // PRS-3, WRK-3
    #[test]
    fn what_is_measured_is_this_process_and_its_disk() {
        let folder = tempfile::tempdir().unwrap();
        let room = disk(folder.path()).unwrap();
        assert!(room.free > 0 && room.free <= room.total, "{room:?}");
        assert_eq!(disk(Path::new("/no/such/directory")), None);
        if cfg!(target_os = "linux")
            && let Some(room) = descriptors()
        {
            assert!(room.free > 0 && room.free < room.total, "{room:?}");
        }
    }
}
