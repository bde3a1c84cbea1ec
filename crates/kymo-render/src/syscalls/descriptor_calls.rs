//! Calls that make, copy and close descriptors.

use super::arguments::{ArgumentDetail, SyscallDescription};
use super::details::{CallDetails, DetailCache, TaskInspector};

impl<I: TaskInspector> DetailCache<I> {
    /// Keeps account of what descriptors stand for.
    pub(super) fn track_descriptors(
        &mut self,
        tid: i32,
        (call, args, details): (&SyscallDescription, &[u64; 6], &CallDetails),
        (value, at): (i64, u64),
    ) {
        let arg = |n: usize| args.get(n).map_or(-1, |a| *a as i32);
        let word = |n: usize| args.get(n).map_or(0, |a| *a as u32);
        let duplicates = |command: i32| matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC);
        let file_of = |n: usize| match details.arguments.get(n) {
            Some(ArgumentDetail::File(file)) => Some(file.path.clone()),
            _ => None,
        };
        match call.name.as_str() {
            "close" => self.note_closed(tid, arg(0), at),
            "close_range" if value == 0 => {
                if word(2) & libc::CLOSE_RANGE_UNSHARE != 0 {
                    self.note_own_table(tid);
                }
                if word(2) & libc::CLOSE_RANGE_CLOEXEC == 0 {
                    self.note_range_closed(tid, (word(0), word(1)), at);
                }
            }
            "unshare" if value == 0 && arg(0) & libc::CLONE_FILES != 0 => {
                self.note_own_table(tid);
            }
            "clone" if value > 0 => {
                let shares_table = arg(0) & libc::CLONE_FILES != 0;
                self.note_started(tid, value as i32, shares_table);
            }
            "clone3" if value > 0 => {
                // The flags lie in memory, which may not have been read: threads use one table.
                let flags = details.arguments.first().and_then(|flags| match flags {
                    ArgumentDetail::Written(text) => Some(text),
                    _ => None,
                });
                const FILES: &[u8] = b"CLONE_FILES";
                let has_files = |text: &Vec<u8>| text.windows(FILES.len()).any(|w| w == FILES);
                let shares_table = flags.is_none_or(has_files);
                if flags.is_some() || self.is_thread_of(tid, value as i32) {
                    self.note_started(tid, value as i32, shares_table);
                }
            }
            "dup2" | "dup3" if value >= 0 && arg(0) == arg(1) => {}
            "dup" | "dup2" | "dup3" if value >= 0 => {
                self.note_opened((tid, at), value as i32, file_of(0));
            }
            "fcntl" if value >= 0 && duplicates(arg(1)) => {
                self.note_opened((tid, at), value as i32, file_of(0));
            }
            _ if call.returns_fd && value >= 0 => {
                // An address is not the file that is made.
                let takes_path = !call.name.starts_with("accept");
                let path = details.arguments.iter().find_map(|s| match s {
                    ArgumentDetail::Memory { bytes, .. } if takes_path => {
                        Some(String::from_utf8_lossy(bytes).into_owned())
                    }
                    _ => None,
                });
                self.note_opened((tid, at), value as i32, path);
            }
            _ => {}
        }
    }
}
