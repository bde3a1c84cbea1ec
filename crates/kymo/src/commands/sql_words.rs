//! Words of the kernel that tables of answers need.

use kymo_render::syscalls::{errno_name, syscall_name, syscall_names};
use kymo_sql::AnswerWords;

use crate::commands::syscalls::report::argument_texts;

/// Names of system calls and errors.
pub(crate) fn words() -> AnswerWords {
    AnswerWords {
        calls: |architecture| architecture.map_or(syscall_name, syscall_names),
        errors: errno_name,
        arguments: argument_texts,
    }
}
